// Gradients of a 2-D convolution with respect to its weight and bias, in two kernels, because no atomics are used.
//
// Rung: over gpu_basic, implicit GEMM (filters times (tap, channel) as a matrix product, common/conv2d_gemm.cuh) with tiles in
// shared memory and in registers, 16-byte accesses, unrolled loops; the pixels, along which the sums run, are split over blocks
// (split-K), so that a small weight still fills the GPU; the bias gradient is summed from the tiles of dy already loaded.
// Rung: gpu_gemm, over gpu_opt_v1, adds the 128 x 128 tile.
// Rung: gpu_3xtf32, over gpu_gemm, multiplies by tensor cores (common/tf32_tile.cuh), three times for a float32 product;
// gpu_tf32 once, where TF32 is asked for; gpu_bf16, where bfloat16 is, on operands of 2 bytes (common/bfloat16_tile.cuh).
//
// Layouts, float32: x (batch, height, width, channels); dy (batch, out_height, out_width, filters) with out_height =
// (height + 2 padding - kernel) / stride + 1; dweight (filters, kernel, kernel, channels); dbias (filters); partials (splits,
// weights + filters, rounded up to a multiple of 4): the sums over one split's pixels. Arrays start at multiples of 16 bytes.
// A split sums pixels_per_split pixels in order; the splits are added in order. The number of splits depends on the shape
// alone: it changes the result's bytes.
//
// Compiled with TILE_M x TILE_N, the filters and (tap, channel) columns of a block, THREAD_M x THREAD_N, those of a thread, or
// WARP_M x WARP_N, those of a warp, and WIDE_DY, WIDE_X: dy, x are read 16 bytes at a time, for filters, channels that are a
// multiple of 4.
// Launches:
//   conv2d_weight_grad  block (threads of the tile), grid (ceil(columns / TILE_N), ceil(filters / TILE_M), splits)
//     64 x 64, 8 x 4 a thread     128 threads, the default
//     64 x 32, 8 x 4 a thread     64 threads, for at most 32 columns
//     4 x 256, 4 x 4 a thread     64 threads, for at most 4 filters
//     128 x 128, 8 x 8 a thread   256 threads, gpu_gemm, for at least 128 filters and 128 columns with WIDE_DY and WIDE_X
//     on tensor cores: 64 x 64, 32 x 32 a warp, and 64 x 32, 32 x 16 a warp, for at most 32 columns, 128 threads; 128 x 128,
//     64 x 64 a warp, 128 threads, where gpu_gemm has it; up to 8 filters as gpu_gemm, or, where operands are rounded,
//     16 x 128, 16 x 32 a warp, 128 threads
//   conv2d_add_splits   block (128), grid (ceil((weights + filters) / 512))
//
// Bound: arithmetic, as forward; conv2d_add_splits and 4 x 256: memory.
// Predicted, not measured, for 64 images of 16x16x256 -> 128 filters, 3x3 (9.7 GFLOP), at half of 67 TFLOP/s: 0.29 ms, and
// 5 us for adding 7 splits of 1.2 MB; gpu_gemm, at 0.7 of 67 TFLOP/s: 0.21 ms, and 8 us for adding 14 splits.
// The 9.7 GFLOP on tensor cores: at least 59 us (three TF32 products, 494 TFLOP/s), 20 us (one) or 10 us (bfloat16, 989 TFLOP/s).
// Measured: not measured.
#include "common/conv2d_gemm.cuh"

#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define THREAD_M 8
#define THREAD_N 4
#define WIDE_DY 1
#define WIDE_X 1
#endif
#include "common/tile.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS) conv2d_weight_grad(
    const float* __restrict__ x, const float* __restrict__ dy, float* __restrict__ partials, int batch, int height, int width,
    int channels, int filters, int kernel, int padding, int stride, int pixels_per_split) {
    conv2d_weight_grad_tile<Tile, WIDE_DY, WIDE_X>(
        x, dy, partials, {batch, height, width, channels, filters, kernel, padding, stride}, pixels_per_split);
}

extern "C" __global__ void __launch_bounds__(128) conv2d_add_splits(const float* __restrict__ partials,
                                                                    float* __restrict__ dweight, float* __restrict__ dbias,
                                                                    int weights, int filters, int splits) {
    conv2d_add_splits_block(partials, dweight, dbias, weights, filters, splits);
}
