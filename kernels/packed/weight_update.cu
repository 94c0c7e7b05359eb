// The optimizers' updates of all parameters in one launch, which also writes the weights' packed
// copies; copy_weights writes the copies alone.
//
// Rung: gpu_tf32. Changed from gpu_opt_v1: a weight of a convolution of copies is rounded where it
// is updated, so that no launch reads it again.
//
// Layouts: weight float32 (filters, kernel, kernel, channels), its copy the same in Packed, with
// channels up to the next multiple of 8, zeros; flipped Packed (channels, kernel, kernel, filters
// up to the next multiple of 8), zero for further filters, with rows and columns of taps in reverse
// order: the input gradient is the convolution of the gradient with these filters. In channel
// blocks the copy is (ceil(channels / 64), kernel, kernel, rows, 64) with filters and zeros as
// rows, and flipped (ceil(filters / 64), kernel, kernel, rows, 64) with channels and zeros as rows;
// chunks of eight are swapped by the row's number (common/packed.cuh); rows are a multiple of 64.
// table int64, as common/update.cuh has it, and in each row, by the names in MoreWords:
//   COPY, FLIPPED               addresses of the copy and of the flipped one; 0 where there is none
//   FILTERS, TAPS, CHANNELS     of a parameter with copies
//   COPY_ROWS, FLIPPED_ROWS     rows of a tap, or of one of its phases, if the copy is in channel
//                               blocks, else 0
//   PARTS, APART                number of the gradient's parts and elements from one to the next:
//                               weight_grad.cu's, or of a bias the rows of bias_partials; 0 where
//                               the gradient is whole
//   FORM                        a PhaseForm, of a 3x3 weight behind an upsampling: the copy has the
//                               phases; the flipped one has the phase weights (channels, 4, 4,
//                               filters), as the gradient's parts do
// learning_rates, counters, clip and weight_decay: as gpu_opt_v1/update.cu.
//
// Launches: block (256), grid: the sum over the parameters of
//   ceil(elements / 256)                            without copies, a thread an element in order
//   ceil(filters / 16) taps ceil(channels / 16)     with copies, in channel blocks with rows for
//                                                   filters and channels: a block has 16 x 16
//                                                   weights of a tap, so that it writes 32 bytes in
//                                                   a row of a flipped copy too
//   ceil(filters / 16) ceil(channels / 16)          behind an upsampling, where a block has the
//                                                   weights of all taps; these blocks take longest
//                                                   and have the lowest numbers
//   ceil(elements / 16)                             of a bias with a gradient in parts: 16 threads
//                                                   add the rows of one element
// Bound: memory. A weight with both copies takes 4 bytes more than one without. 8 parts of a sum
// are under way at once; of phase weights one part of a thread's 16 sums or, where filters are few,
// 4 parts of its 4 sums.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/ordered_sum.cuh"
#include "common/packed.cuh"
#include "common/update.cuh"
#include "packed/bias_partials.cuh"

enum MoreWords {
    COPY = MORE,
    FLIPPED,
    FILTERS,
    TAPS,
    CHANNELS,
    COPY_ROWS,
    FLIPPED_ROWS,
    PARTS,
    APART,
    FORM
};
constexpr int SIDE = 16;

// ---- copies

// From a number's place in channel blocks to its low half, by line and number.
__device__ __forceinline__ int to_low(int line, int number) {
    return PAIRS_IN_BLOCKS ? to_low(place_in_channel_blocks(0, line, number)) : 0;
}

// Stores a number of a copy; to_low: of pairs.
template <class Element>
__device__ __forceinline__ void store_number(Packed value, Element* at, int to_low) {
    if constexpr (sizeof(Element) < sizeof(Packed))
        store_in_channel_blocks<WEIGHT_EXPONENT>(at, to_low, value);
    else
        *at = value;
}

// A copy, (lines, taps, numbers): lines are filters and numbers channels, or the other way round.
// rows: of a tap in channel blocks; 0 if the copy has none.
struct Copy {
    Packed* at;
    int rows, lines, taps, numbers;

    // Stores nothing where the copy has no such number.
    __device__ __forceinline__ void put(int line, int tap, int number, Packed value) const {
        // Numbers of a line; rows of a channel block.
        int whole = (numbers + CHUNK - 1) / CHUNK * CHUNK, of_block = taps * rows;
        if (rows == 0 && line < lines && number < whole)
            at[(line * taps + tap) * whole + number] = value;
        if (line < rows &&
            number < (numbers + STORED_CHANNELS - 1) / STORED_CHANNELS * STORED_CHANNELS)
            store_number(value,
                         reinterpret_cast<Placed*>(at) +
                             place_in_channel_blocks(of_block, tap * rows + line, number),
                         to_low(line, number));
    }
};

