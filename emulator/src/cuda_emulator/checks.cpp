// Watches the memory accesses of a kernel that was compiled with
// -fsanitize=thread,alignment,bounds-strict: the compiler puts a call before every access, to these
// functions instead of the sanitizers' own libraries.
//
// Bounds: an access must lie in one array argument, in one shared array, on the thread's stack or
// in the module's constants.
//
// Races: every granule of the arguments and of shared memory remembers its last write and its last
// reads: block, time, thread. Two unordered accesses race if one is a write. Arrays that a kernel
// takes as constant have none: nobody writes them. __syncthreads orders a block, __syncwarp of a
// whole warp that warp, an mbarrier those who arrive before those who wait (hopper.cpp), fences and
// atomics as atomics.cpp says. Shuffles order no memory.
#include "runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

extern "C" unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" unsigned char _end[] __attribute__((visibility("hidden")));

namespace emulator {

// The readers of a granule that no barrier separates.
enum class Readers : uint8_t { ONE_THREAD, ONE_WARP, ONE_BLOCK, BLOCKS };

// The last word is also one number, `who`, to be stored at once: only then it is read at once.
struct Stamp {
    uint32_t block;    // 0: never
    uint32_t address;  // of the code, from where the library was loaded
    union {
        uint32_t tick;
        uint32_t other_block;  // of BLOCKS, where no tick is compared
    };
    union {
        struct {
            unsigned thread : 10, other : 10;  // other: one beside `thread` that made such accesses
            Readers readers : 2;
            bool pending : 1;   // a write by a cp.async or bulk copy that has not arrived
            bool copied : 1;    // a write by a bulk copy
            bool atomic : 1;    // a write by atomics, `readers` tells whose
            bool of_block : 1;  // an atomic write: no other block's atomics may come near
            bool spread : 1;    // accesses of several blocks of a cluster
        };
        uint32_t who;
    };
};
struct Granule {
    Stamp write, read;
};
static_assert(MOST_THREADS == 1 << 10 && 64 % sizeof(Granule) == 0);  // 64: a line of the caches

// Whether what is found of one granule holds for the other.
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
    unsigned finest;   // that `shift` may become
    int argument;      // its number, or SHARED
    const char* name;  // of a shared array
    unsigned rank;     // of its block in the cluster
    bool empty;        // at first
    bool constant;     // no thread has written to it
    Before before;
    Granule* granules;  // null: none until the first access, and of a constant
    const unsigned char* end() const { return begin + bytes; }
    size_t count() const { return granules ? ((bytes - 1) >> shift) + 1 : 0; }
};
enum class Access { READ, WRITE, ATOMIC, ATOMIC_STORE };

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

void save_variables(unsigned char* to) {
    for (const Global& variable : globals()) {
        if (!variable.writable) continue;
        memcpy(to, variable.address, variable.bytes);
        to += variable.bytes;
    }
}

static std::vector<Region> regions;
static const char DYNAMIC[] = "dynamic shared memory";
static bool watching;
static uint64_t accesses;
static Region stacks;
// By the address of an instruction what it touched last, which it mostly touches next; or null.
static Region* touched_by[1024];
static Region*& touched_at(uintptr_t address) {
    return touched_by[address % (sizeof touched_by / sizeof *touched_by)];
}
// Of a launch that may begin before the one before has ended: where threads have waited for that
// one, the last block's; and of each thread the last block in which it knows of such a wait.
static bool dependent;
static std::vector<Stamp> dependency_waits;
static std::vector<unsigned> past_dependency;

// Where nothing more than the shortest way of an access is asked for.
static void keep_touched(uintptr_t address, Region* region) {
    if (!clustered && !dependent) touched_at(address) = region;
}
static Fault stale;  // the first read of shared memory that its block had not written

// A write to where another lane of the warp has written by the same instruction. Whether it is the
// same value is known once it is written.
const unsigned char* doubtful;
static struct Doubt {
    size_t bytes;
    unsigned char first[16];  // what the other lane wrote
    Fault race;
} doubt;

// What a thread reads plainly before it compares and swaps there is a guess that may be wrong: no
// race with other atomics. Of each thread the last such read, which waits for the swap.
struct Guess {
    const unsigned char* pointer;
    Fault race;
};
static std::vector<Guess> guesses;
static bool swaps_in_use;  // by this launch

constexpr unsigned COARSEST = 4;  // granules of 16 bytes

