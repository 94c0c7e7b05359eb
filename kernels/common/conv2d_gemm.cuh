// Convolution (cross-correlation) and its gradients as implicit GEMM: matrix products whose factors
// are never stored; when a tile is loaded, each element is read from its source tensor.
//
//   direction          C(m, n)                     k                          A(m, k)
//                      B(n, k)
//   forward            y: pixel of y, filter       tap i, j and channel       x under the tap
//                      weight
//   input gradient     dx: pixel of dx, channel    tap i, j and filter        dy that saw x through
//                      it  weight
//   weight gradient    dweight: filter, (i, j, c)  pixel of y, a range of it  dy
//                      x under the tap
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, out_height, out_width,
// filters); weight, dweight (filters, kernel, kernel, channels); bias, dbias (filters). Every array
// has fewer than 2^31 elements. Stride, padding and kernel are the same both ways.
//
// An operand is `wide` if it is read 16 bytes at a time, for which the innermost size of its tensor
// must be a multiple of 4 (channels of x, filters of dy, channels of weight); otherwise 4 bytes at
// a time. The results are the same.
//
// Macros, with which Python chooses the tile:
//   TILE_M, TILE_N       elements of C that a block computes
//   THREAD_M, THREAD_N   those of a thread, which multiplies them itself (gemm_tile.cuh); or
//   WARP_M, WARP_N       those of a warp, by tensor cores
//   MULTIPLIER           the products (multiplier.cuh); on tensor cores exact, the default, tf32,
//                        bfloat16 or float16
#pragma once
#include "common/gemm_tile.cuh"
#ifndef WARP_M
using Tile = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N>;
#else
#include "common/tensor_cores.cuh"

// ---- tiles on tensor cores: TF32, mma.m16n8k8
//
//   tf32    one product of the operands, rounded to TF32
//   exact   three, of their big and small parts (tensor_cores.cuh)
//
// The operands lie in shared memory in float32, as they were copied, in the order in which they are
// read: the values of k of a line side by side, where ldmatrix reads four 8 x 4 matrices at a time
// and a pitch of 4 modulo 16 words puts the eight rows of a matrix into different banks; or the
// lines of a k, where 8 modulo 32 words do so with the 4 x 8 elements that a warp reads for a
// fragment. A step is several products long: more of a line of memory at once, and few addresses
// for each.

// One step of an operand in shared memory.
template <int k, int lines, bool along_k>
struct Tf32Step {
    static constexpr int ROWS = along_k ? lines : k, PITCH = along_k ? k + 4 : lines + 8;
    __align__(16) float at[ROWS][PITCH];

    __device__ __forceinline__ float* place(int line, int k_of) {
        return along_k ? &at[line][k_of] : &at[k_of][line];
    }
    __device__ __forceinline__ const float* place(int line, int k_of) const {
        return along_k ? &at[line][k_of] : &at[k_of][line];
    }
    // Of 16 lines and 8 values of k from these on, this lane's element of four 8 x 4 matrices: the
    // first lines and the last of the first values of k, then those of the last.
    __device__ __forceinline__ void load(float (&words)[4], int line, int first_k) const {
        if constexpr (along_k) {
            unsigned loaded[4];
            ldmatrix(loaded, &at[line + threadIdx.x % 16][first_k + threadIdx.x % 32 / 16 * 4]);
#pragma unroll
            for (int word = 0; word < 4; word++) words[word] = __uint_as_float(loaded[word]);
        } else {
#pragma unroll
            for (int word = 0; word < 4; word++)
                words[word] = at[first_k + threadIdx.x % 4 + word / 2 * 4]
                                [line + threadIdx.x % 32 / 4 + word % 2 * 8];
        }
    }
};

template <int m, int n, int m_warp, int n_warp>
struct Tf32Tile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    static constexpr bool SPLIT = FORMAT == Format::exact, ROUNDS = !SPLIT;
    // the small parts leave no registers for a longer step's addresses
    static constexpr int K = SPLIT ? 16 : 32, STAGES = 2;
    template <int lines, bool along_k>
    using Step = Tf32Step<K, lines, along_k>;

    // A fragment in registers: big[...] as mma takes it and, where a product is split, small[...].
    template <int words>
    struct Fragment {
        unsigned big[words], small[words];
        __device__ __forceinline__ void set(int word, float value) {
            if constexpr (SPLIT)
                big[word] = big_part(__float_as_uint(value)),
                small[word] = small_part(__float_as_uint(value));
            else
                big[word] = tf32(value);
        }
    };

    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a_step, const B& b_step,
                                                    float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
