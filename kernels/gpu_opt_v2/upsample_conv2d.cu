// Nearest upsampling by 2, then 3x3 convolution (padding 1) with bias and ReLU, and the input
// gradient: the upsampled image is never stored.
//
// Rung: gpu_opt_v2. Changed from gpu_opt_v1: a pixel repeated 2x2 meets several taps of the 3x3
// filter. Those taps, added up first to 4x4 phase weights, are a transposed convolution of stride
// 2, 16 products where the plain form has 36. An output pixel takes 2x2 of the 16, chosen by the
// parity of its row and column (its phase). Exact, borders included.
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, 2 height, 2 width,
// filters); weight (filters, 3, 3, channels); bias (filters); phase_weights (filters, 4, 4,
// channels): (t, s) leads from pixel (r, c) of x to pixel (2 r + t - 1, 2 c + s - 1) of y. Every
// array has fewer than 2^31 elements.
//
// Launches: block (Tile::THREADS), -DTILE=M,N,M_THREAD,N_THREAD, -DWIDE_CHANNELS, -DWIDE_FILTERS as
// in conv2d.cu, or (256)
//   decompose_weight           (256), grid (ceil(elements of phase_weights / 256))
//   upsample_conv2d_forward    grid (ceil(batch height width / M), 2 ceil(filters / N), 2)
//   upsample_conv2d_input_grad grid (ceil(batch height width / M), ceil(channels / N)); also
//   _behind_relu
// For few filters: upsample_conv2d_taps.cu.
//
// Bound: the multiply-adds, as in conv2d.cu.
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

// Taps of the 3x3 filter in phase weight 0 to 3, along an axis: 2; 1 and 2; 0 and 1; 0.
__device__ __forceinline__ int first_tap(int t) { return max(0, 2 - t); }
__device__ __forceinline__ int last_tap(int t) { return min(2, 3 - t); }

extern "C" __global__ void __launch_bounds__(256)
    decompose_weight(const float* __restrict__ weight, float* __restrict__ phase_weights,
                     int filters, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= filters * 16 * channels) return;
    int channel = i % channels, s = i / channels % 4, t = i / channels / 4 % 4,
        filter = i / channels / 16;
    float sum = 0.0f;
    for (int row = first_tap(t); row <= last_tap(t); row++)
        for (int column = first_tap(s); column <= last_tap(s); column++)
            sum += weight[((filter * 3 + row) * 3 + column) * channels + channel];
    phase_weights[i] = sum;
}

// Output pixel (2 r + p, 2 c + q) of phase (p, q) takes the pixels of x from (r + p - 1, c + q - 1)
// on, by taps (3 - p, 3 - q), two fewer a step.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    upsample_conv2d_forward(const float* __restrict__ x, const float* __restrict__ phase_weights,
                            const float* __restrict__ bias, float* __restrict__ y, int batch,
                            int height, int width, int channels, int filters, int relu) {
    int p = blockIdx.z, q = blockIdx.y % 2, pixels = batch * height * width;
    int first_pixel = blockIdx.x * Tile::M, first_filter = blockIdx.y / 2 * Tile::N;
    Images<PLAIN, WIDE_CHANNELS> images = {x, nullptr, nullptr, height, width, channels};
    Filters<WIDE_CHANNELS> taps = {phase_weights + ((3 - p) * 4 + 3 - q) * channels,
                                   filters,
                                   channels,
                                   2,
                                   16 * channels,
                                   -8 * channels,
                                   -2 * channels};
    WindowRows<Tile, Tile::M, PLAIN, WIDE_CHANNELS, false> a(images, {2, 1, 1 - p, 1 - q}, height,
                                                             width, first_pixel, pixels);
    FilterRows<Tile, Tile::N, WIDE_CHANNELS> b(taps, first_filter);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply<Tile>(a, b, (4 * channels + Tile::K - 1) / Tile::K, sum);

    add_bias<Tile>(sum, bias, first_filter, filters, relu);
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i++) {
        int m = first_pixel + Tile::m_of(i);
        if (m >= pixels) continue;
        // Of y as a matrix of pixels by filters.
        int row = (m + m / width * width + width * p) * 2 + q;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += 4) {
            float quad[4] = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
            store_line(y + row * filters, quad, first_filter + Tile::n_of(j), filters);
        }
    }
}

template <Kind kind>
__device__ __forceinline__ void input_grad(const Images<kind, WIDE_FILTERS>& dy,
                                           const float* phase_weights, float* dx, int batch,
                                           int height, int width, int channels) {
    int pixels = batch * height * width, first_pixel = blockIdx.x * Tile::M,
        first_channel = blockIdx.y * Tile::N;
    Filters<WIDE_CHANNELS> taps = {phase_weights, dy.channels,  channels, 4,
                                   16 * channels, 4 * channels, channels};
    WindowRows<Tile, Tile::M, kind, WIDE_FILTERS, false> a(dy, {4, 2, 1, 1}, height, width,
                                                           first_pixel, pixels);
    FilterColumns<Tile, Tile::N, WIDE_CHANNELS> b(taps, first_channel);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply<Tile>(a, b, (16 * dy.channels + Tile::K - 1) / Tile::K, sum);
    store_rows<Tile>(dx, sum, first_pixel, pixels, first_channel, channels);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, PLAIN_BLOCKS)
    upsample_conv2d_input_grad(const float* __restrict__ dy,
                               const float* __restrict__ phase_weights, float* __restrict__ dx,
                               int batch, int height, int width, int channels, int filters) {
    input_grad<PLAIN>({dy, nullptr, nullptr, 2 * height, 2 * width, filters}, phase_weights, dx,
                      batch, height, width, channels);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, GRADIENT_BLOCKS)
    upsample_conv2d_input_grad_behind_relu(const float* __restrict__ dy,
                                           const float* __restrict__ y,
                                           const float* __restrict__ phase_weights,
                                           float* __restrict__ dx, int batch, int height, int width,
                                           int channels, int filters) {
    input_grad<BEHIND_RELU>({dy, y, nullptr, 2 * height, 2 * width, filters}, phase_weights, dx,
                            batch, height, width, channels);
}
