// Packed numbers, which tensor cores multiply: their formats, their rows in global and in shared
// memory, and ldmatrix, which reads fragments from there.
//
//   DYNAMIC_SHARED(float, tile)   declares `tile`, a pointer to the launch's dynamic shared memory,
//                                 aligned to 16 bytes
//   ldmatrix(to, row)        to[i], i < 4: this lane's two neighbours of the i-th 8x8 matrix of
//                            16-bit numbers, at row lane / 4, columns 2 (lane % 4) and the next;
//                            `row`: where in shared memory the 16 bytes of row lane % 8 of matrix
//                            lane / 8 begin
//   ldmatrix_trans(to, row)  the same of the transposed matrices: rows 2 (lane % 4) and the next,
//                            column lane / 4
//   bf16x2(low, high)        two float32, rounded to nearest even, as two bfloat16 in one register;
//                            f16x2: as two float16
//   tf32(x)                  float32 rounded to TF32's 10 bits of mantissa; the 13 bits below are
//                            undefined
// The only file with these instructions; the test emulator supplies its own bodies. Turing (sm_75)
// rounds one number at a time.
//
// Macros:
//   MULTIPLIER   the format of packed numbers, bfloat16 unless it is float16, tf32, float32, which
//                is not rounded, or halves: float32 as the sum of two float16
//   ACTIVATION_EXPONENT, WEIGHT_EXPONENT, GRADIENT_EXPONENT
//                halves are of a number times 2 to this power, by the kind of tensor
#pragma once

#ifndef MULTIPLIER
#define MULTIPLIER exact
#endif
enum class Format { exact, tf32, bfloat16, float16, float32, halves };
constexpr Format FORMAT = Format::MULTIPLIER;
// FLOAT16: what tensor cores multiply.
constexpr bool HALVES = FORMAT == Format::halves, FLOAT16 = FORMAT == Format::float16 || HALVES,
               TF32 = FORMAT == Format::tf32, FLOAT32 = FORMAT == Format::float32;
constexpr bool IN_WORDS = TF32 || FLOAT32 || HALVES;  // packed numbers have 32 bits
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TURING
static_assert(FLOAT16, "tensor cores multiply TF32 and bfloat16 from sm_80 on");
#endif

#ifndef CUDA_EMULATOR

#define DYNAMIC_SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(dynamic_shared)

template <bool transposed>
__device__ __forceinline__ void ldmatrix_lanes(unsigned (&to)[4], const void* row) {
    unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
}

