// Gathers the images of a batch and normalizes them.
//
// Rung: the first on the GPU. One thread per element of the batch, global memory only.
// Layouts: images (rows, height, width, channels), uint8 or float32; permutation int64 (rows);
// counters int64: [step, offset into the permutation, step of this epoch]; scale, offset float32
// (channels); x float32 (batch, height, width, channels): pixel * scale + offset of image
// permutation[counters[1] + i], mirrored left to right where `flip` is 1.
// The dataset may have 2^31 elements or more; the batch may not.
// Launches: block (256), grid (ceil(batch height width channels / 256)).
// Bound: memory. 5 or 8 bytes per element.
// Times: kernels/README.md has those of whole steps, predicted and measured.

template <class Pixel>
__device__ __forceinline__ void
load_batch(const Pixel* __restrict__ images, const long long* __restrict__ permutation,
           const long long* __restrict__ counters, const float* __restrict__ scale,
           const float* __restrict__ offset, float* __restrict__ x, int batch, int height,
           int width, int channels, int flip) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int column = pixel % width, row = pixel / width % height, image = pixel / (width * height);
    if (flip) column = width - 1 - column;
    long long source = permutation[counters[1] + image];
    float value = images[((source * height + row) * width + column) * channels + channel];
    // Two roundings, as on the CPU.
    x[element] = __fadd_rn(__fmul_rn(value, scale[channel]), offset[channel]);
}

extern "C" __global__ void __launch_bounds__(256)
    load_batch_uint8(const unsigned char* __restrict__ images,
                     const long long* __restrict__ permutation,
                     const long long* __restrict__ counters, const float* __restrict__ scale,
                     const float* __restrict__ offset, float* __restrict__ x, int batch, int height,
                     int width, int channels, int flip) {
    load_batch(images, permutation, counters, scale, offset, x, batch, height, width, channels,
               flip);
}

extern "C" __global__ void __launch_bounds__(256)
    load_batch_float32(const float* __restrict__ images, const long long* __restrict__ permutation,
                       const long long* __restrict__ counters, const float* __restrict__ scale,
                       const float* __restrict__ offset, float* __restrict__ x, int batch,
                       int height, int width, int channels, int flip) {
    load_batch(images, permutation, counters, scale, offset, x, batch, height, width, channels,
               flip);
}
