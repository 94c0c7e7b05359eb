// Operands of convolutions as matrix products, fetched from their source tensors
// (common/gemm_loop.cuh says what an operand has). A line is a pixel, a filter or a channel.
//
//   WindowRows      a line is a pixel of the output; k: tap row, tap column, channel of its window
//   FilterRows      a line is a filter; k as above
//   FilterColumns   a line is a channel; k: tap row, tap column, filter
//
// Where the innermost size of the tensor is a multiple of 4 (`wide`, known when a kernel is
// compiled), four neighbours are fetched by one access of 16 bytes; elsewhere they are fetched one
// by one. The results are the same. A gradient may be that behind a ReLU, or behind a ReLU and a
// 2x2 max-pool. It is then fetched with y or index of the forward pass, and goes back through them
// on its way to shared memory.
#pragma once
#include "common/gemm_tile.cuh"

constexpr int OUTSIDE = -(1 << 30);  // a row outside of every image, whatever tap is added

__device__ __forceinline__ bool within(int i, int size) {
    return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

// ---- places

// Pixel number n of images of height x width pixels, row by row, or `by_window` of height x width
// windows of 2x2 pixels, four consecutive pixels each.
struct Pixel {
    int image, row, column;
};
template <bool by_window>
__device__ __forceinline__ Pixel pixel_of(int n, int height, int width) {
    int place = by_window ? n / 4 : n, image = place / width / height, row = place / width % height,
        column = place % width;
    if (!by_window) return {image, row, column};
    return {image, row * 2 + n % 4 / 2, column * 2 + n % 2};
}

// A place in a window of size x size taps.
struct Tap {
    int row, column, channel;
    __device__ __forceinline__ void advance(int by, int size, int channels) {
        for (channel += by; channel >= channels; channel -= channels)
            if (++column == size) column = 0, row++;
    }
};

// An output pixel's window on the images: its first tap is at stride * place - padding.
struct Window {
    int size, stride, row_padding, column_padding;
};

// ---- images

enum Kind { PLAIN, BEHIND_RELU, BEHIND_POOL };

// Four neighbouring channels as fetched, on their way to shared memory. Nothing may wait for them
// before the products of the last step are done. y: only behind a ReLU; index, place: only behind a
// max-pool.
template <Kind kind>
struct Quad {
    float value[4], y[4];
    unsigned index;  // a byte for each
    int place;

    // Values for which nothing is left to do.
    __device__ __forceinline__ void set(const float (&values)[4]) {
#pragma unroll
        for (int e = 0; e < 4; e++) value[e] = values[e], y[e] = 1.0f;
        index = 0, place = 0;
    }
    __device__ __forceinline__ void finish(float (&to)[4]) const {
        unsigned differs = index ^ place * 0x01010101u;  // its bytes: 0 where a gradient passes
#pragma unroll
        for (int e = 0; e < 4; e++) {
            bool kept = kind == PLAIN ||
                        (kind == BEHIND_RELU ? y[e] > 0.0f : (differs & 0xffu << 8 * e) == 0);
            to[e] = kept ? value[e] : 0.0f;
        }
    }
};

// Images (batch, height, width, channels), or their gradients. BEHIND_RELU: y is its output.
// BEHIND_POOL: values and index have this layout, the pooled images' gradient and the places of
// their maxima (4: no gradient passes); the images themselves have twice the rows and columns.
template <Kind kind, bool wide>
struct Images {
    const float *values, *y;
    const unsigned char* index;
    int height, width, channels;

    static constexpr unsigned SCALE = kind == BEHIND_POOL ? 2 : 1;
    __device__ __forceinline__ bool hold(int row, int column) const {
        return within(static_cast<unsigned>(row) / SCALE, height) &&
               within(static_cast<unsigned>(column) / SCALE, width);
    }
    // What all taps of the window at (top, left) share: where its first tap is or, behind a
    // max-pool, the first row of the image. Of no use where top is OUTSIDE.
    __device__ __forceinline__ int origin(unsigned image, int top, int left) const {
        return kind == BEHIND_POOL ? image * height
                                   : ((image * height + top) * width + left) * channels;
    }
    // Where the channels of the tap at (row, column) begin, or of the 2x2 window that has it.
    __device__ __forceinline__ int start(int origin, const Tap& tap, unsigned row,
                                         unsigned column) const {
        if (kind == BEHIND_POOL)
            return ((origin + row / SCALE) * width + column / SCALE) * channels;
        return origin + (tap.row * width + tap.column) * channels;
    }
    static __device__ __forceinline__ int place(int row, int column) {
        return row % 2 * 2 + column % 2;
    }

    // Four neighbours, 16 bytes.
    __device__ __forceinline__ void fetch(Quad<kind>& quad, int from, int place) const {
        ::load(quad.value, values + from);
        if constexpr (kind == BEHIND_RELU) ::load(quad.y, y + from);
        if constexpr (kind == BEHIND_POOL)
            quad.index = *reinterpret_cast<const unsigned*>(index + from), quad.place = place;
    }
    __device__ __forceinline__ float one(int from, int place) const {
        bool kept = true;
        if constexpr (kind == BEHIND_RELU) kept = y[from] > 0.0f;
        if constexpr (kind == BEHIND_POOL) kept = index[from] == place;
        return kept ? values[from] : 0.0f;
    }
    // Four neighbours from `tap` on, in the window of size x size taps at (top, left); zeros
    // outside.
    __device__ __forceinline__ void fetch(Quad<kind>& quad, Tap tap, int size, int origin, int top,
                                          int left) const {
        float values[4] = {};
        if constexpr (wide) {
            int row = top + tap.row, column = left + tap.column;
            if (tap.row < size && hold(row, column))
                fetch(quad, start(origin, tap, row, column) + tap.channel, place(row, column));
            else
                quad.set(values);
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = top + tap.row, column = left + tap.column;
                if (tap.row < size && hold(row, column))
                    values[e] =
                        one(start(origin, tap, row, column) + tap.channel, place(row, column));
                tap.advance(1, size, channels);
            }
            quad.set(values);
        }
    }
};

