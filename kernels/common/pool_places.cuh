// Chunks of the gradient behind a 2 x 2 max-pool, as those of the pixels before it.
#pragma once
#include "common/packed.cuh"

// Where in its window each of a chunk's numbers was, a byte each.
struct Places {
    unsigned fours[2];
    __device__ __forceinline__ int of(int e) const { return fours[e / 4] >> e % 4 * 8 & 0xff; }
};

__device__ __forceinline__ Places load_places(const unsigned char* from) {
    Places places;
    if constexpr (CHUNK == 8) {
        uint2 both = *reinterpret_cast<const uint2*>(from);
        places.fours[0] = both.x, places.fours[1] = both.y;
    } else {
        places.fours[0] = *reinterpret_cast<const unsigned*>(from);
    }
    return places;
}

// The words of the values whose place is `here`, zeros for the others.
__device__ __forceinline__ uint4 only(const uint4& words, const Places& places, int here) {
    auto kept = [&](int word) {
        int low = word * CHUNK / 4, high = low + CHUNK / 8;  // its one number, or two
        return (places.of(low) == here ? 0x0000ffffu : 0u) |
               (places.of(high) == here ? 0xffff0000u : 0u);
    };
    return make_uint4(words.x & kept(0), words.y & kept(1), words.z & kept(2), words.w & kept(3));
}
