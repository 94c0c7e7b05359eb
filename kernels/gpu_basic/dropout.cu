// Dropout: in training each value is zero with probability `rate`, else divided by 1 - rate; and
// its gradient.
//
// Rung: the first on the GPU. One thread per element, global memory only.
// Layouts: x, y, dx, dy float32, any, in memory order (`count` elements); mask, uint8, alike: 1
// where kept; counters int64: [step, offset into the permutation, step of this epoch]. Element e is
// kept where Philox's e-th 32-bit number for (seed, stream, step) is at least `threshold` = rate
// 2^32; scale = 1 / (1 - rate).
// Launches: block (256), grid (ceil(count / 256)).
// Bound: forward Philox's arithmetic, about 300 integer instructions per element, because each
// thread draws a block of eight numbers and uses one; backward memory, 9 bytes per element.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/philox.cuh"

// A product, not a select, so that dropping a value does not hide a NaN.
extern "C" __global__ void __launch_bounds__(256)
    dropout_forward(const float* __restrict__ x, const long long* __restrict__ counters,
                    float* __restrict__ y, unsigned char* __restrict__ mask, int count,
                    unsigned threshold, float scale, unsigned long long seed, int stream) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    bool kept = philox_word(philox_block(seed, stream, counters[0], i / 8), i % 8) >= threshold;
    mask[i] = kept;
    y[i] = x[i] * (kept ? scale : 0.0f);
}

extern "C" __global__ void __launch_bounds__(256)
    dropout_backward(const float* __restrict__ dy, const unsigned char* __restrict__ mask,
                     float* __restrict__ dx, int count, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) dx[i] = dy[i] * (mask[i] ? scale : 0.0f);
}