#pragma unroll
        for (int k = 0; k < K; k += 8) {
            Fragment<4> a[Warp::M_FRAGMENTS];
#pragma unroll
            for (int i = 0; i < Warp::M_FRAGMENTS; i++) {
                float words[4];
                a_step.load(words, Warp::first_row() + 16 * i, k);
#pragma unroll
                for (int word = 0; word < 4; word++) a[i].set(word, words[word]);
            }
#pragma unroll
            // two fragments of B at a time: all would not fit the registers
            for (int j = 0; j < Warp::N_FRAGMENTS; j += 2) {
                float words[4];
                b_step.load(words, Warp::first_column() + 8 * j, k);
                Fragment<2> b[2];
#pragma unroll
                for (int word = 0; word < 4; word++) b[word % 2].set(word / 2, words[word]);
#pragma unroll
                for (int i = 0; i < 2 * Warp::M_FRAGMENTS; i++)
                    Warp::update(sum, i / 2, j + i % 2, [&](float (&c)[4]) {
                        if constexpr (SPLIT) {
                            mma_tf32(c, a[i / 2].small, b[i % 2].big);
                            mma_tf32(c, a[i / 2].big, b[i % 2].small);
                        }
                        mma_tf32(c, a[i / 2].big, b[i % 2].big);
                    });
            }
        }
    }
};

template <class A, class B>
struct Stage {
    A a;
    B b;
};

// sum += the first Tile::K * steps products of a and b, whose elements go from global to shared
// memory without passing registers (cp.async). STAGES steps of Tile::K are in dynamic shared
// memory, which the launch gives the block: while the warps multiply one, the copies of the next
// are under way. One barrier a step is enough: what a step's copies overwrite was multiplied before
// the barrier. The operands have
//     next(fetch), copy(step, ...)   start this thread's copies of the next step
//     arrived(step)                  called when those of a step are in shared memory, before it is
//                                    multiplied
template <class Tile, class A, class B>
__device__ __forceinline__ void multiply_copied(A& a, B& b, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using Both = Stage<typename Tile::template Step<Tile::M, A::Share::ALONG_K>,
                       typename Tile::template Step<Tile::N, B::Share::ALONG_K>>;
    DYNAMIC_SHARED(Both, stages);
    auto copy = [&](int step) {
        if (step < steps) {
            Both& to = stages[step % Tile::STAGES];
            a.next([&](int pass, int e, int at, bool there) { a.copy(to.a, pass, e, at, there); });
            b.next([&](int pass, int e, int at, bool there) { b.copy(to.b, pass, e, at, there); });
        }
        cp_async_commit();
    };
#pragma unroll
    for (int step = 0; step < Tile::STAGES - 1; step++) copy(step);
    for (int step = 0; step < steps; step++) {
        cp_async_wait<Tile::STAGES - 2>();
        __syncthreads();
        copy(step + Tile::STAGES - 1);
        const Both& now = stages[step % Tile::STAGES];
        a.arrived(now.a);
        Tile::add_step(now.a, now.b, sum);
    }
}

// ---- tiles on tensor cores: bfloat16 or float16, mma.m16n8k16
//
// The operands are rounded to 16 bits, half of float32's bytes, when they are written to shared
// memory. They keep the order in which they were read: a row has the values of k of a line
// (along_k), or the lines of a k. ldmatrix reads the fragments, and transposes those of the second
// kind. A row is 16 bytes longer than its numbers, so that the eight rows of a matrix are in
// different banks.

// One step of an operand in shared memory.
template <int k, int lines, bool along_k>
struct PackedStep {
    static constexpr int ROWS = along_k ? lines : k, PITCH = (along_k ? k : lines) + 8;
    unsigned short at[ROWS][PITCH];