// Zero, in large pages where the system has them: most of their time goes into the first touch.
static Granule* new_granules(size_t count) {
    constexpr size_t LARGE = 2 << 20;
    size_t bytes = count * sizeof(Granule);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    if (bytes >= LARGE) madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<Granule*>(memory);
}

static void forget_granules(Region& region) {
    if (region.granules) munmap(region.granules, region.count() * sizeof(Granule));
    region.granules = nullptr;
}

static void add_region(const unsigned char* begin, size_t bytes, size_t granule, int argument,
                       const char* name = "", bool empty = false, bool constant = false) {
    if (!bytes) return;
    unsigned finest = __builtin_ctzl(granule);
    regions.push_back({begin, bytes, COARSEST, finest, argument, name, 0, empty, constant,
                       Before::NOTHING, nullptr});
}

// Granules are as large as all accesses so far allow: while each of them touches whole ones,
// smaller ones would hold the same. places: the first byte of an access and their number, or-ed.
__attribute__((noinline)) static void refine(Region& region, size_t places) {
    Region before = region;
    region.shift = std::min(COARSEST, std::max(region.finest, unsigned(__builtin_ctzl(places))));
    region.granules = new_granules(((region.bytes - 1) >> region.shift) + 1);
    static const Granule untouched{};
    for (size_t i = 0; before.granules && i < region.count(); i++)
        if (const Granule& each = before.granules[i >> (before.shift - region.shift)];
            !same(each, untouched))
            region.granules[i] = each;
    forget_granules(before);
}

// The granules that some bytes touch.
struct Span {
    size_t first, last;
};
static EMULATOR_INLINE bool fits(const Region& region, size_t places) {
    return region.shift == region.finest || !(places & ((size_t(1) << region.shift) - 1));
}
static EMULATOR_INLINE Span granules_of(Region& region, const unsigned char* pointer,
                                        size_t bytes) {
    size_t offset = pointer - region.begin, places = offset | bytes;
    if (!region.granules || !fits(region, places)) refine(region, places);
    return {offset >> region.shift, (offset + bytes - 1) >> region.shift};
}

void begin_checks() {
    watching = running->buffer_count > 0;
    stale = Fault{};
    accesses = 0;
    swaps_in_use = false;
    guesses.clear();
    dependent = watching && running->dependent;
    dependency_waits.clear();
    past_dependency.assign(MOST_THREADS, 0);
    if (!watching) return;
    stacks.begin = reinterpret_cast<unsigned char*>(*running->stacks);
    stacks.bytes = ALL_STACKS;
    for (uint64_t i = 0; i < running->shared_array_count; i++) {
        const SharedArray& array = running->shared_arrays[i];
        if (array.name[0]) add_region(address_of(array), array.bytes, 1, SHARED, array.name);
    }
    const uint32_t* cluster = running->cluster;
    for (unsigned rank = 0; rank < cluster[0] * cluster[1] * cluster[2]; rank++) {
        add_region(dynamic_shared_of(rank), running->shared_bytes, 1, SHARED, DYNAMIC);
        if (running->shared_bytes) regions.back().rank = rank;
    }
    for (const Global& variable : globals())
        if (variable.writable)
            add_region(static_cast<unsigned char*>(variable.address), variable.bytes, 1, VARIABLE,
                       variable.name);
    for (unsigned i = 0; i < running->buffer_count; i++) {
        const Buffer& buffer = running->buffers[i];
        add_region(buffer.begin, buffer.bytes, buffer.granule, buffer.argument, "", buffer.empty,
                   buffer.constant && !buffer.empty);
        if (buffer.bytes) regions.back().before = buffer.before;
    }
}

// What no thread has touched of an array that they wrote to.
static void look_for_unwritten(const Region& region) {
    size_t granules = region.count(), untouched = 0, first = granules;
    Stamp written{};
    for (size_t i = 0; i < granules; i++) {
        if (region.granules[i].write.block) written = region.granules[i].write;
        if (region.granules[i].write.block || region.granules[i].read.block) continue;
        untouched++;
        first = std::min(first, i);
    }
    if (!written.block || !untouched) return;
    Fault fault = without_thread("unwritten output");
    snprintf(fault.message, sizeof fault.message,
             "%zu of %zu bytes of {array} are neither written nor read, the first at {element}",
             std::min(untouched << region.shift, region.bytes), region.bytes);
    fault.severity = NOTE;
    fault.address = written.address;  // of a store that leaves out the rest
    fault.argument = region.argument;
    fault.offset = first << region.shift;
    keep(fault);
}

