// Which elements of a block's tile each thread keeps where tensor cores multiply.
#pragma once

// Each warp computes m_warp x n_warp of a block's M x N elements of C, in fragments of 16 x 8. A
// lane has two neighbours in the upper and in the lower half of a fragment, so that a thread's
// accumulators are (M_THREAD, N_THREAD) = (m_warp / 8, n_warp / 4).
template <int m, int n, int m_warp, int n_warp>
struct WarpTile {
    static constexpr int M = m, N = n, WARPS_ACROSS = N / n_warp,
                         THREADS = M / m_warp * WARPS_ACROSS * 32;
    static constexpr int M_FRAGMENTS = m_warp / 16, N_FRAGMENTS = n_warp / 8;
    static constexpr int M_THREAD = 2 * M_FRAGMENTS, N_THREAD = 2 * N_FRAGMENTS, NEIGHBOURS = 2;
    // Blocks per multiprocessor, for __launch_bounds__. They leave a thread at most 128 registers;
    // with 64 accumulators 168; with more 255.
    static constexpr int SUMS = M_THREAD * N_THREAD, BLOCKS = (SUMS > 64    ? 256
                                                               : SUMS == 64 ? 384
                                                                            : 512) /
                                                              THREADS;
    static_assert(M % m_warp == 0 && N % n_warp == 0 && m_warp % 16 == 0 && n_warp % 16 == 0,
                  "fragments must cover the tile");

    // A barrier of the threads that have accumulators.
    static __device__ __forceinline__ void sync() { __syncthreads(); }
    static __device__ __forceinline__ int first_row() {
        return threadIdx.x / 32 / WARPS_ACROSS * m_warp;
    }
    static __device__ __forceinline__ int first_column() {
        return threadIdx.x / 32 % WARPS_ACROSS * n_warp;
    }
    // The row and the column of the tile of this thread's accumulator (i, j).
    static __device__ __forceinline__ int m_of(int i) {
        return first_row() + threadIdx.x % 32 / 4 + 8 * i;
    }
    static __device__ __forceinline__ int n_of(int j) {
        return first_column() + j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
    }

    // Call add(c) for fragment (i, j) of the accumulators; c: this lane's four.
    template <class Add>
    static __device__ __forceinline__ void update(float (&sum)[M_THREAD][N_THREAD], int i, int j,
                                                  Add add) {
        float c[4] = {sum[2 * i][2 * j], sum[2 * i][2 * j + 1], sum[2 * i + 1][2 * j],
                      sum[2 * i + 1][2 * j + 1]};
        add(c);
        sum[2 * i][2 * j] = c[0], sum[2 * i][2 * j + 1] = c[1], sum[2 * i + 1][2 * j] = c[2],
                       sum[2 * i + 1][2 * j + 1] = c[3];
    }
};
