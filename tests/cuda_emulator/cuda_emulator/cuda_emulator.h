// Included before a CUDA C++ file that g++ compiles in place of NVRTC or nvcc: declares the part of
// the language that the emulator has; ptx.h has the instructions that the language lacks.
// runtime.cpp runs the threads, tensor_cores.cpp and hopper.cpp their matrix operations and copies,
// checks.cpp watches their memory accesses, counts.cpp counts them.
#pragma once
#define CUDA_EMULATOR 1

#include "ptx.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Thread-local, and nothing else is: so the symbol table tells which arrays are shared, those in
// templates included.
#define __shared__ static thread_local

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
#define EMULATOR_VECTOR(type, name)                                         \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                \
    struct alignas(4 * sizeof(type)) name##4 { type x, y, z, w; };          \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(unsigned, uint)
EMULATOR_VECTOR(unsigned char, uchar)
#undef EMULATOR_VECTOR

namespace emulator {

// Coordinates of the running thread: 0..2 threadIdx, 3..5 blockIdx, 6..8 blockDim, 9..11 gridDim.
// They do not change while a thread runs, so the call may be hoisted ("const").
unsigned coordinate(int which) __attribute__((const));
#define EMULATOR_COORDINATES(first)                                      \
    (uint3{emulator::coordinate(first), emulator::coordinate(first + 1), \
           emulator::coordinate(first + 2)})

void syncthreads(Site);
void syncwarp(Site, unsigned mask = 0xffffffffu);
unsigned ballot(Site, unsigned mask, bool predicate);
unsigned lane();
// `bits` of the lane `source` of this warp; all ones where that lane takes no part.
uint64_t shuffle(Site, unsigned mask, uint64_t bits, unsigned source);
unsigned shared_address(const void* shared);

template <class T>
T shuffle_value(Site site, unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = shuffle(site, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The four ways in which a lane names its source; outside its group of `width` lanes it gets its
// own value.
inline unsigned from_lane(int source, int width = 32) {
    return (lane() & ~(width - 1)) + (source & (width - 1));
}
inline unsigned from_up(unsigned delta, int width = 32) {
    return (lane() & (width - 1)) < delta ? lane() : lane() - delta;
}
inline unsigned from_down(unsigned delta, int width = 32) {
    return (lane() & (width - 1)) + delta >= unsigned(width) ? lane() : lane() + delta;
}
inline unsigned from_xor(int mask, int width = 32) {
    unsigned source = lane() ^ mask;
    return source >= (lane() & ~(width - 1)) + width ? lane() : source;
}

// ---- how a kernel is launched (Python fills these; __init__.py mirrors them)

// One array argument; granule: resolution of race checks, in bytes.
struct Buffer {
    unsigned char* begin;
    uint64_t bytes;
    uint32_t granule, argument;
};

// One __shared__ array; offset: from emulator_shared_anchor.
struct SharedArray {
    int64_t offset;
    uint64_t bytes;
    char name[64];
};

struct Fault {
    char kind[40], message[400], file[300];
    int32_t line;
    // of code, from where the library was loaded; 0: see file and line
    uint64_t address, other_address;
};

// What the warps of some blocks ask of the memories (counts.cpp). Loads and stores of global
// memory: requests of a warp, sectors of 32 bytes and lines of 128 that these touch, different
// bytes that they ask for; of shared memory: requests, wavefronts, and those that no bank conflict
// caused. missed: sectors of loads that level 1 does not hold.
struct Traffic {
    uint64_t requests, sectors, lines, bytes;
};
struct SharedTraffic {
    uint64_t requests, wavefronts, least;
};
// Bulk copies; what a warpgroup's products read of shared memory, once for its four warps: how
// many, bytes.
struct BulkTraffic {
    uint64_t requests, bytes;
};
struct Counts {
    // Given: whether only to find loops; the lines of level 1 that a block has; the number of
    // accesses that is enough.
    uint64_t learns, cache_lines, enough;
    uint64_t warps, accesses, barriers, missed;
    Traffic loads, stores;
    SharedTraffic shared_loads, shared_stores;
    BulkTraffic bulk_copies, operands;
    // The loads from global memory of each thread unlike the others: for every place in the code
    // and run of the innermost loop around it the place, its loads, the loop's iterations, and how
    // often; behind each thread four zeros.
    const uint64_t* runs;
    uint64_t run_words;
};

struct Launch {
    uint32_t grid[3], block[3];
    uint64_t shared_bytes;
    void** arguments;
    uint32_t order;         // 0 forward, 1 reverse, otherwise the seed of a random order
    uint32_t buffer_count;  // 0: run without watching memory
    uint32_t truncates;     // how tensor cores add, see tensor_cores.cpp
    uint64_t first_block;   // along x; the earlier ones do not run
    const Buffer* buffers;
    uint64_t shared_array_count;
    const SharedArray* shared_arrays;
    Fault* fault;
    uint64_t sample_count;   // 0: all blocks run
    const uint32_t* sample;  // numbers of the blocks that run, in this order
    Counts* counts;          // where to count, or null
    // of the threads of a block, for all libraries, one after the other; the first launch makes
    // them
    char** stacks;
};
int launch(const Launch&, void (*thread)(void**));  // 0, or 1 with *fault filled

// NumPy's name of an argument's type, with '*' after it for a pointer.
template <class T>
struct Name;
template <class T>
struct Name<const T> : Name<T> {};
#define EMULATOR_NAME(type, name)                  \
    template <>                                    \
    struct Name<type> {                            \
        static constexpr const char* value = name; \
    };
EMULATOR_NAME(bool, "bool")
EMULATOR_NAME(signed char, "int8")
EMULATOR_NAME(unsigned char, "uint8")
EMULATOR_NAME(uchar4, "uint8")
EMULATOR_NAME(short, "int16")
EMULATOR_NAME(unsigned short, "uint16")
EMULATOR_NAME(int, "int32")
EMULATOR_NAME(int4, "int32")
EMULATOR_NAME(unsigned, "uint32")
EMULATOR_NAME(uint4, "uint32")
EMULATOR_NAME(long long, "int64")
EMULATOR_NAME(unsigned long long, "uint64")
EMULATOR_NAME(float, "float32")
EMULATOR_NAME(float2, "float32")
EMULATOR_NAME(float4, "float32")
EMULATOR_NAME(double, "float64")
#undef EMULATOR_NAME

// Arguments as "int32" (a number), "float32*" (an array) or "const-float32*" (an array that is only
// read).
template <class A>
void append_argument(char* text) {
    using Value = std::remove_pointer_t<A>;
    if (std::is_pointer_v<A> && std::is_const_v<Value>) strcat(text, "const-");
    strcat(text, Name<Value>::value);
    strcat(text, std::is_pointer_v<A> ? "* " : " ");
}
template <class... A>
void signature(void (*)(A...), char* text) {
    text[0] = 0;
    (append_argument<A>(text), ...);
}
template <auto kernel>
struct Entry;
template <class... A, void (*kernel)(A...)>
struct Entry<kernel> {
    static void run(void** arguments) { unpack(arguments, std::index_sequence_for<A...>()); }
    // Not watched: the arguments themselves are the launcher's memory. noipa: `run`, which is
    // watched, must not read them for it.
    template <size_t... I>
    __attribute__((no_sanitize("thread", "undefined"), noipa)) static void
    unpack([[maybe_unused]] void** arguments, std::index_sequence<I...>) {
        kernel(*static_cast<A*>(arguments[I])...);
    }
};

}  // namespace emulator

#define EMULATOR_EXPORT(kernel)                                                             \
    extern "C" __attribute__((visibility("default"))) int launch_##kernel(                  \
        const emulator::Launch* launch) {                                                   \
        return emulator::launch(*launch, emulator::Entry<kernel>::run);                     \
    }                                                                                       \
    extern "C" __attribute__((visibility("default"))) void signature_##kernel(char* text) { \
        emulator::signature(kernel, text);                                                  \
    }

