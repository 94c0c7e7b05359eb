// The kernels of a weight gradient whose pixels are split over blocks, for the tile.cuh that is
// included before. Layouts and launches: weight_grad.cu here.
#pragma once
#include "common/ordered_sum.cuh"

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
