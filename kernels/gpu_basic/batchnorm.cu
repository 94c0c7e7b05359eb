// Batch normalization (Ioffe and Szegedy, 2015): each channel by its mean and variance over the
// batch, or after training by the running statistics; and its gradients.
//
// Rung: the first on the GPU. Global memory only, no atomics. One thread per element of y and dx;
// sums over all pixels are split into parts, one thread per part and channel, over pixels `parts`
// apart; one thread per channel adds the parts in order. The result's bytes depend on `parts`.
//
// The variance takes a second pass over x, because the mean of the squares minus the square of the
// mean would lose a small variance beside a large mean. Per-channel arithmetic is in float64.
//
// Layouts, float32: x, y, dx, dy (pixels, channels), in memory order, the pixels of all images of
// the batch; weight, bias, dweight, dbias, mean, inverse = 1 / sqrt(variance + epsilon),
// running_mean, running_var (channels); partials (parts, channels), for the gradients (2, parts,
// channels): dbias, then dweight. `count` = pixels channels.
//
// Launches: block (256) and grid (ceil(count / 256)) for normalize, inference and input_grad,
// (ceil(parts channels / 256)) for those that write partials; block (32), grid (ceil(channels /
// 32)) for mean, statistics and parameter_grads.
//   in training    batchnorm_mean_partials, _mean, _variance_partials, _statistics, _normalize
//   backward       batchnorm_gradient_partials, _parameter_grads, _input_grad
//   afterwards     batchnorm_inference
//
// Bound: memory, with enough channels to saturate it; latency for the partial sums of fewer, whose
// loops are as written: a thread has four loads under way, not more. Forward reads x three times
// and writes y, 16 bytes per element; backward reads x and dy twice and writes dx, 20 bytes;
// inference moves 8.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/ordered_sum.cuh"

// The sum of a channel's parts, in float64 to avoid rounding.
__device__ __forceinline__ double add_parts(const float* __restrict__ partials, int channel,
                                            int channels, int parts) {
    return sum_of_parts<double, 16>(partials + channel, parts, channels);
}

extern "C" __global__ void __launch_bounds__(256)
    batchnorm_mean_partials(const float* __restrict__ x, float* __restrict__ partials, int pixels,
                            int channels, int parts) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= parts * channels) return;
    int channel = element % channels, part = element / channels;
    float sum = 0.0f;
    for (int pixel = part; pixel < pixels; pixel += parts) sum += x[pixel * channels + channel];
    partials[element] = sum;
}

extern "C" __global__ void __launch_bounds__(32)
    batchnorm_mean(const float* __restrict__ partials, float* __restrict__ mean, int pixels,
                   int channels, int parts) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel < channels) mean[channel] = add_parts(partials, channel, channels, parts) / pixels;
}

extern "C" __global__ void __launch_bounds__(256)
    batchnorm_variance_partials(const float* __restrict__ x, const float* __restrict__ mean,
                                float* __restrict__ partials, int pixels, int channels, int parts) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= parts * channels) return;
    int channel = element % channels, part = element / channels;
    float sum = 0.0f, center = mean[channel];
    for (int pixel = part; pixel < pixels; pixel += parts) {
        float difference = x[pixel * channels + channel] - center;
        sum += difference * difference;
    }
    partials[element] = sum;
}

// Batch statistics, and their running averages, whose variance has the divisor pixels - 1.
extern "C" __global__ void __launch_bounds__(32)
    batchnorm_statistics(const float* __restrict__ partials, const float* __restrict__ mean,
                         float* __restrict__ inverse, float* __restrict__ running_mean,
                         float* __restrict__ running_var, int pixels, int channels, int parts,
                         double decay, double epsilon) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    double squares = add_parts(partials, channel, channels, parts);
    inverse[channel] = 1.0 / sqrt(squares / pixels + epsilon);
    running_mean[channel] = decay * running_mean[channel] + (1.0 - decay) * mean[channel];
    running_var[channel] =
        decay * running_var[channel] + (1.0 - decay) * squares / max(1, pixels - 1);
}

extern "C" __global__ void __launch_bounds__(256)
    batchnorm_normalize(const float* __restrict__ x, const float* __restrict__ weight,
                        const float* __restrict__ bias, const float* __restrict__ mean,
                        const float* __restrict__ inverse, float* __restrict__ y, int count,
                        int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int channel = element % channels;
    y[element] =
        weight[channel] * ((x[element] - mean[channel]) * inverse[channel]) + bias[channel];
}

extern "C" __global__ void __launch_bounds__(256)
    batchnorm_inference(const float* __restrict__ x, const float* __restrict__ weight,
                        const float* __restrict__ bias, const float* __restrict__ running_mean,
                        const float* __restrict__ running_var, float* __restrict__ y, int count,
                        int channels, float epsilon) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int channel = element % channels;
    float inverse = 1.0f / sqrtf(running_var[channel] + epsilon);
    y[element] = weight[channel] * ((x[element] - running_mean[channel]) * inverse) + bias[channel];
}

// Partial sums of dy, and of dy times the normalised x.
extern "C" __global__ void __launch_bounds__(256)
    batchnorm_gradient_partials(const float* __restrict__ x, const float* __restrict__ mean,
                                const float* __restrict__ inverse, const float* __restrict__ dy,
                                float* __restrict__ partials, int pixels, int channels, int parts) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= parts * channels) return;
    int channel = element % channels, part = element / channels;
    float sum = 0.0f, sum_of_products = 0.0f, center = mean[channel], scale = inverse[channel];
    for (int pixel = part; pixel < pixels; pixel += parts) {
        float gradient = dy[pixel * channels + channel];
        sum += gradient;
        sum_of_products += gradient * ((x[pixel * channels + channel] - center) * scale);
    }
    partials[element] = sum;
    partials[parts * channels + element] = sum_of_products;
}

extern "C" __global__ void __launch_bounds__(32)
    batchnorm_parameter_grads(const float* __restrict__ partials, float* __restrict__ dweight,
                              float* __restrict__ dbias, int channels, int parts) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    dbias[channel] = add_parts(partials, channel, channels, parts);
    dweight[channel] = add_parts(partials + parts * channels, channel, channels, parts);
}

// dy without its mean and its component along the normalised x: the statistics remove both from y.
extern "C" __global__ void __launch_bounds__(256)
    batchnorm_input_grad(const float* __restrict__ x, const float* __restrict__ weight,
                         const float* __restrict__ mean, const float* __restrict__ inverse,
                         const float* __restrict__ dy, const float* __restrict__ dweight,
                         const float* __restrict__ dbias, float* __restrict__ dx, int count,
                         int pixels, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int channel = element % channels;
    float normalized = (x[element] - mean[channel]) * inverse[channel];
    float rest = dy[element] - dbias[channel] / pixels - normalized * (dweight[channel] / pixels);
    dx[element] = weight[channel] * inverse[channel] * rest;
}
