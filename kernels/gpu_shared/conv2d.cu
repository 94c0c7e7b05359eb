// 2-D convolution (cross-correlation, zero padding) and its gradients with respect to input and
// weight.
//
// Rung, a lesson: over gpu_basic, tiles in shared memory: a block loads each element once for 16
// products. One element of the result a thread, as there.
//
// Kernels, layouts and launches: gpu_shared/products.cuh; the tile: tile.cuh here.
// Bound: shared memory. A thread reads 2 words of it for each multiply-add.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "tile.cuh"

#include "gpu_shared/products.cuh"
