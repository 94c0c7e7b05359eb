// Watches the memory accesses of a kernel that was compiled with
// -fsanitize=thread,alignment,bounds-strict: the compiler puts a call before every access, to these
// functions instead of the sanitizers' own libraries.
//
// Bounds: an access must lie in one array argument, in one shared array, on the thread's stack or
// in the module's constants.
//
// Races: every granule of the arguments and of shared memory remembers its last write and its last
// reads: block, barrier epoch of the block, epoch of the warp, thread. Two unordered accesses race
// if one is a write. __syncthreads orders a block, __syncwarp of a whole warp that warp; within a
// launch nothing orders two blocks. Shuffles order no memory.
#include "runtime.h"

#include <cstdio>
#include <cstdlib>

extern "C" unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" unsigned char _end[] __attribute__((visibility("hidden")));

namespace emulator {

// The readers of a granule that no barrier separates.
enum class Readers : uint8_t { ONE_THREAD, ONE_WARP, ONE_BLOCK, BLOCKS };

struct Stamp {
    uint32_t block, epoch, warp_epoch;  // block 0: never
    uint32_t address;                   // of the code, from where the library was loaded
    uint32_t tick;
    uint16_t thread;
    Readers readers;
    bool pending : 1;  // of a write: a cp.async not waited for, or a bulk copy that has not arrived
    bool copied : 1;   // of a write: by a bulk copy
    bool atomic : 1;   // of a write: by atomics, `readers` tells whose
    bool of_block : 1;  // of an atomic write: no other block's atomics may come near
};
struct Granule {
    Stamp write, read;
};

// Whether what is found of one granule holds for the other; bits of padding may say no where it
// does.
template <class Part>
static bool same(const Part& x, const Part& y) {
    return !memcmp(&x, &y, sizeof x);
}
static uintptr_t code_of(const Stamp& stamp) {
    return reinterpret_cast<uintptr_t>(__ehdr_start) + stamp.address;
}

struct Region {
    const unsigned char* begin;
    size_t bytes;
    unsigned shift;    // of a byte's number to its granule's
    int argument;      // its number, or SHARED
    const char* name;  // of a shared array
    Granule* granules;
    const unsigned char* end() const { return begin + bytes; }
};
constexpr int SHARED = -1, VARIABLE = -2;
enum class Access { READ, WRITE, ATOMIC };

// The __device__ and __constant__ variables of the library's kernels, which Python writes down.
extern "C" {
extern const Global emulator_globals[];
extern const uint64_t emulator_global_count;
}
struct Globals {
    const Global* begin() const { return emulator_globals; }
    const Global* end() const { return emulator_globals + emulator_global_count; }
};
static Globals globals() { return {}; }

static std::vector<Region> regions;
static bool watching;
static Fault stale;  // the first read of shared memory that its block had not written

static void add_region(const unsigned char* begin, size_t bytes, size_t granule, int argument,
                       const char* name = "") {
    if (!bytes) return;
    auto* granules =
        static_cast<Granule*>(calloc((bytes + granule - 1) / granule, sizeof(Granule)));
    if (!granules) abort();
    regions.push_back({begin, bytes, unsigned(__builtin_ctzl(granule)), argument, name, granules});
}

void begin_checks() {
    watching = running->buffer_count > 0;
    stale = Fault{};
    if (!watching) return;
    for (uint64_t i = 0; i < running->shared_array_count; i++) {
        const SharedArray& array = running->shared_arrays[i];
        if (array.name[0]) add_region(address_of(array), array.bytes, 1, SHARED, array.name);
    }
    add_region(dynamic_shared(), running->shared_bytes, 1, SHARED, "dynamic shared memory");
    for (const Global& variable : globals())
        if (variable.writable)
            add_region(static_cast<unsigned char*>(variable.address), variable.bytes, 1, VARIABLE,
                       variable.name);
    for (unsigned i = 0; i < running->buffer_count; i++) {
        const Buffer& buffer = running->buffers[i];
        add_region(buffer.begin, buffer.bytes, buffer.granule, buffer.argument);
    }
}

void end_checks() {
    for (Region& region : regions) free(region.granules);
    regions.clear();
    watching = false;
}

void end_block_checks() {
    if (stale.kind[0]) report(stale);
}

static Region* find(const unsigned char* pointer) {
    static size_t last;
    if (last < regions.size() && pointer >= regions[last].begin && pointer < regions[last].end())
        return &regions[last];
    for (last = 0; last < regions.size(); last++)
        if (pointer >= regions[last].begin && pointer < regions[last].end()) return &regions[last];
    return nullptr;
}

static void name_of(const Region& region, char (&name)[80]) {
    if (region.argument < 0)
        snprintf(name, sizeof name, "%s", region.name);
    else
        snprintf(name, sizeof name, "argument %d", region.argument);
}

[[noreturn]] static void fail_bounds(const unsigned char* pointer, size_t bytes, bool write,
                                     uintptr_t address) {
    const Region* nearest = nullptr;
    size_t least = SIZE_MAX;
    for (const Region& region : regions) {
        size_t distance =
            pointer < region.begin ? region.begin - pointer : pointer + bytes - region.end();
        if (distance < least) least = distance, nearest = &region;
    }
    const char* verb = write ? "writes" : "reads";
    if (!nearest || least > size_t(1) << 32)
        fail(describe("out of bounds", at(address), "%s %zu bytes through a wild pointer", verb,
                      bytes));
    const char* side = pointer < nearest->begin ? "before the start" : "past the end";
    if (nearest->argument == SHARED)
        fail(describe("shared memory overflow", at(address),
                      "%s %zu bytes, reaching %zu bytes %s of %s (%zu bytes)", verb, bytes, least,
                      side, nearest->name, nearest->bytes));
    char memory[80];
    name_of(*nearest, memory);
    fail(describe("out of bounds", at(address),
                  "%s %zu bytes, reaching %zu bytes %s of %s (%zu bytes)", verb, bytes, least, side,
                  memory, nearest->bytes));
}

static bool same_warp(const Stamp& stamp) { return stamp.thread / WARP == current->linear / WARP; }

// True if nothing orders the access of `stamp` before the current one.
static bool unordered(const Stamp& stamp) {
    if (stamp.block == 0) return false;
    if (stamp.readers == Readers::BLOCKS) return true;
    bool alone = stamp.readers == Readers::ONE_THREAD;
    if (stamp.block != block_number)
        return !ordered_by_fences(stamp.block, stamp.thread, stamp.tick, alone);
    if (stamp.epoch != epoch) return false;
    if (!same_warp(stamp) || stamp.readers == Readers::ONE_BLOCK)
        return !ordered_by_fences(stamp.block, stamp.thread, stamp.tick, alone);
    if (stamp.warp_epoch != warp_epoch[current->linear / WARP]) return false;
    if (stamp.thread == current->linear && alone) return false;
    return !(alone && lanes_ordered(stamp.thread, stamp.tick)) &&
           !ordered_by_fences(stamp.block, stamp.thread, stamp.tick, alone);
}

static Stamp now(uintptr_t address) {
    uint32_t of_warp = warp_epoch[current->linear / WARP];
    auto offset = uint32_t(address - reinterpret_cast<uintptr_t>(__ehdr_start));
    return {block_number,
            epoch,
            of_warp,
            offset,
            uint32_t(next_tick()),
            uint16_t(current->linear),
            Readers::ONE_THREAD,
            false,
            false,
            false,
            false};
}

// Who made the accesses of `earlier` and the current one.
static Readers with_current(const Stamp& earlier) {
    if (earlier.readers == Readers::BLOCKS) return Readers::BLOCKS;
    if (earlier.block && earlier.block != block_number) return Readers::BLOCKS;
    if (!earlier.block || earlier.epoch != epoch) return Readers::ONE_THREAD;
    if (!same_warp(earlier) || earlier.readers == Readers::ONE_BLOCK) return Readers::ONE_BLOCK;
    if (earlier.warp_epoch != warp_epoch[current->linear / WARP]) return Readers::ONE_THREAD;
    return earlier.thread != current->linear ? Readers::ONE_WARP : earlier.readers;
}

static void record_read(Stamp& read, uintptr_t address) {
    if (read.readers == Readers::BLOCKS) return;
    Readers readers = unordered(read) ? with_current(read) : Readers::ONE_THREAD;
    read = now(address);
    read.readers = readers;
}

[[noreturn]] static void fail_race(const Region& region, size_t offset, const char* verb,
                                   const Stamp& other, const char* other_verb, uintptr_t address) {
    char memory[80];
    name_of(region, memory);
    bool between_blocks = other.block != block_number || other.readers == Readers::BLOCKS;
    fail(describe(
        between_blocks ? "race between blocks" : "race", at(address, code_of(other)),
        "%s byte %zu of %s, which thread number %u of %s block %s; nothing orders the two", verb,
        offset, memory, other.thread, between_blocks ? "another" : "its", other_verb));
}

// A read of shared memory that its block has not written yet. If a later write races with it, the
// race is reported; otherwise this is, when the block ends.
static void suspect_stale(const Region& region, size_t offset, uintptr_t address) {
    if (stale.kind[0]) return;
    stale = describe("stale shared memory", at(address),
                     "reads byte %zu of %s, which its block never wrote", offset, region.name);
}

// Whether an atomic access may come near the atomic ones of the stamp.
static bool atomics_agree(const Stamp& write, Scope scope) {
    bool other_block = write.block != block_number || write.readers == Readers::BLOCKS;
    return write.atomic && !(other_block && (write.of_block || scope == Scope::BLOCK));
}

static void check_granule(const Region& region, size_t number, Access access, Scope scope,
                          uintptr_t address) {
    bool write = access != Access::READ, atomic = access == Access::ATOMIC;
    Granule& granule = region.granules[number];
    size_t offset = number << region.shift;
    bool shared = region.argument == SHARED;
    const char* verb = write ? "writes" : "reads";
    // another block's data is gone
    if (shared && granule.write.block != block_number) granule.write = {};
    if (shared && granule.read.block != block_number) granule.read = {};
    if (granule.write.copied) {
        check_destination(at(address, code_of(granule.write)), region.begin + offset, write);
        if (!write) return loaded_destination(region.begin + offset);
        granule.write = {};
    }
    if (granule.write.pending)
        fail(describe("missing cp.async wait", at(address, code_of(granule.write)),
                      "%s byte %zu of %s while a cp.async to it is under way", verb, offset,
                      region.name));
    bool races = unordered(granule.write);
    if (races && !(atomic && atomics_agree(granule.write, scope)))
        fail_race(region, offset, verb, granule.write, "writes", address);
    if (atomic && shared && !granule.write.block) suspect_stale(region, offset, address);
    if (!write) {
        if (shared && !granule.write.block) suspect_stale(region, offset, address);
        record_read(granule.read, address);
        return;
    }
    if (unordered(granule.read)) fail_race(region, offset, verb, granule.read, "reads", address);
    Readers readers = races ? with_current(granule.write) : Readers::ONE_THREAD;
    granule.write = now(address);
    granule.write.readers = readers;
    granule.write.atomic = atomic;
    granule.write.of_block = atomic && scope == Scope::BLOCK;
}

static bool on_own_stack(const unsigned char* pointer) {
    return reinterpret_cast<const char*>(pointer) >= current->stack &&
           reinterpret_cast<const char*>(pointer) < current->stack + STACK_BYTES;
}

static bool is_guard(const unsigned char* pointer) {
    for (uint64_t i = 0; i < running->shared_array_count; i++) {
        const SharedArray& array = running->shared_arrays[i];
        if (!array.name[0] && pointer >= address_of(array) &&
            pointer < address_of(array) + array.bytes)
            return true;
    }
    return false;
}

static void watch(const void* target, size_t bytes, Access access, Scope scope, uintptr_t address) {
    bool write = access != Access::READ;
    auto* pointer = static_cast<const unsigned char*>(target);
    if (on_own_stack(pointer)) return check_registers(target, bytes, write, address);
    Region* region = find(pointer);
    if (!region) {
        bool constant = !write && pointer >= __ehdr_start && pointer < _end;
        if (constant || on_a_stack(pointer) || is_guard(pointer)) return;
        fail_bounds(pointer, bytes, write, address);
    }
    if (pointer + bytes > region->end()) fail_bounds(pointer, bytes, write, address);
    size_t first = (pointer - region->begin) >> region->shift,
           last = (pointer + bytes - 1 - region->begin) >> region->shift;
    Granule before{}, after{};
    for (size_t number = first; number <= last; number++) {
        Granule& granule = region->granules[number];
        if (number > first && same(granule, before)) {
            granule = after;
            continue;
        }
        before = granule;
        check_granule(*region, number, access, scope, address);
        after = granule;
    }
}

void accessed(const void* target, size_t bytes, bool write, uintptr_t address) {
    if (counting) return count_access(target, bytes, write, address);
    if (watching)
        watch(target, bytes, write ? Access::WRITE : Access::READ, Scope::DEVICE, address);
}

void accessed_atomically(const void* target, size_t bytes, Scope scope, uintptr_t address) {
    if (counting) return count_access(target, bytes, true, address);
    if (!watching) return;
    if (reinterpret_cast<uintptr_t>(target) % bytes)
        fail(describe("misaligned access", at(address),
                      "makes an atomic access of %zu bytes to an address that is no multiple of it",
                      bytes));
    watch(target, bytes, Access::ATOMIC, scope, address);
}

bool watching_accesses() { return watching; }

void must_be_shared(Site site, const void* pointer, const char* what) {
    if (!watching) return;
    Region* region = find(static_cast<const unsigned char*>(pointer));
    if (!region || region->argument != SHARED) {
        char kind[40];
        snprintf(kind, sizeof kind, "bad %s", what);
        fail(describe(kind, at(site), "takes an address that is not in shared memory"));
    }
}

void copy_pending(const void* shared, size_t bytes, bool pending) {
    if (!watching) return;
    auto* pointer = static_cast<const unsigned char*>(shared);
    Region* region = find(pointer);
    for (size_t i = 0; i < bytes; i++)
        region->granules[pointer + i - region->begin].write.pending = pending;
}

// What a thread stored, in shared memory, that a copy overwrites or a product reads: ordered, and
// fenced by that thread.
static void must_be_fenced(Site site, const Region& region, size_t number, const char* verb) {
    const Stamp& write = region.granules[number].write;
    size_t offset = number << region.shift;
    if (write.block != block_number || write.copied) return;
    if (unordered(write)) fail_race(region, offset, verb, write, "writes", 0);
    if (!is_fenced(write.thread, write.tick))
        fail(describe("missing fence", at(site),
                      "%s byte %zu of %s, which thread number %u stored without fence.proxy.async",
                      verb, offset, region.name, write.thread));
}

// A bulk copy begins to write.
void written_by_copy(Site site, const void* shared, size_t bytes, uintptr_t address) {
    if (!watching) return;
    auto* pointer = static_cast<const unsigned char*>(shared);
    Region* region = find(pointer);
    if (pointer + bytes > region->end()) fail_bounds(pointer, bytes, true, address);
    Granule before{}, after{now(address), {}};
    after.write.copied = after.write.pending = true;
    for (size_t number = pointer - region->begin; number < pointer - region->begin + bytes;
         number++) {
        Granule& granule = region->granules[number];
        if (!same(granule, before)) {
            must_be_fenced(site, *region, number, "writes");
            if (granule.read.block == block_number && !granule.write.copied &&
                unordered(granule.read))
                fail_race(*region, number, "writes", granule.read, "reads", address);
            before = granule;
        }
        granule = after;
    }
}

// The products of this thread's warp read shared memory.
void read_by_products(Site site, const void* shared, size_t bytes) {
    if (!watching) return;
    auto* pointer = static_cast<const unsigned char*>(shared);
    Region* region = find(pointer);
    size_t first = pointer - region->begin;
    for (size_t number = first; number < first + bytes; number++) {
        const Stamp& write = region->granules[number].write;
        if (number > first && same(write, region->granules[number - 1].write)) continue;
        if (write.block != block_number) suspect_stale(*region, number, 0);
        if (write.copied && write.block == block_number)
            check_destination(at(site), region->begin + number, false);
        else
            must_be_fenced(site, *region, number, "reads");
    }
}

}  // namespace emulator

