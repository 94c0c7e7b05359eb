// ReLU and its gradient.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layout: any, the arrays are in memory order; float32. `count`: elements.
// Launches: block (256), grid (ceil(count / 256)).
// Bound: memory. Forward moves 8 bytes per element, backward 12.
// Times: kernels/README.md has those of whole steps, predicted and measured.

// Not fmaxf, which would turn a NaN into 0 and hide a diverged training.
extern "C" __global__ void __launch_bounds__(256)
    relu_forward(const float* __restrict__ x, float* __restrict__ y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

// y: the forward pass's output, positive exactly where x was.
extern "C" __global__ void __launch_bounds__(256)
    relu_backward(const float* __restrict__ y, const float* __restrict__ dy, float* __restrict__ dx,
                  int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}
