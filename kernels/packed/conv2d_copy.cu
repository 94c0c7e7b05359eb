// 2-D convolution with bias and, optionally, ReLU, whose result is the next convolution's packed
// copy.
//
// Rung: gpu_tf32. Changed from conv2d.cu, which stored an image in float32, for another launch to
// read and round, even where only a convolution of copies reads it. The values before rounding are
// the same.
//
// Layouts: as conv2d.cu; copy Packed, of an image with a border of zeros. Filters are a multiple of
// 8.
//
// Macros: those of conv2d.cu, with TILE_N at least 64 and PHASES 0 or 1, or those of
// conv2d_halo.cu, which has KERNEL; and
//   IN_CHANNEL_BLOCKS   the layout of copy (copies.cuh). 0, the default: (batch, out_height + 2
//                       padding, out_width + 2 padding, filters). 1, for gpu_bf16_sm90:
//                       (ceil(filters / 64), batch, out_height + 2 padding, out_width + 2 padding,
//                       64), with zeros for further filters
// Launches: as the file whose macros it has, with at least 4 TILE_M (TILE_N + 8) bytes of dynamic
// shared memory (copies.cuh).
//
// Bound: as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "packed/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_copy(const Packed* __restrict__ x, const Packed* __restrict__ weight,
                const float* __restrict__ bias, Copied* __restrict__ copy, int height, int width,
                int channels, int filters, int kernel, int stride, int pixels, int relu,
                int padding) {
    convolve(x, weight, height, width, channels, filters, kernel, stride, pixels,
             CopyEpilogue{bias, copy, pixels, relu, padding});
}
