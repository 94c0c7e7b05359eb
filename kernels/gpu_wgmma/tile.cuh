// A block's tile of a matrix product, SIDE x SIDE elements of C, by Hopper's wgmma: 128 threads, the
// producer, fill shared memory, and 128, the consumer, multiply from it.
//
// Two stages of shared memory take turns. Each has a full barrier, for when the producer has stored
// a step, and an empty barrier, for when the consumer has read it. They wait for each other at
// these alone, and there is no barrier of the whole block in the loop.
//
// Elements are rounded to bfloat16 on the way. A row of a stage has STEP of them along k, 128 bytes,
// whose chunks of 16 bytes are swizzled (common/packed.cuh), as wgmma reads them. It takes B from
// shared memory, by a descriptor, and A from registers. The instructions: gpu_bf16_sm90/hopper.cuh.
#pragma once
#include "gpu_bf16_sm90/hopper.cuh"

constexpr int THREADS = 16, SIDE = 64, STEP = CHANNEL_BLOCK, STAGES = 2, WARPGROUP = 128;

struct Stage {
    unsigned char a[SIDE * ROW], b[SIDE * ROW];
};

// The chunks of an operand that one thread of the producer rounds and stores: CHUNK values of k of a
// line. element(line, k): the address of an element of the step, or null.
template <bool along_k, class Element>
__device__ __forceinline__ void store_operand(unsigned char* to, int thread, Element element) {
#pragma unroll
    for (int i = thread; i < SIDE * CHUNKS; i += WARPGROUP) {
        // neighbouring threads load neighbouring elements
        int line = along_k ? i / CHUNKS : i % SIDE, chunk = along_k ? i % CHUNKS : i / SIDE;
        float numbers[CHUNK];
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
            const float* from = element(line, chunk * CHUNK + e);
            numbers[e] = from ? *from : 0.0f;
        }
        *reinterpret_cast<uint4*>(to + swizzled(line, chunk)) = rounded_chunk(numbers);
    }
}

// c (64 x 64) += a (64 x STEP) b (64 x STEP) of a stage.
__device__ __forceinline__ void multiply_step(float (&c)[32], const Stage& stage, int thread) {
    Descriptor b = matrix_descriptor(stage.b, 0, 8 * ROW);
#pragma unroll
    for (int k = 0; k < STEP / MMA_K; k++) {
        unsigned a[4];
        ldmatrix(a, stage.a + swizzled(thread / 32 * 16 + thread % 16, 2 * k + thread % 32 / 16));
        wgmma_fence();
        wgmma<0>(c, a, moved(b, k * MMA_K * PACKED_BYTES));
        wgmma_commit();
        wgmma_wait<0>();
        fence_accumulators(c);
    }
}

template <class Product>
__device__ __forceinline__ void multiply_tile(const Product& product) {
    __shared__ __align__(1024) Stage stages[STAGES];
    __shared__ Barrier full[STAGES], empty[STAGES];
    int first_m = blockIdx.x * SIDE, first_n = blockIdx.y * SIDE;
    int thread = threadIdx.y * THREADS + threadIdx.x;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; stage++)
            barrier_init(full + stage, WARPGROUP), barrier_init(empty + stage, WARPGROUP);
        barriers_visible();
    }
    __syncthreads();
    bool is_producer = thread >= WARPGROUP;
    float sum[32] = {};  // the consumer's accumulators: of a warp 16 x 64
    int step = 0;
    for (int tap = product.first_tap(); tap < product.last_tap(); tap++)
        for (int k = product.first_k(); k < product.last_k(); k += STEP, step++) {
            int at = step % STAGES;
            unsigned parity = step / STAGES % 2;  // of the phase in which the stage is filled
            Stage& stage = stages[at];
            if (is_producer) {
                barrier_wait(empty + at, parity ^ 1);  // at once in the first round
                store_operand<Product::A_ALONG_K>(
                    stage.a, thread - WARPGROUP,
                    [&](int line, int e) { return product.a(first_m + line, k + e, tap); });
                store_operand<Product::B_ALONG_K>(
                    stage.b, thread - WARPGROUP,
                    [&](int line, int e) { return product.b(first_n + line, k + e, tap); });
                async_proxy_fence();  // wgmma reads b by the asynchronous proxy
                barrier_arrive(full + at);
            } else {
                barrier_wait(full + at, parity);
                multiply_step(sum, stage, thread);
                barrier_arrive(empty + at);
            }
        }
    if (is_producer) return;
    int row = first_m + thread / 4 % 8 + thread / 32 * 16, column = first_n + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; i++)
        product.write(row + i / 2 % 2 * 8, column + i / 4 * 8 + i % 2, sum[i]);
}
