// How the gradient behind a 2 x 2 max-pool goes back to the pixels before it, a chunk at a time.
#pragma once
#include "common/packed.cuh"

// For each number of a chunk its place in its window, 0 to 3, as a byte.
struct WindowIndices {
    unsigned fours[2];
    __device__ __forceinline__ int at(int e) const { return fours[e / 4] >> e % 4 * 8 & 0xff; }
};

__device__ __forceinline__ WindowIndices load_indices(const unsigned char* from) {
    WindowIndices indices;
    if constexpr (CHUNK == 8) {
        uint2 both = *reinterpret_cast<const uint2*>(from);
        indices.fours[0] = both.x, indices.fours[1] = both.y;
    } else {
        indices.fours[0] = *reinterpret_cast<const unsigned*>(from);
    }
    return indices;
}

// A chunk with the numbers that come from place `index`, and zeros for the others.
__device__ __forceinline__ uint4 select(const uint4& words, const WindowIndices& indices,
                                        int index) {
    auto kept = [&](int word) {
        int low = word * CHUNK / 4, high = low + CHUNK / 8;  // its one number, or two
        return (indices.at(low) == index ? 0x0000ffffu : 0u) |
               (indices.at(high) == index ? 0xffff0000u : 0u);
    };
    return make_uint4(words.x & kept(0), words.y & kept(1), words.z & kept(2), words.w & kept(3));
}
