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
#include "common/ordered_sum.cuh"
#include "gpu_wide/tile.cuh"

#include "gpu_shared/products.cuh"

extern "C" __global__ void __launch_bounds__(THREADS* THREADS)
    conv2d_weight_grad_split(const float* __restrict__ x, const float* __restrict__ dy,
                             float* __restrict__ partials, int batch, int height, int width,
                             int channels, int filters, int kernel, int padding, int stride,
                             int pixels_per_split) {
    Convolution conv = {batch, height, width, channels, filters, kernel, padding, stride};
    int tap = blockIdx.z % conv.taps(), split = blockIdx.z / conv.taps(),
        first = split * pixels_per_split;
    int last = min(first + pixels_per_split, batch * conv.out_height() * conv.out_width());
    multiply_tile(WeightGrad{x, dy, partials + split * filters * conv.taps() * channels, conv, tap,
                             first, last});
}

extern "C" __global__ void __launch_bounds__(256)
    conv2d_add_splits(const float* __restrict__ partials, float* __restrict__ dweight, int weights,
                      int splits) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= weights) return;
    dweight[place] = sum_of_parts(partials + place, splits, weights);
}
