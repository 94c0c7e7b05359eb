// Packed results of a convolution, as the next convolution, or the one before it, reads them.
//
// The sums go to shared memory, where the steps of the loop were, as lines of filters side by side.
// Threads then take cells of eight filters each, and write 16 bytes at once.
//
// A result is an object with
//     finish(sum, pixels, filters, first_filter)   sum: this thread's; pixels: of the tile's lines,
//                                                  an object with
//         cell(number)        a Cell of the tile: a pixel, or with WINDOWS=1 a window of 2 x 2
//                             pixels
//         line(cell, place)   the line of the tile, numbered as by Tile::m_of, that has place 0 to
//                             3 of a cell
//         first_partial()     the row of bias_partials for the first 64 of the lines; 0 for the
//                             first tile alone
// A loop is included before this header: it defines Tile, a WarpTile, which says what a thread
// keeps of a block's sums.
//
// Macros: IN_CHANNEL_BLOCKS: the layout that the kernel which reads a result wants: 0, the default:
// InOrder, 1: InChannelBlocks
//         STEPS_BY_PHASE     1: the weight gradient that reads a gradient in channel blocks is
//                            behind an upsampling, and wants the four phases one after the other
//                            (gpu_bf16_sm90/weight_grad.cu); 0, the default: it is not
#pragma once
#include "common/pool_places.cuh"

#ifndef STEPS_BY_PHASE
#define STEPS_BY_PHASE 0
#endif

#ifndef IN_CHANNEL_BLOCKS
#define IN_CHANNEL_BLOCKS 0
#endif

// How a copy lies in memory: place(pixel, channel) is where a channel of a pixel is; eight channels
// from a multiple of 8 on are side by side. InOrder is as arrays are: all channels of a pixel side
// by side.
struct InOrder {
    int channels;

    __device__ __forceinline__ InOrder(int, int channels) : channels(channels) {}
    __device__ __forceinline__ int place(int pixel, int channel) const {
        return pixel * channels + channel;
    }
    // channels, with those that are zero
    __device__ __forceinline__ int stored() const { return channels; }
};

// Blocks of 64 channels of all pixels, as c is one in the layout NCHWc; the last one is filled with
// zeros.
struct InChannelBlocks {
    int rows, channels;  // rows: of a channel block

    __device__ __forceinline__ InChannelBlocks(int rows, int channels)
        : rows(rows), channels(channels) {}
    __device__ __forceinline__ int place(int row, int channel) const {
        return place_in_channel_blocks(rows, row, channel);
    }
    __device__ __forceinline__ int stored() const {
        return (channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK * CHANNEL_BLOCK;
    }
};

#if IN_CHANNEL_BLOCKS
using Written = InChannelBlocks;
#else
using Written = InOrder;
#endif

// A chunk's count of numbers below 256, as bytes.
__device__ __forceinline__ void store_chunk(unsigned char* to, const int (&from)[CHUNK]) {
    auto four = [&](int first) {
        return static_cast<unsigned>(from[first] | from[first + 1] << 8 | from[first + 2] << 16 |
                                     from[first + 3] << 24);
    };
    if constexpr (CHUNK == 8)
        *reinterpret_cast<uint2*>(to) = make_uint2(four(0), four(4));
    else
        *reinterpret_cast<unsigned*>(to) = four(0);
}

// Bias, then ReLU if `relu`.
__device__ __forceinline__ void add_bias(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                         const float* bias, int filters, int first_filter,
                                         int relu) {
#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int filter = first_filter + Tile::n_of(j);
        float shift = filter < filters ? bias[filter] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            float value = sum[i][j] + shift;
            sum[i][j] = relu && value < 0.0f ? 0.0f : value;  // not fmaxf, which would hide a NaN
        }
    }
}

