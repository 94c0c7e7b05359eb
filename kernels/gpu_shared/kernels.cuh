// The kernels of a convolution for the tile.cuh included before it. Block: (THREADS, THREADS).
//
//   conv2d_forward      grid (ceil(pixels of y / SIDE), ceil(filters / SIDE)); y = convolution + bias, then ReLU if `relu`
//   conv2d_input_grad   grid (ceil(pixels of dx / SIDE), ceil(channels / SIDE))
//   conv2d_weight_grad  grid (ceil(filters / SIDE), ceil(channels / SIDE), kernel kernel)
//
// Layouts: see gpu_basic/conv2d.cu. Sums are in its order: tap row, tap column, channel or filter; weight gradients by pixel.
#pragma once
#include "gpu_shared/products.cuh"

extern "C" __global__ void __launch_bounds__(THREADS * THREADS) conv2d_forward(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
    int batch, int height, int width, int channels, int filters, int kernel, int padding, int stride, int relu) {
    multiply_tile(Forward{x, weight, bias, y, {batch, height, width, channels, filters, kernel, padding, stride}, relu});
}

extern "C" __global__ void __launch_bounds__(THREADS * THREADS) conv2d_input_grad(
    const float* __restrict__ dy, const float* __restrict__ weight, float* __restrict__ dx, int batch, int height, int width,
    int channels, int filters, int kernel, int padding, int stride) {
    multiply_tile(InputGrad{dy, weight, dx, {batch, height, width, channels, filters, kernel, padding, stride}});
}

extern "C" __global__ void __launch_bounds__(THREADS * THREADS) conv2d_weight_grad(
    const float* __restrict__ x, const float* __restrict__ dy, float* __restrict__ dweight, int batch, int height, int width,
    int channels, int filters, int kernel, int padding, int stride) {
    Convolution conv = {batch, height, width, channels, filters, kernel, padding, stride};
    multiply_tile(WeightGrad{x, dy, dweight, conv, int(blockIdx.z), 0, batch * conv.out_height() * conv.out_width()});
}
