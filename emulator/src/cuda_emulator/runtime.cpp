// Runs a launch: one block after another, each CUDA thread a fiber on this one OS thread. A thread
// runs until it waits at a barrier or a warp operation; the order in which waiting threads go on is
// the launch's (forward, reverse or random).
#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

// switch_stack(&save, to): store the callee-saved registers on this stack and its pointer in
// `save`; go on at `to`.
extern "C" void emulator_switch_stack(void** save, void* to);
#if defined(__x86_64__)
asm(R"(.text
.hidden emulator_switch_stack
.globl emulator_switch_stack
.type emulator_switch_stack,@function
emulator_switch_stack:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp,(%rdi)
    mov %rsi,%rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulator_switch_stack,.-emulator_switch_stack)");
constexpr int SAVED_WORDS = 8,
              RETURN_WORD =
                  6;  // six registers, the return address, and one to keep the stack aligned
#elif defined(__aarch64__)
asm(R"(.text
.hidden emulator_switch_stack
.globl emulator_switch_stack
.type emulator_switch_stack,%function
emulator_switch_stack:
    sub sp,sp,#160
    stp x19,x20,[sp,#0]
    stp x21,x22,[sp,#16]
    stp x23,x24,[sp,#32]
    stp x25,x26,[sp,#48]
    stp x27,x28,[sp,#64]
    stp x29,x30,[sp,#80]
    stp d8,d9,[sp,#96]
    stp d10,d11,[sp,#112]
    stp d12,d13,[sp,#128]
    stp d14,d15,[sp,#144]
    mov x9,sp
    str x9,[x0]
    mov sp,x1
    ldp x19,x20,[sp,#0]
    ldp x21,x22,[sp,#16]
    ldp x23,x24,[sp,#32]
    ldp x25,x26,[sp,#48]
    ldp x27,x28,[sp,#64]
    ldp x29,x30,[sp,#80]
    ldp d8,d9,[sp,#96]
    ldp d10,d11,[sp,#112]
    ldp d12,d13,[sp,#128]
    ldp d14,d15,[sp,#144]
    add sp,sp,#160
    ret
.size emulator_switch_stack,.-emulator_switch_stack)");
constexpr int SAVED_WORDS = 20, RETURN_WORD = 11;
#else
#error "the emulator has no context switch for this processor"
#endif

// where this library was loaded
extern "C" unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" {
thread_local unsigned char emulator_shared_anchor;  // the kernels' __shared__ arrays lie about it
}

namespace emulator {

Thread* current;
const Launch* running;
unsigned block_number;
uint64_t barrier_tick;
bool clustered;
unsigned block_threads;
uintptr_t last_access;
uint64_t ticks;
std::vector<uint64_t> warp_tick;

static std::vector<Thread> threads;
static std::vector<unsigned> order;  // the threads of a block, in the order they run
static size_t next_new;              // order[next_new...] have not begun
static size_t cursor;                // order[cursor...] are still to run in this round
// Of a block of the cluster: threads that wait at the barrier where the first of them waits, and its
// number; barriers that it has passed, and when the last one; votes of this one and the next.
struct Arrived {
    size_t count;
    int at;
    unsigned passed;
    uint64_t tick;
    int votes[2];
};
static Arrived arrived[MOST_BLOCKS];
// The cluster's barrier: how often, and when, all had arrived, and when each thread last had.
static unsigned cluster_phase;
static uint64_t cluster_tick;
static std::vector<uint64_t> cluster_arrivals, arrivals_of_phase;
static std::vector<char*> free_stacks;
static void* scheduler_stack;
static bool failed, ended;            // the block, the launch
static std::vector<unsigned> blocks;  // in the order they run; of a cluster its first
static unsigned block_index[MOST_BLOCKS][3];
static void (*entry)(void**);

constexpr unsigned char POISON = 0xff;  // as float32 a NaN, as an integer -1
alignas(1024) static unsigned char dynamic_bytes[MOST_BLOCKS][MOST_SHARED_BYTES + RED_ZONE];

unsigned coordinate(int which) {
    const uint32_t* values[] = {current->index, block_index[current->rank], running->block,
                                running->grid};
    return values[which / 3][which % 3];
}

unsigned lane() { return current->linear % WARP; }

unsigned thread_number() { return current->linear % block_threads; }

unsigned char* dynamic_shared_of(unsigned rank) { return dynamic_bytes[rank]; }
unsigned char* dynamic_shared() { return dynamic_bytes[current->rank]; }

unsigned char* address_of(const SharedArray& array) {
    return &emulator_shared_anchor + array.offset;
}

// Dynamic shared memory begins at 1024 on Hopper too, behind what the system takes. Arrays of the
// kernel are behind it here, with the alignment that they have.
constexpr unsigned SYSTEM_SHARED = 1024, MOST_ALIGNED = 1024;

// From this bit on an address has a number above 0 where it is of a block of the cluster.
constexpr unsigned RANK_BITS = 24;

static unsigned first_array() {
    return SYSTEM_SHARED + (running->shared_bytes + MOST_ALIGNED - 1) / MOST_ALIGNED * MOST_ALIGNED;
}

static const unsigned char* arrays_begin() {
    const unsigned char* begin = nullptr;
    for (uint64_t i = 0; i < running->shared_array_count; i++) {
        const unsigned char* array = address_of(running->shared_arrays[i]);
        if (!begin || array < begin) begin = array;
    }
    return begin - reinterpret_cast<uintptr_t>(begin) % MOST_ALIGNED;
}

unsigned shared_address(const void* shared) {
    auto* pointer = static_cast<const unsigned char*>(shared);
    if (!is_dynamic(shared)) return first_array() + (pointer - arrays_begin());
    unsigned rank = rank_of(shared), address = SYSTEM_SHARED + (pointer - dynamic_bytes[rank]);
    return rank == current->rank ? address : address_in_block(address, rank);
}

void* generic_address(uint64_t address) {
    if (address >> RANK_BITS)
        return in_block(generic_address(address & ((1u << RANK_BITS) - 1)),
                        (address >> RANK_BITS) - 1);
    return address < first_array() ? dynamic_shared() + (address - SYSTEM_SHARED)
                                   : const_cast<unsigned char*>(arrays_begin()) +
                                         (int64_t(address) - int64_t(first_array()));
}

unsigned char* shared_pointer(unsigned address) {
    if (address >= SYSTEM_SHARED && address < SYSTEM_SHARED + running->shared_bytes)
        return dynamic_shared() + address - SYSTEM_SHARED;
    for (uint64_t i = 0; i < running->shared_array_count; i++) {
        unsigned char* array = address_of(running->shared_arrays[i]);
        unsigned first = shared_address(array);
        if (address >= first && address < first + running->shared_arrays[i].bytes)
            return array + (address - first);
    }
    return nullptr;
}

Fault without_thread(const char* kind) {
    Fault fault{};
    snprintf(fault.kind, sizeof fault.kind, "%s", kind);
    fault.argument = NOWHERE;
    fault.times = 1;
    return fault;
}

Fault describe(const char* kind, Place place, const char* format, ...) {
    Fault fault = without_thread(kind);
    auto base = reinterpret_cast<uintptr_t>(__ehdr_start);
    snprintf(fault.file, sizeof fault.file, "%s", place.file);
    fault.line = place.line;
    fault.address = place.address ? place.address - base : 0;
    fault.other_address = place.other_address ? place.other_address - base : 0;
    size_t length = snprintf(fault.message, sizeof fault.message,
                             "thread (%u,%u,%u) of block (%u,%u,%u) ", current->index[0],
                             current->index[1], current->index[2], block_index[current->rank][0],
                             block_index[current->rank][1], block_index[current->rank][2]);
    va_list rest;
    va_start(rest, format);
    vsnprintf(fault.message + length, sizeof fault.message - length, format, rest);
    va_end(rest);
    return fault;
}

void report(const Fault& fault) {
    failed = true;
    ended = keep(fault);
}

void leave() {
    void* abandoned;
    emulator_switch_stack(&abandoned, scheduler_stack);
    abort();
}

void fail(const Fault& fault) {
    report(fault);
    leave();
}

void end_launch() {
    failed = ended = true;
    leave();
}

void record(const Fault& fault) {
    if (keep(fault)) end_launch();
}

static std::string as_text(const unsigned (&index)[3]) {
    return "(" + std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
           std::to_string(index[2]) + ")";
}

std::string coordinates(unsigned thread) { return as_text(threads[thread].index); }

static void index_of_block(unsigned number, unsigned rank, unsigned (&index)[3]) {
    for (unsigned axis = 0, rest = number; axis < 3; rest /= running->grid[axis++]) {
        index[axis] = rest % running->grid[axis] + rank % running->cluster[axis];
        rank /= running->cluster[axis];
    }
}

std::string block_coordinates(unsigned run_as, unsigned thread) {
    unsigned index[3];
    index_of_block(blocks[run_as - 1], thread / block_threads, index);
    return as_text(index);
}

std::string block_of(unsigned rank) { return as_text(block_index[rank]); }

// ---- fibers

constexpr size_t STACK_STEP = 5 * 64;  // by which their beginnings differ, odd in lines of a cache

// So many of them with a page before it that nothing may touch. A process of its own has others.
static char* new_stacks(size_t guarded) {
    void* stacks = mmap(nullptr, ALL_STACKS, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) abort();
    for (size_t i = 0; i < guarded; i++)
        mprotect(static_cast<char*>(stacks) + i * STACK_STRIDE, PAGE, PROT_NONE);
    return static_cast<char*>(stacks);
}

static void begin_stacks() {
    if (!*running->stacks)
        *running->stacks = new_stacks(running->seconds ? threads.size() : MOST_THREADS);
    free_stacks.clear();
    for (size_t i = threads.size(); i > 0; i--)
        free_stacks.push_back(*running->stacks + (i - 1) * STACK_STRIDE);
}

bool on_a_stack(const void* address) {
    return address >= *running->stacks && address < *running->stacks + ALL_STACKS;
}

static void begin(Thread& thread);

// What the switches to the threads after the next one touch is mostly in no fast cache.
static EMULATOR_INLINE void fetch_soon() {
    size_t last = order.size() - 1;
    __builtin_prefetch(&threads[order[std::min(cursor + 2, last)]]);
    auto stack = static_cast<char*>(threads[order[std::min(cursor, last)]].stack_pointer);
    for (int line = 0; line < 4; line++) __builtin_prefetch(stack + 64 * line);
}

// The next thread of this round that can run; null at the round's end.
static Thread* next_thread() {
    while (cursor < order.size()) {
        Thread& thread = threads[order[cursor++]];
        fetch_soon();
        if (thread.state == State::NEW) begin(thread);
        if (thread.state == State::READY) return &thread;
    }
    return nullptr;
}

// The running thread waits, without a way round by the scheduler where another one can run.
static void run_others() {
    Thread *me = current, *next = next_thread();
    if (next) current = next;
    emulator_switch_stack(&me->stack_pointer, next ? next->stack_pointer : scheduler_stack);
}

static void pause(State state, Site site) {
    settle_doubts();
    current->state = state;
    current->site = site;
    run_others();
}

// Runs threads that have not begun, one after another, until one has to wait: without barriers one
// fiber does them all.
static void run_fiber() {
    for (;;) {
        entry(running->arguments);
        settle_doubts();
        end_thread_hopper();
        current->state = State::DONE;
        if (counting) end_thread_counts();
        if (next_new == order.size()) break;
        Thread* next = &threads[order[next_new++]];
        std::swap(next->stack, current->stack);
        current = next;
    }
    leave();
}

static void resume(Thread& thread) {
    current = &thread;
    emulator_switch_stack(&scheduler_stack, thread.stack_pointer);
    if (current->state == State::DONE || failed) {
        free_stacks.push_back(current->stack);
        current->stack = nullptr;
    }
}

static void begin(Thread& thread) {
    thread.stack = free_stacks.back();
    free_stacks.pop_back();
    size_t number = (thread.stack - *running->stacks) / STACK_STRIDE;
    char* end = thread.stack + STACK_STRIDE - number * STACK_STEP % PAGE;
    void** top = reinterpret_cast<void**>(end) - SAVED_WORDS;
    std::fill(top, top + SAVED_WORDS, nullptr);
    top[RETURN_WORD] = reinterpret_cast<void*>(run_fiber);
    thread.stack_pointer = top;
    thread.state = State::READY;
    next_new++;
}

// ---- barriers and warp operations

void syncthreads(Site site) {
    Arrived& here = arrived[current->rank];
    if (!here.count) here.at = site.id;
    here.count += site.id == here.at;
    pause(State::AT_BARRIER, site);
}

int syncthreads_count(Site site, bool predicate) {
    Arrived& here = arrived[current->rank];
    int& mine = here.votes[here.passed % 2];
    mine += predicate;
    syncthreads(site);
    return mine;
}

unsigned active_lanes(Site site) {
    pause(State::AT_MEETING, site);
    return current->mask;
}

// Of each warp the lanes that wait in the first lane's place become a group.
static bool hold_meetings() {
    bool met = false;
    for (size_t first = 0; first < threads.size(); first += WARP) {
        unsigned mask = 0;
        const Thread* leader = nullptr;
        for (unsigned l = 0; l < WARP && first + l < threads.size(); l++) {
            Thread& thread = threads[first + l];
            if (thread.state != State::AT_MEETING) continue;
            if (!leader) leader = &thread;
            if (thread.site.id == leader->site.id) mask |= 1u << l;
        }
        for (unsigned l = 0; l < WARP; l++)
            if (mask >> l & 1)
                threads[first + l].mask = mask, threads[first + l].state = State::READY;
        met |= mask != 0;
    }
    return met;
}

void yield() { pause(State::READY, current->site); }

void wait_for_token(Site site, const void* barrier) {
    current->token_barrier = barrier;
    pause(State::AT_TOKEN, site);
}

void wake_tokens(const void* barrier) {
    for (Thread& thread : threads)
        if (thread.state == State::AT_TOKEN && thread.token_barrier == barrier)
            thread.state = State::READY;
}

void pass_barrier(unsigned rank) {
    if (counting) count_barrier();
    Arrived& here = arrived[rank];
    barrier_tick = here.tick = next_tick();
    pass_barrier_atomics();
    here.votes[++here.passed % 2] = 0;
    pass_barrier_hopper(rank * block_threads, block_threads);
}

// ---- clusters

unsigned cluster_rank() { return current->rank; }
unsigned cluster_blocks() { return threads.size() / block_threads; }

static size_t offset_of(const void* shared) {
    return static_cast<const unsigned char*>(shared) - dynamic_bytes[0];
}
bool is_dynamic(const void* shared) { return offset_of(shared) < sizeof dynamic_bytes; }
unsigned rank_of(const void* shared) {
    return is_dynamic(shared) ? offset_of(shared) / sizeof dynamic_bytes[0] : current->rank;
}

void* in_block(const void* shared, unsigned rank) {
    auto* pointer = static_cast<const unsigned char*>(shared);
    return dynamic_bytes[rank % MOST_BLOCKS] + (pointer - dynamic_bytes[rank_of(shared)]);
}

unsigned address_in_block(unsigned address, unsigned rank) {
    return (address & ((1u << RANK_BITS) - 1)) | (rank + 1) << RANK_BITS;
}

bool has_ended(unsigned rank) {
    return std::all_of(threads.begin() + rank * block_threads,
                       threads.begin() + (rank + 1) * block_threads,
                       [](const Thread& thread) { return thread.state == State::DONE; });
}

void must_be_there(Place place, unsigned rank, const char* verb) {
    if (rank == current->rank) return;
    if (rank >= cluster_blocks())
        fail(describe("bad cluster", place, "%s shared memory of block %u of a cluster of %u", verb,
                      rank, cluster_blocks()));
    bool over = has_ended(rank);
    if (over || !current->cluster_tick)
        fail(describe("missing cluster barrier", place,
                      "%s shared memory of block %s, which may %s", verb, block_of(rank).c_str(),
                      over ? "have ended" : "not have begun"));
}

void cluster_arrive(Site site) {
    if (current->arrivals > current->waits)
        fail(describe("bad cluster", at(site), "arrives again without waiting between"));
    current->arrivals++;
    cluster_arrivals[current->linear] = next_tick();
}

void cluster_wait(Site site) {
    if (current->arrivals == current->waits)
        fail(describe("bad cluster", at(site), "waits at the cluster's barrier before it arrives"));
    if (cluster_phase == current->waits) pause(State::AT_CLUSTER, site);
    current->waits++;
    current->cluster_tick = cluster_tick;
}

// Where all that have not ended have arrived, those that wait go on; false where none waits so.
static bool release_cluster() {
    bool waits = false;
    for (Thread& thread : threads) {
        if (thread.state == State::DONE) continue;
        if (thread.arrivals <= cluster_phase) return false;
        waits |= thread.state == State::AT_CLUSTER;
    }
    if (!waits) return false;
    cluster_phase++;
    cluster_tick = next_tick();
    arrivals_of_phase = cluster_arrivals;
    pass_barrier_hopper(0, threads.size());
    for (Thread& thread : threads)
        if (thread.state == State::AT_CLUSTER) thread.state = State::READY;
    for (unsigned rank = 0; rank < cluster_blocks(); rank++) arrived[rank].tick = cluster_tick;
    barrier_tick = cluster_tick;
    return true;
}

uint64_t barrier_tick_in_cluster() { return arrived[current->rank].tick; }

bool ordered_by_cluster(unsigned thread, uint64_t tick, bool alone) {
    if (tick > current->cluster_tick) return false;
    bool last = alone && current->cluster_tick == cluster_tick;
    return !last || tick <= arrivals_of_phase[thread];
}

void wait_for_phase(Site site) { pause(State::AT_PHASE, site); }

void wake_those_at(void* barrier) {
    for (Thread& thread : threads)
        if (thread.state == State::AT_PHASE && waits_at(thread.linear, barrier))
            thread.state = State::READY;
}

std::vector<Thread*> meet(Site site, unsigned first, unsigned count) {
    current->state = State::AT_WARPGROUP;
    current->site = site;
    for (unsigned i = first; i < first + count; i++)
        if (i >= threads.size() || threads[i].state != State::AT_WARPGROUP ||
            threads[i].site.line != site.line) {
            run_others();
            return {};
        }
    std::vector<Thread*> all;
    for (Thread& thread : threads) all.push_back(&thread);
    return all;
}

void collective(Site site, unsigned mask, Combine combine, Operand* operand) {
    settle_doubts();
    Thread* me = current;
    unsigned first = me->linear - lane();
    if (!(mask >> lane() & 1))
        fail(describe("divergent warp operation", at(site), "is not in its own mask %08x", mask));
    me->mask = mask;
    me->combine = combine;
    me->operand = operand;
    me->state = State::AT_WARP;
    me->site = site;
    Operand* operands[WARP] = {};
    // that for which the last lane waited comes first: it is mostly the one that is still missing
    unsigned& missing = threads[first].missing;
    for (unsigned i = 0, begin = missing; i < WARP; i++) {
        unsigned l = (begin + i) % WARP;
        if (!(mask >> l & 1) || first + l >= threads.size()) continue;
        Thread& other = threads[first + l];
        if (other.state != State::AT_WARP || other.mask != mask || other.site.id != site.id) {
            missing = l;
            return run_others();
        }
        operands[l] = other.operand;
    }
    combine(operands);
    for (unsigned l = 0; l < WARP; l++)
        if (operands[l]) threads[first + l].state = State::READY;
}

// Up to when each lane knows the accesses of the others of its warp, where a synchronisation of
// some of the lanes told it.
struct LaneClocks {
    uint64_t known[WARP][WARP];
};
bool lanes_in_use;
static std::vector<LaneClocks> lane_clocks;  // none until some lanes are synchronised

static void pass_some_lanes(Operand** of_lane) {
    lane_clocks.resize(warp_tick.size());
    lanes_in_use = true;
    auto& known = lane_clocks[current->linear / WARP].known;
    uint64_t now = next_tick(), most[WARP] = {};
    for (unsigned l = 0; l < WARP; l++) {
        if (!of_lane[l]) continue;
        known[l][l] = now;
        for (unsigned other = 0; other < WARP; other++)
            most[other] = std::max(most[other], known[l][other]);
    }
    for (unsigned l = 0; l < WARP; l++)
        if (of_lane[l]) std::copy(most, most + WARP, known[l]);
}

bool lanes_ordered(unsigned other, uint64_t tick) {
    unsigned warp = current->linear / WARP;
    return warp < lane_clocks.size() && lane_clocks[warp].known[lane()][other % WARP] >= tick;
}

static void pass_warp(Operand** of_lane) {
    unsigned first = current->linear - lane();
    for (unsigned l = 0; l < WARP && first + l < threads.size(); l++)
        if (!of_lane[l]) return pass_some_lanes(of_lane);
    warp_tick[current->linear / WARP] = next_tick();
    pass_warp_hopper();
}

static void count_votes(Operand** of_lane) {
    uint64_t votes = 0;
    for (unsigned l = 0; l < WARP; l++)
        if (of_lane[l]) votes |= of_lane[l]->value << l;
    for (unsigned l = 0; l < WARP; l++)
        if (of_lane[l]) of_lane[l]->result = votes;
}

static void exchange(Operand** of_lane) {
    for (unsigned l = 0; l < WARP; l++) {
        if (!of_lane[l]) continue;
        Operand* from = of_lane[of_lane[l]->source % WARP];
        of_lane[l]->result = from ? from->value : ~uint64_t(0);
    }
}

void syncwarp(Site site, unsigned mask) {
    Operand nothing{};
    collective(site, mask, pass_warp, &nothing);
}

unsigned ballot(Site site, unsigned mask, bool predicate) {
    Operand operand{predicate, 0, 0};
    collective(site, mask, count_votes, &operand);
    return operand.result;
}

uint64_t shuffle(Site site, unsigned mask, uint64_t bits, unsigned source) {
    if ((mask >> lane() & 1) && !(mask >> source % WARP & 1))
        record(describe("undefined shuffle", at(site),
                        "takes the value of lane %u, which is not in the mask %08x", source % WARP,
                        mask));
    Operand operand{bits, 0, source};
    collective(site, mask, exchange, &operand);
    return operand.result;
}

// ---- what kernels say and ask

long long clock_ticks() { return next_tick(); }

void failed_assertion(Site site, const char* condition) {
    fail(describe("failed assertion", at(site), "finds that %s does not hold", condition));
}

void sync_grid(Site site) {
    fail(describe("impossible launch", at(site), "synchronises the grid, which has no model here"));
}

void trapped(Site site) { fail(describe("trap", at(site), "calls __trap")); }

// Once, although a check runs a kernel in several orders.
void print(const char* format, ...) {
    if (running->order) return;
    va_list rest;
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    fflush(stdout);
}

// ---- cp.async: NaN in the destination until the issuing thread waits for the copy

void cp_async(unsigned bytes, void* shared, const void* global, bool valid, Site site) {
    uintptr_t address = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    if (bytes != 4 && bytes != 8 && bytes != 16)
        fail(describe("bad cp.async", at(site), "copies %u bytes, not 4, 8 or 16", bytes));
    if (reinterpret_cast<uintptr_t>(shared) % bytes ||
        (valid && reinterpret_cast<uintptr_t>(global) % bytes))
        fail(describe("misaligned access", at(site),
                      "copies %u bytes to or from an address that is no multiple of it", bytes));
    must_be_shared(site, shared, "cp.async");
    if (valid) accessed(global, bytes, false, address);
    accessed(shared, bytes, true, address);
    copy_pending(shared, bytes, true);
    memset(shared, POISON, bytes);
    current->copies.push_back({static_cast<unsigned char*>(shared),
                               static_cast<const unsigned char*>(global), bytes,
                               current->copy_group, valid, address});
}

void cp_async_commit_group() { current->copy_group++; }

void wait_for_copies(unsigned groups_left) {
    auto& copies = current->copies;
    auto waits = [&](const Copy& copy) { return copy.group + groups_left < current->copy_group; };
    for (const Copy& copy : copies) {
        if (!waits(copy)) continue;
        if (copy.valid)
            memcpy(copy.shared, copy.global, copy.bytes);
        else
            memset(copy.shared, 0, copy.bytes);
        copy_pending(copy.shared, copy.bytes, false);
        if (!counting) accessed(copy.shared, copy.bytes, true, copy.address);
    }
    copies.erase(std::remove_if(copies.begin(), copies.end(), waits), copies.end());
}

// ---- the scheduler

static void arrange(std::vector<unsigned>& items, std::mt19937& random) {
    if (running->order == 1) std::reverse(items.begin(), items.end());
    if (running->order > 1) std::shuffle(items.begin(), items.end(), random);
}

static void begin_block(unsigned number, std::mt19937& random) {
    const uint32_t* block = running->block;
    for (unsigned rank = 0; rank < cluster_blocks(); rank++) {
        index_of_block(number, rank, block_index[rank]);
        arrived[rank] = {};
        memset(dynamic_bytes[rank], POISON, running->shared_bytes + RED_ZONE);
    }
    cluster_phase = 0;
    cluster_tick = 0;
    cluster_arrivals.assign(threads.size(), 0);
    block_number++;
    barrier_tick = 0;
    warp_tick.assign(warp_tick.size(), 0);
    lane_clocks.clear();
    lanes_in_use = false;
    begin_hopper(threads.size());
    begin_atomics_block(threads.size());
    for (unsigned i = 0; i < threads.size(); i++) {
        Thread& thread = threads[i];
        unsigned own = i % block_threads;
        unsigned index[3] = {own % block[0], own / block[0] % block[1],
                             own / (block[0] * block[1])};
        std::copy(index, index + 3, thread.index);
        thread.linear = i;
        thread.rank = i / block_threads;
        thread.arrivals = thread.waits = 0;
        thread.cluster_tick = 0;
        thread.state = State::NEW;
        thread.stack = nullptr;
        thread.copy_group = 0;
        thread.copies.clear();
        order[i] = i;
    }
    arrange(order, random);
    next_new = 0;
    for (uint64_t i = 0; i < running->shared_array_count; i++)
        if (running->shared_arrays[i].name[0])
            memset(address_of(running->shared_arrays[i]), POISON, running->shared_arrays[i].bytes);
}

// All unfinished threads wait and none can go on: report why, unless all are at one barrier.
static void report_waiting() {
    unsigned done = 0, waiting = 0;
    Thread *at_barrier = nullptr, *at_warp = nullptr, *elsewhere = nullptr, *at_phase = nullptr,
           *at_warpgroup = nullptr, *at_token = nullptr, *at_cluster = nullptr;
    for (Thread& thread : threads) {
        if (thread.state == State::DONE)
            done++;
        else if (thread.state == State::AT_WARP)
            at_warp = at_warp ? at_warp : &thread;
        else if (thread.state == State::AT_PHASE)
            at_phase = &thread;
        else if (thread.state == State::AT_TOKEN)
            at_token = &thread;
        else if (thread.state == State::AT_WARPGROUP)
            at_warpgroup = &thread;
        else if (thread.state == State::AT_CLUSTER)
            at_cluster = &thread;
        else if (!at_barrier || thread.site.id == at_barrier->site.id)
            at_barrier = at_barrier ? at_barrier : &thread, waiting++;
        else
            elsewhere = &thread;
    }
    unsigned total = threads.size();
    current = at_token       ? at_token
              : at_warpgroup ? at_warpgroup
              : at_phase     ? at_phase
              : at_warp      ? at_warp
              : at_cluster   ? at_cluster
                             : at_barrier;
    Place place = at(current->site);
    if (at_token)
        report(describe("deadlock", place, "waits at a barrier at which too few threads arrive"));
    else if (at_warpgroup)
        report(
            describe("divergent warpgroup operation", place, "waits with threads that never come"));
    else if (at_phase)
        report(describe("deadlock", place, "%s", why_waiting().c_str()));
    else if (at_warp)
        report(describe("divergent warp operation", place,
                        "waits in a warp operation (mask %08x) for lanes that never come; %u of %u "
                        "threads have returned, %u wait at a __syncthreads",
                        at_warp->mask, done, total, waiting));
    else if (at_cluster)
        report(describe("deadlock", place,
                        "waits at the cluster's barrier, at which not all threads arrive"));
    else if (elsewhere)
        report(describe("divergent barrier", place,
                        "waits at one __syncthreads, thread (%u,%u,%u) at another, line %d",
                        elsewhere->index[0], elsewhere->index[1], elsewhere->index[2],
                        elsewhere->site.line));
    else if (done)
        report(describe("divergent barrier", place,
                        "waits at a __syncthreads that %u of %u threads never reached", done,
                        total));
}

// Whether all threads of a block wait at one barrier.
static bool all_at_barrier(unsigned rank) { return arrived[rank].count == block_threads; }
static bool is_released() {
    for (unsigned rank = 0; rank < cluster_blocks(); rank++)
        if (all_at_barrier(rank)) return true;
    return false;
}

static void release_barriers() {
    for (unsigned rank = 0; rank < cluster_blocks(); rank++) {
        if (!all_at_barrier(rank)) continue;
        arrived[rank].count = 0;
        for (unsigned i = rank * block_threads; i < (rank + 1) * block_threads; i++)
            threads[i].state = State::READY;
        pass_barrier(rank);
    }
}

static void release_some() {
    if (is_released())
        release_barriers();
    else if (!release_cluster())
        report_waiting();
}

static void check_red_zone() {
    if (running->buffer_count) return;  // every access is watched
    const unsigned char* end = dynamic_shared() + running->shared_bytes;
    if (std::all_of(end, end + RED_ZONE, [](unsigned char byte) { return byte == POISON; })) return;
    report(describe("shared memory overflow", Place{},
                    "or another of its block wrote past the %llu bytes of dynamic shared memory",
                    static_cast<unsigned long long>(running->shared_bytes)));
}

static void run_block(std::mt19937& random) {
    auto mix = [&] {
        if (running->order > 1 && next_new == order.size())
            std::shuffle(order.begin(), order.end(), random);
    };
    for (;;) {
        bool progress = false;
        cursor = 0;
        while (Thread* thread = next_thread()) {
            resume(*thread);
            progress = true;
            if (failed) return;
        }
        if (std::all_of(threads.begin(), threads.end(),
                        [](const Thread& thread) { return thread.state == State::DONE; }))
            break;
        if (progress) mix();
        // no round without progress is needed to see that all wait
        if (progress && (!is_released() || barriers_in_use)) continue;
        if (!copy_arrives() && !hold_meetings()) release_some();
        if (failed) return;
        mix();
    }
    end_block_hopper();
    check_red_zone();
    end_block_checks();
}

static bool accepted(const Launch& launch) {
    uint64_t size = uint64_t(launch.block[0]) * launch.block[1] * launch.block[2];
    uint64_t of_cluster = uint64_t(launch.cluster[0]) * launch.cluster[1] * launch.cluster[2];
    for (int axis = 0; axis < 3; axis++)
        if (!launch.cluster[axis] || launch.grid[axis] % launch.cluster[axis]) return false;
    if (of_cluster > MOST_BLOCKS ||
        (of_cluster > 1 && (size * of_cluster > MOST_THREADS || size % WARP)))
        return false;
    bool grid = launch.grid[0] && launch.grid[1] && launch.grid[2] && launch.grid[0] < 1u << 31 &&
                launch.grid[1] < 65536 && launch.grid[2] < 65536;
    return grid && size >= 1 && size <= MOST_THREADS && launch.block[2] <= 64 &&
           launch.shared_bytes <= MOST_SHARED_BYTES;
}

// In place of blocks the first ones of their clusters, each once.
static void keep_first_blocks() {
    std::set<unsigned> seen;
    std::vector<unsigned> all = std::exchange(blocks, {});
    for (unsigned number : all) {
        unsigned index[3];
        index_of_block(number, 0, index);
        for (int axis = 2; axis >= 0; axis--) index[axis] -= index[axis] % running->cluster[axis];
        unsigned first = (index[2] * running->grid[1] + index[1]) * running->grid[0] + index[0];
        if (seen.insert(first).second) blocks.push_back(first);
    }
}

static void run_blocks() {
    std::mt19937 random(running->order);
    blocks.assign(running->sample, running->sample + running->sample_count);
    unsigned lines = running->sample_count ? 0 : running->grid[1] * running->grid[2];
    for (unsigned line = 0; line < lines; line++)
        for (unsigned x = running->first_block; x < running->grid[0]; x++)
            blocks.push_back(line * running->grid[0] + x);
    if (clustered) keep_first_blocks();
    arrange(blocks, random);
    for (unsigned number : blocks) {
        begin_block(number, random);
        run_block(random);
        if (ended || (counting && !end_block_counts())) return;
        if (failed) begin_stacks();  // those of threads that never go on
        failed = false;
    }
}

static Fault unaccepted(const Launch& launch) {
    Fault fault = without_thread("impossible launch");
    snprintf(
        fault.message, sizeof fault.message,
        "no GPU accepts grid (%u,%u,%u), block (%u,%u,%u), %llu bytes of dynamic shared memory",
        launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
        launch.block[2], static_cast<unsigned long long>(launch.shared_bytes));
    const uint32_t* cluster = launch.cluster;
    size_t length = strlen(fault.message);
    if (cluster[0] * cluster[1] * cluster[2] != 1)
        snprintf(fault.message + length, sizeof fault.message - length,
                 " in clusters of (%u,%u,%u), which divide the grid, or the emulator has no model "
                 "of them: whole warps, at most %zu threads and %u blocks",
                 cluster[0], cluster[1], cluster[2], MOST_THREADS, MOST_BLOCKS);
    return fault;
}

static void run(const Launch& launch) {
    failed = ended = false;
    block_number = 0;
    last_access = 0;
    const uint32_t *block = launch.block, *cluster = launch.cluster;
    block_threads = block[0] * block[1] * block[2];
    threads.resize(size_t(block_threads) * cluster[0] * cluster[1] * cluster[2]);
    clustered = threads.size() > block_threads;
    order.resize(threads.size());
    warp_tick.resize((threads.size() + WARP - 1) / WARP);
    begin_stacks();
    begin_checks();
    begin_counts();
    begin_atomics_launch();
    begin_signals();
    run_blocks();
    end_signals();
    end_checks();
    counting = false;
}

static void find_loops_and_count(const Launch& launch) {
    Counts& counts = *launch.counts;
    const Counts given = counts;
    counts.learns = true;
    run(launch);
    counts = given;
    if (launch.faults->count == 0) run(launch);
}

// What other libraries do at the exit of a process waits for threads that a fork does not have. A
// handler that is added now runs before all of theirs.
static void end_without_handlers() {
#ifdef __GLIBC__
    on_exit([](int status, void*) { _exit(status); }, nullptr);
#else
    atexit([] { _exit(0); });
#endif
}

static void run_or_count(const Launch& launch) {
    launch.counts ? find_loops_and_count(launch) : run(launch);
}

// The number of the process.
static int run_in_process(const Launch& launch) {
    fflush(nullptr);
    // its many pieces are not copied, which takes longest
    if (*launch.stacks) madvise(*launch.stacks, ALL_STACKS, MADV_DONTFORK);
    pid_t process = fork();
    if (process) {
        if (*launch.stacks) madvise(*launch.stacks, ALL_STACKS, MADV_DOFORK);
        return process;
    }
    Launch own = launch;
    char* stacks = nullptr;
    own.stacks = &stacks;
    running = &own;
    begin_process();
    end_without_handlers();
    run_or_count(own);
    if (launch.counts) save_runs();
    save_variables(launch.variables);
    fflush(nullptr);
    launch.faults->ended = 1;
    _exit(0);
}

int launch(const Launch& launch, void (*thread)(void**)) {
    running = &launch;
    entry = thread;
    if (!accepted(launch))
        keep(unaccepted(launch));
    else if (launch.seconds)
        return run_in_process(launch);
    else
        run_or_count(launch);
    return launch.faults->count > 0;
}

}  // namespace emulator
