// What tensor cores compute and the asynchronous copies that feed them, from sm_80 on, in float16
// from sm_75 on.
//
//   cp_async(16, shared, global, valid)   copy 4 or 16 bytes (cp.async), both ends aligned to that;
//                                         zeros where !valid, and then `global` is not read, but
//                                         must not be a wild pointer either
//   cp_async_commit()        close the group of the copies issued since the last commit
//   cp_async_wait<n>()       wait until at most n of this thread's groups are in flight; the other
//                            threads see the data after the next __syncthreads
//   mma_bf16(c, a, b)        c (16x8, float32) += a (16x16, bfloat16) b (16x8, bfloat16); mma_f16:
//                            the same in float16
//   mma_tf32(c, a, b)        c (16x8, float32) += a (16x8, TF32) b (8x8, TF32)
//
// With g = lane / 4 and q = lane % 4 a lane holds (PTX ISA, "Matrix Fragments for mma.m16n8k16" and
// "... mma.m16n8k8"):
//   c[0], c[1]   row g, columns 2q and 2q + 1; c[2], c[3]: row g + 8
//   16 bits:  a[0] row g, columns 2q, 2q + 1; a[1] row g + 8; a[2], a[3]: columns 8 further. b[0]
//             rows 2q, 2q + 1 of column g; b[1]: rows 8 further
//   TF32:     a[0] row g, column q; a[1] row g + 8; a[2], a[3]: column q + 4. b[0] row q of column
//             g; b[1]: row q + 4
// Turing (sm_75) has no cp.async, and multiplies 16x8 by 8x8 numbers at once.
//
// The only file with these instructions; the test emulator supplies its own bodies.
//
// Macro MULTIPLIER: what tensor cores multiply (packed.cuh, conv2d_gemm.cuh); a product of float32
// is made of three of TF32.
#pragma once
#include "common/packed.cuh"
#include "common/warp_tile.cuh"

#ifndef CUDA_EMULATOR
#ifndef TURING
template <int bytes>
__device__ __forceinline__ void cp_async_bytes(void* shared, const void* global, bool valid) {
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    int from_global = valid ? bytes : 0;
    if constexpr (bytes == 16)  // .cg: past the L1, which has no second reader for it
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                     "r"(from_global)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(global),
                     "r"(from_global), "n"(bytes)
                     : "memory");
}
#define cp_async(bytes, shared, global, valid) cp_async_bytes<bytes>(shared, global, valid)

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}
#endif

__device__ __forceinline__ void mma_bf16(float (&c)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#ifdef TURING
__device__ __forceinline__ void mma_f16_k8(float (&c)[4], const unsigned (&a)[2], unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
#else
__device__ __forceinline__ void mma_f16(float (&c)[4], const unsigned (&a)[4],
                                        const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ __forceinline__ void mma_tf32(float (&c)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#ifdef TURING
// Copied when it returns, so that nothing is left to wait for.
__device__ __forceinline__ void cp_async(int, void* shared, const void* global, bool valid) {
    *static_cast<uint4*>(shared) =
        valid ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void cp_async_commit() {}
template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {}

__device__ __forceinline__ void mma_f16(float (&c)[4], const unsigned (&a)[4],
                                        const unsigned (&b)[2]) {
    unsigned first[2] = {a[0], a[1]}, second[2] = {a[2], a[3]};
    mma_f16_k8(c, first, b[0]);
    mma_f16_k8(c, second, b[1]);
}
#endif

__device__ __forceinline__ void mma_packed(float (&c)[4], const unsigned (&a)[4],
                                           const unsigned (&b)[2]) {
    IN_WORDS ? mma_tf32(c, a, b) : FLOAT16 ? mma_f16(c, a, b) : mma_bf16(c, a, b);
}

// A float32 as the sum of two TF32: x = big + small, where big is the nearest to x. A product x y
// is small big + big small + big big, added in this order, but for at most 2^-21 of it (H. Ootomo
// and R. Yokota, "Recovering single precision accuracy from Tensor Cores", IJHPCA 36, 2022). An
// infinite x or y gives a NaN. big_part is tf32() for finite values, in a third of its
// instructions.
__device__ __forceinline__ unsigned big_part(unsigned x) {
    constexpr unsigned HALF = 1u << 12;  // of the last bit that tensor cores read of a float32
    return (x + HALF) & ~(2 * HALF - 1);
}
// The low 13 bits stay. PTX leaves open what mma makes of them. GPUs so far ignore them; the
// product is as exact as said above then, and no less exact if they are read. A NaN stays.
__device__ __forceinline__ unsigned small_part(unsigned x) {
    return __float_as_uint(__fadd_rn(__uint_as_float(x), -__uint_as_float(big_part(x))));
}

// A fragment of packed numbers as mma takes it. Of float32 it has both parts; otherwise big is all.
template <int words>
struct PackedFragment {
    unsigned big[words], small[words];

    template <class... Numbers>
    __device__ __forceinline__ explicit PackedFragment(Numbers... numbers)
        : big{(FLOAT32 ? big_part(numbers) : numbers)...},
          small{(FLOAT32 ? small_part(numbers) : 0)...} {}
};

__device__ __forceinline__ void mma_packed(float (&c)[4], const PackedFragment<4>& a,
                                           const PackedFragment<2>& b) {
    if constexpr (FLOAT32) {
        mma_packed(c, a.small, b.big);
        mma_packed(c, a.big, b.small);
    }
    mma_packed(c, a.big, b.big);
}

// Makes the compiler keep an address in a register, where it would compute it again in every step.
__device__ __forceinline__ void keep_in_register(int& address) { asm volatile("" : "+r"(address)); }

// The loop over steps, each of which passes through one of STAGES stages of shared memory, of BYTES
// bytes. copy(stage) starts this thread's copies of a step; multiply(stage) is called when those of
// all threads have arrived. The launch gives the block STAGES * BYTES bytes of dynamic shared
// memory.
template <int STAGES, int BYTES, class Copy, class Multiply>
__device__ __forceinline__ void in_stages(int steps, Copy copy, Multiply multiply) {
    DYNAMIC_SHARED(unsigned char, shared);
    auto start = [&](int step, int stage) {
        if (step < steps) copy(shared + stage * BYTES);
        cp_async_commit();
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) start(stage, stage);
    for (int first = 0; first < steps; first += STAGES) {
        // Unrolled, so that a stage's addresses are constants.
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            if (first + stage >= steps) break;
            // One stage has no room for copies while it is multiplied.
            if (STAGES == 1) __syncthreads(), start(first, 0);
            cp_async_wait<STAGES == 1 ? 0 : STAGES - 2>();
            __syncthreads();
            if (STAGES > 1) start(first + stage + STAGES - 1, (stage + STAGES - 1) % STAGES);
            multiply(shared + stage * BYTES);
        }
    }
}