// Output pixels as pixel_of<by_window> numbers them.
template <class Tile, int lines, Kind kind, bool wide, bool by_window>
struct WindowRows {
    using ThreadMap = AlongK<Tile, lines>;
    const Images<kind, wide> images;
    const int size;
    int origin[ThreadMap::PASSES], top[ThreadMap::PASSES],
        left[ThreadMap::PASSES];  // of each window
    Tap tap = {0, 0, 0};          // of this thread's first k
    Quad<kind> registers[ThreadMap::PASSES];
    // Whether a quad's place is found when the quad is stored, not when it is fetched. In between,
    // while the last step is multiplied, a register keeps the tap or the place; which of them
    // decides whether a compiler spills registers.
#if NVRTC_FROM_13_1
    static constexpr bool LATE = kind == BEHIND_POOL;
#else
    static constexpr bool LATE = false;
#endif

    __device__ __forceinline__ WindowRows(const Images<kind, wide>& images, const Window& window,
                                          int height, int width, int first, int pixels)
        : images(images), size(window.size) {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            int m = first + ThreadMap::line(pass);
            Pixel pixel = pixel_of<by_window>(m, height, width);
            top[pass] = ThreadMap::active(pass) && m < pixels
                            ? pixel.row * window.stride - window.row_padding
                            : OUTSIDE;
            left[pass] = pixel.column * window.stride - window.column_padding;
            origin[pass] = images.origin(pixel.image, top[pass], left[pass]);
        }
        tap.advance(ThreadMap::k(), size, images.channels);
    }
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++)
            images.fetch(registers[pass], tap, size, origin[pass], top[pass], left[pass]);
        if (!LATE) tap.advance(Tile::K, size, images.channels);
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) {
        float values[ThreadMap::PASSES][4];
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            if (LATE)
                registers[pass].place = images.place(top[pass] + tap.row, left[pass] + tap.column);
            registers[pass].finish(values[pass]);
        }
        if (LATE) tap.advance(Tile::K, size, images.channels);
        ThreadMap::store(values, step);
    }
};

// ---- filters

// Filter f's tap (row, column) of size x size begins at first + f * apart + row * row_step + column
// * column_step.
template <bool wide>
struct Filters {
    const float* first;
    int count, channels, size, apart, row_step, column_step, offset = 0;
};

template <class Tile, int lines, bool wide>
struct FilterRows {
    using ThreadMap = AlongK<Tile, lines>;
    const Filters<wide> filters;
    const int first;
    Tap tap = {0, 0, 0};
    float registers[ThreadMap::PASSES][4];

