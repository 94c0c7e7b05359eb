// DYNAMIC_SHARED(float, tile) declares `tile`, a pointer to the dynamic shared memory of the launch, aligned to 16 bytes.
// Kernels use this macro, never an extern array, so that the test emulator can substitute its own memory.
#pragma once
#ifndef CUDA_EMULATOR
#define DYNAMIC_SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(dynamic_shared)
#endif
