// The windows of images of few channels as packed columns (im2col), and the launch that loads a
// batch and gathers them too.
//
// Rung: gpu_tf32, over gpu_3xtf32. A window of 3 x 3 pixels of 3 channels has 27 numbers; with
// channels filled up to 16 bytes it would have 72. To the convolution that reads them, columns are
// images and its windows have one pixel.
//
// Layouts: x float32 (batch, height, width, CHANNELS); images, permutation, counters, scale,
// offset: as gpu_basic/load_batch.cu; columns Packed (batch, out_height, out_width, numbers), with
// numbers KERNEL^2 CHANNELS in the order of a filter, up to the next multiple of 8, zero beyond the
// edges and in further numbers. Arrays start at multiples of 16 bytes.
//
// Macros: KERNEL: rows and columns of a window; CHANNELS: of the images; MULTIPLIER: as in
// staged_tile.cuh.
// Launches: block (256), grid (ceil(threads / 256)), a thread for each column; of load_columns for
// each pixel of x, if these are more.
//
// Bound: the launch.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/packed.cuh"

#ifndef KERNEL
#define KERNEL 3
#define CHANNELS 3
#endif

constexpr int LENGTH = KERNEL * KERNEL * CHANNELS, CHUNKS_OF_COLUMN = (LENGTH + CHUNK - 1) / CHUNK;

// The sizes of a batch. Pixels of x, and columns, are numbered through all images.
struct Sizes {
    int batch, height, width, stride, padding;

    // Store column `number`. images(image) is an object that reads the image: value(row, column,
    // channel).
    template <class Images>
    __device__ __forceinline__ void gather(Packed* columns, int number, Images images) const {
        int down = (height + 2 * padding - KERNEL) / stride + 1,
            across = (width + 2 * padding - KERNEL) / stride + 1;
        int image = number / across / down;
        if (image >= batch) return;
        int first_row = number / across % down * stride - padding,
            first_column = number % across * stride - padding;
        auto of_image = images(image);
#pragma unroll
        for (int place = 0; place < CHUNKS_OF_COLUMN; place++) {
            float chunk[CHUNK];
#pragma unroll
            for (int e = 0; e < CHUNK; e++) {
                int n = place * CHUNK + e, tap = n / CHANNELS, row = first_row + tap / KERNEL,
                    column = first_column + tap % KERNEL;
                bool inside =
                    n < LENGTH && row >= 0 && row < height && column >= 0 && column < width;
                chunk[e] = inside ? of_image.value(row, column, n % CHANNELS) : 0.0f;
            }
            *reinterpret_cast<uint4*>(columns + (number * CHUNKS_OF_COLUMN + place) * CHUNK) =
                rounded_chunk(chunk);
        }
    }
};

__device__ __forceinline__ int this_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

struct OfBatch {
    const float* x;  // of the image
    int width;

    __device__ __forceinline__ float value(int row, int column, int channel) const {
        return x[(row * width + column) * CHANNELS + channel];
    }
};

extern "C" __global__ void __launch_bounds__(256, 1)
    gather_columns(const float* __restrict__ x, Packed* __restrict__ columns, int batch, int height,
                   int width, int stride, int padding) {
    Sizes{batch, height, width, stride, padding}.gather(columns, this_thread(), [=](int image) {
        return OfBatch{x + image * height * width * CHANNELS, width};
    });
}

template <class Pixel>
struct OfDataset {
    const Pixel* pixels;  // of the image
    const float *scale, *offset;
    int width, flip;

    // Two roundings, as on the CPU.
    __device__ __forceinline__ float value(int row, int column, int channel) const {
        if (flip) column = width - 1 - column;
        return __fadd_rn(
            __fmul_rn(pixels[(row * width + column) * CHANNELS + channel], scale[channel]),
            offset[channel]);
    }
};

// Loads the batch into x too, as gpu_basic/load_batch.cu: each of the last threads a pixel.
template <class Pixel>
__device__ __forceinline__ void load_columns(const Pixel* images, const long long* permutation,
                                             const long long* counters, const float* scale,
                                             const float* offset, float* x, Packed* columns,
                                             const Sizes& sizes, int flip) {
    int of_image = sizes.height * sizes.width,
        pixel = this_thread() - (gridDim.x * blockDim.x - sizes.batch * of_image);
    int row = pixel % of_image / sizes.width, column = pixel % sizes.width;
    auto from = [=](int image) {
        return OfDataset<Pixel>{images + permutation[counters[1] + image] * of_image * CHANNELS,
                                scale, offset, sizes.width, flip};
    };
    if (pixel >= 0) {
        auto its_image = from(pixel / of_image);
#pragma unroll
        for (int channel = 0; channel < CHANNELS; channel++)
            x[pixel * CHANNELS + channel] = its_image.value(row, column, channel);
    }
    sizes.gather(columns, this_thread(), from);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    load_columns_uint8(const unsigned char* __restrict__ images,
                       const long long* __restrict__ permutation,
                       const long long* __restrict__ counters, const float* __restrict__ scale,
                       const float* __restrict__ offset, float* __restrict__ x,
                       Packed* __restrict__ columns, int batch, int height, int width, int stride,
                       int padding, int flip) {
    load_columns(images, permutation, counters, scale, offset, x, columns,
                 Sizes{batch, height, width, stride, padding}, flip);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    load_columns_float32(const float* __restrict__ images,
                         const long long* __restrict__ permutation,
                         const long long* __restrict__ counters, const float* __restrict__ scale,
                         const float* __restrict__ offset, float* __restrict__ x,
                         Packed* __restrict__ columns, int batch, int height, int width, int stride,
                         int padding, int flip) {
    load_columns(images, permutation, counters, scale, offset, x, columns,
                 Sizes{batch, height, width, stride, padding}, flip);
}
