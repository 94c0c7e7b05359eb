// An update of all parameters in one launch: the optimizers' update of one element, and which
// element of which parameter a thread has.
//
// table: int64 words. The first words, one for each block, say where the row of the block's
// parameter begins. A row has the addresses of the parameter and of its running averages, in the
// order of optimizers.AVERAGES (0 where there are fewer), the address of its gradient, its number
// of elements, and its first block. A rung may have more words behind these.
//
// Macro GRADIENT_FACTOR: by what gradients are multiplied before all else: the inverse of the loss
// scale. Not defined: they are not multiplied.
#pragma once

enum Rule { SGD, MOMENTUM, RMSPROP, ADAM };
enum Word { VALUES, FIRST, SECOND, GRADIENT, COUNT, FIRST_BLOCK, MORE };

struct Settings {
    double rate;
    float step, weight_decay, clip, momentum;  // step: 1 for the first
};

// Tells the compiler that an address is in global memory, which it cannot know of one that it
// loads.
__device__ __forceinline__ float* address(long long word) {
#ifdef CUDA_EMULATOR
    return reinterpret_cast<float*>(word);
#else
    return static_cast<float*>(__cvta_global_to_generic(word));
#endif
}

__device__ __forceinline__ const long long* row_of(const long long* table) {
    return table + table[blockIdx.x];
}

__device__ __forceinline__ int element_of(const long long* row) {
    return (blockIdx.x - static_cast<int>(row[FIRST_BLOCK])) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ Settings settings_of(const double* learning_rates,
                                                const long long* counters, float weight_decay,
                                                float clip, float momentum = 0.0f) {
    return {learning_rates[counters[0]], static_cast<float>(counters[0] + 1), weight_decay, clip,
            momentum};
}

// Comparisons, not fminf and fmaxf: those would hide a NaN.
__device__ __forceinline__ float clipped_and_decayed(float gradient, float parameter,
                                                     const Settings& settings) {
#ifdef GRADIENT_FACTOR
    gradient *= static_cast<float>(GRADIENT_FACTOR);
#endif
    float clip = settings.clip;
    if (clip > 0.0f) gradient = gradient > clip ? clip : gradient < -clip ? -clip : gradient;
    return __fadd_rn(gradient, __fmul_rn(settings.weight_decay, parameter));
}

// What the update of an element reads beside its gradient: its value and running averages.
struct State {
    float value, first, second;
};

// The state of element i. Who updates several elements loads all states first, because a load waits
// for a store that may be to its place.
template <Rule rule>
__device__ __forceinline__ State load_state(const long long* row, int i) {
    State state = {address(row[VALUES])[i]};
    if constexpr (rule != SGD) state.first = address(row[FIRST])[i];
    if constexpr (rule == ADAM) state.second = address(row[SECOND])[i];
    return state;
}

// Updates element i as optimizers.py states it, and returns the new value. As in
// gpu_basic/update.cu, weight decay, velocity and weight are rounded after every operation, the
// last product and the subtraction in float64.
template <Rule rule>
__device__ __forceinline__ float update(const long long* row, int i, const State& state,
                                        float gradient, const Settings& settings) {
    float g = clipped_and_decayed(gradient, state.value, settings), direction = g;
    if constexpr (rule == MOMENTUM)
        direction = address(row[FIRST])[i] =
            __fadd_rn(__fmul_rn(settings.momentum, state.first), g);
    if constexpr (rule == RMSPROP) {
        float s = address(row[FIRST])[i] = 0.99f * state.first + 0.01f * g * g;
        direction = g / (sqrtf(s) + 1e-8f);
    }
    if constexpr (rule == ADAM) {
        float m = address(row[FIRST])[i] = 0.9f * state.first + 0.1f * g;
        float s = address(row[SECOND])[i] = 0.999f * state.second + 0.001f * g * g;
        // The factor is log(0.9); expm1f is exact where 1 - 0.9^t is small.
        float m_corrected = m / -expm1f(settings.step * -0.105360516f);
        float s_corrected = s / -expm1f(settings.step * -0.00100050034f);  // log(0.999)
        direction = m_corrected / (sqrtf(s_corrected) + 1e-8f);
    }
    return address(row[VALUES])[i] = __dadd_rn(state.value, -__dmul_rn(settings.rate, direction));
}

// ---- the kernels, one for each rule

// How many blocks a multiprocessor must have room for.
#if __CUDACC_VER_MAJOR__ == 13 && __CUDACC_VER_MINOR__ == 0 && __CUDA_ARCH__ >= 1000
#define BLOCKS_AT_ONCE 2  // for 3 it would spill
#else
#define BLOCKS_AT_ONCE 3
#endif

// What a thread does: the file that includes this one defines it.
template <Rule rule>
__device__ void update_all(const long long* table, const Settings& settings);

extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE)
    sgd_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
               const long long* __restrict__ counters, float weight_decay, float clip) {
    update_all<SGD>(table, settings_of(learning_rates, counters, weight_decay, clip));
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE)
    momentum_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
                    const long long* __restrict__ counters, float weight_decay, float clip,
                    float momentum) {
    update_all<MOMENTUM>(table,
                         settings_of(learning_rates, counters, weight_decay, clip, momentum));
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE)
    rmsprop_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
                   const long long* __restrict__ counters, float weight_decay, float clip) {
    update_all<RMSPROP>(table, settings_of(learning_rates, counters, weight_decay, clip));
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE)
    adam_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
                const long long* __restrict__ counters, float weight_decay, float clip) {
    update_all<ADAM>(table, settings_of(learning_rates, counters, weight_decay, clip));
}
