// Adds the parts of a weight and a bias gradient in order and applies the optimizer's update, in one kernel: the gradient
// itself never reaches memory.
//
// Rung: gpu_opt_v2. Changed from gpu_opt_v1: the sum over the parts and the update were separate launches.
//
// Layouts, float32: parts as weight_grad.cu writes them; weight (filters, kernel, kernel, channels), bias (filters) and their
// running averages; dweight, dbias as weight and bias. taps = kernel kernel. `collapsed`: the parts' rows are 16 collapsed taps
// and filters; the 3x3 tap (i, j) takes four, rows 2 - i and 3 - i by columns 2 - j and 3 - j; the bias
// gradient is the sum over collapsed taps 1 and 2 both ways, which meet every output pixel once.
// learning_rates float64, one per step of the run; counters int64: [step, offset into the permutation, step of this epoch].
// clip: largest absolute value of an element of the gradient, 0 for no limit; weight_decay is added after clipping.
//
// Launches: block (256), grid (ceil((filters taps channels + filters) / 256)); one thread per weight, then per bias.
//   add_parts                     dweight and dbias, no update
//   sgd_update, momentum_update, rmsprop_update, adam_update
// It must come after the layer's input gradient, which reads the weights.
//
// Bound: memory, mostly for the parts, which lie in the level-2 cache.
// Predicted, not measured, for 7 parts of 128 filters 3x3x256 (8.3 MB) at 4.3 TB/s: 3 us.
// Measured: not measured.

enum Rule { NONE, SGD, MOMENTUM, RMSPROP, ADAM };

// A parameter tensor and its running averages, in the order of optimizers.AVERAGES; for NONE the gradient's own tensor.
struct Tensor {
    float *values, *first, *second;
};

struct Settings {
    double rate;
    float step, weight_decay, clip, momentum;   // step: 1 for the first
};

// Comparisons, not fminf and fmaxf: those would hide a NaN.
__device__ __forceinline__ float clipped_and_decayed(float gradient, float parameter, const Settings& settings) {
    float clip = settings.clip;
    if (clip > 0.0f) gradient = gradient > clip ? clip : gradient < -clip ? -clip : gradient;
    return __fadd_rn(gradient, __fmul_rn(settings.weight_decay, parameter));
}

// Element i, as optimizers.py states it. As in gpu_basic/update.cu, weight decay, velocity and weight are rounded after every
// operation, the last product and the subtraction in float64.
template <Rule rule>
__device__ __forceinline__ void update(const Tensor& tensor, int i, float gradient, const Settings& settings) {
    if constexpr (rule == NONE) {
        tensor.values[i] = gradient;
        return;
    }
    float w = tensor.values[i], g = clipped_and_decayed(gradient, w, settings), direction = g;
    if constexpr (rule == MOMENTUM) direction = tensor.first[i] = __fadd_rn(__fmul_rn(settings.momentum, tensor.first[i]), g);
    if constexpr (rule == RMSPROP) {
        float s = tensor.first[i] = 0.99f * tensor.first[i] + 0.01f * g * g;
        direction = g / (sqrtf(s) + 1e-8f);
    }
    if constexpr (rule == ADAM) {
        float m = tensor.first[i] = 0.9f * tensor.first[i] + 0.1f * g;
        float s = tensor.second[i] = 0.999f * tensor.second[i] + 0.001f * g * g;
        float m_corrected = m / -expm1f(settings.step * -0.105360516f);     // log(0.9); exact where 1 - 0.9^t is small
        float s_corrected = s / -expm1f(settings.step * -0.00100050034f);   // log(0.999)
        direction = m_corrected / (sqrtf(s_corrected) + 1e-8f);
    }
    tensor.values[i] = __dadd_rn(w, -__dmul_rn(settings.rate, direction));
}

__device__ __forceinline__ float add_splits(const float* parts, int splits, int apart) {
    float sum = 0.0f;
#pragma unroll 8
    for (int split = 0; split < splits; split++) sum += parts[split * apart];
    return sum;
}

