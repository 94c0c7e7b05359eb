// Mean squared error and its gradient, rounded to a packed copy, in one pass; mse_total of
// gpu_opt_v1/mse.cu adds the blocks' sums.
//
// Rung: gpu_tf32, over gpu_3xtf32. The gradient of the last convolution's output is stored as the
// next launch reads it (round.cu), not in float32 first.
//
// Layouts: prediction, target float32 (batch, height, width, channels); rounded, bias_partials as
// in round.cu, where a split has 256 pixels of the padded image: each warp adds its pixels by a
// tree, then the sums of the eight warps are added in order; partials float64, one per split: its
// sum of squared differences.
// Launches: block (256), grid (splits), a thread a pixel of the padded image.
//
// Bound: memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/block_sum.cuh"
#include "common/packed.cuh"

constexpr int WARPS = 8;

// gradient = factor (scale (prediction - target)); scale is 2 / divisor, factor the loss scale.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    mse_rounded(const float* __restrict__ prediction, const float* __restrict__ target,
                Packed* __restrict__ rounded, float* __restrict__ bias_partials,
                double* __restrict__ partials, int pixels, int height, int width, int channels,
                int padding, float scale, float factor) {
    __shared__ float warp_sums[WARPS][CHUNK];
    int number = blockIdx.x * blockDim.x + threadIdx.x, padded_width = width + 2 * padding,
        padded_height = height + 2 * padding;
    int row = number / padded_width, image = row / padded_height, i = row % padded_height - padding;
    int j = number % padded_width - padding, first = ((image * height + i) * width + j) * channels;
    bool inside = number < pixels && i >= 0 && i < height && j >= 0 && j < width;
    float squares = 0.0f;
    for (int channel = 0, whole = (channels + CHUNK - 1) / CHUNK * CHUNK; channel < channels;
         channel += CHUNK) {
        float gradient[CHUNK];
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
            bool here = inside && channel + e < channels;
            float difference =
                here ? prediction[first + channel + e] - target[first + channel + e] : 0.0f;
            gradient[e] = __fmul_rn(factor, __fmul_rn(scale, difference));
            squares += difference * difference;
        }
        if (number < pixels)
            *reinterpret_cast<uint4*>(rounded + number * whole + channel) = rounded_chunk(gradient);
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
            if (channel + e >= channels) continue;
#pragma unroll
            for (int half = 16; half > 0; half /= 2)
                gradient[e] += __shfl_down_sync(0xffffffffu, gradient[e], half);
            if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32][e] = gradient[e];
        }
        __syncthreads();
        if (threadIdx.x < CHUNK && channel + threadIdx.x < channels) {
            float sum = 0.0f;
            for (int warp = 0; warp < WARPS; warp++) sum += warp_sums[warp][threadIdx.x];
            bias_partials[blockIdx.x * channels + channel + threadIdx.x] = sum;
        }
        __syncthreads();
    }
    double total = block_sum(squares);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}
