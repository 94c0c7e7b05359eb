// The loop of a convolution that has the halo of a rectangle of pixels in shared memory once, for
// all taps (conv2d_halo.cu).
//
// Macros: KERNEL: rows and columns of a filter; TILE_COLUMNS: the width of a block's rectangle.
#pragma once
#include "gpu_tf32/filters.cuh"

constexpr int TAPS = KERNEL * KERNEL, STAGES = KERNEL != 2 ? KERNEL : FLOAT16 ? 2 : 4;
constexpr int STAGE_BYTES = RowsOfLines<Tile::N>::BYTES;
// of a channel block; tap rows of a part
constexpr int PARTS = TAPS / STAGES, TAP_ROWS = STAGES / KERNEL;
constexpr int TILE_ROWS = Tile::M / TILE_COLUMNS, FRAGMENT_ROWS = 16 / TILE_COLUMNS;

// Where row m of the products is in the rectangle. Of a fragment 16 pixels wide the even columns
// come first, so that a thread, which has rows m and m + 8, m + 16 and m + 24, has whole windows of
// 2 x 2.
__device__ __forceinline__ int row_of(int m) { return TILE_COLUMNS == 16 ? m / 16 : m / 8; }
__device__ __forceinline__ int column_of(int m) {
    return TILE_COLUMNS == 16 ? m % 8 * 2 + m / 8 % 2 : m % 8;
}

struct Halo {
    static constexpr int ROWS = TILE_ROWS + KERNEL - 1, COLUMNS = TILE_COLUMNS + KERNEL - 1,
                         BYTES = ROWS * COLUMNS * ROW;

    // Byte of a chunk. Eight neighbours that a matrix reads have it in eight groups of banks.
    static __device__ __forceinline__ int place(int row, int column, int chunk) {
        return (row * COLUMNS + column) * ROW +
               16 * (chunk ^ (TILE_COLUMNS == 16 ? column / 2 : column) % CHUNKS);
    }
};

// The copies of some columns of the halo: a thread's are of one chunk of one column.
template <int first, int columns>
struct Columns {
    static constexpr int AT_ONCE = Tile::ROWS / columns;  // rows
    static constexpr int PER_PART = (Halo::ROWS + PARTS * AT_ONCE - 1) / (PARTS * AT_ONCE);
    static constexpr bool EXACT = PER_PART * PARTS * AT_ONCE == Halo::ROWS;
    static_assert(Tile::ROWS % columns == 0, "every thread has a column");
    const char* from;  // in row 0 of the next channel block
    // row: of the first pass; last_row: of the image; pitch: bytes between rows
    int row, last_row, pitch, to;

    // x: the rectangle's first pixel at the first tap; height, width: what the image has from there
    // on.
    __device__ __forceinline__ Columns(const Packed* x, int height, int width, int channels,
                                       int pitch)
        : row(Tile::row(0) / columns), last_row(height - 1), pitch(pitch) {
        int column = first + Tile::row(0) % columns;
        from = reinterpret_cast<const char*>(x + min(column, width - 1) * channels +
                                             Tile::chunk() * CHUNK);
        to = Halo::place(row, column, Tile::chunk());
        keep(to), keep(row);
    }
    // Start the copies of a part of a channel block. Beyond the image's edges any pixel will do.
    __device__ __forceinline__ void copy(unsigned char* channel_block, int part) const {
#pragma unroll
        for (int pass = 0; pass < PER_PART; pass++) {
            int further = (part * PER_PART + pass) * AT_ONCE;
            if (EXACT || row < Halo::ROWS - further)
                cp_async(16, channel_block + to + further * Halo::COLUMNS * ROW,
                         from + static_cast<long long>(min(row + further, last_row)) * pitch, true);
        }
    }
};

// Where this lane's row of each of a warp's fragments begins under the taps of one column, as
// Fragments.
struct Shifted {
    static constexpr int SWIZZLES = BY_K ? 1 : 4;
    int at[SWIZZLES];

    __device__ __forceinline__ void start(int channel_block, int m, int chunk, int tap) {
        int column = column_of(m) + tap;
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++)
            at[s] = channel_block + Halo::place(row_of(m), column, chunk + 2 * s);
    }
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
        ldmatrix(to, shared + at[step] + i * FRAGMENT_ROWS * Halo::COLUMNS * ROW);
    }
    __device__ __forceinline__ void move(int bytes) {
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++) at[s] += bytes;
    }
};

// A rectangle of y, or of its phase.
struct Rectangle {
    // height, width: of y; number: of all rectangles
    int first_row, first_column, image, height, width, number;
    int phase_row, phase_column;

