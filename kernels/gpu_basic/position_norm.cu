// Each pixel's vector divided by its length, sqrt(the sum of squares over its channels + epsilon),
// and the gradient.
//
// Rung: the first on the GPU. Global memory only; one thread per pixel's sum over channels, then
// one per element.
// Layouts, float32: x, y, dx, dy (pixels, channels), in memory order (`count` elements); norms
// (pixels), which the forward pass keeps; along (pixels): y . dy.
// Launches: block (256): position_norm_lengths, position_norm_along grid (ceil(pixels / 256));
// position_norm_divide, position_norm_backward grid (ceil(count / 256)).
// Bound: memory; forward 12 bytes per element, backward 20. In the sums each thread of a warp
// fetches its own 128-byte line and reads the rest of it from the cache.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    position_norm_lengths(const float* __restrict__ x, float* __restrict__ norms, int pixels,
                          int channels, float epsilon) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    float squares = 0.0f;
    for (int c = 0; c < channels; c++) squares += x[pixel * channels + c] * x[pixel * channels + c];
    norms[pixel] = sqrtf(squares + epsilon);
}

extern "C" __global__ void __launch_bounds__(256)
    position_norm_divide(const float* __restrict__ x, const float* __restrict__ norms,
                         float* __restrict__ y, int count, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element < count) y[element] = x[element] / norms[element / channels];
}

extern "C" __global__ void __launch_bounds__(256)
    position_norm_along(const float* __restrict__ y, const float* __restrict__ dy,
                        float* __restrict__ along, int pixels, int channels) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    float products = 0.0f;
    for (int c = 0; c < channels; c++)
        products += y[pixel * channels + c] * dy[pixel * channels + c];
    along[pixel] = products;
}

// The component of dy orthogonal to y: a change of x along itself changes only its length.
extern "C" __global__ void __launch_bounds__(256)
    position_norm_backward(const float* __restrict__ y, const float* __restrict__ norms,
                           const float* __restrict__ dy, const float* __restrict__ along,
                           float* __restrict__ dx, int count, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int pixel = element / channels;
    dx[element] = (dy[element] - y[element] * along[pixel]) / norms[pixel];
}
