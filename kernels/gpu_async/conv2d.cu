// 2-D convolution (cross-correlation, zero padding) and its gradient with respect to the input.
//
// Rung, a lesson: over gpu_mma, two stages: the next step is copied (cp.async) while this one is
// multiplied.
//
// Kernels, layouts and launches: gpu_shared/products.cuh; the tile: tile.cuh here. Weight
// gradients: weight_grad.cu.
// Bound: the copies, 4 bytes at a time, and the rounding of each element by every warp that reads it.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "tile.cuh"

#include "gpu_shared/products.cuh"
