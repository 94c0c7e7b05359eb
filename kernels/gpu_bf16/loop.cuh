// The loop of a convolution: conv2d_halo.cu's where the launch defines KERNEL, else conv2d.cu's.
#pragma once
#ifdef KERNEL
#include "gpu_bf16/halo.cuh"
#else
#include "gpu_bf16/windows.cuh"
#endif
