// Local response normalization (Krizhevsky et al., 2012): x / (k + alpha / size * the sum of
// squares over `size` neighbouring channels) ^ beta, and its gradient.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layouts, float32: x, y, dx, dy (pixels, channels), in memory order (`count` elements); sums,
// alike: the bracketed value, from the forward pass. The neighbours of channel c are the existing
// channels from c - size / 2 to c + (size - 1) / 2. ratio = alpha / size.
// Launches: block (256), grid (ceil(count / 256)).
// Bound: forward memory, 12 bytes per element; the neighbours come from the cache. Backward
// arithmetic: a power per neighbour, about 60 instructions.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    lrn_forward(const float* __restrict__ x, float* __restrict__ y, float* __restrict__ sums,
                int count, int channels, int size, float ratio, float beta, float k) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int channel = element % channels;
    int first = max(0, channel - size / 2), last = min(channels - 1, channel + (size - 1) / 2);
    const float* pixel = x + element - channel;
    float squares = 0.0f;
    for (int c = first; c <= last; c++) squares += pixel[c] * pixel[c];
    float sum = k + ratio * squares;
    sums[element] = sum;
    y[element] = x[element] * powf(sum, -beta);
}

// The value is in the sums of the channels it neighbours.
extern "C" __global__ void __launch_bounds__(256)
    lrn_backward(const float* __restrict__ x, const float* __restrict__ sums,
                 const float* __restrict__ dy, float* __restrict__ dx, int count, int channels,
                 int size, float ratio, float beta) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int channel = element % channels, pixel = element - channel;
    int first = max(0, channel - (size - 1) / 2), last = min(channels - 1, channel + size / 2);
    float products = 0.0f;
    for (int place = pixel + first; place <= pixel + last; place++)
        products += dy[place] * x[place] * powf(sums[place], -beta - 1.0f);
    dx[element] =
        dy[element] * powf(sums[element], -beta) - 2.0f * ratio * beta * x[element] * products;
}
