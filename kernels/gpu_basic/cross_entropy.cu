// Softmax cross-entropy of scores against labels: its gradient, its value, and the number of hits.
//
// Rung: the first on the GPU. Global memory only, no atomics.
// Layouts: prediction, gradient float32 (batch, classes); labels uint8 (rows), of the whole data
// set; row n of the batch has the label at permutation[counters[1] + n]; permutation int64 (rows);
// counters int64: [step, offset into the permutation, step of this epoch]; of_rows float32 (2,
// batch): each row's loss, then 1 where its largest score (the first if tied) is its label's;
// losses, hits float64, one per step of an epoch.
// Launches:
//   cross_entropy_rows    one thread per row, which writes the row's gradient: block (32), grid
//                         (ceil(batch / 32))
//   cross_entropy_totals  one thread adds the rows in order: block (1), grid (1)
// Bound: the latency of sequential loads; there is hardly any work.
// Times: kernels/README.md has those of whole steps, predicted and measured.

// gradient = (softmax - 1 at the label) / batch. The largest score is subtracted first, so that no
// exponential overflows. A row with a NaN has a NaN sum and no hit.
extern "C" __global__ void __launch_bounds__(32)
    cross_entropy_rows(const float* __restrict__ prediction,
                       const unsigned char* __restrict__ labels,
                       const long long* __restrict__ permutation,
                       const long long* __restrict__ counters, float* __restrict__ gradient,
                       float* __restrict__ of_rows, int batch, int classes) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch) return;
    const float* scores = prediction + row * classes;
    int label = labels[permutation[counters[1] + row]], best = 0;
    for (int i = 1; i < classes; i++)
        if (scores[i] > scores[best]) best = i;
    float largest = scores[best], sum = 0.0f;
    for (int i = 0; i < classes; i++) sum += expf(scores[i] - largest);
    for (int i = 0; i < classes; i++)
        gradient[row * classes + i] =
            (expf(scores[i] - largest) / sum - (i == label ? 1.0f : 0.0f)) / batch;
    of_rows[row] = logf(sum) - (scores[label] - largest);
    of_rows[batch + row] = best == label && sum == sum ? 1.0f : 0.0f;
}

extern "C" __global__ void cross_entropy_totals(const float* __restrict__ of_rows,
                                                const long long* __restrict__ counters,
                                                double* __restrict__ losses,
                                                double* __restrict__ hits, int batch) {
    double loss = 0.0, hit = 0.0;
    for (int row = 0; row < batch; row++) {
        loss += of_rows[row];
        hit += of_rows[batch + row];
    }
    losses[counters[2]] = loss / batch;
    hits[counters[2]] = hit;
}
