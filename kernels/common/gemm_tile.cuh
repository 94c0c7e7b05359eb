// A block's tile of a matrix product in float32, which the threads multiply themselves
// (gemm_loop.cuh has the loop). With the macro MULTIPLIER the products are those of an approximate
// multiplier.
#pragma once
#include "common/gemm_loop.cuh"
#define NVRTC_FROM_13_1 (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1301)

// A vectorised load: four neighbours in memory, a quad, by one aligned access of 16 bytes.
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

// sum(i, j) += a(i) b(j) for a thread's accumulators, (M_THREAD, N_THREAD); the operands in quads.
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

// One step of an operand in shared memory: (K, lines + padding). along_k: a quad has four k of a
// line, not four lines. The padding is a multiple of 4, so that quads of lines stay aligned to 16
// bytes.
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
// other_order: B is loaded before A, or from sm_100 on A before B. NVRTC spills registers of some
// kernels with the one order, and of some with the other.
template <int m, int n, int m_thread, int n_thread, bool other_order = false>
struct GemmTile {
    static constexpr int M = m, N = n, M_THREAD = m_thread, N_THREAD = n_thread, NEIGHBOURS = 4;
    static constexpr bool ROUNDS = false;  // operands, on their way to the products
    static constexpr int ROWS = M / M_THREAD, COLUMNS = N / N_THREAD, THREADS = ROWS * COLUMNS;
    // Longer steps where a thread has registers for them, two quads of each operand: fewer waits,
    // and more of a line of memory at once.
    static constexpr int K =
        M_THREAD * N_THREAD < 64 && M * 2 == THREADS && N * 2 == THREADS ? 16 : 8;
    // Padded against bank conflicts of quads along k.
    template <int lines, bool along_k>
    using Step = FloatStep<K, lines, 4, along_k>;
    // Blocks per multiprocessor, for __launch_bounds__. They leave a thread at most 128 registers;
    // 168 where accumulators and the prefetched numbers need more, as for 48 x 64; 255 for
    // simulated products.
    static constexpr int PREFETCHED = (M + N) * K / THREADS,
                         THREADS_RESIDENT = M_THREAD * N_THREAD + PREFETCHED > 72 ? 384 : 512;
    static constexpr int BLOCKS = (EXACT_PRODUCTS ? THREADS_RESIDENT : 256) / THREADS;
    // A warp is 4 x 8 threads if the tile is large enough, so that it reads few different words of
    // shared memory at once.
    static constexpr int WARP_COLUMNS = ROWS < 4 ? 32 / ROWS : COLUMNS < 8 ? COLUMNS : 8;
    static constexpr int WARP_ROWS = 32 / WARP_COLUMNS, WARPS_ACROSS = COLUMNS / WARP_COLUMNS;
    static_assert(M_THREAD % 4 == 0 && N_THREAD % 4 == 0, "fragments are read 16 bytes at a time");
    static_assert(ROWS % WARP_ROWS == 0 && COLUMNS % WARP_COLUMNS == 0,
                  "warps must cover the tile");

    // Row i of a thread's accumulators is row m_of(i) of the tile: four neighbours from 4 row() on,
    // and four more every 4 ROWS. Columns likewise; from every fourth on, NEIGHBOURS of them are
    // neighbours in C.
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

    // sum += the products of one step; sum: (M_THREAD, N_THREAD) accumulators.
    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a, const B& b,
                                                    float (&sum)[M_THREAD][N_THREAD]) {
        // A simulated product is 5 to 15 instructions. Unrolled, they would overflow the
        // instruction cache and compile for long.
        constexpr int UNROLLED = EXACT_PRODUCTS ? K : 1;
        int first_row = row() * 4, first_column = column() * 4;
#pragma unroll UNROLLED
        for (int k = 0; k < K; k++) {
            float a_piece[M_THREAD / 4][4], b_piece[N_THREAD / 4][4];  // (M_THREAD), (N_THREAD)
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