__device__ __forceinline__ unsigned bf16x2(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ unsigned f16x2(float low, float high) {
    unsigned both;
#ifdef TURING
    asm("{.reg .b16 low, high; cvt.rn.f16.f32 low, %1; cvt.rn.f16.f32 high, %2; mov.b32 %0, {low, high};}"
        : "=r"(both)
        : "f"(low), "f"(high));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}

__device__ __forceinline__ unsigned tf32(float x) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

#define ldmatrix(to, row) ldmatrix_lanes<false>(to, row)
#define ldmatrix_trans(to, row) ldmatrix_lanes<true>(to, row)
#endif

#define packed_pair(low, high) (FLOAT16 ? f16x2(low, high) : bf16x2(low, high))

// ---- accesses of several numbers

__device__ __forceinline__ void load(float (&to)[4], const float* from) {
    float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

template <int width>
__device__ __forceinline__ void store(float* to, const float (&from)[width]) {
    if constexpr (width == 4)
        *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
    else
        *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
}

// ---- rows of packed numbers, in global and shared memory: 128 bytes, in eight chunks of 16 bytes,
// which are 64 numbers of 16 bits or 32 of 32 bits. Chunk i of a row is at i ^ row % 8 (a swizzle),
// so that a load of the same chunk of eight neighbouring rows touches all banks once.

template <bool wide>
struct Words {
    using Word = unsigned short;
};
template <>
struct Words<true> {
    using Word = unsigned;
};
using Packed = Words<IN_WORDS>::Word;          // a number: bfloat16, or what MULTIPLIER says
constexpr int ROW = 128, CHUNKS = 8;           // bytes; chunks
constexpr int CHUNK = 16 / sizeof(Packed);     // numbers in 16 bytes, which a thread copies at once
constexpr int CHANNEL_BLOCK = CHUNKS * CHUNK;  // channels, or other numbers, in a row
constexpr int MMA_K = 2 * CHUNK;               // k of an mma: two chunks of a row
constexpr int PACKED_BYTES = sizeof(Packed);

// The byte where a chunk of a row is.
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * ROW + 16 * (chunk ^ row % CHUNKS);
}

#ifdef ACTIVATION_EXPONENT
constexpr bool SCALED = true;
#else
constexpr bool SCALED = false;
#define ACTIVATION_EXPONENT 0
#define WEIGHT_EXPONENT 0
#define GRADIENT_EXPONENT 0
#endif

// In channel blocks numbers of 32 bits are pairs of halves: the high ones of 32 channels are the
// first four chunks of a row, the low ones the others.
constexpr bool PAIRS_IN_BLOCKS = HALVES || (FLOAT32 && SCALED);
using Placed = Words<IN_WORDS && !PAIRS_IN_BLOCKS>::Word;  // an element of channel blocks
constexpr int BLOCK_PLACES = ROW / sizeof(Placed);         // of a row
// Channels up to a multiple of which channel blocks have zeros.
constexpr int STORED_CHANNELS = PAIRS_IN_BLOCKS ? 64 : CHANNEL_BLOCK;

// Where a pixel's channel is in channel blocks, (channels / 64, rows, 64), as in the layout NCHWc:
// a block has a row for every pixel of all images. rows: of a channel block. Of a pair its high
// half is there.
__device__ __forceinline__ int place_in_channel_blocks(int rows, int row, int channel) {
    constexpr int TOGETHER = PAIRS_IN_BLOCKS ? 8 : CHUNK;  // numbers of a chunk
    return (channel / CHANNEL_BLOCK * rows + row) * BLOCK_PLACES +
           ((PAIRS_IN_BLOCKS ? channel / TOGETHER % 4 : channel / TOGETHER) ^ row) % CHUNKS *
               TOGETHER +
           channel % TOGETHER;
}

// From there to the low half: four chunks, before they are swapped.
__device__ __forceinline__ int to_low(int place) { return (place ^ 32) - place; }

// As place_in_channel_blocks, for `steps` of a weight gradient, whose rows are 64 columns of an
// operand of wgmma. Of pairs the high halves of 64 channels are a block, and the low ones the next.
__device__ __forceinline__ int place_in_steps(int rows, int row, int channel) {
    return PAIRS_IN_BLOCKS ? (channel / 64 * 2 * rows + row) * BLOCK_PLACES +
                                 (channel / 8 ^ row) % CHUNKS * 8 + channel % 8
                           : place_in_channel_blocks(rows, row, channel);
}

// ---- a float32 as the sum of two float16, high + low, of x 2^exponent

__device__ constexpr float power_of_two(int exponent) {
    return exponent < 0 ? 1.0f / power_of_two(-exponent)
                        : (exponent ? 2.0f * power_of_two(exponent - 1) : 1.0f);
}

// The high half in the low bits, the low one above. high has the 11 bits that are nearest to x, so
// that low, the rest, loses at most 2^-22 of x and, where x is small, 2^-24. What exceeds a half,
// or is not finite, becomes a NaN, which no ReLU hides, as it would hide -infinity.
__device__ __forceinline__ unsigned halves(float x) {
    constexpr unsigned UNIT = 1u << 13;  // of the last bit that a half has of a float32
    float high = __uint_as_float((__float_as_uint(x) + UNIT / 2) & ~(UNIT - 1));
    float low = fabsf(x) < 65504.0f ? x - high : __uint_as_float(0x7fffffffu);
    return f16x2(high, low);
}

// Stores a number in channel blocks; to_low: from there to the low half, exponent: of halves.
template <int exponent>
__device__ __forceinline__ void store_in_channel_blocks(Placed* at, int to_low, Packed value) {
    if constexpr (PAIRS_IN_BLOCKS) {
        constexpr float SCALE = power_of_two(exponent);
        unsigned pair = halves(__uint_as_float(value) * SCALE);
        at[0] = pair, at[to_low] = pair >> 16;
    } else {
        *at = value;
    }
}

// Stores a chunk of packed numbers, or of halves().
__device__ __forceinline__ void store_chunk_in_channel_blocks(Placed* at, int to_low,
                                                              const uint4& words) {
    if constexpr (PAIRS_IN_BLOCKS) {
        auto pair = [](unsigned even, unsigned odd, int shift) {
            return (even >> shift & 0xffffu) | odd >> shift << 16;
        };
        *reinterpret_cast<uint2*>(at) =
            make_uint2(pair(words.x, words.y, 0), pair(words.z, words.w, 0));
        *reinterpret_cast<uint2*>(at + to_low) =
            make_uint2(pair(words.x, words.y, 16), pair(words.z, words.w, 16));
    } else {
        *reinterpret_cast<uint4*>(at) = words;
    }
}

__device__ __forceinline__ Packed rounded(float x) {
    if constexpr (FLOAT32 || HALVES)
        return __float_as_uint(x);
    else if constexpr (TF32)
        return tf32(x) & 0xffffe000u;  // as the numbers are compared with zero, too
    else
        return packed_pair(x, 0.0f) & 0xffff;
}

__device__ __forceinline__ uint4 rounded_chunk(const float (&x)[CHUNK]) {
    if constexpr (IN_WORDS)
        return make_uint4(rounded(x[0]), rounded(x[1]), rounded(x[2]), rounded(x[3]));
    else
        return make_uint4(packed_pair(x[0], x[1]), packed_pair(x[2], x[3]), packed_pair(x[4], x[5]),
                          packed_pair(x[6], x[7]));
}

// A chunk as channel blocks have it; exponent: of halves.
template <int exponent>
__device__ __forceinline__ uint4 chunk_of_channel_blocks(const float (&x)[CHUNK]) {
    if constexpr (PAIRS_IN_BLOCKS) {
        constexpr float SCALE = power_of_two(exponent);
        return make_uint4(halves(x[0] * SCALE), halves(x[1] * SCALE), halves(x[2] * SCALE),
                          halves(x[3] * SCALE));
    } else {
        return rounded_chunk(x);
    }
}

__device__ __forceinline__ void load_chunk(float (&to)[CHUNK], const float* from) {
#pragma unroll
    for (int first = 0; first < CHUNK; first += 4) {
        float four[4];
        load(four, from + first);
#pragma unroll
        for (int e = 0; e < 4; e++) to[first + e] = four[e];
    }
}

// The chunk at `from`, channel `channel` of a pixel with so many channels; zeros behind the last.
__device__ __forceinline__ void load_chunk(float (&to)[CHUNK], const float* from, int channel,
                                           int channels) {
    if (channels % CHUNK == 0 && channel < channels) {
        load_chunk(to, from);
    } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e++) to[e] = channel + e < channels ? from[e] : 0.0f;
    }
}
