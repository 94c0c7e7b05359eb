// The loop of a convolution that copies pixels step by step, as the filters. The image has a border
// of zeros, so that no place is compared with its edges, and a window's row is one run of kernel *
// channels numbers.
#pragma once
#include "packed/filters.cuh"

// The pixel of y of a line, counted through all tiles. With WINDOWS four lines are a window of 2 x
// 2 pixels, and y has an even height and width.
__device__ __forceinline__ int pixel_of(int line, int width) {
    if (!WINDOWS) return line;
    int window = line / 4, across = width / 2;
    return (window / across * 2 + line % 4 / 2) * width + window % across * 2 + line % 2;
}

// A, (TILE_M, K) a step: lines are pixels of y, k the taps and channels of x under them: kernel *
// channels neighbours in each of `kernel` rows of x.
struct PaddedWindows {
    static constexpr int PASSES = Tile::M / Tile::ROWS;
    const Packed *x, *from;        // from: this thread's next k of a window at the first pixel
    int channels, kernel, length;  // length: numbers of a window's row
    // Numbers to skip at the end of a window's row, and at the end of a channel block.
    int to_next_row, to_next_channel_block;
    int k, rows;        // the next k in its row; rows from there on
    int start[PASSES];  // numbers before this thread's windows

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
        bool valid = WHOLE || rows > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES && Tile::is_read(); pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, valid ? from + start[pass] : x,
                     valid);
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

// The pixels of a block: one after the other, or windows of four pixels one after the other.
// pixels: of y, or of the phase; height, width: of y; row, column: of the phase.
struct PixelTile {
    int first, pixels, height, width, row, column;

    // The pixel in y of row i of this thread's accumulators; -1: none.
    __device__ __forceinline__ int pixel(int i) const {
        int number = first + Tile::m_of(i), across = width / PHASE_STRIDE;
        if (number >= pixels) return -1;
        return (number / across * PHASE_STRIDE + row) * width + number % across * PHASE_STRIDE +
               column;
    }
    __device__ __forceinline__ OutputPixel output(int number) const {
        int of_all = first / POOL_SIZE + number, across = width / PHASE_STRIDE / POOL_SIDE,
            down = height / PHASE_STRIDE / POOL_SIDE;
        int of_rows = of_all / across;
        return {of_all < pixels / POOL_SIZE, of_rows / down, of_rows % down * PHASE_STRIDE + row,
                of_all % across * PHASE_STRIDE + column};
    }
    static __device__ __forceinline__ int line(int output, int place) {
        return POOL_SIZE * output + place;
    }
    __device__ __forceinline__ int first_partial() const { return first / 64; }
};

// A block's part of the convolution of x with weight. Where phases are apart, the convolution of
// phase (p, q) begins at pixel (p, q) of x and has filters of its own.
template <class Epilogue>
__device__ __forceinline__ void
convolve(const Packed* __restrict__ x, const Packed* __restrict__ weight, int height, int width,
         int channels, int filters, int kernel, int stride, int pixels, const Epilogue& epilogue) {
    BlockTile block(filters);
    int first_pixel = block.tile * Tile::M, of_phase = pixels / (PHASE_STRIDE * PHASE_STRIDE),
        length = kernel * kernel * channels;
    int down = (height - kernel) / stride + 2 - PHASE_STRIDE,
        across = (width - kernel) / stride + 2 - PHASE_STRIDE;
    PixelsAndFilters operands{PaddedWindows(x + (block.row() * width + block.column()) * channels,
                                            height, width, channels, kernel, stride, down, across,
                                            of_phase, first_pixel),
                              RoundedFilters(weight + block.phase * filters * length, filters,
                                             kernel * kernel, channels, block.first_filter)};
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply_staged<Tile>(operands, (length + K - 1) / K, sum);
    epilogue.finish(sum,
                    PixelTile{first_pixel, of_phase, down * PHASE_STRIDE, across * PHASE_STRIDE,
                              block.row(), block.column()},
                    filters, block.first_filter);
}