    __device__ __forceinline__ int of(int i) const {
        int m = Tile::m_of(i), row = first_row + row_of(m), column = first_column + column_of(m);
        bool there = row < height / SPREAD && column < width / SPREAD;
        return there ? (image * height + row * SPREAD + phase_row) * width + column * SPREAD +
                           phase_column
                     : -1;
    }
    // Cells come row by row.
    __device__ __forceinline__ Cell cell(int number) const {
        constexpr int ACROSS = TILE_COLUMNS / CELL_SIDE;
        int m = line(number, 0), row = WINDOWS ? number / ACROSS : row_of(m),
            column = WINDOWS ? number % ACROSS : column_of(m);
        row += first_row / CELL_SIDE, column += first_column / CELL_SIDE;
        bool there = row < height / SPREAD / CELL_SIDE && column < width / SPREAD / CELL_SIDE;
        return {there, image, row * SPREAD + phase_row, column * SPREAD + phase_column};
    }
    static __device__ __forceinline__ int line(int cell, int place) {
        if (!WINDOWS) return cell;
        if (TILE_COLUMNS == 16) return cell / 8 * 32 + cell % 8 + place * 8;
        return cell / 4 * 16 + cell % 4 * 2 + place / 2 * 8 + place % 2;
    }
    __device__ __forceinline__ int first_partial() const { return number * (Tile::M / 64); }
};

using Inner = Columns<0, TILE_COLUMNS>;
using Rest = Columns<TILE_COLUMNS, KERNEL - 1>;

// sum = all products of the rectangle.
__device__ __forceinline__ void multiply(Inner& inner, Rest& rest, RoundedFilters& weights,
                                         int channel_blocks,
                                         float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    constexpr int WINDOW = STAGES * STAGE_BYTES, PART_BYTES = TAP_ROWS * Halo::COLUMNS * ROW;
    DYNAMIC_SHARED(unsigned char, shared);
    int to = swizzled(Tile::row(0), Tile::chunk()),
        first_line = Tile::first_row() + 8 * odd_part() + threadIdx.x % 8;
    keep(to);
    Shifted a[KERNEL];
#pragma unroll
    for (int tap = 0; tap < KERNEL; tap++)
        a[tap].start(WINDOW, first_line, late_part() + 2 * step_of_warp(), tap);
    Fragments<RowsOfLines<Tile::N>, false> b(0, Tile::first_column());
    for (int part = 0; part < PARTS; part++)
        inner.copy(shared + WINDOW, part), rest.copy(shared + WINDOW, part);
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) {
        weights.copy(shared + step * STAGE_BYTES + to, false);
        cp_async_commit();
    }
    Tile::Sums multiplied = {};
    int left = channel_blocks * TAPS - (STAGES - 1);  // steps whose weights are not on their way
    // where this channel block is, and where the next one goes
    int at = WINDOW, next = WINDOW + Halo::BYTES;
    for (int channel_block = 1; channel_block <= channel_blocks; channel_block++) {
        inner.from += ROW, rest.from += ROW;
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
#pragma unroll
            for (int stage = 0; stage < STAGES; stage++) {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                int ahead = (stage + STAGES - 1) % STAGES;
                if (left-- > 0)
                    weights.copy(shared + ahead * STAGE_BYTES + to,
                                 stage == 0 && part == PARTS - 1);
                if (stage == 0 && channel_block < channel_blocks) {
                    inner.copy(shared + next, part);
                    rest.copy(shared + next, part);
                }
                cp_async_commit();
                Tile::add_step(shared + stage / KERNEL * Halo::COLUMNS * ROW, a[stage % KERNEL],
                               shared + stage * STAGE_BYTES, b, multiplied);
            }
#pragma unroll
            for (int tap = 0; tap < KERNEL; tap++)
                a[tap].move(part < PARTS - 1 ? PART_BYTES : next - at - (PARTS - 1) * PART_BYTES);
        }
        int free = at;
        at = next, next = free;
    }
    Tile::collect(multiplied, sum);
}

// As convolve of pixel_loop.cuh, with KERNEL and a stride of 1; `pixels` is not needed.
template <class Result>
__device__ __forceinline__ void
convolve(const Packed* __restrict__ x, const Packed* __restrict__ weight, int height, int width,
         int channels, int filters, int, int, int, const Result& result) {
    Share share(filters);
    int out_height = height - KERNEL + 2 - SPREAD, out_width = width - KERNEL + 2 - SPREAD,
        tile = share.tile;
    int down = (out_height + TILE_ROWS - 1) / TILE_ROWS,
        along = (out_width + TILE_COLUMNS - 1) / TILE_COLUMNS;
    Rectangle pixels{tile / along % down * TILE_ROWS,
                     tile % along * TILE_COLUMNS,
                     tile / along / down,
                     out_height * SPREAD,
                     out_width * SPREAD,
                     tile,
                     share.row(),
                     share.column()};
    int row = pixels.first_row + share.row(), column = pixels.first_column + share.column();
    const Packed* from = x + ((pixels.image * height + row) * width + column) * channels;
    Inner inner(from, height - row, width - column, channels, PACKED_BYTES * width * channels);
    Rest rest(from, height - row, width - column, channels, PACKED_BYTES * width * channels);
    RoundedFilters weights(weight + share.phase * filters * TAPS * channels, filters, TAPS,
                           channels, share.first_filter);
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply(inner, rest, weights, channels / K, sum);
    result.finish(sum, pixels, filters, share.first_filter);
}
