// Sliding windows over a zero-padded image, along one axis.
#pragma once

// Number of windows.
__device__ __forceinline__ int windows(int size, int window, int stride, int padding) {
    return (size + 2 * padding - window) / stride + 1;
}

// The first window that begins at or after `place`; place 0 is the first zero. Windows
// first_window(p - window + 1) to before first_window(p + 1) hold place p.
__device__ __forceinline__ int first_window(int place, int stride) {
    return max(0, (place + stride - 1) / stride);
}
