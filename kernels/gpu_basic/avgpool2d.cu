// Average-pooling, for any window, stride and padding, and its gradient. Zeros around the image
// count as pixels.
//
// Rung: the first on the GPU. One thread per output element, global memory only; the gradient is
// gathered, so that no two threads write one element even if windows overlap.
// Layouts, float32: x, dx (batch, height, width, channels), y, dy (batch, out_height, out_width,
// channels), with out_height = (height + 2 padding - window) / stride + 1.
// Launches: block (256), grid (ceil(elements of the output / 256)): y forward, dx backward.
// Bound: memory. With adjacent 2x2 windows, 20 bytes per element of y, either way.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "windows.cuh"

extern "C" __global__ void __launch_bounds__(256)
    avgpool2d_forward(const float* __restrict__ x, float* __restrict__ y, int batch, int height,
                      int width, int channels, int window, int stride, int padding) {
    int out_height = windows(height, window, stride, padding),
        out_width = windows(width, window, stride, padding);
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * out_height * out_width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int column = pixel % out_width, row = pixel / out_width % out_height,
        image = pixel / (out_width * out_height);
    int top = row * stride - padding, left = column * stride - padding;
    int last_row = min(top + window, height), last_column = min(left + window, width);

    const float* pixels = x + image * height * width * channels + channel;
    float sum = 0.0f;
    for (int in_row = max(top, 0); in_row < last_row; in_row++)
        for (int in_column = max(left, 0); in_column < last_column; in_column++)
            sum += pixels[(in_row * width + in_column) * channels];
    y[element] = sum / (window * window);
}

// Sum of the gradients of the windows that hold the pixel, by row and column.
extern "C" __global__ void __launch_bounds__(256)
    avgpool2d_backward(const float* __restrict__ dy, float* __restrict__ dx, int batch, int height,
                       int width, int channels, int window, int stride, int padding) {
    int out_height = windows(height, window, stride, padding),
        out_width = windows(width, window, stride, padding);
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int row = pixel / width % height + padding, column = pixel % width + padding,
        image = pixel / (width * height);
    int last_row = min(out_height, first_window(row + 1, stride));
    int last_column = min(out_width, first_window(column + 1, stride));

    const float* gradients = dy + image * out_height * out_width * channels + channel;
    float sum = 0.0f;
    for (int out_row = first_window(row - window + 1, stride); out_row < last_row; out_row++)
        for (int out_column = first_window(column - window + 1, stride); out_column < last_column;
             out_column++)
            sum += gradients[(out_row * out_width + out_column) * channels];
    dx[element] = sum / (window * window);
}
