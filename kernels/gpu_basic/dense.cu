// A dense layer and its three gradients, directly by definition.
//
// Rung: the first on the GPU. One thread per output element, global memory only, no atomics: every
// element is one sum in a fixed order, so that two runs give the same bytes.
//
// Layouts, float32: x, dx (batch, inputs); y, dy (batch, units); weight, dweight (units, inputs);
// bias, dbias (units). Every array has fewer than 2^31 elements.
//
// Launches:
//   dense_forward      block (8, 32): 8 units by 32 vectors; grid (ceil(batch / 32), ceil(units /
//                      8))
//   dense_input_grad   block (256), grid (ceil(batch inputs / 256)); neighbouring threads,
//                      neighbouring inputs
//   dense_weight_grad  block (256), grid (ceil(units inputs / 256)); likewise
//   dense_bias_grad    block (32), grid (ceil(units / 32))
//
// Bound: the level-1 cache, as in conv2d.cu: each multiply-add takes two loads, which touch 8 + 4
// lines a warp in the forward pass and two in the gradients. Small layers leave most of the GPU
// idle and are latency-bound.
//
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/product.cuh"

extern "C" __global__ void __launch_bounds__(256)
    dense_forward(const float* __restrict__ x, const float* __restrict__ weight,
                  const float* __restrict__ bias, float* __restrict__ y, int batch, int inputs,
                  int units) {
    int unit = blockIdx.y * blockDim.x + threadIdx.x;
    int vector = blockIdx.x * blockDim.y + threadIdx.y;
    if (unit >= units || vector >= batch) return;
    const float *values = x + vector * inputs, *weights = weight + unit * inputs;
    float sum = 0.0f;
    for (int input = 0; input < inputs; input++) sum += multiply(values[input], weights[input]);
    y[vector * units + unit] = sum + bias[unit];
}

extern "C" __global__ void __launch_bounds__(256)
    dense_input_grad(const float* __restrict__ dy, const float* __restrict__ weight,
                     float* __restrict__ dx, int batch, int inputs, int units) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * inputs) return;
    int input = element % inputs, vector = element / inputs;
    float sum = 0.0f;
    for (int unit = 0; unit < units; unit++)
        sum += multiply(dy[vector * units + unit], weight[unit * inputs + input]);
    dx[element] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    dense_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                      float* __restrict__ dweight, int batch, int inputs, int units) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= units * inputs) return;
    int input = element % inputs, unit = element / inputs;
    float sum = 0.0f;
    for (int vector = 0; vector < batch; vector++)
        sum += multiply(dy[vector * units + unit], x[vector * inputs + input]);
    dweight[element] = sum;
}

extern "C" __global__ void __launch_bounds__(32)
    dense_bias_grad(const float* __restrict__ dy, float* __restrict__ dbias, int batch, int units) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= units) return;
    float sum = 0.0f;
    for (int vector = 0; vector < batch; vector++) sum += dy[vector * units + unit];
    dbias[unit] = sum;
}
