// Gradient of a convolution of 1x1 windows with respect to its weight, in parts as weight_grad.cu
// leaves them, where its output is pooled: dy is what comes back to the pooled image, a quarter of
// the pixels, and zero where a window had a larger value.
//
// Rung: gpu_tf32. Changed from weight_grad.cu: dy is not stored at its full size, because it would
// be read here alone. A thread loads a chunk of a window's gradient while the step before is
// multiplied. It stores the chunk to four rows of shared memory, one for each pixel of the window,
// each with that pixel's numbers and zeros.
//
// Layouts: x Packed (batch, height, width, channels), columns (gather.cu); dy Packed, index uint8
// (batch, height / 2, width / 2, filters), as conv2d_pool.cu has them; partials as weight_grad.cu's
// with a kernel of 1. Filters are multiples of 8, height and width of 2. The sums run over windows,
// each with its four pixels. A split sums pixels_per_split pixels, a multiple of 64.
//
// Macros: as weight_grad.cu; WHOLE_ROWS: 1: width / 2 divides 16.
// Launches: as weight_grad.cu, with a kernel of 1.
//
// Bound: memory, and shared memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/pool_indices.cuh"
#include "packed/weight_grad.cuh"

constexpr int WINDOWS_OF_STEP = K / 4;

// A, (TILE_M, K) a step: lines are filters; B, (TILE_N, K): lines are channels of x. k: pixels of
// y, window by window.
struct Operands {
    using APanel = RowsOfK<Tile::M>;
    using BPanel = RowsOfK<Tile::N>;
    static constexpr int PASSES = K / Tile::ROWS, M_SLICES = APanel::SLICES,
                         N_SLICES = BPanel::SLICES;
    static_assert(WINDOWS_OF_STEP <= Tile::ROWS && Tile::ROWS % 4 == 0,
                  "a thread has a window of dy, and one place in all of x");
    static_assert(Tile::M % SLICE == 0, "a thread has filters in every slice");
    const Packed *dy, *x;
    const unsigned char* index;
    StepStride<WINDOWS_OF_STEP> steps;
    int across, filters, left;         // left: windows from the step's first one on
    int column[PASSES], x_at[PASSES];  // column of the next pixel's window; where the pixel begins
    int under[N_SLICES], filter[M_SLICES];  // numbers from there to those of this thread
    int dy_at;                              // where its next window of dy begins
    uint4 words[M_SLICES];                  // the chunks of that window
    WindowIndices indices[M_SLICES];

    // This thread's window of dy in a step.
    static __device__ __forceinline__ int window() { return threadIdx.x / CHUNKS; }
    static __device__ __forceinline__ bool has_dy() { return window() < WINDOWS_OF_STEP; }

    __device__ __forceinline__ void load_dy() {
#pragma unroll
        for (int slice = 0; slice < M_SLICES; slice++) {
            words[slice] = make_uint4(0, 0, 0, 0), indices[slice] = {};
            if (!has_dy() || left <= window()) continue;
            words[slice] = *reinterpret_cast<const uint4*>(dy + (dy_at + filter[slice]));
            indices[slice] = load_indices(index + (dy_at + filter[slice]));
        }
        dy_at += WINDOWS_OF_STEP * filters;
    }

    __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b) {
        to_a -= APanel::chunk_at(Tile::row(0), Tile::chunk());
#pragma unroll
        for (int slice = 0; slice < M_SLICES; slice++)
#pragma unroll
            for (int place = 0; place < 4; place++)
                if (has_dy())
                    *reinterpret_cast<uint4*>(
                        to_a + slice * K * ROW +
                        APanel::chunk_at(4 * window() + place, Tile::chunk())) =
                        select(words[slice], indices[slice], place);
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            bool valid = WHOLE || left > Tile::row(pass) / 4;
#pragma unroll
            for (int slice = 0; slice < N_SLICES; slice++)
                cp_async(16, to_b + slice * K * ROW + pass * Tile::ROWS * ROW,
                         valid ? x + (x_at[pass] + under[slice]) : x, valid);
            x_at[pass] += steps.by, column[pass] += steps.columns;
            if (!WHOLE_ROWS && column[pass] >= across)
                column[pass] -= across, x_at[pass] += steps.at_row_end;
        }
        left -= WINDOWS_OF_STEP;
        load_dy();
    }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_weight_grad_pooled(const Packed* __restrict__ x, const Packed* __restrict__ dy,
                              const unsigned char* __restrict__ index, float* __restrict__ partials,
                              int batch, int height, int width, int channels, int filters,
                              int pixels_per_split) {
    int down = height / 2, across = width / 2, first_column = blockIdx.x * Tile::N,
        first_filter = blockIdx.y * Tile::M;
    int first = blockIdx.z * pixels_per_split / 4,
        last = min(first + pixels_per_split / 4, batch * down * across);
    Operands operands{
        dy,          x,
        index,       StepStride<WINDOWS_OF_STEP>(height, width, channels, 2, down, across),
        across,      filters,
        last - first};
#pragma unroll
    for (int pass = 0; pass < Operands::PASSES; pass++) {
        int window = first + Tile::row(pass) / 4, place = Tile::row(pass) % 4;
        // Images have whole windows, whose rows follow one another.
        operands.column[pass] = window % across;
        operands.x_at[pass] =
            ((2 * (window / across) + place / 2) * width + 2 * (window % across) + place % 2) *
            channels;
    }
#pragma unroll
    for (int slice = 0; slice < Operands::N_SLICES; slice++) {
        int n = first_column + slice * SLICE + Tile::chunk() * CHUNK;
        operands.under[slice] = n < channels ? n : 0;
    }
#pragma unroll
    for (int slice = 0; slice < Operands::M_SLICES; slice++) {
        int filter = first_filter + slice * SLICE + Tile::chunk() * CHUNK;
        operands.filter[slice] = filter < filters ? filter : 0;
    }
    operands.dy_at = (first + Operands::window()) * filters;
    operands.load_dy();
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply_staged<Tile>(operands, (4 * (last - first) + K - 1) / K, sum);
    write<Tile>(sum, partials + blockIdx.z * filters * channels, filters, channels, first_filter,
                first_column);
}
