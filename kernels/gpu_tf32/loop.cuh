// The loops of a convolution whose operands are packed copies, from the panels in shared memory to
// convolve(), a block's part. The files that include this one, conv2d.cu and others, make different
// results of the sums.
//
// The operands lie as they are multiplied in global memory, so that cp.async copies them to shared
// memory without passing registers, 16 bytes at a time. STAGES steps of K are in shared memory:
// while the warps multiply one, the copies of the next are under way. One barrier a step is enough:
// the stage that a step's copies go to was multiplied before the barrier.
//
// An address that changes from step to step is kept and moved on, not computed again, so that the
// loop does little beside products, loads of fragments and copies.
//
// Macros:
//   MULTIPLIER       tf32 (gpu_tf32), float32 (gpu_3xtf32_packed) or float16 (gpu_f16): what is
//                    packed, in place of bfloat16 (gpu_bf16). Lengths that these files give are of
//                    16 bits: of TF32 and float32 a row of shared memory has 32 numbers, not 64, a
//                    product's k is 8, not 16, and channels are a multiple of 4, not 8
//                    (common/tensor_cores.cuh)
//   TILE_M, TILE_N   lines and columns of a block, of C; WARP_M, WARP_N: those of a warp
//   WHOLE            1: 64 divides the length along which k steps: the channels, or a weight
//                    gradient's pixels; 0: it does not
//   DEPTHS           products of an mma to each sum in the only step of few channels; not defined:
//                    all of a step, and steps
//   KERNEL           of the loop with a halo (conv2d_halo.cu): rows and columns of a filter; else
//                    not defined
//   TILE_COLUMNS     of the loop with a halo: the width of a block's rectangle
//   WINDOWS          1: results are of windows of 2 x 2 pixels, which a block has whole; 0, the
//                    default: of pixels
//   PHASES           an upsampled image has four phases, each with filters of its own. 1: apart, a
//                    block has pixels of one phase; 2: in columns, a block has pixels of all four;
//                    0, the default: there are no phases (conv2d.cu)
#pragma once
#include "common/tensor_cores.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define WARP_M 64
#define WARP_N 64
#define WHOLE 1
#endif
#ifndef WINDOWS
#define WINDOWS 0
#endif
#ifndef PHASES
#define PHASES 0
#endif

constexpr int SPREAD = PHASES == 1 ? 2 : 1;  // pixels of y from one of a block's to the next

constexpr int CELL_SIDE = WINDOWS ? 2 : 1, CELL_LINES = CELL_SIDE * CELL_SIDE;

struct Cell {
    bool there;
    int image, row, column;  // of the image of cells
};

// ---- the tile

constexpr int K = CHANNEL_BLOCK;  // of a step: a row in shared memory

// Warps share out the products of a tile, but for those of 64 x 64, of which each has all, for a
// quarter of every step: of what a step copies each reads only that quarter, in place of a half by
// four warps of 32 x 32.
constexpr bool BY_K = TILE_M == 64 && TILE_N == 64;
#ifndef DEPTHS
#define DEPTHS (BY_K ? 1 : K / DEPTH)
#endif
constexpr bool ALL_CHUNKS = BY_K || DEPTHS == K / DEPTH;  // of a row are read
__device__ __forceinline__ int step_of_warp() { return BY_K ? threadIdx.x / 32 : 0; }

// A row of shared memory is a line, with its chunks along k.
template <int lines>
struct RowsOfLines {
    static constexpr int BYTES = lines * ROW;
    static constexpr bool TRANSPOSED = false;
    static __device__ __forceinline__ int chunk_at(int row, int chunk) {
        return swizzled(row, chunk);
    }
    static __device__ __forceinline__ int place(int line, int k) {
        return chunk_at(line, k / CHUNK);
    }
};

// The part of four that this lane's address is of, as ldmatrix takes them, by 1 and by 2.
__device__ __forceinline__ int odd_part() { return threadIdx.x % 16 / 8; }
__device__ __forceinline__ int late_part() { return threadIdx.x % 32 / 16; }

