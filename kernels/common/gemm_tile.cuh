// A block's tile of a matrix product in float32: C(m, n) = sum over k of A(m, k) B(n, k), in the
// order of k; the products are those of common/multiplier.cuh.
//
// The block advances along k in steps of Tile::K. While its threads multiply one step from shared
// memory, each accumulating M_THREAD x N_THREAD elements of C in registers, the next step is loaded
// from global memory into registers; it is then stored to the other of two shared buffers, so that
// one barrier per step is enough. How the threads multiply a step is the tile's: GemmTile here, or,
// where Python sets the macro WARP_M, one for tensor cores (conv2d_gemm.cuh).
//
// A and B are operands (conv2d_gemm.cuh, gpu_opt_v2/operands.cuh) with
//     load()        read this thread's share of the next step into registers
//     Share         how a step is distributed over the threads: AlongK or AlongLines, where a line
//                   is an m or an n
//     store(step)   write it to a step in shared memory, of the type Tile::Step<lines,
//                   Share::ALONG_K>
#pragma once
#define NVRTC_FROM_13_1 (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1301)
#ifndef WARP_M
#include "common/multiplier.cuh"

// Four neighbours in memory, a quad: one aligned access of 16 bytes.
__device__ __forceinline__ void load(float (&to)[4], const float* from) {
    float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
__device__ __forceinline__ void store(float* to, const float (&from)[4]) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}
template <int quads>
__device__ __forceinline__ void load_quads(float (&to)[quads][4], const float* from, int apart) {
#pragma unroll
    for (int quad = 0; quad < quads; quad++) load(to[quad], from + quad * apart);
}

// ---- the products of a thread

namespace multipliers {

// Whether no operand of a piece is infinite or NaN and no product can overflow.
template <int m, int n>
__device__ __forceinline__ bool safe(const float (&a)[m][4], const float (&b)[n][4]) {
    unsigned largest_a = 0, largest_b = 0;
#pragma unroll
    for (int i = 0; i < 4 * m; i++)
        largest_a = max(largest_a, __float_as_uint(a[i / 4][i % 4]) & MAGNITUDE);
#pragma unroll
    for (int j = 0; j < 4 * n; j++)
        largest_b = max(largest_b, __float_as_uint(b[j / 4][j % 4]) & MAGNITUDE);
    // A result's magnitude is at most the sum of both, less one bias, plus 2 in its exponent, for
    // any mantissas.
    return max(largest_a, largest_b) < EXPONENT &&
           largest_a + largest_b < ONE + EXPONENT - 2 * CARRY;
}

template <class Multiplier, bool any, int m, int n>
__device__ __forceinline__ void add_piece(const float (&a)[m][4], const float (&b)[n][4],
                                          float (&sum)[4 * m][4 * n]) {
#pragma unroll
    for (int i = 0; i < 4 * m; i++) {
        typename Multiplier::Left left(a[i / 4][i % 4]);
#pragma unroll
        for (int j = 0; j < 4 * n; j++) {
            // the same for every i, and made once
            typename Multiplier::Right right(b[j / 4][j % 4]);
            float product = Multiplier::template product<any>(left, right);
            // Additions per branch: with a shared one the compiler would keep both branches'
            // products live, in twice the registers.
            sum[i][j] = any ? __fadd_rn(sum[i][j], product) : sum[i][j] + product;
        }
    }
}

template <class Multiplier, int m, int n>
__device__ __forceinline__ void add_products(const float (&a)[m][4], const float (&b)[n][4],
                                             float (&sum)[4 * m][4 * n]) {
    if (Multiplier::SPECIAL_CASES && !safe(a, b))
        add_piece<Multiplier, true>(a, b, sum);
    else
        add_piece<Multiplier, false>(a, b, sum);
}

}  // namespace multipliers

// sum(i, j) += multiply(a(i), b(j)) for a thread's part of a matrix product, the pieces in fours.
template <int m, int n>
__device__ __forceinline__ void add_products(const float (&a)[m][4], const float (&b)[n][4],
                                             float (&sum)[4 * m][4 * n]) {
    multipliers::add_products<multipliers::Chosen>(a, b, sum);
}

// ---- the tile

// One step of an operand in shared memory, line by line for each k; along_k: of a quad the four k,
// not the lines, are neighbours. A pitch that is a multiple of 4 keeps the 16-byte alignment.
template <int k, int lines, int padding, bool along_k>
struct FloatStep {
    float at[k][lines + padding];
    __device__ __forceinline__ void store(int line, int first_k, const float (&quad)[4]) {
        if constexpr (along_k)
#pragma unroll
            for (int e = 0; e < 4; e++) at[first_k + e][line] = quad[e];
        else
            ::store(&at[first_k][line], quad);
    }
};

