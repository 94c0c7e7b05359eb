// 2-D convolution (cross-correlation) with bias and, optionally, ReLU; with a flipped weight and no bias, the gradient of one
// with stride 1 with respect to its input.
//
// Rung: gpu_bf16, over gpu_tf32. Operands are copies in bfloat16 (round.cu), half the bytes, which no thread holds in registers
// (stages.cuh); the image has a border of zeros, so that no place is compared with its edges, and a window's row is one run of
// kernel * channels numbers.
//
// Layouts: x bfloat16 (batch, height, width, channels), the border included; weight bfloat16 (filters, kernel, kernel,
// channels); bias float32 (filters); y float32 (batch, out_height, out_width, filters) with out_height = (height - kernel) /
// stride + 1. Channels are a multiple of 8, arrays start at multiples of 16 bytes.
//
// Order of every sum, by the shape alone, 16 products at a time: where 64 divides the channels, a slab of 64 channels after the
// other, in it tap row, tap column, channel, as conv2d_halo.cu has it; otherwise tap row, tap column, channel.
//
// Compiled with TILE_M x TILE_N, the pixels and filters of a block, WARP_M x WARP_N, those of a warp, and WHOLE: 64 divides the
// channels, so that a step of k is of one tap.
// Launches: block (threads of the tile), grid (ceil(pixels / TILE_M) ceil(filters / TILE_N)), 384 (TILE_M + TILE_N) bytes of
// dynamic shared memory; for shapes of which conv2d_halo.cu has no tile that takes less. Each tile has 128 threads:
//   128 x 128, 64 x 64 a warp;  128 x 64, 64 x 32;  64 x 64, 32 x 32;  128 x 16, 32 x 16
//
// Bound: shared memory and tensor cores. Of a step of the large tile, 64 KB are read as fragments and 32 KB written, which
// takes 768 clocks at 128 bytes each, and 512 products 512 clocks at the peak of an H200; warps of 64 x 32 would read 96 KB. In
// its loop of three steps on sm_90 384 of 718 instructions are products, 96 load fragments for them and 48 copy; in that of the
// 64 x 64 tile 96 of 322 are products.
// Predicted, not measured, for 64 images of 16x16x64 -> 128 filters, 1x1 (268 MFLOP): memory, 2.4 us.
// Measured: not measured.
#include "gpu_bf16/epilogue.cuh"
#include "gpu_bf16/weights.cuh"

// A: lines are pixels of y, k the taps and channels of x under them: kernel * channels neighbours in each of kernel rows of x.
struct PaddedWindows {
    static constexpr int PASSES = Tile::M / Tile::ROWS;
    const bfloat16 *x, *from;          // from: where this thread's next k of the first window is
    int channels, kernel, length;      // length: numbers of a window's row
    int to_next_row, to_next_slab;     // numbers beyond the last one of a row, of a window
    int k, rows;                       // next k in its row, and rows from it on
    int start[PASSES];                 // of the windows

    __device__ __forceinline__ PaddedWindows(const bfloat16* x, int height, int width, int channels, int kernel, int stride,
                                             int pixels, int first_pixel)
        : x(x), from(x + Tile::chunk() * CHUNK), channels(channels), kernel(kernel), length(kernel * channels),
          to_next_row((width - kernel) * channels), to_next_slab(K - kernel * width * channels),
          k(WHOLE ? 0 : Tile::chunk() * CHUNK), rows(kernel) {
        int out_height = (height - kernel) / stride + 1, out_width = (width - kernel) / stride + 1;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            int pixel = min(first_pixel + Tile::row(pass), pixels - 1), out_row = pixel / out_width;
            int row = out_row / out_height * height + out_row % out_height * stride;
            start[pass] = (row * width + pixel % out_width * stride) * channels;
        }
        if (!WHOLE) advance(0);
    }
    __device__ __forceinline__ void advance(int by) {
        from += by, k += by;
        if (WHOLE) {
            if (k == length) from += to_next_row, k = 0, rows--;
            if (rows == 0) from += to_next_slab, rows = kernel;
        } else {
            for (; k >= length; k -= length) from += to_next_row, rows--;
        }
    }
    // Whether the next step is the last tap of a slab.
    __device__ __forceinline__ bool ends_slab() const { return rows == 1 && k == length - channels; }
    __device__ __forceinline__ void copy(unsigned char* first_chunk) {
        bool there = WHOLE || rows > 0;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            cp_async(16, first_chunk + pass * Tile::ROWS * ROW, there ? from + start[pass] : x, there);
        advance(WHOLE ? channels : K);
    }
};

struct Operands {
    using APanel = RowsOfLines<Tile::M>;
    using BPanel = RowsOfLines<Tile::N>;
    PaddedWindows a;
    RoundedFilters b;
    __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b) {
        b.copy(to_b, WHOLE && a.ends_slab());
        a.copy(to_a);
    }
};

struct Pixels {
    int first, all;
    __device__ __forceinline__ int of(int i) const { return first + Tile::m_of(i) < all ? first + Tile::m_of(i) : -1; }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1) conv2d(
    const bfloat16* __restrict__ x, const bfloat16* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
    int height, int width, int channels, int filters, int kernel, int stride, int pixels, int relu) {
    int tiles_across = (filters + Tile::N - 1) / Tile::N;   // neighbouring blocks read the same pixels
    int first_pixel = blockIdx.x / tiles_across * Tile::M, first_filter = blockIdx.x % tiles_across * Tile::N;
    int length = kernel * kernel * channels;
    Operands operands{PaddedWindows(x, height, width, channels, kernel, stride, pixels, first_pixel),
                      RoundedFilters(weight, filters, kernel * kernel, channels, first_filter)};
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply_staged<Tile>(operands, (length + K - 1) / K, sum);
    finish<Tile>(sum, bias, y, filters, first_filter, relu, Pixels{first_pixel, pixels});
}
