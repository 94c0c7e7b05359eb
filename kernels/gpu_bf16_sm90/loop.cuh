// The loop of a convolution of channel blocks by wgmma. The files that include this one, conv2d.cu
// and others, differ in the epilogue, which stores the accumulators.
//
// The pixels of a channel block are in shared memory once for all taps, while those of the next
// block are on their way. The filters of each tap are a stage of their own.
//
// Macros:
//   TILE_M, TILE_N   pixels and filters of a block
//   WINDOWS          1: the epilogue pools windows of 2 x 2 pixels, which a block has whole. 0, the
//                    default: it does not.
//   PHASES           1: y is an upsampled image of four phases. Each has filters of its own; those
//                    of a tap follow one another. A block has pixels of one phase. 0, the default:
//                    there are no phases (packed/conv2d.cu).
//   OF_GRADIENT      1: of halves, x is a gradient; 0, the default: it is not
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
#ifndef OF_GRADIENT
#define OF_GRADIENT 0
#endif

// Of halves: what the accumulators are multiplied by.
constexpr float UNSCALE =
    power_of_two(-WEIGHT_EXPONENT - (OF_GRADIENT ? GRADIENT_EXPONENT : ACTIVATION_EXPONENT));

// Pixels of y, in a row and in all, of which an epilogue makes one.
constexpr int POOL_SIDE = WINDOWS ? 2 : 1, POOL_SIZE = POOL_SIDE * POOL_SIDE;

// A pixel that an epilogue stores; inside: not behind the end of the images.
struct OutputPixel {
    bool inside;
    int image, row, column;
};

// The accumulators as wgmma leaves them in registers: (M_THREAD, N_THREAD) = (2, TILE_N / 4).
struct Tile : WarpTile<TILE_M, TILE_N, 16, TILE_N> {
    // The producer does not wait.
    static __device__ __forceinline__ void sync() { sync_first<THREADS>(); }
};

constexpr int WARPGROUPS = TILE_M / 64, CONSUMER_WARPS = 4 * WARPGROUPS;  // that multiply
constexpr int STAGES = 4, PIXEL_STAGES = 2;  // of filters, and of pixels
constexpr int FILTER_BYTES = TILE_N * ROW;   // of a stage
constexpr int SUMS = TILE_N / 2;             // accumulators of a thread, for its two rows

using Filters = Ring<STAGES, 1>;        // (STAGES, TILE_N, CHANNEL_BLOCK)
using Pixels = Ring<PIXEL_STAGES, 32>;  // (PIXEL_STAGES, rows, CHANNEL_BLOCK)

// The producer: all copies of a block. x, weight: the block's first rows; block_rows: from a
// channel block to the next in x; tap_rows: from a tap to the next in weight.
__device__ __forceinline__ void produce(Pixels pixels, Filters filters, const Placed* x,
                                        const Placed* weight, int channel_blocks, int taps,
                                        int rows, int block_rows, int tap_rows) {
    for (int block = 0; block < channel_blocks;
         block++, x += static_cast<long long>(block_rows) * BLOCK_PLACES) {
        pixels.acquire(rows * ROW);
        pixels.copy(0, x, rows * ROW);
        pixels.next();
        for (int tap = 0; tap < taps; tap++, weight += tap_rows * BLOCK_PLACES) {
            filters.acquire(FILTER_BYTES);
            filters.copy(0, weight, FILTER_BYTES);
            filters.next();
        }
    }
}

// A warp's products of 16 pixels with all filters of the block.
struct Consumer {
    Pixels pixels;
    Filters filters;
    // Where this lane's address for ldmatrix is: the row, under the first tap, of pixel lane % 16,
    // and which half, 0 or 1, of 16 channels.
    int row, chunk;
    int kernel, width, taps;
    int tap = 0, column = 0, under_tap = 0;  // under_tap: rows from the first tap to this one
    int previous = -1;  // the stage of the tap before, whose products may be under way

    // The fragments of the next tap.
    __device__ __forceinline__ void load(unsigned (&a)[4][4]) {  // (16 channels each, registers)
        if (tap == 0) pixels.wait();
#pragma unroll
        for (int step = 0; step < 4; step++)
            ldmatrix(a[step], pixels.current() + swizzled(row + under_tap, 2 * step + chunk));
        bool row_ends = ++column == kernel, channel_block_ends = ++tap == taps;
        under_tap += row_ends ? width - kernel + 1 : 1;
        column = row_ends ? 0 : column;
        if (channel_block_ends) {
            // So that ldmatrix has read before the copy engine writes: that its products have
            // ended does not order this.
            async_proxy_fence();
            pixels.release(pixels.stage);
            pixels.next();
            tap = 0, under_tap = 0;
        }
    }

    // Begins the products of a tap, and waits for those of the tap before, whose stage is empty
    // then.
    __device__ __forceinline__ void add(float (&sum)[SUMS], const unsigned (&a)[4][4]) {
        filters.wait();
        Descriptor b = matrix_descriptor(filters.current(), 0, 8 * ROW);
        wgmma_fence();
        if constexpr (HALVES) {  // of a[] and b the high halves are 0 and 1, the low ones 2 and 3
#pragma unroll
            for (int step = 0; step < 2; step++) {
                wgmma<0>(sum, a[step + 2], moved(b, 32 * step));
                wgmma<0>(sum, a[step], moved(b, 32 * (step + 2)));
                wgmma<0>(sum, a[step], moved(b, 32 * step));
            }
        } else {
#pragma unroll
            for (int step = 0; step < 4; step++) wgmma<0>(sum, a[step], moved(b, 32 * step));
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0) filters.release(previous);
        previous = filters.stage;
        filters.next();
    }
};

