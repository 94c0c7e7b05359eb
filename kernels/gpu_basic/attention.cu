// Attention with one head over the pixels of an image, softmax(Q K' / sqrt(channels)) V, and its
// gradient (Vaswani et al., 2017).
//
// Rung: the first on the GPU. Global memory only, no atomics; one thread per element of each
// product, one per row of a softmax.
// Layouts, float32: x, dx (batch, pixels, 3, channels): queries, keys, values of each pixel; y, dy
// (batch, pixels, channels); weights (batch, pixels, pixels), which the forward pass keeps: a row
// for each pixel that asks, which adds up to 1; scores, dweights, dscores, alike. A row's number is
// image * pixels + pixel. scale = 1 / sqrt(channels). Every array has fewer than 2^31 elements.
// Launches: attention_softmax, attention_score_grad block (32), grid (ceil(batch pixels / 32)); the
// others block (256), grid (ceil(count / 256)) for the `count` elements that they write.
// Bound: the level-1 cache, as in conv2d.cu: each multiply-add of scores and weight_grad takes two
// loads that touch up to 1 + 32 lines a warp, of the sums and of input_grad two that touch one line
// each. In softmax and score_grad each thread of a warp touches a line of its own, five times for
// each of its pixels.
// Times: kernels/README.md has those of whole steps, predicted and measured.

extern "C" __global__ void __launch_bounds__(256)
    attention_scores(const float* __restrict__ x, float* __restrict__ scores, int count, int pixels,
                     int channels, float scale) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int row = element / pixels, other = element % pixels;
    const float* query = x + row * 3 * channels;
    const float* key = x + (row - row % pixels + other) * 3 * channels + channels;
    float score = 0.0f;
    for (int c = 0; c < channels; c++) score += query[c] * key[c];
    scores[element] = score * scale;
}

// The largest score is subtracted first, so that no exponential overflows. A row with a NaN has a
// NaN sum.
extern "C" __global__ void __launch_bounds__(32)
    attention_softmax(const float* __restrict__ scores, float* __restrict__ weights, int rows,
                      int pixels) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* score = scores + row * pixels;
    float *weight = weights + row * pixels, largest = score[0], sum = 0.0f;
    for (int i = 1; i < pixels; i++) largest = fmaxf(largest, score[i]);
    for (int i = 0; i < pixels; i++) {
        weight[i] = expf(score[i] - largest);
        sum += weight[i];
    }
    for (int i = 0; i < pixels; i++) weight[i] /= sum;
}

extern "C" __global__ void __launch_bounds__(256)
    attention_sums(const float* __restrict__ x, const float* __restrict__ weights,
                   float* __restrict__ y, int count, int pixels, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int row = element / channels, channel = element % channels;
    const float* value = x + (row - row % pixels) * 3 * channels + 2 * channels + channel;
    float sum = 0.0f;
    for (int i = 0; i < pixels; i++) sum += weights[row * pixels + i] * value[i * 3 * channels];
    y[element] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    attention_weight_grad(const float* __restrict__ x, const float* __restrict__ dy,
                          float* __restrict__ dweights, int count, int pixels, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int row = element / pixels, other = element % pixels;
    const float* value = x + (row - row % pixels + other) * 3 * channels + 2 * channels;
    float sum = 0.0f;
    for (int c = 0; c < channels; c++) sum += dy[row * channels + c] * value[c];
    dweights[element] = sum;
}

// A row's weights add up to 1 whatever the scores, so their common gradient is taken away.
extern "C" __global__ void __launch_bounds__(32)
    attention_score_grad(const float* __restrict__ weights, const float* __restrict__ dweights,
                         float* __restrict__ dscores, int rows, int pixels, float scale) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float *weight = weights + row * pixels, *dweight = dweights + row * pixels;
    float *dscore = dscores + row * pixels, along = 0.0f;
    for (int i = 0; i < pixels; i++) along += weight[i] * dweight[i];
    for (int i = 0; i < pixels; i++) dscore[i] = weight[i] * (dweight[i] - along) * scale;
}

extern "C" __global__ void __launch_bounds__(256)
    attention_input_grad(const float* __restrict__ x, const float* __restrict__ weights,
                         const float* __restrict__ dy, const float* __restrict__ dscores,
                         float* __restrict__ dx, int count, int pixels, int channels) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    int row = element / (3 * channels), part = element / channels % 3, channel = element % channels;
    int pixel = row % pixels, first = row - pixel;
    // The row of dscores of this pixel, and its column.
    const float *asked = dscores + row * pixels, *asking = dscores + first * pixels + pixel;
    const float *weight = weights + first * pixels + pixel,
                *passed = dy + first * channels + channel;
    const float* image = x + first * 3 * channels + channel;
    float sum = 0.0f;
    for (int i = 0; i < pixels; i++) {
        if (part == 0)
            sum += asked[i] * image[i * 3 * channels + channels];
        else if (part == 1)
            sum += asking[i * pixels] * image[i * 3 * channels];
        else
            sum += weight[i * pixels] * passed[i * channels];
    }
    dx[element] = sum;
}
