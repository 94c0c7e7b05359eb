// Gradient of a 2-D convolution with respect to its weight, in two kernels, because no atomics are
// used.
//
// Rung, a lesson: over gpu_wide, the pixels, along which the sums run, are split over blocks
// (split-K), so that a small weight still fills the GPU.
//
// Layouts: x, dy, dweight as in gpu_basic/conv2d.cu; partials (splits, weights): the sums over one
// split's pixels. A split sums pixels_per_split pixels in order; the splits are added in order.
// Their number depends on the shape alone: it changes the bytes.
// Launches:
//   conv2d_weight_grad_split  block (16, 16), grid (ceil(filters / 64), ceil(channels / 64), taps
//                             splits)
//   conv2d_add_splits         block (256), grid (ceil(weights / 256))
//
// Bound: as gpu_wide; conv2d_add_splits: memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_wide/tile.cuh"

#include "gpu_split_k/split.cuh"