    static __device__ __forceinline__ int row(int line, int k_of) { return along_k ? line : k_of; }
    static __device__ __forceinline__ int column(int line, int k_of) {
        return along_k ? k_of : line;
    }
    __device__ __forceinline__ void store(int line, int first_k, const float (&quad)[4]) {
        *reinterpret_cast<uint2*>(&at[row(line, first_k)][column(line, first_k)]) =
            make_uint2(packed_pair(quad[0], quad[1]), packed_pair(quad[2], quad[3]));
    }
    // Loads a fragment, four 8 x 8 matrices. ldmatrix takes the address of one row of one of them
    // from each lane: line and first_k are where that matrix begins.
    __device__ __forceinline__ void load(unsigned (&to)[4], int line, int first_k) const {
        const unsigned short* from =
            &at[row(line, first_k) + threadIdx.x % 8][column(line, first_k)];
        if constexpr (along_k)
            ldmatrix(to, from);
        else
            ldmatrix_trans(to, from);
    }
};

template <int m, int n, int m_warp, int n_warp>
struct PackedTile : WarpTile<m, n, m_warp, n_warp> {
    using Warp = WarpTile<m, n, m_warp, n_warp>;
    static constexpr bool ROUNDS = true;
    static constexpr int K = 16;
    template <int lines, bool along_k>
    using Step = PackedStep<K, lines, along_k>;

    template <class A, class B>
    static __device__ __forceinline__ void add_step(const A& a_step, const B& b_step,
                                                    float (&sum)[Warp::M_THREAD][Warp::N_THREAD]) {
        // 0 or 8, by the lane's matrix
        int low = threadIdx.x % 16 / 8 * 8, high = threadIdx.x % 32 / 16 * 8;
        unsigned a[Warp::M_FRAGMENTS][4];
#pragma unroll
        for (int i = 0; i < Warp::M_FRAGMENTS; i++)
            a_step.load(a[i], Warp::first_row() + 16 * i + low, high);
#pragma unroll
        for (int j = 0; j < Warp::N_FRAGMENTS; j += 2) {
            unsigned both[4];  // fragments j and j + 1
            b_step.load(both, Warp::first_column() + 8 * j + high, low);
            unsigned b[2][2] = {
                {both[0], both[1]},
                {both[2], both[3]}
            };
#pragma unroll
            for (int i = 0; i < 2 * Warp::M_FRAGMENTS; i++)
                Warp::update(sum, i / 2, j + i % 2,
                             [&](float (&c)[4]) { mma_packed(c, a[i / 2], b[i % 2]); });
        }
    }
};

template <Format, int... sizes>
struct TensorTile : Tf32Tile<sizes...> {};
template <int... sizes>
struct TensorTile<Format::bfloat16, sizes...> : PackedTile<sizes...> {};
template <int... sizes>
struct TensorTile<Format::float16, sizes...> : PackedTile<sizes...> {};
using Tile = TensorTile<FORMAT, TILE_M, TILE_N, WARP_M, WARP_N>;
#endif

// sum += the first Tile::K * steps products of a and b.
template <class Tile, class A, class B>
__device__ __forceinline__ void add_products_of(A& a, B& b, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
#ifdef WARP_M
    if constexpr (FORMAT != Format::bfloat16 && !FLOAT16)
        multiply_copied<Tile>(a, b, steps, sum);
    else
#endif
        multiply<Tile>(a, b, steps, sum);
}

// Addresses of single elements need more registers than 8 x 8 sums a thread leave: such a tile
// would spill.
template <class Tile, bool wide>
constexpr bool FITS_REGISTERS = wide || Tile::M_THREAD * Tile::N_THREAD < 64;

// ---- convolutions

struct Convolution {
    int batch, height, width, channels, filters, kernel, padding, stride;
    __device__ __forceinline__ int out_height() const {
        return (height + 2 * padding - kernel) / stride + 1;
    }
    __device__ __forceinline__ int out_width() const {
        return (width + 2 * padding - kernel) / stride + 1;
    }
    __device__ __forceinline__ int out_pixels() const { return batch * out_height() * out_width(); }
};

constexpr int NOWHERE = -(1 << 30);  // a row outside every image, for any tap

