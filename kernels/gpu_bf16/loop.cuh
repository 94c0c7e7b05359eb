// The loop of a convolution: with a halo where KERNEL is defined.
#pragma once
#ifdef KERNEL
#include "gpu_bf16/halo.cuh"
#else
#include "gpu_bf16/windows.cuh"
#endif
