// The loop of a convolution: operands out of copies in bfloat16, of which conv2d.cu and others make different results.
//
// The image has a border of zeros, so that no place is compared with its edges, and a window's row is one run of kernel *
// channels numbers.
#pragma once
#include "gpu_bf16/results.cuh"

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
            int pixel = pixel_of(min(first_pixel + Tile::row(pass), pixels - 1), out_width), out_row = pixel / out_width;
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

// A block's part of the convolution of x with weight; result: what becomes of its sums (results.cuh).
template <class Result>
__device__ __forceinline__ void convolve(const bfloat16* __restrict__ x, const bfloat16* __restrict__ weight, int height,
                                         int width, int channels, int filters, int kernel, int stride, int pixels,
                                         const Result& result) {
    int tiles_across = (filters + Tile::N - 1) / Tile::N;   // neighbouring blocks read the same pixels
    int first_pixel = blockIdx.x / tiles_across * Tile::M, first_filter = blockIdx.x % tiles_across * Tile::N;
    int length = kernel * kernel * channels;
    Operands operands{PaddedWindows(x, height, width, channels, kernel, stride, pixels, first_pixel),
                      RoundedFilters(weight, filters, length, first_filter)};
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply_staged<Tile>(operands, (length + K - 1) / K, sum);
    Lines lines{first_pixel, pixels, (height - kernel) / stride + 1, (width - kernel) / stride + 1};
    result.finish(sum, lines, filters, first_filter);
}
