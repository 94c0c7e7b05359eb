// Draws each image's small rotation and its channels' factors, and gathers and normalizes the
// images accordingly.
//
// Rung: the first on the GPU. One thread per image (draws) or per element of the batch, global
// memory only.
// Layouts: jitter float32 (batch, 2 + channels): cosine, sine, a factor for each channel;
// augmentation as in augmentation.cu; images, permutation, counters, scale, offset, x as in
// load_batch.cu. Pixel (row, column) is that of the image at the place which the shift and then the
// rotation about the centre give, between its four nearest pixels, with zeros outside.
// Launches: block (256), grid (ceil(batch / 256)) for draw_jitter, (ceil(batch height width
// channels / 256)) for the others.
// Bound: nothing for draw_jitter; memory for the others, 8 or 20 bytes per element.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/philox.cuh"

// 24 bits as a number from -1 up to 1, exactly.
__device__ __forceinline__ float evenly(unsigned word) {
    return __fmul_rn(static_cast<float>(static_cast<int>(word >> 8) - 8388608),
                     1.1920928955078125e-7f);
}

// Every operation is rounded alone, as on the CPU, so that both draw the same numbers.
extern "C" __global__ void __launch_bounds__(256)
    draw_jitter(const long long* __restrict__ counters, float* __restrict__ jitter, int batch,
                int channels, float tangent, float colour, unsigned long long seed, int stream) {
    int image = blockIdx.x * blockDim.x + threadIdx.x;
    if (image >= batch) return;
    PhiloxBlock drawn = philox_block(seed, stream, counters[0], image);
    float t = __fmul_rn(tangent, evenly(philox_word(drawn, 0)));
    float square = __fmul_rn(t, t), whole = __fadd_rn(1.0f, square);
    float* own = jitter + image * (2 + channels);
    own[0] = __fdiv_rn(__fadd_rn(1.0f, -square), whole);
    own[1] = __fdiv_rn(__fmul_rn(2.0f, t), whole);
    for (int channel = 0; channel < channels; channel++)
        own[2 + channel] =
            __fadd_rn(1.0f, __fmul_rn(colour, evenly(philox_word(drawn, 1 + channel % 7))));
}

// A value of an image, or of its mirror image; 0 outside it.
template <class Pixel>
__device__ __forceinline__ float pixel_at(const Pixel* __restrict__ image, int row, int column,
                                          int channel, int mirrored, int height, int width,
                                          int channels) {
    if (row < 0 || row >= height || column < 0 || column >= width) return 0.0f;
    return image[(row * width + (mirrored ? width - 1 - column : column)) * channels + channel];
}

// a + share (b - a), each operation rounded alone.
__device__ __forceinline__ float between(float a, float b, float share) {
    return __fadd_rn(a, __fmul_rn(share, __fadd_rn(b, -a)));
}

template <class Pixel>
__device__ __forceinline__ void
load_jittered_batch(const Pixel* __restrict__ images, const long long* __restrict__ permutation,
                    const long long* __restrict__ counters, const float* __restrict__ scale,
                    const float* __restrict__ offset, const int* __restrict__ augmentation,
                    const float* __restrict__ jitter, float* __restrict__ x, int batch, int height,
                    int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels, image = pixel / (width * height);
    const int* moved = augmentation + 3 * image;
    const float* own = jitter + image * (2 + channels);
    float middle_row = (height - 1) * 0.5f, middle_column = (width - 1) * 0.5f;
    float below = __fadd_rn(static_cast<float>(pixel / width % height + moved[0]), -middle_row);
    float beside = __fadd_rn(static_cast<float>(pixel % width + moved[1]), -middle_column);
    float row =
        __fadd_rn(__fadd_rn(__fmul_rn(own[0], below), -__fmul_rn(own[1], beside)), middle_row);
    float column =
        __fadd_rn(__fadd_rn(__fmul_rn(own[1], below), __fmul_rn(own[0], beside)), middle_column);
    int top = static_cast<int>(floorf(row)), left = static_cast<int>(floorf(column));
    float in_row = __fadd_rn(row, -static_cast<float>(top)),
          in_column = __fadd_rn(column, -static_cast<float>(left));
    const Pixel* from = images + permutation[counters[1] + image] * height * width * channels;
    float corners[4];
#pragma unroll
    for (int corner = 0; corner < 4; corner++)
        corners[corner] = pixel_at(from, top + corner / 2, left + corner % 2, channel, moved[2],
                                   height, width, channels);
    float value = between(between(corners[0], corners[1], in_column),
                          between(corners[2], corners[3], in_column), in_row);
    x[element] =
        __fadd_rn(__fmul_rn(__fmul_rn(value, own[2 + channel]), scale[channel]), offset[channel]);
}

extern "C" __global__ void __launch_bounds__(256)
    load_jittered_batch_uint8(const unsigned char* __restrict__ images,
                              const long long* __restrict__ permutation,
                              const long long* __restrict__ counters,
                              const float* __restrict__ scale, const float* __restrict__ offset,
                              const int* __restrict__ augmentation,
                              const float* __restrict__ jitter, float* __restrict__ x, int batch,
                              int height, int width, int channels) {
    load_jittered_batch(images, permutation, counters, scale, offset, augmentation, jitter, x,
                        batch, height, width, channels);
}

extern "C" __global__ void __launch_bounds__(256)
    load_jittered_batch_float32(const float* __restrict__ images,
                                const long long* __restrict__ permutation,
                                const long long* __restrict__ counters,
                                const float* __restrict__ scale, const float* __restrict__ offset,
                                const int* __restrict__ augmentation,
                                const float* __restrict__ jitter, float* __restrict__ x, int batch,
                                int height, int width, int channels) {
    load_jittered_batch(images, permutation, counters, scale, offset, augmentation, jitter, x,
                        batch, height, width, channels);
}
