// The loop of a convolution of slabs by wgmma, of which conv2d.cu and others make different results (gpu_bf16/epilogue.cuh).
//
// A slab's pixels are in shared memory once for all taps, those of the next slab are under way meanwhile; of the filters each tap
// is a stage. Barriers tell the copying thread which stages are read, and the others which have come.
#pragma once
#include "common/tensor_cores.cuh"
#include "common/warp_tile.cuh"
#include "gpu_bf16/rows.cuh"
#include "gpu_bf16_sm90/multiply.cuh"
#include "gpu_bf16_sm90/ring.cuh"
#include "gpu_bf16_sm90/windows.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#endif
// As wgmma leaves its sums in warpgroups.
struct Tile : WarpTile<TILE_M, TILE_N, 16, TILE_N> {
    static __device__ __forceinline__ void sync() { sync_first<THREADS>(); }   // who copies does not wait
};
#include "gpu_bf16/epilogue.cuh"

constexpr int WARPGROUPS = TILE_M / 64, MULTIPLIERS = 4 * WARPGROUPS;   // that multiply; their warps
constexpr int STAGES = 4, SLABS = 2;                               // in shared memory: of filters; of pixels
constexpr int FILTER_BYTES = TILE_N * ROW;
constexpr int SUMS = TILE_N / 2;   // of a thread, for its two rows

using Filters = Ring<STAGES>;
using Pixels = Ring<SLABS>;

// The copies of a block, by one thread. x, weight: the first rows of the block; slab_rows: from a slab to the next in x;
// tap_rows: from a tap to the next in weight.
__device__ __forceinline__ void copy_all(Pixels pixels, Filters filters, const bfloat16* x, const bfloat16* weight, int slabs,
                                         int taps, int rows, int slab_rows, int tap_rows) {
    for (int slab = 0; slab < slabs; slab++, x += static_cast<long long>(slab_rows) * SLAB) {
        pixels.begin(rows * ROW);
        pixels.copy(0, x, rows * ROW);
        pixels.next();
        for (int tap = 0; tap < taps; tap++, weight += tap_rows * SLAB) {
            filters.begin(FILTER_BYTES);
            filters.copy(0, weight, FILTER_BYTES);
            filters.next();
        }
    }
}

// A warp's products with 16 pixels.
struct Multiplier {
    Pixels pixels;
    Filters filters;
    int row, chunk;   // of the pixel that this lane names, lane % 16, under the first tap; 0 or 1: its half of 16 channels
    int kernel, width, taps;
    int tap = 0, column = 0, under_tap = 0;   // under_tap: rows from the first tap's to this one's
    int multiplied = -1;                      // the stage of the tap before, of which products may be under way

    // Fragments of the next tap: 16 pixels, 4 times 16 channels.
    __device__ __forceinline__ void load(unsigned (&a)[4][4]) {
        if (tap == 0) pixels.wait();
#pragma unroll
        for (int step = 0; step < 4; step++) ldmatrix(a[step], pixels.now() + swizzled(row + under_tap, 2 * step + chunk));
        bool row_ends = ++column == kernel, slab_ends = ++tap == taps;
        under_tap += row_ends ? width - kernel + 1 : 1;
        column = row_ends ? 0 : column;
        if (slab_ends) {
            async_proxy_fence();   // ldmatrix has read before the copy engine writes: the end of its products orders nothing
            pixels.release(pixels.stage);
            pixels.next();
            tap = 0, under_tap = 0;
        }
    }

    // Begin their products. Those of the tap before end, and its filters may be overwritten.
    __device__ __forceinline__ void add(float (&sum)[SUMS], const unsigned (&a)[4][4]) {
        filters.wait();
        Descriptor b = matrix_descriptor(filters.now(), 0, 8 * ROW);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++) wgmma<0>(sum, a[step], moved(b, 32 * step));
        wgmma_commit();
        wgmma_wait<1>();
        if (multiplied >= 0) filters.release(multiplied);
        multiplied = filters.stage;
        filters.next();
    }
};

// A block's pixels, neighbours in y; where results are of windows, whole rows of them. height, width: of y.
struct Neighbours {
    int number, first, count, height, width;   // number: of the block's pixels among all blocks'

