// Sums of the rows of totals that a gradient's copy comes with (copies.cuh, round.cu).
#pragma once

// Of column `first` + threadIdx.x, for the first `across` threads of a block of 16 `across`: a thread adds every 16th row, and
// then one a column the 16 sums, in order. The other threads get the same, or of a column beyond the last one anything.
template <int across>
__device__ __forceinline__ float sum_of_rows(const float* __restrict__ totals, int first, int columns, int rows) {
    constexpr int DOWN = 16;
    __shared__ float held[DOWN][across];
    int of_block = threadIdx.x % across, column = first + of_block;
    float sum = 0.0f;
    if (column < columns)
#pragma unroll 8
        for (int row = threadIdx.x / across; row < rows; row += DOWN) sum += totals[row * columns + column];
    held[threadIdx.x / across][of_block] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < DOWN; i++) sum += held[i][of_block];
    return sum;
}
