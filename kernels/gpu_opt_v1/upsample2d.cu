// Nearest-neighbour upsampling by 2 and its gradient.
//
// Rung: over gpu_basic, WIDTH neighbouring channels per thread with accesses of 4 WIDTH bytes;
// forward reads a pixel once and writes its four copies; where x came from a ReLU, its gradient is
// applied here too.
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, 2 height, 2 width,
// channels). Arrays start at multiples of 16 bytes.
// Macro WIDTH: 4 for channels that are a multiple of 4, otherwise 1.
// Launches: block (256), grid (ceil(elements of x / WIDTH / 256)).
// Bound: memory. 20 bytes per element of x forward, 20 to 24 backward.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/vector.cuh"

#ifndef WIDTH
#define WIDTH 4
#endif

// Place in y of the first copy of an element of x; the others are beside it and a row below.
__device__ __forceinline__ int first_copy(int element, int width, int channels) {
    int channel = element % channels, pixel = element / channels;
    return (pixel / width * 4 * width + pixel % width * 2) * channels + channel;
}

extern "C" __global__ void __launch_bounds__(256)
    upsample2d_forward(const float* __restrict__ x, float* __restrict__ y, int batch, int height,
                       int width, int channels) {
    int element = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (element >= batch * height * width * channels) return;
    float value[WIDTH];
    load(value, x + element);
    float *top = y + first_copy(element, width, channels), *below = top + 2 * width * channels;
    store(top, value);
    store(top + channels, value);
    store(below, value);
    store(below + channels, value);
}

// Sum of a pixel's four copies, row by row. relu: x is the output of a ReLU, and dx the gradient of
// the ReLU's input.
extern "C" __global__ void __launch_bounds__(256)
    upsample2d_backward(const float* __restrict__ dy, const float* __restrict__ x,
                        float* __restrict__ dx, int batch, int height, int width, int channels,
                        int relu) {
    int element = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (element >= batch * height * width * channels) return;
    const float *top = dy + first_copy(element, width, channels),
                *below = top + 2 * width * channels;
    float copies[4][WIDTH], value[WIDTH], sum[WIDTH];
    load(copies[0], top);
    load(copies[1], top + channels);
    load(copies[2], below);
    load(copies[3], below + channels);
    if (relu) load(value, x + element);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        sum[e] = copies[0][e] + copies[1][e] + copies[2][e] + copies[3][e];
        if (relu && !(value[e] > 0.0f)) sum[e] = 0.0f;
    }
    store(dx + element, sum);
}
