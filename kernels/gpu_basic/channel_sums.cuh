// Sums over all pixels of a batch, per channel: `parts` partial sums (parts, channels), one thread
// each, over pixels `parts` apart, so that the order of additions is fixed and no atomics are
// needed. The result's bytes depend on `parts`.
#pragma once

#include "common/ordered_sum.cuh"

// The partial sums of one channel, added in order, in float64 to avoid rounding.
__device__ __forceinline__ double add_parts(const float* __restrict__ partials, int channel,
                                            int channels, int parts) {
    return sum_of_parts<double, 16>(partials + channel, parts, channels);
}
