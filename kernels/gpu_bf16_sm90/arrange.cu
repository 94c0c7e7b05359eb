// Rounds operands of convolutions to bfloat16 and arranges them in channel blocks
// (common/packed.cuh), so that the copy engine brings whole tiles; for operands that no convolution
// has written so.
//
// Rung: gpu_bf16_sm90, as packed/round.cu, whose copies keep the order of the arrays.
//
// Layouts: x, gradient float32 (batch, height, width, channels); rounded bfloat16 (ceil(channels /
// 64), batch, height + 2 padding, width + 2 padding, 64), blocks of 64 channels, zero outside the
// image and in further channels. steps bfloat16 (ceil(channels / 64), pixels up to a multiple of
// 64, 64): the gradient without a border; with the macro STEPS_BY_PHASE=1 (ceil(channels / 64), 4,
// pixels of a phase up to a multiple of 64, 64), as weight_grad.cu wants it. bias_partials (splits,
// channels): sums of the gradient, not rounded, over the pixels of a split of the padded image:
// each thread adds its own in order, then the threads' sums are added. Channels of x are a multiple
// of 8; arrays start at multiples of 16 bytes.
// Launches:
//   arrange_image      block (256), grid (ceil(chunks of rounded / 256))
//   arrange_gradient   block (256), grid (splits, ceil(channels / 64))
//
// Bound: memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/packed.cuh"

#ifndef STEPS_BY_PHASE
#define STEPS_BY_PHASE 0
#endif

constexpr int PHASES_APART = STEPS_BY_PHASE ? 4 : 1;  // number of images in `steps`

// Store a chunk at `place`, 0 to 7, of a row. There are the numbers of chunk place ^ row % 8; of
// pairs `place` is the number.
template <int exponent>
__device__ __forceinline__ void store_rounded(Placed* rounded, int row, int place,
                                              const float (&x)[CHUNK]) {
    if constexpr (PAIRS_IN_BLOCKS) {
        int in_row = (place / 2 ^ row % CHUNKS) * 8 + place % 2 * 4;
        store_chunk_in_channel_blocks(rounded + static_cast<long long>(row) * BLOCK_PLACES + in_row,
                                      to_low(in_row), chunk_of_channel_blocks<exponent>(x));
    } else {
        *reinterpret_cast<uint4*>(rounded + static_cast<long long>(row) * BLOCK_PLACES +
                                  place * CHUNK) = rounded_chunk(x);
    }
}

// Neighbouring threads store neighbouring chunks.
__device__ __forceinline__ int chunk_at(int row, int place) {
    return PAIRS_IN_BLOCKS ? place : place ^ row % CHUNKS;
}

// The same in `steps`; rows: of its channel block. Of pairs the next block has the low halves, and
// a channel block of `rounded` is half of one here.
__device__ __forceinline__ void store_step(Placed* steps, int rows, int row, int place,
                                           const float (&x)[CHUNK]) {
    if constexpr (PAIRS_IN_BLOCKS)
        store_chunk_in_channel_blocks(
            steps + place_in_steps(rows, row, blockIdx.y % 2 * CHANNEL_BLOCK + place * CHUNK),
            rows * BLOCK_PLACES, chunk_of_channel_blocks<GRADIENT_EXPONENT>(x));
    else
        store_rounded<GRADIENT_EXPONENT>(steps, row, place, x);
}

// Channels of a copy, zeros included; of other formats at least so many.
__device__ __forceinline__ int stored(int channels) {
    return PAIRS_IN_BLOCKS ? (channels + STORED_CHANNELS - 1) / STORED_CHANNELS * STORED_CHANNELS
                           : channels;
}

// A padded image's pixel: the pixel of x there, or -1 in the border.
__device__ __forceinline__ int pixel_of_x(int padded_pixel, int height, int width, int padding) {
    int padded_width = width + 2 * padding, padded_height = height + 2 * padding;
    int row = padded_pixel / padded_width, i = row % padded_height - padding,
        j = padded_pixel % padded_width - padding;
    bool inside = i >= 0 && i < height && j >= 0 && j < width;
    return inside ? (row / padded_height * height + i) * width + j : -1;
}

// The row of `steps` for a pixel of x; step_pixels: of a phase there.
__device__ __forceinline__ int step_of(int pixel, int width, int step_pixels) {
    int row = pixel / width, column = pixel % width;
    return STEPS_BY_PHASE
               ? (row % 2 * 2 + column % 2) * step_pixels + row / 2 * (width / 2) + column / 2
               : pixel;
}

