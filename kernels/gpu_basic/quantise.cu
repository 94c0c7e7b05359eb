// A whole array as integers with one scale, for multipliers of integers, and the sums of their
// products as numbers again.
//
// Rung: the first on the GPU. Global memory only.
// Layouts: x, y float32, any, in memory order (`count` elements); partials float32 (parts); scales
// float32 (1); bias float32 (channels), of the last axis.
// Launches:
//   largest_magnitudes   one thread per partial result, whose elements lie `parts` apart: block
//                        (256), grid (ceil(parts / 256))
//   quantisation_scale   one thread: block (1), grid (1)
//   quantise, rescale    one thread per element: block (256), grid (ceil(count / 256))
// Bound: memory, 4 bytes per element for largest_magnitudes, 8 for quantise and rescale; latency
// for quantisation_scale, which has as many loads under way as the compiler finds.
// Times: kernels/README.md has those of whole steps, predicted and measured.

// A NaN stays, so that a diverged training shows.
__device__ __forceinline__ float larger(float largest, float value) {
    return value > largest || value != value ? value : largest;
}

extern "C" __global__ void __launch_bounds__(256)
    largest_magnitudes(const float* __restrict__ x, float* __restrict__ partials, int count,
                       int parts) {
    int part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= parts) return;
    float largest = 0.0f;
    for (int i = part; i < count; i += parts) largest = larger(largest, fabsf(x[i]));
    partials[part] = largest;
}

// scale = the largest magnitude / most, or 1 where that is 0.
extern "C" __global__ void quantisation_scale(const float* __restrict__ partials,
                                              float* __restrict__ scale, int parts, float most) {
    float largest = 0.0f;
    for (int part = 0; part < parts; part++) largest = larger(largest, partials[part]);
    float unit = __fdiv_rn(largest, most);
    scale[0] = unit == 0.0f ? 1.0f : unit;
}

// To nearest, ties to even; 0 where the scale is not finite.
extern "C" __global__ void __launch_bounds__(256)
    quantise(const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ y,
             int count, float most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float unit = scale[0], rounded = rintf(__fdiv_rn(x[i], unit));
    y[i] = unit - unit == 0.0f ? fminf(fmaxf(rounded, -most), most) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256)
    rescale(const float* __restrict__ x, const float* __restrict__ first,
            const float* __restrict__ second, const float* __restrict__ bias, float* __restrict__ y,
            int count, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i] * first[0] * second[0] + bias[i % channels];
}
