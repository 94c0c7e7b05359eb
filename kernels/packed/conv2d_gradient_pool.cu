// As conv2d_gradient.cu, for an input that a 2x2 max-pool made: the gradient is that of the image
// before pooling.
//
// Layouts: as conv2d_gradient.cu; index as in conv2d_pool.cu; rounded Packed (batch, 2 out_height +
// 2 padding, 2 out_width + 2 padding, filters), zero in its border and at three places of each
// window.
// Macros, launches: those of conv2d_gradient.cu.
//
// Bound: memory, and as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "packed/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_gradient_pool(const Packed* __restrict__ dy, const Packed* __restrict__ flipped,
                         const Packed* __restrict__ kept, Copied* __restrict__ rounded,
                         Copied* __restrict__ steps, float* __restrict__ bias_partials,
                         const unsigned char* __restrict__ index, int height, int width,
                         int channels, int filters, int kernel, int stride, int pixels, int relu,
                         int kept_padding, int padding, int step_rows) {
    convolve(dy, flipped, height, width, channels, filters, kernel, stride, pixels,
             GradientEpilogue<ChannelsLast>{kept, rounded, steps, bias_partials, index, pixels,
                                            step_rows, relu, kept_padding, padding});
}
