// Draws each image's random shift and mirroring, and gathers and normalizes the images accordingly.
//
// Rung: the first on the GPU. One thread per image (draws) or per element of the batch, global
// memory only.
// Layouts: augmentation int32 (batch, 3): dy, dx, 1 for mirrored left to right; images,
// permutation, counters, scale, offset, x as in load_batch.cu. Pixel (row, column) is pixel (row +
// dy, column + dx) of the image, mirrored if drawn so; 0 outside it.
// Launches: block (256), grid (ceil(batch / 256)) for draw_augmentation, (ceil(batch height width
// channels / 256)) for the others.
// Bound: nothing for draw_augmentation; memory for the others, 5 or 8 bytes per element.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/philox.cuh"

// Shifts of -crop to crop pixels, and a coin where `flip` is 1: they depend on seed, stream, step
// and row alone.
extern "C" __global__ void __launch_bounds__(256)
    draw_augmentation(const long long* __restrict__ counters, int* __restrict__ augmentation,
                      int batch, int crop, int flip, unsigned long long seed, int stream) {
    int image = blockIdx.x * blockDim.x + threadIdx.x;
    if (image >= batch) return;
    PhiloxBlock drawn = philox_block(seed, stream, counters[0], image);
    unsigned shifts = 2 * crop + 1;
    augmentation[3 * image] = static_cast<int>(drawn.a % shifts) - crop;
    augmentation[3 * image + 1] = static_cast<int>(drawn.b % shifts) - crop;
    augmentation[3 * image + 2] = flip && drawn.c >> 63;
}

template <class Pixel>
__device__ __forceinline__ void
load_augmented_batch(const Pixel* __restrict__ images, const long long* __restrict__ permutation,
                     const long long* __restrict__ counters, const float* __restrict__ scale,
                     const float* __restrict__ offset, const int* __restrict__ augmentation,
                     float* __restrict__ x, int batch, int height, int width, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels, image = pixel / (width * height);
    int row = pixel / width % height + augmentation[3 * image];
    int column = pixel % width + augmentation[3 * image + 1];
    if (augmentation[3 * image + 2]) column = width - 1 - column;
    float value = 0.0f;
    if (row >= 0 && row < height && column >= 0 && column < width)
        value =
            images[((permutation[counters[1] + image] * height + row) * width + column) * channels +
                   channel];
    // Two roundings, as on the CPU.
    x[element] = __fadd_rn(__fmul_rn(value, scale[channel]), offset[channel]);
}

extern "C" __global__ void __launch_bounds__(256)
    load_augmented_batch_uint8(const unsigned char* __restrict__ images,
                               const long long* __restrict__ permutation,
                               const long long* __restrict__ counters,
                               const float* __restrict__ scale, const float* __restrict__ offset,
                               const int* __restrict__ augmentation, float* __restrict__ x,
                               int batch, int height, int width, int channels) {
    load_augmented_batch(images, permutation, counters, scale, offset, augmentation, x, batch,
                         height, width, channels);
}

extern "C" __global__ void __launch_bounds__(256)
    load_augmented_batch_float32(const float* __restrict__ images,
                                 const long long* __restrict__ permutation,
                                 const long long* __restrict__ counters,
                                 const float* __restrict__ scale, const float* __restrict__ offset,
                                 const int* __restrict__ augmentation, float* __restrict__ x,
                                 int batch, int height, int width, int channels) {
    load_augmented_batch(images, permutation, counters, scale, offset, augmentation, x, batch,
                         height, width, channels);
}
