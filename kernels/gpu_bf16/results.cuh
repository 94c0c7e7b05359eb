// What becomes of a block's sums of a convolution: an image in float32, or (copies.cuh) the copy that another one reads.
//
// A result is an object with
//     finish(sum, lines, filters, first_filter)   sum: this thread's (tile.cuh); lines: the pixels of the tile's lines
// Lines come in cells: pixels, or where the file is compiled with WINDOWS=1 windows of 2 x 2 pixels, four lines one after the
// other.
#pragma once
#include "common/conv2d_gemm.cuh"
#include "gpu_bf16/tile.cuh"

#ifndef WINDOWS
#define WINDOWS 0
#endif

struct Cell {
    bool there;
    int image, row, column;   // of the image of cells
};

// The pixel, in an image `width` wide and as high as an even number if WINDOWS, of a line of all tiles.
__device__ __forceinline__ int pixel_of(int line, int width) {
    if (!WINDOWS) return line;
    int window = line / 4, across = width / 2;
    return (window / across * 2 + line % 4 / 2) * width + window % across * 2 + line % 2;
}

// A tile whose lines are pixels, or windows, one after the other. height, width: of the image of pixels.
struct Lines {
    int first, pixels, height, width;

    // Of the tile's cell of this number.
    __device__ __forceinline__ Cell cell(int number) const {
        constexpr int SIDE = WINDOWS ? 2 : 1;
        int of_all = first / (SIDE * SIDE) + number, across = width / SIDE, down = height / SIDE, row = of_all / across;
        return {of_all < pixels / (SIDE * SIDE), row / down, row % down, of_all % across};
    }
    // Of the row of totals to which the tile's first 64 lines go.
    __device__ __forceinline__ int first_total() const { return first / 64; }
};

// y float32 (pixels, filters).
struct ToImage {
    const float* bias;
    float* y;
    int relu;

    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD], const Lines& lines, int filters,
                                           int first_filter) const {
        add_bias(sum, bias, filters, first_filter, relu);
        write<Tile>(sum, y, lines.pixels, filters, lines.first, first_filter);
    }
    static __device__ __forceinline__ void add_bias(float (&sum)[Tile::M_THREAD][Tile::N_THREAD], const float* bias, int filters,
                                                    int first_filter, int relu) {
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j++) {
            int filter = first_filter + Tile::n_of(j);
            float shift = filter < filters ? bias[filter] : 0.0f;
#pragma unroll
            for (int i = 0; i < Tile::M_THREAD; i++) {
                float value = sum[i][j] + shift;
                sum[i][j] = relu && value < 0.0f ? 0.0f : value;   // not fmaxf, which would hide a NaN
            }
        }
    }
};
