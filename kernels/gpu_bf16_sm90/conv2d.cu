// 2-D convolution (cross-correlation) with bias and, optionally, ReLU; with reversed filters and no
// bias, the gradient of one with stride 1 with respect to its input.
//
// Rung: gpu_bf16_sm90, over gpu_bf16. One thread of a block, the producer, only starts copies; the
// copy engine makes them, a whole tile by one instruction. The other warps, the consumers, only
// multiply, in warpgroups, which read the filters from shared memory. No thread computes where a
// number goes: the operands lie in global memory as they will lie in shared memory (loop.cuh).
//
// Layouts: x bfloat16 (channel blocks, image pixels, 64); weight bfloat16 (channel blocks, kernel,
// kernel, filters up to a multiple of TILE_N, 64); bias float32 (filters); y float32 (batch,
// out_height, out_width, filters) with out_height = (height - kernel) / stride + 1. A channel block
// has 64 channels; the eight chunks of a row of 64 are swapped by the row's number: chunk i is at i
// ^ row % 8. Image pixels are those of all images (batch, height, width), with their borders.
// Arrays start at multiples of 16 bytes. Every sum is in the order channel block, tap row, tap
// column, channel, 16 products at a time, with any tile.
//
// Macros:
//   TILE_M, TILE_N   pixels and filters of a block: 128 x 256, 128 x 128 or 64 x 64. A block
//                    computes block_pixels of its pixels, here all.
//   PHASES           1: x is the image before an upsampling, with a border of 1; kernel is 2 and
//                    stride 1. weight has the filters of the four phases (weight_update.cu):
//                    (channel blocks, 2, 2, 4, filters up to a multiple of TILE_N, 64). y is
//                    (batch, 2 height - 4, 2 width - 4, filters), and `pixels` counts all of it.
// Launches: block (2 TILE_M + 128): a warpgroup for every 64 pixels, and one whose first thread
// copies; grid (ceil(pixels / block_pixels) ceil(filters / TILE_N)), with PHASES=1 (4 ceil(pixels /
// 4 / block_pixels) ceil(filters / TILE_N)); STAGES 128 TILE_N + 256 rows + 96 bytes of dynamic
// shared memory. rows: image pixels, a multiple of 8, that the windows of a block's pixels span at
// most, counted from a multiple of 8 on.
//
// Bound: tensor cores and shared memory. A tap of a channel block takes 512 cycles at the tensor
// cores' peak in tiles of 128 x 128, and shared memory as many: 128 for what the copies write, 256
// for the filters, which each warpgroup reads, and 128 for the pixels.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_bf16_sm90/loop.cuh"
#include "packed/image.cuh"

extern "C" __global__ void __launch_bounds__(32 * CONSUMER_WARPS + 128, 1)
    conv2d(const Placed* __restrict__ x, const Placed* __restrict__ weight,
           const float* __restrict__ bias, float* __restrict__ y, int height, int width,
           int channel_blocks, int filters, int padded_filters, int kernel, int stride, int pixels,
           int image_pixels, int rows, int block_pixels, int relu) {
    convolve(x, weight,
             {height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
              image_pixels, rows, block_pixels},
             ImageEpilogue{bias, y, relu});
}