static void look_at_all_accesses() {
    size_t in_static = 0;
    for (const Region& region : regions) {
        if (!region.granules) continue;
        auto touched = [](const Granule& granule) {
            return granule.write.block || granule.read.block;
        };
        if (region.argument >= 0)
            look_for_unwritten(region);
        else if (region.argument == SHARED && region.name != DYNAMIC &&
                 std::any_of(region.granules, region.granules + region.count(), touched))
            in_static += region.bytes;
    }
    if (in_static > MOST_STATIC_BYTES) {
        Fault fault = without_thread("too much shared memory");
        snprintf(fault.message, sizeof fault.message,
                 "%zu bytes of __shared__ arrays of fixed size, where CUDA allows %zu; take extern "
                 "__shared__ memory for more",
                 in_static, MOST_STATIC_BYTES);
        keep(fault);
    }
    if (dependent && dependency_waits.empty()) {
        Fault fault = without_thread("missing dependency wait");
        snprintf(
            fault.message, sizeof fault.message,
            "no thread calls griddepcontrol.wait, so that the launch behind this one may begin "
            "before the one before it has ended");
        keep(fault);
    }
    running->faults->accesses = accesses;
    if (accesses == 0) {
        Fault fault = without_thread("no access");
        fault.severity = NOTE;
        snprintf(fault.message, sizeof fault.message, "no thread reads or writes memory");
        keep(fault);
    }
}

void end_checks() {
    if (watching && !only_first()) look_at_all_accesses();
    for (Region& region : regions) forget_granules(region);
    regions.clear();
    std::fill(std::begin(touched_by), std::end(touched_by), nullptr);
    watching = false;
}

void end_block_checks() {
    for (Guess& guess : guesses)
        if (guess.pointer && !(only_first() && faults_of_block()))
            guess.pointer = nullptr, report(guess.race);
    // a race tells more of the same mistake
    if (stale.kind[0] && faults_of_block() == 0) report(stale);
    stale = Fault{};
}

static void locate(Fault& fault, const Region& region, int64_t offset, size_t bytes) {
    fault.argument = region.argument;
    fault.offset = offset;
    fault.bytes = bytes;
    snprintf(fault.name, sizeof fault.name, "%s", region.name);
}
static Fault located(Fault fault, const Region& region, int64_t offset) {
    locate(fault, region, offset, size_t(1) << region.shift);
    return fault;
}

static Region* find(const unsigned char* pointer) {
    for (Region& region : regions)
        if (pointer >= region.begin && pointer < region.end()) return &region;
    return nullptr;
}

// The fault of an access that lies in no array, or not wholly in one.
static void report_bounds(const unsigned char* pointer, size_t bytes, bool write,
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
        fail(describe("out of bounds", at(address), "%s %zu bytes through a %s pointer", verb,
                      bytes, reinterpret_cast<uintptr_t>(pointer) < 4096 ? "null" : "wild"));
    const char* side = pointer < nearest->begin ? "before the start" : "past the end";
    bool shared = nearest->argument == SHARED;
    Fault fault = describe(shared ? "shared memory overflow" : "out of bounds", at(address),
                           "%s {element}, reaching %zu bytes %s of {array}", verb, least, side);
    locate(fault, *nearest, pointer - nearest->begin, bytes);
    bool harmless =
        shared ? pointer >= nearest->begin && least <= RED_ZONE
               : pointer >= running->guards_begin && pointer + bytes <= running->guards_end;
    if (!harmless) fail(fault);
    record(fault);
}

// The thread of a stamp that is not the current one.
static std::string who(const Stamp& stamp) {
    if (stamp.block == block_number && stamp.readers == Readers::BLOCKS)
        return "a thread of block " + block_coordinates(stamp.other_block, 0);
    if (stamp.block != block_number)
        return "thread " + coordinates(stamp.thread) + " of block " +
               block_coordinates(stamp.block, stamp.thread);
    unsigned thread = stamp.thread == current->linear ? stamp.other : stamp.thread;
    bool same_block = thread / block_threads == current->rank;
    return "thread " + coordinates(thread) +
           (same_block ? " of its block"
                       : " of block " + block_coordinates(stamp.block, thread) + " of its cluster");
}

static bool same_warp(const Stamp& stamp) { return stamp.thread / WARP == current->linear / WARP; }

