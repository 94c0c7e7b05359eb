// A block's tile of products of packed operands, which pass through stages of shared memory.
//
// The operands lie as they are multiplied in global memory, so that cp.async copies them to shared
// memory without passing registers, 16 bytes at a time. STAGES steps of K are in shared memory:
// while the warps multiply one, the copies of the next are under way. One barrier a step is enough:
// the stage that a step's copies go to was multiplied before the barrier.
//
// An address that changes from step to step is kept and moved on, not computed again, so that the
// loop does little beside products, loads of fragments and copies.
//
// Macros:
//   MULTIPLIER       tf32 (gpu_tf32), float32 (gpu_3xtf32_packed) or float16 (gpu_f16): what is
//                    packed, in place of bfloat16 (gpu_bf16). Lengths that these files give are of
//                    16 bits: of TF32 and float32 a row of shared memory has 32 numbers, not 64, a
//                    product's k is 8, not 16, and channels are a multiple of 4, not 8
//                    (common/packed.cuh)
//   TILE_M, TILE_N   lines and columns of a block, of C; WARP_M, WARP_N: those of a warp
//   WHOLE            1: 64 divides the length along which k steps: the channels, or a weight
//                    gradient's pixels; 0: it does not
//   DEPTHS           products of an mma to each sum in the only step of few channels; not defined:
//                    all of a step, and steps
#pragma once
#include "common/tensor_cores.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define WARP_M 64
#define WARP_N 64
#define WHOLE 1
#endif

constexpr int K = CHANNEL_BLOCK;  // of a step: a row in shared memory

// Warps share out the products of a tile, but for those of 64 x 64, of which each has all, for a
// quarter of every step: of what a step copies each reads only that quarter, in place of a half by
// four warps of 32 x 32.
constexpr bool BY_K = TILE_M == 64 && TILE_N == 64;
#ifndef DEPTHS
#define DEPTHS (BY_K ? 1 : K / DEPTH)
#endif
constexpr bool ALL_CHUNKS = BY_K || DEPTHS == K / DEPTH;  // of a row are read
__device__ __forceinline__ int step_of_warp() { return BY_K ? threadIdx.x / 32 : 0; }

// A row of shared memory is a line, with its chunks along k.
template <int lines>
struct RowsOfLines {
    static constexpr int BYTES = lines * ROW;
    static constexpr bool TRANSPOSED = false;
    static __device__ __forceinline__ int chunk_at(int row, int chunk) {
        return swizzled(row, chunk);
    }
    static __device__ __forceinline__ int place(int line, int k) {
        return chunk_at(line, k / CHUNK);
    }
};

// The part of four that this lane's address is of, as ldmatrix takes them, by 1 and by 2.
__device__ __forceinline__ int odd_part() { return threadIdx.x % 16 / 8; }
__device__ __forceinline__ int late_part() { return threadIdx.x % 32 / 16; }

// Where in shared memory this lane's row of each of a warp's fragments begins. A fragment is four
// matrices of 8 lines by a chunk along k, and ldmatrix takes the address of one row of one of them
// from each lane. Those of A, 16 x DEPTH, come by lines, those of B, of which `a` is false, are two
// of 8 lines and come by k.
template <class Panel, bool a, bool words = IN_WORDS && Panel::TRANSPOSED>
struct Fragments {
    // Different ones, by the k within a step, or by the fragment where rows are k.
    static constexpr int SWIZZLES = BY_K && !Panel::TRANSPOSED ? 1 : 4;
    int at[SWIZZLES];

    __device__ __forceinline__ Fragments(int panel, int first_line) {
        int line = first_line + 8 * (a ? odd_part() : late_part()), in_matrix = threadIdx.x % 8;
        int k = CHUNK * (a ? late_part() : odd_part()) + DEPTH * step_of_warp();
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++)
            at[s] = panel + (Panel::TRANSPOSED ? Panel::place(line + 16 * s, k + in_matrix)
                                               : Panel::place(line + in_matrix, k + DEPTH * s));
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++) keep(at[s]);
    }
    // Of fragment i, which begins 16 i lines further, for k from DEPTH step on.
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
        if constexpr (Panel::TRANSPOSED)
            ldmatrix_trans(to, shared + at[i] + step * DEPTH * ROW);
        else
            ldmatrix(to, shared + at[step] + i * 16 * ROW);
    }
};

// Numbers of 32 bits, which ldmatrix cannot transpose, are read one by one where rows are k: of
// each matrix line lane / 4 and k lane % 4. The numbers of a matrix are in all banks once.
template <class Panel, bool a>
struct Fragments<Panel, a, true> {
    int at[4];  // of a slice's lines from 0, 8, 16 and 24 on

    __device__ __forceinline__ Fragments(int panel, int first_line) {
        int line = first_line + threadIdx.x % 32 / 4;
#pragma unroll
        for (int s = 0; s < 4; s++) {
            at[s] = panel + Panel::place(line + 8 * s, threadIdx.x % 4 + DEPTH * step_of_warp()) +
                    line % CHUNK * PACKED_BYTES;
            keep(at[s]);
        }
    }
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
#pragma unroll
        for (int part = 0; part < 4; part++) {
            int lines = a ? part % 2 : part / 2,
                k = step * DEPTH + CHUNK * (a ? part / 2 : part % 2);
            to[part] = *reinterpret_cast<const unsigned*>(shared + at[i % 2 * 2 + lines] +
                                                          (i / 2 * K + k) * ROW);
        }
    }
};