// Where in shared memory this lane's row of each of a warp's fragments begins. A fragment is four
// matrices of 8 lines by a chunk along k, and ldmatrix takes the address of one row of one of them
// from each lane. Those of A, 16 x DEPTH, come by lines, those of B, of which `a` is false, are two
// of 8 lines and come by k.
template <class Panel, bool a, bool words = IN_WORDS && Panel::TRANSPOSED>
struct Fragments {
    // Different ones, by the k within a step, or by the fragment where rows are k.
    static constexpr int SWIZZLES = BY_K && !Panel::TRANSPOSED ? 1 : 4;
    int at[SWIZZLES];

    __device__ __forceinline__ Fragments(int panel, int first_line) {
        int line = first_line + 8 * (a ? odd_part() : late_part()), in_matrix = threadIdx.x % 8;
        int k = CHUNK * (a ? late_part() : odd_part()) + DEPTH * step_of_warp();
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++)
            at[s] = panel + (Panel::TRANSPOSED ? Panel::place(line + 16 * s, k + in_matrix)
                                               : Panel::place(line + in_matrix, k + DEPTH * s));
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++) keep(at[s]);
    }
    // Of fragment i, which begins 16 i lines further, for k from DEPTH step on.
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
        if constexpr (Panel::TRANSPOSED)
            ldmatrix_trans(to, shared + at[i] + step * DEPTH * ROW);
        else
            ldmatrix(to, shared + at[step] + i * 16 * ROW);
    }
};

// Numbers of 32 bits, which ldmatrix cannot transpose, are read one by one where rows are k: of
// each matrix line lane / 4 and k lane % 4. The numbers of a matrix are in all banks once.
template <class Panel, bool a>
struct Fragments<Panel, a, true> {
    int at[4];  // of a slice's lines from 0, 8, 16 and 24 on

    __device__ __forceinline__ Fragments(int panel, int first_line) {
        int line = first_line + threadIdx.x % 32 / 4;
#pragma unroll
        for (int s = 0; s < 4; s++) {
            at[s] = panel + Panel::place(line + 8 * s, threadIdx.x % 4 + DEPTH * step_of_warp()) +
                    line % CHUNK * PACKED_BYTES;
            keep(at[s]);
        }
    }
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
#pragma unroll
        for (int part = 0; part < 4; part++) {
            int lines = a ? part % 2 : part / 2,
                k = step * DEPTH + CHUNK * (a ? part / 2 : part % 2);
            to[part] = *reinterpret_cast<const unsigned*>(shared + at[i % 2 * 2 + lines] +
                                                          (i / 2 * K + k) * ROW);
        }
    }
};

