// multiply(a, b): a * b or, where the macro MULTIPLIER is defined, the product of an approximate
// multiplier (multiplier.cuh).
#pragma once
#ifdef MULTIPLIER
#include "common/multiplier.cuh"
#else
__device__ __forceinline__ float multiply(float a, float b) { return a * b; }
#endif
