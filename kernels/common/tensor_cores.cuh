// Products of small matrices by a warp's tensor cores (mma.sync) and the loads that feed them (ldmatrix); sm_80 and later.
//
//   ldmatrix(to, row)        to[i], i < 1, 2 or 4: this lane's two neighbours of the i-th 8x8 matrix of 16-bit numbers, at row
//                            lane / 4, columns 2 (lane % 4) and the next; `row`: where in shared memory the 16 bytes of row
//                            lane % 8 of matrix lane / 8 begin (lanes past the last matrix: any address)
//   ldmatrix_trans(to, row)  the same of the transposed matrices: rows 2 (lane % 4) and the next, column lane / 4
//   mma_bf16(c, a, b)        c (16x8, float32) += a (16x16, bfloat16) b (16x8, bfloat16)
//   mma_tf32(c, a, b)        c (16x8, float32) += a (16x8, TF32) b (8x8, TF32)
//   bf16x2(low, high)        two float32, rounded to nearest even, as two bfloat16 in one register
//   tf32(x)                  float32 rounded to TF32's 10 bits of mantissa; the 13 bits below are undefined
//
// With g = lane / 4 and q = lane % 4 a lane holds (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k8"):
//   c[0], c[1]   row g, columns 2q and 2q + 1; c[2], c[3]: row g + 8
//   bfloat16: a[0] row g, columns 2q, 2q + 1; a[1] row g + 8; a[2], a[3]: columns 8 further. b[0] rows 2q, 2q + 1 of column g;
//             b[1]: rows 8 further
//   TF32:     a[0] row g, column q; a[1] row g + 8; a[2], a[3]: column q + 4. b[0] row q of column g; b[1]: row q + 4
// The only file with these instructions; the test emulator supplies its own bodies.
#pragma once
#ifndef CUDA_EMULATOR
#if __CUDA_ARCH__ < 800
#error "tensor cores are used from sm_80 on"
#endif

template <bool transposed>
__device__ __forceinline__ void ldmatrix_lanes(unsigned (&to)[1], const void* row) {
    unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(to[0]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(to[0]) : "r"(from) : "memory");
}

template <bool transposed>
__device__ __forceinline__ void ldmatrix_lanes(unsigned (&to)[2], const void* row) {
    unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}

template <bool transposed>
__device__ __forceinline__ void ldmatrix_lanes(unsigned (&to)[4], const void* row) {
    unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ void mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ unsigned bf16x2(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ unsigned tf32(float x) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

#define ldmatrix(to, row) ldmatrix_lanes<false>(to, row)
#define ldmatrix_trans(to, row) ldmatrix_lanes<true>(to, row)
#endif