template <int m, int n, int m_warp, int n_warp, int stages>
struct StagedTile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    using Multiplied = WarpTile<m, n, BY_K ? m : m_warp, BY_K ? n : n_warp>;  // by a warp
    using Sums = float[Multiplied::M_THREAD][Multiplied::N_THREAD];
    static constexpr int STAGES = stages;
    // of shared memory that a pass of copies fills, a thread 16 bytes
    static constexpr int ROWS = Warp::THREADS / CHUNKS;
    static __device__ __forceinline__ int chunk() { return threadIdx.x % CHUNKS; }
    static __device__ __forceinline__ int row(int pass) {
        return threadIdx.x / CHUNKS + pass * ROWS;
    }
    // this thread's chunk
    static __device__ __forceinline__ bool is_read() { return ALL_CHUNKS || chunk() < 2 * DEPTHS; }

    // sum += the products of one step, whose fragments begin at a_from and b_from.
    template <class A, class B>
    static __device__ __forceinline__ void add_step(const unsigned char* a_from, const A& a_at,
                                                    const unsigned char* b_from, const B& b_at,
                                                    Sums& sum) {
        using W = Multiplied;
#pragma unroll
        for (int step = 0; step < DEPTHS; step++) {
            unsigned a[W::M_FRAGMENTS][4], b[W::N_FRAGMENTS / 2][4];  // b: two fragments each
#pragma unroll
            for (int i = 0; i < W::M_FRAGMENTS; i++) a_at.load(a[i], a_from, i, step);
#pragma unroll
            for (int j = 0; j < W::N_FRAGMENTS / 2; j++) b_at.load(b[j], b_from, j, step);
#pragma unroll
            for (int i = 0; i < W::M_FRAGMENTS; i++)
#pragma unroll
                for (int j = 0; j < W::N_FRAGMENTS; j++) {
                    PackedFragment<4> of_a(a[i][0], a[i][1], a[i][2], a[i][3]);
                    PackedFragment<2> of_b(b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                    W::update(sum, i, j, [&](float (&c)[4]) { mma_packed(c, of_a, of_b); });
                }
        }
    }
    static __device__ __forceinline__ int first_row() { return BY_K ? 0 : Warp::first_row(); }
    static __device__ __forceinline__ int first_column() { return BY_K ? 0 : Warp::first_column(); }

    // sum = what this thread keeps of all products: its own, or the sums of the four warps, added
    // in their order, a quarter of the tile after the other.
    static __device__ __forceinline__ void collect(const Sums& multiplied,
                                                   float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
        // eight banks apart, for stores of fragments
        constexpr int LINES = m_warp, PITCH = n_warp + 8;
        DYNAMIC_SHARED(float, shared);
        float* own = shared + threadIdx.x % 32 / 4 * PITCH + threadIdx.x % 4 * 2;
#pragma unroll
        for (int quarter = 0; BY_K && quarter < 4; quarter++) {
            __syncthreads();  // all have multiplied, and added the quarter before
#pragma unroll
            for (int i = 0; i < Warp::M_THREAD; i++)
#pragma unroll
                for (int j = 0; j < Warp::N_THREAD; j += 2) {
                    const float* from = &multiplied[quarter / 2 * Warp::M_THREAD + i]
                                                   [quarter % 2 * Warp::N_THREAD + j];
                    float neighbours[2] = {from[0], from[1]};
                    store(own + (threadIdx.x / 32 * LINES + 8 * i) * PITCH + 4 * j, neighbours);
                }
            __syncthreads();
            if (threadIdx.x / 32 != quarter) continue;
#pragma unroll
            for (int i = 0; i < Warp::M_THREAD; i++)
#pragma unroll
                for (int j = 0; j < Warp::N_THREAD; j += 2) {
                    sum[i][j] = sum[i][j + 1] = 0.0f;
#pragma unroll
                    for (int warp = 0; warp < 4; warp++) {
                        float2 of_warp = *reinterpret_cast<float2*>(
                            own + (warp * LINES + 8 * i) * PITCH + 4 * j);
                        sum[i][j] += of_warp.x, sum[i][j + 1] += of_warp.y;
                    }
                }
        }
#pragma unroll
        for (int i = 0; !BY_K && i < Warp::M_THREAD; i++)
#pragma unroll
            for (int j = 0; j < Warp::N_THREAD; j++) sum[i][j] = multiplied[i][j];
    }
};

// In as many stages as fit the 99 KB of shared memory that a block may have on sm_86 and sm_89; in
// float16 the 64 KB on sm_75.
using Tile = StagedTile<TILE_M, TILE_N, WARP_M, WARP_N, FLOAT16 ? 2 : 3>;

// sum = the first K * steps products of the operands, for the elements of C that this thread keeps;
// in stages of K * 2 * (M + N) bytes. The operands are an object with
//     APanel, BPanel       the lines of one step in shared memory, m or n of them: RowsOfLines, or
//                          where rows are k RowsOfK
//     copy(a, b)           start this thread's copies of the next step; a, b: its first chunk in
//                          either panel. It copies chunk() of row(pass) for every pass, and where
//                          rows are k also of the next 64 lines, and so on
template <class Tile, class Operands>
__device__ __forceinline__ void multiply_staged(Operands& operands, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using A = typename Operands::APanel;
    using B = typename Operands::BPanel;
    Fragments<A, true> a(0, Tile::first_row());
    Fragments<B, false> b(A::BYTES, Tile::first_column());
    int to = A::chunk_at(Tile::row(0), Tile::chunk());  // and in B
    typename Tile::Sums multiplied = {};
    in_stages<Tile::STAGES, A::BYTES + B::BYTES>(
        steps, [&](unsigned char* stage) { operands.copy(stage + to, stage + to + A::BYTES); },
        [&](const unsigned char* stage) { Tile::add_step(stage, a, stage, b, multiplied); });
    Tile::collect(multiplied, sum);
}

