// block_sum(value): the sum of one number of each thread of a block of 256, for thread 0. Every
// thread must call it. Within a warp (by warp shuffles), and then over the eight warps, the upper
// half of the numbers is added to the lower: the order is always the same.
#pragma once

__device__ __forceinline__ double block_sum(double value) {
    __shared__ double of_warps[8];
#pragma unroll
    for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(0xffffffffu, value, half);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < 8 ? of_warps[threadIdx.x] : 0.0;
    __syncthreads();  // the next call writes there
#pragma unroll
    for (int half = 4; half > 0; half /= 2) value += __shfl_down_sync(0xffffffffu, value, half);
    return value;
}
