// Gradient of a 2-D convolution of any kernel size, stride and padding with respect to its input.
//
// Rung: over gpu_opt_v1, tiles may be 128 x 128 with 8 x 8 of them per thread. Implicit GEMM:
// pixels of dx times channels is a matrix product whose first factor is never built (common/conv2d_gemm.cuh). With a stride
// above 1, of the products for one pixel only 1 in stride x stride is not zero; the others are computed too.
//
// Layouts, float32: dy (batch, out_height, out_width, filters) with out_height = (height + 2 padding - kernel) / stride + 1;
// weight (filters, kernel, kernel, channels); dx (batch, height, width, channels). Arrays start at multiples of 16 bytes.
// Every sum is in the order of tap row, tap column, filter, whatever the tile.
//
// Compiled with TILE_M x TILE_N, the pixels and channels of a block, THREAD_M x THREAD_N, those of a thread, and WIDE_DY,
// WIDE_WEIGHT: dy, weight are read 16 bytes at a time, for filters, channels that are a multiple of 4.
// Launches: block (threads of the tile), grid (ceil(pixels of dx / TILE_M) ceil(channels / TILE_N)).
//   128 x 128, 8 x 8 a thread   256 threads, where there are 128 such tiles or more and all is read by 16
//     bytes (addresses of single elements would need more registers than are left)
//   64 x 64, 8 x 4 a thread     128 threads, for smaller products
//   256 x 4, 4 x 4 a thread     64 threads, for at most 4 channels
//
// What bounds it: arithmetic, as forward.
// Predicted, not measured, for 64 images of 16x16x256 -> 128 filters, 3x3 (9.7 GFLOP), at 0.7 of 67 TFLOP/s: 0.21 ms.
// Measured: not measured.
#include "common/conv2d_gemm.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define THREAD_M 8
#define THREAD_N 8
#define WIDE_DY 1
#define WIDE_WEIGHT 1
#endif
using Tile = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N>;
static_assert(Tile::M_THREAD * Tile::N_THREAD < 64 || (WIDE_DY && WIDE_WEIGHT), "the large tile would spill registers");

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS) conv2d_input_grad(
    const float* __restrict__ dy, const float* __restrict__ weight, float* __restrict__ dx, int batch, int height, int width,
    int channels, int filters, int kernel, int padding, int stride) {
    conv2d_input_grad_tile<Tile, WIDE_DY, WIDE_WEIGHT>(dy, weight, dx,
                                                       {batch, height, width, channels, filters, kernel, padding, stride});
}
