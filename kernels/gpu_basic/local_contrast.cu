// Values divided by the contrast of their window in the image: sqrt(variance of its numbers +
// epsilon).
//
// Rung: the first on the GPU. Global memory only; one thread per window's contrast, then one per
// element.
// Layouts, float32: image (batch, height, width, channels); contrast (batch, out_height, out_width)
// with out_height = height - window + 1; x, y (batch, out_height, out_width, values), in memory
// order (`count` elements).
// Launches: block (256): local_contrast_windows grid (ceil(windows / 256)), local_contrast_divide
// grid (ceil(count / 256)).
// Bound: memory, 8 bytes per element; the windows overlap, so the image comes from the cache.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    local_contrast_windows(const float* __restrict__ image, float* __restrict__ contrast, int batch,
                           int height, int width, int channels, int window, float epsilon) {
    int out_height = height - window + 1, out_width = width - window + 1;
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= batch * out_height * out_width) return;
    int column = place % out_width, row = place / out_width % out_height,
        n = place / (out_width * out_height);
    const float* corner = image + ((n * height + row) * width + column) * channels;
    int run = window * channels, line = width * channels;  // a window's row is one run of numbers

    float sum = 0.0f;
    for (int i = 0; i < window; i++)
        for (int k = 0; k < run; k++) sum += corner[i * line + k];
    float mean = sum / (window * run), squares = 0.0f;
    for (int i = 0; i < window; i++)
        for (int k = 0; k < run; k++)
            squares += (corner[i * line + k] - mean) * (corner[i * line + k] - mean);
    contrast[place] = sqrtf(squares / (window * run) + epsilon);
}

extern "C" __global__ void __launch_bounds__(256)
    local_contrast_divide(const float* __restrict__ x, const float* __restrict__ contrast,
                          float* __restrict__ y, int count, int values) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element < count) y[element] = x[element] / contrast[element / values];
}
