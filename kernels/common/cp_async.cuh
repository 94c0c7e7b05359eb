// Asynchronous copies from global to shared memory (cp.async, sm_80 and later; on sm_75 plain copies).
//   cp_async(16, shared, global, valid)   copy 4, 8 or 16 bytes, both ends aligned to that; zeros where !valid, and then
//                                         `global` is not read, but must not be a wild pointer either
//   cp_async_commit()                     close the group of the copies issued since the last commit
//   cp_async_wait<n>()                    wait until at most n of this thread's groups are in flight; the other threads
//                                         see the data after the next __syncthreads
// The only file with cp.async; the test emulator supplies its own bodies.
#pragma once
#ifndef CUDA_EMULATOR

template <int bytes>
__device__ __forceinline__ void cp_async_bytes(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    int from_global = valid ? bytes : 0;
    if constexpr (bytes == 16)   // .cg: past the L1, which has no second reader for it
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(from_global) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(global), "r"(from_global), "n"(bytes)
                     : "memory");
#else
    if (bytes == 16)
        *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
    else if (bytes == 8)
        *static_cast<uint2*>(shared) = valid ? *static_cast<const uint2*>(global) : make_uint2(0, 0);
    else
        *static_cast<unsigned*>(shared) = valid ? *static_cast<const unsigned*>(global) : 0;
#endif
}
#define cp_async(bytes, shared, global, valid) cp_async_bytes<bytes>(shared, global, valid)

__device__ __forceinline__ void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
#endif
}

#endif
