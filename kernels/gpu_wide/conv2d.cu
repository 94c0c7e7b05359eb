// 2-D convolution (cross-correlation, zero padding) and its gradients with respect to input and
// weight.
//
// Rung, a lesson: over gpu_registers, 16 bytes at a time from global and from shared memory. For
// channels and filters that are multiples of 4.
//
// Kernels, layouts and launches: gpu_shared/products.cuh; the tile: tile.cuh here.
// Bound: shared memory. A thread reads 8 words of it for 16 multiply-adds, in 2 accesses instead of
// 8.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "tile.cuh"

#include "gpu_shared/products.cuh"
