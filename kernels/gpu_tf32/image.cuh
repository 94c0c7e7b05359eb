// What becomes of a block's sums of a convolution: an image in float32; copies.cuh has the other
// results.
//
// The file that includes this one includes a loop before, which defines Tile, a WarpTile: what a
// thread keeps of a block's sums. Macro PHASES: 2: columns are the filters of the four phases of an
// upsampled image (loop.cuh); 0, the default, or 1: they are not
#pragma once

#ifndef PHASES
#define PHASES 0
#endif

// Bias, then ReLU if `relu`, then y. pixels.of(i): of this thread's row i of the sums, in y without
// borders; -1: none.
template <class Tile, class Pixels>
__device__ __forceinline__ void
finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD], const float* __restrict__ bias,
       float* __restrict__ y, int filters, int first_filter, int relu, const Pixels& pixels) {
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
            int pixel = pixels.of(i);
            if (pixel < 0) continue;
            float neighbours[Tile::NEIGHBOURS], *to = y + pixel * filters + filter;
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) {
                float value = sum[i][j + e] + shift[e];
                // not fmaxf, which would hide a NaN
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

// The same of columns that are the filters of four phases: pixels.of(i) is a pixel of the image
// that is a quarter of y.
template <class Tile, class Pixels>
__device__ __forceinline__ void finish_phases(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                              const float* __restrict__ bias, float* __restrict__ y,
                                              int columns, int first_column, int relu,
                                              const Pixels& pixels) {
    int filters = columns / 4;
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int column = first_column + Tile::n_of(j), phase = column / filters,
            filter = column % filters;
        if (column >= columns) continue;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            int pixel = pixels.of(i), row = pixel / pixels.width * 2 + phase / 2,
                across = pixel % pixels.width * 2 + phase % 2;
            float value = sum[i][j] + bias[filter];
            if (pixel >= 0)
                y[(row * 2 * pixels.width + across) * filters + filter] =
                    relu && value < 0.0f ? 0.0f : value;
        }
    }
}

// y float32 (pixels, filters).
struct ToImage {
    const float* bias;
    float* y;
    int relu;

    template <class Pixels>
    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const Pixels& pixels, int filters,
                                           int first_filter) const {
        if (PHASES == 2)
            finish_phases<Tile>(sum, bias, y, filters, first_filter, relu, pixels);
        else
            ::finish<Tile>(sum, bias, y, filters, first_filter, relu, pixels);
    }
};
