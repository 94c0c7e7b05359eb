// B of a convolution: lines are filters, k the numbers of a filter in the order of the sums.
#pragma once
#include "gpu_bf16/tile.cuh"

// What a block has: lines of a tile, filters, and where phases are apart one of these. Neighbouring blocks read the same pixels.
struct Share {
    int tile, first_filter, phase;

    __device__ __forceinline__ explicit Share(int filters) {
        int of_phase = (filters + Tile::N - 1) / Tile::N, number = blockIdx.x % (of_phase * SPREAD * SPREAD);
        tile = blockIdx.x / (of_phase * SPREAD * SPREAD), phase = number / of_phase, first_filter = number % of_phase * Tile::N;
    }
    __device__ __forceinline__ int row() const { return phase / 2; }
    __device__ __forceinline__ int column() const { return phase % 2; }
};

struct RoundedFilters {
    static constexpr int PASSES = Tile::N / Tile::ROWS;
    const bfloat16* weight;
    const char* from;                    // where this thread's next k of the first filter is
    int to_next, to_next_slab;           // bytes to the next step, and from a slab's last tap to the next slab's first
    int left, start[PASSES];             // left: k from it on; start: numbers

    __device__ __forceinline__ RoundedFilters(const bfloat16* weight, int filters, int taps, int channels, int first)
        : weight(weight), from(reinterpret_cast<const char*>(weight + Tile::chunk() * CHUNK)),
          to_next(WHOLE ? 2 * channels : ROW), to_next_slab(ROW - (taps - 1) * 2 * channels),
          left(taps * channels - Tile::chunk() * CHUNK) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            start[pass] = min(first + Tile::row(pass), filters - 1) * taps * channels;
            keep(start[pass]);
        }
    }
    // ends_slab: whether the step is the last tap of a slab.
    __device__ __forceinline__ void copy(unsigned char* first_chunk, bool ends_slab) {
        bool there = WHOLE || left > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW,
                     there ? static_cast<const void*>(from + 2ll * start[pass]) : weight, there);
        from += ends_slab ? to_next_slab : to_next;
        left -= K;
    }
};
