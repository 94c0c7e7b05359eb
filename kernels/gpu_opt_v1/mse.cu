// Mean squared error: its gradient and the sums of its blocks in one pass, then the sum of those.
//
// Rung: over gpu_basic: one pass over prediction and target instead of two, as many blocks as a GPU
// has room for instead of four, and no thread that adds 1024 numbers one after another: all sums
// are trees (block_sum.cuh).
// Layouts: prediction, target, gradient float32, any, in memory order (`count` elements); partials
// float64, one per block of mse; losses float64, one per step of an epoch; counters int64: [step,
// offset into the permutation, step of this epoch].
// Launches: block (256)
//   mse         four elements per thread, 256 apart: grid (ceil(count / 1024))
//   mse_total   grid (1)
// The order of all sums depends on `count` alone, so the bytes do too.
// Bound: memory for mse (12 bytes per element), latency for mse_total: a load for each 2048 blocks
// and eight steps of a tree.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/block_sum.cuh"
#include "common/ordered_sum.cuh"

// gradient = scale (prediction - target); scale is 2 / divisor.
extern "C" __global__ void __launch_bounds__(256)
    mse(const float* __restrict__ prediction, const float* __restrict__ target,
        float* __restrict__ gradient, double* __restrict__ partials, int count, float scale) {
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < 4; part++) {
        int i = (blockIdx.x * 4 + part) * 256 + threadIdx.x;
        if (i >= count) continue;
        float difference = prediction[i] - target[i];
        gradient[i] = scale * difference;
        sum += difference * difference;
    }
    double total = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// losses[counters[2]] = the sum of the blocks' sums / count.
extern "C" __global__ void __launch_bounds__(256)
    mse_total(const double* __restrict__ partials, const long long* __restrict__ counters,
              double* __restrict__ losses, int count, int blocks) {
    int of_thread = (blocks - static_cast<int>(threadIdx.x) + 255) / 256;
    double sum = block_sum(sum_of_parts<double>(partials + threadIdx.x, of_thread, 256));
    if (threadIdx.x == 0) losses[counters[2]] = sum / count;
}
