// Nearest-neighbour upsampling by 2 and its gradient.
//
// Rung: the first on the GPU. One thread per output element, global memory only.
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, 2 height, 2 width,
// channels).
// Launches: block (256), grid (ceil(elements of the output / 256)): y forward, dx backward.
// Bound: memory. 20 bytes per element of x, either way.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    upsample2d_forward(const float* __restrict__ x, float* __restrict__ y, int batch, int height,
                       int width, int channels) {
    int out_height = 2 * height, out_width = 2 * width;
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * out_height * out_width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int column = pixel % out_width, row = pixel / out_width % out_height,
        image = pixel / (out_width * out_height);
    y[element] = x[((image * height + row / 2) * width + column / 2) * channels + channel];
}

// Sum of a pixel's four copies, row by row.
extern "C" __global__ void __launch_bounds__(256)
    upsample2d_backward(const float* __restrict__ dy, float* __restrict__ dx, int batch, int height,
                        int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int column = pixel % width, row = pixel / width % height, image = pixel / (width * height);
    const float* corner =
        dy + ((image * 2 * height + 2 * row) * 2 * width + 2 * column) * channels + channel;
    const float* below = corner + 2 * width * channels;
    dx[element] = corner[0] + corner[channels] + below[0] + below[channels];
}
