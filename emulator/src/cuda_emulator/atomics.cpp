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

bool fences_in_use;

namespace {

// Of each block up to which tick its releases are known.
using Known = std::map<unsigned, uint64_t>;

// What the threads of a block have released: of each, accesses up to a tick; its last fence, that
// before the last barrier, and the last barrier before its fence.
struct Fenced {
    std::vector<uint64_t> released, fence, fence_at_barrier, barrier_before;
    explicit Fenced(size_t threads = 0)
        : released(threads), fence(threads), fence_at_barrier(threads), barrier_before(threads) {}
};

struct Repeat {
    const void* pointer;
    unsigned times;
};

std::map<unsigned, Fenced> blocks[2];  // by scope of the fences
std::map<const void*, Known> locations;
std::vector<Known> of_thread;  // of this block
Known of_block;
std::vector<Repeat> repeats;

void join(Known& known, const Known& other) {
    for (auto [block, tick] : other) known[block] = std::max(known[block], tick);
}

void release(const void* pointer) {
    unsigned me = current->linear;
    for (auto& of_scope : blocks) {
        auto entry = of_scope.find(block_number);
        if (entry == of_scope.end() || !entry->second.fence[me]) continue;
        Fenced& fenced = entry->second;
        for (size_t i = 0; i < fenced.released.size(); i++)
            fenced.released[i] = std::max(
                {fenced.released[i], fenced.barrier_before[me], fenced.fence_at_barrier[i]});
        fenced.released[me] = std::max(fenced.released[me], fenced.fence[me]);
        Known& known = locations[pointer];
        known[block_number] = next_tick();
        join(known, of_thread[me]);
        join(known, of_block);
    }
}

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
    fences_in_use = false;
    for (auto& of_scope : blocks) of_scope.clear();
    locations.clear();
}

static void begin_fences(size_t threads) {
    of_thread.assign(threads, {});
    of_block.clear();
}

void begin_atomics_block(size_t threads) {
    repeats.assign(threads, {});
    token_barriers.clear();
    if (fences_in_use) begin_fences(threads);
}

void pass_barrier_atomics() {
    if (!fences_in_use) return;
    for (Known& known : of_thread) join(of_block, known), known.clear();
    for (auto& of_scope : blocks) {
        auto block = of_scope.find(block_number);
        if (block != of_scope.end()) block->second.fence_at_barrier = block->second.fence;
    }
}

// One of the device is one of the block too.
void fence(Scope scope) {
    if (!watching_accesses()) return;
    size_t threads = repeats.size(), me = current->linear;
    if (!fences_in_use) {
        fences_in_use = true;
        begin_fences(threads);
    }
    for (int i = 0; i <= int(scope); i++) {
        Fenced& fenced = blocks[i].try_emplace(block_number, threads).first->second;
        fenced.fence[me] = next_tick();
        fenced.barrier_before[me] = barrier_tick;
    }
}

bool ordered_by_fences(unsigned block, unsigned thread, uint64_t tick, bool alone) {
    auto& of_scope = blocks[int(block == block_number ? Scope::BLOCK : Scope::DEVICE)];
    auto fenced = of_scope.find(block);
    if (fenced == of_scope.end()) return false;
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

void atomic_access(const void* pointer, size_t bytes, Scope scope, uintptr_t address, bool reads) {
    let_others_go_on(pointer);
    accessed_atomically(pointer, bytes, scope, address, reads);
    if (!fences_in_use || !watching_accesses()) return;
    release(pointer);
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
    if (fences_in_use) release(barrier);
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
    if (fences_in_use) join(of_thread[current->linear], locations[barrier]);
}

uintptr_t code_address() { return reinterpret_cast<uintptr_t>(__builtin_return_address(0)); }

}  // namespace emulator
