// What a GPU can do at most in float32: multiply-adds from registers, with nothing to wait for.
//
// Sixteen independent chains a thread hide the latency of each. Launches: block (256), any grid;
// out float32 (threads of the grid). FLOP: 2 * 16 * 8 * rounds for each thread.

extern "C" __global__ void __launch_bounds__(256)
    multiply_add(float* __restrict__ out, float a, float b, int rounds) {
    float chain[16];
#pragma unroll
    for (int i = 0; i < 16; i++) chain[i] = threadIdx.x + i;
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int i = 0; i < 16 * 8; i++) chain[i % 16] = fmaf(chain[i % 16], a, b);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i++) sum += chain[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
