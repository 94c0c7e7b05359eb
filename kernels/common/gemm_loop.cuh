// The loop of a matrix product: C(m, n) = sum over k of A(m, k) B(n, k), in the order of k.
//
// The block advances along k in steps of Tile::K. While its threads multiply one step from shared
// memory, each with M_THREAD x N_THREAD accumulators in registers, they load the next step from
// global memory into registers and then store it to the other of two shared buffers (double
// buffering), so that one barrier per step is enough. How the threads multiply a step is the
// tile's: GemmTile (gemm_tile.cuh), or one for tensor cores (tensor_tile.cuh).
//
// A and B are operands (conv2d_gemm.cuh, gpu_opt_v2/operands.cuh) with
//     load()        reads this thread's quads of the next step into registers
//     store(step)   writes them to a step in shared memory, a Tile::Step<lines, ThreadMap::ALONG_K>
//     ThreadMap     how a step is distributed over the threads: AlongK or AlongLines, where a line
//                   is an m or an n
#pragma once

// How the threads share a step of an operand, (lines, K), in quads: four neighbours in memory.
// AlongK: the neighbours of a quad are of one line.
template <class Tile, int lines>
struct AlongK {
    static constexpr bool ALONG_K = true;
    static constexpr int ACROSS = Tile::K / 4, QUADS = lines * ACROSS,
                         PASSES = (QUADS + Tile::THREADS - 1) / Tile::THREADS;
    static_assert(Tile::THREADS % ACROSS == 0, "a thread must keep its k");
    static __device__ __forceinline__ int slot(int pass) {
        return threadIdx.x + pass * Tile::THREADS;
    }
    static __device__ __forceinline__ bool active(int pass) {
        return QUADS % Tile::THREADS == 0 || slot(pass) < QUADS;
    }
    static __device__ __forceinline__ int line(int pass) { return slot(pass) / ACROSS; }
    static __device__ __forceinline__ int k() { return threadIdx.x % ACROSS * 4; }
    // Where element e of a pass is in shared memory.
    template <class Step>
    static __device__ __forceinline__ auto* place(Step& step, int pass, int e) {
        return step.place(line(pass), k() + e);
    }
    template <class Step>
    static __device__ __forceinline__ void store(const float (&registers)[PASSES][4], Step& step) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            if (active(pass)) step.store(line(pass), k(), registers[pass]);
    }
};

// The neighbours of a quad are of one k. A thread has the same lines in every pass.
template <class Tile, int lines>
struct AlongLines {
    static constexpr bool ALONG_K = false;
    static constexpr int ACROSS = lines / 4, QUADS = Tile::K * ACROSS,
                         PASSES = (QUADS + Tile::THREADS - 1) / Tile::THREADS;
    static constexpr int K_PER_PASS = Tile::THREADS < QUADS ? Tile::THREADS / ACROSS : Tile::K;
    static_assert(Tile::THREADS % ACROSS == 0, "a thread must keep its lines");
    static_assert(Tile::K % K_PER_PASS == 0, "the passes must end with the step");
    static __device__ __forceinline__ bool active(int pass = 0) {
        return Tile::THREADS <= QUADS || threadIdx.x < QUADS;
    }
    static __device__ __forceinline__ int line() { return threadIdx.x % ACROSS * 4; }
    // Of the first pass; K_PER_PASS more in each pass after it.
    static __device__ __forceinline__ int k() { return threadIdx.x / ACROSS; }
    template <class Step>
    static __device__ __forceinline__ auto* place(Step& step, int pass, int e) {
        return step.place(line() + e, k() + pass * K_PER_PASS);
    }
    template <class Step>
    static __device__ __forceinline__ void store(const float (&registers)[PASSES][4], Step& step) {
        if (active())
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++)
                step.store(line(), k() + pass * K_PER_PASS, registers[pass]);
    }
};

// sum += the first Tile::K * steps products of a and b, for the elements of C that this thread
// keeps.
template <class Tile, class A, class B>
__device__ __forceinline__ void multiply(A& a, B& b, int steps,
                                         float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    // (2, K, M) and (2, K, N), or with the lines before k
    __shared__ __align__(16) typename Tile::template Step<Tile::M, A::ThreadMap::ALONG_K> a_tile[2];
    __shared__ __align__(16) typename Tile::template Step<Tile::N, B::ThreadMap::ALONG_K> b_tile[2];
    a.load();
    b.load();
    a.store(a_tile[0]);
    b.store(b_tile[0]);
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        int now = step % 2;
        bool more = step + 1 < steps;
        if (more) {
            a.load();
            b.load();
        }
        Tile::add_step(a_tile[now], b_tile[now], sum);
        if (more) {
            a.store(a_tile[1 - now]);
            b.store(b_tile[1 - now]);
            __syncthreads();
        }
    }
}
