// What both loops of a convolution have (loop.cuh): pixels of the result, a block's tile, and the
// copies of filters.
#pragma once
#include "packed/staged_tile.cuh"

#ifndef WINDOWS
#define WINDOWS 0
#endif
#ifndef PHASES
#define PHASES 0
#endif

// Pixels of y from one pixel of a block to the next, in a row.
constexpr int PHASE_STRIDE = PHASES == 1 ? 2 : 1;

// Pixels of y, in a row and in all, of which an epilogue makes one.
constexpr int POOL_SIDE = WINDOWS ? 2 : 1, POOL_SIZE = POOL_SIDE * POOL_SIDE;

// A pixel that an epilogue stores; inside: not beyond an edge of y.
struct OutputPixel {
    bool inside;
    int image, row, column;
};

// Which part of y a block computes: the number of its pixel tile, its first filter and, where
// phases are apart, its phase. Neighbouring blocks read the same pixels.
struct BlockTile {
    int tile, first_filter, phase;

    __device__ __forceinline__ explicit BlockTile(int filters) {
        int of_phase = (filters + Tile::N - 1) / Tile::N,
            number = blockIdx.x % (of_phase * PHASE_STRIDE * PHASE_STRIDE);
        tile = blockIdx.x / (of_phase * PHASE_STRIDE * PHASE_STRIDE);
        // Without phases the compiler knows it.
        phase = PHASE_STRIDE == 1 ? 0 : number / of_phase;
        first_filter = (number - phase * of_phase) * Tile::N;
    }
    __device__ __forceinline__ int row() const { return phase / 2; }
    __device__ __forceinline__ int column() const { return phase % 2; }
};

// B, (TILE_N, K) a step: lines are filters, k the numbers of a filter in the order of the sums.
struct RoundedFilters {
    static constexpr int PASSES = Tile::N / Tile::ROWS;
    const Packed* weight;
    const char* from;  // where this thread's next k of the first filter is
    // Bytes from a step to the next; from the last tap of a channel block to the next block.
    int to_next, to_next_channel_block;
    int left;           // values of k from this thread's next one on
    int start[PASSES];  // numbers before this thread's filters

    __device__ __forceinline__ RoundedFilters(const Packed* weight, int filters, int taps,
                                              int channels, int first)
        : weight(weight), from(reinterpret_cast<const char*>(weight + Tile::chunk() * CHUNK)),
          to_next(WHOLE ? PACKED_BYTES * channels : ROW),
          to_next_channel_block(ROW - (taps - 1) * PACKED_BYTES * channels),
          left(taps * channels - Tile::chunk() * CHUNK) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            start[pass] = min(first + Tile::row(pass), filters - 1) * taps * channels;
            keep_in_register(start[pass]);
        }
    }
    // ends_channel_block: whether the step is the last tap of a channel block.
    __device__ __forceinline__ void copy(unsigned char* first_chunk, bool ends_channel_block) {
        bool valid = WHOLE || left > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES && Tile::is_read(); pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW,
                     valid ? static_cast<const void*>(from + 1ll * PACKED_BYTES * start[pass])
                           : weight,
                     valid);
        from += ends_channel_block ? to_next_channel_block : to_next;
        left -= K;
    }
};
