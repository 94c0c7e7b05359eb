// 2-D convolution (cross-correlation, stride 1, zero padding) with bias and ReLU, with 2x2 max-pool
// where one follows, and its input gradient, back through that ReLU and max-pool.
//
// Rung: gpu_opt_v2. Changed from gpu_opt_v1: where a max-pool follows, the convolution's own output
// never reaches memory (the tile's rows are ordered so that a thread holds whole 2x2 windows), only
// the maxima and their places do; the gradient of ReLU and max-pool is taken while dy is loaded, so
// that they have no launches of their own.
//
// Layouts, float32: x, dx (batch, height, width, channels); y (batch, out_height, out_width,
// filters) with out_height = height + 2 padding - kernel + 1, halved where pooled (an odd last row
// or column is dropped); dy as y; weight (filters, kernel, kernel, channels); bias (filters);
// index, uint8, as the pooled y: the position of the maximum (the first if several are equal) in
// its window, 0 to 3 in row-major order, or 4 where ReLU lets no gradient pass. Every array has
// fewer than 2^31 elements.
//
// Macros: TILE: M,N,M_THREAD,N_THREAD: 128,128,8,8, 128,64,8,8 or 64,64,8,4, the quickest on a GPU
// of so many multiprocessors. Each element is one sum in the order of k, so the tile does not
// change the bytes.
//   WIDE_CHANNELS, WIDE_FILTERS   1 where 4 divides these: x and weight, and dy, are then read 16
//                                 bytes at a time. A decision in the loop took every third
//                                 instruction of it.
// Launches: block (Tile::THREADS)
//   conv2d_forward           grid (ceil(batch out_height out_width / M), ceil(filters / N))
//   conv2d_pool_forward      grid (ceil(4 batch (out_height / 2) (out_width / 2) / M), ceil(filters
//                            / N))
//   conv2d_input_grad        grid (ceil(batch height width / M), ceil(channels / N)); also
//                            _behind_relu and _behind_pool
//
// Bound: the multiply-adds. A thread's 64 per step need four 16-byte shared-memory loads. On sm_90
// 512 of 648 instructions of the large tile's loop multiply.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_opt_v2/operands.cuh"

#ifndef TILE
#define TILE 128, 128, 8, 8
#define WIDE_CHANNELS 1
#define WIDE_FILTERS 1
#endif
using Tile = GemmTile<TILE>;
// An input gradient of single channels needs more registers for addresses than these blocks leave.
// Of the kernels with nothing fused the compiler keeps more registers alive on sm_86.
constexpr int GRADIENT_BLOCKS = WIDE_CHANNELS ? Tile::BLOCKS : Tile::BLOCKS / 2;
constexpr int PLAIN_BLOCKS = Tile::THREADS == 256 ? 1 : GRADIENT_BLOCKS;

// Stores the maxima of this thread's 2x2 windows behind a ReLU, which are the maxima of ReLUs.
__device__ __forceinline__ void store_windows(float* y, unsigned char* index,
                                              const float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                              int first_pixel, int pixels, int first_filter,
                                              int filters) {
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i += 4) {
        int pixel = first_pixel + Tile::m_of(i);
        if (pixel >= pixels) continue;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += 4) {
            float largest[4];
            int place[4] = {};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                largest[e] = sum[i][j + e];
#pragma unroll
                for (int candidate = 1; candidate < 4; candidate++) {
                    float value = sum[i + candidate][j + e];
                    // NaN wins
                    if (value > largest[e] || value != value)
                        largest[e] = value, place[e] = candidate;
                }
                if (!(largest[e] > 0.0f)) place[e] = 4;
                largest[e] = at_least(largest[e], 0.0f);
            }
            store_line(y + pixel / 4 * filters, largest, first_filter + Tile::n_of(j), filters);
            store_line(index + pixel / 4 * filters, place, first_filter + Tile::n_of(j), filters);
        }
    }
}

