// Weight and bias gradient of a convolution, and of nearest upsampling by 2 with a 3x3 convolution
// behind it, in parts: split-K. weight_update.cu adds the parts in order.
//
// Rung: gpu_opt_v2. Changed from gpu_opt_v1: dy goes back through ReLU and max-pool while it is
// loaded; behind an upsampling the sum runs over the pixels before it, 16 phase weights instead of
// 4 x 9 taps; the update kernel adds the parts.
//
// Layouts, float32: x (batch, height, width, channels), dy, y, index as in conv2d.cu and
// upsample_conv2d.cu, filters = last size of dy. parts (splits, rows * columns + rows, up to the
// next multiple of 4): split s sums the pixels from s * pixels_per_split on (a multiple of 8) into
// a rows x columns matrix, and behind it its rows' sums of dy.
//   conv2d_weight_grad             rows: filter;                      columns: tap row, tap column,
//                                  channel
//   upsample_conv2d_weight_grad    rows: tap row, tap column, filter  columns: channel
// Pixels: of y, the four of each window consecutive where y is pooled; of x for upsample_conv2d.
//
// Launches: block (Tile::THREADS), -DTILE=M,N,M_THREAD,N_THREAD; grid (ceil(columns / N), ceil(rows
// / M), splits); kernels for plain dy, _behind_relu and _behind_pool (ReLU and max-pool).
// 128,128,8,8; 128,32,8,4 for at most 32 columns; 48,64,4,4 for at most 48 rows, on every GPU,
// because the splits follow from it. -DWIDE_CHANNELS, -DWIDE_FILTERS as in conv2d.cu.
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

// Both operands have a row for each k, which runs over pixels [first_pixel, last_pixel) as
// pixel_of<by_window> numbers them, by_window where an operand lies behind a max-pool; first_pixel
// is a multiple of 8.
//
//   ChannelColumns  a line is a channel
//   WindowColumns   a line is a place in the window: tap row, tap column, channel

// A block's sum of each line of a gradient: the bias gradient. Every thread of the block must call
// it.
template <class ThreadMap, int lines>
__device__ __forceinline__ void write_totals(const float (&total)[4], float* totals, int first,
                                             int count) {
    __shared__ __align__(16) float shared[ThreadMap::K_PER_PASS][lines];
    if (ThreadMap::active()) ::store(&shared[ThreadMap::k()][ThreadMap::line()], total);
    __syncthreads();
    for (int line = threadIdx.x; line < lines && first + line < count; line += blockDim.x) {
        float sum = 0.0f;
        for (int k = 0; k < ThreadMap::K_PER_PASS; k++) sum += shared[k][line];
        totals[first + line] = sum;
    }
}

// Store an operand's quads, and add them to the thread's sums.
template <class ThreadMap, Kind kind, class Step>
__device__ __forceinline__ void store_and_add(const Quad<kind> (&held)[ThreadMap::PASSES],
                                              float (&total)[4], Step& step) {
    float values[ThreadMap::PASSES][4];
#pragma unroll
    for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
        held[pass].finish(values[pass]);
#pragma unroll
        for (int e = 0; e < 4; e++) total[e] += values[pass][e];
    }
    ThreadMap::store(values, step);
}

template <class Tile, int lines, Kind kind, bool wide>
struct ChannelColumns {
    using ThreadMap = AlongLines<Tile, lines>;
    const Images<kind, wide> images;
    const int channel, last_pixel;
    int pixel;
    Quad<kind> held[ThreadMap::PASSES];
    float total[4] = {};

    __device__ __forceinline__ ChannelColumns(const Images<kind, wide>& images, int first,
                                              int first_pixel, int last_pixel)
        : images(images), channel(first + ThreadMap::line()), last_pixel(last_pixel),
          pixel(first_pixel + ThreadMap::k()) {}
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            bool valid = ThreadMap::active() && pixel < last_pixel;
            int from = (kind == BEHIND_POOL ? pixel / 4 : pixel) * images.channels + channel;
            float values[4] = {};
            if constexpr (wide) {
                if (valid && channel < images.channels)
                    images.fetch(held[pass], from, pixel % 4);
                else
                    held[pass].set(values);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (valid && channel + e < images.channels)
                        values[e] = images.one(from + e, pixel % 4);
                held[pass].set(values);
            }
            pixel += ThreadMap::K_PER_PASS;
        }
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) {
        store_and_add<ThreadMap>(held, total, step);
    }
};

// A pixel's window on the images; height, width: see pixel_of.
template <class Tile, int lines, Kind kind, bool wide, bool by_window>
struct WindowColumns {
    using ThreadMap = AlongLines<Tile, lines>;
    const Images<kind, wide> images;
    const Window window;
    const int height, width, last_pixel;
    Tap tap;  // of this thread's first line
    int pixel;
    Pixel at[ThreadMap::PASSES];
    Quad<kind> held[ThreadMap::PASSES];
    float total[4] = {};