    __device__ __forceinline__ int of(int i) const { return Tile::m_of(i) < count ? first + Tile::m_of(i) : -1; }
    __device__ __forceinline__ Cell cell(int number) const {
        int down = height / CELL_SIDE, across = width / CELL_SIDE, row = first / (CELL_SIDE * width), column = number;
        if (CELL_LINES == 1) column += first % width;
        row += column / across;
        return {number * CELL_LINES < count, row / down, row % down, column % across};
    }
    __device__ __forceinline__ int line(int cell, int place) const {
        if (CELL_LINES == 1) return cell;
        int across = width / 2;
        return (cell / across * 2 + place / 2) * width + cell % across * 2 + place % 2;
    }
    __device__ __forceinline__ int first_partial() const { return number * (Tile::M / 64); }
};

// Of a launch. padded_filters: rows of a tap in weight; image_pixels: those of all images, border included; rows: of a block's
// pixels in shared memory, at most; together: pixels of y that a block has, where results are of windows whole rows of them.
struct Sizes {
    int height, width, slabs, filters, padded_filters, kernel, stride, pixels, image_pixels, rows, together;
};

// A block's part of the convolution of x with weight; result: what becomes of its sums.
template <class Result>
__device__ __forceinline__ void convolve(const bfloat16* __restrict__ x, const bfloat16* __restrict__ weight, const Sizes& sizes,
                                         const Result& result) {
    SWIZZLED_SHARED(shared);
    unsigned char* all_pixels = shared + STAGES * FILTER_BYTES;
    Barrier* barriers = reinterpret_cast<Barrier*>(all_pixels + SLABS * sizes.rows * ROW);
    Filters of_filters(shared, FILTER_BYTES, barriers);
    Pixels of_pixels(all_pixels, sizes.rows * ROW, barriers + 2 * STAGES);
    if (threadIdx.x == 0) {
        of_filters.init(MULTIPLIERS);
        of_pixels.init(MULTIPLIERS);
        barriers_visible();
    }
    __syncthreads();
    int tiles_across = sizes.padded_filters / TILE_N, warp = threadIdx.x / 32;   // neighbouring blocks read the same pixels
    int number = blockIdx.x / tiles_across, first_filter = blockIdx.x % tiles_across * TILE_N, taps = sizes.kernel * sizes.kernel;
    int first_pixel = number * sizes.together, last_pixel = min(first_pixel + sizes.together, sizes.pixels) - 1;
    Windows windows(sizes.height, sizes.width, sizes.kernel, sizes.stride);
    int first_row = windows.start(first_pixel) / CHUNKS * CHUNKS;   // of x in shared memory: swizzled as there
    if (warp >= MULTIPLIERS) {
        if (WARPGROUPS == 2) give_registers<40>();
        if (threadIdx.x != 32 * MULTIPLIERS) return;
        int last_row = windows.start(last_pixel) + (sizes.kernel - 1) * (sizes.width + 1);
        copy_all(of_pixels, of_filters, x + static_cast<long long>(first_row) * SLAB, weight + first_filter * SLAB, sizes.slabs,
                 taps, last_row - first_row + 1, sizes.image_pixels, sizes.padded_filters);
        return;
    }
    if (WARPGROUPS == 2) take_registers<232>();
    int named = min(first_pixel + 16 * warp + int(threadIdx.x % 16), last_pixel);
    float sum[SUMS] = {}, by_row[Tile::M_THREAD][Tile::N_THREAD];
    multiply(Multiplier{of_pixels, of_filters, windows.start(named) - first_row, int(threadIdx.x % 32 / 16), sizes.kernel,
                        sizes.width, taps}, sizes.slabs * taps, sum);
#pragma unroll
    for (int j = 0; j < SUMS; j++) by_row[j % 4 / 2][j / 4 * 2 + j % 2] = sum[j];
    // A result may write to all of the stages once the threads that multiply have waited for each other (Tile::sync): every one of
    // them has waited for every copy, has read its fragments and its products have ended (wgmma_wait<0>). No copy follows, and no
    // product reads what is written, so that nothing is to be fenced for the asynchronous proxy.
    result.finish(by_row, Neighbours{number, first_pixel, last_pixel - first_pixel + 1, windows.out_height, windows.out_width},
                  sizes.filters, first_filter);
}
