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
unsigned block_number, epoch;
uint64_t barrier_tick;
uintptr_t last_access;
uint64_t ticks;
std::vector<uint64_t> warp_tick;

static std::vector<Thread> threads;
static std::vector<unsigned> order;  // the threads of a block, in the order they run
static size_t next_new;              // order[next_new...] have not begun
static size_t cursor;                // order[cursor...] are still to run in this round
// threads that wait at the barrier where the first of them waits, and its number
static size_t arrived;
static int first_arrived_at;
static std::vector<char*> free_stacks;
static void* scheduler_stack;
static bool failed, ended;            // the block, the launch
static std::vector<unsigned> blocks;  // in the order they run
static unsigned block_index[3];
static void (*entry)(void**);

constexpr unsigned char POISON = 0xff;  // as float32 a NaN, as an integer -1
alignas(1024) static unsigned char dynamic_bytes[MOST_SHARED_BYTES + RED_ZONE];

unsigned coordinate(int which) {
    const uint32_t* values[] = {current->index, block_index, running->block, running->grid};
    return values[which / 3][which % 3];
}

unsigned lane() { return current->linear % WARP; }

unsigned thread_number() { return current->linear; }

unsigned char* dynamic_shared() { return dynamic_bytes; }

unsigned char* address_of(const SharedArray& array) {
    return &emulator_shared_anchor + array.offset;
}

// Dynamic shared memory begins at 1024 on Hopper too, behind what the system takes. Arrays of the
// kernel are behind it here, with the alignment that they have.
constexpr unsigned SYSTEM_SHARED = 1024, MOST_ALIGNED = 1024;

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
    bool dynamic = pointer >= dynamic_bytes && pointer < dynamic_bytes + sizeof dynamic_bytes;
    return dynamic ? SYSTEM_SHARED + (pointer - dynamic_bytes)
                   : first_array() + (pointer - arrays_begin());
}

void* generic_address(uint64_t address) {
    return address < first_array() ? dynamic_bytes + (address - SYSTEM_SHARED)
                                   : const_cast<unsigned char*>(arrays_begin()) +
                                         (int64_t(address) - int64_t(first_array()));
}

unsigned char* shared_pointer(unsigned address) {
    if (address >= SYSTEM_SHARED && address < SYSTEM_SHARED + running->shared_bytes)
        return dynamic_bytes + address - SYSTEM_SHARED;
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
    size_t length =
        snprintf(fault.message, sizeof fault.message, "thread (%u,%u,%u) of block (%u,%u,%u) ",
                 current->index[0], current->index[1], current->index[2], block_index[0],
                 block_index[1], block_index[2]);
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

static void index_of_block(unsigned number, unsigned (&index)[3]) {
    for (unsigned axis = 0, rest = number; axis < 3; rest /= running->grid[axis++])
        index[axis] = rest % running->grid[axis];
}

std::string block_coordinates(unsigned run_as) {
    unsigned index[3];
    index_of_block(blocks[run_as - 1], index);
    return as_text(index);
}

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

// The next thread of this round that can run; null at the round's end.
static Thread* next_thread() {
    while (cursor < order.size()) {
        Thread& thread = threads[order[cursor++]];
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

static void wait_at_barrier(Site site) {
    if (!arrived) first_arrived_at = site.id;
    arrived += site.id == first_arrived_at;
    pause(State::AT_BARRIER, site);
}

void syncthreads(Site site) { wait_at_barrier(site); }

static int votes[2];  // of this barrier and the next one

int syncthreads_count(Site site, bool predicate) {
    int& mine = votes[epoch % 2];
    mine += predicate;
    wait_at_barrier(site);
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

void pass_barrier() {
    if (counting) count_barrier();
    barrier_tick = next_tick();
    pass_barrier_atomics();
    votes[(epoch + 1) % 2] = 0;
    pass_barrier_hopper();
    epoch++;
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

// Up to when each lane knows the accesses of the others of its warp, where a synchronisation of some
// of the lanes told it.
struct LaneClocks {
    uint64_t known[WARP][WARP];
};
static std::vector<LaneClocks> lane_clocks;  // none until some lanes are synchronised

static void pass_some_lanes(Operand** of_lane) {
    lane_clocks.resize(warp_tick.size());
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
    index_of_block(number, block_index);
    epoch = 0;
    block_number++;
    barrier_tick = 0;
    warp_tick.assign(warp_tick.size(), 0);
    lane_clocks.clear();
    votes[0] = votes[1] = 0;
    begin_hopper(threads.size());
    begin_atomics_block(threads.size());
    for (unsigned i = 0; i < threads.size(); i++) {
        Thread& thread = threads[i];
        unsigned index[3] = {i % block[0], i / block[0] % block[1], i / (block[0] * block[1])};
        std::copy(index, index + 3, thread.index);
        thread.linear = i;
        thread.state = State::NEW;
        thread.stack = nullptr;
        thread.copy_group = 0;
        thread.copies.clear();
        order[i] = i;
    }
    arrange(order, random);
    next_new = arrived = 0;
    for (uint64_t i = 0; i < running->shared_array_count; i++)
        if (running->shared_arrays[i].name[0])
            memset(address_of(running->shared_arrays[i]), POISON, running->shared_arrays[i].bytes);
    memset(dynamic_bytes, POISON, running->shared_bytes + RED_ZONE);
}

// All unfinished threads wait and none can go on: report why, unless all are at one barrier.
static void report_waiting() {
    unsigned done = 0, waiting = 0;
    Thread *at_barrier = nullptr, *at_warp = nullptr, *elsewhere = nullptr, *at_phase = nullptr,
           *at_warpgroup = nullptr, *at_token = nullptr;
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

static void release_barrier() {
    if (arrived < threads.size()) report_waiting();
    if (failed) return;
    arrived = 0;
    for (Thread& thread : threads) thread.state = State::READY;
    pass_barrier();
}

static void check_red_zone() {
    if (running->buffer_count) return;  // every access is watched
    const unsigned char* end = dynamic_bytes + running->shared_bytes;
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
        if (progress && (arrived < threads.size() || barriers_in_use)) continue;
        if (!copy_arrives() && !hold_meetings()) release_barrier();
        if (failed) return;
        mix();
    }
    end_block_hopper();
    check_red_zone();
    end_block_checks();
}

static bool accepted(const Launch& launch) {
    uint64_t size = uint64_t(launch.block[0]) * launch.block[1] * launch.block[2];
    bool grid = launch.grid[0] && launch.grid[1] && launch.grid[2] && launch.grid[0] < 1u << 31 &&
                launch.grid[1] < 65536 && launch.grid[2] < 65536;
    return grid && size >= 1 && size <= MOST_THREADS && launch.block[2] <= 64 &&
           launch.shared_bytes <= MOST_SHARED_BYTES;
}

static void run_blocks() {
    std::mt19937 random(running->order);
    blocks.assign(running->sample, running->sample + running->sample_count);
    unsigned lines = running->sample_count ? 0 : running->grid[1] * running->grid[2];
    for (unsigned line = 0; line < lines; line++)
        for (unsigned x = running->first_block; x < running->grid[0]; x++)
            blocks.push_back(line * running->grid[0] + x);
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
    return fault;
}

static void run(const Launch& launch) {
    failed = ended = false;
    block_number = 0;
    last_access = 0;
    threads.resize(size_t(launch.block[0]) * launch.block[1] * launch.block[2]);
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
