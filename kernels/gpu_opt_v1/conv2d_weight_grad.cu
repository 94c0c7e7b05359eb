// Gradients of a 2-D convolution with respect to its weight and bias, in two kernels, because no
// atomics are used.
//
// Rung: over gpu_basic, implicit GEMM (filters times (tap, channel) as a matrix product,
// common/conv2d_gemm.cuh) with tiles in shared memory and in registers, 16-byte accesses, unrolled
// loops; the pixels, along which the sums run, are split over blocks (split-K), so that a small
// weight still fills the GPU; the bias gradient is summed from the tiles of dy already loaded.
// Rung: gpu_gemm, over gpu_opt_v1, adds the 128 x 128 tile.
// Rung: gpu_3xtf32, over gpu_gemm, multiplies by tensor cores, three times for a float32 product;
// gpu_tf32 once, where TF32 is asked for; gpu_bf16, where bfloat16 is, on operands of 2 bytes.
//
// Layouts, float32: x (batch, height, width, channels); dy (batch, out_height, out_width, filters)
// with out_height = (height + 2 padding - kernel) / stride + 1; dweight (filters, kernel, kernel,
// channels); dbias (filters); partials (splits, weights + filters, rounded up to a multiple of 4):
// the sums over one split's pixels. Arrays start at multiples of 16 bytes. A split sums
// pixels_per_split pixels in order; the splits are added in order. The number of splits depends on
// the shape alone: it changes the result's bytes.
//
// Macros: TILE_M x TILE_N, the filters and (tap, channel) columns of a block, THREAD_M x THREAD_N,
// those of a thread, or WARP_M x WARP_N, those of a warp (common/conv2d_gemm.cuh); WIDE_DY, WIDE_X:
// 1: dy, x are read 16 bytes at a time, for filters, channels that are a multiple of 4.
// Launches:
//   conv2d_weight_grad  block (threads of the tile), grid (ceil(columns / TILE_N), ceil(filters /
//                       TILE_M), splits)
//     64 x 64, 8 x 4 a thread     128 threads, the default
//     64 x 32, 8 x 4 a thread     64 threads, for at most 32 columns
//     4 x 256, 4 x 4 a thread     64 threads, for at most 4 filters
//     128 x 128, 8 x 8 a thread   256 threads, gpu_gemm, for at least 128 filters and 128 columns
//                                 with WIDE_DY and WIDE_X
//     on tensor cores: 64 x 64, 32 x 32 a warp, and 64 x 32, 32 x 16 a warp, for at most 32
//     columns, 128 threads; 128 x 128, 64 x 64 a warp, 128 threads, where gpu_gemm has it; up to 8
//     filters as gpu_gemm, or, where operands are rounded, 16 x 128, 16 x 32 a warp, 128 threads
//   conv2d_add_splits   block (128), grid (ceil((weights + filters) / 512))
//
// Bound: arithmetic, as forward; conv2d_add_splits and 4 x 256: memory; conv2d_add_splits of few
// weights: latency, with 16 splits under way at once.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define THREAD_M 8
#define THREAD_N 4
#define WIDE_DY 1
#define WIDE_X 1
#endif
#include "common/conv2d_gemm.cuh"
#include "common/ordered_sum.cuh"

// A of the weight gradient: the filters of one pixel of dy are contiguous. The thread also adds its
// elements up, for the bias gradient.
template <class Tile, bool wide>
struct Gradients : Operand<AlongLines<Tile, Tile::M>, wide> {
    using ThreadMap = AlongLines<Tile, Tile::M>;
    int filters, filter, pixel, last_pixel;
    float total[4] = {};

    __device__ __forceinline__ Gradients(const float* dy, const Convolution& conv, int first_filter,
                                         int first_pixel, int last_pixel)
        : Operand<ThreadMap, wide>(dy), filters(conv.filters),
          filter(first_filter + ThreadMap::line()), pixel(first_pixel + ThreadMap::k()),
          last_pixel(last_pixel) {}
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            bool valid = ThreadMap::active() && pixel < last_pixel;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++)
                fetch(pass, e, pixel * filters + filter + e, valid && filter + e < filters);
            pixel += ThreadMap::K_PER_PASS;
        }
    }
    __device__ __forceinline__ void use(const float (&quad)[4]) {
#pragma unroll
        for (int e = 0; e < 4; e++) total[e] += quad[e];
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) use(this->registers[pass]);
        ThreadMap::store(this->registers, step);
    }
    // Adds the elements that this thread copied to a step in shared memory.
    template <class Step>
    __device__ __forceinline__ void arrived(const Step& step) {
        if (!ThreadMap::active()) return;
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            float quad[4];
            ::load(quad, ThreadMap::place(step, pass, 0));
            use(quad);
        }
    }
    // Adds the threads' sums of each filter of the tile, in order. Every thread of the block must
    // call it.
    __device__ __forceinline__ void store_totals(float* dbias, int first_filter) const {
        __shared__ __align__(16) float totals[ThreadMap::K_PER_PASS][Tile::M];  // (threads, M)
        if (ThreadMap::active()) ::store(&totals[ThreadMap::k()][ThreadMap::line()], total);
        __syncthreads();
        for (int line = threadIdx.x; line < Tile::M && first_filter + line < filters;
             line += Tile::THREADS) {
            float sum = 0.0f;
            for (int k = 0; k < ThreadMap::K_PER_PASS; k++) sum += totals[k][line];
            dbias[first_filter + line] = sum;
        }
    }
};

