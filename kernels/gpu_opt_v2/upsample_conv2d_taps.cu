// Nearest upsampling by 2, then 3x3 convolution with bias and ReLU, to few filters: forward in two
// kernels. Its gradients are those of upsample_conv2d.cu and weight_grad.cu.
//
// Rung: gpu_opt_v2. Changed from upsample_conv2d.cu: a phase's few filters would fill a fraction of
// a tile, so the 16 phase weights of all filters are one product (3 filters: 48 columns, a tile's
// width), and each output pixel then adds up its four.
//
// Layouts, float32: x, phase_weights, bias, y as in upsample_conv2d.cu; taps (batch, height, width,
// filters, 4, 4): each pixel of x's contributions to the pixels of y around it.
//
// Launches:
//   upsample_conv2d_taps       block (Tile::THREADS), -DTILE=M,N,M_THREAD,N_THREAD (128,48,4,12),
//                              -DWIDE_CHANNELS as in conv2d.cu; grid (ceil(batch height width / M),
//                              ceil(16 filters / N))
//   upsample_conv2d_add_taps   block (256), grid (ceil(elements of y / 256))
//
// Bound: the multiply-adds of the product, with little latency hidden by one block per
// multiprocessor; for the sum, the level-2 cache, which holds the taps.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_opt_v2/operands.cuh"

#ifndef TILE
#define TILE 128, 48, 4, 12
#define WIDE_CHANNELS 1
#endif
using Tile = GemmTile<TILE>;

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    upsample_conv2d_taps(const float* __restrict__ x, const float* __restrict__ phase_weights,
                         float* __restrict__ taps, int batch, int height, int width, int channels,
                         int filters) {
    int pixels = batch * height * width, first_pixel = blockIdx.x * Tile::M,
        first_tap = blockIdx.y * Tile::N;
    Images<PLAIN, WIDE_CHANNELS> images = {x, nullptr, nullptr, height, width, channels};
    Filters<WIDE_CHANNELS> rows = {phase_weights, 16 * filters, channels, 1, channels, 0, 0};
    WindowRows<Tile, Tile::M, PLAIN, WIDE_CHANNELS, false> a(images, {1, 1, 0, 0}, height, width,
                                                             first_pixel, pixels);
    FilterRows<Tile, Tile::N, WIDE_CHANNELS> b(rows, first_tap);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    multiply<Tile>(a, b, (channels + Tile::K - 1) / Tile::K, sum);
    store_rows<Tile>(taps, sum, first_pixel, pixels, first_tap, 16 * filters);
}

extern "C" __global__ void __launch_bounds__(256)
    upsample_conv2d_add_taps(const float* __restrict__ taps, const float* __restrict__ bias,
                             float* __restrict__ y, int batch, int height, int width, int filters,
                             int relu) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * 4 * height * width * filters) return;
    // Rows are numbered through all images.
    int filter = i % filters, column = i / filters % (2 * width), row = i / filters / (2 * width);
    int p = row % 2, q = column % 2;
    float sum = bias[filter];
#pragma unroll
    for (int down = 0; down < 2; down++)
#pragma unroll
        for (int right = 0; right < 2; right++) {
            int from_row = row / 2 % height + p - 1 + down,
                from_column = column / 2 + q - 1 + right;
            if (!within(from_row, height) || !within(from_column, width)) continue;
            int from = (row / 2 / height * height + from_row) * width + from_column;
            sum += taps[((from * filters + filter) * 4 + 3 - p - 2 * down) * 4 + 3 - q - 2 * right];
        }
    y[i] = relu ? at_least(sum, 0.0f) : sum;
}
