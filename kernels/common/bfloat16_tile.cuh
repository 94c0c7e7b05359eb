// A block's tile of a matrix product (gemm_tile.cuh) by tensor cores: mma.m16n8k16 on bfloat16.
//
// The operands are rounded to bfloat16, half of float32's bytes, when they are written to shared memory. They keep the order in
// which they were read: a row has the values of k of a line (along_k), or the lines of a k. ldmatrix reads the fragments, and
// transposes those of the second kind. A row is 16 bytes longer than its numbers, so that the eight rows of a matrix are in
// different banks.
#pragma once
#include "common/gemm_tile.cuh"
#include "common/tensor_cores.cuh"
#include "common/warp_tile.cuh"

// One step of an operand in shared memory.
template <int k, int lines, bool along_k>
struct Bfloat16Step {
    static constexpr int ROWS = along_k ? lines : k, PITCH = (along_k ? k : lines) + 8;
    unsigned short at[ROWS][PITCH];

    static __device__ __forceinline__ int row(int line, int k_of) { return along_k ? line : k_of; }
    static __device__ __forceinline__ int column(int line, int k_of) { return along_k ? k_of : line; }
    __device__ __forceinline__ void store(int line, int first_k, const float (&quad)[4]) {
        *reinterpret_cast<uint2*>(&at[row(line, first_k)][column(line, first_k)]) =
            make_uint2(bf16x2(quad[0], quad[1]), bf16x2(quad[2], quad[3]));
    }
    // Loads a fragment, four 8 x 8 matrices. ldmatrix takes the address of one row of one of them from each lane: line and
    // first_k are where that matrix begins.
    __device__ __forceinline__ void load(unsigned (&to)[4], int line, int first_k) const {
        const unsigned short* from = &at[row(line, first_k) + threadIdx.x % 8][column(line, first_k)];
        if constexpr (along_k)
            ldmatrix(to, from);
        else
            ldmatrix_trans(to, from);
    }
};

template <int m, int n, int m_warp, int n_warp>
struct Bfloat16Tile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    static constexpr int K = 16;
    template <int lines, bool along_k>
    using Step = Bfloat16Step<K, lines, along_k>;

    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a_step, const B& b_step,
                                                    float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
        int low = threadIdx.x % 16 / 8 * 8, high = threadIdx.x % 32 / 16 * 8;   // 0 or 8, by the lane's matrix
        unsigned a[Warp::M_FRAGMENTS][4];
#pragma unroll
        for (int i = 0; i < Warp::M_FRAGMENTS; i++) a_step.load(a[i], Warp::first_row() + 16 * i + low, high);
#pragma unroll
        for (int j = 0; j < Warp::N_FRAGMENTS; j += 2) {
            unsigned both[4];   // fragments j and j + 1
            b_step.load(both, Warp::first_column() + 8 * j + high, low);
            unsigned b[2][2] = {{both[0], both[1]}, {both[2], both[3]}};
#pragma unroll
            for (int i = 0; i < 2 * Warp::M_FRAGMENTS; i++)
                Warp::update(sum, i / 2, j + i % 2, [&](float (&c)[4]) { mma_bf16(c, a[i / 2], b[i % 2]); });
        }
    }
};
