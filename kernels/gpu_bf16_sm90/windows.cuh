// Where in a padded image the windows of a convolution begin, as pixels of all images one after the other.
#pragma once

struct Windows {
    int height, width, out_height, out_width, stride;

    __device__ __forceinline__ Windows(int height, int width, int kernel, int stride)
        : height(height), width(width), out_height((height - kernel) / stride + 1), out_width((width - kernel) / stride + 1),
          stride(stride) {}

    // Of pixel number `pixel` of all outputs.
    __device__ __forceinline__ int start(int pixel) const {
        int row = pixel / out_width;
        return (row / out_height * height + row % out_height * stride) * width + pixel % out_width * stride;
    }
};
