// Max-pooling of 2x2 windows, stride 2, and its gradient. An odd last row or column is dropped.
//
// Rung: over gpu_basic, WIDTH neighbouring channels per thread with accesses of 4 WIDTH bytes; the
// gradient is written a whole window at a time, so that dy and the index are read once; where x
// came from a ReLU, its gradient is applied here too (a window's maximum passed the ReLU exactly
// where it is positive).
//
// Layouts: x, dx (batch, height, width, channels), y, dy (batch, height / 2, width / 2, channels),
// float32; index, uint8, as y: the position of the maximum (the first of equal values) in its
// window, 0 to 3 in row-major order. Arrays start at multiples of 16 bytes (index: 4).
// Macro WIDTH: 4 for channels that are a multiple of 4, otherwise 1.
// Launches: block (256), grid (ceil(elements / WIDTH / 256)); elements of y forward; backward of y
// with its height and width rounded up, because a dropped row or column gets zeros.
// Bound: memory. Forward reads 16 and writes 5 bytes per output, backward reads 5 to 9 and writes
// 16.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/vector.cuh"

#ifndef WIDTH
#define WIDTH 4
#endif

extern "C" __global__ void __launch_bounds__(256)
    maxpool2d_forward(const float* __restrict__ x, float* __restrict__ y,
                      unsigned char* __restrict__ index, int batch, int height, int width,
                      int channels) {
    int out_height = height / 2, out_width = width / 2;
    int element = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (element >= batch * out_height * out_width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int column = pixel % out_width, row = pixel / out_width % out_height,
        image = pixel / (out_width * out_height);

    const float* corner =
        x + ((image * height + 2 * row) * width + 2 * column) * channels + channel;
    float values[4][WIDTH], largest[WIDTH];
    int place[WIDTH];
#pragma unroll
    for (int i = 0; i < 4; i++) load(values[i], corner + (i / 2 * width + i % 2) * channels);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        largest[e] = values[0][e], place[e] = 0;
#pragma unroll
        for (int i = 1; i < 4; i++)
            // NaN wins, so that it is not lost
            if (values[i][e] > largest[e] || values[i][e] != values[i][e])
                largest[e] = values[i][e], place[e] = i;
    }
    store(y + element, largest);
    store(index + element, place);
}

// relu: x is the output of a ReLU, and dx the gradient of the ReLU's input; y: the forward pass's
// output.
extern "C" __global__ void __launch_bounds__(256)
    maxpool2d_backward(const float* __restrict__ dy, const unsigned char* __restrict__ index,
                       const float* __restrict__ y, float* __restrict__ dx, int batch, int height,
                       int width, int channels, int relu) {
    int windows_down = (height + 1) / 2, windows_across = (width + 1) / 2;
    int element = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (element >= batch * windows_down * windows_across * channels) return;
    int channel = element % channels, window = element / channels;
    int column = window % windows_across, row = window / windows_across % windows_down;
    int image = window / (windows_across * windows_down);

    float gradient[WIDTH] = {}, pooled[WIDTH];
    int place[WIDTH] = {};
    if (row < height / 2 && column < width / 2) {
        int out = ((image * (height / 2) + row) * (width / 2) + column) * channels + channel;
        load(gradient, dy + out);
        load(place, index + out);
        if (relu) {
            load(pooled, y + out);
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                if (!(pooled[e] > 0.0f)) gradient[e] = 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int in_row = 2 * row + i / 2, in_column = 2 * column + i % 2;
        if (in_row >= height || in_column >= width) continue;
        float here[WIDTH];
#pragma unroll
        for (int e = 0; e < WIDTH; e++) here[e] = place[e] == i ? gradient[e] : 0.0f;
        store(dx + ((image * height + in_row) * width + in_column) * channels + channel, here);
    }
}