// pixels: of the padded image.
extern "C" __global__ void __launch_bounds__(256)
    arrange_image(const float* __restrict__ x, Placed* __restrict__ rounded, int pixels, int height,
                  int width, int channels, int padding) {
    int number = blockIdx.x * blockDim.x + threadIdx.x, row = number / CHUNKS,
        place = number % CHUNKS;
    int channel_block = row / pixels, pixel = row % pixels;
    if (channel_block * CHANNEL_BLOCK >= stored(channels)) return;
    int channel = channel_block * CHANNEL_BLOCK + chunk_at(pixel, place) * CHUNK;
    int from = pixel_of_x(pixel, height, width, padding);
    float chunk[CHUNK] = {};
    if (from >= 0) load_chunk(chunk, x + from * channels + channel, channel, channels);
    store_rounded<ACTIVATION_EXPONENT>(rounded + static_cast<long long>(channel_block) * pixels *
                                                     BLOCK_PLACES,
                                       pixel, place, chunk);
}

// A thread has one chunk of channels, so that it can sum them. pixels, pixels_per_split: of the
// padded image; without padding `rounded` is written of pairs alone. step_pixels: of steps, or of a
// phase there.
extern "C" __global__ void __launch_bounds__(256)
    arrange_gradient(const float* __restrict__ gradient, Placed* __restrict__ rounded,
                     Placed* __restrict__ steps, float* __restrict__ bias_partials, int pixels,
                     int height, int width, int channels, int padding, int pixels_per_split,
                     int step_pixels) {
    constexpr int ROWS = 256 / CHUNKS;
    __shared__ __align__(16) float thread_sums[ROWS][CHANNEL_BLOCK];  // (ROWS, CHANNEL_BLOCK)
    int channel_block = blockIdx.y, chunk_number = threadIdx.x % CHUNKS;
    int channel = channel_block * CHANNEL_BLOCK + chunk_number * CHUNK;
    int last_pixel = min(int(blockIdx.x + 1) * pixels_per_split, pixels);
    rounded += static_cast<long long>(channel_block) * pixels * BLOCK_PLACES;
    steps += static_cast<long long>(PAIRS_IN_BLOCKS ? channel_block / 2 * 2 : channel_block) *
             PHASES_APART * step_pixels * BLOCK_PLACES;
    float total[CHUNK / 4][4] = {};
    for (int pixel = blockIdx.x * pixels_per_split + threadIdx.x / CHUNKS; pixel < last_pixel;
         pixel += ROWS) {
        int from = pixel_of_x(pixel, height, width, padding);
        float chunk[CHUNK] = {};
        if (from >= 0) load_chunk(chunk, gradient + from * channels + channel, channel, channels);
        if (padding || PAIRS_IN_BLOCKS)
            store_rounded<GRADIENT_EXPONENT>(rounded, pixel, chunk_at(pixel, chunk_number), chunk);
        int step = step_of(from, width, step_pixels);
        if (from >= 0)
            store_step(steps, PHASES_APART * step_pixels, step, chunk_at(step, chunk_number),
                       chunk);
#pragma unroll
        for (int e = 0; e < CHUNK; e++) total[e / 4][e % 4] += chunk[e];
    }
    int image_rows =
        pixels / ((height + 2 * padding) * (width + 2 * padding)) * height * width / PHASES_APART;
    if (blockIdx.x == 0)  // zeros in the rest of the last step, or of each phase's last step
        for (int number = threadIdx.x / CHUNKS; number < (step_pixels - image_rows) * PHASES_APART;
             number += ROWS) {
            float zeros[CHUNK] = {};
            int phase = number % PHASES_APART;
            store_step(steps, PHASES_APART * step_pixels,
                       phase * step_pixels + image_rows + number / PHASES_APART, chunk_number,
                       zeros);
        }
#pragma unroll
    for (int four = 0; four < CHUNK / 4; four++)
        store(&thread_sums[threadIdx.x / CHUNKS][chunk_number * CHUNK + 4 * four], total[four]);
    __syncthreads();
    channel = channel_block * CHANNEL_BLOCK + threadIdx.x;
    if (threadIdx.x >= CHANNEL_BLOCK || channel >= channels) return;
    float sum = 0.0f;
    for (int i = 0; i < ROWS; i++) sum += thread_sums[i][threadIdx.x];
    bias_partials[blockIdx.x * channels + channel] = sum;
}