#define threadIdx EMULATOR_COORDINATES(0)
#define blockIdx EMULATOR_COORDINATES(3)
#define blockDim EMULATOR_COORDINATES(6)
#define gridDim EMULATOR_COORDINATES(9)
static constexpr int warpSize = 32;

#define __syncthreads() emulator::syncthreads(EMULATOR_SITE)
#define __syncwarp(...) emulator::syncwarp(EMULATOR_SITE, ##__VA_ARGS__)
#define __ballot_sync(mask, predicate) emulator::ballot(EMULATOR_SITE, mask, predicate)
#define __any_sync(mask, predicate) (emulator::ballot(EMULATOR_SITE, mask, predicate) != 0)
#define __all_sync(mask, predicate) (emulator::ballot(EMULATOR_SITE, mask, !(predicate)) == 0)
#define __shfl_sync(mask, value, ...) \
    emulator::shuffle_value(EMULATOR_SITE, mask, value, emulator::from_lane(__VA_ARGS__))
#define __shfl_up_sync(mask, value, ...) \
    emulator::shuffle_value(EMULATOR_SITE, mask, value, emulator::from_up(__VA_ARGS__))
#define __shfl_down_sync(mask, value, ...) \
    emulator::shuffle_value(EMULATOR_SITE, mask, value, emulator::from_down(__VA_ARGS__))
#define __shfl_xor_sync(mask, value, ...) \
    emulator::shuffle_value(EMULATOR_SITE, mask, value, emulator::from_xor(__VA_ARGS__))

template <class T>
static inline T __ldg(const T* address) {
    return *address;
}
static inline size_t __cvta_generic_to_shared(const void* address) {
    return emulator::shared_address(address);
}
