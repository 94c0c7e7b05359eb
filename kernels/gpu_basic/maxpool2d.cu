// Max-pooling, for any window, stride and padding, and its gradient.
//
// Rung: the first on the GPU. One thread per output element, global memory only; the gradient is
// gathered, so that no two threads write one element even if windows overlap.
// Layouts: x, dx (batch, height, width, channels), y, dy (batch, out_height, out_width, channels),
// float32, with out_height = (height + 2 padding - window) / stride + 1; index, uint8, as y: the
// position of the maximum (the first if several are equal) in its window in row-major order, so
// window is at most 15. Padding never wins; every window holds a pixel of the image, because
// padding is at most half a window.
// Launches: block (256), grid (ceil(elements of the output / 256)): y forward, dx backward.
// Bound: memory. With adjacent 2x2 windows, forward reads 16 and writes 5 bytes per output,
// backward reads 5 for every 16 it writes.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "windows.cuh"

// Of forward, how many blocks a multiprocessor must have room for; 0: as the compiler chooses.
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1305 && __CUDA_ARCH__ == 800
#define BLOCKS_AT_ONCE 6  // it would take 32 registers for 8 of them, and spill
#else
#define BLOCKS_AT_ONCE 0
#endif

extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE)
    maxpool2d_forward(const float* __restrict__ x, float* __restrict__ y,
                      unsigned char* __restrict__ index, int batch, int height, int width,
                      int channels, int window, int stride, int padding) {
    int out_height = windows(height, window, stride, padding),
        out_width = windows(width, window, stride, padding);
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * out_height * out_width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int column = pixel % out_width, row = pixel / out_width % out_height,
        image = pixel / (out_width * out_height);
    int top = row * stride - padding, left = column * stride - padding;
    int first_row = max(top, 0), last_row = min(top + window, height);
    int first_column = max(left, 0), last_column = min(left + window, width);

    const float* pixels = x + image * height * width * channels + channel;
    float largest = pixels[(first_row * width + first_column) * channels];
    int place = (first_row - top) * window + first_column - left;
    for (int in_row = first_row; in_row < last_row; in_row++)
        for (int in_column = first_column; in_column < last_column; in_column++) {
            float value = pixels[(in_row * width + in_column) * channels];
            // NaN wins, so that it is not lost
            if (value > largest || (value != value && largest == largest)) {
                largest = value;
                place = (in_row - top) * window + in_column - left;
            }
        }
    y[element] = largest;
    index[element] = place;
}

// Sum of the gradients of the windows that took the pixel, by row and column.
extern "C" __global__ void __launch_bounds__(256)
    maxpool2d_backward(const float* __restrict__ dy, const unsigned char* __restrict__ index,
                       float* __restrict__ dx, int batch, int height, int width, int channels,
                       int window, int stride, int padding) {
    int out_height = windows(height, window, stride, padding),
        out_width = windows(width, window, stride, padding);
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int row = pixel / width % height + padding, column = pixel % width + padding,
        image = pixel / (width * height);
    int last_row = min(out_height, first_window(row + 1, stride));
    int last_column = min(out_width, first_window(column + 1, stride));

    float sum = 0.0f;
    for (int out_row = first_window(row - window + 1, stride); out_row < last_row; out_row++)
        for (int out_column = first_window(column - window + 1, stride); out_column < last_column;
             out_column++) {
            int output =
                ((image * out_height + out_row) * out_width + out_column) * channels + channel;
            int place = (row - out_row * stride) * window + column - out_column * stride;
            if (index[output] == place) sum += dy[output];
        }
    dx[element] = sum;
}
