// A draw from normal distributions by the means and log-variances of its values, its gradient with
// that of the distributions' Kullback-Leibler divergence from the standard normal distribution, and
// that divergence.
//
// Rung: the first on the GPU. Global memory only.
// Layouts: mean, log_variance, y, noise, dy, dmean, dlog_variance float32, any, in memory order
// (`count` elements); counters int64: [step, offset into the permutation, step of this epoch];
// partials float32 (parts); divergences float64, one per step of an epoch. Element e is drawn from
// Philox's e-th 32-bit number for (seed, stream, step): y = mean + noise.
// Launches:
//   sample_forward, sample_backward   one thread per element: block (256), grid (ceil(count / 256))
//   divergence_partials   one thread per partial sum, whose terms lie `parts` apart: block (256),
//                         grid (ceil(parts / 256))
//   divergence_total      one thread adds the partial sums in order: block (1), grid (1)
// Bound: sample_forward Philox's arithmetic as in dropout.cu, and 16 bytes per element;
// sample_backward memory, 24 bytes per element; latency for the other two.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/normal.cuh"
#include "common/ordered_sum.cuh"
#include "common/philox.cuh"

extern "C" __global__ void __launch_bounds__(256)
    sample_forward(const float* __restrict__ mean, const float* __restrict__ log_variance,
                   const long long* __restrict__ counters, float* __restrict__ y,
                   float* __restrict__ noise, int count, unsigned long long seed, int stream) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float drawn = normal_of(philox_word(philox_block(seed, stream, counters[0], i / 8), i % 8));
    noise[i] = expf(0.5f * log_variance[i]) * drawn;
    y[i] = mean[i] + noise[i];
}

// factor: of the divergence, in the units of dy.
extern "C" __global__ void __launch_bounds__(256)
    sample_backward(const float* __restrict__ mean, const float* __restrict__ log_variance,
                    const float* __restrict__ noise, const float* __restrict__ dy,
                    float* __restrict__ dmean, float* __restrict__ dlog_variance, int count,
                    float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    dmean[i] = dy[i] + factor * mean[i];
    dlog_variance[i] = 0.5f * (dy[i] * noise[i] + factor * expm1f(log_variance[i]));
}

extern "C" __global__ void __launch_bounds__(256)
    divergence_partials(const float* __restrict__ mean, const float* __restrict__ log_variance,
                        float* __restrict__ partials, int count, int parts) {
    int part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= parts) return;
    float sum = 0.0f;
    for (int i = part; i < count; i += parts)
        sum += mean[i] * mean[i] + (expm1f(log_variance[i]) - log_variance[i]);
    partials[part] = 0.5f * sum;
}

// divergences[counters[2]] = the sum of the partial sums / images.
extern "C" __global__ void divergence_total(const float* __restrict__ partials,
                                            const long long* __restrict__ counters,
                                            double* __restrict__ divergences, int images,
                                            int parts) {
    divergences[counters[2]] = sum_of_parts<double, 32>(partials, parts, 1) / images;
}
