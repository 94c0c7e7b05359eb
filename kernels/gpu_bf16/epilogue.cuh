// What a block does with its sums of a convolution.
#pragma once
#include "common/vector.cuh"
#include "gpu_bf16/tile.cuh"

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
