// Included before a CUDA C++ file that g++ compiles in place of NVRTC or nvcc: declares the part of
// the language that the emulator has; ptx.h has the instructions that the language lacks.
// runtime.cpp runs the threads, tensor_cores.cpp and hopper.cpp their matrix operations and copies,
// checks.cpp watches their memory accesses, counts.cpp counts them.
#pragma once
#define CUDA_EMULATOR 1

// what kernels may take of the standard library; the rest of it is for the host
#include <array>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <type_traits>
#include <utility>

#include "atomics.h"

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __constant__
#define __managed__
#define __inline__ inline
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Thread-local, and nothing else is: so the symbol table tells which arrays are shared, those in
// templates included.
#define __shared__ static thread_local __attribute__((aligned(16)))

namespace emulator {

// Coordinates of the running thread: 0..2 threadIdx, 3..5 blockIdx, 6..8 blockDim, 9..11 gridDim.
// They do not change while a thread runs, so the call may be hoisted ("const").
unsigned coordinate(int which) __attribute__((const));
#define EMULATOR_COORDINATES(first)                                      \
    (uint3{emulator::coordinate(first), emulator::coordinate(first + 1), \
           emulator::coordinate(first + 2)})

void syncthreads(Site);
// The threads of the block for which the predicate holds.
int syncthreads_count(Site, bool predicate);
// The lanes that come here, once none of the warp's can come any more.
unsigned active_lanes(Site);
void syncwarp(Site, unsigned mask = 0xffffffffu);
unsigned ballot(Site, unsigned mask, bool predicate);
unsigned lane();
unsigned thread_number();  // in its block
[[noreturn]] void sync_grid(Site);
// Of a cluster of blocks: the number of this block and of all; its barrier; the address, or the
// number of an address (mapa), of what lies there in another block's shared memory.
unsigned cluster_rank();
unsigned cluster_blocks();
void cluster_arrive(Site);
void cluster_wait(Site);
void* in_block(const void* shared, unsigned rank);
unsigned address_in_block(unsigned shared_address, unsigned rank);
// Of a whole warp: sums[i] is element i of a b + c, whose elements a lane has in `mine`, as wmma.h
// has them. exact: numbers are added in float64, not as tensor cores add.
void multiply_warp(int rows, int columns, int depth, const double* mine, double* sums, bool exact);
// `bits` of the lane `source` of this warp; all ones where that lane takes no part.
uint64_t shuffle(Site, unsigned mask, uint64_t bits, unsigned source);
unsigned shared_address(const void* shared);

template <class T>
T shuffle_value(Site site, unsigned mask, T value, unsigned source) {
    uint64_t words[(sizeof(T) + 7) / 8] = {};
    memcpy(words, &value, sizeof value);
    for (uint64_t& word : words) word = shuffle(site, mask, word, source);
    memcpy(&value, words, sizeof value);
    return value;
}

void* generic_address(uint64_t shared);
// An operand of PTX that is an address.
template <class T>
T* pointer(T* address) {
    return address;
}
inline void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Of the values of all lanes in the mask, in their order.
template <class T, class Operator>
T reduce_lanes(Site site, unsigned mask, T value, Operator combine) {
    T result = value;
    bool first = true;
    for (unsigned l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        T other = shuffle_value(site, mask, value, l);
        result = first ? other : combine(result, other);
        first = false;
    }
    return result;
}
template <class T>
unsigned match_any(Site site, unsigned mask, T value) {
    unsigned equal = 0;
    for (unsigned l = 0; l < 32; l++)
        if (mask >> l & 1)
            equal |= unsigned(same_bits(shuffle_value(site, mask, value, l), value)) << l;
    return equal;
}
template <class T>
unsigned match_all(Site site, unsigned mask, T value, int* all) {
    *all = ballot(site, mask, match_any(site, mask, value) == mask) == mask;
    return *all ? mask : 0;
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

// What the launch before does with an array.
enum class Before : uint64_t { NOTHING, READS, WRITES };

// One array argument; granule: resolution of race checks, in bytes.
struct Buffer {
    unsigned char* begin;
    uint64_t bytes;
    uint32_t granule, argument;
    uint64_t empty;  // whether it holds nothing at first, so that a read before a write is a fault
    uint64_t constant;  // whether the kernel is to read it only
    Before before;      // of a dependent launch
};

// One __shared__ array, or without a name a guard of one; offset: from emulator_shared_anchor.
struct SharedArray {
    int64_t offset;
    uint64_t bytes;
    char name[64];
};

// message: with {element} and {array} in place of what is touched, which `argument` and the rest
// tell.
struct Fault {
    char kind[40], message[400], file[300];
    int32_t line, column, severity;
    int32_t argument;  // its number, or SHARED, VARIABLE or NOWHERE
    // of code, from where the library was loaded; 0: see file and line
    uint64_t address, other_address;
    uint64_t times;
    int64_t offset;  // of the access, in bytes, in the array
    uint64_t bytes;  // that the access touches
    char name[64];   // of a shared array
};
constexpr int SHARED = -1, VARIABLE = -2, NOWHERE = -3, ERROR = 0, NOTE = 1;

// most: of the faults that are kept; 1: the first error ends the launch. lost: faults beyond.
// atomics: a bit for each argument with atomic accesses, the highest for all other memory.
struct Faults {
    uint64_t most, count, lost, accesses, ended, atomics;
    Fault list[1];
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
    // Given: the lines of level 1 that a block has; the number of accesses that is enough; of a
    // process of its own the file that `runs` go to. learns: whether only loops are looked for.
    uint64_t cache_lines, enough, file, learns;
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
    uint32_t dependent;     // whether it may begin before the launch before has ended
    uint32_t cluster[3];    // its blocks, 1 each without clusters
    uint64_t first_block;   // along x; the earlier ones do not run
    const Buffer* buffers;
    uint64_t shared_array_count;
    const SharedArray* shared_arrays;
    Faults* faults;
    uint64_t sample_count;   // 0: all blocks run
    const uint32_t* sample;  // numbers of the blocks that run, in this order
    Counts* counts;          // where to count, or null
    // of the threads of a block, for all libraries, one after the other; the first launch makes
    // them
    char** stacks;
    // of the memory that holds the buffers, where an access beside one does no harm
    const unsigned char *guards_begin, *guards_end;
    // 0: the launch runs here; else in a process of its own, whose number `launch` returns, and
    // so long
    uint64_t seconds;
    unsigned char* variables;  // where a process of its own leaves its variables, one by one
};
int launch(const Launch&, void (*thread)(void**));  // 0, or 1 with *faults filled

// NumPy's name of a number's type; "struct" and the size of anything else, "void" of a void.
template <class T>
struct Special {
    static constexpr const char* name = nullptr;
};
#define EMULATOR_SPECIAL(type, text)              \
    template <>                                   \
    struct emulator::Special<type> {              \
        static constexpr const char* name = text; \
    };
template <class T>
void append_name(char* text) {
    using Number = typename Scalar<T>::type;
    if constexpr (std::is_void_v<T>)
        strcat(text, "void");
    else if constexpr (!std::is_void_v<Number>)
        append_name<Number>(text);
    else if constexpr (Special<T>::name != nullptr)
        strcat(text, Special<T>::name);
    else if constexpr (std::is_enum_v<T>)
        append_name<std::underlying_type_t<T>>(text);
    else if constexpr (std::is_same_v<T, bool>)
        strcat(text, "bool");
    else if constexpr (std::is_arithmetic_v<T>)
        sprintf(text + strlen(text), "%s%zu",
                std::is_floating_point_v<T> ? "float"
                : std::is_signed_v<T>       ? "int"
                                            : "uint",
                8 * sizeof(T));
    else if constexpr (std::is_pointer_v<T>)
        strcat(text, "uint64");
    else
        sprintf(text + strlen(text), "struct%zu", sizeof(T));
}

// Arguments as "int32" (a number), "float32*" (an array) or "const-float32*" (an array that is only
// read); a vector that is passed by value is a structure.
template <class A>
void append_argument(char* text) {
    using Value = std::remove_pointer_t<A>;
    if (std::is_pointer_v<A> && std::is_const_v<Value>) strcat(text, "const-");
    if constexpr (!std::is_pointer_v<A> && !std::is_void_v<typename Scalar<A>::type>)
        sprintf(text + strlen(text), "struct%zu", sizeof(A));
    else
        append_name<std::remove_cv_t<Value>>(text);
    strcat(text, std::is_pointer_v<A> ? "* " : " ");
}
template <class... A>
void signature(void (*)(A...), char* text) {
    text[0] = 0;
    (append_argument<A>(text), ...);
}
// A variable of a file that the host may read and write.
struct Global {
    const char* name;
    void* address;
    uint64_t bytes;
    char type[32];
    uint64_t writable;
};
template <class T>
Global global(const char* name, T& variable, bool writable) {
    using Value = std::remove_cv_t<std::remove_all_extents_t<T>>;
    Global result{
        name,
        const_cast<std::remove_cv_t<Value>*>(reinterpret_cast<const volatile Value*>(&variable)),
        sizeof(T), "", writable};
    // a constant of the module, which the host cannot write either
    if (std::is_const_v<std::remove_all_extents_t<T>>) result.bytes = 0;
    append_name<Value>(result.type);
    return result;
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

#define EMULATOR_GLOBAL_COUNT(count)                                                        \
    extern "C" __attribute__((visibility("default"))) const uint64_t emulator_global_count; \
    const uint64_t emulator_global_count = count;
#define EMULATOR_GLOBALS                                                                         \
    extern "C" __attribute__((visibility("default"))) const emulator::Global emulator_globals[]; \
    const emulator::Global emulator_globals[]
// symbol: of the library; the kernel's name may have template arguments
#define EMULATOR_EXPORT(symbol, ...)                                                        \
    extern "C" __attribute__((visibility("default"))) int launch_##symbol(                  \
        const emulator::Launch* launch) {                                                   \
        return emulator::launch(*launch, emulator::Entry<(__VA_ARGS__)>::run);              \
    }                                                                                       \
    extern "C" __attribute__((visibility("default"))) void signature_##symbol(char* text) { \
        emulator::signature(__VA_ARGS__, text);                                             \
    }

#define threadIdx EMULATOR_COORDINATES(0)
#define blockIdx EMULATOR_COORDINATES(3)
#define blockDim EMULATOR_COORDINATES(6)
#define gridDim EMULATOR_COORDINATES(9)
static constexpr int warpSize = 32;

#define cudaGridDependencySynchronize() emulator::grid_dependency_wait()
#define cudaTriggerProgrammaticLaunchCompletion() ((void)0)
#define __syncthreads() emulator::syncthreads(EMULATOR_SITE)
#define __syncwarp(...) emulator::syncwarp(EMULATOR_SITE, ##__VA_ARGS__)
#define __syncthreads_count(predicate) emulator::syncthreads_count(EMULATOR_SITE, (predicate) != 0)
#define __syncthreads_or(predicate) (__syncthreads_count(predicate) > 0)
#define __syncthreads_and(predicate) (__syncthreads_count((predicate) == 0) == 0)
#define __activemask() emulator::active_lanes(EMULATOR_SITE)
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

static inline size_t __cvta_generic_to_shared(const void* address) {
    return emulator::shared_address(address);
}
static inline size_t __cvta_generic_to_global(const void* address) {
    return reinterpret_cast<size_t>(address);
}
static inline void* __cvta_shared_to_generic(size_t address) {
    return emulator::generic_address(address);
}
#define __match_any_sync(mask, value) emulator::match_any(EMULATOR_SITE, mask, value)
#define __match_all_sync(mask, value, all) emulator::match_all(EMULATOR_SITE, mask, value, all)
#define EMULATOR_REDUCE(mask, value, ...) \
    emulator::reduce_lanes(EMULATOR_SITE, mask, value, [](auto a, auto b) { return __VA_ARGS__; })
#define __reduce_add_sync(mask, value) EMULATOR_REDUCE(mask, value, a + b)
#define __reduce_min_sync(mask, value) EMULATOR_REDUCE(mask, value, b < a ? b : a)
#define __reduce_max_sync(mask, value) EMULATOR_REDUCE(mask, value, a < b ? b : a)
#define __reduce_and_sync(mask, value) EMULATOR_REDUCE(mask, value, a& b)
#define __reduce_or_sync(mask, value) EMULATOR_REDUCE(mask, value, a | b)
#define __reduce_xor_sync(mask, value) EMULATOR_REDUCE(mask, value, a ^ b)

#include "half.h"

EMULATOR_SPECIAL(__half, "float16")
EMULATOR_SPECIAL(__nv_bfloat16, "bfloat16")

#include "cu_complex.h"
#include "cuda_atomic.h"
#include "groups.h"
#include "wmma.h"
