// All steps of a warp that multiplies: while the products of a step are under way, it loads the fragments of the next.
//
// A multiplier is an object with
//     load(fragments)       of the next step, four times four registers
//     add(sum, fragments)   begins their products, and ends those of the step before
#pragma once
#include "common/hopper.cuh"

template <class Multiplier, int count>
__device__ __forceinline__ void multiply(Multiplier warp, int steps, float (&sum)[count]) {
    unsigned even[4][4], odd[4][4];   // the one may be overwritten when the products of the other have begun
    for (int left = steps;; left -= 2) {
        warp.load(even);
        warp.add(sum, even);
        if (left == 1) break;
        warp.load(odd);
        warp.add(sum, odd);
        if (left == 2) break;
    }
    wgmma_wait<0>();
    waited(sum);
}
