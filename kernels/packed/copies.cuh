// Epilogues of a convolution that store packed copies, for the next convolution or, of a gradient,
// for the one before.
//
// The accumulators go to shared memory, in place of the loop's stages. Each thread then takes eight
// neighbouring filters of a pixel and stores 16 bytes at once.
//
// An epilogue is an object with
//     finish(sum, tile, filters, first_filter)   sum: this thread's accumulators, (M_THREAD,
//                                                N_THREAD); tile: a PixelTile, which has
//         output(number)        an OutputPixel of the tile: a pixel of y or, with WINDOWS=1, of y
//                               pooled
//         line(output, place)   the line of the tile, numbered as by Tile::m_of, of an output
//                               pixel; place: 0 to 3 in its window
//         first_partial()       the row of bias_partials for the first 64 lines; 0 for the first
//                               tile alone
// A loop is included before this header. It defines Tile, a WarpTile, and PixelTile.
//
// Macros:
//   IN_CHANNEL_BLOCKS   the layout of a copy, as the kernel that reads it wants it. 0, the default:
//                       ChannelsLast; 1: InChannelBlocks
//   STEPS_BY_PHASE      1: a weight gradient behind an upsampling reads the gradient in channel
//                       blocks, and wants the four phases one after the other
//                       (gpu_bf16_sm90/weight_grad.cu); 0, the default: not so
#pragma once
#include "common/pool_indices.cuh"

#ifndef STEPS_BY_PHASE
#define STEPS_BY_PHASE 0
#endif

#ifndef IN_CHANNEL_BLOCKS
#define IN_CHANNEL_BLOCKS 0
#endif

// How a copy lies in memory. place(pixel, channel): where a channel of a pixel is; the others of
// its chunk follow. to_low(pixel, channel): from there to the low half of a pair.
// words<exponent>(numbers): of a chunk; exponent: of halves. ChannelsLast, (pixels, channels), is
// the layout of arrays.
struct ChannelsLast {
    using Element = Packed;
    static constexpr bool PAIRS = false;
    int channels;

    __device__ __forceinline__ ChannelsLast(int, int channels) : channels(channels) {}
    __device__ __forceinline__ int place(int pixel, int channel) const {
        return pixel * channels + channel;
    }
    __device__ __forceinline__ int to_low(int, int) const { return 0; }
    template <int exponent>
    static __device__ __forceinline__ uint4 words(const float (&numbers)[CHUNK]) {
        return rounded_chunk(numbers);
    }
    // Channels that are stored, zeros included.
    __device__ __forceinline__ int stored() const { return channels; }
};

// (channels / 64, rows, 64), as NCHWc has blocks c of channels; the last block is filled with
// zeros. pairs_of_steps: as `steps` has pairs.
template <bool pairs_of_steps>
struct ChannelBlocks {
    using Element = Placed;
    static constexpr bool PAIRS = PAIRS_IN_BLOCKS;
    int rows, channels;  // rows: of a channel block

    __device__ __forceinline__ ChannelBlocks(int rows, int channels)
        : rows(rows), channels(channels) {}
    __device__ __forceinline__ int place(int row, int channel) const {
        return pairs_of_steps ? place_in_steps(rows, row, channel)
                              : place_in_channel_blocks(rows, row, channel);
    }
    __device__ __forceinline__ int to_low(int row, int channel) const {
        return !PAIRS ? 0 : pairs_of_steps ? rows * BLOCK_PLACES : ::to_low(place(row, channel));
    }
    template <int exponent>
    static __device__ __forceinline__ uint4 words(const float (&numbers)[CHUNK]) {
        return chunk_of_channel_blocks<exponent>(numbers);
    }
    __device__ __forceinline__ int stored() const {
        return (channels + STORED_CHANNELS - 1) / STORED_CHANNELS * STORED_CHANNELS;
    }
};

using InChannelBlocks = ChannelBlocks<false>;
#if IN_CHANNEL_BLOCKS
using CopyLayout = InChannelBlocks;
using StepsLayout = ChannelBlocks<PAIRS_IN_BLOCKS>;
#else
using CopyLayout = ChannelsLast;
using StepsLayout = ChannelsLast;
#endif
using Copied = CopyLayout::Element;

