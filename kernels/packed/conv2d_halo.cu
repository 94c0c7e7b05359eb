// 2-D convolution (cross-correlation) with stride 1, to the same bytes as conv2d.cu: the pixels of
// x under a block's part of an image lie in shared memory once, and all taps read them there.
//
// Rung: gpu_tf32, over gpu_3xtf32. A block multiplies the pixels of a rectangle of y. Of x it
// copies the rectangle and what the window reaches beyond it, its halo, a block of 64 channels at a
// time; a tap is a shift of the addresses from which ldmatrix reads. Weights arrive in stages, as
// in conv2d.cu, and the next channel block while this one is multiplied.
//
// Layouts, order of sums: as conv2d.cu; channels are a multiple of 64. Rows of shared memory are
// pixels, of 128 bytes; their chunks are swapped by the column in the halo, so that neighbours of
// any tap are in eight groups of banks.
//
// Macros:
//   TILE_M, TILE_N   pixels and filters of a block; WARP_M, WARP_N: those of a warp; TILE_COLUMNS:
//                    width of the rectangle, which has TILE_M pixels. With 128 threads, one of:
//                    128 x 128, 64 x 64 a warp, 16 columns;  128 x 64, 64 x 32, 16;  64 x 64,
//                    32 x 32, 8;  256 x 16, 64 x 16, 16;  128 x 16, 32 x 16, 16
//   KERNEL           rows and columns of a filter: 2, 3 or 5. A stage has the weights of a tap.
//                    There are KERNEL stages, but four for KERNEL 2. With float16 these are two:
//                    four would spill registers on sm_75
//   WHOLE            1, as in conv2d.cu; PHASES: as there
// Launches: block (threads of the tile), grid (rectangles of all images times ceil(filters /
// TILE_N); with PHASES=1 four times that of one phase), with stages * TILE_N * 128 bytes of dynamic
// shared memory and those of a halo, or of two where channels are more than 64.
//
// Bound: shared memory. Of a step of the large tile, 64 KB are read as fragments, which takes 512
// cycles, as many as its products; 16 KB of weights are written, but only a ninth of the 23 KB of a
// halo. For a rectangle of 128 pixels level 2 gives 180 pixels of x, where conv2d.cu asks for
// 1,152. In the loop over a row of taps on sm_90 384 of 651 instructions are products, 96 load
// fragments and 29 copy; in that of the 64 x 64 tile 96 of 223 are products, in that of 256 x 16 96
// of 246.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#ifndef KERNEL
#define KERNEL 3
#define TILE_COLUMNS 16
#endif
#include "packed/halo_loop.cuh"
#include "packed/image.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_halo(const Packed* __restrict__ x, const Packed* __restrict__ weight,
                const float* __restrict__ bias, float* __restrict__ y, int height, int width,
                int channels, int filters, int kernel, int stride, int pixels, int relu) {
    convolve(x, weight, height, width, channels, filters, kernel, stride, pixels,
             ImageEpilogue{bias, y, relu});
}