// ---- filters

// A block's share of the result: a tile of lines, filters, and one phase where phases are apart.
// Neighbouring blocks read the same pixels.
struct Share {
    int tile, first_filter, phase;

    __device__ __forceinline__ explicit Share(int filters) {
        int of_phase = (filters + Tile::N - 1) / Tile::N,
            number = blockIdx.x % (of_phase * SPREAD * SPREAD);
        tile = blockIdx.x / (of_phase * SPREAD * SPREAD);
        phase = SPREAD == 1 ? 0 : number / of_phase;  // known to the compiler where there are none
        first_filter = (number - phase * of_phase) * Tile::N;
    }
    __device__ __forceinline__ int row() const { return phase / 2; }
    __device__ __forceinline__ int column() const { return phase % 2; }
};

// B: lines are filters, k the numbers of a filter in the order of the sums.
struct RoundedFilters {
    static constexpr int PASSES = Tile::N / Tile::ROWS;
    const Packed* weight;
    const char* from;  // where this thread's next k of the first filter is
    // bytes to the next step; from a channel block's last tap to the next one's first
    int to_next, to_next_channel_block;
    int left, start[PASSES];  // left: k from it on; start: numbers

    __device__ __forceinline__ RoundedFilters(const Packed* weight, int filters, int taps,
                                              int channels, int first)
        : weight(weight), from(reinterpret_cast<const char*>(weight + Tile::chunk() * CHUNK)),
          to_next(WHOLE ? PACKED_BYTES * channels : ROW),
          to_next_channel_block(ROW - (taps - 1) * PACKED_BYTES * channels),
          left(taps * channels - Tile::chunk() * CHUNK) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            start[pass] = min(first + Tile::row(pass), filters - 1) * taps * channels;
            keep(start[pass]);
        }
    }
    // ends_channel_block: whether the step is the last tap of a channel block.
    __device__ __forceinline__ void copy(unsigned char* first_chunk, bool ends_channel_block) {
        bool there = WHOLE || left > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES && Tile::is_read(); pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW,
                     there ? static_cast<const void*>(from + 1ll * PACKED_BYTES * start[pass])
                           : weight,
                     there);
        from += ends_channel_block ? to_next_channel_block : to_next;
        left -= K;
    }
};

#ifndef KERNEL
// ---- pixels step by step, as the filters. The image has a border of zeros, so that no place is
// compared with its edges, and a window's row is one run of kernel * channels numbers.

// The pixel, in an image `width` wide and as high as an even number if WINDOWS, of a line of all
// tiles.
__device__ __forceinline__ int pixel_of(int line, int width) {
    if (!WINDOWS) return line;
    int window = line / 4, across = width / 2;
    return (window / across * 2 + line % 4 / 2) * width + window % across * 2 + line % 2;
}

// A: lines are pixels of y, k the taps and channels of x under them: kernel * channels neighbours
// in each of kernel rows of x.
struct PaddedWindows {
    static constexpr int PASSES = Tile::M / Tile::ROWS;
    const Packed *x, *from;        // from: where this thread's next k of the first window is
    int channels, kernel, length;  // length: numbers of a window's row
    int to_next_row, to_next_channel_block;  // numbers beyond the last one of a row, of a window
    int k, rows;                             // next k in its row, and rows from it on
    int start[PASSES];                       // of the windows

