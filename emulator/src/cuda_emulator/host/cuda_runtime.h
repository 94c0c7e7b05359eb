// What the host code of a whole program finds of CUDA's runtime (CUDA Runtime API); a launch is
// handed to run.py, which checks the kernel. Device memory lies where the host may touch nothing.
#pragma once
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevice = 101,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
using cudaStream_t = void*;
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int warpSize, maxThreadsPerBlock, multiProcessorCount, major, minor;
};

namespace emulator_host {

struct Allocation {
    char *begin, *held;   // where a kernel's pointer points to, and its bytes
    size_t bytes, empty;  // empty: nothing was written to it
};
inline std::map<char*, Allocation> allocations;  // by `begin`
inline cudaError_t last = cudaSuccess;
inline cudaError_t note(cudaError_t error) { return error ? last = error : error; }

struct Description {
    cudaError_t error;
    const char *name, *text;
};
inline Description description(cudaError_t error) {
    static constexpr Description KNOWN[] = {
        {cudaSuccess,                   "cudaSuccess",                   "no error"              },
        {cudaErrorInvalidValue,         "cudaErrorInvalidValue",         "invalid argument"      },
        {cudaErrorMemoryAllocation,     "cudaErrorMemoryAllocation",     "out of memory"         },
        {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
         "invalid configuration argument"                                                        },
        {cudaErrorInvalidDevice,        "cudaErrorInvalidDevice",        "invalid device ordinal"},
    };
    for (const Description& known : KNOWN)
        if (known.error == error) return known;
    return {error, "unrecognized error code", "unrecognized error code"};
}

inline Allocation* find(const void* pointer) {
    auto* place = const_cast<char*>(static_cast<const char*>(pointer));
    auto above = allocations.upper_bound(place);
    if (above == allocations.begin()) return nullptr;
    Allocation& found = std::prev(above)->second;
    return place < found.begin + found.bytes ? &found : nullptr;
}

inline cudaError_t allocate(void** pointer, size_t bytes, bool managed) {
    constexpr size_t RESERVED = size_t(1) << 40, GAP = 1 << 20;
    static char* next = static_cast<char*>(
        mmap(nullptr, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    static char* end = next + RESERVED;
    if (next == MAP_FAILED || bytes > RESERVED - GAP) return note(cudaErrorMemoryAllocation);
    size_t whole = (bytes + 255) / 256 * 256;
    if (!managed && whole + GAP > size_t(end - next)) return note(cudaErrorMemoryAllocation);
    auto* held = static_cast<char*>(aligned_alloc(256, whole + 256));
    if (!held) return note(cudaErrorMemoryAllocation);
    memset(held, 0xff, whole);
    char* begin = managed ? held : next;
    if (!managed) next += whole + GAP;
    allocations[begin] = {begin, held, bytes, !managed};
    *pointer = begin;
    return cudaSuccess;
}

enum Side { HOST, DEVICE, EITHER };
inline Side target_of(cudaMemcpyKind kind) {
    return kind == cudaMemcpyDefault ? EITHER : Side(kind & 1);
}
inline Side source_of(cudaMemcpyKind kind) {
    return kind == cudaMemcpyDefault ? EITHER : Side(kind >> 1);
}

// The bytes behind a pointer, or null where it is not of this side, or there are too few.
inline char* bytes_at(const void* pointer, size_t bytes, Side side, bool writes) {
    auto* place = static_cast<char*>(const_cast<void*>(pointer));
    Allocation* found = find(pointer);
    if (!found) return side == DEVICE ? nullptr : place;
    bool managed = found->begin == found->held;
    size_t offset = place - found->begin;
    if ((side == HOST && !managed) || bytes > found->bytes - offset) return nullptr;
    if (writes) found->empty = 0;
    return found->held + offset;
}

inline cudaError_t copy(void* to, const void* from, size_t bytes) {
    if (!to || !from) return note(cudaErrorInvalidValue);
    memmove(to, from, bytes);
    return cudaSuccess;
}

struct Configuration {
    unsigned sizes[6];
    size_t shared;
    Configuration(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t = nullptr)
        : sizes{grid.x, grid.y, grid.z, block.x, block.y, block.z}, shared(shared_bytes) {}
};
}  // namespace emulator_host

extern "C" {
int (*emulator_launch)(const char* name, const unsigned* sizes, size_t shared, void** arguments);
void* (*emulator_variable)(const char* name, size_t bytes);  // of the device; null: none so large
emulator_host::Allocation* emulator_allocation(const void* pointer) {
    return emulator_host::find(pointer);
}
}

namespace emulator_host {
template <class Kernel>
struct Launcher;
template <class... P>
struct Launcher<void(P...)> {
    template <class... A>
    static void run(const char* name, const Configuration& configuration, A&&... given) {
        std::tuple<std::decay_t<P>...> values(static_cast<P>(given)...);
        std::apply(
            [&](auto&... value) {
                const void* arguments[] = {&value..., nullptr};
                note(cudaError_t(emulator_launch(name, configuration.sizes, configuration.shared,
                                                 const_cast<void**>(arguments))));
            },
            values);
    }
};
inline char* variable(const char* name, size_t bytes, size_t offset) {
    auto* begin = static_cast<char*>(emulator_variable(name, offset + bytes));
    return begin ? begin + offset : nullptr;
}
}  // namespace emulator_host

template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    return emulator_host::allocate(reinterpret_cast<void**>(pointer), bytes, false);
}
template <class T>
cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned = 1) {
    return emulator_host::allocate(reinterpret_cast<void**>(pointer), bytes, true);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes) {
    *pointer = static_cast<T*>(malloc(bytes));
    return *pointer || !bytes ? cudaSuccess : emulator_host::note(cudaErrorMemoryAllocation);
}
inline cudaError_t cudaFreeHost(void* pointer) {
    free(pointer);
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* pointer) {
    if (!pointer) return cudaSuccess;
    auto found = emulator_host::allocations.find(static_cast<char*>(pointer));
    if (found == emulator_host::allocations.end())
        return emulator_host::note(cudaErrorInvalidValue);
    free(found->second.held);
    emulator_host::allocations.erase(found);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    using namespace emulator_host;
    return copy(bytes_at(to, bytes, target_of(kind), true),
                bytes_at(from, bytes, source_of(kind), false), bytes);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    char* target = emulator_host::bytes_at(to, bytes, emulator_host::DEVICE, true);
    if (!target) return emulator_host::note(cudaErrorInvalidValue);
    memset(target, value, bytes);
    return cudaSuccess;
}
inline cudaError_t emulator_to_symbol(const char* name, const void* from, size_t bytes,
                                      size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    using namespace emulator_host;
    return copy(variable(name, bytes, offset), bytes_at(from, bytes, source_of(kind), false),
                bytes);
}
inline cudaError_t emulator_from_symbol(const char* name, void* to, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    using namespace emulator_host;
    return copy(bytes_at(to, bytes, target_of(kind), true), variable(name, bytes, offset), bytes);
}
#define cudaMemcpyToSymbol(symbol, ...) emulator_to_symbol(#symbol, __VA_ARGS__)
#define cudaMemcpyFromSymbol(to, symbol, ...) emulator_from_symbol(#symbol, to, __VA_ARGS__)

// Every launch has ended when the next line of the host runs.
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return emulator_host::last; }
inline cudaError_t cudaGetLastError() { return std::exchange(emulator_host::last, cudaSuccess); }
inline const char* cudaGetErrorString(cudaError_t error) {
    return emulator_host::description(error).text;
}
inline const char* cudaGetErrorName(cudaError_t error) {
    return emulator_host::description(error).name;
}
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) {
    return device ? emulator_host::note(cudaErrorInvalidDevice) : cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {"cuda-emulator", size_t(1) << 34, 48 << 10, 32, 1024, 1, 9, 0};
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

// Times are those of the emulator.
using cudaEvent_t = std::chrono::steady_clock::time_point*;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return *event = new std::chrono::steady_clock::time_point, cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
    return *event = std::chrono::steady_clock::now(), cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    *milliseconds = std::chrono::duration<float, std::milli>(*to - *from).count();
    return cudaSuccess;
}
