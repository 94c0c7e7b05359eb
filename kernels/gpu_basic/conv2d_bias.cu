// The bias gradient of a convolution: the sum of dy over all pixels.
//
// Rung: the first on the GPU. The sum is split into parts, which are added in a fixed order, so that
// two runs give the same bytes.
//
// Layouts, float32: dy (pixels, filters); partials (parts, filters); dbias (filters). Every array
// has fewer than 2^31 elements.
//
// Launches: neighbouring threads have neighbouring filters.
//   conv2d_bias_partials  block (256), grid (ceil(parts filters / 256))
//   conv2d_bias_grad      block (32), grid (ceil(filters / 32))
//
// Bound: memory, which reads dy once. A warp's load touches one cache line.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/ordered_sum.cuh"

// partials(part, filter): the sum over the pixels part, part + parts, part + 2 parts and so on.
extern "C" __global__ void __launch_bounds__(256)
    conv2d_bias_partials(const float* __restrict__ dy, float* __restrict__ partials, int pixels,
                         int filters, int parts) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= parts * filters) return;
    int filter = element % filters, part = element / filters;
    float sum = 0.0f;
    for (int pixel = part; pixel < pixels; pixel += parts) sum += dy[pixel * filters + filter];
    partials[element] = sum;
}

// In float64, to avoid rounding.
extern "C" __global__ void __launch_bounds__(32)
    conv2d_bias_grad(const float* __restrict__ partials, float* __restrict__ dbias, int filters,
                     int parts) {
    int filter = blockIdx.x * blockDim.x + threadIdx.x;
    if (filter < filters)
        dbias[filter] = sum_of_parts<double, 16>(partials + filter, parts, filters);
}
