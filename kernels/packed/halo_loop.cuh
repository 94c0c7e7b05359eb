// The loop of a convolution that has the halo of a rectangle of pixels in shared memory once, for
// all taps (conv2d_halo.cu).
//
// Macros: KERNEL: rows and columns of a filter; TILE_COLUMNS: the width of a block's rectangle.
#pragma once
#include "packed/filters.cuh"

constexpr int TAPS = KERNEL * KERNEL, STAGES = KERNEL != 2 ? KERNEL : FLOAT16 ? 2 : 4;
constexpr int STAGE_BYTES = RowsOfLines<Tile::N>::BYTES;
// A channel block is multiplied in parts of STAGES taps; tap rows of a part.
constexpr int PARTS = TAPS / STAGES, TAP_ROWS = STAGES / KERNEL;
constexpr int TILE_ROWS = Tile::M / TILE_COLUMNS, FRAGMENT_ROWS = 16 / TILE_COLUMNS;

// The row and the column of the rectangle where line m of the tile is. Where a fragment is 16
// pixels wide its even columns come first. A thread has lines m, m + 8, m + 16 and m + 24, which
// then are a whole window of 2 x 2.
__device__ __forceinline__ int row_of(int m) { return TILE_COLUMNS == 16 ? m / 16 : m / 8; }
__device__ __forceinline__ int column_of(int m) {
    return TILE_COLUMNS == 16 ? m % 8 * 2 + m / 8 % 2 : m % 8;
}

// The pixels of x under a rectangle, in shared memory: (ROWS, COLUMNS, CHANNEL_BLOCK).
struct Halo {
    static constexpr int ROWS = TILE_ROWS + KERNEL - 1, COLUMNS = TILE_COLUMNS + KERNEL - 1,
                         BYTES = ROWS * COLUMNS * ROW;

    // The byte where a chunk is. Eight neighbours that a matrix reads have theirs in different
    // banks.
    static __device__ __forceinline__ int place(int row, int column, int chunk) {
        return (row * COLUMNS + column) * ROW +
               16 * (chunk ^ (TILE_COLUMNS == 16 ? column / 2 : column) % CHUNKS);
    }
};

// The copies of some columns of the halo. A thread copies one chunk of one column.
template <int first, int columns>
struct Columns {
    static constexpr int AT_ONCE = Tile::ROWS / columns;  // rows of a pass
    static constexpr int PER_PART = (Halo::ROWS + PARTS * AT_ONCE - 1) / (PARTS * AT_ONCE);
    static constexpr bool EXACT = PER_PART * PARTS * AT_ONCE == Halo::ROWS;
    static_assert(Tile::ROWS % columns == 0, "every thread has a column");
    const char* from;  // this thread's chunk in row 0 of the next channel block
    // row: of the first pass; last_row: of the image; pitch: bytes from a row of x to the next; to:
    // where the chunk goes
    int row, last_row, pitch, to;

    // x: the pixel under the rectangle's first one and the first tap; height, width: of the image
    // from there on.
    __device__ __forceinline__ Columns(const Packed* x, int height, int width, int channels,
                                       int pitch)
        : row(Tile::row(0) / columns), last_row(height - 1), pitch(pitch) {
        int column = first + Tile::row(0) % columns;
        from = reinterpret_cast<const char*>(x + min(column, width - 1) * channels +
                                             Tile::chunk() * CHUNK);
        to = Halo::place(row, column, Tile::chunk());
        keep_in_register(to), keep_in_register(row);
    }
    // Start the copies of a part of a channel block. Beyond the image's edges any pixel will do,
    // because no epilogue stores what is made of it.
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

// As Fragments: where this lane's row of each fragment of A begins, under the taps of one column.
struct Shifted {
    static constexpr int SWIZZLES = SLICED_K ? 1 : 4;
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

// The pixels of a block: a rectangle of y, or of a phase of it. height, width: of y; number: of
// this tile among all.
struct PixelTile {
    int first_row, first_column, image, height, width, number;
    int phase_row, phase_column;

