// The optimizers' updates of all parameters in one launch, which also writes the copies of weights in bfloat16; and these
// alone.
//
// Rung: gpu_bf16. Changed from gpu_opt_v1: a weight of a convolution on copies is rounded where it is updated, not read again.
//
// Layouts: weight float32 (filters, kernel, kernel, channels), its copy the same in bfloat16, with channels up to the next
// multiple of 8, zeros; flipped bfloat16 (channels, kernel, kernel, filters up to the next multiple of 8), zero for further
// filters, with rows and columns of taps in reverse order: the input gradient is the convolution of the gradient with these
// filters. In slabs the copy is (ceil(channels / 64), kernel, kernel, rows, 64) with filters and zeros as rows, and flipped
// (ceil(filters / 64), kernel, kernel, rows, 64) with channels and zeros as rows; chunks of eight are swapped by the row's number
// (layouts.cuh); rows are a multiple of 64.
// table int64, as common/update.cuh has it, and in each row, by the names in MoreWords:
//   COPY, FLIPPED               addresses of the copy and of the flipped one; 0 where there is none
//   FILTERS, TAPS, CHANNELS     of a parameter with copies
//   COPY_ROWS, FLIPPED_ROWS     rows of a tap where they are in slabs, else 0
//   PARTS, APART                number of the gradient's parts and elements from one to the next: weight_grad.cu's, or of a bias
//                               the rows of bias_partials; 0 where the gradient is whole
//   FORM                        a CollapsedForm, of a 3x3 weight behind an upsampling (collapsed_weights.cuh): the copy has the
//                               phases, the flipped one (channels, 4, 4, filters) the collapsed taps, as the gradient's parts
// learning_rates, counters, clip and weight_decay: as gpu_opt_v1/update.cu.
//
// Launches: block (256), grid: the sum over the parameters of ceil(elements / 256), a thread an element in order; with
// copies of ceil(filters / 16) taps ceil(channels / 16), in slabs with rows for filters and channels: a block has 16 x 16 weights
// of a tap, so that it writes 32 bytes side by side of a flipped copy too; behind an upsampling it has those of all taps, and
// there are ceil(filters / 16) ceil(channels / 16); of a bias whose gradient is in parts of ceil(elements / 16): 16 threads add
// the rows of one.
// Bound: memory. Of a weight with both copies 4 bytes more than without.
// Predicted, not measured, for adam and 751,875 parameters at 4.3 TB/s: 6 us.
// Measured: not measured.
#include "common/update.cuh"
#include "gpu_bf16/collapsed_weights.cuh"
#include "gpu_bf16/layouts.cuh"
#include "gpu_bf16/bias_partials.cuh"

enum MoreWords { COPY = MORE, FLIPPED, FILTERS, TAPS, CHANNELS, COPY_ROWS, FLIPPED_ROWS, PARTS, APART, FORM };
constexpr int SIDE = 16;

// A copy of so many lines, filters or channels, with `taps` times `numbers` numbers each; rows: of a tap in slabs, 0: in no slabs.
struct Copy {
    bfloat16* at;
    int rows, lines, taps, numbers;

    // Nothing where it has no such number.
    __device__ __forceinline__ void put(int line, int tap, int number, bfloat16 value) const {
        InOrder in_order(0, (numbers + CHUNK - 1) / CHUNK * CHUNK);
        InSlabs in_slabs(taps * rows, numbers);
        if (rows == 0 && line < lines && number < in_order.stored()) at[in_order.place(line * taps + tap, number)] = value;
        if (line < rows && number < in_slabs.stored()) at[in_slabs.place(tap * rows + line, number)] = value;
    }
};