// Store a chunk of words; to_low: from there to the low halves of pairs.
template <bool pairs, class Element>
__device__ __forceinline__ void store_chunk_in_copy(uint4 words, Element* to, int to_low) {
    if constexpr (pairs)
        store_chunk_in_channel_blocks(to, to_low, words);
    else
        *reinterpret_cast<uint4*>(to) = words;
}

// What has the signs of a chunk: its words, of pairs the high halves.
template <bool pairs>
struct SignsOf {
    using Words = uint4;
};
template <>
struct SignsOf<true> {
    using Words = uint2;
};

// Store as many numbers below 256 as a chunk has, as bytes.
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

// sum = the accumulators and the bias, then ReLU if `relu`.
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

// The tile's accumulators in shared memory: (TILE_M, PITCH). Rows are 8 banks apart, for stores of
// fragments. In every second 32 columns neighbouring fours change places, for loads of eight
// neighbours by each thread.
struct SharedSums {
    // OUTPUTS: pixels that the epilogue stores; ACROSS: chunks of a line
    static constexpr int PITCH = Tile::N + 8, OUTPUTS = Tile::M / POOL_SIZE,
                         ACROSS = Tile::N / CHUNK;
    static_assert(Tile::N % 64 == 0, "eight threads read a line");
    float* at;

    static __device__ __forceinline__ int place(int line, int column) {
        return line * PITCH + (column ^ column / 32 % 2 * 4);
    }

    __device__
        __forceinline__ explicit SharedSums(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
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
    // Call use(output, i, column) for every chunk of columns of every output pixel, number i of the
    // tile; each thread makes some of the calls. Columns of `copy` beyond the last filter get
    // zeros.
    template <class Copy, class Use>
    static __device__ __forceinline__ void each(const PixelTile& tile, const Copy& copy,
                                                int filters, int first_filter, Use use) {
        for (int number = threadIdx.x; number < OUTPUTS * ACROSS; number += Tile::THREADS) {
            int column = number % ACROSS * CHUNK, filter = first_filter + column;
            OutputPixel output = tile.output(number / ACROSS);
            if (output.inside && filter < filters)
                use(output, number / ACROSS, column);
            else if (output.inside && filter < copy.stored())
                copy.put(output, filter, [](int, int) { return make_uint4(0, 0, 0, 0); });
        }
    }
};

// Packed images with borders of zeros. An output pixel becomes side x side pixels of them; an image
// has down x across output pixels.
template <class Layout = CopyLayout>
struct PaddedCopy {
    Copied* at;
    int down, across, side, padding;
    Layout layout;

    // pixels: of y
    __device__ __forceinline__ PaddedCopy(Copied* at, const PixelTile& tile, int pixels, int side,
                                          int padding, int channels)
        : at(at), down(tile.height / POOL_SIDE), across(tile.width / POOL_SIDE), side(side),
          padding(padding), layout(pixels / (tile.height * tile.width) *
                                       (side * down + 2 * padding) * (side * across + 2 * padding),
                                   channels) {}
    __device__ __forceinline__ int stored() const { return layout.stored(); }

    // Store an output pixel; words(i, j): 16 bytes for its pixel (i, j). At an edge of the image
    // also the zeros beside it.
    template <class Words>
    __device__ __forceinline__ void put(const OutputPixel& output, int channel, Words words) const {
        int height = side * down + 2 * padding, width = side * across + 2 * padding;
        int below = side + (output.row == down - 1 ? padding : 0),
            right = side + (output.column == across - 1 ? padding : 0);
        for (int i = output.row == 0 ? -padding : 0; i < below; i++)
            for (int j = output.column == 0 ? -padding : 0; j < right; j++) {
                int row = output.image * height + side * output.row + padding + i,
                    column = side * output.column + padding + j;
                bool within = i >= 0 && i < side && j >= 0 && j < side;
                store_chunk_in_copy<Layout::PAIRS>(within ? words(i, j) : make_uint4(0, 0, 0, 0),
                                                   at + layout.place(row * width + column, channel),
                                                   layout.to_low(row * width + column, channel));
            }
    }
};

// Stores y, with bias and ReLU, as the copy that the next convolution reads.
struct CopyEpilogue {
    const float* bias;
    Copied* copy;
    int pixels, relu, padding;  // pixels: of y

    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const PixelTile& tile, int filters,
                                           int first_filter) const {
        add_bias(sum, bias, filters, first_filter, relu);
        SharedSums sums(sum);
        PaddedCopy<> to(copy, tile, pixels, 1, padding, filters);
        sums.each(tile, to, filters, first_filter,
                  [&](const OutputPixel& output, int i, int column) {
                      float values[CHUNK];
                      sums.get(values, tile.line(i, 0), column);
                      uint4 words = CopyLayout::words<ACTIVATION_EXPONENT>(values);
                      to.put(output, first_filter + column, [&](int, int) { return words; });
                  });
    }
};

