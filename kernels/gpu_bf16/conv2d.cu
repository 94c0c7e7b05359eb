// 2-D convolution (cross-correlation) with bias and, optionally, ReLU; with a flipped weight and no bias, the gradient of one
// with stride 1 with respect to its input.
//
// Rung: gpu_bf16, over gpu_tf32. Operands are copies in bfloat16 (round.cu), half the bytes, which no thread holds in registers
// (stages.cuh); the image has a border of zeros, so that no place is compared with its edges, and a window's row is one run of
// kernel * channels numbers.
//
// Layouts: x bfloat16 (batch, height, width, channels), the border included; weight bfloat16 (filters, kernel, kernel,
// channels); bias float32 (filters); y float32 (batch, out_height, out_width, filters) with out_height = (height - kernel) /
// stride + 1. Channels are a multiple of 8, arrays start at multiples of 16 bytes. Every sum is in the order tap row, tap
// column, channel, 16 products at a time, with any tile.
//
// Compiled with TILE_M x TILE_N, the pixels and filters of a block, WARP_M x WARP_N, those of a warp, and WHOLE: kernel *
// channels is a multiple of 64, so that a step of k ends in no row of a window.
// Launches: block (threads of the tile), grid (ceil(pixels / TILE_M) ceil(filters / TILE_N)), 384 (TILE_M + TILE_N) bytes of
// dynamic shared memory.
//   128 x 128, 64 x 64 a warp   128 threads, for at least 96 such tiles
//   64 x 64, 32 x 32 a warp     128 threads
//   128 x 16, 32 x 16 a warp    128 threads, for at most 16 filters
//
// Bound: shared memory and tensor cores. Of a step of the large tile, 64 KB are read as fragments and 32 KB written, which
// takes 768 clocks at 128 bytes each, and 512 products 512 clocks at the peak of an H200; warps of 64 x 32 would read 96 KB. In
// its loop on sm_90 128 of 248 instructions are products, 32 load fragments for them and 16 copy; in that of the small one 32
// of 115 are products.
// Predicted, not measured, for 64 images of 16x16x256 -> 128 filters, 3x3 (9.7 GFLOP): at least 10 us at 989 TFLOP/s; copies of
// 32 KB for each 2.1 MFLOP from level 2 at 5,120 bytes a clock, 30 us.
// Measured: not measured.
#include "common/conv2d_gemm.cuh"
#include "gpu_bf16/tile.cuh"

// A: lines are pixels of y, k the taps and channels of x under them: kernel * channels neighbours in each of kernel rows of x.
struct PaddedWindows {
    static constexpr int PASSES = Tile::M / Tile::ROWS;
    const bfloat16 *x, *from;           // from: where this thread's next k of the first window is
    int length, to_next_row, k, rows;   // of a window's row; between two of them; next k in its row, and rows from it on
    int start[PASSES];                  // of the windows

    __device__ __forceinline__ PaddedWindows(const bfloat16* x, int height, int width, int channels, int kernel, int stride,
                                       int pixels, int first_pixel)
        : x(x), from(x + Tile::chunk() * CHUNK), length(kernel * channels), to_next_row((width - kernel) * channels),
          k(WHOLE ? 0 : Tile::chunk() * CHUNK), rows(kernel) {
        int out_height = (height - kernel) / stride + 1, out_width = (width - kernel) / stride + 1;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            int pixel = min(first_pixel + Tile::row(pass), pixels - 1), out_row = pixel / out_width;
            int row = out_row / out_height * height + out_row % out_height * stride;
            start[pass] = (row * width + pixel % out_width * stride) * channels;
        }
        advance(0);
    }
    __device__ __forceinline__ void advance(int by) {
        from += by, k += by;
        if (WHOLE) {
            bool next = k == length;
            k = next ? 0 : k;
            from += next ? to_next_row : 0;
        } else {
            for (; k >= length; k -= length) from += to_next_row, rows--;
        }
    }
    __device__ __forceinline__ void copy(unsigned char* first_chunk) {
        bool there = WHOLE || rows > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, there ? from + start[pass] : x, there);
        advance(K);
    }
};

// B: lines are filters.
struct RoundedFilters {
    static constexpr int PASSES = Tile::N / Tile::ROWS;
    const bfloat16 *weight, *from;   // from: where this thread's next k of the first filter is
    int left, start[PASSES];         // left: k from it on

    __device__ __forceinline__ RoundedFilters(const bfloat16* weight, int filters, int length, int first)
        : weight(weight), from(weight + Tile::chunk() * CHUNK), left(length - Tile::chunk() * CHUNK) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) start[pass] = min(first + Tile::row(pass), filters - 1) * length;
    }
    __device__ __forceinline__ void copy(unsigned char* first_chunk) {
        bool there = WHOLE || left > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, there ? from + start[pass] : weight, there);
        from += K, left -= K;
    }
};

struct Operands {
    using APanel = RowsOfLines<Tile::M>;
    using BPanel = RowsOfLines<Tile::N>;
    PaddedWindows a;
    RoundedFilters b;
    __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b) {
        a.copy(to_a);
        b.copy(to_b);
    }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1) conv2d(
    const bfloat16* __restrict__ x, const bfloat16* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
    int height, int width, int channels, int filters, int kernel, int stride, int pixels, int relu) {
    int tiles_across = (filters + Tile::N - 1) / Tile::N;   // neighbouring blocks read the same pixels
    int first_pixel = blockIdx.x / tiles_across * Tile::M, first_filter = blockIdx.x % tiles_across * Tile::N;
    int length = kernel * kernel * channels;
    Operands operands{PaddedWindows(x, height, width, channels, kernel, stride, pixels, first_pixel),
                      RoundedFilters(weight, filters, length, first_filter)};
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply_staged<Tile>(operands, (length + K - 1) / K, sum);
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int filter = first_filter + Tile::n_of(j);
        float shift = filter < filters ? bias[filter] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            float value = sum[i][j] + shift;
            sum[i][j] = relu && value < 0.0f ? 0.0f : value;   // not fmaxf, which would hide a NaN
        }
    }
    write<Tile>(sum, y, pixels, filters, first_pixel, first_filter);
}
