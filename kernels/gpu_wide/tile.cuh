// A block's tile of a matrix product, SIDE x SIDE elements of C, EACH x EACH of them for each of
// its THREADS x THREADS threads.
//
// The block advances along k in steps of STEP. Four neighbours are read from global memory by one
// vectorised load of 16 bytes; the tiles have k as their first index, so that a thread reads its
// EACH elements of A, and of B, from shared memory in one too.
#pragma once
#include "common/product.cuh"

// PITCH: rows start at multiples of 16 bytes.
constexpr int THREADS = 16, EACH = 4, SIDE = THREADS * EACH, STEP = 16, PITCH = SIDE + 4;

__device__ __forceinline__ void load(float (&to)[4], const float* from) {
    float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

__device__ __forceinline__ void elements(float (&values)[4], const float* from) {
    if (from)
        load(values, from);
    else
        values[0] = values[1] = values[2] = values[3] = 0.0f;
}

// Four neighbours along k of the line number / 4, or of k number / 16 the lines 4 (number % 16) and
// the three after it.
template <bool along_k, class Address>
__device__ __forceinline__ void load_tile(float (&tile)[STEP][PITCH], const Address& address) {
    int number = threadIdx.y * THREADS + threadIdx.x;
    int line = along_k ? number / 4 : number % THREADS * 4,
        k = along_k ? number % 4 * 4 : number / THREADS;
    float values[4];
    elements(values, address(line, k));
    if (along_k)
#pragma unroll
        for (int e = 0; e < 4; e++) tile[k + e][line] = values[e];
    else
        *reinterpret_cast<float4*>(&tile[k][line]) =
            make_float4(values[0], values[1], values[2], values[3]);
}

template <class Product>
__device__ __forceinline__ void multiply_tile(const Product& product) {
    __shared__ __align__(16) float a_tile[STEP][PITCH], b_tile[STEP][PITCH];  // (STEP, PITCH)
    int first_m = blockIdx.x * SIDE, first_n = blockIdx.y * SIDE, x = threadIdx.x, y = threadIdx.y;
    float sum[EACH][EACH] = {};  // accumulators, (EACH, EACH)
    for (int tap = product.first_tap(); tap < product.last_tap(); tap++)
        for (int k = product.first_k(); k < product.last_k(); k += STEP) {
            load_tile<Product::A_ALONG_K>(
                a_tile, [&](int line, int i) { return product.a(first_m + line, k + i, tap); });
            load_tile<Product::B_ALONG_K>(
                b_tile, [&](int line, int i) { return product.b(first_n + line, k + i, tap); });
            __syncthreads();
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                float a[EACH], b[EACH];
                load(a, &a_tile[i][y * EACH]);
                load(b, &b_tile[i][x * EACH]);
#pragma unroll
                for (int r = 0; r < EACH; r++)
#pragma unroll
                    for (int s = 0; s < EACH; s++) sum[r][s] += multiply(a[r], b[s]);
            }
            __syncthreads();
        }
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int s = 0; s < EACH; s++)
            product.write(first_m + y * EACH + r, first_n + x * EACH + s, sum[r][s]);
}
