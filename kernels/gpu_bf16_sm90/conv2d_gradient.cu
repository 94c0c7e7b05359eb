// The gradient of a convolution with stride 1 with respect to its input, as the next layer's
// backward pass reads it: copies in bfloat16, and partial sums of a bias gradient, both behind the
// ReLU that made the input.
//
// Rung: gpu_bf16_sm90. Changed from conv2d.cu as packed/conv2d_gradient.cu is from
// packed/conv2d.cu.
//
// Layouts: dy and flipped: as x and weight of conv2d.cu, which computes dx (batch, out_height,
// out_width, filters) from them. kept: the convolution's input in channel blocks, with a border of
// kept_padding. rounded, steps and bias_partials as packed/conv2d_gradient.cu's, of the tiles
// here.
//
// Macros, launches: those of conv2d_copy.cu.
//
// Bound: as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_bf16_sm90/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(32 * CONSUMER_WARPS + 128, 1)
    conv2d_gradient(const Placed* __restrict__ dy, const Placed* __restrict__ flipped,
                    const Placed* __restrict__ kept, Copied* __restrict__ rounded,
                    Copied* __restrict__ steps, float* __restrict__ bias_partials, int height,
                    int width, int channel_blocks, int filters, int padded_filters, int kernel,
                    int stride, int pixels, int image_pixels, int rows, int block_pixels, int relu,
                    int kept_padding, int padding, int step_rows) {
    convolve(dy, flipped,
             {height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
              image_pixels, rows, block_pixels},
             GradientEpilogue<InChannelBlocks>{kept, rounded, steps, bias_partials, nullptr, pixels,
                                               step_rows, relu, kept_padding, padding});
}