static EMULATOR_INLINE bool fenced(const Stamp& stamp, bool alone) {
    return __builtin_expect(fences_in_use, false) &&
           ordered_by_fences(stamp.block, stamp.thread, stamp.tick, alone);
}

// Of a stamp of this cluster.
static bool of_other_blocks(const Stamp& stamp) {
    return clustered && (stamp.spread || stamp.thread / block_threads != current->rank);
}

// True if nothing orders an access of this block, since its last barrier, before the current one.
static EMULATOR_INLINE bool unordered_since_barrier(const Stamp& stamp, bool alone) {
    if (!same_warp(stamp) || stamp.readers == Readers::ONE_BLOCK)
        return !(alone && barriers_in_use && handed_over(stamp.thread, stamp.tick)) &&
               !fenced(stamp, alone);
    if (stamp.thread == current->linear && alone) return false;
    if (stamp.tick <= warp_tick[current->linear / WARP]) return false;
    return !(alone && lanes_in_use && lanes_ordered(stamp.thread, stamp.tick)) &&
           !fenced(stamp, alone);
}

// In a cluster, off the way of all other launches.
static __attribute__((noinline)) bool unordered_in_cluster(const Stamp& stamp, bool alone) {
    if (!of_other_blocks(stamp))
        return stamp.tick > barrier_tick_in_cluster() && unordered_since_barrier(stamp, alone);
    return !ordered_by_cluster(stamp.thread, stamp.tick, alone) &&
           !(alone && barriers_in_use && handed_over(stamp.thread, stamp.tick));
}
static __attribute__((noinline)) bool is_spread(const Stamp& stamp) {
    return stamp.block == block_number && of_other_blocks(stamp);
}

// True if nothing orders the access of `stamp` before the current one.
static EMULATOR_INLINE bool unordered(const Stamp& stamp) {
    if (stamp.block == 0) return false;
    if (stamp.readers == Readers::BLOCKS) return true;
    bool alone = stamp.readers == Readers::ONE_THREAD;
    if (stamp.block != block_number) return !fenced(stamp, alone);
    if (__builtin_expect(clustered, false)) return unordered_in_cluster(stamp, alone);
    return stamp.tick > barrier_tick && unordered_since_barrier(stamp, alone);
}

static EMULATOR_INLINE Stamp now(uintptr_t address, Readers readers, uint32_t other) {
    Stamp stamp;
    stamp.block = block_number;
    stamp.address = address - reinterpret_cast<uintptr_t>(__ehdr_start);
    stamp.tick = next_tick();
    stamp.who = current->linear | other << 10 | uint32_t(readers) << 20;
    return stamp;
}

// Who made the accesses of `earlier` and the current one, which nothing orders.
static EMULATOR_INLINE Readers with_current(const Stamp& earlier) {
    if (earlier.readers == Readers::BLOCKS || earlier.block != block_number) return Readers::BLOCKS;
    if (!same_warp(earlier) || earlier.readers == Readers::ONE_BLOCK) return Readers::ONE_BLOCK;
    return earlier.thread != current->linear ? Readers::ONE_WARP : earlier.readers;
}

// The stamp becomes that of the current access, which not all of the earlier ones are ordered
// before if `among_others`.
static EMULATOR_INLINE void restamp(Stamp& stamp, uintptr_t address, bool among_others) {
    if (!among_others) {
        stamp = now(address, Readers::ONE_THREAD, 0);
        return;
    }
    Readers readers = with_current(stamp);
    bool spread = __builtin_expect(clustered, false) && is_spread(stamp);
    uint32_t block = stamp.block != block_number ? stamp.block : stamp.other_block;
    stamp = now(address, readers, stamp.thread != current->linear ? stamp.thread : stamp.other);
    if (__builtin_expect(spread, false)) stamp.spread = true;
    if (readers == Readers::BLOCKS) stamp.other_block = block;
}

static EMULATOR_INLINE void record_read(Stamp& read, uintptr_t address) {
    if (read.readers != Readers::BLOCKS) restamp(read, address, unordered(read));
}

static Fault race(const Region& region, size_t offset, const char* verb, const Stamp& other,
                  const char* other_verb, uintptr_t address) {
    bool between_blocks =
        other.block != block_number || other.readers == Readers::BLOCKS || of_other_blocks(other);
    Fault fault = describe(
        between_blocks ? "race between blocks" : "race", at(address, code_of(other)),
        "%s {element}, which %s %s; nothing orders the two", verb, who(other).c_str(), other_verb);
    locate(fault, region, offset, 1u << region.shift);
    return fault;
}