// This block's part of a weight and of its copies; renew(i, in_copy): the weight's element i, which has the place in_copy in
// a copy in no slabs, as it is from now on.
template <class Renew>
__device__ __forceinline__ void copy_block(const long long* row, Renew renew) {
    __shared__ bfloat16 held[SIDE][SIDE];
    int filters = row[FILTERS], taps = row[TAPS], channels = row[CHANNELS];
    Copy copy{reinterpret_cast<bfloat16*>(address(row[COPY])), static_cast<int>(row[COPY_ROWS]), filters, taps, channels};
    Copy flipped{reinterpret_cast<bfloat16*>(address(row[FLIPPED])), static_cast<int>(row[FLIPPED_ROWS]), channels, taps, filters};
    int across = (max(channels, flipped.rows) + SIDE - 1) / SIDE;
    int block = blockIdx.x - static_cast<int>(row[FIRST_BLOCK]), tap = block / across % taps;
    int first_filter = block / across / taps * SIDE, first_channel = block % across * SIDE;
    int slow = threadIdx.x / SIDE, fast = threadIdx.x % SIDE, filter = first_filter + slow, channel = first_channel + fast;
    int place = filter * taps + tap, wide = (channels + CHUNK - 1) / CHUNK * CHUNK;
    bool there = filter < filters && channel < channels;
    bfloat16 value = there ? bf16x2(renew(place * channels + channel, place * wide + channel), 0.0f) & 0xffff : 0;
    copy.put(filter, tap, channel, value);
    held[slow][fast] = value;
    if (row[FLIPPED] == 0) return;
    __syncthreads();
    flipped.put(first_channel + slow, taps - 1 - tap, first_filter + fast, held[fast][slow]);
}

// A gradient's element of so many parts; 0: the element itself.
__device__ __forceinline__ float add_parts(const float* first, int parts, int apart) {
    if (parts == 0) return *first;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = 0; part < parts; part++) sum += first[part * apart];
    return sum;
}

// This block's part of a weight behind an upsampling.
__device__ __forceinline__ CollapsedBlock<SIDE> collapsed_block(const long long* row) {
    return CollapsedBlock<SIDE>(blockIdx.x - row[FIRST_BLOCK], row[FILTERS], row[CHANNELS]);
}

template <class Renew>
__device__ __forceinline__ void copy_collapsed(const long long* row, Renew renew) {
    collapsed_block(row).copy(reinterpret_cast<bfloat16*>(address(row[COPY])), reinterpret_cast<bfloat16*>(address(row[FLIPPED])),
                              static_cast<CollapsedForm>(row[FORM]), renew);
}

template <Rule rule>
__device__ __forceinline__ void update_collapsed(const long long* row, const float* gradient, const Settings& settings) {
    using Block = CollapsedBlock<SIDE>;
    __shared__ float expanded[Block::TAPS_HELD][SIDE][SIDE + 1];
    int parts = row[PARTS], apart = row[APART];
    if (parts) collapsed_block(row).expand(expanded, [=](int i) { return add_parts(gradient + i, parts, apart); });
    copy_collapsed(row, [=](int i, int tap) {
        return update<rule>(row, i, parts ? expanded[tap][Block::slow()][Block::fast()] : gradient[i], settings);
    });
}

template <Rule rule>
__device__ __forceinline__ void update_all(const long long* table, const Settings& settings) {
    const long long* row = row_of(table);
    const float* gradient = address(row[GRADIENT]);
    int parts = row[PARTS], count = row[COUNT];
    if (row[FORM] != NOT_COLLAPSED) {
        update_collapsed<rule>(row, gradient, settings);
    } else if (row[COPY] != 0) {
        copy_block(row, [=](int i, int in_copy) {
            return update<rule>(row, i, add_parts(gradient + (parts ? in_copy : i), parts, row[APART]), settings);
        });
    } else if (parts != 0) {
        int first = (blockIdx.x - static_cast<int>(row[FIRST_BLOCK])) * SIDE, i = first + threadIdx.x;
        float sum = sum_of_rows<SIDE>(gradient, first, count, parts);
        if (threadIdx.x < SIDE && i < count) update<rule>(row, i, sum, settings);
    } else if (element_of(row) < count) {
        update<rule>(row, element_of(row), gradient[element_of(row)], settings);
    }
}

extern "C" __global__ void __launch_bounds__(256) copy_weights(const long long* __restrict__ table) {
    const long long* row = row_of(table);
    auto kept = [=](int i, int) { return address(row[VALUES])[i]; };
    if (row[FORM] != NOT_COLLAPSED)
        copy_collapsed(row, kept);
    else
        copy_block(row, kept);
}

#include "common/update_entries.cuh"