    __device__ __forceinline__ FilterRows(const Filters<wide>& filters, int first)
        : filters(filters), first(first) {
        tap.advance(ThreadMap::k(), filters.size, filters.channels);
    }
    __device__ __forceinline__ int start(const Tap& tap) const {
        return tap.row * filters.row_step + tap.column * filters.column_step + tap.channel;
    }
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            int filter = first + ThreadMap::line(pass);
            bool valid = ThreadMap::active(pass) && filter < filters.count;
            const float* from = filters.first + filter * filters.apart;
            Tap each = tap;
#pragma unroll
            for (int e = 0; e < 4; e++) registers[pass][e] = 0.0f;
            if constexpr (wide) {
                if (valid && tap.row < filters.size) ::load(registers[pass], from + start(tap));
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    if (valid && each.row < filters.size) registers[pass][e] = from[start(each)];
                    each.advance(1, filters.size, filters.channels);
                }
            }
        }
        tap.advance(Tile::K, filters.size, filters.channels);
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) const {
        ThreadMap::store(registers, step);
    }
};

// row_step must be size * column_step.
template <class Tile, int lines, bool wide>
struct FilterColumns {
    using ThreadMap = AlongLines<Tile, lines>;
    const Filters<wide> filters;
    const int channel;
    int taps, filter, start;  // of this thread's first k: taps left from it on
    float registers[ThreadMap::PASSES][4];

    __device__ __forceinline__ FilterColumns(const Filters<wide>& filters, int first)
        : filters(filters), channel(first + ThreadMap::line()),
          filter(ThreadMap::k() % filters.count) {
        int tap = ThreadMap::k() / filters.count;
        taps = ThreadMap::active() && channel < filters.channels ? filters.size * filters.size - tap
                                                                 : 0;
        start = filters.offset + filter * filters.apart + tap * filters.column_step + channel;
    }
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int pass = 0; pass < ThreadMap::PASSES; pass++) {
            bool valid = taps > 0;
            const float* from = filters.first + start;
#pragma unroll
            for (int e = 0; e < 4; e++) registers[pass][e] = 0.0f;
            if constexpr (wide) {
                if (valid) ::load(registers[pass], from);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (valid && channel + e < filters.channels) registers[pass][e] = from[e];
            }
            start += ThreadMap::K_PER_PASS * filters.apart;
            for (filter += ThreadMap::K_PER_PASS; filter >= filters.count; filter -= filters.count)
                taps--, start += filters.column_step - filters.count * filters.apart;
        }
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) const {
        ThreadMap::store(registers, step);
    }
};

// ---- results

// Keeps NaN, so that a diverged training shows in the loss; fmaxf would hide it.
__device__ __forceinline__ float at_least(float value, float floor) {
    return value < floor ? floor : value;
}

// Add each column's bias, then ReLU where `relu`.
template <class Tile>
__device__ __forceinline__ void add_bias(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                         const float* bias, int first_filter, int filters,
                                         bool relu) {
    float floor = relu ? 0.0f : __int_as_float(0xff800000);  // minus infinity
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int filter = first_filter + Tile::n_of(j);
        float shift = filter < filters ? bias[filter] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) sum[i][j] = at_least(sum[i][j] + shift, floor);
    }
}

__device__ __forceinline__ void store(unsigned char* to, const int (&from)[4]) {
    *reinterpret_cast<uchar4*>(to) = make_uchar4(from[0], from[1], from[2], from[3]);
}

// Four neighbours of a row that is `columns` long; those past its end are dropped.
template <class To, class From>
__device__ __forceinline__ void store_line(To* row, const From (&quad)[4], int column,
                                           int columns) {
    if (columns % 4 == 0) {
        if (column < columns) store(row + column, quad);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (column + e < columns) row[column + e] = quad[e];
    }
}

// This thread's piece of a product into the rows x columns matrix `to`.
template <class Tile>
__device__ __forceinline__ void store_rows(float* to,
                                           const float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           int first_row, int rows, int first_column, int columns) {
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i++) {
        int row = first_row + Tile::m_of(i);
        if (row >= rows) continue;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += 4) {
            float quad[4] = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
            store_line(to + row * columns, quad, first_column + Tile::n_of(j), columns);
        }
    }
}
