// 2-D convolution (cross-correlation, zero padding) and the gradients of its input and weight, by
// definition; conv2d_bias.cu has that of its bias.
//
// Rung: the first on the GPU. One thread per output element, global memory only, no atomics: every
// element is one sum in a fixed order, so that two runs give the same bytes.
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, out_height, out_width,
// filters) with out_height = (height + 2 padding - kernel) / stride + 1; weight, dweight (filters,
// kernel, kernel, channels); bias (filters). Every array has fewer than 2^31 elements.
//
// Launches: neighbouring threads have neighbouring filters or channels.
//   conv2d_forward      block (8, 32), grid (ceil(pixels of y / 32), ceil(filters / 8))
//   conv2d_input_grad   block (256), grid (ceil(elements of dx / 256))
//   conv2d_weight_grad  block (256), grid (ceil(elements of dweight / 256))
//
// Bound: the level-1 cache. Each multiply-add takes two loads. In the gradients a warp's load
// touches one cache line. In the forward pass it touches 8 + 4, for a warp's 8 filters and 4
// pixels; with 32 filters and one pixel it would be 33. The compiler decides how many loads of a
// sum are under way at once.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/product.cuh"
#include "windows.cuh"

// y(image, row, column, filter): the products of its window, by row, column, channel, and the bias.
extern "C" __global__ void __launch_bounds__(256)
    conv2d_forward(const float* __restrict__ x, const float* __restrict__ weight,
                   const float* __restrict__ bias, float* __restrict__ y, int batch, int height,
                   int width, int channels, int filters, int kernel, int padding, int stride) {
    int out_height = windows(height, kernel, stride, padding),
        out_width = windows(width, kernel, stride, padding);
    int filter = blockIdx.y * blockDim.x + threadIdx.x;
    int pixel = blockIdx.x * blockDim.y + threadIdx.y;
    if (filter >= filters || pixel >= batch * out_height * out_width) return;
    int column = pixel % out_width, row = pixel / out_width % out_height,
        image = pixel / (out_width * out_height);

    float sum = 0.0f;
    for (int i = 0; i < kernel; i++) {
        int in_row = row * stride + i - padding;
        if (in_row < 0 || in_row >= height) continue;
        for (int j = 0; j < kernel; j++) {
            int in_column = column * stride + j - padding;
            if (in_column < 0 || in_column >= width) continue;
            const float* pixels = x + ((image * height + in_row) * width + in_column) * channels;
            const float* taps = weight + ((filter * kernel + i) * kernel + j) * channels;
            for (int c = 0; c < channels; c++) sum += multiply(pixels[c], taps[c]);
        }
    }
    y[pixel * filters + filter] = sum + bias[filter];
}

// dx(image, row, column, channel): the outputs whose windows hold it, by row, column, filter.
extern "C" __global__ void __launch_bounds__(256)
    conv2d_input_grad(const float* __restrict__ dy, const float* __restrict__ weight,
                      float* __restrict__ dx, int batch, int height, int width, int channels,
                      int filters, int kernel, int padding, int stride) {
    int out_height = windows(height, kernel, stride, padding),
        out_width = windows(width, kernel, stride, padding);
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= batch * height * width * channels) return;
    int channel = element % channels, pixel = element / channels;
    int row = pixel / width % height + padding, column = pixel % width + padding,
        image = pixel / (width * height);
    int last_row = min(out_height, first_window(row + 1, stride));
    int last_column = min(out_width, first_window(column + 1, stride));

    float sum = 0.0f;
    for (int out_row = first_window(row - kernel + 1, stride); out_row < last_row; out_row++)
        for (int out_column = first_window(column - kernel + 1, stride); out_column < last_column;
             out_column++) {
            const float* gradients =
                dy + ((image * out_height + out_row) * out_width + out_column) * filters;
            int i = row - out_row * stride, j = column - out_column * stride;
            const float* taps = weight + (i * kernel + j) * channels + channel;
            int apart = kernel * kernel * channels;  // from a filter to the next
            // Pointers, because indices would spill.
            for (const float* end = gradients + filters; gradients < end;
                 gradients++, taps += apart)
                sum += multiply(*gradients, *taps);
        }
    dx[element] = sum;
}

// dweight(filter, i, j, channel): its products at every pixel, by image, row, column.
extern "C" __global__ void __launch_bounds__(256)
    conv2d_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                       float* __restrict__ dweight, int batch, int height, int width, int channels,
                       int filters, int kernel, int padding, int stride) {
    int out_height = windows(height, kernel, stride, padding),
        out_width = windows(width, kernel, stride, padding);
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= filters * kernel * kernel * channels) return;
    int channel = element % channels, tap = element / channels;
    int j = tap % kernel, i = tap / kernel % kernel, filter = tap / (kernel * kernel);
    // The outputs for which this tap lies inside the image.
    int first_row = first_window(padding - i, stride),
        first_column = first_window(padding - j, stride);
    int last_row = min(out_height, first_window(height + padding - i, stride));
    int last_column = min(out_width, first_window(width + padding - j, stride));

    float sum = 0.0f;
    for (int image = 0; image < batch; image++)
        for (int row = first_row; row < last_row; row++) {
            const float* gradients = dy + (image * out_height + row) * out_width * filters + filter;
            int in_row = row * stride + i - padding;
            const float* pixels =
                x + ((image * height + in_row) * width + j - padding) * channels + channel;
            for (int column = first_column; column < last_column; column++)
                sum += multiply(gradients[column * filters], pixels[column * stride * channels]);
        }
    dweight[element] = sum;
}