void settle_doubt() {
    Fault fault = doubt.race;
    if (!memcmp(doubtful, doubt.first, doubt.bytes)) {
        snprintf(fault.kind, sizeof fault.kind, "same value");
        fault.severity = NOTE;
    }
    doubtful = nullptr;
    record(fault);
}

// Two writes of one instruction of a warp, to all of the accessed bytes.
static void suspect_race(const Fault& fault, const Stamp& other, const unsigned char* pointer,
                         size_t bytes) {
    bool may_be_same = !only_first() && other.block == block_number && same_warp(other) &&
                       other.address == fault.address && bytes <= sizeof doubt.first;
    if (!may_be_same) return record(fault);
    doubtful = pointer;
    doubt = {bytes, {}, fault};
    memcpy(doubt.first, pointer, bytes);
}

static void settle_guess(Guess& guess) {
    if (guess.pointer) guess.pointer = nullptr, record(guess.race);
}

static void suspect_guess(const Fault& race, const Stamp& write, const unsigned char* pointer) {
    if (!swaps_in_use || !write.atomic) return record(race);
    guesses.resize(MOST_THREADS);
    Guess& guess = guesses[current->linear];
    if (guess.pointer != pointer) settle_guess(guess);
    guess = {pointer, race};
}

void compares(const void* pointer, size_t bytes) {
    if (!watching) return;
    swaps_in_use = true;
    auto* place = static_cast<const unsigned char*>(pointer);
    if (!guesses.empty() && guesses[current->linear].pointer == place)
        guesses[current->linear].pointer = nullptr;
    Region* region = find(place);
    if (!region || region->constant || place + bytes > region->end()) return;
    Span span = granules_of(*region, place, bytes);
    for (size_t number = span.first; number <= span.last; number++) {
        Stamp& read = region->granules[number].read;
        bool own = read.block == block_number && read.readers == Readers::ONE_THREAD &&
                   read.thread == current->linear;
        if (own) read = {};
    }
}

// A read of shared memory that its block has not written yet. If a later write races with it, the
// race is reported; otherwise this is, when the block ends.
static void suspect_stale(const Region& region, size_t offset, uintptr_t address) {
    if (stale.kind[0]) return;
    stale = describe("stale shared memory", at(address),
                     "reads {element}, which its block never wrote");
    locate(stale, region, offset, 1);
}

// Whether an atomic access may come near the atomic ones of the stamp.
static bool atomics_agree(const Stamp& write, Scope scope) {
    bool other_block =
        write.block != block_number || write.readers == Readers::BLOCKS || of_other_blocks(write);
    return write.atomic && !(other_block && (write.of_block || scope == Scope::BLOCK));
}

// One access of the running thread.
struct Touch {
    const unsigned char* pointer;
    size_t bytes;
    Access access;
    Scope scope;
    uintptr_t address;
};

static void check_granule(const Region& region, size_t number, const Touch& touch) {
    bool write = touch.access != Access::READ, atomic = touch.access >= Access::ATOMIC;
    uintptr_t address = touch.address;
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
        record(located(describe("missing cp.async wait", at(address, code_of(granule.write)),
                                "%s {element} while a cp.async to it is under way", verb),
                       region, offset));
    bool unordered_write = unordered(granule.write);
    bool raced = unordered_write && !(atomic && atomics_agree(granule.write, touch.scope));
    if (raced) {
        Fault fault = race(region, offset, verb, granule.write, "writes", address);
        write ? suspect_race(fault, granule.write, touch.pointer, touch.bytes)
              : suspect_guess(fault, granule.write, touch.pointer);
    }
    if (touch.access == Access::ATOMIC && shared && !granule.write.block)
        suspect_stale(region, offset, address);
    if (!write) {
        if (shared && !granule.write.block) suspect_stale(region, offset, address);
        if (region.empty && !granule.write.block)
            record(located(describe("uninitialised read", at(address),
                                    "reads {element}, which nothing has written"),
                           region, offset));
        record_read(granule.read, address);
        const unsigned char* first = region.begin + offset;
        if (shared && barriers_in_use) read_by_thread(first, touch.pointer + touch.bytes - first);
        return;
    }
    auto known = [&] {
        return shared && barriers_in_use &&
               reads_handed_over(region.begin + offset, size_t(1) << region.shift);
    };
    if (!raced && unordered(granule.read) && !known())
        record(race(region, offset, verb, granule.read, "reads", address));
    restamp(granule.write, address, unordered_write);
    granule.write.atomic = atomic;
    granule.write.of_block = atomic && touch.scope == Scope::BLOCK;
    if (shared) stored_to_shared = true;
}

