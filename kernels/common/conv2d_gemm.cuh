// Convolution (cross-correlation) and its gradients as implicit GEMM: matrix products whose factors
// are never stored; when a tile is loaded, each element is read from its source tensor.
//
//   direction        C(m, n)                    k                    A(m, k)          B(n, k)
//   forward          y: pixel of y, filter      tap i, j; channel    x under the tap  weight
//   input gradient   dx: pixel of dx, channel   tap i, j; filter     dy over the tap  weight
//   weight gradient  dweight: filter, (i, j, c) pixel of y, a range  dy               x under tap
// where dy over a tap is the pixel of y that saw x through it.
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, out_height, out_width,
// filters); weight, dweight (filters, kernel, kernel, channels); bias, dbias (filters). Every array
// has fewer than 2^31 elements. Stride, padding and kernel are the same both ways.
//
// An operand is `wide` if it is read 16 bytes at a time. For that the innermost size of its tensor
// (channels of x, filters of dy, channels of weight) must be a multiple of 4. Otherwise it is read
// 4 bytes at a time. The results are the same.
//
// Macros, with which Python chooses the tile:
//   TILE_M, TILE_N       elements of C that a block computes
//   THREAD_M, THREAD_N   those of a thread, which multiplies them itself (gemm_tile.cuh); or
//   WARP_M, WARP_N       those of a warp, by tensor cores
//   MULTIPLIER           the products (multiplier.cuh); not defined: exact. On tensor cores exact,
//                        tf32, bfloat16 or float16 (tensor_tile.cuh)
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

// Whether a tile's registers suffice. With 8 x 8 accumulators a thread has none left for the
// addresses of single elements.
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

// What all operands have. Each adds next(fetch), which calls fetch(pass, e, at, valid) for each
// quad of this thread in the next step or, where it is not wide, for each element e of the quad.
// valid: it is element `at` of the source; otherwise it is beyond an end, where zeros are.
template <class ThreadMap, bool wide>
struct Operand {
    static constexpr bool IN_QUADS = wide;
    const float* source;
    float registers[ThreadMap::PASSES][4];

    __device__ __forceinline__ explicit Operand(const float* source) : source(source) {}
    __device__ __forceinline__ void prefetch(int pass, int e, int at, bool valid) {
        if constexpr (wide) {
#pragma unroll
            for (int i = 0; i < 4; i++) registers[pass][i] = 0.0f;
            if (valid) ::load(registers[pass], source + at);
        } else
            registers[pass][e] = valid ? source[at] : 0.0f;
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) const {
        ThreadMap::store(registers, step);
    }
    template <class Step>
    __device__ __forceinline__ void arrived(const Step&) const {}
};

// An operand as gemm_loop.cuh takes it: its next step is in registers.
template <class Source>
struct Prefetched : Source {
    using Source::Source;
    __device__ __forceinline__ void load() {
        this->next(
            [this](int pass, int e, int at, bool valid) { this->prefetch(pass, e, at, valid); });
    }
};

// A of forward or, `transposed`, of the input gradient. image: x, or dy; a line of A is a pixel of
// y, or of dx. strided: the stride of a gradient may be another than 1.
template <class Tile, bool transposed, bool wide, bool strided>
struct Windows : Operand<AlongK<Tile, Tile::M>, wide> {
    using ThreadMap = AlongK<Tile, Tile::M>;
    int height, width, channels, kernel, stride;  // of the image
    // Of each line: row and column of the image at the first tap; where the image begins.
    int row[ThreadMap::PASSES], column[ThreadMap::PASSES], start[ThreadMap::PASSES];
    int i, j, c;  // of this thread's first k

    __device__ __forceinline__ Windows(const float* image, const Convolution& conv, int first_pixel)
        : Operand<AlongK<Tile, Tile::M>, wide>(image), kernel(conv.kernel), stride(conv.stride) {
        height = transposed ? conv.out_height() : conv.height,
        width = transposed ? conv.out_width() : conv.width;
        channels = transposed ? conv.filters : conv.channels;
        int pixel_height = transposed ? conv.height : conv.out_height();
        int pixel_width = transposed ? conv.width : conv.out_width();
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            int pixel = first_pixel + ThreadMap::line(pass);
            int image_row = pixel / pixel_width, at = image_row / pixel_height;
            bool valid = ThreadMap::active(pass) && at < conv.batch;
            row[pass] = valid ? shifted(image_row % pixel_height, conv.padding) : NOWHERE;
            column[pass] = shifted(pixel % pixel_width, conv.padding);
            start[pass] = at * height * width * channels;
        }
        c = ThreadMap::k() % channels;
        j = ThreadMap::k() / channels % kernel, i = ThreadMap::k() / channels / kernel;
    }
    __device__ __forceinline__ int shifted(int place, int padding) const {
        return transposed ? place + padding : place * stride - padding;
    }
    // The row or column of the image at tap t; NOWHERE if there is none.
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
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            int tap_i = i, tap_j = j, tap_c = c;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++) {
                int at_row = under(row[pass], tap_i), at_column = under(column[pass], tap_j);
                bool valid = tap_i < kernel && within(at_row, height) && within(at_column, width);
                fetch(pass, e, start[pass] + (at_row * width + at_column) * channels + tap_c,
                      valid);
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