// Stores the largest value of each window of y; index: its place in the window.
struct PooledCopyEpilogue {
    const float* bias;
    Copied* copy;
    unsigned char* index;
    int pixels, relu, padding;

    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const PixelTile& tile, int filters,
                                           int first_filter) const {
        add_bias(sum, bias, filters, first_filter, relu);
        SharedSums sums(sum);
        PaddedCopy<> to(copy, tile, pixels, 1, padding, filters);
        sums.each(tile, to, filters, first_filter,
                  [&](const OutputPixel& output, int i, int column) {
                      float largest[CHUNK];
                      int chosen[CHUNK] = {};
                      sums.get(largest, tile.line(i, 0), column);
#pragma unroll
                      for (int place = 1; place < 4; place++) {
                          float values[CHUNK];
                          sums.get(values, tile.line(i, place), column);
#pragma unroll
                          for (int e = 0; e < CHUNK; e++)
                              // NaN wins, so that it is not lost
                              if (values[e] > largest[e] || values[e] != values[e])
                                  largest[e] = values[e], chosen[e] = place;
                      }
                      uint4 words = CopyLayout::words<ACTIVATION_EXPONENT>(largest);
                      to.put(output, first_filter + column, [&](int, int) { return words; });
                      int pixel = (output.image * to.down + output.row) * to.across + output.column;
                      store_chunk(index + pixel * filters + first_filter + column, chosen);
                  });
    }
};

// The copies of a gradient. In channel blocks there are two: `steps`, without a border, and
// `padded`, unless its border is empty and it has no pairs.
struct GradientCopies {
    static constexpr int PHASES_APART = STEPS_BY_PHASE ? 4 : 1;  // number of images in `steps`
    PaddedCopy<> padded;
    PaddedCopy<StepsLayout> steps;
    int step_rows;

    // step_rows: of a channel block in `steps`, or of a phase there, with the zeros behind the last
    // image.
    __device__ __forceinline__ GradientCopies(Copied* padded, Copied* steps, const PixelTile& tile,
                                              int pixels, int side, int padding, int step_rows,
                                              int channels)
        : padded(padded, tile, pixels, side, padding, channels),
          steps(steps, tile, pixels, side, 0, channels), step_rows(step_rows) {
        if (IN_CHANNEL_BLOCKS) this->steps.layout = StepsLayout(step_rows * PHASES_APART, channels);
    }
    __device__ __forceinline__ int stored() const { return padded.stored(); }

    template <class Words>
    __device__ __forceinline__ void put(const OutputPixel& output, int channel, Words words) const {
        if (!IN_CHANNEL_BLOCKS || padded.padding || PAIRS_IN_BLOCKS)
            padded.put(output, channel, words);
        if (IN_CHANNEL_BLOCKS && !STEPS_BY_PHASE) steps.put(output, channel, words);
        if (STEPS_BY_PHASE) {  // no pooling is behind an upsampling
            int phase = output.row % 2 * 2 + output.column % 2,
                row = output.image * (steps.down / 2) + output.row / 2;
            store_step(phase * step_rows + row * (steps.across / 2) + output.column / 2, channel,
                       words(0, 0));
        }
    }
    __device__ __forceinline__ void store_step(int row, int channel, const uint4& words) const {
        store_chunk_in_copy<StepsLayout::PAIRS>(words, steps.at + steps.layout.place(row, channel),
                                                steps.layout.to_low(row, channel));
    }
    // Zeros behind the last image. The block with the first pixels of y stores them, in its
    // columns.
    __device__ __forceinline__ void put_zeros_behind(int pixels, int first_filter) const {
        int image_rows = pixels / PHASES_APART, rows_behind = step_rows - image_rows;
        for (int number = threadIdx.x; number < rows_behind * PHASES_APART * SharedSums::ACROSS;
             number += Tile::THREADS) {
            int channel = first_filter + number % SharedSums::ACROSS * CHUNK,
                row = number / SharedSums::ACROSS;
            if (channel < stored())
                store_step(row / rows_behind * step_rows + image_rows + row % rows_behind, channel,
                           make_uint4(0, 0, 0, 0));
        }
    }
};

