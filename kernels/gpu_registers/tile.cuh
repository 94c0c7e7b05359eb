// A block's tile of a matrix product, SIDE x SIDE elements of C, EACH x EACH of them for each of
// its THREADS x THREADS threads.
//
// The block advances along k in steps of STEP. A thread reads EACH elements of A and EACH of B from
// shared memory for EACH x EACH products, which it adds up in registers.
#pragma once
#include "common/product.cuh"

constexpr int THREADS = 16, EACH = 4, SIDE = THREADS * EACH, STEP = 16;
// With exact products the compiler would take 64 registers for 4 blocks, and spill.
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1302 && __CUDA_ARCH__ >= 1000 && \
    !defined(MULTIPLIER)
#define BLOCKS_AT_ONCE 3
#endif

__device__ __forceinline__ float element(const float* from) { return from ? *from : 0.0f; }

template <class Product>
__device__ __forceinline__ void multiply_tile(const Product& product) {
    // (SIDE, STEP + 1): a padding column, so that no two lanes are in one bank
    __shared__ float a_tile[SIDE][STEP + 1], b_tile[SIDE][STEP + 1];
    int first_m = blockIdx.x * SIDE, first_n = blockIdx.y * SIDE, x = threadIdx.x, y = threadIdx.y;
    float sum[EACH][EACH] = {};  // accumulators, (EACH, EACH)
    for (int tap = product.first_tap(); tap < product.last_tap(); tap++)
        for (int k = product.first_k(); k < product.last_k(); k += STEP) {
#pragma unroll
            for (int r = 0; r < SIDE; r += THREADS) {
                if (Product::A_ALONG_K)
                    a_tile[r + y][x] = element(product.a(first_m + r + y, k + x, tap));
                else
                    a_tile[r + x][y] = element(product.a(first_m + r + x, k + y, tap));
                if (Product::B_ALONG_K)
                    b_tile[r + y][x] = element(product.b(first_n + r + y, k + x, tap));
                else
                    b_tile[r + x][y] = element(product.b(first_n + r + x, k + y, tap));
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                float a[EACH], b[EACH];
#pragma unroll
                for (int r = 0; r < EACH; r++)
                    a[r] = a_tile[r * THREADS + y][i], b[r] = b_tile[r * THREADS + x][i];
#pragma unroll
                for (int r = 0; r < EACH; r++)
#pragma unroll
                    for (int s = 0; s < EACH; s++) sum[r][s] += multiply(a[r], b[s]);
            }
            __syncthreads();
        }
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int s = 0; s < EACH; s++)
            product.write(first_m + r * THREADS + y, first_n + s * THREADS + x, sum[r][s]);
}
