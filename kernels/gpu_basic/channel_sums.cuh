// Sums over all pixels of a batch, for each channel: `parts` partial sums (parts, channels) of pixels that lie `parts` apart,
// by a thread each, so that the order of additions is fixed and no atomics are needed. The number of parts is part of the
// result's bytes.
#pragma once

// The partial sums of one channel, added in order; in float64, which no longer rounds them.
__device__ __forceinline__ double add_parts(const float* __restrict__ partials, int channel, int channels, int parts) {
    double sum = 0.0;
    for (int part = 0; part < parts; part++) sum += partials[part * channels + channel];
    return sum;
}