// True if all accesses of the stamp happened before the current one, in the block or in none.
static EMULATOR_INLINE bool settled(const Stamp& stamp, bool shared) {
    if (stamp.block != block_number) return shared || stamp.block == 0;
    if (stamp.readers == Readers::ONE_THREAD && stamp.thread == current->linear) return true;
    if (stamp.tick <= barrier_tick) return stamp.readers != Readers::BLOCKS;
    return stamp.readers <= Readers::ONE_WARP && same_warp(stamp) &&
           stamp.tick <= warp_tick[current->linear / WARP];
}

// Whether a read changes nothing: a barrier came after what was written, and who reads is known to
// be several threads that nothing orders since. A fence that comes later is later than all of them.
static EMULATOR_INLINE bool says_nothing(const Granule& granule) {
    const Stamp& read = granule.read;
    if (fences_in_use || (granule.write.block && granule.write.tick > barrier_tick)) return false;
    if (read.readers == Readers::BLOCKS) return true;
    if (read.block != block_number || read.tick <= barrier_tick) return false;
    return read.readers == Readers::ONE_BLOCK ||
           (read.readers == Readers::ONE_WARP && same_warp(read) &&
            read.tick > warp_tick[current->linear / WARP]);
}

// Most accesses: true if nothing is wrong with a plain one of a granule, which then knows of it;
// false leaves it to check_granule.
static EMULATOR_INLINE bool pass(const Region& region, Granule& granule, bool write,
                                 uintptr_t address) {
    bool shared = region.argument == SHARED;
    if (barriers_in_use || granule.write.copied || granule.write.pending ||
        !settled(granule.write, shared))
        return false;
    if (write) {
        if (!settled(granule.read, shared)) return false;
        restamp(granule.write, address, false);
        stored_to_shared |= shared;
        return true;
    }
    if (shared ? granule.write.block != block_number : region.empty && !granule.write.block)
        return false;  // nothing is in it
    if (says_nothing(granule)) return true;
    if (shared && granule.read.block != block_number) granule.read = {};
    record_read(granule.read, address);
    return true;
}

