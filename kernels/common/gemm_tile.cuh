// A block's tile of a matrix product in float32: C(m, n) = sum over k of A(m, k) B(n, k), in the order of k; the products are
// those of common/multiplier.cuh.
//
// The block advances along k in steps of 8. While its threads multiply one step from shared memory, each accumulating
// M_THREAD x N_THREAD elements of C in registers, the next step is loaded from global memory into registers; it is then stored
// to the other of two shared buffers, so that one barrier per step is enough. How the threads multiply a step is the tile's:
// GemmTile here, or TensorTile (tensor_tile.cuh).
//
// A and B are operands (conv2d_gemm.cuh) with
//     load()        read this thread's share of the next step into registers
//     store(tile)   write it to tile[k][line], where line is m or n
#pragma once
#include "common/multiplier.cuh"
#include "common/vector.cuh"

// A block computes M x N elements of C, a thread M_THREAD x N_THREAD of them; all multiples of 4.
template <int m, int n, int m_thread, int n_thread>
struct GemmTile {
    static constexpr int M = m, N = n, K = 8, M_THREAD = m_thread, N_THREAD = n_thread, NEIGHBOURS = 4;
    // Four more floats per line keep the 16-byte alignment and avoid bank conflicts when a tile is written along k.
    static constexpr int M_PITCH = M + 4, N_PITCH = N + 4;
    static constexpr int ROWS = M / M_THREAD, COLUMNS = N / N_THREAD, THREADS = ROWS * COLUMNS;
    // Blocks per multiprocessor, for __launch_bounds__: at most 128 registers (168 for 48 x 64), or 255 for simulated products.
    static constexpr int BLOCKS = (multipliers::IS_EXACT<multipliers::Chosen> ? 512 : 256) / THREADS;
    // A warp covers 4 x 8 threads if the tile is large enough: few different words per shared access.
    static constexpr int WARP_COLUMNS = ROWS < 4 ? 32 / ROWS : COLUMNS < 8 ? COLUMNS : 8;
    static constexpr int WARP_ROWS = 32 / WARP_COLUMNS, WARPS_ACROSS = COLUMNS / WARP_COLUMNS;
    static_assert(M_THREAD % 4 == 0 && N_THREAD % 4 == 0, "fragments are read 16 bytes at a time");
    static_assert(ROWS % WARP_ROWS == 0 && COLUMNS % WARP_COLUMNS == 0, "warps must cover the tile");

    // A thread's rows of C are its row here times 4 and the three after it, then again every ROWS * 4; columns likewise.
    // NEIGHBOURS columns from every NEIGHBOURS-th on are neighbours in C.
    static __device__ __forceinline__ int row() {
        return threadIdx.x / 32 / WARPS_ACROSS * WARP_ROWS + threadIdx.x % 32 / WARP_COLUMNS;
    }
    static __device__ __forceinline__ int column() {
        return threadIdx.x / 32 % WARPS_ACROSS * WARP_COLUMNS + threadIdx.x % WARP_COLUMNS;
    }
    static __device__ __forceinline__ int m_of(int i) { return i / 4 * (ROWS * 4) + row() * 4 + i % 4; }
    static __device__ __forceinline__ int n_of(int j) { return j / 4 * (COLUMNS * 4) + column() * 4 + j % 4; }

    // sum += the products of one step.
    static __device__ __forceinline__ void add_step(const float (&a_tile)[K][M_PITCH], const float (&b_tile)[K][N_PITCH],
                                                    float (&sum)[M_THREAD][N_THREAD]) {
        // A simulated product is 5 to 15 instructions: eight steps of 64 would overflow the instruction cache and compile for
        // long.
        constexpr int UNROLLED = multipliers::IS_EXACT<multipliers::Chosen> ? K : 1;
        int first_row = row() * 4, first_column = column() * 4;
#pragma unroll UNROLLED
        for (int k = 0; k < K; k++) {
            float a_piece[M_THREAD / 4][4], b_piece[N_THREAD / 4][4];
#pragma unroll
            for (int quad = 0; quad < M_THREAD / 4; quad++) load(a_piece[quad], &a_tile[k][quad * ROWS * 4 + first_row]);
#pragma unroll
            for (int quad = 0; quad < N_THREAD / 4; quad++)
                load(b_piece[quad], &b_tile[k][quad * COLUMNS * 4 + first_column]);
            add_products(a_piece, b_piece, sum);
        }
    }
};

// Distribution of one step of an operand, 8 values of k on `lines` lines, over the threads in quads: four neighbours in memory.
// AlongK: the neighbours belong to one line; the tile is written transposed.
template <int lines, int threads>
struct AlongK {
    static constexpr int QUADS = lines * 2, PASSES = (QUADS + threads - 1) / threads;
    static __device__ __forceinline__ int slot(int pass) { return threadIdx.x + pass * threads; }
    static __device__ __forceinline__ bool active(int pass) { return QUADS % threads == 0 || slot(pass) < QUADS; }
    static __device__ __forceinline__ int line(int pass) { return slot(pass) / 2; }
    static __device__ __forceinline__ int k() { return threadIdx.x % 2 * 4; }
    template <int pitch>
    static __device__ __forceinline__ void store(float (&held)[PASSES][4], float (*tile)[pitch]) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            if (active(pass))
#pragma unroll
                for (int e = 0; e < 4; e++) tile[k() + e][line(pass)] = held[pass][e];
    }
};

// AlongLines: the neighbours belong to one k. A thread has the same lines in every pass.
template <int lines, int threads>
struct AlongLines {
    static constexpr int ACROSS = lines / 4, QUADS = 8 * ACROSS, PASSES = (QUADS + threads - 1) / threads;
    static constexpr int K_PER_PASS = threads < QUADS ? threads / ACROSS : 8;
    static_assert(threads % ACROSS == 0, "a thread must keep its lines");
    static __device__ __forceinline__ bool active() { return threads <= QUADS || threadIdx.x < QUADS; }
    static __device__ __forceinline__ int line() { return threadIdx.x % ACROSS * 4; }
    static __device__ __forceinline__ int k() { return threadIdx.x / ACROSS; }   // in pass 0; K_PER_PASS more in each after
    template <int pitch>
    static __device__ __forceinline__ void store(float (&held)[PASSES][4], float (*tile)[pitch]) {
        if (active())
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++) ::store(&tile[k() + pass * K_PER_PASS][line()], held[pass]);
    }
};

// sum += the first 8 * steps products of a and b, for the elements of C that this thread keeps.
template <class Tile, class A, class B>
__device__ __forceinline__ void multiply(A& a, B& b, int steps, float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    __shared__ __align__(16) float a_tile[2][Tile::K][Tile::M_PITCH];
    __shared__ __align__(16) float b_tile[2][Tile::K][Tile::N_PITCH];
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
