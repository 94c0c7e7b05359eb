// Where the elements of an operand are that a thread loads in each step: of SIDE / THREADS lines,
// at one place of k. If neighbours along k are neighbours in memory, a line begins at an address
// that the tap decides, and its divisions are made once a tap.
#pragma once

template <bool along_k>
struct Lines {
    static constexpr int COUNT = SIDE / THREADS;
    const float* first[COUNT];  // element of each line in this tap, at first_k, or null
    int first_k, last_k;

    // element(line, k): the address of an element in this tap, or null.
    template <class Element>
    __device__ __forceinline__ void begin(Element element) {
#pragma unroll
        for (int i = 0; along_k && i < COUNT; i++)
            first[i] = element(i * THREADS + threadIdx.y, first_k);
    }
    // The address of line i's element in the step at k, or null.
    template <class Element>
    __device__ __forceinline__ const float* at(int i, int k, Element element) const {
        k += place();
        if (!along_k) return element(line(i), k);
        return first[i] && k < last_k ? first[i] + (k - first_k) : nullptr;
    }
    static __device__ __forceinline__ int line(int i) {
        return i * THREADS + (along_k ? threadIdx.y : threadIdx.x);
    }
    static __device__ __forceinline__ int place() { return along_k ? threadIdx.x : threadIdx.y; }
};
