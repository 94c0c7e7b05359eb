// The epilogue of a convolution that stores an image in float32; copies.cuh has the others.
//
// A loop is included before this header. It defines Tile, a WarpTile, and PixelTile.
//
// Macro PHASES: 2: columns are the filters of the four phases of an upsampled image (loop.cuh); 0,
// the default, or 1: they are not.
#pragma once

#ifndef PHASES
#define PHASES 0
#endif

// y = the accumulators and the bias, then ReLU if `relu`. tile.pixel(i): the pixel of y of this
// thread's row i; -1: none.
__device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                       const float* __restrict__ bias, float* __restrict__ y,
                                       int filters, int first_filter, int relu,
                                       const PixelTile& tile) {
    bool wide = filters % Tile::NEIGHBOURS == 0;
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j += Tile::NEIGHBOURS) {
        int filter = first_filter + Tile::n_of(j);
        float shift[Tile::NEIGHBOURS];
#pragma unroll
        for (int e = 0; e < Tile::NEIGHBOURS; e++)
            shift[e] = filter + e < filters ? bias[filter + e] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            int pixel = tile.pixel(i);
            if (pixel < 0) continue;
            float neighbours[Tile::NEIGHBOURS], *to = y + pixel * filters + filter;
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) {
                float value = sum[i][j + e] + shift[e];
                // Not fmaxf, which would hide a NaN.
                neighbours[e] = relu && value < 0.0f ? 0.0f : value;
            }
            if (wide && filter < filters) store(to, neighbours);
            if (!wide)
#pragma unroll
                for (int e = 0; e < Tile::NEIGHBOURS; e++)
                    if (filter + e < filters) to[e] = neighbours[e];
        }
    }
}

// The same where columns are the filters of four phases. tile.pixel(i): a pixel of the image before
// the upsampling, a quarter of y.
__device__ __forceinline__ void finish_phases(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                              const float* __restrict__ bias, float* __restrict__ y,
                                              int columns, int first_column, int relu,
                                              const PixelTile& tile) {
    int filters = columns / 4;
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int column = first_column + Tile::n_of(j), phase = column / filters,
            filter = column % filters;
        if (column >= columns) continue;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            int pixel = tile.pixel(i), row = pixel / tile.width * 2 + phase / 2,
                across = pixel % tile.width * 2 + phase % 2;
            float value = sum[i][j] + bias[filter];
            if (pixel >= 0)
                y[(row * 2 * tile.width + across) * filters + filter] =
                    relu && value < 0.0f ? 0.0f : value;
        }
    }
}

// y float32 (pixels, filters).
struct ImageEpilogue {
    const float* bias;
    float* y;
    int relu;

    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const PixelTile& tile, int filters,
                                           int first_filter) const {
        if (PHASES == 2)
            finish_phases(sum, bias, y, filters, first_filter, relu, tile);
        else
            ::finish(sum, bias, y, filters, first_filter, relu, tile);
    }
};