// The tile's sums in shared memory. Rows are 8 banks apart, for stores of fragments; in every
// second 32 numbers neighbouring fours change places, for loads of eight neighbours by each thread.
struct Held {
    // ACROSS: chunks
    static constexpr int PITCH = Tile::N + 8, CELLS = Tile::M / CELL_LINES,
                         ACROSS = Tile::N / CHUNK;
    static_assert(Tile::N % 64 == 0, "eight threads read a line");
    float* at;

    static __device__ __forceinline__ int place(int line, int column) {
        return line * PITCH + (column ^ column / 32 % 2 * 4);
    }

    __device__ __forceinline__ explicit Held(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
        DYNAMIC_SHARED(float, shared);
        at = shared;
        Tile::sync();  // all warps have multiplied
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += 2)
#pragma unroll
            for (int i = 0; i < Tile::M_THREAD; i++) {
                float neighbours[2] = {sum[i][j], sum[i][j + 1]};
                store(at + place(Tile::m_of(i), Tile::n_of(j)), neighbours);
            }
        Tile::sync();
    }
    __device__ __forceinline__ void get(float (&to)[CHUNK], int line, int column) const {
#pragma unroll
        for (int first = 0; first < CHUNK; first += 4) {
            float four[4];
            load(four, at + place(line, column + first));
#pragma unroll
            for (int e = 0; e < 4; e++) to[first + e] = four[e];
        }
    }
    __device__ __forceinline__ void put(const float (&from)[CHUNK], int line, int column) {
#pragma unroll
        for (int first = 0; first < CHUNK; first += 4) {
            float four[4] = {from[first], from[first + 1], from[first + 2], from[first + 3]};
            store(at + place(line, column + first), four);
        }
    }
    // Call use(cell, its number in the tile, column) for a chunk of columns of every cell, the
    // calls shared among the threads. What `to` has of columns beyond the last filter becomes zero.
    template <class Pixels, class To, class Use>
    static __device__ __forceinline__ void each(const Pixels& tile, const To& to, int filters,
                                                int first_filter, Use use) {
        for (int number = threadIdx.x; number < CELLS * ACROSS; number += Tile::THREADS) {
            int column = number % ACROSS * CHUNK, filter = first_filter + column;
            Cell cell = tile.cell(number / ACROSS);
            if (cell.there && filter < filters)
                use(cell, number / ACROSS, column);
            else if (cell.there && filter < to.stored())
                to.put(cell, filter, [](int, int) { return make_uint4(0, 0, 0, 0); });
        }
    }
};

// Packed images with borders of zeros, made of cells of `side` x `side` pixels, `down` x `across`
// of them.
struct Padded {
    Packed* at;
    int down, across, side, padding;
    Written layout;

    // Of the cells of y, which has `pixels` pixels.
    template <class Pixels>
    __device__ __forceinline__ Padded(Packed* at, const Pixels& tile, int pixels, int side,
                                      int padding, int channels)
        : at(at), down(tile.height / CELL_SIDE), across(tile.width / CELL_SIDE), side(side),
          padding(padding), layout(pixels / (tile.height * tile.width) *
                                       (side * down + 2 * padding) * (side * across + 2 * padding),
                                   channels) {}
    __device__ __forceinline__ int stored() const { return layout.stored(); }

    // words(i, j): 16 bytes for place i, j of a cell, which has zeros beside it where it lies on an
    // edge.
    template <class Words>
    __device__ __forceinline__ void put(const Cell& cell, int channel, Words words) const {
        int height = side * down + 2 * padding, width = side * across + 2 * padding;
        int below = side + (cell.row == down - 1 ? padding : 0),
            right = side + (cell.column == across - 1 ? padding : 0);
        for (int i = cell.row == 0 ? -padding : 0; i < below; i++)
            for (int j = cell.column == 0 ? -padding : 0; j < right; j++) {
                int row = cell.image * height + side * cell.row + padding + i,
                    column = side * cell.column + padding + j;
                bool within = i >= 0 && i < side && j >= 0 && j < side;
                *reinterpret_cast<uint4*>(at + layout.place(row * width + column, channel)) =
                    within ? words(i, j) : make_uint4(0, 0, 0, 0);
            }
    }
};

