// Gradient of a 2-D convolution with respect to its weight, in two kernels: gpu_split_k's, with the
// tile of tile.cuh here.
//
// Rung, a lesson: see conv2d.cu here. Layouts and launches: gpu_split_k/weight_grad.cu.
#include "tile.cuh"

#include "gpu_split_k/split.cuh"
