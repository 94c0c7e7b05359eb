// A block's tile of a matrix product, SIDE x SIDE elements of C, WARP_M x WARP_N of them for each of
// its eight warps, by tensor cores.
//
// The block advances along k in steps of STEP, as gpu_registers does. Elements are rounded to TF32
// when they are stored to shared memory. One instruction (mma.sync) of a warp adds 16 x 8 x 8
// products: 1024 for 2 words of A and 1 of B that a thread reads, where gpu_registers reads 8 words
// for 16.
//
// Which elements of A, B and C a lane holds: common/tensor_cores.cuh.
#pragma once
#include "common/tensor_cores.cuh"

constexpr int THREADS = 16, SIDE = 64, STEP = 16;
constexpr int WARP_M = 16, WARP_N = 32, FRAGMENTS = WARP_N / 8;
// Of a row in shared memory. A warp reads 8 rows of 4 words at a time, and this puts them into
// different banks.
constexpr int PITCH = STEP + 4;

#include "gpu_mma/lines.cuh"

__device__ __forceinline__ unsigned rounded_element(const float* from) {
    return tf32(from ? *from : 0.0f);
}

// c (16 x 32 of a warp) += a (16 x STEP) b (32 x STEP), where these rows begin; g, q: see above.
__device__ __forceinline__ void multiply_step(float (&c)[FRAGMENTS][4], const unsigned (*a)[PITCH],
                                              const unsigned (*b)[PITCH], int g, int q) {
#pragma unroll
    for (int k = q; k < STEP + q; k += 8) {
        unsigned a_fragment[4] = {a[g][k], a[g + 8][k], a[g][k + 4], a[g + 8][k + 4]};
#pragma unroll
        for (int j = 0; j < FRAGMENTS; j++) {
            unsigned b_fragment[2] = {b[8 * j + g][k], b[8 * j + g][k + 4]};
            mma_tf32(c[j], a_fragment, b_fragment);
        }
    }
}

template <class Product>
__device__ __forceinline__ void multiply_tile(const Product& product) {
    __shared__ unsigned a_tile[SIDE][PITCH], b_tile[SIDE][PITCH];
    int first_m = blockIdx.x * SIDE, first_n = blockIdx.y * SIDE;
    int thread = threadIdx.y * THREADS + threadIdx.x, warp = thread / 32, g = thread % 32 / 4,
        q = thread % 4;
    int warp_m = warp / 2 * WARP_M, warp_n = warp % 2 * WARP_N;
    float sum[FRAGMENTS][4] = {};  // accumulators of four fragments of 16 x 8
    int first_k = product.first_k(), last_k = product.last_k();
    Lines<Product::A_ALONG_K> a{{}, first_k, last_k};
    Lines<Product::B_ALONG_K> b{{}, first_k, last_k};
    for (int tap = product.first_tap(); tap < product.last_tap(); tap++) {
        auto in_a = [&](int line, int k) { return product.a(first_m + line, k, tap); };
        auto in_b = [&](int line, int k) { return product.b(first_n + line, k, tap); };
        a.begin(in_a), b.begin(in_b);
        for (int k = first_k; k < last_k; k += STEP) {
#pragma unroll
            for (int i = 0; i < SIDE / THREADS; i++) {
                a_tile[a.line(i)][a.place()] = rounded_element(a.at(i, k, in_a));
                b_tile[b.line(i)][b.place()] = rounded_element(b.at(i, k, in_b));
            }
            __syncthreads();
            multiply_step(sum, a_tile + warp_m, b_tile + warp_n, g, q);
            __syncthreads();
        }
    }
#pragma unroll
    for (int j = 0; j < FRAGMENTS; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            product.write(first_m + warp_m + g + i / 2 * 8,
                          first_n + warp_n + 8 * j + 2 * q + i % 2, sum[j][i]);
}
