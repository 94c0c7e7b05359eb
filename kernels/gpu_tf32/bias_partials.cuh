// A bias gradient from its partial sums over pixels, which the launch that rounds a gradient leaves
// beside it, a row for each group of pixels (copies.cuh, round.cu).
#pragma once

#include "common/ordered_sum.cuh"

// The sum of all rows in column `first` + threadIdx.x, for the first `across` threads of a block of
// 16 `across` threads: each thread adds every 16th row of a column, then one thread of each column
// adds the 16 sums, in order. What the other threads get, and those of columns beyond the last one,
// is of no use.
template <int across>
__device__ __forceinline__ float sum_of_rows(const float* __restrict__ bias_partials, int first,
                                             int columns, int rows) {
    constexpr int DOWN = 16;
    __shared__ float held[DOWN][across];
    int of_block = threadIdx.x % across, column = first + of_block;
    int first_row = threadIdx.x / across,
        of_thread = column < columns ? (rows - first_row + DOWN - 1) / DOWN : 0;
    held[first_row][of_block] =
        sum_of_parts(bias_partials + first_row * columns + column, of_thread, DOWN * columns);
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < DOWN; i++) sum += held[i][of_block];
    return sum;
}