// The next convolution's copy of the sums with their bias, behind a ReLU if `relu`.
struct ToCopy {
    const float* bias;
    Packed* copy;
    int pixels, relu, padding;  // pixels: of y

    template <class Pixels>
    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const Pixels& tile, int filters,
                                           int first_filter) const {
        add_bias(sum, bias, filters, first_filter, relu);
        Held held(sum);
        Padded to(copy, tile, pixels, 1, padding, filters);
        Held::each(tile, to, filters, first_filter, [&](const Cell& cell, int number, int column) {
            float values[CHUNK];
            held.get(values, tile.line(number, 0), column);
            uint4 words = rounded_chunk(values);
            to.put(cell, first_filter + column, [&](int, int) { return words; });
        });
    }
};

// The same of the largest value of each window; index: its place there.
struct ToPooledCopy {
    const float* bias;
    Packed* copy;
    unsigned char* index;
    int pixels, relu, padding;

    template <class Pixels>
    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const Pixels& tile, int filters,
                                           int first_filter) const {
        add_bias(sum, bias, filters, first_filter, relu);
        Held held(sum);
        Padded to(copy, tile, pixels, 1, padding, filters);
        Held::each(tile, to, filters, first_filter, [&](const Cell& cell, int number, int column) {
            float largest[CHUNK];
            int place[CHUNK] = {};
            held.get(largest, tile.line(number, 0), column);
#pragma unroll
            for (int i = 1; i < 4; i++) {
                float values[CHUNK];
                held.get(values, tile.line(number, i), column);
#pragma unroll
                for (int e = 0; e < CHUNK; e++)
                    // NaN wins, so that it is not lost
                    if (values[e] > largest[e] || values[e] != values[e])
                        largest[e] = values[e], place[e] = i;
            }
            uint4 words = rounded_chunk(largest);
            to.put(cell, first_filter + column, [&](int, int) { return words; });
            int pixel = (cell.image * to.down + cell.row) * to.across + cell.column;
            store_chunk(index + pixel * filters + first_filter + column, place);
        });
    }
};

// The copies of a gradient. In channel blocks there are two, one with a border, unless that is
// empty, and one without.
struct CopiesOfGradient {
    static constexpr int PHASES_APART = STEPS_BY_PHASE ? 4 : 1;  // number of images in `steps`
    Padded padded, steps;
    int step_rows;

    // step_rows: of a channel block in `steps`, or of a phase there, which has zeros behind the
    // last image.
    template <class Pixels>
    __device__ __forceinline__ CopiesOfGradient(Packed* padded, Packed* steps, const Pixels& tile,
                                                int pixels, int side, int padding, int step_rows,
                                                int channels)
        : padded(padded, tile, pixels, side, padding, channels),
          steps(steps, tile, pixels, side, 0, channels), step_rows(step_rows) {
        if (IN_CHANNEL_BLOCKS) this->steps.layout = Written(step_rows * PHASES_APART, channels);
    }
    __device__ __forceinline__ int stored() const { return padded.stored(); }