    __device__ __forceinline__ PaddedWindows(const Packed* x, int height, int width, int channels,
                                             int kernel, int stride, int out_height, int out_width,
                                             int pixels, int first_pixel)
        : x(x), from(x + Tile::chunk() * CHUNK), channels(channels), kernel(kernel),
          length(kernel * channels), to_next_row((width - kernel) * channels),
          to_next_channel_block(K - kernel * width * channels),
          k(WHOLE ? 0 : Tile::chunk() * CHUNK), rows(kernel) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            int pixel = pixel_of(min(first_pixel + Tile::row(pass), pixels - 1), out_width),
                out_row = pixel / out_width;
            int row = out_row / out_height * height + out_row % out_height * stride;
            start[pass] = (row * width + pixel % out_width * stride) * channels;
        }
        if (!WHOLE) advance(0);
    }
    __device__ __forceinline__ void advance(int by) {
        from += by, k += by;
        if (WHOLE) {
            if (k == length) from += to_next_row, k = 0, rows--;
            if (rows == 0) from += to_next_channel_block, rows = kernel;
        } else {
            for (; k >= length; k -= length) from += to_next_row, rows--;
        }
    }
    // Whether the next step is the last tap of a channel block.
    __device__ __forceinline__ bool ends_channel_block() const {
        return rows == 1 && k == length - channels;
    }
    __device__ __forceinline__ void copy(unsigned char* first_chunk) {
        bool there = WHOLE || rows > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES && Tile::is_read(); pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, there ? from + start[pass] : x,
                     there);
        advance(WHOLE ? channels : K);
    }
};

struct PixelsAndFilters {
    using APanel = RowsOfLines<Tile::M>;
    using BPanel = RowsOfLines<Tile::N>;
    PaddedWindows a;
    RoundedFilters b;
    __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b) {
        b.copy(to_b, WHOLE && a.ends_channel_block());
        a.copy(to_a);
    }
};

// A tile whose lines are pixels one after the other, or windows of four pixels each. pixels: of y,
// or of its phase; height, width: of y.
struct Lines {
    int first, pixels, height, width, row, column;  // row, column: of the phase

    __device__ __forceinline__ int of(int i) const {
        int number = first + Tile::m_of(i), across = width / SPREAD;
        if (number >= pixels) return -1;
        return (number / across * SPREAD + row) * width + number % across * SPREAD + column;
    }
    __device__ __forceinline__ Cell cell(int number) const {
        int of_all = first / CELL_LINES + number, across = width / SPREAD / CELL_SIDE,
            down = height / SPREAD / CELL_SIDE;
        int of_rows = of_all / across;
        return {of_all < pixels / CELL_LINES, of_rows / down, of_rows % down * SPREAD + row,
                of_all % across * SPREAD + column};
    }
    static __device__ __forceinline__ int line(int cell, int place) {
        return CELL_LINES * cell + place;
    }
    __device__ __forceinline__ int first_partial() const { return first / 64; }
};

// A block's part of the convolution of x with weight; result: what becomes of its sums. Where
// phases are apart, the convolution of phase (p, q) begins at pixel (p, q) of x, and has filters of
// its own.
template <class Result>
__device__ __forceinline__ void
convolve(const Packed* __restrict__ x, const Packed* __restrict__ weight, int height, int width,
         int channels, int filters, int kernel, int stride, int pixels, const Result& result) {
    Share share(filters);
    int first_pixel = share.tile * Tile::M, of_phase = pixels / (SPREAD * SPREAD),
        length = kernel * kernel * channels;
    int down = (height - kernel) / stride + 2 - SPREAD,
        across = (width - kernel) / stride + 2 - SPREAD;
    PixelsAndFilters operands{PaddedWindows(x + (share.row() * width + share.column()) * channels,
                                            height, width, channels, kernel, stride, down, across,
                                            of_phase, first_pixel),
                              RoundedFilters(weight + share.phase * filters * length, filters,
                                             kernel * kernel, channels, share.first_filter)};
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply_staged<Tile>(operands, (length + K - 1) / K, sum);
    result.finish(
        sum,
        Lines{first_pixel, of_phase, down * SPREAD, across * SPREAD, share.row(), share.column()},
        filters, share.first_filter);
}

#else
// ---- the halo of a rectangle of pixels, in shared memory once for all taps (conv2d_halo.cu)

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

// As convolve above, with KERNEL and a stride of 1; `pixels` is not needed.
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
#endif
