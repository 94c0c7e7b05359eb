// 2-D convolution (cross-correlation, zero padding) and its gradient with respect to the input.
//
// Rung, a lesson: over gpu_registers, a tile's products by tensor cores, from operands rounded to
// TF32.
//
// Kernels, layouts and launches: gpu_shared/products.cuh; the tile: tile.cuh here. Weight
// gradients: weight_grad.cu.
// Bound: latency. All threads wait for the copies of a step before they multiply it.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "tile.cuh"

#include "gpu_shared/products.cuh"
