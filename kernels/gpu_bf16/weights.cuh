// B of a convolution: lines are filters, k the numbers of a filter in the order of the sums.
#pragma once
#include "gpu_bf16/tile.cuh"

struct RoundedFilters {
    static constexpr int PASSES = Tile::N / Tile::ROWS;
    const bfloat16 *weight, *from;   // from: where this thread's next k of the first filter is
    int channels, to_next_slab;      // numbers from a tap to the next, and from a slab's last tap to the next slab's first
    int left, start[PASSES];         // left: k from it on

    __device__ __forceinline__ RoundedFilters(const bfloat16* weight, int filters, int taps, int channels, int first)
        : weight(weight), from(weight + Tile::chunk() * CHUNK), channels(channels), to_next_slab(K - (taps - 1) * channels),
          left(taps * channels - Tile::chunk() * CHUNK) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) start[pass] = min(first + Tile::row(pass), filters - 1) * taps * channels;
    }
    // ends_slab: whether the step is the last tap of a slab.
    __device__ __forceinline__ void copy(unsigned char* first_chunk, bool ends_slab) {
        bool there = WHOLE || left > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, there ? from + start[pass] : weight, there);
        from += !WHOLE ? K : ends_slab ? to_next_slab : channels;
        left -= K;
    }
};
