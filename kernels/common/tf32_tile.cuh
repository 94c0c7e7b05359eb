// A block's tile of a matrix product (gemm_tile.cuh) by tensor cores: mma.m16n8k8 on TF32.
//
//   multiplier tf32   one product of the operands, rounded to TF32
//   exact             three: with x = big + small, big the TF32 nearest to x and small the TF32 nearest to the rest,
//                     x y is small big + big small + big big but for less than 2^-21 of it, added in this order (H. Ootomo and R.
//                     Yokota, "Recovering single precision accuracy from Tensor Cores", IJHPCA 36, 2022); an infinite x or y
//                     gives a NaN
//
// The operands lie in shared memory in float32, line by line for each k; a pitch of 8 modulo 32 words puts the 4 x 8 elements
// that a warp reads for a fragment into 32 different banks.
#pragma once
#include "common/gemm_tile.cuh"
#include "common/tensor_cores.cuh"
#include "common/warp_tile.cuh"

template <int m, int n, int m_warp, int n_warp>
struct Tf32Tile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    static constexpr int K = 8;
    static constexpr bool SPLIT = multipliers::IS_EXACT<multipliers::Chosen>;
    template <int lines, bool along_k>
    using Step = FloatStep<K, lines, 8, along_k>;

    // A fragment in registers: big[...] as mma takes it and, where a product is split, small[...].
    template <int words>
    struct Fragment {
        unsigned big[words], small[words];
        __device__ __forceinline__ void set(int word, float value) {
            big[word] = tf32(value);
            if constexpr (SPLIT) {
                float kept = __uint_as_float(big[word] & 0xffffe000u);
                small[word] = tf32(__fadd_rn(value, -kept));
            }
        }
    };

    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a_step, const B& b_step,
                                                    float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
        int k = threadIdx.x % 4, line = threadIdx.x % 32 / 4;
        Fragment<4> a[Warp::M_FRAGMENTS];
#pragma unroll
        for (int i = 0; i < Warp::M_FRAGMENTS; i++)
#pragma unroll
            for (int word = 0; word < 4; word++)
                a[i].set(word, a_step.at[k + word / 2 * 4][Warp::first_row() + line + 16 * i + word % 2 * 8]);
#pragma unroll
        for (int j = 0; j < Warp::N_FRAGMENTS; j++) {   // one fragment of B at a time: all of them would not fit the registers
            Fragment<2> b;
#pragma unroll
            for (int word = 0; word < 2; word++) b.set(word, b_step.at[k + word * 4][Warp::first_column() + line + 8 * j]);
#pragma unroll
            for (int i = 0; i < Warp::M_FRAGMENTS; i++)
                Warp::update(sum, i, j, [&](float (&c)[4]) {
                    if constexpr (SPLIT) {
                        mma_tf32(c, a[i].small, b.big);
                        mma_tf32(c, a[i].big, b.small);
                    }
                    mma_tf32(c, a[i].big, b.big);
                });
        }
    }
};