    template <class Words>
    __device__ __forceinline__ void put(const Cell& cell, int channel, Words words) const {
        if (!IN_CHANNEL_BLOCKS || padded.padding) padded.put(cell, channel, words);
        if (IN_CHANNEL_BLOCKS && !STEPS_BY_PHASE) steps.put(cell, channel, words);
        if (STEPS_BY_PHASE) {  // cells are pixels: no pooling is behind an upsampling
            int phase = cell.row % 2 * 2 + cell.column % 2,
                row = cell.image * (steps.down / 2) + cell.row / 2;
            store_step(phase * step_rows + row * (steps.across / 2) + cell.column / 2, channel,
                       words(0, 0));
        }
    }
    __device__ __forceinline__ void store_step(int row, int channel, const uint4& words) const {
        *reinterpret_cast<uint4*>(steps.at + steps.layout.place(row, channel)) = words;
    }
    // The block that has the first pixels of y does so, in its columns.
    __device__ __forceinline__ void put_zeros_behind(int pixels, int first_filter) const {
        int there = pixels / PHASES_APART, behind = step_rows - there;
        for (int number = threadIdx.x; number < behind * PHASES_APART * Held::ACROSS;
             number += Tile::THREADS) {
            int channel = first_filter + number % Held::ACROSS * CHUNK, row = number / Held::ACROSS;
            if (channel < stored())
                store_step(row / behind * step_rows + there + row % behind, channel,
                           make_uint4(0, 0, 0, 0));
        }
    }
};

// The gradient of what made the convolution's input: a packed copy, or two, and bias_partials, its
// sums over pixels. kept: the copy of that input, which has the layout Kept.
template <class Kept>
struct ToGradient {
    const Packed* kept;
    Packed *rounded, *steps;
    float* bias_partials;
    const unsigned char* index;  // nullptr: not pooled
    int pixels, step_rows, relu, kept_padding, padding;

    template <class Pixels>
    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const Pixels& tile, int filters,
                                           int first_filter) const {
        Held held(sum);
        int side = index ? 2 : 1, kept_height = tile.height + 2 * kept_padding,
            kept_width = tile.width + 2 * kept_padding;
        Kept layout(pixels / (tile.height * tile.width) * kept_height * kept_width, filters);
        CopiesOfGradient to(rounded, steps, tile, pixels, side, padding, step_rows, filters);
        if (IN_CHANNEL_BLOCKS && tile.first_partial() == 0)
            to.put_zeros_behind(pixels * side * side, first_filter);
        Held::each(tile, to, filters, first_filter, [&](const Cell& cell, int number, int column) {
            float values[CHUNK];
            int channel = first_filter + column;
            held.get(values, tile.line(number, 0), column);
            if (relu) {
                int pixel = (cell.image * kept_height + cell.row + kept_padding) * kept_width +
                            cell.column + kept_padding;
                mask(values, *reinterpret_cast<const uint4*>(kept + layout.place(pixel, channel)));
            }
            held.put(values, tile.line(number, 0), column);
            uint4 words = rounded_chunk(values);
            Places places = {};
            if (index)
                places = load_places(
                    index +
                    ((cell.image * tile.height + cell.row) * tile.width + cell.column) * filters +
                    channel);
            to.put(cell, channel,
                   [&](int i, int j) { return index ? only(words, places, 2 * i + j) : words; });
        });
        Tile::sync();
        add(held, tile, filters, first_filter);
    }

    // Zeros where the convolution's input was not above zero.
    static __device__ __forceinline__ void mask(float (&values)[CHUNK], const uint4& words) {
        unsigned of_four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
            unsigned pair = of_four[e * PACKED_BYTES / 4];
            float was = __uint_as_float(IN_WORDS ? pair : e % 2 ? pair & 0xffff0000u : pair << 16);
            values[e] = was > 0.0f ? values[e] : 0.0f;
        }
    }
    template <class Pixels>
    __device__ __forceinline__ void add(const Held& held, const Pixels& tile, int filters,
                                        int first_filter) const {
        for (int number = threadIdx.x; number < Tile::M / 64 * Tile::N; number += Tile::THREADS) {
            int group = number / Tile::N, column = number % Tile::N, first = group * 64;
            if (first_filter + column >= filters) continue;
            float total = 0.0f;
            for (int cell = first; cell < first + 64; cell++)
                if (tile.cell(cell).there)
                    total += held.at[Held::place(tile.line(cell, 0), column)];
            bias_partials[(tile.first_partial() + group) * filters + first_filter + column] = total;
        }
    }
};
