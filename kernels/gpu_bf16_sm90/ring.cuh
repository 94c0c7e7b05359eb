// Stages in shared memory that one thread fills by copies, one after the other and then the first again, and warps read. Two
// barriers for each stage: what was copied has come; all warps have read it.
#pragma once
#include "common/hopper.cuh"

template <int length>
struct Ring {
    unsigned char* first;
    int bytes;   // of a stage
    Barrier *came, *read;
    int stage = 0;
    unsigned parity = 0;   // of the phases that the stage's barriers are in, this time round

    // barriers: 2 length of them.
    __device__ __forceinline__ Ring(unsigned char* first, int bytes, Barrier* barriers)
        : first(first), bytes(bytes), came(barriers), read(barriers + length) {}

    // By one thread, then barriers_visible().
    __device__ __forceinline__ void init(int warps) const {
        for (int i = 0; i < length; i++) barrier_init(came + i, 1), barrier_init(read + i, warps);
    }

    __device__ __forceinline__ unsigned char* now() const { return first + stage * bytes; }

    // For the thread that copies: wait until the stage may be overwritten; so many bytes will come.
    __device__ __forceinline__ void begin(int count) const {
        barrier_wait(read + stage, parity ^ 1);
        barrier_expect(came + stage, count);
    }
    __device__ __forceinline__ void copy(int to, const void* from, int count) const {
        copy_bulk(now() + to, from, count, came + stage);
    }

    // For the others.
    __device__ __forceinline__ void wait() const { barrier_wait(came + stage, parity); }
    __device__ __forceinline__ void release(int of) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(read + of);
    }

    __device__ __forceinline__ void next() {
        bool last = stage == length - 1;
        stage = last ? 0 : stage + 1;
        parity ^= last;
    }
};
