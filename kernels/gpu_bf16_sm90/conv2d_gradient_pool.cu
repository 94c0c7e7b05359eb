// As conv2d_gradient.cu, for an input that a 2x2 max-pool made: the gradient is that of the image
// before pooling.
//
// Layouts: as conv2d_gradient.cu; index, rounded and steps as packed/conv2d_gradient_pool.cu's.
// Macros, launches: those of conv2d_gradient.cu.
//
// Bound: memory, and as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "gpu_bf16_sm90/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(32 * CONSUMER_WARPS + 128, 1)
    conv2d_gradient_pool(const Placed* __restrict__ dy, const Placed* __restrict__ flipped,
                         const Placed* __restrict__ kept, Copied* __restrict__ rounded,
                         Copied* __restrict__ steps, float* __restrict__ bias_partials,
                         const unsigned char* __restrict__ index, int height, int width,
                         int channel_blocks, int filters, int padded_filters, int kernel,
                         int stride, int pixels, int image_pixels, int rows, int block_pixels,
                         int relu, int kept_padding, int padding, int step_rows) {
    convolve(dy, flipped,
             {height, width, channel_blocks, filters, padded_filters, kernel, stride, pixels,
              image_pixels, rows, block_pixels},
             GradientEpilogue<InChannelBlocks>{kept, rounded, steps, bias_partials, index, pixels,
                                               step_rows, relu, kept_padding, padding});
}
