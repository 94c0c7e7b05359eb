// 2-D convolution (cross-correlation, zero padding) and its gradient with respect to the input.
//
// Rung, a lesson: over gpu_async, for Hopper: 128 threads store steps, rounded to bfloat16, and 128
// multiply them (wgmma).
//
// Kernels, layouts and launches: gpu_shared/products.cuh; the tile: tile.cuh here. Weight
// gradients: weight_grad.cu.
// Bound: the producer, which loads 4 bytes at a time and computes where each element is.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "tile.cuh"

#include "gpu_shared/products.cuh"
