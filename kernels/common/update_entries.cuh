// The kernels of an update of all parameters in one launch, one for each rule of the optimizer. The file that includes this one
// defines before what a thread does:
//     template <Rule rule> void update_all(const long long* table, const Settings& settings)
#pragma once
#include "common/update.cuh"

extern "C" __global__ void __launch_bounds__(256)
    sgd_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
               const long long* __restrict__ counters, float weight_decay, float clip) {
    update_all<SGD>(table, settings_of(learning_rates, counters, weight_decay, clip));
}

extern "C" __global__ void __launch_bounds__(256)
    momentum_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
                    const long long* __restrict__ counters, float weight_decay, float clip, float momentum) {
    update_all<MOMENTUM>(table, settings_of(learning_rates, counters, weight_decay, clip, momentum));
}

extern "C" __global__ void __launch_bounds__(256)
    rmsprop_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
                   const long long* __restrict__ counters, float weight_decay, float clip) {
    update_all<RMSPROP>(table, settings_of(learning_rates, counters, weight_decay, clip));
}

extern "C" __global__ void __launch_bounds__(256)
    adam_update(const long long* __restrict__ table, const double* __restrict__ learning_rates,
                const long long* __restrict__ counters, float weight_decay, float clip) {
    update_all<ADAM>(table, settings_of(learning_rates, counters, weight_decay, clip));
}