__device__ __forceinline__ bool within(int i, int size) {
    return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

// A share of an operand's steps. The operand has next(fetch), which calls fetch(pass, e, at, there)
// for each quad that this thread takes of the next step, or for each of its elements e where it is
// not wide; there: whether it is element `at` of the source and not beyond an end, where zeros are.
template <class Share, bool wide>
struct Operand {
    const float* source;
    float held[Share::PASSES][4];

    __device__ __forceinline__ explicit Operand(const float* source) : source(source) {}
    __device__ __forceinline__ void hold(int pass, int e, int at, bool there) {
        if constexpr (wide) {
#pragma unroll
            for (int i = 0; i < 4; i++) held[pass][i] = 0.0f;
            if (there) ::load(held[pass], source + at);
        } else
            held[pass][e] = there ? source[at] : 0.0f;
    }
    template <class Step>
    __device__ __forceinline__ void copy(Step& step, int pass, int e, int at, bool there) const {
        if (Share::active(pass))
            cp_async((wide ? 16 : 4), Share::place(step, pass, e), source + (there ? at : 0),
                     there);
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) const {
        Share::store(held, step);
    }
    template <class Step>
    __device__ __forceinline__ void arrived(const Step&) const {}
};

// An operand as gemm_tile.cuh takes it: the next step in registers.
template <class Source>
struct Loaded : Source {
    using Source::Source;
    __device__ __forceinline__ void load() {
        this->next([this](int pass, int e, int at, bool there) { this->hold(pass, e, at, there); });
    }
};

// A of forward, and of the input gradient (`transposed`). image: x, or dy; rows of A: pixels of y,
// or of dx. strided: whether the stride of a gradient may be another than 1.
template <class Tile, bool transposed, bool wide, bool strided>
struct Windows : Operand<AlongK<Tile, Tile::M>, wide> {
    using Share = AlongK<Tile, Tile::M>;
    int height, width, channels, kernel, stride;  // of the image
    // at tap 0; offset of their image
    int row[Share::PASSES], column[Share::PASSES], start[Share::PASSES];
    int i, j, c;  // of this thread's first k

    __device__ __forceinline__ Windows(const float* image, const Convolution& conv, int first_pixel)
        : Operand<AlongK<Tile, Tile::M>, wide>(image), kernel(conv.kernel), stride(conv.stride) {
        height = transposed ? conv.out_height() : conv.height,
        width = transposed ? conv.out_width() : conv.width;
        channels = transposed ? conv.filters : conv.channels;
        int pixel_height = transposed ? conv.height : conv.out_height();
        int pixel_width = transposed ? conv.width : conv.out_width();
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int pixel = first_pixel + Share::line(pass);
            int image_row = pixel / pixel_width, at = image_row / pixel_height;
            bool there = Share::active(pass) && at < conv.batch;
            row[pass] = there ? shifted(image_row % pixel_height, conv.padding) : NOWHERE;
            column[pass] = shifted(pixel % pixel_width, conv.padding);
            start[pass] = at * height * width * channels;
        }
        c = Share::k() % channels;
        j = Share::k() / channels % kernel, i = Share::k() / channels / kernel;
    }
    __device__ __forceinline__ int shifted(int place, int padding) const {
        return transposed ? place + padding : place * stride - padding;
    }
    // The row or column of the image at tap t, outside of it if there is none.
    __device__ __forceinline__ int under(int place, int t) const {
        if (!transposed) return place + t;
        if (!strided) return place - t;
        return (place - t) % stride == 0 ? (place - t) / stride : NOWHERE;
    }
    __device__ __forceinline__ void advance(int& i, int& j, int& c, int by) const {
        for (c += by; c >= channels; c -= channels)
            if (++j == kernel) j = 0, i++;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int tap_i = i, tap_j = j, tap_c = c;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++) {
                int at_row = under(row[pass], tap_i), at_column = under(column[pass], tap_j);
                bool there = tap_i < kernel && within(at_row, height) && within(at_column, width);
                fetch(pass, e, start[pass] + (at_row * width + at_column) * channels + tap_c,
                      there);
                if (!wide) advance(tap_i, tap_j, tap_c, 1);
            }
        }
        advance(i, j, c, Tile::K);
    }
};

// Write this thread's part of C to the row-major rows x columns matrix c.
template <class Tile>
__device__ __forceinline__ void write(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD], float* c,
                                      int rows, int columns, int first_m, int first_n) {
    bool wide = columns % Tile::NEIGHBOURS == 0;
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i++) {
        int m = first_m + Tile::m_of(i);
        if (m >= rows) continue;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += Tile::NEIGHBOURS) {
            int n = first_n + Tile::n_of(j);
            float* to = c + m * columns + n;
            float neighbours[Tile::NEIGHBOURS];
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) neighbours[e] = sum[i][j + e];
            if (wide && n < columns) store(to, neighbours);
            if (!wide)
#pragma unroll
                for (int e = 0; e < Tile::NEIGHBOURS; e++)
                    if (n + e < columns) to[e] = neighbours[e];
        }
    }
}
