// A block's tile of a matrix product (gemm_tile.cuh) by tensor cores: mma.m16n8k8 on TF32.
//
//   multiplier tf32   one product of the operands, rounded to TF32
//   exact             three: with x = big + small, big the TF32 nearest to x and small the TF32 nearest to the rest,
//                     x y is small big + big small + big big but for less than 2^-21 of it, added in this order (H. Ootomo and R.
//                     Yokota, "Recovering single precision accuracy from Tensor Cores", IJHPCA 36, 2022); an infinite x or y
//                     gives a NaN
//
// A warp computes M_WARP x N_WARP elements of C in fragments of 16 x 8 (tensor_cores.cuh). The operands lie in shared memory as
// for GemmTile, line by line along k; a pitch of 8 modulo 32 words puts a fragment's 4 x 8 elements into 32 different banks.
#pragma once
#include "common/gemm_tile.cuh"
#include "common/tensor_cores.cuh"

template <int m, int n, int m_warp, int n_warp>
struct TensorTile {
    static constexpr int M = m, N = n, K = 8, M_WARP = m_warp, N_WARP = n_warp;
    static constexpr int WARPS_ACROSS = N / N_WARP, THREADS = M / M_WARP * WARPS_ACROSS * 32;
    static constexpr int M_THREAD = M_WARP / 8, N_THREAD = N_WARP / 4, NEIGHBOURS = 2;
    static constexpr int M_PITCH = M + 8, N_PITCH = N + 8;
    static constexpr int BLOCKS = 512 / THREADS;   // per multiprocessor, for __launch_bounds__: at most 128 registers
    static constexpr bool SPLIT = multipliers::IS_EXACT<multipliers::Chosen>;
    static_assert(M % M_WARP == 0 && N % N_WARP == 0 && M_WARP % 16 == 0 && N_WARP % 8 == 0, "fragments must cover the tile");
    static_assert(M_PITCH % 32 == 8 && N_PITCH % 32 == 8, "the rows of a fragment would share banks");

    static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 / WARPS_ACROSS * M_WARP + threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ int first_column() { return threadIdx.x / 32 % WARPS_ACROSS * N_WARP; }
    static __device__ __forceinline__ int m_of(int i) { return first_row() + 8 * i; }
    static __device__ __forceinline__ int n_of(int j) { return first_column() + j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2; }

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

    static __device__ __forceinline__ void add_step(const float (&a_tile)[K][M_PITCH], const float (&b_tile)[K][N_PITCH],
                                                    float (&sum)[M_THREAD][N_THREAD]) {
        int k = threadIdx.x % 4, column = first_column() + threadIdx.x % 32 / 4;
        Fragment<4> a[M_WARP / 16];
#pragma unroll
        for (int i = 0; i < M_WARP / 16; i++)
#pragma unroll
            for (int word = 0; word < 4; word++)
                a[i].set(word, a_tile[k + word / 2 * 4][first_row() + 16 * i + word % 2 * 8]);
#pragma unroll
        for (int j = 0; j < N_WARP / 8; j++) {   // one fragment of B at a time: all of them would not fit the registers
            Fragment<2> b;
#pragma unroll
            for (int word = 0; word < 2; word++) b.set(word, b_tile[k + word * 4][column + 8 * j]);
#pragma unroll
            for (int i = 0; i < M_WARP / 16; i++) {
                float c[4] = {sum[2 * i][2 * j], sum[2 * i][2 * j + 1], sum[2 * i + 1][2 * j], sum[2 * i + 1][2 * j + 1]};
                if constexpr (SPLIT) {
                    mma_tf32(c, a[i].small, b.big);
                    mma_tf32(c, a[i].big, b.small);
                }
                mma_tf32(c, a[i].big, b.big);
                sum[2 * i][2 * j] = c[0], sum[2 * i][2 * j + 1] = c[1];
                sum[2 * i + 1][2 * j] = c[2], sum[2 * i + 1][2 * j + 1] = c[3];
            }
        }
    }
};
