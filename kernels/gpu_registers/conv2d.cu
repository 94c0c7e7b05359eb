// 2-D convolution (cross-correlation, zero padding) and its gradients with respect to input and
// weight.
//
// Rung, a lesson: over gpu_shared, 4 x 4 elements a thread, whose sums stay in registers: tiles of
// 64 x 64.
//
// Kernels, layouts and launches: gpu_shared/products.cuh; the tile: tile.cuh here.
// Bound: shared memory. A thread reads 8 words of it for 16 multiply-adds.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "tile.cuh"

#include "gpu_shared/products.cuh"
