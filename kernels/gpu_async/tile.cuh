// A block's tile of a matrix product, as gpu_mma's, whose next step is copied while this one is
// multiplied.
//
// cp.async copies from global to shared memory without passing registers, and the thread goes on.
// Two stages of shared memory take turns (a software pipeline): one is multiplied, one is filled.
// Elements arrive as they are, so a warp rounds them when it reads them.
//
// Which elements of A, B and C a lane holds: common/tensor_cores.cuh.
#pragma once
#include "common/tensor_cores.cuh"

constexpr int THREADS = 16, SIDE = 64, STEP = 16;
constexpr int WARP_M = 16, WARP_N = 32, FRAGMENTS = WARP_N / 8;
constexpr int PITCH = STEP + 4;  // as in gpu_mma
// The compiler would take 64 registers for 4 blocks, and spill.
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1302 && __CUDA_ARCH__ >= 1000
#define BLOCKS_AT_ONCE 3
#endif

#include "gpu_mma/lines.cuh"

struct Stage {
    float a[SIDE][PITCH], b[SIDE][PITCH];
};

// Begins the copy of an element; what lies outside is 0 at once.
__device__ __forceinline__ void copy(float& to, const float* from) {
    if (from)
        cp_async(4, &to, from, true);
    else
        to = 0.0f;
}

// As in gpu_mma.
__device__ __forceinline__ void multiply_step(float (&c)[FRAGMENTS][4], const float (*a)[PITCH],
                                              const float (*b)[PITCH], int g, int q) {
#pragma unroll
    for (int k = q; k < STEP + q; k += 8) {
        unsigned a_fragment[4] = {tf32(a[g][k]), tf32(a[g + 8][k]), tf32(a[g][k + 4]),
                                  tf32(a[g + 8][k + 4])};
#pragma unroll
        for (int j = 0; j < FRAGMENTS; j++) {
            unsigned b_fragment[2] = {tf32(b[8 * j + g][k]), tf32(b[8 * j + g][k + 4])};
            mma_tf32(c[j], a_fragment, b_fragment);
        }
    }
}

template <class Product>
__device__ __forceinline__ void multiply_tile(const Product& product) {
    __shared__ Stage stages[2];
    int thread = threadIdx.y * THREADS + threadIdx.x, warp = thread / 32, g = thread % 32 / 4,
        q = thread % 4;
    int warp_m = warp / 2 * WARP_M, warp_n = warp % 2 * WARP_N;
    int first_m = blockIdx.x * SIDE, first_n = blockIdx.y * SIDE;
    int first_k = product.first_k(), last_k = product.last_k();
    Lines<Product::A_ALONG_K> a{{}, first_k, last_k};
    Lines<Product::B_ALONG_K> b{{}, first_k, last_k};
    float sum[FRAGMENTS][4] = {};  // accumulators of four fragments of 16 x 8
    for (int tap = product.first_tap(); tap < product.last_tap(); tap++) {
        auto in_a = [&](int line, int k) { return product.a(first_m + line, k, tap); };
        auto in_b = [&](int line, int k) { return product.b(first_n + line, k, tap); };
        a.begin(in_a), b.begin(in_b);
        // Before its first step there is nothing to multiply, and behind its last nothing to copy.
        for (int next = first_k, stage = 0; next < last_k + STEP; next += STEP, stage ^= 1) {
#pragma unroll
            for (int i = 0; next < last_k && i < SIDE / THREADS; i++) {
                copy(stages[stage].a[a.line(i)][a.place()], a.at(i, next, in_a));
                copy(stages[stage].b[b.line(i)][b.place()], b.at(i, next, in_b));
            }
            cp_async_commit();  // a group for each step, also an empty one: the wait counts them
            if (next == first_k) continue;
            cp_async_wait<1>();  // this thread's copies of the step before have arrived
            __syncthreads();     // those of all threads
            const Stage& arrived = stages[stage ^ 1];
            multiply_step(sum, arrived.a + warp_m, arrived.b + warp_n, g, q);
            __syncthreads();  // all have read the stage, which is filled next
        }
    }
#pragma unroll
    for (int j = 0; j < FRAGMENTS; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            product.write(first_m + warp_m + g + i / 2 * 8,
                          first_n + warp_n + 8 * j + 2 * q + i % 2, sum[j][i]);
}
