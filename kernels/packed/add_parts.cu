// Gradients of a 2-D convolution with respect to its weight and bias from the parts that
// weight_grad.cu and weight_grad_halo.cu leave, where the update does not add them itself
// (weight_update.cu).
//
// Rung: gpu_tf32, over gpu_3xtf32.
//
// Layouts: partials float32 (splits, filters, kernel, kernel, channels); bias_partials float32
// (bias_splits, filters); dweight (filters, kernel, kernel, channels), without the channels of
// zeros that the partials may have; dbias (filters). Channels are multiples of 8; arrays start at
// multiples of 16 bytes. Parts are added in order.
//
// Launches: block (128), grid (ceil(weights / 512) + ceil(filters / 8))
//
// Bound: memory; of few weights, which fill no GPU, latency: 16 parts are under way at once.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/ordered_sum.cuh"
#include "common/vector.cuh"
#include "packed/bias_partials.cuh"

// dweight, four neighbours per thread; in the last ceil(filters / 8) blocks dbias. channels: of the
// partials; kept_channels: of dweight.
extern "C" __global__ void __launch_bounds__(128)
    conv2d_add_parts(const float* __restrict__ partials, const float* __restrict__ bias_partials,
                     float* __restrict__ dweight, float* __restrict__ dbias, int weights,
                     int filters, int splits, int bias_splits, int channels, int kept_channels) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4, of_weights = (weights + 511) / 512;
    if (blockIdx.x >= of_weights) {
        int first_filter = (blockIdx.x - of_weights) * 8;
        float sum = sum_of_rows<8>(bias_partials, first_filter, filters, bias_splits);
        if (threadIdx.x < 8 && first_filter + threadIdx.x < filters)
            dbias[first_filter + threadIdx.x] = sum;
        return;
    }
    if (first >= weights) return;
    float sum[4] = {};
    add_in_order<16>(sum, splits, [=](float (&to)[4], int split) {
        load(to, partials + split * weights + first);
    });
    if (kept_channels == channels) {
        store(dweight + first, sum);
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int channel = (first + e) % channels;
        if (channel < kept_channels)
            dweight[(first + e) / channels * kept_channels + channel] = sum[e];
    }
}
