// Rows of 64 numbers in bfloat16, as global and shared memory hold them: 128 bytes in eight chunks of 16. Chunk i of a row is at
// i ^ row % 8 (a swizzle), so that reading the same chunk of eight neighbouring rows touches all banks once.
#pragma once
#include "gpu_bf16/chunk.cuh"

constexpr int SLAB = 64, CHUNKS = SLAB / CHUNK;   // numbers in a row, and chunks
constexpr int ROW = 2 * SLAB;                     // bytes

// Byte of a chunk.
__device__ __forceinline__ int swizzled(int row, int chunk) { return row * ROW + 16 * (chunk ^ row % CHUNKS); }
