// A block's tile of a matrix product of bfloat16 numbers by tensor cores: C(m, n) = sum over k of A(m, k) B(n, k), in float32.
//
// The operands lie in global memory in bfloat16, so that cp.async copies them to shared memory without passing registers, 16
// bytes at a time. STAGES steps of K are in shared memory: while the warps multiply one, the copies of the next are under way.
// One barrier a step is enough: the stage that a step's copies go to was multiplied before the barrier.
//
// Every address that changes from step to step is kept and moved on, not computed again: beside products, loads of fragments
// and copies the loop has little to do.
//
// The operands are an object with
//     APanel, BPanel       the lines of one step in shared memory, m or n of them: RowsOfLines or RowsOfK
//     copy(a, b)           start this thread's copies of the next step; a, b: its first chunk in either panel. It copies
//                          chunk() of row(pass) for every pass, and where rows are k also of the next 64 lines, and so on
#pragma once
#include "common/cp_async.cuh"
#include "common/shared_memory.cuh"
#include "common/tensor_cores.cuh"
#include "common/warp_tile.cuh"
#include "gpu_bf16/rows.cuh"

constexpr int K = SLAB;   // of a step: a row in shared memory

// Keep an address in a register: the compiler would compute many again in every step.
__device__ __forceinline__ void keep(int& address) { asm volatile("" : "+r"(address)); }

// Row: a line, chunks: along k.
template <int lines>
struct RowsOfLines {
    static constexpr int BYTES = lines * ROW;
    static constexpr bool TRANSPOSED = false;
    static __device__ __forceinline__ int place(int line, int k) { return swizzled(line, k / CHUNK); }
};

// Row: a k of 64 neighbouring lines, chunks: along these.
template <int lines>
struct RowsOfK {
    static constexpr int SLABS = (lines + 63) / 64, BYTES = SLABS * K * ROW;
    static constexpr bool TRANSPOSED = true;
    static __device__ __forceinline__ int place(int line, int k) {
        return line / 64 * K * ROW + swizzled(k, line % 64 / CHUNK);
    }
};

// Where in shared memory this lane's row of each of a warp's fragments begins. A fragment is four 8 x 8 matrices, and ldmatrix
// takes the address of one row of one of them from each lane: `line` and `k` are where that matrix begins.
template <class Panel>
struct Fragments {
    static constexpr int SWIZZLES = 4;   // different ones: by the k within a step, or by the fragment where rows are k
    int at[SWIZZLES];

    __device__ __forceinline__ Fragments(int panel, int line, int k) {
        int in_matrix = threadIdx.x % 8;
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++)
            at[s] = panel + (Panel::TRANSPOSED ? Panel::place(line + 16 * s, k + in_matrix)
                                               : Panel::place(line + in_matrix, k + 16 * s));
#pragma unroll
        for (int s = 0; s < SWIZZLES; s++) keep(at[s]);
    }
    // Of fragment i, which begins 16 i lines further, for k from 16 step on.
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* shared, int i, int step) const {
        if constexpr (Panel::TRANSPOSED)
            ldmatrix_trans(to, shared + at[i] + step * 16 * ROW);
        else
            ldmatrix(to, shared + at[step] + i * 16 * ROW);
    }
};

template <int m, int n, int m_warp, int n_warp, int stages>
struct StagedTile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    static constexpr int STAGES = stages;
    static constexpr int ROWS = Warp::THREADS / CHUNKS;   // of shared memory that a pass of copies fills, a thread 16 bytes
    static __device__ __forceinline__ int chunk() { return threadIdx.x % CHUNKS; }
    static __device__ __forceinline__ int row(int pass) { return threadIdx.x / CHUNKS + pass * ROWS; }

    // sum += the products of one step, whose fragments begin at a_from and b_from.
    template <class A, class B>
    static __device__ __forceinline__ void add_step(const unsigned char* a_from, const A& a_at, const unsigned char* b_from,
                                                    const B& b_at, float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
#pragma unroll
        for (int step = 0; step < K / 16; step++) {
            unsigned a[Warp::M_FRAGMENTS][4], b[Warp::N_FRAGMENTS / 2][4];   // b: two fragments each
#pragma unroll
            for (int i = 0; i < Warp::M_FRAGMENTS; i++) a_at.load(a[i], a_from, i, step);
#pragma unroll
            for (int j = 0; j < Warp::N_FRAGMENTS / 2; j++) b_at.load(b[j], b_from, j, step);
#pragma unroll
            for (int i = 0; i < Warp::M_FRAGMENTS; i++)
#pragma unroll
                for (int j = 0; j < Warp::N_FRAGMENTS; j++) {
                    unsigned fragment[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    Warp::update(sum, i, j, [&](float (&c)[4]) { mma_bf16(c, a[i], fragment); });
                }
        }
    }
};

// Call copy(stage) for every step, which starts this thread's copies to a stage of shared memory, and multiply(stage) when those
// of all threads have arrived. The launch gives the block STAGES * BYTES bytes of dynamic shared memory.
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
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {   // unrolled, so that a stage's addresses are constants
            if (first + stage >= steps) break;
            cp_async_wait<STAGES - 2>();
            __syncthreads();
            start(first + stage + STAGES - 1, (stage + STAGES - 1) % STAGES);
            multiply(shared + stage * BYTES);
        }
    }
}

// sum += the first K * steps products of the operands, for the elements of C that this thread keeps; in stages of K * 2 * (M + N)
// bytes.
template <class Tile, class Operands>
__device__ __forceinline__ void multiply_staged(Operands& operands, int steps, float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using A = typename Operands::APanel;
    using B = typename Operands::BPanel;
    int low = threadIdx.x % 16 / 8 * 8, high = threadIdx.x % 32 / 16 * 8;   // 0 or 8, by the lane's matrix
    Fragments<A> a(0, Tile::first_row() + low, high);
    Fragments<B> b(A::BYTES, Tile::first_column() + high, low);
    int to = swizzled(Tile::row(0), Tile::chunk());
    in_stages<Tile::STAGES, A::BYTES + B::BYTES>(
        steps, [&](unsigned char* stage) { operands.copy(stage + to, stage + to + A::BYTES); },
        [&](const unsigned char* stage) { Tile::add_step(stage, a, stage, b, sum); });
}
