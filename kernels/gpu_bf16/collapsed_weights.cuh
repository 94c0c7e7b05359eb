// A block's part of the weight of a 3x3 convolution behind an upsampling: its gradient of parts, its update, and the copies of
// the sums of its taps, each rounded once (weight_update.cu).
//
// The sums are those of a transposed convolution with stride 2 and 4x4 taps (kernels/gpu_basic/collapsed_conv2d.cu), which is four
// convolutions of 2x2 taps, one for each phase of the upsampled image: pixel (2 r + p, 2 c + q) of y is of phase (p, q), and its
// tap (a, b) is at pixel (r + p - 1 + a, c + q - 1 + b) of x.
#pragma once
#include "gpu_bf16/chunk.cuh"

enum CollapsedForm { NOT_COLLAPSED, PHASES_APART, PHASES_IN_COLUMNS };

template <int side>
struct CollapsedBlock {
    static constexpr int TAPS_HELD = 9;
    int filters, channels, first_filter, first_channel;   // all of the weight's; of this block's `side` x `side`

    __device__ __forceinline__ CollapsedBlock(int block, int filters, int channels)
        : filters(filters), channels(channels), first_filter(block / ((channels + side - 1) / side) * side),
          first_channel(block % ((channels + side - 1) / side) * side) {}

    static __device__ __forceinline__ int slow() { return threadIdx.x / side; }
    static __device__ __forceinline__ int fast() { return threadIdx.x % side; }
    static __device__ __forceinline__ int whole(int count) { return (count + CHUNK - 1) / CHUNK * CHUNK; }

    // The gradients of the 3x3 taps from those of the collapsed ones; part(i): element i of (channels, 4, 4, whole filters).
    template <class Part>
    __device__ __forceinline__ void expand(float (&held)[TAPS_HELD][side][side + 1], Part part) const {
        int filter = first_filter + fast(), channel = first_channel + slow();
        float collapsed[16] = {};
        if (filter < filters && channel < channels)
#pragma unroll
            for (int tap = 0; tap < 16; tap++) collapsed[tap] = part((channel * 16 + tap) * whole(filters) + filter);
#pragma unroll
        for (int tap = 0; tap < TAPS_HELD; tap++) {
            int first = (2 - tap / 3) * 4 + 2 - tap % 3;
            held[tap][fast()][slow()] = collapsed[first] + collapsed[first + 1] + collapsed[first + 4] + collapsed[first + 5];
        }
        __syncthreads();
    }

    // renew(i, tap): the weight's element i, of this 3x3 tap, as it is from now on. It is filter slow(), channel fast().
    template <class Renew>
    __device__ __forceinline__ void copy(bfloat16* phases, bfloat16* whole_taps, CollapsedForm form, Renew renew) const {
        __shared__ bfloat16 held[16][side][side];
        int filter = first_filter + slow(), channel = first_channel + fast();
        float taps[TAPS_HELD] = {};
        if (filter < filters && channel < channels)
#pragma unroll
            for (int tap = 0; tap < TAPS_HELD; tap++) taps[tap] = renew((filter * TAPS_HELD + tap) * channels + channel, tap);
        bfloat16 sums[16];
#pragma unroll
        for (int tap = 0; tap < 16; tap++)
            held[tap][slow()][fast()] = sums[tap] = bf16x2(sum_of(taps, tap / 4, tap % 4), 0.0f) & 0xffff;
        if (filter < filters && channel < whole(channels)) store_phases(phases, sums, form, filter, channel);
        if (whole_taps == nullptr) return;
        __syncthreads();
        filter = first_filter + fast(), channel = first_channel + slow();
        if (filter < whole(filters) && channel < channels)
#pragma unroll
            for (int tap = 0; tap < 16; tap++)
                whole_taps[(channel * 16 + tap) * whole(filters) + filter] = held[tap][fast()][slow()];
    }

    // Of the 3x3 taps in collapsed tap (t, s): the first column's first.
    static __device__ __forceinline__ float sum_of(const float (&taps)[TAPS_HELD], int t, int s) {
        auto column = [&](int l) {
            int k = t == 0 ? 2 : t == 1 ? 1 : 0;
            return t == 1 || t == 2 ? taps[k * 3 + l] + taps[(k + 1) * 3 + l] : taps[k * 3 + l];
        };
        int l = s == 0 ? 2 : s == 1 ? 1 : 0;
        return s == 1 || s == 2 ? column(l) + column(l + 1) : column(l);
    }

    // Apart: (4 phases, filters, 2, 2, channels). In columns: (4 phases, filters, 3, 3, channels), with zeros where a phase has
    // no tap of the window around pixel (r, c).
    __device__ __forceinline__ void store_phases(bfloat16* phases, const bfloat16 (&sums)[16], CollapsedForm form, int filter,
                                                 int channel) const {
        int width = form == PHASES_APART ? 2 : 3;
#pragma unroll
        for (int phase = 0; phase < 4; phase++) {
            bfloat16* to = phases + (phase * filters + filter) * width * width * whole(channels) + channel;
            int p = phase / 2, q = phase % 2;
            if (form == PHASES_IN_COLUMNS)
                for (int tap = 0; tap < 9; tap++) to[tap * whole(channels)] = 0;
#pragma unroll
            for (int tap = 0; tap < 4; tap++) {
                int a = tap / 2, b = tap % 2, t = 3 - p - 2 * a, s = 3 - q - 2 * b;
                int row = form == PHASES_APART ? a : p + a, column = form == PHASES_APART ? b : q + b;
                to[(row * width + column) * whole(channels)] = sums[t * 4 + s];
            }
        }
    }
};