static bool on_own_stack(const unsigned char* pointer) {
    return reinterpret_cast<const char*>(pointer) >= current->stack &&
           reinterpret_cast<const char*>(pointer) < current->stack + STACK_STRIDE;
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

// Of Faults.atomics: arguments beyond the 62nd and all that is none share a bit.
static uint64_t bit_of(int argument) {
    return uint64_t(1) << (argument < 0 || argument > 62 ? 63 : argument);
}

// Whether an access of a thread's own variables, or of what is no array, is right.
static bool is_elsewhere(const unsigned char* pointer, bool write) {
    bool constant = !write && pointer >= __ehdr_start && pointer < _end && !is_dynamic(pointer);
    return constant || on_a_stack(pointer) || is_guard(pointer);
}

void grid_dependency_wait() {
    if (!dependent) return;
    if (!dependency_waits.empty() && dependency_waits[0].block != block_number)
        dependency_waits.clear();
    dependency_waits.push_back(now(0, Readers::ONE_THREAD, 0));
    past_dependency[current->linear] = block_number;
}

// Whether this thread has waited for the launch before, or what it does comes after another's wait.
static bool is_past_dependency() {
    unsigned& known_in = past_dependency[current->linear];
    auto ordered = [](const Stamp& wait) { return wait.block == block_number && !unordered(wait); };
    if (known_in != block_number &&
        std::any_of(dependency_waits.begin(), dependency_waits.end(), ordered))
        known_in = block_number;
    return known_in == block_number;
}

// An access to what the launch before writes, or a write to what it reads.
static void check_dependency(const Region& region, const Touch& touch) {
    bool write = touch.access != Access::READ, written = region.before == Before::WRITES;
    if (region.before == Before::NOTHING || !(write || written) || is_past_dependency()) return;
    record(
        located(describe("missing dependency wait", at(touch.address),
                         "%s {element}, which the launch before %s, ahead of griddepcontrol.wait",
                         write ? "writes" : "reads", written ? "writes" : "reads"),
                region, touch.pointer - region.begin));
}

// Shared memory of a cluster: that of another block has to be there; arrays of fixed size are those
// of all blocks here.
static void check_cluster(const Region& region, const Touch& touch) {
    must_be_there(at(touch.address), region.rank,
                  touch.access == Access::READ ? "reads" : "writes");
    if (region.name != DYNAMIC)
        fail(located(describe("impossible launch", at(touch.address),
                              "uses {element} in a cluster, where the emulator has no arrays of "
                              "fixed size: take extern __shared__ memory"),
                     region, touch.pointer - region.begin));
}

static void watch(const void* target, size_t bytes, Access access, Scope scope, uintptr_t address) {
    bool write = access != Access::READ;
    auto* pointer = static_cast<const unsigned char*>(target);
    settle_doubts();
    accesses++;
    last_access = address;
    if (on_own_stack(pointer)) {
        keep_touched(address, &stacks);
        if (barriers_in_use) check_registers(target, bytes, write, address);
        return;
    }
    Region* region = touched_at(address);
    if (!region || pointer < region->begin || pointer >= region->end()) region = find(pointer);
    if (!region && is_elsewhere(pointer, write)) return;
    if (!region || pointer + bytes > region->end())
        return report_bounds(pointer, bytes, write, address);
    keep_touched(address, region);
    if (access >= Access::ATOMIC) running->faults->atomics |= bit_of(region->argument);
    Touch touch{pointer, bytes, access, scope, address};
    if (dependent) check_dependency(*region, touch);
    if (clustered && region->argument == SHARED) check_cluster(*region, touch);
    region->constant &= !write;  // or the kernel has cast the const away
    if (region->constant) return;
    Span span = granules_of(*region, pointer, bytes);
    if (span.first == span.last) {
        Granule& granule = region->granules[span.first];
        bool plain = access < Access::ATOMIC && !clustered;
        if (!plain || !pass(*region, granule, write, address))
            check_granule(*region, span.first, touch);
        return;
    }
    Granule before{}, after{};
    for (size_t number = span.first; number <= span.last; number++) {
        Granule& granule = region->granules[number];
        if (number > span.first && same(granule, before)) {
            granule = after;
            continue;
        }
        before = granule;
        check_granule(*region, number, touch);
        after = granule;
    }
}

__attribute__((noinline)) void accessed(const void* target, size_t bytes, bool write,
                                        uintptr_t address) {
    if (counting) return count_access(target, bytes, write, address);
    if (watching)
        watch(target, bytes, write ? Access::WRITE : Access::READ, Scope::DEVICE, address);
}

// As `accessed`, by an instruction that touches what it touched before.
static EMULATOR_INLINE void accessed_again(const void* target, size_t bytes, bool write,
                                           uintptr_t address) {
    Region* region = touched_at(address);
    // With these false the compiler has no calls below and saves no registers.
    if (!region || doubtful || barriers_in_use || fences_in_use || lanes_in_use)
        return accessed(target, bytes, write, address);
    if (clustered) __builtin_unreachable();  // keep_touched
    size_t offset = static_cast<const unsigned char*>(target) - region->begin;
    if (offset >= region->bytes || bytes > region->bytes - offset)
        return accessed(target, bytes, write, address);
    if (region != &stacks && (write || !region->constant)) {
        size_t number = offset >> region->shift;
        bool one = (offset + bytes - 1) >> region->shift == number && fits(*region, offset | bytes);
        if (!region->granules || !one || !pass(*region, region->granules[number], write, address))
            return accessed(target, bytes, write, address);
    }
    accesses++;
    last_access = address;
}

void accessed_atomically(const void* target, size_t bytes, Scope scope, uintptr_t address,
                         bool reads) {
    if (counting) return count_access(target, bytes, true, address);
    if (!watching) return;
    if (reinterpret_cast<uintptr_t>(target) % bytes)
        fail(describe("misaligned access", at(address),
                      "makes an atomic access of %zu bytes to an address that is no multiple of it",
                      bytes));
    watch(target, bytes, reads ? Access::ATOMIC : Access::ATOMIC_STORE, scope, address);
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
    bytes = std::min(bytes, size_t(region->end() - pointer));  // reported if there are more
    Span span = granules_of(*region, pointer, bytes);
    for (size_t number = span.first; number <= span.last; number++)
        region->granules[number].write.pending = pending;
}

// What a thread stored, in shared memory, that a copy overwrites or a product reads: ordered, and
// fenced by that thread.
static void must_be_fenced(Site site, const Region& region, size_t number, const char* verb) {
    const Stamp& write = region.granules[number].write;
    size_t offset = number << region.shift;
    if (write.block != block_number || write.copied) return;
    if (unordered(write)) return record(race(region, offset, verb, write, "writes", 0));
    if (!is_fenced(write.thread, write.tick))
        record(located(describe("missing fence", at(site),
                                "%s {element}, which thread %s stored without fence.proxy.async",
                                verb, coordinates(write.thread).c_str()),
                       region, offset));
}

// A bulk copy begins to write.
void written_by_copy(Site site, const void* shared, size_t bytes, uintptr_t address) {
    if (!watching) return;
    auto* pointer = static_cast<const unsigned char*>(shared);
    Region* region = find(pointer);
    if (pointer + bytes > region->end()) {
        report_bounds(pointer, bytes, true, address);
        bytes = region->end() - pointer;
    }
    Granule before{}, after{now(address, Readers::ONE_THREAD, 0), {}};
    after.write.copied = after.write.pending = true;
    Span span = granules_of(*region, pointer, bytes);
    for (size_t number = span.first; number <= span.last; number++) {
        Granule& granule = region->granules[number];
        if (!same(granule, before)) {
            must_be_fenced(site, *region, number, "writes");
            if (granule.read.block == block_number && !granule.write.copied &&
                unordered(granule.read))
                record(race(*region, number << region->shift, "writes", granule.read, "reads",
                            address));
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
    Span span = granules_of(*region, pointer, bytes);
    for (size_t number = span.first; number <= span.last; number++) {
        const Stamp& write = region->granules[number].write;
        if (write.block == block_number && !write.copied) {
            record_read(region->granules[number].read, 0);
            const unsigned char* first = region->begin + (number << region->shift);
            if (barriers_in_use) read_by_thread(first, pointer + bytes - first);
        }
        if (number > span.first && same(write, region->granules[number - 1].write)) continue;
        if (write.block != block_number) suspect_stale(*region, number << region->shift, 0);
        if (write.copied && write.block == block_number)
            check_destination(at(site), region->begin + (number << region->shift), false);
        else
            must_be_fenced(site, *region, number, "reads");
    }
}

}  // namespace emulator

// ---- the functions that the compiler calls
using namespace emulator;
#define CALLER reinterpret_cast<uintptr_t>(__builtin_return_address(0))
#define ACCESS(bytes)                                                                       \
    void __tsan_read##bytes(void* p) { accessed_again(p, bytes, false, CALLER); }           \
    void __tsan_write##bytes(void* p) { accessed_again(p, bytes, true, CALLER); }           \
    void __tsan_unaligned_read##bytes(void* p) { accessed_again(p, bytes, false, CALLER); } \
    void __tsan_unaligned_write##bytes(void* p) { accessed_again(p, bytes, true, CALLER); }
extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* p, size_t bytes) { accessed_again(p, bytes, false, CALLER); }
void __tsan_write_range(void* p, size_t bytes) { accessed_again(p, bytes, true, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// The data that -fsanitize=undefined passes to its handlers begin with these (compiler-rt,
// lib/ubsan/ubsan_handlers.h).
struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeDescriptor {
    uint16_t kind, info;
    char name[1];  // as "'float [8]'"
};
struct Index {
    SourceLocation location;
    const TypeDescriptor* array;
};
struct Shift {
    SourceLocation location;
    const TypeDescriptor *number, *places;  // info: twice the binary logarithm of the bits, signed
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

void __ubsan_handle_out_of_bounds(Index* data, uintptr_t index) {
    if (!watching) return;
    Fault fault = describe("out of bounds", at(CALLER), "uses index %lld of {array} %s",
                           static_cast<long long>(index), data->array->name);
    fault.column = data->location.column;
    fail(fault);
}

// C++ leaves the result open. _with_shifts of __init__.py makes it that of a GPU.
void __ubsan_handle_shift_out_of_bounds(Shift* data, uintptr_t, uintptr_t places) {
    if (!watching) return;
    Fault fault = describe("undefined shift", at(CALLER),
                           "shifts a number of %u bits by %lld, which C++ leaves open; a GPU gives "
                           "0, or copies of the sign",
                           1u << (data->number->info >> 1), static_cast<long long>(places));
    fault.severity = NOTE;
    record(fault);
}

void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t) {
    if (watching) fail(describe("division by zero", at(CALLER), "divides by zero"));
}
}
