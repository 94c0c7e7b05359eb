// Softmax cross-entropy of scores against labels: its gradient, its value, and the number of hits.
//
// Rung: over gpu_basic: a warp per row, whose lanes read neighbouring scores and find maximum and
// sum in five steps each, instead of a thread; and the rows are added by a tree (block_sum.cuh)
// instead of by one thread.
// Layouts: prediction, gradient float32 (batch, classes); labels uint8 (rows), of the whole data
// set; row n of the batch has the label at permutation[counters[1] + n]; permutation int64 (rows);
// counters int64: [step, offset into the permutation, step of this epoch]; of_rows float32 (2,
// batch): each row's loss, then 1 where its largest score (the first if tied) is its label's;
// losses, hits float64, one per step of an epoch.
// Launches: block (256)
//   cross_entropy_rows    a warp per row: grid (ceil(batch / 8))
//   cross_entropy_totals  grid (1)
// Bound: latency; there is hardly any work.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/block_sum.cuh"
#include "common/ordered_sum.cuh"

// gradient = (softmax - 1 at the label) / batch. The largest score is subtracted first, so that no
// exponential overflows. A row with a NaN has a NaN sum and no hit.
extern "C" __global__ void __launch_bounds__(256)
    cross_entropy_rows(const float* __restrict__ prediction,
                       const unsigned char* __restrict__ labels,
                       const long long* __restrict__ permutation,
                       const long long* __restrict__ counters, float* __restrict__ gradient,
                       float* __restrict__ of_rows, int batch, int classes) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= batch) return;  // the whole warp
    const float* scores = prediction + row * classes;
    int label = labels[permutation[counters[1] + row]], best = min(lane, classes - 1);
    float largest = scores[best], sum = 0.0f;
    for (int i = lane + 32; i < classes; i += 32)
        if (scores[i] > largest) largest = scores[i], best = i;
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, largest, half);
        int place = __shfl_xor_sync(0xffffffffu, best, half);
        if (other > largest || (other == largest && place < best)) largest = other, best = place;
    }
    for (int i = lane; i < classes; i += 32) sum += expf(scores[i] - largest);
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    for (int i = lane; i < classes; i += 32)
        gradient[row * classes + i] =
            (expf(scores[i] - largest) / sum - (i == label ? 1.0f : 0.0f)) / batch;
    if (lane == 0) {
        of_rows[row] = logf(sum) - (scores[label] - largest);
        of_rows[batch + row] = best == label && sum == sum ? 1.0f : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    cross_entropy_totals(const float* __restrict__ of_rows, const long long* __restrict__ counters,
                         double* __restrict__ losses, double* __restrict__ hits, int batch) {
    int of_thread = (batch - static_cast<int>(threadIdx.x) + 255) / 256;
    double loss = block_sum(sum_of_parts<double>(of_rows + threadIdx.x, of_thread, 256));
    double hit = block_sum(sum_of_parts<double>(of_rows + batch + threadIdx.x, of_thread, 256));
    if (threadIdx.x > 0) return;
    losses[counters[2]] = loss / batch;
    hits[counters[2]] = hit;
}
