// Mean squared error: its gradient, and its value in two kernels, because no atomics are used.
//
// Rung: the first on the GPU. Global memory only.
// Layouts: prediction, target, gradient float32, any, in memory order (`count` elements); partials
// float32 (parts); losses float64, one per step of an epoch; counters int64: [step, offset into the
// permutation, step of this epoch].
// Launches:
//   mse_gradient   one thread per element: block (256), grid (ceil(count / 256))
//   mse_partials   one thread per partial sum, whose terms lie `parts` apart: block (256), grid
//                  (ceil(parts / 256))
//   mse_total      one thread adds the partial sums in order: block (1), grid (1)
// 1024 parts suit any batch of images; the result's bytes depend on the number.
// Bound: memory for mse_gradient (12 bytes per element), latency for the other two, whose loops are
// as they are written.
// Times: kernels/README.md has those of whole steps, predicted and measured.

// gradient = scale (prediction - target); scale is 2 / divisor.
extern "C" __global__ void __launch_bounds__(256)
    mse_gradient(const float* __restrict__ prediction, const float* __restrict__ target,
                 float* __restrict__ gradient, int count, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) gradient[i] = scale * (prediction[i] - target[i]);
}

extern "C" __global__ void __launch_bounds__(256)
    mse_partials(const float* __restrict__ prediction, const float* __restrict__ target,
                 float* __restrict__ partials, int count, int parts) {
    int part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= parts) return;
    float sum = 0.0f;
    for (int i = part; i < count; i += parts) {
        float difference = prediction[i] - target[i];
        sum += difference * difference;
    }
    partials[part] = sum;
}

// losses[counters[2]] = the sum of the partial sums / count.
extern "C" __global__ void mse_total(const float* __restrict__ partials,
                                     const long long* __restrict__ counters,
                                     double* __restrict__ losses, int count, int parts) {
    double sum = 0.0;
    for (int part = 0; part < parts; part++) sum += partials[part];
    losses[counters[2]] = sum / count;
}
