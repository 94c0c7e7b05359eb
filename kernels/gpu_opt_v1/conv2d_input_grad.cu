// Gradient of a 2-D convolution with respect to its input.
//
// Rung: over gpu_basic, implicit GEMM (pixels times channels as a matrix product,
// common/conv2d_gemm.cuh) with tiles in shared memory and in registers, 16-byte accesses, unrolled
// loops. With a stride above 1, only 1 in stride x stride of a pixel's products is not zero; the
// others are computed too. The gradient of a ReLU behind the convolution is already in dy.
// Rung: gpu_gemm, over gpu_opt_v1, adds the tiles of 128 x 128 and 128 x 64.
// Rung: gpu_3xtf32, over gpu_gemm, multiplies by tensor cores, three times for a float32 product;
// gpu_tf32 once, where TF32 is asked for; gpu_bf16, where bfloat16 is, on operands of 2 bytes.
//
// Layouts, float32: dy (batch, out_height, out_width, filters) with out_height = (height + 2
// padding - kernel) / stride + 1; weight (filters, kernel, kernel, channels); dx (batch, height,
// width, channels), 0 where no window reaches. Arrays start at multiples of 16 bytes. Every sum is
// in the order tap row, tap column, filter, as in gpu_basic, with any tile; tensor cores add the
// products of a step together.
//
// Macros: TILE_M x TILE_N, the pixels and channels of a block, THREAD_M x THREAD_N, those of a
// thread, or WARP_M x WARP_N, those of a warp (common/conv2d_gemm.cuh); WIDE_DY, WIDE_WEIGHT: 1:
// dy, weight are read 16 bytes at a time, for filters, channels that are a multiple of 4; STRIDED:
// 0: the stride is 1.
// Launches: block (threads of the tile), grid (ceil(pixels of dx / TILE_M) ceil(channels /
// TILE_N)).
//   64 x 64, 8 x 4 a thread     128 threads, the default
//   256 x 4, 4 x 4 a thread     64 threads, for at most 4 channels
//   128 x 128, 8 x 8 a thread   256 threads, gpu_gemm, with WIDE_DY and WIDE_WEIGHT
//   128 x 64, 8 x 8 a thread    128 threads, likewise; of these and 64 x 64 the quickest for the
//                               GPU's multiprocessors
//   on tensor cores: 64 x 64, 32 x 32 a warp, and 64 x 32, 32 x 16 a warp, for at most 32 channels,
//   128 threads; 128 x 128, 64 x 64 a warp, and 128 x 64, 64 x 32 a warp, 128 threads, where
//   gpu_gemm has them; up to 8 channels: 128 x 16, 32 x 16 a warp, 128 threads
//
// Bound: arithmetic, as forward. With 3 filters (27 products a sum): writing dx.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define THREAD_M 8
#define THREAD_N 4
#define WIDE_DY 1
#define WIDE_WEIGHT 1
#define STRIDED 1
#endif
#include "common/conv2d_gemm.cuh"

// The threads of the narrow tile keep the places of eight pixels, for which 128 registers, those of
// eight blocks, are too few. Three blocks of a tensor tile that rounds would spill.
constexpr int BLOCKS = Tile::N == 4                        ? Tile::BLOCKS - 2
                       : Tile::ROUNDS && Tile::BLOCKS == 3 ? 2
                                                           : Tile::BLOCKS;

// In one order of operands newer compilers spill registers of the large tile.
#if NVRTC_FROM_13_1 && !defined(WARP_M)
using Ordered = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N, Tile::THREADS == 256>;
#else
using Ordered = Tile;
#endif

// B of the input gradient: the channels of one tap of one filter are contiguous.
template <class Tile, bool wide>
struct Taps : Operand<AlongLines<Tile, Tile::N>, wide> {
    using ThreadMap = AlongLines<Tile, Tile::N>;
    // tap, filter, start (where its weights are): of this thread's first k
    int channels, filters, taps, channel, tap, filter, start;

    __device__ __forceinline__ Taps(const float* weight, const Convolution& conv, int first_channel)
        : Operand<ThreadMap, wide>(weight), channels(conv.channels), filters(conv.filters),
          taps(conv.kernel * conv.kernel), channel(first_channel + ThreadMap::line()),
          tap(ThreadMap::k() / conv.filters), filter(ThreadMap::k() % conv.filters) {
        start = (filter * taps + tap) * channels + channel;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            bool valid = ThreadMap::active() && tap < taps;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++)
                fetch(pass, e, start + e, valid && channel + e < channels);
            start += ThreadMap::K_PER_PASS * taps * channels;
            for (filter += ThreadMap::K_PER_PASS; filter >= filters; filter -= filters)
                tap++, start += channels - filters * taps * channels;
        }
    }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
    conv2d_input_grad(const float* __restrict__ dy, const float* __restrict__ weight,
                      float* __restrict__ dx, int batch, int height, int width, int channels,
                      int filters, int kernel, int padding, int stride) {
    static_assert(FITS_REGISTERS < Tile, WIDE_DY && WIDE_WEIGHT >,
                  "the large tile would spill registers");
    Convolution conv = {batch, height, width, channels, filters, kernel, padding, stride};
    int tiles_across = (conv.channels + Tile::N - 1) / Tile::N;
    int first_pixel = blockIdx.x / tiles_across * Tile::M,
        first_channel = blockIdx.x % tiles_across * Tile::N;
    Prefetched<Windows<Tile, true, WIDE_DY, STRIDED>> a(dy, conv, first_pixel);
    Prefetched<Taps<Tile, WIDE_WEIGHT>> b(weight, conv, first_channel);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    add_products_of<Ordered>(
        a, b, (conv.kernel * conv.kernel * conv.filters + Tile::K - 1) / Tile::K, sum);
    write<Tile>(sum, dx, conv.batch * conv.height * conv.width, conv.channels, first_pixel,
                first_channel);
}
