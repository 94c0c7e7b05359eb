// 2-D convolution with bias and, optionally, ReLU, whose result is the next convolution's copy in
// bfloat16.
//
// Rung: gpu_bf16_sm90. Changed from conv2d.cu as packed/conv2d_copy.cu is from
// packed/conv2d.cu.
//
// Layouts: as conv2d.cu; copy as packed/conv2d_copy.cu's.
//
// Macros: those of conv2d.cu, and IN_CHANNEL_BLOCKS as in packed/conv2d_copy.cu. 0, the default:
// copy is as gpu_bf16 reads it; 1: it is in channel blocks, as x is.
// Launches: as conv2d.cu, with at least 4 TILE_M (TILE_N + 8) bytes of dynamic shared memory
// (packed/copies.cuh).
//
// Bound: as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_bf16_sm90/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(32 * CONSUMER_WARPS + 128, 1)
    conv2d_copy(const Placed* __restrict__ x, const Placed* __restrict__ weight,
                const float* __restrict__ bias, Copied* __restrict__ copy, int height, int width,
                int channel_blocks, int filters, int padded_filters, int kernel, int stride,
                int pixels, int image_pixels, int rows, int block_pixels, int relu, int padding) {
    convolve(x, weight,
             {height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
              image_pixels, rows, block_pixels},
             CopyEpilogue{bias, copy, pixels, relu, padding});
}
