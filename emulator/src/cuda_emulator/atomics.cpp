// What atomics and fences order. Two atomics never race with each other where the scope of both
// covers the two threads. A thread that fenced and then makes an atomic access releases what it
// knows of its own accesses before the fence, and of those of its block before the last barrier
// before the fence, or before fences of their own before that barrier; a thread whose atomic access
// comes later to the same address acquires it, and its block with the next barrier (PTX ISA,
// "Memory Consistency Model": release and acquire patterns; the fence that the second thread needs
// is not asked for).
#include "runtime.h"

#include <algorithm>
#include <map>

namespace emulator {

namespace {

// Of each block up to which tick its releases are known.
using Known = std::map<unsigned, uint64_t>;

// What the threads of a block have released: of each, accesses up to a tick; and a thread's fences.
struct Fenced {
    std::vector<uint64_t> released, fence, fence_at_barrier;
};

struct Repeat {
    const void* pointer;
    unsigned times;
};

bool in_use;  // fences, by this launch
std::map<unsigned, Fenced> blocks;
std::map<const void*, Known> locations;
std::vector<Known> of_thread;  // of this block
Known of_block;
uint64_t barrier_tick;                       // of this block's last barrier
std::vector<uint64_t> barrier_before_fence;  // of each thread
std::vector<Repeat> repeats;

void join(Known& known, const Known& other) {
    for (auto [block, tick] : other) known[block] = std::max(known[block], tick);
}

void release(const void* pointer) {
    unsigned me = current->linear;
    Fenced& fenced = blocks[block_number];
    if (!fenced.fence[me]) return;
    for (size_t i = 0; i < fenced.released.size(); i++)
        fenced.released[i] =
            std::max({fenced.released[i], barrier_before_fence[me], fenced.fence_at_barrier[i]});
    fenced.released[me] = std::max(fenced.released[me], fenced.fence[me]);
    Known& known = locations[pointer];
    known[block_number] = next_tick();
    join(known, of_thread[me]);
    join(known, of_block);
}

}  // namespace

namespace {
struct Phases {
    uint32_t expected, missing, phase;
};
std::map<const void*, Phases> token_barriers;  // of this block
Phases& phases_at(Site site, const void* barrier) {
    auto entry = token_barriers.find(barrier);
    if (entry == token_barriers.end())
        fail(describe("bad barrier", at(site), "uses a barrier that nobody has initialised"));
    return entry->second;
}
}  // namespace

void begin_atomics_launch() {
    in_use = false;
    blocks.clear();
    locations.clear();
}

static void begin_fences(size_t threads) {
    of_thread.assign(threads, {});
    of_block.clear();
    barrier_before_fence.assign(threads, 0);
    barrier_tick = 0;
}

void begin_atomics_block(size_t threads) {
    repeats.assign(threads, {});
    token_barriers.clear();
    if (in_use) begin_fences(threads);
}

void pass_barrier_atomics() {
    if (!in_use) return;
    for (Known& known : of_thread) join(of_block, known), known.clear();
    barrier_tick = next_tick();
    auto block = blocks.find(block_number);
    if (block != blocks.end()) block->second.fence_at_barrier = block->second.fence;
}

void fence(Scope) {
    size_t threads = repeats.size();
    if (!in_use) {
        in_use = true;
        begin_fences(threads);
    }
    Fenced& fenced = blocks[block_number];
    if (fenced.fence.empty()) {
        fenced.released.assign(threads, 0);
        fenced.fence = fenced.fence_at_barrier = fenced.released;
    }
    fenced.fence[current->linear] = next_tick();
    barrier_before_fence[current->linear] = barrier_tick;
}

bool ordered_by_fences(unsigned block, unsigned thread, uint64_t tick, bool alone) {
    if (!in_use) return false;
    auto fenced = blocks.find(block);
    if (fenced == blocks.end()) return false;
    auto known = [block](const Known& known) {
        auto entry = known.find(block);
        return entry == known.end() ? 0 : entry->second;
    };
    uint64_t until = std::max(known(of_block), known(of_thread[current->linear]));
    const std::vector<uint64_t>& released = fenced->second.released;
    if (tick > until) return false;
    return alone ? tick <= released[thread]
                 : std::all_of(released.begin(), released.end(),
                               [tick](uint64_t each) { return tick <= each; });
}

// A thread that asks for the same again and again lets the others go on.
static void let_others_go_on(const void* pointer) {
    Repeat& repeat = repeats[current->linear];
    repeat.times = repeat.pointer == pointer ? repeat.times + 1 : 0;
    repeat.pointer = pointer;
    if (repeat.times >= 64) yield();
}

void atomic_access(const void* pointer, size_t bytes, Scope scope, uintptr_t address) {
    let_others_go_on(pointer);
    accessed_atomically(pointer, bytes, scope, address);
    if (!in_use || !watching_accesses()) return;
    if (blocks.count(block_number)) release(pointer);
    auto location = locations.find(pointer);
    if (location != locations.end()) join(of_thread[current->linear], location->second);
}

// ---- cuda::barrier: who waits for a phase knows what those that arrived had done

void token_barrier_init(const void* barrier, unsigned count) {
    token_barriers[barrier] = {count, count, 0};
}

unsigned token_barrier_arrive(Site site, const void* barrier, unsigned times, bool drops) {
    Phases& phases = phases_at(site, barrier);
    unsigned token = phases.phase;
    if (phases.missing < times)
        fail(describe("bad barrier", at(site), "arrives at a phase for which all %u have arrived",
                      phases.expected));
    fence(Scope::BLOCK);
    release(barrier);
    phases.expected -= drops;
    phases.missing -= times;
    if (!phases.missing) {
        phases.phase++;
        phases.missing = phases.expected;
        wake_tokens(barrier);
    }
    return token;
}

void token_barrier_wait(Site site, const void* barrier, unsigned token) {
    while (phases_at(site, barrier).phase == token) wait_for_token(site, barrier);
    if (in_use) join(of_thread[current->linear], locations[barrier]);
}

uintptr_t code_address() { return reinterpret_cast<uintptr_t>(__builtin_return_address(0)); }

}  // namespace emulator
