// The kernels of a convolution for the tile.cuh that is included before, and what they multiply;
// gpu_split_k/weight_grad.cu uses these products too. Block: (THREADS, THREADS).
//
//   conv2d_forward      grid (ceil(pixels of y / SIDE), ceil(filters / SIDE)); y = convolution +
//                       bias, then ReLU if `relu`
//   conv2d_input_grad   grid (ceil(pixels of dx / SIDE), ceil(channels / SIDE))
//   conv2d_weight_grad  grid (ceil(filters / SIDE), ceil(channels / SIDE), kernel kernel)
//
// Layouts: see gpu_basic/conv2d.cu. Sums are in its order: tap row, tap column, channel or filter;
// weight gradients by pixel.
//
// A convolution and its gradients as matrix products: C(m, n) = the sum over taps and k of A(m, k)
// B(n, k).
//
//   direction        C(m, n)                   taps         k           A(m, k)      B(n, k)
//   forward          y: pixel of y, filter     all          channel     x under tap  weight
//   input gradient   dx: pixel of dx, channel  all          filter      dy over tap  weight
//   weight gradient  dweight: filter, channel  the block's  pixel of y  dy           x under tap
// where dy over a tap is the pixel of y that saw x through it.
//
// a(m, k, tap) and b(n, k, tap) are the addresses of the elements, or null outside the matrix or
// the image, where they are 0. A_ALONG_K: neighbours along k are neighbours in memory, otherwise
// neighbours along m; B_ALONG_K likewise.
#pragma once

// How many blocks a multiprocessor must have room for; 0: as the compiler chooses.
#ifndef BLOCKS_AT_ONCE
#define BLOCKS_AT_ONCE 0
#endif

struct Convolution {
    int batch, height, width, channels, filters, kernel, padding, stride;
    __device__ __forceinline__ int out_height() const {
        return (height + 2 * padding - kernel) / stride + 1;
    }
    __device__ __forceinline__ int out_width() const {
        return (width + 2 * padding - kernel) / stride + 1;
    }
    __device__ __forceinline__ int taps() const { return kernel * kernel; }
    // The pixel of x under a tap of the window of `pixel` of y, -1 outside the image.
    __device__ __forceinline__ int under(int pixel, int tap) const {
        int out_width = this->out_width(), out_height = this->out_height();
        int row = pixel / out_width % out_height * stride + tap / kernel - padding;
        int column = pixel % out_width * stride + tap % kernel - padding,
            image = pixel / (out_width * out_height);
        bool inside = row >= 0 && row < height && column >= 0 && column < width && image < batch;
        return inside ? (image * height + row) * width + column : -1;
    }
    // The pixel of y whose window has `pixel` of x under the tap, -1 if there is none.
    __device__ __forceinline__ int above(int pixel, int tap) const {
        int row = pixel / width % height + padding - tap / kernel,
            column = pixel % width + padding - tap % kernel;
        int image = pixel / (width * height), out_row = row / stride, out_column = column / stride;
        bool inside = row >= 0 && row % stride == 0 && out_row < out_height() && column >= 0 &&
                      column % stride == 0 && out_column < out_width() && image < batch;
        return inside ? (image * out_height() + out_row) * out_width() + out_column : -1;
    }
};

struct Forward {
    static constexpr bool A_ALONG_K = true, B_ALONG_K = true;
    const float *x, *weight, *bias;
    float* y;
    Convolution conv;
    int relu;
    __device__ __forceinline__ int first_tap() const { return 0; }
    __device__ __forceinline__ int last_tap() const { return conv.taps(); }
    __device__ __forceinline__ int first_k() const { return 0; }
    __device__ __forceinline__ int last_k() const { return conv.channels; }
    __device__ __forceinline__ const float* a(int m, int k, int tap) const {
        int pixel = conv.under(m, tap);
        return pixel >= 0 && k < conv.channels ? x + pixel * conv.channels + k : nullptr;
    }
    __device__ __forceinline__ const float* b(int n, int k, int tap) const {
        bool inside = n < conv.filters && k < conv.channels;
        return inside ? weight + (n * conv.taps() + tap) * conv.channels + k : nullptr;
    }
    __device__ __forceinline__ void write(int m, int n, float sum) const {
        if (m >= conv.batch * conv.out_height() * conv.out_width() || n >= conv.filters) return;
        float value = sum + bias[n];
        // Not fmaxf, which would hide a NaN.
        y[m * conv.filters + n] = relu && value < 0.0f ? 0.0f : value;
    }
};

