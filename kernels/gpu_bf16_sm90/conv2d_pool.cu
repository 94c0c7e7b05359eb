// 2-D convolution with bias, optionally ReLU, and 2x2 max-pool, whose result is the next
// convolution's copy in bfloat16.
//
// Rung: gpu_bf16_sm90. Changed from conv2d_copy.cu: a block has whole rows of windows.
//
// Layouts: as conv2d_copy.cu with out_height and out_width, which are even, halved; index as
// packed/conv2d_pool.cu's.
//
// Macros: those of conv2d_copy.cu, and WINDOWS=1: the epilogue pools windows of 2 x 2 pixels.
// Launches: as conv2d_copy.cu; block_pixels is a multiple of 2 out_width.
//
// Bound: as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_bf16_sm90/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(32 * CONSUMER_WARPS + 128, 1)
    conv2d_pool(const Placed* __restrict__ x, const Placed* __restrict__ weight,
                const float* __restrict__ bias, Copied* __restrict__ copy,
                unsigned char* __restrict__ index, int height, int width, int channel_blocks,
                int filters, int padded_filters, int kernel, int stride, int pixels,
                int image_pixels, int rows, int block_pixels, int relu, int padding) {
    convolve(x, weight,
             {height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
              image_pixels, rows, block_pixels},
             PooledCopyEpilogue{bias, copy, index, pixels, relu, padding});
}
