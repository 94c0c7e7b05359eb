// Two halves of the channels: max(x - threshold, 0), then max(-x - threshold, 0).
//
// Rung: the first on the GPU. One thread per element of x, global memory only.
// Layouts, float32: x (pixels, channels), y (pixels, 2 channels), in the memory order of x (`count`
// elements).
// Launches: block (256), grid (ceil(count / 256)).
// Bound: memory, 12 bytes per element of x.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    soft_threshold_forward(const float* __restrict__ x, float* __restrict__ y, int count,
                           int channels, float threshold) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int pixel = element / channels, channel = element % channels;
    float above = x[element] - threshold, below = -x[element] - threshold;
    float* pair = y + 2 * pixel * channels + channel;
    pair[0] = above < 0.0f ? 0.0f : above;  // keeps NaN
    pair[channels] = below < 0.0f ? 0.0f : below;
}
