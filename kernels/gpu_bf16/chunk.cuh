// 16 bytes of bfloat16: what a thread copies, rounds or stores at once.
#pragma once
#include "common/tensor_cores.cuh"
#include "common/vector.cuh"

using bfloat16 = unsigned short;
constexpr int CHUNK = 8;   // numbers in 16 bytes

__device__ __forceinline__ uint4 rounded_chunk(const float (&x)[CHUNK]) {
    return make_uint4(bf16x2(x[0], x[1]), bf16x2(x[2], x[3]), bf16x2(x[4], x[5]), bf16x2(x[6], x[7]));
}

// Of `from`, a place `channel` in a row of so many: zeros after the last one.
__device__ __forceinline__ void load_chunk(float (&to)[CHUNK], const float* from, int channel, int channels) {
    if (channels % CHUNK == 0 && channel < channels) {
        float low[4], high[4];
        load(low, from);
        load(high, from + 4);
#pragma unroll
        for (int e = 0; e < 4; e++) to[e] = low[e], to[4 + e] = high[e];
    } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e++) to[e] = channel + e < channels ? from[e] : 0.0f;
    }
}

// Eight bytes.
__device__ __forceinline__ void store_chunk(unsigned char* to, const int (&from)[CHUNK]) {
    auto four = [&](int first) {
        return static_cast<unsigned>(from[first] | from[first + 1] << 8 | from[first + 2] << 16 | from[first + 3] << 24);
    };
    *reinterpret_cast<uint2*>(to) = make_uint2(four(0), four(4));
}

__device__ __forceinline__ void load_chunk(int (&to)[CHUNK], const unsigned char* from) {
    uint2 both = *reinterpret_cast<const uint2*>(from);
#pragma unroll
    for (int e = 0; e < CHUNK; e++) to[e] = (e < 4 ? both.x : both.y) >> e % 4 * 8 & 0xff;
}
