// What weight_grad.cu and weight_grad_pooled.cu have in common: how far a step moves, operands
// whose rows are k, and how parts are stored.
#pragma once
#include "packed/staged_tile.cuh"

#ifndef WHOLE_ROWS
#define WHOLE_ROWS 1
#endif

// How far a step of so many pixels of y moves in a padded image.
template <int pixels>
struct StepStride {
    int columns, rows;  // of y, beyond whole rows and whole images
    // Numbers: in every step; more behind the last column; more behind the last row.
    int by, at_row_end, at_image_end;

    // height, width, channels: of the padded image; stride: of the convolution.
    __device__ __forceinline__ StepStride(int height, int width, int channels, int stride,
                                          int out_height, int out_width)
        : columns(WHOLE_ROWS ? 0 : pixels % out_width), rows(pixels / out_width % out_height),
          by(((pixels / out_width / out_height * height + rows * stride) * width +
              columns * stride) *
             channels),
          at_row_end((width - out_width) * stride * channels),
          at_image_end((height - out_height * stride) * width * channels) {}
};

constexpr int SLICE = CHANNEL_BLOCK;  // lines of a row of shared memory

// An operand's step in shared memory: (SLICES, K, SLICE). A row is one k of a slice of neighbouring
// lines, with its chunks along the lines.
template <int lines>
struct RowsOfK {
    static constexpr int SLICES = (lines + SLICE - 1) / SLICE, BYTES = SLICES * K * ROW;
    static constexpr bool TRANSPOSED = true;
    static __device__ __forceinline__ int chunk_at(int row, int chunk) {
        return IN_WORDS ? row * ROW + 16 * (chunk ^ row % 4 * 2) : swizzled(row, chunk);
    }
    static __device__ __forceinline__ int place(int line, int k) {
        return line / SLICE * K * ROW + chunk_at(k, line % SLICE / CHUNK);
    }
};

// Write this thread's part of C to the row-major rows x columns matrix c: as in
// common/conv2d_gemm.cuh.
template <class Tile>
__device__ __forceinline__ void write(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD], float* c,
                                      int rows, int columns, int first_m, int first_n) {
    bool wide = columns % Tile::NEIGHBOURS == 0;
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i++) {
        int m = first_m + Tile::m_of(i);
        if (m >= rows) continue;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += Tile::NEIGHBOURS) {
            int n = first_n + Tile::n_of(j);
            float* to = c + m * columns + n;
            float neighbours[Tile::NEIGHBOURS];
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) neighbours[e] = sum[i][j + e];
            if (wide && n < columns) store(to, neighbours);
            if (!wide)
#pragma unroll
                for (int e = 0; e < Tile::NEIGHBOURS; e++)
                    if (n + e < columns) to[e] = neighbours[e];
        }
    }
}
