// 2-D convolution (cross-correlation, zero padding) with bias and, optionally, ReLU. A dense layer
// is the 1x1 convolution over images of one pixel.
//
// Rung: over gpu_basic, implicit GEMM (pixels times filters as a matrix product,
// common/conv2d_gemm.cuh) with tiles in shared memory and in registers, bias and ReLU applied in
// registers, 16-byte accesses, unrolled loops.
// Rung: gpu_gemm, over gpu_opt_v1, adds the 128 x 128 tile, which halves the reads of global and
// shared memory per multiply-add, and 128 x 64.
// Rung: gpu_3xtf32, over gpu_gemm, multiplies by tensor cores, three times for a float32 product;
// gpu_tf32 once, where TF32 is asked for; gpu_bf16, where bfloat16 is, on operands of 2 bytes.
//
// Layouts, float32: x (batch, height, width, channels); weight (filters, kernel, kernel, channels);
// bias (filters); y (batch, out_height, out_width, filters) with out_height = (height + 2 padding -
// kernel) / stride + 1. Arrays start at multiples of 16 bytes. Every sum is in the order tap row,
// tap column, channel, as in gpu_basic, with any tile; tensor cores add the products of a step
// together.
//
// Macros: TILE_M x TILE_N, the pixels and filters of a block, THREAD_M x THREAD_N, those of a
// thread, or WARP_M x WARP_N, those of a warp (common/conv2d_gemm.cuh); WIDE: 1: x and weight are
// read 16 bytes at a time, for channels that are a multiple of 4.
// Launches: block (threads of the tile), grid (ceil(pixels of y / TILE_M) ceil(filters / TILE_N)).
//   64 x 64, 8 x 4 a thread     128 threads, the default
//   256 x 4, 4 x 4 a thread     64 threads, for at most 4 filters, where the default would waste 60
//                               of 64 columns
//   128 x 128, 8 x 8 a thread   256 threads, gpu_gemm, with WIDE
//   128 x 64, 8 x 8 a thread    128 threads, likewise; of these and 64 x 64 the quickest for the
//                               GPU's multiprocessors
//   on tensor cores: 64 x 64, 32 x 32 a warp, and 64 x 32, 32 x 16 a warp, for at most 32 filters,
//   128 threads; 128 x 128, 64 x 64 a warp, and 128 x 64, 64 x 32 a warp, 128 threads, where
//   gpu_gemm has them; up to 8 filters: 128 x 16, 32 x 16 a warp, 128 threads
//
// Bound: arithmetic. A thread reads 12 floats of shared memory, in 3 accesses, for 32
// multiply-adds; a block reads 2 floats of global memory for 64. In the large tile: 16 floats, in 4
// accesses, for 64. With 4 filters: the latency of loads. On tensor cores with three TF32 products
// for each: these products, 192 of 563 instructions in the loop of the large tile on sm_90. With
// one TF32 product, 128 of 920: the level-1 cache and shared memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define THREAD_M 8
#define THREAD_N 4
#define WIDE 1
#endif
#include "common/conv2d_gemm.cuh"

// B of forward: a filter's weights are contiguous along k.
template <class Tile, bool wide>
struct Filters : Operand<AlongK<Tile, Tile::N>, wide> {
    using ThreadMap = AlongK<Tile, Tile::N>;
    int filters, length, first, k;

    __device__ __forceinline__ Filters(const float* weight, const Convolution& conv, int first)
        : Operand<ThreadMap, wide>(weight), filters(conv.filters),
          length(conv.kernel * conv.kernel * conv.channels), first(first), k(ThreadMap::k()) {}
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            int filter = first + ThreadMap::line(pass);
            bool valid = ThreadMap::active(pass) && filter < filters;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++)
                fetch(pass, e, filter * length + k + e, valid && k + e < length);
        }
        k += Tile::K;
    }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_forward(const float* __restrict__ x, const float* __restrict__ weight,
                   const float* __restrict__ bias, float* __restrict__ y, int batch, int height,
                   int width, int channels, int filters, int kernel, int padding, int stride,
                   int relu) {
    static_assert(FITS_REGISTERS<Tile, WIDE>, "the large tile would spill registers");
    Convolution conv = {batch, height, width, channels, filters, kernel, padding, stride};
    bool rectify = relu;
    // Neighbouring blocks read the same pixels.
    int tiles_across = (conv.filters + Tile::N - 1) / Tile::N;
    int first_pixel = blockIdx.x / tiles_across * Tile::M,
        first_filter = blockIdx.x % tiles_across * Tile::N;
    Prefetched<Windows<Tile, false, WIDE, true>> a(x, conv, first_pixel);
    Prefetched<Filters<Tile, WIDE>> b(weight, conv, first_filter);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    add_products_of<Tile>(a, b, (conv.kernel * conv.kernel * conv.channels + Tile::K - 1) / Tile::K,
                          sum);

#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int filter = first_filter + Tile::n_of(j);
        float shift = filter < conv.filters ? bias[filter] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            float value = sum[i][j] + shift;
            // Not fmaxf, which would hide a NaN.
            sum[i][j] = rectify && value < 0.0f ? 0.0f : value;
        }
    }
    write<Tile>(sum, y, conv.out_pixels(), conv.filters, first_pixel, first_filter);
}
