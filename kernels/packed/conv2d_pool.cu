// 2-D convolution with bias, optionally ReLU, and 2x2 max-pool, whose result is the next
// convolution's packed copy.
//
// Rung: gpu_tf32. Changed from conv2d_copy.cu: four lines of a tile are a window, so that the image
// before pooling never reaches memory.
//
// Layouts: as conv2d_copy.cu with out_height and out_width, which are even, halved; index uint8
// (batch, out_height / 2, out_width / 2, filters): the place of the largest value in its window, 0
// to 3 in memory order, the first of equals, a NaN before all others.
//
// Macros: those of conv2d_copy.cu, and WINDOWS=1: four lines of a tile are a window (copies.cuh).
// Launches: as conv2d_copy.cu.
//
// Bound: as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "packed/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_pool(const Packed* __restrict__ x, const Packed* __restrict__ weight,
                const float* __restrict__ bias, Copied* __restrict__ copy,
                unsigned char* __restrict__ index, int height, int width, int channels, int filters,
                int kernel, int stride, int pixels, int relu, int padding) {
    convolve(x, weight, height, width, channels, filters, kernel, stride, pixels,
             PooledCopyEpilogue{bias, copy, index, pixels, relu, padding});
}