// This block's part of a weight and of its copies. new_value(i, in_copy): the new value of element
// i; in_copy: its place in a copy without channel blocks.
template <class NewValue>
__device__ __forceinline__ void copy_block(const long long* row, NewValue new_value) {
    __shared__ Packed tile[SIDE][SIDE];  // (filters, channels)
    int filters = row[FILTERS], taps = row[TAPS], channels = row[CHANNELS];
    Copy copy{reinterpret_cast<Packed*>(address(row[COPY])), static_cast<int>(row[COPY_ROWS]),
              filters, taps, channels};
    Copy flipped{reinterpret_cast<Packed*>(address(row[FLIPPED])),
                 static_cast<int>(row[FLIPPED_ROWS]), channels, taps, filters};
    int across = (max(channels, flipped.rows) + SIDE - 1) / SIDE;
    int block = blockIdx.x - static_cast<int>(row[FIRST_BLOCK]), tap = block / across % taps;
    int first_filter = block / across / taps * SIDE, first_channel = block % across * SIDE;
    int slow = threadIdx.x / SIDE, fast = threadIdx.x % SIDE, filter = first_filter + slow,
        channel = first_channel + fast;
    int place = filter * taps + tap, wide = (channels + CHUNK - 1) / CHUNK * CHUNK;
    bool inside = filter < filters && channel < channels;
    Packed value =
        inside ? rounded(new_value(place * channels + channel, place * wide + channel)) : 0;
    copy.put(filter, tap, channel, value);
    tile[slow][fast] = value;
    if (row[FLIPPED] == 0) return;
    __syncthreads();
    flipped.put(first_channel + slow, taps - 1 - tap, first_filter + fast, tile[fast][slow]);
}

// ---- a 3x3 weight behind an upsampling: its gradient from parts, its update, and the copies of
// its phase weights, each rounded once
//
// Phase weights are sums of the 3x3 taps: the 4x4 taps of a transposed convolution with stride 2
// (kernels/gpu_basic/phase_conv2d.cu). They are four convolutions of 2x2 taps, one for each phase
// of the upsampled image. Pixel (2 r + p, 2 c + q) of y is of phase (p, q). Its tap (a, b) is at
// pixel (r + p - 1 + a, c + q - 1 + b) of x.

enum PhaseForm { NO_PHASES, PHASES_APART, PHASES_IN_COLUMNS };

template <int side>
struct PhaseBlock {
    static constexpr int TAPS_3X3 = 9;
    const long long* row;
    // Of the weight; the first ones of this block, which has side x side of them.
    int filters, channels, first_filter, first_channel;

    __device__ __forceinline__ explicit PhaseBlock(const long long* row)
        : row(row), filters(row[FILTERS]), channels(row[CHANNELS]) {
        int across = (max(channels, static_cast<int>(row[FLIPPED_ROWS])) + side - 1) / side,
            block = blockIdx.x - row[FIRST_BLOCK];
        first_filter = block / across * side, first_channel = block % across * side;
    }

    static __device__ __forceinline__ int slow() { return threadIdx.x / side; }
    static __device__ __forceinline__ int fast() { return threadIdx.x % side; }
    static __device__ __forceinline__ int whole(int count) {
        return (count + CHUNK - 1) / CHUNK * CHUNK;
    }
    // Numbers of a line of a copy, with zeros; rows: of a tap in channel blocks, or 0.
    static __device__ __forceinline__ int stored(int count, int rows) {
        return rows ? (count + STORED_CHANNELS - 1) / STORED_CHANNELS * STORED_CHANNELS
                    : whole(count);
    }

    using Gradients = float[TAPS_3X3][side][side + 1];  // (3x3 taps, filters, channels)

    // The gradients of the 3x3 taps from parts of those of the phase weights, (channels, 4, 4,
    // filters up to a multiple of 8).
    __device__ __forceinline__ void
    add_gradients(Gradients& gradients, const float* parts_of_phases, int parts, int apart) const {
        if (filters - first_filter > side / 4)
            add_rows<4>(gradients, parts_of_phases, parts, apart);
        else
            add_rows<1>(gradients, parts_of_phases, parts, apart);
        __syncthreads();
    }

