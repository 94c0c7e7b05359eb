// Sums over all pixels of a batch, per channel: `parts` partial sums (parts, channels), one thread each, over pixels `parts`
// apart, so that the order of additions is fixed and no atomics are needed. The result's bytes depend on `parts`.
#pragma once

// The partial sums of one channel, added in order, in float64 to avoid rounding.
__device__ __forceinline__ double add_parts(const float* __restrict__ partials, int channel, int channels, int parts) {
    double sum = 0.0;
    for (int part = 0; part < parts; part++) sum += partials[part * channels + channel];
    return sum;
}
