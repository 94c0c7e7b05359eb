// A block's tile of a matrix product, SIDE x SIDE elements of C, one for each of its SIDE x SIDE
// threads.
//
// The block advances along k in steps of SIDE: its threads load one element of A and one of B each,
// and all read them from shared memory, each element SIDE times. Two barriers a step: all have
// loaded, all have read.
#pragma once
#include "common/product.cuh"

constexpr int THREADS = 16, SIDE = 16, STEP = 16;

__device__ __forceinline__ float element(const float* from) { return from ? *from : 0.0f; }

template <class Product>
__device__ __forceinline__ void multiply_tile(const Product& product) {
    // (SIDE, STEP + 1): a padding column, so that no two lanes are in one bank
    __shared__ float a_tile[SIDE][STEP + 1], b_tile[SIDE][STEP + 1];
    int first_m = blockIdx.x * SIDE, first_n = blockIdx.y * SIDE, x = threadIdx.x, y = threadIdx.y;
    float sum = 0.0f;
    for (int tap = product.first_tap(); tap < product.last_tap(); tap++)
        for (int k = product.first_k(); k < product.last_k(); k += STEP) {
            if (Product::A_ALONG_K)
                a_tile[y][x] = element(product.a(first_m + y, k + x, tap));
            else
                a_tile[x][y] = element(product.a(first_m + x, k + y, tap));
            if (Product::B_ALONG_K)
                b_tile[y][x] = element(product.b(first_n + y, k + x, tap));
            else
                b_tile[x][y] = element(product.b(first_n + x, k + y, tap));
            __syncthreads();
#pragma unroll
            for (int i = 0; i < STEP; i++) sum += multiply(a_tile[y][i], b_tile[x][i]);
            __syncthreads();
        }
    product.write(first_m + y, first_n + x, sum);
}
