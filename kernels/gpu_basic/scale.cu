// An array times a scalar, for loss scaling and its inverse.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layout: any, the arrays are in memory order; float32. `count`: elements.
// Launches: block (256), grid (ceil(count / 256)).
// Bound: memory, 8 bytes per element; the launch itself below about 100,000 elements.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    scale(const float* __restrict__ x, float* __restrict__ y, int count, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i] * factor;
}
