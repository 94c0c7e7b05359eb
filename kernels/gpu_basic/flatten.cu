// Flattens an image, channel by channel, and its gradient.
//
// Rung: the first on the GPU. One thread per output element, global memory only.
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, channels height width).
// Launches: block (256), grid (ceil(batch height width channels / 256)).
// Bound: memory. 8 bytes per element; 4 are read with a stride of `channels` or height width
// elements, so that reuse of a line is left to the caches.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    flatten_forward(const float* __restrict__ x, float* __restrict__ y, int batch, int height,
                    int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x, pixels = height * width;
    if (element >= batch * pixels * channels) return;
    int pixel = element % pixels, channel = element / pixels % channels,
        image = element / (pixels * channels);
    y[element] = x[(image * pixels + pixel) * channels + channel];
}

extern "C" __global__ void __launch_bounds__(256)
    flatten_backward(const float* __restrict__ dy, float* __restrict__ dx, int batch, int height,
                     int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x, pixels = height * width;
    if (element >= batch * pixels * channels) return;
    int channel = element % channels, pixel = element / channels % pixels,
        image = element / (pixels * channels);
    dx[element] = dy[(image * channels + channel) * pixels + pixel];
}
