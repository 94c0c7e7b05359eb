// A bias gradient from bias_partials: sums over groups of pixels, a row for each group, which the
// launch that rounds a gradient leaves beside it (copies.cuh, round.cu).
#pragma once

#include "common/ordered_sum.cuh"

// The sum of all rows of a column, in a block of 16 `across` threads. Each thread adds every 16th
// row of a column; then the 16 sums of a column are added in order. The first `across` threads get
// the sums of columns `first` + threadIdx.x; what others get, or beyond the last column, is of no
// use.
template <int across>
__device__ __forceinline__ float sum_of_rows(const float* __restrict__ bias_partials, int first,
                                             int columns, int rows) {
    constexpr int DOWN = 16;
    __shared__ float thread_sums[DOWN][across];  // (DOWN, columns)
    int of_block = threadIdx.x % across, column = first + of_block;
    int first_row = threadIdx.x / across,
        of_thread = column < columns ? (rows - first_row + DOWN - 1) / DOWN : 0;
    thread_sums[first_row][of_block] =
        sum_of_parts(bias_partials + first_row * columns + column, of_thread, DOWN * columns);
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < DOWN; i++) sum += thread_sums[i][of_block];
    return sum;
}
