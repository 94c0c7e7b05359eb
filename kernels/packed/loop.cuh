// The loop of a convolution whose operands are packed copies: convolve(), a block's part. The files
// that include this one, conv2d_copy.cu and others, differ in the epilogue.
//
// Macros, beside those of staged_tile.cuh:
//   KERNEL, TILE_COLUMNS   as halo_loop.cuh has them; not defined: the loop of pixel_loop.cuh
//   WINDOWS                1: the epilogue pools windows of 2 x 2 pixels, which a block has whole; 0,
//                          the default: it does not
//   PHASES                 an upsampled image has four phases, each with filters of its own. 1:
//                          apart, a block has pixels of one phase; 2: in columns, a block has
//                          pixels of all four; 0, the default: there are no phases (conv2d.cu)
#pragma once
#ifdef KERNEL
#include "packed/halo_loop.cuh"
#else
#include "packed/pixel_loop.cuh"
#endif