    __device__ __forceinline__ WindowColumns(const Images<kind, wide>& images, const Window& window,
                                             int height, int width, int first, int first_pixel,
                                             int last_pixel)
        : images(images), window(window), height(height), width(width), last_pixel(last_pixel),
          pixel(first_pixel + ThreadMap::k()) {
        int line = first + ThreadMap::line(), place = line / images.channels;
        tap = {ThreadMap::active() ? place / window.size : window.size, place % window.size,
               line % images.channels};
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++)
            at[pass] = pixel_of<by_window>(pixel + pass * ThreadMap::K_PER_PASS, height, width);
    }
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            bool valid = pixel + pass * ThreadMap::K_PER_PASS < last_pixel;
            int top = valid ? at[pass].row * window.stride - window.row_padding : OUTSIDE;
            int left = at[pass].column * window.stride - window.column_padding;
            images.fetch(held[pass], tap, window.size, images.origin(at[pass].image, top, left),
                         top, left);
            move_on(at[pass]);
        }
        pixel += Tile::K;
    }
    // By a step; of windows, two columns are in four pixels.
    __device__ __forceinline__ void move_on(Pixel& at) const {
        int across = by_window ? 2 * width : width, down = by_window ? 2 * height : height;
        for (at.column += by_window ? Tile::K / 2 : Tile::K; at.column >= across;
             at.column -= across) {
            at.row += by_window ? 2 : 1;
            if (at.row >= down) at.row -= down, at.image++;
        }
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) {
        store_and_add<ThreadMap>(held, total, step);
    }
};

template <class A, class B>
__device__ __forceinline__ void part(A& a, B& b, float* parts, int rows, int columns, int pixels) {
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply<Tile>(a, b, (pixels + Tile::K - 1) / Tile::K, sum);
    float* mine = parts + blockIdx.z * ((rows * columns + rows + 3) / 4 * 4);
    store_rows<Tile>(mine, sum, blockIdx.y * Tile::M, rows, blockIdx.x * Tile::N, columns);
    if (blockIdx.x == 0)
        write_totals<typename A::ThreadMap, Tile::M>(a.total, mine + rows * columns,
                                                     blockIdx.y * Tile::M, rows);
}

template <Kind kind>
__device__ __forceinline__ void
weight_grad(const float* x, const Images<kind, WIDE_FILTERS>& dy, float* parts, int batch,
            int height, int width, int channels, int kernel, int padding, int pixels_per_split) {
    constexpr bool by_window = kind == BEHIND_POOL;
    int pixels = batch * dy.height * dy.width * (by_window ? 4 : 1);
    int first = blockIdx.z * pixels_per_split, last = min(first + pixels_per_split, pixels);
    ChannelColumns<Tile, Tile::M, kind, WIDE_FILTERS> a(dy, blockIdx.y * Tile::M, first, last);
    WindowColumns<Tile, Tile::N, PLAIN, WIDE_CHANNELS, by_window> b(
        {x, nullptr, nullptr, height, width, channels}, {kernel, 1, padding, padding}, dy.height,
        dy.width, blockIdx.x * Tile::N, first, last);
    part(a, b, parts, dy.channels, kernel * kernel * channels, last - first);
}

// Pixel (r, c) of x met tap (t, s) on its way to output pixel (2 r + t - 1, 2 c + s - 1).
template <Kind kind>
__device__ __forceinline__ void
upsample_weight_grad(const float* x, const Images<kind, WIDE_FILTERS>& dy, float* parts, int batch,
                     int height, int width, int channels, int pixels_per_split) {
    int pixels = batch * height * width;
    int first = blockIdx.z * pixels_per_split, last = min(first + pixels_per_split, pixels);
    WindowColumns<Tile, Tile::M, kind, WIDE_FILTERS, false> a(dy, {4, 2, 1, 1}, height, width,
                                                              blockIdx.y * Tile::M, first, last);
    ChannelColumns<Tile, Tile::N, PLAIN, WIDE_CHANNELS> b(
        {x, nullptr, nullptr, height, width, channels}, blockIdx.x * Tile::N, first, last);
    part(a, b, parts, 16 * dy.channels, channels, last - first);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                       float* __restrict__ parts, int batch, int height, int width, int channels,
                       int filters, int kernel, int padding, int pixels_per_split) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    weight_grad<PLAIN>(x, {dy, nullptr, nullptr, out_height, out_width, filters}, parts, batch,
                       height, width, channels, kernel, padding, pixels_per_split);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_weight_grad_behind_relu(const float* __restrict__ x, const float* __restrict__ dy,
                                   const float* __restrict__ y, float* __restrict__ parts,
                                   int batch, int height, int width, int channels, int filters,
                                   int kernel, int padding, int pixels_per_split) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    weight_grad<BEHIND_RELU>(x, {dy, y, nullptr, out_height, out_width, filters}, parts, batch,
                             height, width, channels, kernel, padding, pixels_per_split);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    conv2d_weight_grad_behind_pool(const float* __restrict__ x, const float* __restrict__ dy,
                                   const unsigned char* __restrict__ index,
                                   float* __restrict__ parts, int batch, int height, int width,
                                   int channels, int filters, int kernel, int padding,
                                   int pixels_per_split) {
    int out_height = height + 2 * padding - kernel + 1,
        out_width = width + 2 * padding - kernel + 1;
    weight_grad<BEHIND_POOL>(x, {dy, nullptr, index, out_height / 2, out_width / 2, filters}, parts,
                             batch, height, width, channels, kernel, padding, pixels_per_split);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    upsample_conv2d_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                                float* __restrict__ parts, int batch, int height, int width,
                                int channels, int filters, int pixels_per_split) {
    upsample_weight_grad<PLAIN>(x, {dy, nullptr, nullptr, 2 * height, 2 * width, filters}, parts,
                                batch, height, width, channels, pixels_per_split);
}

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    upsample_conv2d_weight_grad_behind_relu(const float* __restrict__ x,
                                            const float* __restrict__ dy,
                                            const float* __restrict__ y, float* __restrict__ parts,
                                            int batch, int height, int width, int channels,
                                            int filters, int pixels_per_split) {
    upsample_weight_grad<BEHIND_RELU>(x, {dy, y, nullptr, 2 * height, 2 * width, filters}, parts,
                                      batch, height, width, channels, pixels_per_split);
}
