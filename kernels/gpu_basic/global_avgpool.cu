// The mean of each channel over the whole image, and its gradient.
//
// Rung: the first on the GPU. One thread per output element, global memory only.
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, channels).
// Launches: block (256), grid (ceil(elements of the output / 256)): y forward, dx backward.
// Bound: memory, 4 bytes per pixel and channel either way; for many pixels and few channels, the
// latency of sequential loads, because there is only one thread per mean.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    global_avgpool_forward(const float* __restrict__ x, float* __restrict__ y, int batch,
                           int height, int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * channels) return;
    int channel = element % channels, image = element / channels, pixels = height * width;
    float sum = 0.0f;
    for (int pixel = 0; pixel < pixels; pixel++)
        sum += x[(image * pixels + pixel) * channels + channel];
    y[element] = sum / pixels;
}

extern "C" __global__ void __launch_bounds__(256)
    global_avgpool_backward(const float* __restrict__ dy, float* __restrict__ dx, int batch,
                            int height, int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x, pixels = height * width;
    if (element >= batch * pixels * channels) return;
    int channel = element % channels, image = element / (pixels * channels);
    dx[element] = dy[image * channels + channel] / pixels;
}
