// How a copy in bfloat16 lies in memory: place(pixel, channel) is where a channel of a pixel is. Eight channels, from a multiple
// of 8 on, lie side by side.
//
// A slab is a block of 64 channels of all pixels, as c is one in the layout NCHWc; the last one is filled with zeros.
#pragma once
#include "gpu_bf16/rows.cuh"

// The layout of what a launch writes, by the kernel that reads it: 0: InOrder, 1: InSlabs.
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

#if IN_SLABS
using Written = InSlabs;
#else
using Written = InOrder;
#endif
