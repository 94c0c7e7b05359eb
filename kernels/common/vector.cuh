// Loads and stores of neighbours in memory, 1 or 4: one aligned access.
#pragma once

template <int width>
__device__ __forceinline__ void load(float (&to)[width], const float* from) {
    if constexpr (width == 4) {
        float4 four = *reinterpret_cast<const float4*>(from);
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else
        to[0] = *from;
}

template <int width>
__device__ __forceinline__ void store(float* to, const float (&from)[width]) {
    if constexpr (width == 4)
        *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
    else
        *to = from[0];
}

template <int width>
__device__ __forceinline__ void load(int (&to)[width], const unsigned char* from) {
    if constexpr (width == 4) {
        uchar4 four = *reinterpret_cast<const uchar4*>(from);
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else
        to[0] = *from;
}

template <int width>
__device__ __forceinline__ void store(unsigned char* to, const int (&from)[width]) {
    if constexpr (width == 4)
        *reinterpret_cast<uchar4*>(to) = make_uchar4(from[0], from[1], from[2], from[3]);
    else
        *to = from[0];
}
