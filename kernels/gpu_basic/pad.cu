// Zero padding on all four sides of an image, and its gradient: the inner part.
//
// Rung: the first on the GPU. One thread per output element, global memory only.
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, height + 2 amount, width
// + 2 amount, channels).
// Launches: block (256), grid (ceil(elements of the output / 256)): y forward, dx backward.
// Bound: memory. 4 bytes per element of x and 4 per element of y forward, 8 per element of x
// backward.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    pad_forward(const float* __restrict__ x, float* __restrict__ y, int batch, int height,
                int width, int channels, int amount) {
    int out_height = height + 2 * amount, out_width = width + 2 * amount;
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * out_height * out_width * channels) return;
    int channel = element % channels, pixel = element / channels,
        image = pixel / (out_width * out_height);
    int row = pixel / out_width % out_height - amount, column = pixel % out_width - amount;
    bool inside = row >= 0 && row < height && column >= 0 && column < width;
    y[element] = inside ? x[((image * height + row) * width + column) * channels + channel] : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256)
    pad_backward(const float* __restrict__ dy, float* __restrict__ dx, int batch, int height,
                 int width, int channels, int amount) {
    int out_height = height + 2 * amount, out_width = width + 2 * amount;
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels, image = pixel / (width * height);
    int row = pixel / width % height + amount, column = pixel % width + amount;
    dx[element] = dy[((image * out_height + row) * out_width + column) * channels + channel];
}