    // A thread adds so many rows of the 4x4 phase weights of a filter and a channel. Where a block
    // has few filters, the threads of filters that it lacks add the other rows. So the sums of
    // parts take a quarter of the time.
    template <int rows>
    __device__ __forceinline__ void add_rows(Gradients& gradients, const float* parts_of_phases,
                                             int parts, int apart) const {
        constexpr int ACROSS = side * rows / 4, LOADS = 16, SUMS = 4 * rows;
        int line = fast() % ACROSS, filter = first_filter + line, channel = first_channel + slow();
        int first_row = fast() / ACROSS * rows, stride = whole(filters);
        const float* first = parts_of_phases + (channel * 16 + first_row * 4) * stride + filter;
        float sum[SUMS] = {}, below[4] = {};  // of this thread's rows; of the row below them
        if (filter < filters && channel < channels)
            add_in_order<LOADS / SUMS>(sum, parts, [=](float (&to)[SUMS], int part) {
#pragma unroll
                for (int tap = 0; tap < SUMS; tap++) to[tap] = first[part * apart + tap * stride];
            });
        if constexpr (rows < 4)
#pragma unroll
            for (int s = 0; s < 4; s++) below[s] = __shfl_down_sync(0xffffffffu, sum[s], ACROSS);
        auto phase = [&](int row, int s) {
            return row < rows ? sum[row % rows * 4 + s] : below[s];
        };
#pragma unroll
        for (int row = 0; row < rows; row++)
#pragma unroll
            for (int j = 0; j < 3 && first_row + row < 3; j++)
                gradients[(2 - first_row - row) * 3 + j][line][slow()] =
                    phase(row, 2 - j) + phase(row, 3 - j) + phase(row + 1, 2 - j) +
                    phase(row + 1, 3 - j);
    }

    // new_value(taps, i) fills in the nine new 3x3 taps of filter slow() and channel fast(). i: the
    // element of the first; from one to the next are `channels` elements.
    template <class NewValue>
    __device__ __forceinline__ void copy(Packed* phases, Packed* phase_weights, PhaseForm form,
                                         NewValue new_value) const {
        __shared__ Packed phase_taps[16][side][side];  // (4x4 taps, filters, channels)
        int filter = first_filter + slow(), channel = first_channel + fast();
        float taps[TAPS_3X3] = {};
        if (filter < filters && channel < channels)
            new_value(taps, filter * TAPS_3X3 * channels + channel);
#pragma unroll
        for (int tap = 0; tap < 16; tap++)
            phase_taps[tap][slow()][fast()] = rounded(sum_of(taps, tap / 4, tap % 4));
        int rows = row[COPY_ROWS], flipped_rows = row[FLIPPED_ROWS];
        if (filter < max(filters, rows) && channel < stored(channels, rows)) {
            if (PAIRS_IN_BLOCKS && rows)
                store_phases(reinterpret_cast<Placed*>(phases), phase_taps, form, filter, channel,
                             rows);
            else
                store_phases(phases, phase_taps, form, filter, channel, rows);
        }
        if (phase_weights == nullptr) return;
        __syncthreads();
        filter = first_filter + fast(), channel = first_channel + slow();
        if (filter >= stored(filters, rows) || channel >= max(channels, flipped_rows)) return;
        if (PAIRS_IN_BLOCKS && rows)
            store_phase_weights(reinterpret_cast<Placed*>(phase_weights), phase_taps, filter,
                                channel, rows, flipped_rows);
        else
            store_phase_weights(phase_weights, phase_taps, filter, channel, rows, flipped_rows);
    }

    template <class Element>
    __device__ __forceinline__ void
    store_phase_weights(Element* at, const Packed (&phase_taps)[16][side][side], int filter,
                        int channel, int rows, int flipped_rows) const {
        at += rows ? place_in_channel_blocks(16 * flipped_rows, channel, filter)
                   : channel * 16 * whole(filters) + filter;
        // Rows are whole eights, so that chunks stay where they are.
        int apart = rows ? flipped_rows * BLOCK_PLACES : whole(filters);
#pragma unroll
        for (int tap = 0; tap < 16; tap++)
            store_number(phase_taps[tap][fast()][slow()], at + tap * apart,
                         to_low(channel, filter));
    }

    // Phase weight (t, s): the sum of its 3x3 taps, the first column first.
    static __device__ __forceinline__ float sum_of(const float (&taps)[TAPS_3X3], int t, int s) {
        auto column = [&](int l) {
            int k = t == 0 ? 2 : t == 1 ? 1 : 0;
            return t == 1 || t == 2 ? taps[k * 3 + l] + taps[(k + 1) * 3 + l] : taps[k * 3 + l];
        };
        int l = s == 0 ? 2 : s == 1 ? 1 : 0;
        return s == 1 || s == 2 ? column(l) + column(l + 1) : column(l);
    }

