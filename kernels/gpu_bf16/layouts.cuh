// How a copy in bfloat16 lies in memory: where channel `channel` of pixel number `pixel` is. Eight, from a multiple of 8 on, lie
// side by side.
#pragma once
#include "gpu_bf16/rows.cuh"

#ifndef IN_SLABS
#define IN_SLABS 0
#endif

// As arrays do: channels of a pixel side by side.
struct InOrder {
    int channels;

    __device__ __forceinline__ InOrder(int, int channels) : channels(channels) {}
    __device__ __forceinline__ int place(int pixel, int channel) const { return pixel * channels + channel; }
    __device__ __forceinline__ int stored() const { return channels; }   // channels, with those that are zero
};

// In slabs of 64 channels, each with a row (rows.cuh) for every pixel of all images.
struct InSlabs {
    int rows, channels;   // rows: of a slab

    __device__ __forceinline__ InSlabs(int rows, int channels) : rows(rows), channels(channels) {}
    __device__ __forceinline__ int place(int row, int channel) const {
        return (channel / SLAB * rows + row) * SLAB + (channel / CHUNK ^ row) % CHUNKS * CHUNK + channel % CHUNK;
    }
    __device__ __forceinline__ int stored() const { return (channels + SLAB - 1) / SLAB * SLAB; }
};

// What a launch writes is as its reader's kernel wants it: compiled with IN_SLABS=1, in slabs.
#if IN_SLABS
using Written = InSlabs;
#else
using Written = InOrder;
#endif
