// The gradient of a convolution with stride 1 with respect to its input, as the next layer's
// backward pass reads it: a packed copy, and partial sums of a bias gradient, both behind the ReLU
// that made the input. For a convolution behind an upsampling the input is the smaller image, whose
// gradient is a convolution of dy with the phase weights and stride 2 (weight_update.cu).
//
// Rung: gpu_tf32. Changed from conv2d.cu with a flipped weight, which stored the gradient in
// float32. Other launches then applied the gradient of the ReLU and stored it again, and read it to
// round and sum it.
//
// Layouts: dy and flipped: as x and weight of conv2d.cu, which computes dx (batch, out_height,
// out_width, filters) from them. kept Packed (batch, out_height + 2 kept_padding, out_width + 2
// kept_padding, filters): the copy of the convolution's input, which is zero where the ReLU was (a
// number up to 2^-134 also is, in float16 up to 2^-25); rounded Packed, the gradient with a border
// of zeros; bias_partials float32 (tiles TILE_M / 64, filters): the sums of the gradient, not
// rounded, over 64 lines of a tile, in order. Another tile would give other bytes, but the shape
// alone decides on the tile. Filters are a multiple of 8.
//
// Macros: those of conv2d_copy.cu. IN_CHANNEL_BLOCKS is also the layout of the gradient. 0: rounded
// (batch, out_height + 2 padding, out_width + 2 padding, filters), and steps is not used. 1:
// rounded (ceil(filters / 64), batch, out_height + 2 padding, out_width + 2 padding, 64), not
// written where padding is 0, and steps Packed (ceil(filters / 64), step_rows, 64): the same
// without a border, the pixels of all images one after the other and then zeros; step_rows is a
// multiple of 64.
// Launches: as conv2d_copy.cu.
//
// Bound: as conv2d.cu.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "packed/loop.cuh"
#include "packed/copies.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, 1)
    conv2d_gradient(const Packed* __restrict__ dy, const Packed* __restrict__ flipped,
                    const Packed* __restrict__ kept, Copied* __restrict__ rounded,
                    Copied* __restrict__ steps, float* __restrict__ bias_partials, int height,
                    int width, int channels, int filters, int kernel, int stride, int pixels,
                    int relu, int kept_padding, int padding, int step_rows) {
    convolve(dy, flipped, height, width, channels, filters, kernel, stride, pixels,
             GradientEpilogue<ChannelsLast>{kept, rounded, steps, bias_partials, nullptr, pixels,
                                            step_rows, relu, kept_padding, padding});
}
