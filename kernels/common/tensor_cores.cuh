// What feeds tensor cores and what they compute, from sm_80 on, in float16 from sm_75 on:
// asynchronous copies to shared memory, rows of 16-bit numbers, a warp's products of small
// matrices, and which elements of a tile each thread keeps of their sums.
//
//   DYNAMIC_SHARED(float, tile)   declares `tile`, a pointer to the launch's dynamic shared memory,
//                                 aligned to 16 bytes
//   cp_async(16, shared, global, valid)   copy 4 or 16 bytes (cp.async), both ends aligned to that;
//                                         zeros where !valid, and then
//                            `global` is not read, but must not be a wild pointer either
//   cp_async_commit()        close the group of the copies issued since the last commit
//   cp_async_wait<n>()       wait until at most n of this thread's groups are in flight; the other
//                            threads see the data after the next __syncthreads
//   ldmatrix(to, row)        to[i], i < 4: this lane's two neighbours of the i-th 8x8 matrix of
//                            16-bit numbers, at row lane / 4, columns 2 (lane % 4) and the next;
//                            `row`: where in shared memory the 16 bytes of row lane % 8 of matrix
//                            lane / 8 begin
//   ldmatrix_trans(to, row)  the same of the transposed matrices: rows 2 (lane % 4) and the next,
//                            column lane / 4
//   mma_bf16(c, a, b)        c (16x8, float32) += a (16x16, bfloat16) b (16x8, bfloat16); mma_f16:
//                            the same in float16
//   mma_tf32(c, a, b)        c (16x8, float32) += a (16x8, TF32) b (8x8, TF32)
//   bf16x2(low, high)        two float32, rounded to nearest even, as two bfloat16 in one register;
//                            f16x2: as two float16
//   tf32(x)                  float32 rounded to TF32's 10 bits of mantissa; the 13 bits below are
//                            undefined
//
// With g = lane / 4 and q = lane % 4 a lane holds (PTX ISA, "Matrix Fragments for mma.m16n8k16" and
// "... mma.m16n8k8"):
//   c[0], c[1]   row g, columns 2q and 2q + 1; c[2], c[3]: row g + 8
//   16 bits:  a[0] row g, columns 2q, 2q + 1; a[1] row g + 8; a[2], a[3]: columns 8 further. b[0]
//             rows 2q, 2q + 1 of column g; b[1]: rows 8 further
//   TF32:     a[0] row g, column q; a[1] row g + 8; a[2], a[3]: column q + 4. b[0] row q of column
//             g; b[1]: row q + 4
// Turing (sm_75) has no cp.async, multiplies 16x8 by 8x8 numbers at once, and rounds one number at
// a time.
//
// The only file with these instructions; the test emulator supplies its own bodies.
//
// Macro MULTIPLIER: what tensor cores multiply (conv2d_gemm.cuh); packed operands are in bfloat16
// unless it is float16, tf32 or float32, which is not rounded, and whose products are made of three
// of TF32
#pragma once

#ifndef MULTIPLIER
#define MULTIPLIER exact
#endif
enum class Format { exact, tf32, bfloat16, float16, float32 };
constexpr Format FORMAT = Format::MULTIPLIER;
constexpr bool FLOAT16 = FORMAT == Format::float16, TF32 = FORMAT == Format::tf32,
               FLOAT32 = FORMAT == Format::float32;
constexpr bool IN_WORDS = TF32 || FLOAT32;  // packed numbers have 32 bits
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TURING
static_assert(FLOAT16, "tensor cores multiply TF32 and bfloat16 from sm_80 on");
#endif

#ifndef CUDA_EMULATOR

#define DYNAMIC_SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(dynamic_shared)

#ifndef TURING
template <int bytes>
__device__ __forceinline__ void cp_async_bytes(void* shared, const void* global, bool valid) {
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    int from_global = valid ? bytes : 0;
    if constexpr (bytes == 16)  // .cg: past the L1, which has no second reader for it
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                     "r"(from_global)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(global),
                     "r"(from_global), "n"(bytes)
                     : "memory");
}
#define cp_async(bytes, shared, global, valid) cp_async_bytes<bytes>(shared, global, valid)

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}
#endif

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