    // Stores the phases of this thread's filter and channel. Apart they are (4 phases, filters, 2,
    // 2, channels), in channel blocks (blocks, 2, 2, 4 phases, rows, 64). In columns they are (4
    // phases, filters, 3, 3, channels), with zeros where a phase has no tap of the window around
    // pixel (r, c).
    template <class Element>
    __device__ __forceinline__ void
    store_phases(Element* phases, const Packed (&phase_taps)[16][side][side], PhaseForm form,
                 int filter, int channel, int rows) const {
        int width = form == PHASES_APART ? 2 : 3, of_filter = width * width * whole(channels);
        int phases_apart = rows ? rows * BLOCK_PLACES : filters * of_filter,
            apart = rows ? 4 * phases_apart : whole(channels);
        phases += rows ? place_in_channel_blocks(16 * rows, filter, channel)
                       : filter * of_filter + channel;
#pragma unroll
        for (int phase = 0; phase < 4; phase++) {
            Element* to = phases + phase * phases_apart;
            int p = phase / 2, q = phase % 2;
            if (form == PHASES_IN_COLUMNS)
                for (int tap = 0; tap < 9; tap++) to[tap * apart] = 0;
#pragma unroll
            for (int tap = 0; tap < 4; tap++) {
                int a = tap / 2, b = tap % 2, t = 3 - p - 2 * a, s = 3 - q - 2 * b;
                int row = form == PHASES_APART ? a : p + a,
                    column = form == PHASES_APART ? b : q + b;
                store_number(phase_taps[t * 4 + s][slow()][fast()],
                             to + (row * width + column) * apart, to_low(filter, channel));
            }
        }
    }
};

template <class NewValue>
__device__ __forceinline__ void copy_phases(const long long* row, NewValue new_value) {
    PhaseBlock<SIDE>(row).copy(reinterpret_cast<Packed*>(address(row[COPY])),
                               reinterpret_cast<Packed*>(address(row[FLIPPED])),
                               static_cast<PhaseForm>(row[FORM]), new_value);
}

// ---- updates

template <Rule rule>
__device__ __forceinline__ void update_phases(const long long* row, const float* gradient,
                                              const Settings& settings) {
    using Block = PhaseBlock<SIDE>;
    __shared__ Block::Gradients gradients;
    int parts = row[PARTS], channels = row[CHANNELS];
    if (parts) Block(row).add_gradients(gradients, gradient, parts, row[APART]);
    copy_phases(row, [=](float (&taps)[Block::TAPS_3X3], int first) {
#pragma unroll
        for (int of_row = 0; of_row < Block::TAPS_3X3; of_row += 3) {
            State state[3];
#pragma unroll
            for (int j = 0; j < 3; j++) {
                state[j] = load_state<rule>(row, first + (of_row + j) * channels);
                taps[of_row + j] = parts ? gradients[of_row + j][Block::slow()][Block::fast()]
                                         : gradient[first + (of_row + j) * channels];
            }
#pragma unroll
            for (int j = 0; j < 3; j++)
                taps[of_row + j] = update<rule>(row, first + (of_row + j) * channels, state[j],
                                                taps[of_row + j], settings);
        }
    });
}

template <Rule rule>
__device__ __forceinline__ void update_all(const long long* table, const Settings& settings) {
    const long long* row = row_of(table);
    const float* gradient = address(row[GRADIENT]);
    int parts = row[PARTS], count = row[COUNT];
    if (row[FORM] != NO_PHASES) {
        update_phases<rule>(row, gradient, settings);
    } else if (row[COPY] != 0) {
        copy_block(row, [=](int i, int in_copy) {
            State state = load_state<rule>(row, i);
            float whole = parts ? sum_of_parts(gradient + in_copy, parts, row[APART]) : gradient[i];
            return update<rule>(row, i, state, whole, settings);
        });
    } else if (parts != 0) {
        int first = (blockIdx.x - static_cast<int>(row[FIRST_BLOCK])) * SIDE,
            i = first + threadIdx.x;
        float sum = sum_of_rows<SIDE>(gradient, first, count, parts);
        if (threadIdx.x < SIDE && i < count)
            update<rule>(row, i, load_state<rule>(row, i), sum, settings);
    } else if (int i = element_of(row); i < count) {
        update<rule>(row, i, load_state<rule>(row, i), gradient[i], settings);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    copy_weights(const long long* __restrict__ table) {
    const long long* row = row_of(table);
    const float* values = address(row[VALUES]);
    int channels = row[CHANNELS];
    if (row[FORM] == NO_PHASES)
        copy_block(row, [=](int i, int) { return values[i]; });
    else
        copy_phases(row, [=](float (&taps)[PhaseBlock<SIDE>::TAPS_3X3], int first) {
#pragma unroll
            for (int tap = 0; tap < PhaseBlock<SIDE>::TAPS_3X3; tap++)
                taps[tap] = values[first + tap * channels];
        });
}
