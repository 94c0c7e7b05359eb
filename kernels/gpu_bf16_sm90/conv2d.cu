// 2-D convolution (cross-correlation) with bias and, optionally, ReLU; with reversed filters and no bias, the gradient of one
// with stride 1 with respect to its input.
//
// Rung: gpu_bf16_sm90, over gpu_bf16. One thread of a block only starts copies and the copy engine makes them, whole tiles in one
// instruction; the other warps only multiply, in warpgroups, which read the filters from shared memory themselves. No thread
// computes where a number goes: the operands lie in memory as they will lie in shared memory (arrange.cu).
//
// Layouts: x bfloat16 (slabs, image pixels, 64), weight bfloat16 (slabs, kernel, kernel, filters up to a multiple of TILE_N,
// 64); a slab is 64 channels; the eight chunks of a row of 64 are swapped by the row's number: chunk i is at i ^ row % 8. Image
// pixels are those of all images (batch, height, width), the border included; bias float32 (filters); y float32 (batch,
// out_height, out_width, filters) with out_height = (height - kernel) / stride + 1. Arrays start at multiples of 16 bytes.
// Every sum is in the order slab, tap row, tap column, channel, 16 products at a time, with any tile.
//
// Compiled with TILE_M x TILE_N, the pixels and filters of a block.
// Launches: block (2 TILE_M + 128: warpgroups of 64 pixels, and one whose first thread copies), grid (ceil(pixels / TILE_M)
//           ceil(filters / TILE_N)), STAGES 128 TILE_N + 256 rows + 96 bytes of dynamic shared memory; rows: image pixels, a
//           multiple of 8, that the windows of a block's pixels span at most, counted from a multiple of 8 on
//
// A slab's pixels are in shared memory once for all taps, those of the next slab are under way meanwhile; of the filters each tap
// is a stage. Barriers tell the copying thread which stages are read, and the others which have come.
//
// Bound: tensor cores and shared memory. Of a tap and slab in tiles of 128 x 128, 512 clocks at the tensor cores' peak, 128 clocks
// are for what the copies write, 256 for the filters, which each warpgroup reads, and 128 for the pixels.
// Predicted, not measured, for 64 images of 16x16x256 -> 128 filters, 3x3 (9.7 GFLOP): at least 10 us at 989 TFLOP/s.
// Measured: not measured.
#include "common/tensor_cores.cuh"
#include "gpu_bf16_sm90/multiply.cuh"
#include "gpu_bf16_sm90/ring.cuh"
#include "gpu_bf16_sm90/rows.cuh"
#include "gpu_bf16_sm90/windows.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#endif
constexpr int WARPGROUPS = TILE_M / 64, MULTIPLIERS = 4 * WARPGROUPS;   // that multiply; their warps
constexpr int STAGES = 4, SLABS = 2;                                    // in shared memory: of filters; of pixels
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
            async_proxy_fence();   // ldmatrix has read before the copy engine writes: nothing else has waited for it yet
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

// A thread has two neighbours of every eight filters, for two pixels eight apart.
__device__ __forceinline__ void write(const float (&sum)[SUMS], const float* __restrict__ bias, float* __restrict__ y,
                                      int first_pixel, int first_filter, int pixels, int filters, bool relu) {
#pragma unroll
    for (int j = 0; j < SUMS; j++) {
        int filter = first_filter + j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2, pixel = first_pixel + j % 4 / 2 * 8;
        if (filter >= filters || pixel >= pixels) continue;
        float value = sum[j] + bias[filter];
        y[static_cast<long long>(pixel) * filters + filter] = relu && value < 0.0f ? 0.0f : value;   // not fmaxf: it hides NaN
    }
}

// rows: of a block's pixels in shared memory, at most; image_pixels: those of all images, border included.
extern "C" __global__ void __launch_bounds__(32 * MULTIPLIERS + 128, 1) conv2d(
    const bfloat16* __restrict__ x, const bfloat16* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
    int height, int width, int slabs, int filters, int padded_filters, int kernel, int stride, int pixels, int image_pixels,
    int rows, int relu) {
    SWIZZLED_SHARED(shared);
    unsigned char* all_pixels = shared + STAGES * FILTER_BYTES;
    Barrier* barriers = reinterpret_cast<Barrier*>(all_pixels + SLABS * rows * ROW);
    Filters of_filters(shared, FILTER_BYTES, barriers);
    Pixels of_pixels(all_pixels, rows * ROW, barriers + 2 * STAGES);
    if (threadIdx.x == 0) {
        of_filters.init(MULTIPLIERS);
        of_pixels.init(MULTIPLIERS);
        barriers_visible();
    }
    __syncthreads();
    int tiles_across = padded_filters / TILE_N, warp = threadIdx.x / 32;   // neighbouring blocks read the same pixels
    int first_pixel = blockIdx.x / tiles_across * TILE_M, first_filter = blockIdx.x % tiles_across * TILE_N;
    Windows windows(height, width, kernel, stride);
    int first_row = windows.start(first_pixel) / CHUNKS * CHUNKS;   // of x in shared memory: swizzled as there
    if (warp >= MULTIPLIERS) {
        if (WARPGROUPS == 2) give_registers<40>();
        if (threadIdx.x != 32 * MULTIPLIERS) return;
        int last_row = windows.start(min(first_pixel + TILE_M, pixels) - 1) + (kernel - 1) * (width + 1);
        copy_all(of_pixels, of_filters, x + static_cast<long long>(first_row) * SLAB, weight + first_filter * SLAB, slabs,
                 kernel * kernel, last_row - first_row + 1, image_pixels, padded_filters);
        return;
    }
    if (WARPGROUPS == 2) take_registers<232>();
    int of_warp = first_pixel + 16 * warp, named = min(of_warp + int(threadIdx.x % 16), pixels - 1);
    float sum[SUMS] = {};
    multiply(Multiplier{of_pixels, of_filters, windows.start(named) - first_row, int(threadIdx.x % 32 / 16), kernel, width,
                        kernel * kernel}, slabs * kernel * kernel, sum);
    write(sum, bias, y, of_warp + threadIdx.x % 32 / 4, first_filter, pixels, filters, relu);
}
