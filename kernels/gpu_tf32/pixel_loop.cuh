// The loop of a convolution that copies pixels step by step, as the filters. The image has a border
// of zeros, so that no place is compared with its edges, and a window's row is one run of kernel *
// channels numbers.
#pragma once
#include "gpu_tf32/filters.cuh"

// The pixel, in an image `width` wide and as high as an even number if WINDOWS, of a line of all
// tiles.
__device__ __forceinline__ int pixel_of(int line, int width) {
    if (!WINDOWS) return line;
    int window = line / 4, across = width / 2;
    return (window / across * 2 + line % 4 / 2) * width + window % across * 2 + line % 2;
}

// A: lines are pixels of y, k the taps and channels of x under them: kernel * channels neighbours
// in each of kernel rows of x.
struct PaddedWindows {
    static constexpr int PASSES = Tile::M / Tile::ROWS;
    const Packed *x, *from;        // from: where this thread's next k of the first window is
    int channels, kernel, length;  // length: numbers of a window's row
    int to_next_row, to_next_channel_block;  // numbers beyond the last one of a row, of a window
    int k, rows;                             // next k in its row, and rows from it on
    int start[PASSES];                       // of the windows

    __device__ __forceinline__ PaddedWindows(const Packed* x, int height, int width, int channels,
                                             int kernel, int stride, int out_height, int out_width,
                                             int pixels, int first_pixel)
        : x(x), from(x + Tile::chunk() * CHUNK), channels(channels), kernel(kernel),
          length(kernel * channels), to_next_row((width - kernel) * channels),
          to_next_channel_block(K - kernel * width * channels),
          k(WHOLE ? 0 : Tile::chunk() * CHUNK), rows(kernel) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            int pixel = pixel_of(min(first_pixel + Tile::row(pass), pixels - 1), out_width),
                out_row = pixel / out_width;
            int row = out_row / out_height * height + out_row % out_height * stride;
            start[pass] = (row * width + pixel % out_width * stride) * channels;
        }
        if (!WHOLE) advance(0);
    }
    __device__ __forceinline__ void advance(int by) {
        from += by, k += by;
        if (WHOLE) {
            if (k == length) from += to_next_row, k = 0, rows--;
            if (rows == 0) from += to_next_channel_block, rows = kernel;
        } else {
            for (; k >= length; k -= length) from += to_next_row, rows--;
        }
    }
    // Whether the next step is the last tap of a channel block.
    __device__ __forceinline__ bool ends_channel_block() const {
        return rows == 1 && k == length - channels;
    }
    __device__ __forceinline__ void copy(unsigned char* first_chunk) {
        bool there = WHOLE || rows > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES && Tile::is_read(); pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, there ? from + start[pass] : x,
                     there);
        advance(WHOLE ? channels : K);
    }
};

struct PixelsAndFilters {
    using APanel = RowsOfLines<Tile::M>;
    using BPanel = RowsOfLines<Tile::N>;
    PaddedWindows a;
    RoundedFilters b;
    __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b) {
        b.copy(to_b, WHOLE && a.ends_channel_block());
        a.copy(to_a);
    }
};

// A tile whose lines are pixels one after the other, or windows of four pixels each. pixels: of y,
// or of its phase; height, width: of y.
struct Lines {
    int first, pixels, height, width, row, column;  // row, column: of the phase

    __device__ __forceinline__ int of(int i) const {
        int number = first + Tile::m_of(i), across = width / SPREAD;
        if (number >= pixels) return -1;
        return (number / across * SPREAD + row) * width + number % across * SPREAD + column;
    }
    __device__ __forceinline__ Cell cell(int number) const {
        int of_all = first / CELL_LINES + number, across = width / SPREAD / CELL_SIDE,
            down = height / SPREAD / CELL_SIDE;
        int of_rows = of_all / across;
        return {of_all < pixels / CELL_LINES, of_rows / down, of_rows % down * SPREAD + row,
                of_all % across * SPREAD + column};
    }
    static __device__ __forceinline__ int line(int cell, int place) {
        return CELL_LINES * cell + place;
    }
    __device__ __forceinline__ int first_partial() const { return first / 64; }
};

// A block's part of the convolution of x with weight; result: what becomes of its sums. Where
// phases are apart, the convolution of phase (p, q) begins at pixel (p, q) of x, and has filters of
// its own.
template <class Result>
__device__ __forceinline__ void
convolve(const Packed* __restrict__ x, const Packed* __restrict__ weight, int height, int width,
         int channels, int filters, int kernel, int stride, int pixels, const Result& result) {
    Share share(filters);
    int first_pixel = share.tile * Tile::M, of_phase = pixels / (SPREAD * SPREAD),
        length = kernel * kernel * channels;
    int down = (height - kernel) / stride + 2 - SPREAD,
        across = (width - kernel) / stride + 2 - SPREAD;
    PixelsAndFilters operands{PaddedWindows(x + (share.row() * width + share.column()) * channels,
                                            height, width, channels, kernel, stride, down, across,
                                            of_phase, first_pixel),
                              RoundedFilters(weight + share.phase * filters * length, filters,
                                             kernel * kernel, channels, share.first_filter)};
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply_staged<Tile>(operands, (length + K - 1) / K, sum);
    result.finish(
        sum,
        Lines{first_pixel, of_phase, down * SPREAD, across * SPREAD, share.row(), share.column()},
        filters, share.first_filter);
}
