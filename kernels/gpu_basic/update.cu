// The optimizers' updates of one parameter tensor, and the end of a step.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layouts: parameter, gradient, velocity, square, mean float32, any, in memory order (`count`
// elements); learning_rates float64, one per step of the run; counters int64: [step, offset into
// the permutation, step of this epoch]. clip: largest absolute value of an element of the gradient,
// 0 for no limit; weight_decay is added after clipping.
// Launches: block (256), grid (ceil(count / 256)); advance: block (1), grid (1). Weight decay,
// velocity and the weight itself are rounded after every operation (no fused multiply-add), the
// last product and the subtraction in float64: sgd and momentum have the same bits with every
// compiler.
// Bound: memory. sgd moves 12 bytes per parameter, momentum and rmsprop 20, adam 28; the float64
// arithmetic is hidden by it.
// Times: kernels/README.md has those of whole steps, predicted and measured.

// Comparisons, not fminf and fmaxf: those would hide a NaN.
__device__ __forceinline__ float clipped_and_decayed(float gradient, float parameter,
                                                     float weight_decay, float clip) {
    if (clip > 0.0f) gradient = gradient > clip ? clip : gradient < -clip ? -clip : gradient;
    return __fadd_rn(gradient, __fmul_rn(weight_decay, parameter));
}

__device__ __forceinline__ float moved(float parameter, double rate, float direction) {
    return __dadd_rn(parameter, -__dmul_rn(rate, direction));
}

// w -= lr g
extern "C" __global__ void __launch_bounds__(256)
    sgd_update(float* __restrict__ parameter, const float* __restrict__ gradient,
               const double* __restrict__ learning_rates, const long long* __restrict__ counters,
               int count, float weight_decay, float clip) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float w = parameter[i], g = clipped_and_decayed(gradient[i], w, weight_decay, clip);
    parameter[i] = moved(w, learning_rates[counters[0]], g);
}

// v = momentum v + g; w -= lr v
extern "C" __global__ void __launch_bounds__(256)
    momentum_update(float* __restrict__ parameter, float* __restrict__ velocity,
                    const float* __restrict__ gradient, const double* __restrict__ learning_rates,
                    const long long* __restrict__ counters, int count, float weight_decay,
                    float clip, float momentum) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float w = parameter[i], g = clipped_and_decayed(gradient[i], w, weight_decay, clip);
    float v = __fadd_rn(__fmul_rn(momentum, velocity[i]), g);
    velocity[i] = v;
    parameter[i] = moved(w, learning_rates[counters[0]], v);
}

// s = 0.99 s + 0.01 g^2; w -= lr g / (sqrt(s) + 1e-8)
extern "C" __global__ void __launch_bounds__(256)
    rmsprop_update(float* __restrict__ parameter, float* __restrict__ square,
                   const float* __restrict__ gradient, const double* __restrict__ learning_rates,
                   const long long* __restrict__ counters, int count, float weight_decay,
                   float clip) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float w = parameter[i], g = clipped_and_decayed(gradient[i], w, weight_decay, clip);
    float s = 0.99f * square[i] + 0.01f * g * g;
    square[i] = s;
    parameter[i] = moved(w, learning_rates[counters[0]], g / (sqrtf(s) + 1e-8f));
}

// m = 0.9 m + 0.1 g; s = 0.999 s + 0.001 g^2; w -= lr m' / (sqrt(s') + 1e-8), with m' = m / (1 -
// 0.9^t), s' = s / (1 - 0.999^t), t = 1 in the first step (Kingma and Ba, 2015).
extern "C" __global__ void __launch_bounds__(256)
    adam_update(float* __restrict__ parameter, float* __restrict__ mean, float* __restrict__ square,
                const float* __restrict__ gradient, const double* __restrict__ learning_rates,
                const long long* __restrict__ counters, int count, float weight_decay, float clip) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float w = parameter[i], g = clipped_and_decayed(gradient[i], w, weight_decay, clip);
    float m = 0.9f * mean[i] + 0.1f * g;
    float s = 0.999f * square[i] + 0.001f * g * g;
    mean[i] = m;
    square[i] = s;
    float t = counters[0] + 1;
    // The factors are log(0.9) and log(0.999); expm1f keeps 1 - 0.999^t exact where it is small.
    float m_corrected = m / -expm1f(t * -0.105360516f);
    float s_corrected = s / -expm1f(t * -0.00100050034f);  // log(0.999)
    parameter[i] =
        moved(w, learning_rates[counters[0]], m_corrected / (sqrtf(s_corrected) + 1e-8f));
}

// End of a step: advance its count and the places in permutation and epoch.
extern "C" __global__ void advance(long long* __restrict__ counters, int batch) {
    counters[0] += 1;
    counters[1] += batch;
    counters[2] += 1;
}