template <int m, int n, int m_warp, int n_warp, int stages>
struct StagedTile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    using Multiplied = WarpTile<m, n, BY_K ? m : m_warp, BY_K ? n : n_warp>;  // by a warp
    using Sums = float[Multiplied::M_THREAD][Multiplied::N_THREAD];
    static constexpr int STAGES = stages;
    // of shared memory that a pass of copies fills, a thread 16 bytes
    static constexpr int ROWS = Warp::THREADS / CHUNKS;
    static __device__ __forceinline__ int chunk() { return threadIdx.x % CHUNKS; }
    static __device__ __forceinline__ int row(int pass) {
        return threadIdx.x / CHUNKS + pass * ROWS;
    }
    // this thread's chunk
    static __device__ __forceinline__ bool is_read() { return ALL_CHUNKS || chunk() < 2 * DEPTHS; }

    // sum += the products of one step, whose fragments begin at a_from and b_from.
    template <class A, class B>
    static __device__ __forceinline__ void add_step(const unsigned char* a_from, const A& a_at,
                                                    const unsigned char* b_from, const B& b_at,
                                                    Sums& sum) {
        using W = Multiplied;
#pragma unroll
        for (int step = 0; step < DEPTHS; step++) {
            unsigned a[W::M_FRAGMENTS][4], b[W::N_FRAGMENTS / 2][4];  // b: two fragments each
#pragma unroll
            for (int i = 0; i < W::M_FRAGMENTS; i++) a_at.load(a[i], a_from, i, step);
#pragma unroll
            for (int j = 0; j < W::N_FRAGMENTS / 2; j++) b_at.load(b[j], b_from, j, step);
#pragma unroll
            for (int i = 0; i < W::M_FRAGMENTS; i++)
#pragma unroll
                for (int j = 0; j < W::N_FRAGMENTS; j++) {
                    PackedFragment<4> of_a(a[i][0], a[i][1], a[i][2], a[i][3]);
                    PackedFragment<2> of_b(b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                    W::update(sum, i, j, [&](float (&c)[4]) { mma_packed(c, of_a, of_b); });
                }
        }
    }
    static __device__ __forceinline__ int first_row() { return BY_K ? 0 : Warp::first_row(); }
    static __device__ __forceinline__ int first_column() { return BY_K ? 0 : Warp::first_column(); }

    // sum = what this thread keeps of all products: its own, or the sums of the four warps, added
    // in their order, a quarter of the tile after the other.
    static __device__ __forceinline__ void collect(const Sums& multiplied,
                                                   float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
        // eight banks apart, for stores of fragments
        constexpr int LINES = m_warp, PITCH = n_warp + 8;
        DYNAMIC_SHARED(float, shared);
        float* own = shared + threadIdx.x % 32 / 4 * PITCH + threadIdx.x % 4 * 2;
#pragma unroll
        for (int quarter = 0; BY_K && quarter < 4; quarter++) {
            __syncthreads();  // all have multiplied, and added the quarter before
#pragma unroll
            for (int i = 0; i < Warp::M_THREAD; i++)
#pragma unroll
                for (int j = 0; j < Warp::N_THREAD; j += 2) {
                    const float* from = &multiplied[quarter / 2 * Warp::M_THREAD + i]
                                                   [quarter % 2 * Warp::N_THREAD + j];
                    float neighbours[2] = {from[0], from[1]};
                    store(own + (threadIdx.x / 32 * LINES + 8 * i) * PITCH + 4 * j, neighbours);
                }
            __syncthreads();
            if (threadIdx.x / 32 != quarter) continue;
#pragma unroll
            for (int i = 0; i < Warp::M_THREAD; i++)
#pragma unroll
                for (int j = 0; j < Warp::N_THREAD; j += 2) {
                    sum[i][j] = sum[i][j + 1] = 0.0f;
#pragma unroll
                    for (int warp = 0; warp < 4; warp++) {
                        float2 of_warp = *reinterpret_cast<float2*>(
                            own + (warp * LINES + 8 * i) * PITCH + 4 * j);
                        sum[i][j] += of_warp.x, sum[i][j + 1] += of_warp.y;
                    }
                }
        }
#pragma unroll
        for (int i = 0; !BY_K && i < Warp::M_THREAD; i++)
#pragma unroll
            for (int j = 0; j < Warp::N_THREAD; j++) sum[i][j] = multiplied[i][j];
    }
};

// In as many stages as fit the 99 KB of shared memory that a block may have on sm_86 and sm_89; in
// float16 the 64 KB on sm_75.
using Tile = StagedTile<TILE_M, TILE_N, WARP_M, WARP_N, FLOAT16 ? 2 : 3>;

// sum = the first K * steps products of the operands, for the elements of C that this thread keeps;
// in stages of K * 2 * (M + N) bytes. The operands are an object with
//     APanel, BPanel       the lines of one step in shared memory, m or n of them: RowsOfLines, or
//                          where rows are k RowsOfK
//     copy(a, b)           start this thread's copies of the next step; a, b: its first chunk in
//                          either panel. It copies chunk() of row(pass) for every pass, and where
//                          rows are k also of the next 64 lines, and so on
template <class Tile, class Operands>
__device__ __forceinline__ void multiply_staged(Operands& operands, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using A = typename Operands::APanel;
    using B = typename Operands::BPanel;
    Fragments<A, true> a(0, Tile::first_row());
    Fragments<B, false> b(A::BYTES, Tile::first_column());
    int to = A::chunk_at(Tile::row(0), Tile::chunk());  // and in B
    typename Tile::Sums multiplied = {};
    in_stages<Tile::STAGES, A::BYTES + B::BYTES>(
        steps, [&](unsigned char* stage) { operands.copy(stage + to, stage + to + A::BYTES); },
        [&](const unsigned char* stage) { Tile::add_step(stage, a, stage, b, multiplied); });
    Tile::collect(multiplied, sum);
}
