// The sum of two arrays.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layout: any, the arrays are in memory order; float32. `count`: elements.
// Launches: block (256), grid (ceil(count / 256)).
// Bound: memory, 12 bytes per element.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    add_forward(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y,
                int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = a[i] + b[i];
}
