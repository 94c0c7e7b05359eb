// 2-D convolution (cross-correlation) with bias and, optionally, ReLU; with a flipped weight and no
// bias, the gradient of one with stride 1 with respect to its input.
//
// Rung: gpu_tf32, over gpu_3xtf32. Operands are packed copies, which pass from global to shared
// memory without registers (staged_tile.cuh).
//
// Layouts: x Packed (batch, height, width, channels), the border included; weight Packed (filters,
// kernel, kernel, channels); bias float32 (filters); y float32 (batch, out_height, out_width,
// filters) with out_height = (height - kernel) / stride + 1. Channels are a multiple of 8, arrays
// start at multiples of 16 bytes.
//
// The order of every sum follows from the shape alone, 16 products at a time: tap row, tap column,
// channel. Where 64 divides the channels, one block of 64 channels after the other is summed in
// this order, as in conv2d_halo.cu. In a tile of 64 x 64 each of four warps sums a quarter of every
// 64 products, and the four sums are added.
//
// Macros:
//   TILE_M, TILE_N   pixels and filters of a block; WARP_M, WARP_N: those of a warp. With 128
//                    threads, one of: 128 x 128, 64 x 64 a warp;  128 x 64, 64 x 32;  64 x 64,
//                    32 x 32;  128 x 16, 32 x 16
//   WHOLE            1: 64 divides the channels, so that a step of k is of one tap; 0: it does not
//   PHASES           0, the default: y is of x as it is. Otherwise y is of x upsampled: pixels of
//                    four phases, each phase with filters of its own (weight_update.cu), of x with
//                    a border of 1. y is (batch, 2 (height - 2), 2 (width - 2), filters of one
//                    phase).
//                    1: a block has pixels of one phase. kernel is 2, weight (4, filters, 2, 2,
//                    channels); filters are those of one phase, `pixels` those of all phases.
//                    2: a block has all phases. kernel is 3, weight (filters, 3, 3, channels);
//                    filters are those of the four phases together, at most TILE_N, and `pixels`
//                    those of x. A phase reaches 2x2 of the 3x3 pixels; the weights of the others
//                    are zero, so that a NaN or an infinity there spreads by one pixel further.
// Launches: block (threads of the tile), grid (ceil(pixels / TILE_M) ceil(filters / TILE_N); with
// PHASES=1 four times that of one phase), 384 (TILE_M + TILE_N) bytes of dynamic shared memory;
// where no tile of conv2d_halo.cu takes less time.
//
// Bound: shared memory and tensor cores. Of a step of the large tile, 64 KB are read as fragments
// and 32 KB written, which takes 768 cycles at 128 bytes each, and 512 products 512 cycles at the
// peak of an H200; warps of 64 x 32 would read 96 KB. In its loop of three steps on sm_90 384 of
// 722 instructions are products, 96 load fragments for them and 48 copy; in that of the 64 x 64
// tile 96 of 302 are products.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "packed/pixel_loop.cuh"
#include "packed/image.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d(const Packed* __restrict__ x, const Packed* __restrict__ weight,
           const float* __restrict__ bias, float* __restrict__ y, int height, int width,
           int channels, int filters, int kernel, int stride, int pixels, int relu) {
    convolve(x, weight, height, width, channels, filters, kernel, stride, pixels,
             ImageEpilogue{bias, y, relu});
}