// The pixels of a block: neighbours in y or in a phase of it. With WINDOWS they are whole rows of
// windows. height, width: of y.
struct PixelTile {
    int number, first, count, height, width, phase;  // number: of this tile among all

    // The pixel in y of row i of this thread's accumulators; -1: none.
    __device__ __forceinline__ int pixel(int i) const {
        int pixel = first + Tile::m_of(i), across = width / PHASE_STRIDE;
        if (Tile::m_of(i) >= count) return -1;
        return PHASE_STRIDE == 1
                   ? pixel
                   : (pixel / across * 2 + phase / 2) * width + pixel % across * 2 + phase % 2;
    }
    // The other functions: packed/copies.cuh.
    __device__ __forceinline__ OutputPixel output(int number) const {
        int down = height / PHASE_STRIDE / POOL_SIDE, across = width / PHASE_STRIDE / POOL_SIDE,
            index = first / POOL_SIZE + number;
        int row = index / across;
        return {number * POOL_SIZE < count, row / down, row % down * PHASE_STRIDE + phase / 2,
                index % across * PHASE_STRIDE + phase % 2};
    }
    __device__ __forceinline__ int line(int output, int place) const {
        if (POOL_SIZE == 1) return output;
        int across = width / 2;
        return (output / across * 2 + place / 2) * width + output % across * 2 + place % 2;
    }
    __device__ __forceinline__ int first_partial() const { return number * (Tile::M / 64); }
};

// The sizes of a launch. padded_filters: rows of a tap in weight, of each phase; image_pixels: of
// all images, with their borders; rows: of shared memory that a block's pixels take at most;
// block_pixels: pixels of y that a block computes, with WINDOWS whole rows of windows.
struct Sizes {
    int height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
        image_pixels, rows, block_pixels;
};

// A block's part of the convolution of x with weight.
template <class Epilogue>
__device__ __forceinline__ void convolve(const Placed* __restrict__ x,
                                         const Placed* __restrict__ weight, const Sizes& sizes,
                                         const Epilogue& epilogue) {
    SWIZZLED_SHARED(shared);
    unsigned char* all_pixels = shared + STAGES * FILTER_BYTES;
    Barrier* barriers = reinterpret_cast<Barrier*>(all_pixels + PIXEL_STAGES * sizes.rows * ROW);
    Filters filters(shared, FILTER_BYTES, barriers);
    Pixels pixels(all_pixels, sizes.rows * ROW, barriers + 2 * STAGES);
    if (threadIdx.x == 0) {
        filters.init(CONSUMER_WARPS);
        pixels.init(CONSUMER_WARPS);
        barriers_visible();
    }
    __syncthreads();
    // Neighbouring blocks read the same pixels.
    int tiles_across = sizes.padded_filters / TILE_N, warp = threadIdx.x / 32;
    int number = blockIdx.x / (tiles_across * PHASE_COUNT),
        column = blockIdx.x % (tiles_across * PHASE_COUNT);
    int phase = PHASES ? column / tiles_across : 0,
        first_filter = (column - phase * tiles_across) * TILE_N;
    int first_pixel = number * sizes.block_pixels,
        last_pixel = min(first_pixel + sizes.block_pixels, sizes.pixels / PHASE_COUNT) - 1;
    Windows windows(sizes.height, sizes.width, sizes.kernel, sizes.stride);
    int to_phase = windows.to_phase(phase), taps = sizes.kernel * sizes.kernel;
    // The first row of x to copy. A multiple of 8, so that chunks are swapped as in global memory.
    int first_row = (windows.start(first_pixel) + to_phase) / CHUNKS * CHUNKS;
    if (warp >= CONSUMER_WARPS) {
        if (WARPGROUPS == 2) setmaxnreg_dec<40>();
        if (threadIdx.x != 32 * CONSUMER_WARPS) return;
        int last_row =
            windows.start(last_pixel) + to_phase + (sizes.kernel - 1) * (sizes.width + 1);
        produce(pixels, filters, x + static_cast<long long>(first_row) * BLOCK_PLACES,
                weight + (phase * sizes.padded_filters + first_filter) * BLOCK_PLACES,
                sizes.channel_blocks, taps, last_row - first_row + 1, sizes.image_pixels,
                sizes.padded_filters * PHASE_COUNT);
        return;
    }
    if (WARPGROUPS == 2) setmaxnreg_inc<232>();
    int lane_pixel = min(first_pixel + 16 * warp + int(threadIdx.x % 16), last_pixel);
    float sum[SUMS] = {};                            // accumulators, as wgmma has them
    float by_pixel[Tile::M_THREAD][Tile::N_THREAD];  // (M_THREAD, N_THREAD)
    multiply(Consumer{pixels, filters, windows.start(lane_pixel) + to_phase - first_row,
                      int(threadIdx.x % 32 / 16), sizes.kernel, sizes.width, taps},
             sizes.channel_blocks * taps, sum);
#pragma unroll
    for (int j = 0; j < SUMS; j++)
        by_pixel[j % 4 / 2][j / 4 * 2 + j % 2] = HALVES ? sum[j] * UNSCALE : sum[j];
    // After Tile::sync an epilogue may write to all stages. By then every consumer has waited for
    // every copy, has read its fragments, and its products have ended (wgmma_wait<0>). No copy
    // follows and no product reads what is written, so that no fence for the asynchronous proxy is
    // needed.
    epilogue.finish(by_pixel,
                    PixelTile{number, first_pixel, last_pixel - first_pixel + 1,
                              windows.out_height * PHASE_STRIDE, windows.out_width * PHASE_STRIDE,
                              phase},
                    sizes.filters, first_filter);
}