// ---- the functions that the compiler calls
using namespace emulator;
#define CALLER reinterpret_cast<uintptr_t>(__builtin_return_address(0))
#define ACCESS(bytes)                                                                 \
    void __tsan_read##bytes(void* p) { accessed(p, bytes, false, CALLER); }           \
    void __tsan_write##bytes(void* p) { accessed(p, bytes, true, CALLER); }           \
    void __tsan_unaligned_read##bytes(void* p) { accessed(p, bytes, false, CALLER); } \
    void __tsan_unaligned_write##bytes(void* p) { accessed(p, bytes, true, CALLER); }
extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* p, size_t bytes) { accessed(p, bytes, false, CALLER); }
void __tsan_write_range(void* p, size_t bytes) { accessed(p, bytes, true, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// The data that -fsanitize=undefined passes to its handlers begin with these (compiler-rt,
// lib/ubsan/ubsan_handlers.h).
struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeMismatch {
    SourceLocation location;
    const void* type;
    unsigned char log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t pointer) {
    if (!watching) return;
    uintptr_t alignment = uintptr_t(1) << data->log_alignment;
    // a thread's own variables are registers; but g++ may load 16 bytes only where they are aligned
    if (on_a_stack(reinterpret_cast<void*>(pointer)) && alignment < 16) return;
    fail(describe("misaligned access", at(CALLER),
                  "uses an address that is %zu bytes off a multiple of %zu",
                  size_t(pointer % alignment), size_t(alignment)));
}

void __ubsan_handle_out_of_bounds(void*, uintptr_t index) {
    if (watching)
        fail(describe("out of bounds", at(CALLER), "uses index %lld of an array",
                      static_cast<long long>(index)));
}

void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t) {
    if (watching) fail(describe("division by zero", at(CALLER), "divides by zero"));
}
}
