// A block's tile of products of packed operands, which pass through stages of shared memory.
//
// The operands lie in global memory as they are multiplied, so that cp.async copies them to shared
// memory without passing registers, 16 bytes at a time. STAGES steps of K are in shared memory.
// While the warps multiply one, the copies of the next are under way. One barrier a step is enough,
// because the stage that a step's copies overwrite was multiplied before the barrier.
//
// An address that changes from step to step stays in a register and is moved on, not computed
// again. So the loop has little beside products, loads of fragments and copies.
//
// Macros:
//   MULTIPLIER       the format of packed numbers: tf32 (gpu_tf32), float32 (gpu_3xtf32_packed) or
//                    float16 (gpu_f16); not defined: bfloat16 (gpu_bf16). Lengths in these files
//                    are those of 16 bits. Of TF32 and float32 a row of shared memory has 32
//                    numbers, not 64; MMA_K is 8, not 16; channels are a multiple of 4, not 8
//                    (common/packed.cuh).
//   TILE_M, TILE_N   lines and columns of a block, of C; WARP_M, WARP_N: those of a warp
//   WHOLE            1: 64 divides the length along which k steps: the channels, or a weight
//                    gradient's pixels; 0: it does not
//   MMA_STEPS        mma instructions to each sum in the only step of few channels; not defined:
//                    all of a step, and any number of steps
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

// Each warp computes a part of the tile. In a tile of 64 x 64 the warps are sliced along k instead:
// each computes the whole tile for a quarter of every step. It then reads a quarter of what a step
// copies; four warps of 32 x 32 would read half of it each.
constexpr bool SLICED_K = TILE_M == 64 && TILE_N == 64;
#ifndef MMA_STEPS
#define MMA_STEPS (SLICED_K ? 1 : K / MMA_K)
#endif
constexpr bool ALL_CHUNKS = SLICED_K || MMA_STEPS == K / MMA_K;  // of a row are read
// The warp's MMA step in every step of K, where the warps are sliced along k.
__device__ __forceinline__ int step_of_warp() { return SLICED_K ? threadIdx.x / 32 : 0; }

// An operand's step in shared memory: (lines, K). A row is a line, with its chunks along k.
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

// ldmatrix takes the addresses of a fragment's four 8 x 8 matrices from eight lanes each. Of which
// matrix this lane's address is: its number's lowest bit, and the next one.
__device__ __forceinline__ int odd_part() { return threadIdx.x % 16 / 8; }
__device__ __forceinline__ int late_part() { return threadIdx.x % 32 / 16; }

// Where in shared memory this lane's row of each of a warp's fragments begins. A load gets four
// matrices of 8 lines by a chunk along k. Of A they are one fragment, (16, MMA_K): first those of
// the first chunk. Of B (`a` is false) they are two fragments, (8, MMA_K): first those of the first
// lines.
template <class Panel, bool a, bool words = IN_WORDS && Panel::TRANSPOSED>
struct Fragments {
    // Different addresses: of the MMA steps or, where rows are k, of the fragments.
    static constexpr int SWIZZLES = SLICED_K && !Panel::TRANSPOSED ? 1 : 4;
    int at[SWIZZLES];

    __device__ __forceinline__ Fragments(int panel, int first_line) {
        int line = first_line + 8 * (a ? odd_part() : late_part()), in_matrix = threadIdx.x % 8;
        int k = CHUNK * (a ? late_part() : odd_part()) + MMA_K * step_of_warp();
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++)
            at[s] = panel + (Panel::TRANSPOSED ? Panel::place(line + 16 * s, k + in_matrix)
                                               : Panel::place(line + in_matrix, k + MMA_K * s));
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++) keep_in_register(at[s]);
    }
    // Load 16 lines from line 16 i of the warp on, for the MMA step `step`.
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
        if constexpr (Panel::TRANSPOSED)
            ldmatrix_trans(to, shared + at[i] + step * MMA_K * ROW);
        else
            ldmatrix(to, shared + at[step] + i * 16 * ROW);
    }
};

// ldmatrix cannot transpose numbers of 32 bits. Where rows are k, a lane reads them one by one: of
// each matrix the number of line lane / 4 and k lane % 4. Those of a matrix are in 32 banks.
template <class Panel, bool a>
struct Fragments<Panel, a, true> {
    int at[4];  // of the slice's lines from 0, 8, 16 and 24 on

    __device__ __forceinline__ Fragments(int panel, int first_line) {
        int line = first_line + threadIdx.x % 32 / 4;
#pragma unroll
        for (int s = 0; s < 4; s++) {
            at[s] = panel + Panel::place(line + 8 * s, threadIdx.x % 4 + MMA_K * step_of_warp()) +
                    line % CHUNK * PACKED_BYTES;
            keep_in_register(at[s]);
        }
    }
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i,
                                         int step) const {
#pragma unroll
        for (int part = 0; part < 4; part++) {
            int lines = a ? part % 2 : part / 2,
                k = step * MMA_K + CHUNK * (a ? part / 2 : part % 2);
            to[part] = *reinterpret_cast<const unsigned*>(shared + at[i % 2 * 2 + lines] +
                                                          (i / 2 * K + k) * ROW);
        }
    }
};

