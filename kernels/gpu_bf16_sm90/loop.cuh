// The loop of a convolution of channel blocks by wgmma; the files that include this one, conv2d.cu
// and others, make different results of the sums.
//
// The pixels of a channel block are in shared memory once for all taps, while those of the next are
// on their way; of the filters each tap is a stage.
//
// Macros:
//   TILE_M, TILE_N   pixels and filters of a block
//   WINDOWS          1: results are of windows of 2 x 2 pixels, which a block has whole; 0, the
//                    default: of pixels
//   PHASES           1: y is an upsampled image of four phases, each with filters of its own, which
//                    follow one another in a tap; a block has pixels of one; 0, the default: there
//                    are no phases (gpu_tf32/conv2d.cu)
#pragma once
#include "common/warp_tile.cuh"
#include "gpu_bf16_sm90/hopper.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#endif
#ifndef WINDOWS
#define WINDOWS 0
#endif

constexpr int CELL_SIDE = WINDOWS ? 2 : 1, CELL_LINES = CELL_SIDE * CELL_SIDE;

struct Cell {
    bool there;
    int image, row, column;  // of the image of cells
};

// The sums as wgmma leaves them in the registers of warpgroups.
struct Tile : WarpTile<TILE_M, TILE_N, 16, TILE_N> {
    // who copies does not wait
    static __device__ __forceinline__ void sync() { sync_first<THREADS>(); }
};

constexpr int WARPGROUPS = TILE_M / 64, MULTIPLIERS = 4 * WARPGROUPS;  // that multiply; their warps
constexpr int STAGES = 4, PIXEL_STAGES = 2;  // in shared memory: of filters; of pixels
constexpr int FILTER_BYTES = TILE_N * ROW;
constexpr int SUMS = TILE_N / 2;  // of a thread, for its two rows

using Filters = Ring<STAGES, 1>;
using Pixels = Ring<PIXEL_STAGES, 32>;