// B of the weight gradient: the channels of x at tap i, j for one pixel of y are contiguous.
template <class Tile, bool wide>
struct Patches : Operand<AlongLines<Tile, Tile::N>, wide> {
    using ThreadMap = AlongLines<Tile, Tile::N>;
    static constexpr int PLACES = wide ? 1 : 4;  // four neighbours share one tap, or have one each
    int height, width, channels, out_height, out_width, stride;
    int row[PLACES], column[PLACES], channel[PLACES];   // under output row and column 0
    int image, out_row, out_column, pixel, last_pixel;  // of this thread's first k

    __device__ __forceinline__ Patches(const float* x, const Convolution& conv, int first,
                                       int first_pixel, int last_pixel)
        : Operand<ThreadMap, wide>(x), height(conv.height), width(conv.width),
          channels(conv.channels), out_height(conv.out_height()), out_width(conv.out_width()),
          stride(conv.stride), pixel(first_pixel + ThreadMap::k()), last_pixel(last_pixel) {
#pragma unroll
        for (int e = 0; e < PLACES; e++) {
            int n = first + ThreadMap::line() + e, tap = n / channels;
            bool valid = ThreadMap::active() && tap < conv.kernel * conv.kernel;
            row[e] = valid ? tap / conv.kernel - conv.padding : NOWHERE;
            column[e] = tap % conv.kernel - conv.padding;
            channel[e] = n % channels;
        }
        out_column = pixel % out_width, out_row = pixel / out_width % out_height,
        image = pixel / out_width / out_height;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
#pragma unroll
            for (int e = 0; e < PLACES; e++) {
                int at_row = out_row * stride + row[e], at_column = out_column * stride + column[e];
                bool valid =
                    pixel < last_pixel && within(at_row, height) && within(at_column, width);
                fetch(pass, e,
                      ((image * height + at_row) * width + at_column) * channels + channel[e],
                      valid);
            }
            pixel += ThreadMap::K_PER_PASS;
            for (out_column += ThreadMap::K_PER_PASS; out_column >= out_width;
                 out_column -= out_width)
                if (++out_row == out_height) out_row = 0, image++;
        }
    }
};

// Floats between two splits' partial sums: a weight gradient and a bias gradient, up to the next 16
// bytes.
__device__ __forceinline__ int partials_per_split(int weights, int filters) {
    return (weights + filters + 3) / 4 * 4;
}

// Split s sums the pixels of y from s * pixels_per_split on.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                       float* __restrict__ partials, int batch, int height, int width, int channels,
                       int filters, int kernel, int padding, int stride, int pixels_per_split) {
    static_assert(FITS_REGISTERS < Tile, WIDE_DY && WIDE_X >,
                  "the large tile would spill registers");
    Convolution conv = {batch, height, width, channels, filters, kernel, padding, stride};
    int columns = conv.kernel * conv.kernel * conv.channels, weights = conv.filters * columns;
    int first_column = blockIdx.x * Tile::N, first_filter = blockIdx.y * Tile::M;
    int first_pixel = blockIdx.z * pixels_per_split,
        last_pixel = min(first_pixel + pixels_per_split, conv.out_pixels());
    Prefetched<Gradients<Tile, WIDE_DY>> a(dy, conv, first_filter, first_pixel, last_pixel);
    Prefetched<Patches<Tile, WIDE_X>> b(x, conv, first_column, first_pixel, last_pixel);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    add_products_of<Tile>(a, b, (last_pixel - first_pixel + Tile::K - 1) / Tile::K, sum);

    float* mine = partials + blockIdx.z * partials_per_split(weights, conv.filters);
    write<Tile>(sum, mine, conv.filters, columns, first_filter, first_column);
    if (blockIdx.x == 0) a.store_totals(mine + weights, first_filter);
}

// dweight and dbias: the splits' partial sums, added in order. Four neighbours per thread.
extern "C" __global__ void __launch_bounds__(128)
    conv2d_add_splits(const float* __restrict__ partials, float* __restrict__ dweight,
                      float* __restrict__ dbias, int weights, int filters, int splits) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4,
        apart = partials_per_split(weights, filters);
    if (first >= apart) return;
    float sum[4] = {};
    add_in_order<16>(sum, splits, [=](float (&to)[4], int split) {
        ::load(to, partials + split * apart + first);
    });
    if (first + 4 <= weights) {
        store(dweight + first, sum);
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int place = first + e;
        if (place < weights)
            dweight[place] = sum[e];
        else if (place < weights + filters)
            dbias[place - weights] = sum[e];
    }
}
