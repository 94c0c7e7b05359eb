// The phase decomposition of a 3x3 convolution behind a nearest-neighbour upsampling by 2: a
// transposed convolution of the small image with stride 2. Its 4x4 phase weights are sums of taps,
// for a pixel that is repeated 2x2 meets several taps of the 3x3 filter; such a sum is rounded once
// for its products. A rung's own convolution kernels multiply; these are the steps beside them.
//
// Rung: the first on the GPU. One thread per element, global memory only.
//
// Layouts, float32: weight, dweight (filters, 3, 3, channels); phase_weights, dphase_weights
// (channels, 4, 4, filters): (t, s) leads from pixel (r, c) of x to pixel (2 r + t - 1, 2 c + s -
// 1) of y (batch, height, width, filters); bias (filters).
// Launches: block (256), grid (ceil(elements of the array that is written / 256)).
// Bound: memory.
// Times: kernels/README.md has those of whole steps, predicted and measured.

// Taps of the 3x3 filter in phase weight 0 to 3, along an axis: 2; 1 and 2; 0 and 1; 0. Sums begin
// with the first column.
extern "C" __global__ void __launch_bounds__(256)
    decompose_taps(const float* __restrict__ weight, float* __restrict__ phase_weights, int filters,
                   int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * 16 * filters) return;
    int filter = i % filters, s = i / filters % 4, t = i / filters / 4 % 4,
        channel = i / filters / 16;
    const float* taps = weight + filter * 9 * channels + channel;
    float sum = 0.0f;
    for (int l = max(0, 2 - s); l <= min(2, 3 - s); l++) {
        float column = 0.0f;
        for (int k = max(0, 2 - t); k <= min(2, 3 - t); k++) column += taps[(k * 3 + l) * channels];
        sum += column;
    }
    phase_weights[i] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    add_bias(const float* __restrict__ bias, float* __restrict__ y, int count, int filters) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] += bias[i % filters];
}

// A tap of the 3x3 filter is in four phase weights, and has the sum of their gradients.
extern "C" __global__ void __launch_bounds__(256)
    add_tap_gradients(const float* __restrict__ dphase_weights, float* __restrict__ dweight,
                      int filters, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= filters * 9 * channels) return;
    int channel = i % channels, l = i / channels % 3, k = i / channels / 3 % 3,
        filter = i / channels / 9;
    const float* gradients = dphase_weights + channel * 16 * filters + filter;
    float sum = 0.0f;
    for (int t = 2 - k; t <= 3 - k; t++)
        for (int s = 2 - l; s <= 3 - l; s++) sum += gradients[(t * 4 + s) * filters];
    dweight[i] = sum;
}