template <bool pooled>
__device__ __forceinline__ void forward(const float* x, const float* weight, const float* bias,
                                        float* y, unsigned char* index, int batch, int height,
                                        int width, int channels, int filters, int kernel,
                                        int padding, bool relu) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    if (pooled) out_height /= 2, out_width /= 2;  // windows of four pixels
    int pixels = batch * out_height * out_width * (pooled ? 4 : 1);
    int first_pixel = blockIdx.x * Tile::M, first_filter = blockIdx.y * Tile::N;
    Images<PLAIN, WIDE_CHANNELS> images = {x, nullptr, nullptr, height, width, channels};
    Filters<WIDE_CHANNELS> taps = {
        weight, filters, channels, kernel, kernel * kernel * channels, kernel * channels, channels};
    WindowRows<Tile, Tile::M, PLAIN, WIDE_CHANNELS, pooled> a(
        images, {kernel, 1, padding, padding}, out_height, out_width, first_pixel, pixels);
    FilterRows<Tile, Tile::N, WIDE_CHANNELS> b(taps, first_filter);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply<Tile>(a, b, (kernel * kernel * channels + Tile::K - 1) / Tile::K, sum);

    add_bias<Tile>(sum, bias, first_filter, filters, relu && !pooled);
    if (pooled)
        store_windows(y, index, sum, first_pixel, pixels, first_filter, filters);
    else
        store_rows<Tile>(y, sum, first_pixel, pixels, first_filter, filters);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_forward(const float* __restrict__ x, const float* __restrict__ weight,
                   const float* __restrict__ bias, float* __restrict__ y, int batch, int height,
                   int width, int channels, int filters, int kernel, int padding, int relu) {
    forward<false>(x, weight, bias, y, nullptr, batch, height, width, channels, filters, kernel,
                   padding, relu);
}

// With ReLU.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_pool_forward(const float* __restrict__ x, const float* __restrict__ weight,
                        const float* __restrict__ bias, float* __restrict__ y,
                        unsigned char* __restrict__ index, int batch, int height, int width,
                        int channels, int filters, int kernel, int padding) {
    forward<true>(x, weight, bias, y, index, batch, height, width, channels, filters, kernel,
                  padding, true);
}

// The order of operands (gemm_tile.cuh) behind a pooling, where newer compilers spill registers
// with the one.
#if NVRTC_FROM_13_1 && __CUDA_ARCH__ >= 1000
constexpr bool OTHER_ORDER = true;
#else
constexpr bool OTHER_ORDER = false;
#endif

// A convolution of dy with the filters rotated by 180 degrees.
template <Kind kind>
__device__ __forceinline__ void input_grad(const Images<kind, WIDE_FILTERS>& dy,
                                           const float* weight, float* dx, int batch, int height,
                                           int width, int channels, int kernel, int padding) {
    int pixels = batch * height * width, filters = dy.channels, pad = kernel - 1 - padding;
    int first_pixel = blockIdx.x * Tile::M, first_channel = blockIdx.y * Tile::N;
    int last_tap = (kernel * kernel - 1) * channels;
    Filters<WIDE_CHANNELS> turned = {
        weight,    filters, channels, kernel, kernel * kernel * channels, -kernel * channels,
        -channels, last_tap};
    WindowRows<Tile, Tile::M, kind, WIDE_FILTERS, false> a(dy, {kernel, 1, pad, pad}, height, width,
                                                           first_pixel, pixels);
    FilterColumns<Tile, Tile::N, WIDE_CHANNELS> b(turned, first_channel);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    int steps = (kernel * kernel * filters + Tile::K - 1) / Tile::K;
    multiply<GemmTile<TILE, kind == BEHIND_POOL && OTHER_ORDER>>(a, b, steps, sum);
    store_rows<Tile>(dx, sum, first_pixel, pixels, first_channel, channels);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, PLAIN_BLOCKS)
    conv2d_input_grad(const float* __restrict__ dy, const float* __restrict__ weight,
                      float* __restrict__ dx, int batch, int height, int width, int channels,
                      int filters, int kernel, int padding) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    input_grad<PLAIN>({dy, nullptr, nullptr, out_height, out_width, filters}, weight, dx, batch,
                      height, width, channels, kernel, padding);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, GRADIENT_BLOCKS)
    conv2d_input_grad_behind_relu(const float* __restrict__ dy, const float* __restrict__ y,
                                  const float* __restrict__ weight, float* __restrict__ dx,
                                  int batch, int height, int width, int channels, int filters,
                                  int kernel, int padding) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    input_grad<BEHIND_RELU>({dy, y, nullptr, out_height, out_width, filters}, weight, dx, batch,
                            height, width, channels, kernel, padding);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, GRADIENT_BLOCKS)
    conv2d_input_grad_behind_pool(const float* __restrict__ dy,
                                  const unsigned char* __restrict__ index,
                                  const float* __restrict__ weight, float* __restrict__ dx,
                                  int batch, int height, int width, int channels, int filters,
                                  int kernel, int padding) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    input_grad<BEHIND_POOL>({dy, nullptr, index, out_height / 2, out_width / 2, filters}, weight,
                            dx, batch, height, width, channels, kernel, padding);
}
