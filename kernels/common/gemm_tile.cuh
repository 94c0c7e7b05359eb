// A block's tile of a matrix product in float32, which the threads multiply themselves
// (gemm_loop.cuh has the loop). With the macro MULTIPLIER the products are those of an approximate
// multiplier.
#pragma once
#include "common/gemm_loop.cuh"
#define NVRTC_FROM_13_1 (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1301)

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

#ifdef MULTIPLIER
#include "common/multiplier.cuh"
#else
constexpr bool EXACT_PRODUCTS = true;

// sum(i, j) += a(i) b(j) for a thread's part of a matrix product, the operands in fours.
template <int m, int n>
__device__ __forceinline__ void add_products(const float (&a)[m][4], const float (&b)[n][4],
                                             float (&sum)[4 * m][4 * n]) {
#pragma unroll
    for (int i = 0; i < 4 * m; i++)
#pragma unroll
        for (int j = 0; j < 4 * n; j++) sum[i][j] += a[i / 4][i % 4] * b[j / 4][j % 4];
}
#endif

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
    static constexpr int BLOCKS = (EXACT_PRODUCTS ? THREADS_RESIDENT : 256) / THREADS;
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
        constexpr int UNROLLED = EXACT_PRODUCTS ? K : 1;
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