// Weights first, then biases.
__device__ __forceinline__ float gradient_of(int i, const float* parts, int splits, int filters, int taps, int channels,
                                             bool collapsed) {
    int weights = filters * taps * channels;
    if (!collapsed) return add_splits(parts + i, splits, (weights + filters + 3) / 4 * 4);
    int rows = 16 * filters, apart = (rows * channels + rows + 3) / 4 * 4;
    bool is_bias = i >= weights;
    int filter = is_bias ? i - weights : i / channels / 9;
    int row = is_bias ? 1 : 2 - i / channels / 3 % 3, column = is_bias ? 1 : 2 - i / channels % 3;
    float sum = 0.0f;
    for (int t = row; t < row + 2; t++)
        for (int s = column; s < column + 2; s++) {
            int place = (t * 4 + s) * filters + filter;
            sum += add_splits(parts + (is_bias ? rows * channels + place : place * channels + i % channels), splits, apart);
        }
    return sum;
}

template <Rule rule>
__device__ __forceinline__ void add_and_update(const float* parts, const Tensor& weight, const Tensor& bias, int splits,
                                               int filters, int taps, int channels, int collapsed,
                                               const double* learning_rates, const long long* counters, Settings settings) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, weights = filters * taps * channels;
    if (i >= weights + filters) return;
    if constexpr (rule != NONE) settings.rate = learning_rates[counters[0]], settings.step = counters[0] + 1;
    float gradient = gradient_of(i, parts, splits, filters, taps, channels, collapsed);
    if (i < weights)
        update<rule>(weight, i, gradient, settings);
    else
        update<rule>(bias, i - weights, gradient, settings);
}

extern "C" __global__ void __launch_bounds__(256)
    add_parts(const float* __restrict__ parts, float* __restrict__ dweight, float* __restrict__ dbias, int splits,
              int filters, int taps, int channels, int collapsed) {
    add_and_update<NONE>(parts, {dweight, nullptr, nullptr}, {dbias, nullptr, nullptr}, splits, filters, taps, channels,
                         collapsed, nullptr, nullptr, {});
}

extern "C" __global__ void __launch_bounds__(256)
    sgd_update(const float* __restrict__ parts, float* __restrict__ weight, float* __restrict__ bias,
               const double* __restrict__ learning_rates, const long long* __restrict__ counters, int splits, int filters,
               int taps, int channels, int collapsed, float weight_decay, float clip) {
    add_and_update<SGD>(parts, {weight, nullptr, nullptr}, {bias, nullptr, nullptr}, splits, filters, taps, channels,
                        collapsed, learning_rates, counters, {0.0, 0.0f, weight_decay, clip, 0.0f});
}

extern "C" __global__ void __launch_bounds__(256)
    momentum_update(const float* __restrict__ parts, float* __restrict__ weight, float* __restrict__ weight_velocity,
                    float* __restrict__ bias, float* __restrict__ bias_velocity, const double* __restrict__ learning_rates,
                    const long long* __restrict__ counters, int splits, int filters, int taps, int channels, int collapsed,
                    float weight_decay, float clip, float momentum) {
    add_and_update<MOMENTUM>(parts, {weight, weight_velocity, nullptr}, {bias, bias_velocity, nullptr}, splits, filters,
                             taps, channels, collapsed, learning_rates, counters,
                             {0.0, 0.0f, weight_decay, clip, momentum});
}

extern "C" __global__ void __launch_bounds__(256)
    rmsprop_update(const float* __restrict__ parts, float* __restrict__ weight, float* __restrict__ weight_square,
                   float* __restrict__ bias, float* __restrict__ bias_square, const double* __restrict__ learning_rates,
                   const long long* __restrict__ counters, int splits, int filters, int taps, int channels, int collapsed,
                   float weight_decay, float clip) {
    add_and_update<RMSPROP>(parts, {weight, weight_square, nullptr}, {bias, bias_square, nullptr}, splits, filters, taps,
                            channels, collapsed, learning_rates, counters, {0.0, 0.0f, weight_decay, clip, 0.0f});
}

extern "C" __global__ void __launch_bounds__(256)
    adam_update(const float* __restrict__ parts, float* __restrict__ weight, float* __restrict__ weight_mean,
                float* __restrict__ weight_square, float* __restrict__ bias, float* __restrict__ bias_mean,
                float* __restrict__ bias_square, const double* __restrict__ learning_rates,
                const long long* __restrict__ counters, int splits, int filters, int taps, int channels, int collapsed,
                float weight_decay, float clip) {
    add_and_update<ADAM>(parts, {weight, weight_mean, weight_square}, {bias, bias_mean, bias_square}, splits, filters, taps,
                         channels, collapsed, learning_rates, counters, {0.0, 0.0f, weight_decay, clip, 0.0f});
}