struct InputGrad {
    static constexpr bool A_ALONG_K = true, B_ALONG_K = false;
    const float *dy, *weight;
    float* dx;
    Convolution conv;
    __device__ __forceinline__ int first_tap() const { return 0; }
    __device__ __forceinline__ int last_tap() const { return conv.taps(); }
    __device__ __forceinline__ int first_k() const { return 0; }
    __device__ __forceinline__ int last_k() const { return conv.filters; }
    __device__ __forceinline__ const float* a(int m, int k, int tap) const {
        int pixel = conv.above(m, tap);
        return pixel >= 0 && k < conv.filters ? dy + pixel * conv.filters + k : nullptr;
    }
    __device__ __forceinline__ const float* b(int n, int k, int tap) const {
        bool inside = n < conv.channels && k < conv.filters;
        return inside ? weight + (k * conv.taps() + tap) * conv.channels + n : nullptr;
    }
    __device__ __forceinline__ void write(int m, int n, float sum) const {
        if (m < conv.batch * conv.height * conv.width && n < conv.channels)
            dx[m * conv.channels + n] = sum;
    }
};

// Of one tap, over the pixels of y from `first` to before `last`.
struct WeightGrad {
    static constexpr bool A_ALONG_K = false, B_ALONG_K = false;
    const float *x, *dy;
    float* dweight;
    Convolution conv;
    int tap, first, last;
    __device__ __forceinline__ int first_tap() const { return tap; }
    __device__ __forceinline__ int last_tap() const { return tap + 1; }
    __device__ __forceinline__ int first_k() const { return first; }
    __device__ __forceinline__ int last_k() const { return last; }
    __device__ __forceinline__ const float* a(int m, int k, int) const {
        return m < conv.filters && k < last ? dy + k * conv.filters + m : nullptr;
    }
    __device__ __forceinline__ const float* b(int n, int k, int tap) const {
        int pixel = k < last ? conv.under(k, tap) : -1;
        return pixel >= 0 && n < conv.channels ? x + pixel * conv.channels + n : nullptr;
    }
    __device__ __forceinline__ void write(int m, int n, float sum) const {
        if (m < conv.filters && n < conv.channels)
            dweight[(m * conv.taps() + tap) * conv.channels + n] = sum;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS* THREADS, BLOCKS_AT_ONCE)
    conv2d_forward(const float* __restrict__ x, const float* __restrict__ weight,
                   const float* __restrict__ bias, float* __restrict__ y, int batch, int height,
                   int width, int channels, int filters, int kernel, int padding, int stride,
                   int relu) {
    multiply_tile(Forward{
        x,
        weight,
        bias,
        y,
        {batch, height, width, channels, filters, kernel, padding, stride},
        relu
    });
}

extern "C" __global__ void __launch_bounds__(THREADS* THREADS, BLOCKS_AT_ONCE)
    conv2d_input_grad(const float* __restrict__ dy, const float* __restrict__ weight,
                      float* __restrict__ dx, int batch, int height, int width, int channels,
                      int filters, int kernel, int padding, int stride) {
    multiply_tile(InputGrad{
        dy, weight, dx, {batch, height, width, channels, filters, kernel, padding, stride}
    });
}

extern "C" __global__ void __launch_bounds__(THREADS* THREADS, BLOCKS_AT_ONCE)
    conv2d_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                       float* __restrict__ dweight, int batch, int height, int width, int channels,
                       int filters, int kernel, int padding, int stride) {
    Convolution conv = {batch, height, width, channels, filters, kernel, padding, stride};
    multiply_tile(WeightGrad{x, dy, dweight, conv, int(blockIdx.z), 0,
                             batch * conv.out_height() * conv.out_width()});
}
