// What both loops of a convolution have (loop.cuh): cells of the result, a block's tile of it, and
// the copies of filters.
#pragma once
#include "gpu_tf32/staged_tile.cuh"

#ifndef WINDOWS
#define WINDOWS 0
#endif
#ifndef PHASES
#define PHASES 0
#endif

constexpr int SPREAD = PHASES == 1 ? 2 : 1;  // pixels of y from one of a block's to the next

constexpr int CELL_SIDE = WINDOWS ? 2 : 1, CELL_LINES = CELL_SIDE * CELL_SIDE;

struct Cell {
    bool there;
    int image, row, column;  // of the image of cells
};

// A block's share of the result: a tile of lines, filters, and one phase where phases are apart.
// Neighbouring blocks read the same pixels.
struct Share {
    int tile, first_filter, phase;

    __device__ __forceinline__ explicit Share(int filters) {
        int of_phase = (filters + Tile::N - 1) / Tile::N,
            number = blockIdx.x % (of_phase * SPREAD * SPREAD);
        tile = blockIdx.x / (of_phase * SPREAD * SPREAD);
        phase = SPREAD == 1 ? 0 : number / of_phase;  // known to the compiler where there are none
        first_filter = (number - phase * of_phase) * Tile::N;
    }
    __device__ __forceinline__ int row() const { return phase / 2; }
    __device__ __forceinline__ int column() const { return phase % 2; }
};

// B: lines are filters, k the numbers of a filter in the order of the sums.
struct RoundedFilters {
    static constexpr int PASSES = Tile::N / Tile::ROWS;
    const Packed* weight;
    const char* from;  // where this thread's next k of the first filter is
    // bytes to the next step; from a channel block's last tap to the next one's first
    int to_next, to_next_channel_block;
    int left, start[PASSES];  // left: k from it on; start: numbers

    __device__ __forceinline__ RoundedFilters(const Packed* weight, int filters, int taps,
                                              int channels, int first)
        : weight(weight), from(reinterpret_cast<const char*>(weight + Tile::chunk() * CHUNK)),
          to_next(WHOLE ? PACKED_BYTES * channels : ROW),
          to_next_channel_block(ROW - (taps - 1) * PACKED_BYTES * channels),
          left(taps * channels - Tile::chunk() * CHUNK) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            start[pass] = min(first + Tile::row(pass), filters - 1) * taps * channels;
            keep(start[pass]);
        }
    }
    // ends_channel_block: whether the step is the last tap of a channel block.
    __device__ __forceinline__ void copy(unsigned char* first_chunk, bool ends_channel_block) {
        bool there = WHOLE || left > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES && Tile::is_read(); pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW,
                     there ? static_cast<const void*>(from + 1ll * PACKED_BYTES * start[pass])
                           : weight,
                     there);
        from += ends_channel_block ? to_next_channel_block : to_next;
        left -= K;
    }
};