__device__ __forceinline__ void mma_bf16(float (&c)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#ifdef TURING
__device__ __forceinline__ void mma_f16_k8(float (&c)[4], const unsigned (&a)[2], unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
#else
__device__ __forceinline__ void mma_f16(float (&c)[4], const unsigned (&a)[4],
                                        const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ __forceinline__ void mma_tf32(float (&c)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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

#ifdef TURING
// Copied when it returns, so that nothing is left to wait for.
__device__ __forceinline__ void cp_async(int, void* shared, const void* global, bool valid) {
    *static_cast<uint4*>(shared) =
        valid ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void cp_async_commit() {}
template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {}

__device__ __forceinline__ void mma_f16(float (&c)[4], const unsigned (&a)[4],
                                        const unsigned (&b)[2]) {
    unsigned first[2] = {a[0], a[1]}, second[2] = {a[2], a[3]};
    mma_f16_k8(c, first, b[0]);
    mma_f16_k8(c, second, b[1]);
}
#endif

#define packed_pair(low, high) (FLOAT16 ? f16x2(low, high) : bf16x2(low, high))

__device__ __forceinline__ void mma_packed(float (&c)[4], const unsigned (&a)[4],
                                           const unsigned (&b)[2]) {
    IN_WORDS ? mma_tf32(c, a, b) : FLOAT16 ? mma_f16(c, a, b) : mma_bf16(c, a, b);
}

// A float32 as the sum of two TF32: x = big + small, big the nearest to x and small the rest. x y
// is small big + big small + big big but for at most 2^-21 of it, added in this order (H. Ootomo
// and R. Yokota, "Recovering single precision accuracy from Tensor Cores", IJHPCA 36, 2022); an
// infinite x or y gives a NaN.
// as tf32() for finite values, in a third of its instructions
__device__ __forceinline__ unsigned big_part(unsigned x) {
    constexpr unsigned HALF = 1u << 12;  // of the last bit that tensor cores read of a float32
    return (x + HALF) & ~(2 * HALF - 1);
}
// Its low 13 bits stay, and PTX leaves open what mma makes of them: the product is as exact as said
// above if they are ignored, as by GPUs so far, and no less so if they are read. It keeps a NaN.
__device__ __forceinline__ unsigned small_part(unsigned x) {
    return __float_as_uint(__fadd_rn(__uint_as_float(x), -__uint_as_float(big_part(x))));
}

// A fragment of packed numbers as mma takes it: all of them, or the parts of float32.
template <int words>
struct PackedFragment {
    unsigned big[words], small[words];

    template <class... Numbers>
    __device__ __forceinline__ explicit PackedFragment(Numbers... numbers)
        : big{(FLOAT32 ? big_part(numbers) : numbers)...},
          small{(FLOAT32 ? small_part(numbers) : 0)...} {}
};

__device__ __forceinline__ void mma_packed(float (&c)[4], const PackedFragment<4>& a,
                                           const PackedFragment<2>& b) {
    if constexpr (FLOAT32) {
        mma_packed(c, a.small, b.big);
        mma_packed(c, a.big, b.small);
    }
    mma_packed(c, a.big, b.big);
}

// Keep an address in a register: the compiler would compute many again in every step.
__device__ __forceinline__ void keep(int& address) { asm volatile("" : "+r"(address)); }

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

// ---- rows of packed numbers as global and shared memory hold them: 128 bytes, 64 numbers of 16
// bits or 32 of 32, in eight chunks of 16 bytes. Chunk i of a row is at i ^ row % 8 (a swizzle), so
// that reading the same chunk of eight neighbouring rows touches all banks once.

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
constexpr int DEPTH = 2 * CHUNK;  // products of an mma to each sum, two chunks of a row
constexpr int PACKED_BYTES = sizeof(Packed);

// Byte of a chunk.
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * ROW + 16 * (chunk ^ row % CHUNKS);
}

// The place of a pixel's channel in channel blocks, as NCHWc has them: blocks of 64 channels, each
// with a row for every pixel of all images. rows: of a channel block.
__device__ __forceinline__ int place_in_channel_blocks(int rows, int row, int channel) {
    return (channel / CHANNEL_BLOCK * rows + row) * CHANNEL_BLOCK +
           (channel / CHUNK ^ row) % CHUNKS * CHUNK + channel % CHUNK;
}

__device__ __forceinline__ Packed rounded(float x) {
    if constexpr (FLOAT32)
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

__device__ __forceinline__ void load_chunk(float (&to)[CHUNK], const float* from) {
#pragma unroll
    for (int first = 0; first < CHUNK; first += 4) {
        float four[4];
        load(four, from + first);
#pragma unroll
        for (int e = 0; e < 4; e++) to[first + e] = four[e];
    }
}

// The chunk at `from`, which is channel `channel` of a pixel that has `channels` of them; zeros
// behind the last one.
__device__ __forceinline__ void load_chunk(float (&to)[CHUNK], const float* from, int channel,
                                           int channels) {
    if (channels % CHUNK == 0 && channel < channels) {
        load_chunk(to, from);
    } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e++) to[e] = channel + e < channels ? from[e] : 0.0f;
    }
}

// ---- chunks of the gradient behind a 2 x 2 max-pool, as those of the pixels before it

// Where in its window each of a chunk's numbers was, a byte each.
struct Places {
    unsigned fours[2];
    __device__ __forceinline__ int of(int e) const { return fours[e / 4] >> e % 4 * 8 & 0xff; }
};

__device__ __forceinline__ Places load_places(const unsigned char* from) {
    Places places;
    if constexpr (CHUNK == 8) {
        uint2 both = *reinterpret_cast<const uint2*>(from);
        places.fours[0] = both.x, places.fours[1] = both.y;
    } else {
        places.fours[0] = *reinterpret_cast<const unsigned*>(from);
    }
    return places;
}

// The words of the values whose place is `here`, zeros for the others.
__device__ __forceinline__ uint4 only(const uint4& words, const Places& places, int here) {
    auto kept = [&](int word) {
        int low = word * CHUNK / 4, high = low + CHUNK / 8;  // its one number, or two
        return (places.of(low) == here ? 0x0000ffffu : 0u) |
               (places.of(high) == here ? 0xffff0000u : 0u);
    };
    return make_uint4(words.x & kept(0), words.y & kept(1), words.z & kept(2), words.w & kept(3));
}

// ---- tiles

// For every step, call copy(stage), which starts this thread's copies to a stage of shared memory,
// and multiply(stage) once the copies of all threads have arrived. The launch gives the block
// STAGES * BYTES bytes of dynamic shared memory.
template <int STAGES, int BYTES, class Copy, class Multiply>
__device__ __forceinline__ void in_stages(int steps, Copy copy, Multiply multiply) {
    DYNAMIC_SHARED(unsigned char, shared);
    auto start = [&](int step, int stage) {
        if (step < steps) copy(shared + stage * BYTES);
        cp_async_commit();
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) start(stage, stage);
    for (int first = 0; first < steps; first += STAGES) {
#pragma unroll
        // unrolled, so that a stage's addresses are constants
        for (int stage = 0; stage < STAGES; stage++) {
            if (first + stage >= steps) break;
            // no room to copy while others are multiplied
            if (STAGES == 1) __syncthreads(), start(first, 0);
            cp_async_wait<STAGES == 1 ? 0 : STAGES - 2>();
            __syncthreads();
            if (STAGES > 1) start(first + stage + STAGES - 1, (stage + STAGES - 1) % STAGES);
            multiply(shared + stage * BYTES);
        }
    }
}

// Which elements of a block's M x N part of C a thread keeps where tensor cores multiply: each warp
// computes M_WARP x N_WARP of them in fragments of 16 x 8, of which a lane has two neighbours in
// each half.
template <int m, int n, int m_warp, int n_warp>
struct WarpTile {
    static constexpr int M = m, N = n, WARPS_ACROSS = N / n_warp,
                         THREADS = M / m_warp * WARPS_ACROSS * 32;
    static constexpr int M_FRAGMENTS = m_warp / 16, N_FRAGMENTS = n_warp / 8;
    static constexpr int M_THREAD = 2 * M_FRAGMENTS, N_THREAD = 2 * N_FRAGMENTS, NEIGHBOURS = 2;
    // Per multiprocessor, for __launch_bounds__: at most 128 registers, 168 from 64 sums on, or 255
    // for more.
    static constexpr int SUMS = M_THREAD * N_THREAD, BLOCKS = (SUMS > 64    ? 256
                                                               : SUMS == 64 ? 384
                                                                            : 512) /
                                                              THREADS;
    static_assert(M % m_warp == 0 && N % n_warp == 0 && m_warp % 16 == 0 && n_warp % 16 == 0,
                  "fragments must cover the tile");

    // the threads that keep elements
    static __device__ __forceinline__ void sync() { __syncthreads(); }
    static __device__ __forceinline__ int first_row() {
        return threadIdx.x / 32 / WARPS_ACROSS * m_warp;
    }
    static __device__ __forceinline__ int first_column() {
        return threadIdx.x / 32 % WARPS_ACROSS * n_warp;
    }
    static __device__ __forceinline__ int m_of(int i) {
        return first_row() + threadIdx.x % 32 / 4 + 8 * i;
    }
    static __device__ __forceinline__ int n_of(int j) {
        return first_column() + j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
    }

    // Call add(c), which adds to a fragment's four elements of this lane, for fragment i, j of the
    // sums.
    template <class Add>
    static __device__ __forceinline__ void update(float (&sum)[M_THREAD][N_THREAD], int i, int j,
                                                  Add add) {
        float c[4] = {sum[2 * i][2 * j], sum[2 * i][2 * j + 1], sum[2 * i + 1][2 * j],
                      sum[2 * i + 1][2 * j + 1]};
        add(c);
        sum[2 * i][2 * j] = c[0], sum[2 * i][2 * j + 1] = c[1], sum[2 * i + 1][2 * j] = c[2],
                       sum[2 * i + 1][2 * j + 1] = c[3];
    }
};