    // The pixel in y of row i of this thread's accumulators; -1: none.
    __device__ __forceinline__ int pixel(int i) const {
        int m = Tile::m_of(i), row = first_row + row_of(m), column = first_column + column_of(m);
        bool inside = row < height / PHASE_STRIDE && column < width / PHASE_STRIDE;
        return inside ? (image * height + row * PHASE_STRIDE + phase_row) * width +
                            column * PHASE_STRIDE + phase_column
                      : -1;
    }
    // Output pixels are numbered row by row.
    __device__ __forceinline__ OutputPixel output(int number) const {
        constexpr int ACROSS = TILE_COLUMNS / POOL_SIDE;
        int m = line(number, 0), row = WINDOWS ? number / ACROSS : row_of(m),
            column = WINDOWS ? number % ACROSS : column_of(m);
        row += first_row / POOL_SIDE, column += first_column / POOL_SIDE;
        bool inside =
            row < height / PHASE_STRIDE / POOL_SIDE && column < width / PHASE_STRIDE / POOL_SIDE;
        return {inside, image, row * PHASE_STRIDE + phase_row,
                column * PHASE_STRIDE + phase_column};
    }
    static __device__ __forceinline__ int line(int output, int place) {
        if (!WINDOWS) return output;
        if (TILE_COLUMNS == 16) return output / 8 * 32 + output % 8 + place * 8;
        return output / 4 * 16 + output % 4 * 2 + place / 2 * 8 + place % 2;
    }
    __device__ __forceinline__ int first_partial() const { return number * (Tile::M / 64); }
};

using InnerColumns = Columns<0, TILE_COLUMNS>;
using HaloColumns = Columns<TILE_COLUMNS, KERNEL - 1>;

// sum = the sums of all products of the rectangle.
__device__ __forceinline__ void multiply(InnerColumns& inside_columns, HaloColumns& halo,
                                         RoundedFilters& weights, int channel_blocks,
                                         float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    constexpr int WINDOW = STAGES * STAGE_BYTES, PART_BYTES = TAP_ROWS * Halo::COLUMNS * ROW;
    DYNAMIC_SHARED(unsigned char, shared);
    int to = swizzled(Tile::row(0), Tile::chunk()),
        first_line = Tile::first_row() + 8 * odd_part() + threadIdx.x % 8;
    keep_in_register(to);
    Shifted a[KERNEL];
#pragma unroll
    for (int tap = 0; tap < KERNEL; tap++)
        a[tap].start(WINDOW, first_line, late_part() + 2 * step_of_warp(), tap);
    Fragments<RowsOfLines<Tile::N>, false> b(0, Tile::first_column());
    for (int part = 0; part < PARTS; part++)
        inside_columns.copy(shared + WINDOW, part), halo.copy(shared + WINDOW, part);
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) {
        weights.copy(shared + step * STAGE_BYTES + to, false);
        cp_async_commit();
    }
    Tile::Sums accumulators = {};
    int left = channel_blocks * TAPS - (STAGES - 1);  // steps whose weights are still to be copied
    // Where this channel block is, and where the next one goes.
    int at = WINDOW, next = WINDOW + Halo::BYTES;
    for (int channel_block = 1; channel_block <= channel_blocks; channel_block++) {
        inside_columns.from += ROW, halo.from += ROW;
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
                    inside_columns.copy(shared + next, part);
                    halo.copy(shared + next, part);
                }
                cp_async_commit();
                Tile::add_step(shared + stage / KERNEL * Halo::COLUMNS * ROW, a[stage % KERNEL],
                               shared + stage * STAGE_BYTES, b, accumulators);
            }
#pragma unroll
            for (int tap = 0; tap < KERNEL; tap++)
                a[tap].move(part < PARTS - 1 ? PART_BYTES : next - at - (PARTS - 1) * PART_BYTES);
        }
        int free = at;
        at = next, next = free;
    }
    Tile::reduce_warps(accumulators, sum);
}

// As convolve of pixel_loop.cuh, with KERNEL and a stride of 1; `pixels` is not needed.
template <class Epilogue>
__device__ __forceinline__ void
convolve(const Packed* __restrict__ x, const Packed* __restrict__ weight, int height, int width,
         int channels, int filters, int, int, int, const Epilogue& epilogue) {
    BlockTile block(filters);
    int out_height = height - KERNEL + 2 - PHASE_STRIDE,
        out_width = width - KERNEL + 2 - PHASE_STRIDE, tile = block.tile;
    int down = (out_height + TILE_ROWS - 1) / TILE_ROWS,
        along = (out_width + TILE_COLUMNS - 1) / TILE_COLUMNS;
    PixelTile pixels{tile / along % down * TILE_ROWS,
                     tile % along * TILE_COLUMNS,
                     tile / along / down,
                     out_height * PHASE_STRIDE,
                     out_width * PHASE_STRIDE,
                     tile,
                     block.row(),
                     block.column()};
    int row = pixels.first_row + block.row(), column = pixels.first_column + block.column();
    const Packed* from = x + ((pixels.image * height + row) * width + column) * channels;
    InnerColumns inside_columns(from, height - row, width - column, channels,
                                PACKED_BYTES * width * channels);
    HaloColumns halo(from, height - row, width - column, channels, PACKED_BYTES * width * channels);
    RoundedFilters weights(weight + block.phase * filters * TAPS * channels, filters, TAPS,
                           channels, block.first_filter);
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply(inside_columns, halo, weights, channels / K, sum);
    epilogue.finish(sum, pixels, filters, block.first_filter);
}
