// Convolution (cross-correlation) and its gradients as implicit GEMM: matrix products whose factors
// are never stored; when a tile is loaded, each element is read from its source tensor.
//
//   direction          C(m, n)                     k                          A(m, k)
//                      B(n, k)
//   forward            y: pixel of y, filter       tap i, j and channel       x under the tap
//                      weight
//   input gradient     dx: pixel of dx, channel    tap i, j and filter        dy that saw x through
//                      it  weight
//   weight gradient    dweight: filter, (i, j, c)  pixel of y, a range of it  dy
//                      x under the tap
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, out_height, out_width,
// filters); weight, dweight (filters, kernel, kernel, channels); bias, dbias (filters). Every array
// has fewer than 2^31 elements. Stride, padding and kernel are the same both ways.
//
// An operand is `wide` if it is read 16 bytes at a time, for which the innermost size of its tensor
// must be a multiple of 4 (channels of x, filters of dy, channels of weight); otherwise 4 bytes at
// a time. The results are the same.
//
// Macros, with which Python chooses the tile:
//   TILE_M, TILE_N       elements of C that a block computes
//   THREAD_M, THREAD_N   those of a thread, which multiplies them itself (gemm_tile.cuh); or
//   WARP_M, WARP_N       those of a warp, by tensor cores
//   MULTIPLIER           the products (multiplier.cuh); on tensor cores exact, the default, tf32,
//                        bfloat16 or float16
#pragma once
#ifdef WARP_M
#include "common/tensor_tile.cuh"

using Tile = TensorTile<FORMAT, TILE_M, TILE_N, WARP_M, WARP_N>;
#else
#include "common/gemm_tile.cuh"

using Tile = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N>;

// sum += the first Tile::K * steps products of a and b.
template <class Tile, class A, class B>
__device__ __forceinline__ void add_products_of(A& a, B& b, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    multiply<Tile>(a, b, steps, sum);
}
#endif

// Addresses of single elements need more registers than 8 x 8 sums a thread leave: such a tile
// would spill.
template <class Tile, bool wide>
constexpr bool FITS_REGISTERS = wide || Tile::M_THREAD * Tile::N_THREAD < 64;

// ---- convolutions

struct Convolution {
    int batch, height, width, channels, filters, kernel, padding, stride;
    __device__ __forceinline__ int out_height() const {
        return (height + 2 * padding - kernel) / stride + 1;
    }
    __device__ __forceinline__ int out_width() const {
        return (width + 2 * padding - kernel) / stride + 1;
    }
    __device__ __forceinline__ int out_pixels() const { return batch * out_height() * out_width(); }
};

constexpr int NOWHERE = -(1 << 30);  // a row outside every image, for any tap

__device__ __forceinline__ bool within(int i, int size) {
    return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

// A share of an operand's steps. The operand has next(fetch), which calls fetch(pass, e, at, there)
// for each quad that this thread takes of the next step, or for each of its elements e where it is
// not wide; there: whether it is element `at` of the source and not beyond an end, where zeros are.
template <class Share, bool wide>
struct Operand {
    static constexpr bool IN_QUADS = wide;
    const float* source;
    float held[Share::PASSES][4];

    __device__ __forceinline__ explicit Operand(const float* source) : source(source) {}
    __device__ __forceinline__ void hold(int pass, int e, int at, bool there) {
        if constexpr (wide) {
#pragma unroll
            for (int i = 0; i < 4; i++) held[pass][i] = 0.0f;
            if (there) ::load(held[pass], source + at);
        } else
            held[pass][e] = there ? source[at] : 0.0f;
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) const {
        Share::store(held, step);
    }
    template <class Step>
    __device__ __forceinline__ void arrived(const Step&) const {}
};

// An operand as gemm_tile.cuh takes it: the next step in registers.
template <class Source>
struct Loaded : Source {
    using Source::Source;
    __device__ __forceinline__ void load() {
        this->next([this](int pass, int e, int at, bool there) { this->hold(pass, e, at, there); });
    }
};

// A of forward, and of the input gradient (`transposed`). image: x, or dy; rows of A: pixels of y,
// or of dx. strided: whether the stride of a gradient may be another than 1.
template <class Tile, bool transposed, bool wide, bool strided>
struct Windows : Operand<AlongK<Tile, Tile::M>, wide> {
    using Share = AlongK<Tile, Tile::M>;
    int height, width, channels, kernel, stride;  // of the image
    // at tap 0; offset of their image
    int row[Share::PASSES], column[Share::PASSES], start[Share::PASSES];
    int i, j, c;  // of this thread's first k

    __device__ __forceinline__ Windows(const float* image, const Convolution& conv, int first_pixel)
        : Operand<AlongK<Tile, Tile::M>, wide>(image), kernel(conv.kernel), stride(conv.stride) {
        height = transposed ? conv.out_height() : conv.height,
        width = transposed ? conv.out_width() : conv.width;
        channels = transposed ? conv.filters : conv.channels;
        int pixel_height = transposed ? conv.height : conv.out_height();
        int pixel_width = transposed ? conv.width : conv.out_width();
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int pixel = first_pixel + Share::line(pass);
            int image_row = pixel / pixel_width, at = image_row / pixel_height;
            bool there = Share::active(pass) && at < conv.batch;
            row[pass] = there ? shifted(image_row % pixel_height, conv.padding) : NOWHERE;
            column[pass] = shifted(pixel % pixel_width, conv.padding);
            start[pass] = at * height * width * channels;
        }
        c = Share::k() % channels;
        j = Share::k() / channels % kernel, i = Share::k() / channels / kernel;
    }
    __device__ __forceinline__ int shifted(int place, int padding) const {
        return transposed ? place + padding : place * stride - padding;
    }
    // The row or column of the image at tap t, outside of it if there is none.
    __device__ __forceinline__ int under(int place, int t) const {
        if (!transposed) return place + t;
        if (!strided) return place - t;
        return (place - t) % stride == 0 ? (place - t) / stride : NOWHERE;
    }
    __device__ __forceinline__ void advance(int& i, int& j, int& c, int by) const {
        for (c += by; c >= channels; c -= channels)
            if (++j == kernel) j = 0, i++;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int tap_i = i, tap_j = j, tap_c = c;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++) {
                int at_row = under(row[pass], tap_i), at_column = under(column[pass], tap_j);
                bool there = tap_i < kernel && within(at_row, height) && within(at_column, width);
                fetch(pass, e, start[pass] + (at_row * width + at_column) * channels + tap_c,
                      there);
                if (!wide) advance(tap_i, tap_j, tap_c, 1);
            }
        }
        advance(i, j, c, Tile::K);
    }
};

// Write this thread's part of C to the row-major rows x columns matrix c.
template <class Tile>
__device__ __forceinline__ void write(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD], float* c,
                                      int rows, int columns, int first_m, int first_n) {
    bool wide = columns % Tile::NEIGHBOURS == 0;
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i++) {
        int m = first_m + Tile::m_of(i);
        if (m >= rows) continue;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += Tile::NEIGHBOURS) {
            int n = first_n + Tile::n_of(j);
            float* to = c + m * columns + n;
            float neighbours[Tile::NEIGHBOURS];
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) neighbours[e] = sum[i][j + e];
            if (wide && n < columns) store(to, neighbours);
            if (!wide)
#pragma unroll
                for (int e = 0; e < Tile::NEIGHBOURS; e++)
                    if (n + e < columns) to[e] = neighbours[e];
        }
    }
}