// The copies of a block, by one thread. x, weight: the first rows of the block; block_rows: from a
// channel block to the next in x; tap_rows: from a tap to the next in weight.
__device__ __forceinline__ void copy_all(Pixels pixels, Filters filters, const Packed* x,
                                         const Packed* weight, int channel_blocks, int taps,
                                         int rows, int block_rows, int tap_rows) {
    for (int block = 0; block < channel_blocks;
         block++, x += static_cast<long long>(block_rows) * CHANNEL_BLOCK) {
        pixels.begin(rows * ROW);
        pixels.copy(0, x, rows * ROW);
        pixels.next();
        for (int tap = 0; tap < taps; tap++, weight += tap_rows * CHANNEL_BLOCK) {
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
    // of the pixel that this lane names, lane % 16, under the first tap; 0 or 1: its half of 16
    // channels
    int row, chunk;
    int kernel, width, taps;
    int tap = 0, column = 0, under_tap = 0;  // under_tap: rows from the first tap's to this one's
    int multiplied = -1;  // the stage of the tap before, of which products may be under way

    // Fragments of the next tap: 16 pixels, 4 times 16 channels.
    __device__ __forceinline__ void load(unsigned (&a)[4][4]) {
        if (tap == 0) pixels.wait();
#pragma unroll
        for (int step = 0; step < 4; step++)
            ldmatrix(a[step], pixels.now() + swizzled(row + under_tap, 2 * step + chunk));
        bool row_ends = ++column == kernel, channel_block_ends = ++tap == taps;
        under_tap += row_ends ? width - kernel + 1 : 1;
        column = row_ends ? 0 : column;
        if (channel_block_ends) {
            // ldmatrix has read before the copy engine writes: the end of its products orders
            // nothing
            async_proxy_fence();
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

// A block's pixels, neighbours in y or in its phase; where results are of windows, whole rows of
// them. height, width: of y.
struct Neighbours {
    // number: of the block's pixels among all blocks'
    int number, first, count, height, width, phase;

    __device__ __forceinline__ int of(int i) const {
        int pixel = first + Tile::m_of(i), across = width / SPREAD;
        if (Tile::m_of(i) >= count) return -1;
        return SPREAD == 1
                   ? pixel
                   : (pixel / across * 2 + phase / 2) * width + pixel % across * 2 + phase % 2;
    }
    __device__ __forceinline__ Cell cell(int number) const {
        int down = height / SPREAD / CELL_SIDE, across = width / SPREAD / CELL_SIDE,
            of_all = first / CELL_LINES + number;
        int row = of_all / across;
        return {number * CELL_LINES < count, row / down, row % down * SPREAD + phase / 2,
                of_all % across * SPREAD + phase % 2};
    }
    __device__ __forceinline__ int line(int cell, int place) const {
        if (CELL_LINES == 1) return cell;
        int across = width / 2;
        return (cell / across * 2 + place / 2) * width + cell % across * 2 + place % 2;
    }
    __device__ __forceinline__ int first_partial() const { return number * (Tile::M / 64); }
};

// Of a launch. padded_filters: rows of a tap in weight, of each phase; image_pixels: those of all
// images, border included; rows: of a block's pixels in shared memory, at most; together: pixels of
// y that a block has, where results are of windows whole rows of them.
struct Sizes {
    int height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
        image_pixels, rows, together;
};

// A block's part of the convolution of x with weight; result: what becomes of its sums.
template <class Result>
__device__ __forceinline__ void convolve(const Packed* __restrict__ x,
                                         const Packed* __restrict__ weight, const Sizes& sizes,
                                         const Result& result) {
    SWIZZLED_SHARED(shared);
    unsigned char* all_pixels = shared + STAGES * FILTER_BYTES;
    Barrier* barriers = reinterpret_cast<Barrier*>(all_pixels + PIXEL_STAGES * sizes.rows * ROW);
    Filters of_filters(shared, FILTER_BYTES, barriers);
    Pixels of_pixels(all_pixels, sizes.rows * ROW, barriers + 2 * STAGES);
    if (threadIdx.x == 0) {
        of_filters.init(MULTIPLIERS);
        of_pixels.init(MULTIPLIERS);
        barriers_visible();
    }
    __syncthreads();
    // neighbouring blocks read the same pixels
    int tiles_across = sizes.padded_filters / TILE_N, warp = threadIdx.x / 32;
    int number = blockIdx.x / (tiles_across * FORMS), column = blockIdx.x % (tiles_across * FORMS);
    int phase = PHASES ? column / tiles_across : 0,
        first_filter = (column - phase * tiles_across) * TILE_N;
    int first_pixel = number * sizes.together,
        last_pixel = min(first_pixel + sizes.together, sizes.pixels / FORMS) - 1;
    Windows windows(sizes.height, sizes.width, sizes.kernel, sizes.stride);
    int to_phase = windows.to_phase(phase), taps = sizes.kernel * sizes.kernel;
    // of x in shared memory: swizzled as there
    int first_row = (windows.start(first_pixel) + to_phase) / CHUNKS * CHUNKS;
    if (warp >= MULTIPLIERS) {
        if (WARPGROUPS == 2) give_registers<40>();
        if (threadIdx.x != 32 * MULTIPLIERS) return;
        int last_row =
            windows.start(last_pixel) + to_phase + (sizes.kernel - 1) * (sizes.width + 1);
        copy_all(of_pixels, of_filters, x + static_cast<long long>(first_row) * CHANNEL_BLOCK,
                 weight + (phase * sizes.padded_filters + first_filter) * CHANNEL_BLOCK,
                 sizes.channel_blocks, taps, last_row - first_row + 1, sizes.image_pixels,
                 sizes.padded_filters * FORMS);
        return;
    }
    if (WARPGROUPS == 2) take_registers<232>();
    int named = min(first_pixel + 16 * warp + int(threadIdx.x % 16), last_pixel);
    float sum[SUMS] = {}, by_row[Tile::M_THREAD][Tile::N_THREAD];
    multiply(Multiplier{of_pixels, of_filters, windows.start(named) + to_phase - first_row,
                        int(threadIdx.x % 32 / 16), sizes.kernel, sizes.width, taps},
             sizes.channel_blocks * taps, sum);
#pragma unroll
    for (int j = 0; j < SUMS; j++) by_row[j % 4 / 2][j / 4 * 2 + j % 2] = sum[j];
    // A result may write to all of the stages once the threads that multiply have waited for each
    // other (Tile::sync): every one of them has waited for every copy, has read its fragments and
    // its products have ended (wgmma_wait<0>). No copy follows, and no product reads what is
    // written, so that nothing is to be fenced for the asynchronous proxy.
    result.finish(by_row,
                  Neighbours{number, first_pixel, last_pixel - first_pixel + 1,
                             windows.out_height * SPREAD, windows.out_width * SPREAD, phase},
                  sizes.filters, first_filter);
}
