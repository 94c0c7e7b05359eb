// Gradient of an L1 penalty: `factor` times the sign of each value.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layouts: x, dx float32, any, in memory order (`count` elements). Forward is the identity and has
// no kernel.
// Launches: block (256), grid (ceil(count / 256)).
// Bound: memory, 8 bytes per element.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    l1_penalty_backward(const float* __restrict__ x, float* __restrict__ dx, int count,
                        float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) dx[i] = factor * (float)((x[i] > 0.0f) - (x[i] < 0.0f));
}