// Stores the gradient of the layer that made the convolution's input: one packed copy or two, and
// bias_partials, its sums over pixels. kept: the copy of that input, laid out as KeptLayout.
template <class KeptLayout>
struct GradientEpilogue {
    using Signs = typename SignsOf<KeptLayout::PAIRS>::Words;
    const typename KeptLayout::Element* kept;
    Copied *rounded, *steps;
    float* bias_partials;
    const unsigned char* index;  // nullptr: not pooled
    int pixels, step_rows, relu, kept_padding, padding;

    __device__ __forceinline__ void finish(float (&sum)[Tile::M_THREAD][Tile::N_THREAD],
                                           const PixelTile& tile, int filters,
                                           int first_filter) const {
        SharedSums sums(sum);
        int side = index ? 2 : 1, kept_height = tile.height + 2 * kept_padding,
            kept_width = tile.width + 2 * kept_padding;
        KeptLayout layout(pixels / (tile.height * tile.width) * kept_height * kept_width, filters);
        GradientCopies to(rounded, steps, tile, pixels, side, padding, step_rows, filters);
        if (IN_CHANNEL_BLOCKS && tile.first_partial() == 0)
            to.put_zeros_behind(pixels * side * side, first_filter);
        sums.each(
            tile, to, filters, first_filter, [&](const OutputPixel& output, int i, int column) {
                float values[CHUNK];
                int channel = first_filter + column;
                sums.get(values, tile.line(i, 0), column);
                if (relu) {
                    int pixel =
                        (output.image * kept_height + output.row + kept_padding) * kept_width +
                        output.column + kept_padding;
                    mask(values,
                         *reinterpret_cast<const Signs*>(kept + layout.place(pixel, channel)));
                }
                sums.put(values, tile.line(i, 0), column);
                uint4 words = CopyLayout::words<GRADIENT_EXPONENT>(values);
                WindowIndices indices = {};
                if (index)
                    indices = load_indices(
                        index +
                        ((output.image * tile.height + output.row) * tile.width + output.column) *
                            filters +
                        channel);
                to.put(output, channel, [&](int down, int across) {
                    return index ? select(words, indices, 2 * down + across) : words;
                });
            });
        Tile::sync();
        store_bias_partials(sums, tile, filters, first_filter);
    }

    // The gradient of the ReLU: zeros where the convolution's input was not above zero.
    static __device__ __forceinline__ void mask(float (&values)[CHUNK], const uint4& words) {
        unsigned of_four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
            unsigned pair = of_four[e * PACKED_BYTES / 4];
            float was = __uint_as_float(IN_WORDS ? pair : e % 2 ? pair & 0xffff0000u : pair << 16);
            values[e] = was > 0.0f ? values[e] : 0.0f;
        }
    }
    static __device__ __forceinline__ void mask(float (&values)[CHUNK], const uint2& high) {
        mask(values,
             make_uint4(high.x << 16, high.x & 0xffff0000u, high.y << 16, high.y & 0xffff0000u));
    }
    // The sums of 64 lines each.
    __device__ __forceinline__ void store_bias_partials(const SharedSums& sums,
                                                        const PixelTile& tile, int filters,
                                                        int first_filter) const {
        for (int number = threadIdx.x; number < Tile::M / 64 * Tile::N; number += Tile::THREADS) {
            int group = number / Tile::N, column = number % Tile::N, first = group * 64;
            if (first_filter + column >= filters) continue;
            float total = 0.0f;
            for (int output = first; output < first + 64; output++)
                if (tile.output(output).inside)
                    total += sums.at[SharedSums::place(tile.line(output, 0), column)];
            bias_partials[(tile.first_partial() + group) * filters + first_filter + column] = total;
        }
    }
};
