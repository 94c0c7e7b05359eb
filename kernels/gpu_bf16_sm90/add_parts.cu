// The sums of the parts of a weight gradient, and of the totals of the gradient: the gradient of the bias.
//
// Rung: gpu_bf16_sm90, over gpu_bf16, whose copies may have more channels than the weight.
//
// Layouts: partials float32 (splits, weights), totals float32 (bias_splits, filters). Splits are added in order; totals by the
// lanes of a warp, every 32nd each, then the upper half of the lanes to the lower.
// Launches: block (128), grid (ceil(weights / 512) + ceil(filters / 4)): four weights a thread, then a warp for each filter
//
// Bound: memory.
// Predicted, not measured, for 11 splits of 1.2 MB at 4.3 TB/s: 3 us.
// Measured: not measured.
#include "common/vector.cuh"

extern "C" __global__ void __launch_bounds__(128) conv2d_add_parts(const float* __restrict__ partials,
                                                                   const float* __restrict__ totals,
                                                                   float* __restrict__ dweight, float* __restrict__ dbias,
                                                                   int weights, int filters, int splits, int bias_splits) {
    int of_weights = (weights + 511) / 512, first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (blockIdx.x >= of_weights) {
        int filter = (blockIdx.x - of_weights) * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
        if (filter >= filters) return;
        float sum = 0.0f;
        for (int row = lane; row < bias_splits; row += 32) sum += totals[row * filters + filter];
#pragma unroll
        for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
        if (lane == 0) dbias[filter] = sum;
        return;
    }
    if (first >= weights) return;
    float sum[4] = {};
#pragma unroll 8
    for (int split = 0; split < splits; split++) {
        float part[4];
        load(part, partials + split * weights + first);
#pragma unroll
        for (int e = 0; e < 4; e++) sum[e] += part[e];
    }
    store(dweight + first, sum);
}
