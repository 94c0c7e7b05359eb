// What becomes of a block's sums of a convolution: an image in float32, or (copies.cuh) the copy that another one reads.
//
// A result is an object with
//     finish(sum, pixels, filters, first_filter)   sum: this thread's; pixels: of the tile's lines, an object with
//         of(i)               the pixel of this thread's row i of the sums, in an image without borders; -1: none
//         cell(number)        a Cell of the tile: a pixel, or with WINDOWS=1 a window of 2 x 2 pixels
//         line(cell, place)   the line of the tile, of those that Tile::m_of gives, that has place 0 to 3 of a cell
//         first_partial()       the row of bias_partials for the first 64 of the lines; 0 for the first tile alone
// The file that includes this one defines Tile before, a WarpTile (warp_tile.cuh): what a thread keeps of a block's sums.
#pragma once
#include "common/vector.cuh"

// 1: results are of windows of 2 x 2 pixels, which a block has whole; 0: of pixels.
#ifndef WINDOWS
#define WINDOWS 0
#endif
// The four phases of an upsampled image, of which each has filters of its own: 1: apart, a block has pixels of one; 2: in
// columns, a block has pixels of all four; 0: there are none (conv2d.cu, collapsed_weights.cuh).
#ifndef PHASES
#define PHASES 0
#endif

constexpr int SPREAD = PHASES == 1 ? 2 : 1;   // pixels of y from one of a block's to the next

constexpr int CELL_SIDE = WINDOWS ? 2 : 1, CELL_LINES = CELL_SIDE * CELL_SIDE;

struct Cell {
    bool there;
    int image, row, column;   // of the image of cells
};

// Bias, then ReLU if `relu`, then y. pixels.of(i): of this thread's row i of the sums, in y without borders; -1: none.
template <class Tile, class Pixels>
__device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD], const float* __restrict__ bias,
                                       float* __restrict__ y, int filters, int first_filter, int relu, const Pixels& pixels) {
    bool wide = filters % Tile::NEIGHBOURS == 0;
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j += Tile::NEIGHBOURS) {
        int filter = first_filter + Tile::n_of(j);
        float shift[Tile::NEIGHBOURS];
#pragma unroll
        for (int e = 0; e < Tile::NEIGHBOURS; e++) shift[e] = filter + e < filters ? bias[filter + e] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            int pixel = pixels.of(i);
            if (pixel < 0) continue;
            float neighbours[Tile::NEIGHBOURS], *to = y + pixel * filters + filter;
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) {
                float value = sum[i][j + e] + shift[e];
                neighbours[e] = relu && value < 0.0f ? 0.0f : value;   // not fmaxf, which would hide a NaN
            }
            if (wide && filter < filters) store(to, neighbours);
            if (!wide)
#pragma unroll
                for (int e = 0; e < Tile::NEIGHBOURS; e++)
                    if (filter + e < filters) to[e] = neighbours[e];
        }
    }
}

// The same of columns that are the filters of four phases: pixels.of(i) is a pixel of the image that is a quarter of y.
template <class Tile, class Pixels>
__device__ __forceinline__ void finish_phases(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                              const float* __restrict__ bias, float* __restrict__ y, int columns,
                                              int first_column, int relu, const Pixels& pixels) {
    int filters = columns / 4;
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int column = first_column + Tile::n_of(j), phase = column / filters, filter = column % filters;
        if (column >= columns) continue;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            int pixel = pixels.of(i), row = pixel / pixels.width * 2 + phase / 2, across = pixel % pixels.width * 2 + phase % 2;
            float value = sum[i][j] + bias[filter];
            if (pixel >= 0) y[(row * 2 * pixels.width + across) * filters + filter] = relu && value < 0.0f ? 0.0f : value;
        }
    }
}

// y float32 (pixels, filters).
struct ToImage {
    const float* bias;
    float* y;
    int relu;

    template <class Pixels>
    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD], const Pixels& pixels, int filters,
                                           int first_filter) const {
        if (PHASES == 2)
            finish_phases<Tile>(sum, bias, y, filters, first_filter, relu, pixels);
        else
            ::finish<Tile>(sum, bias, y, filters, first_filter, relu, pixels);
    }
};
