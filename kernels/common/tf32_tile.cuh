// A block's tile of a matrix product (gemm_tile.cuh) by tensor cores: mma.m16n8k8 on TF32.
//
//   multiplier tf32   one product of the operands, rounded to TF32
//   exact             three: with x = big + small, big the TF32 nearest to x and small the rest, of which tensor cores ignore
//                     the bits beyond TF32's, x y is small big + big small + big big but for at most 2^-21 of it, added in
//                     this order (H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores", IJHPCA 36,
//                     2022); an infinite x or y gives a NaN
//
// The operands lie in shared memory in float32, as they were copied (copied_tile.cuh), in the order in which they are read: the
// values of k of a line side by side, where ldmatrix reads four 8 x 4 matrices at a time and a pitch of 4 modulo 16 words puts
// the eight rows of a matrix into different banks; or the lines of a k, where 8 modulo 32 words do so with the 4 x 8 elements
// that a warp reads for a fragment. A step is several products long: more of a line of memory at once, and few addresses for
// each.
#pragma once
#include "common/gemm_tile.cuh"
#include "common/tensor_cores.cuh"
#include "common/warp_tile.cuh"

// One step of an operand in shared memory.
template <int k, int lines, bool along_k>
struct Tf32Step {
    static constexpr int ROWS = along_k ? lines : k, PITCH = along_k ? k + 4 : lines + 8;
    __align__(16) float at[ROWS][PITCH];

    __device__ __forceinline__ float* place(int line, int k_of) { return along_k ? &at[line][k_of] : &at[k_of][line]; }
    __device__ __forceinline__ const float* place(int line, int k_of) const {
        return along_k ? &at[line][k_of] : &at[k_of][line];
    }
    // Of 16 lines and 8 values of k from these on, this lane's element of four 8 x 4 matrices: the first lines and the last of
    // the first values of k, then those of the last.
    __device__ __forceinline__ void load(float (&words)[4], int line, int first_k) const {
        if constexpr (along_k) {
            unsigned loaded[4];
            ldmatrix(loaded, &at[line + threadIdx.x % 16][first_k + threadIdx.x % 32 / 16 * 4]);
#pragma unroll
            for (int word = 0; word < 4; word++) words[word] = __uint_as_float(loaded[word]);
        } else {
#pragma unroll
            for (int word = 0; word < 4; word++)
                words[word] = at[first_k + threadIdx.x % 4 + word / 2 * 4][line + threadIdx.x % 32 / 4 + word % 2 * 8];
        }
    }
};

template <int m, int n, int m_warp, int n_warp>
struct Tf32Tile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    static constexpr bool SPLIT = multipliers::IS_EXACT<multipliers::Chosen>;
    static constexpr int K = SPLIT ? 16 : 32, STAGES = 2;   // the small parts leave no registers for a longer step's addresses
    template <int lines, bool along_k>
    using Step = Tf32Step<K, lines, along_k>;

    static constexpr unsigned HALF = 1u << 12;   // of the last bit that tensor cores read of a float32
    // A fragment in registers: big[...] as mma takes it and, where a product is split, small[...].
    template <int words>
    struct Fragment {
        unsigned big[words], small[words];
        __device__ __forceinline__ void set(int word, float value) {
            if constexpr (SPLIT) {   // as tf32() for finite values, in a third of its instructions; the small part keeps a NaN
                big[word] = (__float_as_uint(value) + HALF) & ~(2 * HALF - 1);
                // The small part's low 13 bits stay, and PTX leaves open what mma makes of them: the product is as exact as said
                // above if they are ignored, as by GPUs so far, and no less so if they are read.
                small[word] = __float_as_uint(__fadd_rn(value, -__uint_as_float(big[word])));
            } else
                big[word] = tf32(value);
        }
    };

    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a_step, const B& b_step,
                                                    float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
#pragma unroll
        for (int k = 0; k < K; k += 8) {
            Fragment<4> a[Warp::M_FRAGMENTS];
#pragma unroll
            for (int i = 0; i < Warp::M_FRAGMENTS; i++) {
                float words[4];
                a_step.load(words, Warp::first_row() + 16 * i, k);
#pragma unroll
                for (int word = 0; word < 4; word++) a[i].set(word, words[word]);
            }
#pragma unroll
            for (int j = 0; j < Warp::N_FRAGMENTS; j += 2) {   // two fragments of B at a time: all would not fit the registers
                float words[4];
                b_step.load(words, Warp::first_column() + 8 * j, k);
                Fragment<2> b[2];
#pragma unroll
                for (int word = 0; word < 4; word++) b[word % 2].set(word / 2, words[word]);
#pragma unroll
                for (int i = 0; i < 2 * Warp::M_FRAGMENTS; i++)
                    Warp::update(sum, i / 2, j + i % 2, [&](float (&c)[4]) {
                        if constexpr (SPLIT) {
                            mma_tf32(c, a[i / 2].small, b[i % 2].big);
                            mma_tf32(c, a[i / 2].big, b[i % 2].small);
                        }
                        mma_tf32(c, a[i / 2].big, b[i % 2].big);
                    });
            }
        }
    }
};