template <int m, int n, int m_warp, int n_warp, int stages>
struct StagedTile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    // What a warp multiplies; what it keeps in the end is Warp's.
    using WarpProducts = WarpTile<m, n, SLICED_K ? m : m_warp, SLICED_K ? n : n_warp>;
    // (M_THREAD, N_THREAD) accumulators
    using Sums = float[WarpProducts::M_THREAD][WarpProducts::N_THREAD];
    static constexpr int STAGES = stages;
    // Rows of shared memory that a pass of copies fills: every thread copies a chunk.
    static constexpr int ROWS = Warp::THREADS / CHUNKS;
    static __device__ __forceinline__ int chunk() { return threadIdx.x % CHUNKS; }
    static __device__ __forceinline__ int row(int pass) {
        return threadIdx.x / CHUNKS + pass * ROWS;
    }
    // Whether this thread's chunk is.
    static __device__ __forceinline__ bool is_read() {
        return ALL_CHUNKS || chunk() < 2 * MMA_STEPS;
    }

    // sum += the products of one step. a_from, b_from: the stages of its operands.
    template <class A, class B>
    static __device__ __forceinline__ void add_step(const unsigned char* a_from, const A& a_at,
                                                    const unsigned char* b_from, const B& b_at,
                                                    Sums& sum) {
        using W = WarpProducts;
#pragma unroll
        for (int step = 0; step < MMA_STEPS; step++) {
            unsigned a[W::M_FRAGMENTS][4];      // (M_FRAGMENTS, registers)
            unsigned b[W::N_FRAGMENTS / 2][4];  // (N_FRAGMENTS / 2, registers of two fragments)
#pragma unroll
            for (int i = 0; i < W::M_FRAGMENTS; i++) a_at.load(a[i], a_from, i, step);
#pragma unroll
            for (int j = 0; j < W::N_FRAGMENTS / 2; j++) b_at.load(b[j], b_from, j, step);
#pragma unroll
            for (int i = 0; i < W::M_FRAGMENTS; i++)
#pragma unroll
                for (int j = 0; j < W::N_FRAGMENTS; j++) {
                    PackedFragment<4> a_fragment(a[i][0], a[i][1], a[i][2], a[i][3]);
                    PackedFragment<2> b_fragment(b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                    W::update(sum, i, j,
                              [&](float (&c)[4]) { mma_packed(c, a_fragment, b_fragment); });
                }
        }
    }
    static __device__ __forceinline__ int first_row() { return SLICED_K ? 0 : Warp::first_row(); }
    static __device__ __forceinline__ int first_column() {
        return SLICED_K ? 0 : Warp::first_column();
    }

    // sum = what this thread keeps of the accumulators: its own or, where warps are sliced along k,
    // the sum of the four warps in their order, a quarter of the tile after the other.
    static __device__ __forceinline__ void
    reduce_warps(const Sums& accumulators, float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
        // Rows are eight banks apart, for stores of fragments.
        constexpr int LINES = m_warp, PITCH = n_warp + 8;
        DYNAMIC_SHARED(float, shared);
        float* own = shared + threadIdx.x % 32 / 4 * PITCH + threadIdx.x % 4 * 2;
#pragma unroll
        for (int quarter = 0; SLICED_K && quarter < 4; quarter++) {
            __syncthreads();  // all have multiplied, and added the last quarter
#pragma unroll
            for (int i = 0; i < Warp::M_THREAD; i++)
#pragma unroll
                for (int j = 0; j < Warp::N_THREAD; j += 2) {
                    const float* from = &accumulators[quarter / 2 * Warp::M_THREAD + i]
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
                        float2 warp_sum = *reinterpret_cast<float2*>(
                            own + (warp * LINES + 8 * i) * PITCH + 4 * j);
                        sum[i][j] += warp_sum.x, sum[i][j + 1] += warp_sum.y;
                    }
                }
        }
#pragma unroll
        for (int i = 0; !SLICED_K && i < Warp::M_THREAD; i++)
#pragma unroll
            for (int j = 0; j < Warp::N_THREAD; j++) sum[i][j] = accumulators[i][j];
    }
};

// As many stages as fit the shared memory of a block: 99 KB on sm_86 and sm_89; for float16 64 KB,
// on sm_75.
using Tile = StagedTile<TILE_M, TILE_N, WARP_M, WARP_N, FLOAT16 ? 2 : 3>;

// sum = the sums of the first K * steps products, for the elements of C that this thread keeps. A
// stage is (M + N, K). The operands are an object with
//     APanel, BPanel       a step of A and of B in shared memory: RowsOfLines, or RowsOfK where
//                          rows are k
//     copy(a, b)           starts this thread's copies of the next step. a, b: its first chunk in
//                          either panel. It copies chunk() of row(pass) in every pass; where rows
//                          are k, of each slice of 64 lines.
template <class Tile, class Operands>
__device__ __forceinline__ void multiply_staged(Operands& operands, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using A = typename Operands::APanel;
    using B = typename Operands::BPanel;
    Fragments<A, true> a(0, Tile::first_row());
    Fragments<B, false> b(A::BYTES, Tile::first_column());
    int to = A::chunk_at(Tile::row(0), Tile::chunk());  // and in B
    typename Tile::Sums accumulators = {};
    in_stages<Tile::STAGES, A::BYTES + B::BYTES>(
        steps, [&](unsigned char* stage) { operands.copy(stage + to, stage + to + A::BYTES); },
        [&](const unsigned char* stage) { Tile::add_step(stage, a, stage, b, accumulators); });
    Tile::reduce_warps(accumulators, sum);
}
