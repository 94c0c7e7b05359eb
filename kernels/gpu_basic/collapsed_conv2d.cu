// A 3x3 convolution behind a nearest-neighbour upsampling by 2, as the transposed convolution of the small image with stride 2
// and 4x4 sums of its taps ('collapsed'): a pixel that is repeated 2x2 meets several taps of the 3x3 filter. What is rounded
// for a product is the sum, once. The products are those of a rung's own convolution kernels; these are the steps beside them.
//
// Rung: the first on the GPU. One thread per element, global memory only.
//
// Layouts, float32: weight, dweight (filters, 3, 3, channels); collapsed, dcollapsed (channels, 4, 4, filters): tap (t, s) leads
// from pixel (r, c) of x to pixel (2 r + t - 1, 2 c + s - 1) of y (batch, height, width, filters); bias (filters).
// Launches: block (256), grid (ceil(elements of the array that is written / 256)).
// Bound: memory.
// Predicted, not measured, for 256 -> 128 channels (1.2 MB and 2.1 MB at 4.3 TB/s): below 1 us each.
// Measured: not measured.

// Taps of the 3x3 filter in collapsed tap t, along an axis: 2; 1 and 2; 0 and 1; 0. Sums begin with the first column.
extern "C" __global__ void __launch_bounds__(256)
    collapse_taps(const float* __restrict__ weight, float* __restrict__ collapsed, int filters, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * 16 * filters) return;
    int filter = i % filters, s = i / filters % 4, t = i / filters / 4 % 4, channel = i / filters / 16;
    const float* taps = weight + filter * 9 * channels + channel;
    float sum = 0.0f;
    for (int l = max(0, 2 - s); l <= min(2, 3 - s); l++) {
        float column = 0.0f;
        for (int k = max(0, 2 - t); k <= min(2, 3 - t); k++) column += taps[(k * 3 + l) * channels];
        sum += column;
    }
    collapsed[i] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    add_bias(const float* __restrict__ bias, float* __restrict__ y, int count, int filters) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] += bias[i % filters];
}

// A tap of the 3x3 filter is in four of the collapsed ones, and has the sum of their gradients.
extern "C" __global__ void __launch_bounds__(256)
    expand_taps(const float* __restrict__ dcollapsed, float* __restrict__ dweight, int filters, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= filters * 9 * channels) return;
    int channel = i % channels, l = i / channels % 3, k = i / channels / 3 % 3, filter = i / channels / 9;
    const float* taps = dcollapsed + channel * 16 * filters + filter;
    float sum = 0.0f;
    for (int t = 2 - k; t <= 3 - k; t++)
        for (int s = 2 - l; s <= 3 - l; s++) sum += taps[(t * 4 + s) * filters];
    dweight[i] = sum;
}
