// Gradient of a 2-D convolution with respect to its weight, in parts, because no atomics are used.
// The update (weight_update.cu) or add_parts.cu adds the parts, and the bias gradient's, which the
// launch that copied dy left beside the copy.
//
// Rung: gpu_tf32, over gpu_3xtf32. Operands are packed copies with borders of zeros, which no
// thread holds in registers (staged_tile.cuh); ldmatrix transposes them. It serves what
// weight_grad_halo.cu and weight_grad_pooled.cu do not: strides, other windows and few channels.
//
// Layouts: x Packed (batch, height, width, channels), dy Packed (batch, out_height + 2 dy_padding,
// out_width + 2 dy_padding, dy_channels), borders included, with out_height = (height - kernel) /
// stride + 1; partials float32 (splits, filters, kernel, kernel, channels): the sums over one
// split's pixels. Channels are multiples of 8, and so are dy_channels, the filters and up to 7
// zeros; arrays start at multiples of 16 bytes. A split sums pixels_per_split pixels of y, a
// multiple of 64, in order, 16 products at a time; the splits are added in order. Their number
// depends on the shape alone: it changes the result's bytes.
//
// Macros:
//   TILE_M, TILE_N   filters and (tap, channel) columns of a block; WARP_M, WARP_N: those of a
//                    warp. With 128 threads, that of these which takes the fewest cycles: 128 x
//                    128, 64 x 64 a warp;  64 x 64, 32 x 32;  16 x 128, 16 x 32
//   WHOLE            1: 64 divides the pixels of y; 0: it does not
//   WHOLE_ROWS       1: out_width divides 64, so that all steps begin in the same column of y; 0:
//                    it does not
// Launches: block (threads of the tile), grid (ceil(columns / TILE_N), ceil(filters / TILE_M),
// splits), 384 (TILE_M + TILE_N) bytes of dynamic shared memory, of 16 x 128 384 (64 + TILE_N).
//
// Bound: shared memory and tensor cores, as conv2d.cu. In the loop of three steps of the large tile
// on sm_90 384 of 750 instructions are products, in that of 64 x 64 96 of 318, in that of 16 x 128
// 48 of 348. Every tap copies its pixels of x again.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "packed/weight_grad.cuh"

// A, (TILE_M, K) a step: lines are filters; B, (TILE_N, K): lines are taps and channels of x under
// them. k: pixels of y.
struct Operands {
    using APanel = RowsOfK<Tile::M>;
    using BPanel = RowsOfK<Tile::N>;
    static constexpr int PASSES = K / Tile::ROWS, M_SLICES = APanel::SLICES,
                         N_SLICES = BPanel::SLICES;
    const Packed *dy, *x;
    StepStride<K> dy_steps, x_steps;
    int out_height, out_width, left;  // left: pixels from this thread's first one on
    // The next pixel: its column and row in y, and where it begins in dy and in x.
    int column[PASSES], row[PASSES], dy_at[PASSES], x_at[PASSES];
    int filter[M_SLICES], under[N_SLICES];  // numbers from there to those of this thread

    __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            bool valid = WHOLE || left > pass * Tile::ROWS;
            int to = pass * Tile::ROWS * ROW;
#pragma unroll
            for (int slice = 0; slice < M_SLICES; slice++)
                // A small tile leaves the rest of its rows empty.
                if (Tile::M % SLICE == 0 || Tile::chunk() * CHUNK < Tile::M)
                    cp_async(16, to_a + slice * K * ROW + to,
                             valid ? dy + (dy_at[pass] + filter[slice]) : dy, valid);
#pragma unroll
            for (int slice = 0; slice < N_SLICES; slice++)
                cp_async(16, to_b + slice * K * ROW + to,
                         valid ? x + (x_at[pass] + under[slice]) : x, valid);
            dy_at[pass] += dy_steps.by, x_at[pass] += x_steps.by;
            column[pass] += x_steps.columns, row[pass] += x_steps.rows;
            if (!WHOLE_ROWS && column[pass] >= out_width) {
                column[pass] -= out_width, row[pass]++;
                dy_at[pass] += dy_steps.at_row_end, x_at[pass] += x_steps.at_row_end;
            }
            if (row[pass] >= out_height) {
                row[pass] -= out_height;
                dy_at[pass] += dy_steps.at_image_end, x_at[pass] += x_steps.at_image_end;
            }
        }
        left -= K;
    }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_weight_grad(const Packed* __restrict__ x, const Packed* __restrict__ dy,
                       float* __restrict__ partials, int batch, int height, int width, int channels,
                       int filters, int dy_channels, int kernel, int stride, int dy_padding,
                       int pixels_per_split) {
    int out_height = (height - kernel) / stride + 1, out_width = (width - kernel) / stride + 1;
    int dy_height = out_height + 2 * dy_padding, dy_width = out_width + 2 * dy_padding;
    int columns = kernel * kernel * channels, weights = filters * columns,
        pixels = batch * out_height * out_width;
    int first_column = blockIdx.x * Tile::N, first_filter = blockIdx.y * Tile::M;
    int first_pixel = blockIdx.z * pixels_per_split,
        last_pixel = min(first_pixel + pixels_per_split, pixels);
    Operands operands{dy,
                      x,
                      StepStride<K>(dy_height, dy_width, dy_channels, 1, out_height, out_width),
                      StepStride<K>(height, width, channels, stride, out_height, out_width),
                      out_height,
                      out_width,
                      last_pixel - first_pixel - Tile::row(0)};
#pragma unroll
    for (int pass = 0; pass < Operands::PASSES; pass++) {
        int pixel = first_pixel + Tile::row(pass), row = pixel / out_width,
            image = row / out_height;
        int column = pixel % out_width, of_image = row % out_height;
        operands.column[pass] = column, operands.row[pass] = of_image;
        operands.dy_at[pass] =
            ((image * dy_height + of_image + dy_padding) * dy_width + column + dy_padding) *
            dy_channels;
        operands.x_at[pass] =
            ((image * height + of_image * stride) * width + column * stride) * channels;
    }
#pragma unroll
    for (int slice = 0; slice < Operands::M_SLICES; slice++) {
        int filter = first_filter + slice * SLICE + Tile::chunk() * CHUNK;
        operands.filter[slice] = filter < dy_channels ? filter : 0;
    }
#pragma unroll
    for (int slice = 0; slice < Operands::N_SLICES; slice++) {
        int n = first_column + slice * SLICE + Tile::chunk() * CHUNK, tap = n / channels;
        operands.under[slice] =
            n < columns ? (tap / kernel * width + tap % kernel) * channels + n % channels : 0;
    }
    float sum[Tile::M_THREAD][Tile::N_THREAD];
    multiply_staged<Tile>(operands, (last_pixel - first_pixel + K - 1) / K, sum);
    write<Tile>(sum, partials + blockIdx.z * weights, filters, columns, first_filter, first_column);
}
