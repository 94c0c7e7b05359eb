// 2-D convolution (cross-correlation) of any kernel size, stride and padding, with bias and, where asked for, ReLU.
//
// Rung: over gpu_opt_v1, tiles may be 128 x 128 with 8 x 8 of them per thread, which halves
// what is read of global and of shared memory for a multiply-add. Implicit GEMM: pixels times filters is a matrix product
// whose first factor is never built (common/conv2d_gemm.cuh).
//
// Layouts, float32: x (batch, height, width, channels); weight (filters, kernel, kernel, channels); bias (filters);
// y (batch, out_height, out_width, filters) with out_height = (height + 2 padding - kernel) / stride + 1. Arrays start at
// multiples of 16 bytes. Every sum is in the order of tap row, tap column, channel, whatever the tile.
//
// Compiled with TILE_M x TILE_N, the pixels and filters of a block, THREAD_M x THREAD_N, those of a thread, and WIDE: x and
// weight are read 16 bytes at a time, for channels that are a multiple of 4.
// Launches: block (threads of the tile), grid (ceil(pixels of y / TILE_M) ceil(filters / TILE_N)).
//   128 x 128, 8 x 8 a thread   256 threads, where there are 128 such tiles or more and all is read by 16
//     bytes (addresses of single elements would need more registers than are left)
//   64 x 64, 8 x 4 a thread     128 threads, for smaller products
//   256 x 4, 4 x 4 a thread     64 threads, for at most 4 filters
//
// What bounds it: arithmetic. A thread of the large tile reads 16 floats of shared memory, in 4 accesses, for 64
// multiply-adds. With 4 filters: the latency of loads.
// Predicted, not measured, for 64 images of 16x16x256 -> 128 filters, 3x3 (9.7 GFLOP), at 0.7 of 67 TFLOP/s on 128 of 132
// multiprocessors: 0.21 ms.
// Measured: not measured.
#include "common/conv2d_gemm.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define THREAD_M 8
#define THREAD_N 8
#define WIDE 1
#endif
using Tile = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N>;
static_assert(Tile::M_THREAD * Tile::N_THREAD < 64 || WIDE, "the large tile would spill registers");

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS) conv2d_forward(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
    int batch, int height, int width, int channels, int filters, int kernel, int padding, int stride, int relu) {
    conv2d_forward_tile<Tile, WIDE>(x, weight, bias, y, {batch, height, width, channels, filters, kernel, padding, stride},
                                    relu);
}
