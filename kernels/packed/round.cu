// Images and gradients rounded to packed copies, which convolutions and weight gradients read.
//
// Rung: gpu_tf32, over gpu_3xtf32. An operand is rounded once, not each time that a block reads it.
// Images get a border of zeros, so that no convolution asks for a pixel outside them.
//
// Layouts: x, gradient float32 (batch, height, width, channels); rounded Packed (batch, height + 2
// padding, width + 2 padding, channels up to the next multiple of 8), zero outside the image and in
// further channels; bias_partials (splits, channels): sums of the gradient, not rounded, over the
// pixels of a split of the rounded image: each thread adds its own in order, then the threads' sums
// are added. Arrays start at multiples of 16 bytes.
// Launches:
//   round_image      block (256), grid (ceil(numbers of rounded / 2048))
//   round_gradient   block (256), grid (splits, ceil(channels / 64))
//
// Bound: memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/packed.cuh"

__device__ __forceinline__ int whole_chunks(int channels) {
    return (channels + CHUNK - 1) / CHUNK * CHUNK;
}

// Round and store the chunk from `channel` on of a pixel of the padded image: zeros in the border.
// chunk: its numbers before rounding.
__device__ __forceinline__ void round_chunk(float (&chunk)[CHUNK], const float* x, Packed* rounded,
                                            int pixel, int channel, int height, int width,
                                            int channels, int padding) {
    int padded_width = width + 2 * padding, padded_height = height + 2 * padding,
        row = pixel / padded_width;
    int image = row / padded_height, i = row % padded_height - padding,
        j = pixel % padded_width - padding;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) chunk[e] = 0.0f;
    if (i >= 0 && i < height && j >= 0 && j < width)
        load_chunk(chunk, x + ((image * height + i) * width + j) * channels + channel, channel,
                   channels);
    *reinterpret_cast<uint4*>(rounded + pixel * whole_chunks(channels) + channel) =
        rounded_chunk(chunk);
}

extern "C" __global__ void __launch_bounds__(256)
    round_image(const float* __restrict__ x, Packed* __restrict__ rounded, int pixels, int height,
                int width, int channels, int padding) {
    int number = blockIdx.x * blockDim.x + threadIdx.x, chunks = whole_chunks(channels) / CHUNK,
        pixel = number / chunks;
    if (pixel >= pixels) return;
    float chunk[CHUNK];
    round_chunk(chunk, x, rounded, pixel, number % chunks * CHUNK, height, width, channels,
                padding);
}

// pixels, pixels_per_split: of the padded image.
extern "C" __global__ void __launch_bounds__(256)
    round_gradient(const float* __restrict__ gradient, Packed* __restrict__ rounded,
                   float* __restrict__ bias_partials, int pixels, int height, int width,
                   int channels, int padding, int pixels_per_split) {
    constexpr int ACROSS = 8, ROWS = 256 / ACROSS;
    __shared__ __align__(16) float thread_sums[ROWS][ACROSS * CHUNK];  // (ROWS, channels)
    int row = threadIdx.x / ACROSS, first = blockIdx.y * ACROSS * CHUNK,
        channel = first + threadIdx.x % ACROSS * CHUNK;
    int last_pixel = min(int(blockIdx.x + 1) * pixels_per_split, pixels);
    float total[CHUNK / 4][4] = {};
    if (channel < channels)
        for (int pixel = blockIdx.x * pixels_per_split + row; pixel < last_pixel; pixel += ROWS) {
            float chunk[CHUNK];
            round_chunk(chunk, gradient, rounded, pixel, channel, height, width, channels, padding);
#pragma unroll
            for (int e = 0; e < CHUNK; e++) total[e / 4][e % 4] += chunk[e];
        }
#pragma unroll
    for (int four = 0; four < CHUNK / 4; four++)
        store(&thread_sums[row][threadIdx.x % ACROSS * CHUNK + 4 * four], total[four]);
    __syncthreads();
    channel = first + threadIdx.x;
    if (threadIdx.x >= ACROSS * CHUNK || channel >= channels) return;
    float sum = 0.0f;
    for (int i = 0; i < ROWS; i++) sum += thread_sums[i][threadIdx.x];
    bias_partials[blockIdx.x * channels + channel] = sum;
}