// A block computes M x N elements of C, a thread M_THREAD x N_THREAD of them; all multiples of 4.
// other_order: the factors of a product are loaded in the other order, where NVRTC spills registers
// in the one.
template <int m, int n, int m_thread, int n_thread, bool other_order = false>
struct GemmTile {
    static constexpr int M = m, N = n, M_THREAD = m_thread, N_THREAD = n_thread, NEIGHBOURS = 4;
    static constexpr bool ROUNDS = false;  // operands, on their way to the products
    static constexpr int ROWS = M / M_THREAD, COLUMNS = N / N_THREAD, THREADS = ROWS * COLUMNS;
    // Fewer and longer steps where a thread's registers can hold its share, two quads of each
    // operand: fewer waits, and more of a line of memory at once.
    static constexpr int K =
        M_THREAD * N_THREAD < 64 && M * 2 == THREADS && N * 2 == THREADS ? 16 : 8;
    template <int lines, bool along_k>
    // padded against bank conflicts of the quads along k
    using Step = FloatStep<K, lines, 4, along_k>;
    // Blocks per multiprocessor, for __launch_bounds__: at most 128 registers (168 for 48 x 64, and
    // where the sums and what is held of the next step leave too few of these), or 255 for
    // simulated products.
    static constexpr int HELD = (M + N) * K / THREADS,
                         THREADS_RESIDENT = M_THREAD * N_THREAD + HELD > 72 ? 384 : 512;
    static constexpr int BLOCKS =
        (multipliers::IS_EXACT<multipliers::Chosen> ? THREADS_RESIDENT : 256) / THREADS;
    // A warp covers 4 x 8 threads if the tile is large enough: few different words per shared
    // access.
    static constexpr int WARP_COLUMNS = ROWS < 4 ? 32 / ROWS : COLUMNS < 8 ? COLUMNS : 8;
    static constexpr int WARP_ROWS = 32 / WARP_COLUMNS, WARPS_ACROSS = COLUMNS / WARP_COLUMNS;
    static_assert(M_THREAD % 4 == 0 && N_THREAD % 4 == 0, "fragments are read 16 bytes at a time");
    static_assert(ROWS % WARP_ROWS == 0 && COLUMNS % WARP_COLUMNS == 0,
                  "warps must cover the tile");

    // A thread's rows of C are its row here times 4 and the three after it, then again every ROWS *
    // 4; columns likewise. NEIGHBOURS columns from every NEIGHBOURS-th on are neighbours in C.
    static __device__ __forceinline__ int row() {
        return threadIdx.x / 32 / WARPS_ACROSS * WARP_ROWS + threadIdx.x % 32 / WARP_COLUMNS;
    }
    static __device__ __forceinline__ int column() {
        return threadIdx.x / 32 % WARPS_ACROSS * WARP_COLUMNS + threadIdx.x % WARP_COLUMNS;
    }
    static __device__ __forceinline__ int m_of(int i) {
        return i / 4 * (ROWS * 4) + row() * 4 + i % 4;
    }
    static __device__ __forceinline__ int n_of(int j) {
        return j / 4 * (COLUMNS * 4) + column() * 4 + j % 4;
    }

    // sum += the products of one step.
    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a, const B& b,
                                                    float (&sum)[M_THREAD][N_THREAD]) {
        // A simulated product is 5 to 15 instructions: eight steps of 64 would overflow the
        // instruction cache and compile for long.
        constexpr int UNROLLED = multipliers::IS_EXACT<multipliers::Chosen> ? K : 1;
        int first_row = row() * 4, first_column = column() * 4;
#pragma unroll UNROLLED
        for (int k = 0; k < K; k++) {
            float a_piece[M_THREAD / 4][4], b_piece[N_THREAD / 4][4];
#if __CUDA_ARCH__ >= 1000
            constexpr bool b_first = !other_order;
#else
            constexpr bool b_first = other_order;
#endif
            if (b_first) load_quads(b_piece, &b.at[k][first_column], COLUMNS * 4);
            load_quads(a_piece, &a.at[k][first_row], ROWS * 4);
            if (!b_first) load_quads(b_piece, &b.at[k][first_column], COLUMNS * 4);
            add_products(a_piece, b_piece, sum);
        }
    }
};
#endif

// ---- any tile

// Distribution of one step of an operand, Tile::K values of k on `lines` lines, over the threads in
// quads: four neighbours in memory. AlongK: the neighbours belong to one line.
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
    // Element e of a pass in shared memory.
    template <class Step>
    static __device__ __forceinline__ auto* place(Step& step, int pass, int e) {
        return step.place(line(pass), k() + e);
    }
    template <class Step>
    static __device__ __forceinline__ void store(const float (&held)[PASSES][4], Step& step) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            if (active(pass)) step.store(line(pass), k(), held[pass]);
    }
};

// AlongLines: the neighbours belong to one k. A thread has the same lines in every pass.
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
    // in pass 0; K_PER_PASS more in each after
    static __device__ __forceinline__ int k() { return threadIdx.x / ACROSS; }
    template <class Step>
    static __device__ __forceinline__ auto* place(Step& step, int pass, int e) {
        return step.place(line() + e, k() + pass * K_PER_PASS);
    }
    template <class Step>
    static __device__ __forceinline__ void store(const float (&held)[PASSES][4], Step& step) {
        if (active())
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++)
                step.store(line(), k() + pass * K_PER_PASS, held[pass]);
    }
};

// sum += the first Tile::K * steps products of a and b, for the elements of C that this thread
// keeps.
template <class Tile, class A, class B>
__device__ __forceinline__ void multiply(A& a, B& b, int steps,
                                         float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    __shared__ __align__(16) typename Tile::template Step<Tile::M, A::Share::ALONG_K> a_tile[2];
    __shared__ __align__(16) typename Tile::template Step<Tile::N, B::Share::ALONG_K> b_tile[2];
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
