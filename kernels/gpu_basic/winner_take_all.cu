// Winner-take-all: the largest values of each channel of an image stay, in the images where they
// are largest, and its gradient.
//
// Rung: the first on the GPU. Global memory only; one thread per channel of an image, then one per
// element.
// Layouts: x, y, dx, dy float32 (batch, pixels, channels), in memory order (`count` elements);
// mask, uint8, alike: 1 where the value stays; largest float32, lasting uint8 (batch, channels):
// the largest value of a channel, and whether fewer than `images` others of the batch go before it.
// Of equal values the first stays; NaN is larger than all numbers.
// Launches: winners_of_maps, lasting_images block (32), grid (ceil(batch channels / 32));
// winner_take_all_forward, which joins both, and winner_take_all_backward block (256), grid
// (ceil(count / 256)).
// Bound: memory. winners_of_maps reads x and the mask once for every winner and writes the mask
// twice; forward then reads 5 and writes 5 bytes per element, backward reads 5 and writes 4.
// lasting_images reads batch values per thread from the cache.
// Times: kernels/README.md has those of whole steps, predicted and measured.

__device__ __forceinline__ bool exceeds(float a, float b) { return a > b || (a != a && b == b); }

extern "C" __global__ void __launch_bounds__(32)
    winners_of_maps(const float* __restrict__ x, unsigned char* __restrict__ mask,
                    float* __restrict__ largest, int batch, int pixels, int channels, int winners) {
    int map = blockIdx.x * blockDim.x + threadIdx.x;
    if (map >= batch * channels) return;
    int begin = map / channels * pixels * channels + map % channels;
    const float* values = x + begin;
    unsigned char* marks = mask + begin;
    for (int pixel = 0; pixel < pixels; pixel++) marks[pixel * channels] = 0;
    for (int found = 0; found < winners; found++) {
        int best = -1;
        for (int pixel = 0; pixel < pixels; pixel++) {
            if (marks[pixel * channels]) continue;
            if (best < 0 || exceeds(values[pixel * channels], values[best * channels]))
                best = pixel;
        }
        marks[best * channels] = 1;
        if (found == 0) largest[map] = values[best * channels];
    }
}

extern "C" __global__ void __launch_bounds__(32)
    lasting_images(const float* __restrict__ largest, unsigned char* __restrict__ lasting,
                   int batch, int channels, int images) {
    int map = blockIdx.x * blockDim.x + threadIdx.x;
    if (map >= batch * channels) return;
    int image = map / channels, channel = map % channels, before = 0;
    for (int other = 0; other < batch; other++) {
        float own = largest[map], rival = largest[other * channels + channel];
        before += other < image ? !exceeds(own, rival) : exceeds(rival, own);
    }
    lasting[map] = before < images;
}

// A product, not a select, so that dropping a value does not hide a NaN.
extern "C" __global__ void __launch_bounds__(256)
    winner_take_all_forward(const float* __restrict__ x, const unsigned char* __restrict__ lasting,
                            float* __restrict__ y, unsigned char* __restrict__ mask, int count,
                            int pixels, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    bool stays = mask[i] && lasting[i / (pixels * channels) * channels + i % channels];
    mask[i] = stays;
    y[i] = x[i] * (stays ? 1.0f : 0.0f);
}

extern "C" __global__ void __launch_bounds__(256)
    winner_take_all_backward(const float* __restrict__ dy, const unsigned char* __restrict__ mask,
                             float* __restrict__ dx, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) dx[i] = dy[i] * (mask[i] ? 1.0f : 0.0f);
}
