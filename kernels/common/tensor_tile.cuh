// Tiles of a convolution's matrix product on tensor cores, for the macros WARP_M and WARP_N of
// conv2d_gemm.cuh.
#pragma once
#include "common/gemm_loop.cuh"
#include "common/tensor_cores.cuh"

// ---- TF32, mma.m16n8k8
//
//   tf32    one product of the operands, rounded to TF32
//   exact   three, of their big and small parts (tensor_cores.cuh)
//
// The operands lie in shared memory in float32, as they were copied. along_k: a row has the values
// of k of a line. ldmatrix reads four 8 x 4 matrices at a time, and a pitch of 4 modulo 16 words
// puts the eight rows of a matrix into different banks. Otherwise a row has the lines of a k. A
// warp reads 4 x 8 elements for a fragment, and a pitch of 8 modulo 32 words puts these into
// different banks. A step is several MMA long: more of a line of memory at once, and few addresses
// for each.

// One step of an operand in shared memory: (lines, K) or (K, lines), each row padded to PITCH.
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
    // This lane's elements of a fragment, (16 lines, 8 k), from these on. It is four 8 x 4
    // matrices: the first and the last lines of the first four k, then those of the last four.
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
    // The small parts leave no registers for the addresses of a longer step.
    static constexpr int K = SPLIT ? 16 : 32, STAGES = 2;
    template <int lines, bool along_k>
    using Step = Tf32Step<K, lines, along_k>;

    // A fragment in registers: `big` as mma takes it and, where a product is split, `small`.
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
            Fragment<4> a[Warp::M_FRAGMENTS];  // (M_FRAGMENTS, registers)
#pragma unroll
            for (int i = 0; i < Warp::M_FRAGMENTS; i++) {
                float words[4];
                a_step.load(words, Warp::first_row() + 16 * i, k);
#pragma unroll
                for (int word = 0; word < 4; word++) a[i].set(word, words[word]);
            }
            // Two fragments of B at a time: all would not fit the registers.
#pragma unroll
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

// Start the copy of a quad, or of its element e, from place `at` of an operand's source to a step
// in shared memory; zeros where !valid.
template <class Source, class Step>
__device__ __forceinline__ void copy_async(const Source& operand, Step& step, int pass, int e,
                                           int at, bool valid) {
    using ThreadMap = typename Source::ThreadMap;
    if (ThreadMap::active(pass))
        cp_async((Source::IN_QUADS ? 16 : 4), ThreadMap::place(step, pass, e),
                 operand.source + (valid ? at : 0), valid);
}

template <class A, class B>
struct Stage {
    A a;
    B b;
};

// sum += the first Tile::K * steps products of a and b, whose elements go from global to shared
// memory without passing registers (cp.async). STAGES steps of Tile::K are in dynamic shared
// memory, which the launch gives the block. While the warps multiply one, the copies of the next
// are under way. One barrier a step is enough, because what a step's copies overwrite was
// multiplied before the barrier. The operands have
//     next(fetch)     calls fetch for each copy of the next step that this thread starts
//     arrived(step)   is called when a step is in shared memory, before it is multiplied
template <class Tile, class A, class B>
__device__ __forceinline__ void multiply_copied(A& a, B& b, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using Both = Stage<typename Tile::template Step<Tile::M, A::ThreadMap::ALONG_K>,
                       typename Tile::template Step<Tile::N, B::ThreadMap::ALONG_K>>;
    DYNAMIC_SHARED(Both, stages);
    auto copy = [&](int step) {
        if (step < steps) {
            Both& to = stages[step % Tile::STAGES];
            a.next([&](int pass, int e, int at, bool valid) {
                copy_async(a, to.a, pass, e, at, valid);
            });
            b.next([&](int pass, int e, int at, bool valid) {
                copy_async(b, to.b, pass, e, at, valid);
            });
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

// ---- bfloat16 or float16, mma.m16n8k16
//
// The operands are rounded to 16 bits, half of float32's bytes, when they are stored to shared
// memory. They keep their order. along_k: a row has the values of k of a line. Otherwise it has the
// lines of a k, and ldmatrix transposes the fragments. A row is 16 bytes longer than its numbers,
// so that the eight rows of a matrix are in different banks.

// One step of an operand in shared memory: (lines, K) or (K, lines), each row padded to PITCH.
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
    // Loads four 8 x 8 matrices. ldmatrix takes the address of one row of one of them from each
    // lane; line, first_k: where the matrix of this lane's row begins.
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
        // 0 or 8: where the matrix of this lane's address begins in a fragment
        int low = threadIdx.x % 16 / 8 * 8, high = threadIdx.x % 32 / 16 * 8;
        unsigned a[Warp::M_FRAGMENTS][4];  // (M_FRAGMENTS, registers)
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

// sum += the first Tile::K * steps products of a and b.
template <class Tile, class A, class B>
__device__ __forceinline__ void add_products_of(A& a, B& b, int steps,
                                                float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    if constexpr (FORMAT != Format::bfloat16 && !FLOAT16)
        multiply_copied<Tile>(a, b, steps, sum);
    else
        multiply<Tile>(a, b, steps, sum);
}
