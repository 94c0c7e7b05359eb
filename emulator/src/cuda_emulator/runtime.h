// What the .cpp files share.
#pragma once
#include "cuda_emulator.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#include <string>
#include <vector>

namespace emulator {

constexpr size_t MOST_THREADS = 1024;  // of a block
// From a thread's stack to the next one, the first page of which nothing may touch; and what a
// thread has of it. The rest is where stacks begin at different places of a page: at the same ones
// they would take turns in a few lines of the processor's caches.
constexpr size_t PAGE = 4096, STACK_BYTES = 128 * 1024, STACK_STRIDE = STACK_BYTES + 2 * PAGE;
constexpr size_t ALL_STACKS = MOST_THREADS * STACK_STRIDE;
constexpr size_t MOST_SHARED_BYTES = 227 * 1024;  // limit per block on sm_90
constexpr size_t MOST_STATIC_BYTES = 48 * 1024;   // of arrays of fixed size
constexpr size_t RED_ZONE = 1024;                 // bytes behind every shared array
constexpr unsigned WARP = 32;

enum class State : uint8_t {
    NEW,
    READY,
    AT_BARRIER,
    AT_WARP,
    AT_PHASE,
    AT_WARPGROUP,
    AT_MEETING,
    AT_TOKEN,
    AT_CLUSTER,
    DONE
};

// A lane's input and result of a warp operation.
struct Operand {
    uint64_t value, result;
    unsigned source;
};
using Combine = void (*)(Operand** of_lane);  // run once, when the last lane has arrived

// A cp.async under way.
struct Copy {
    unsigned char* shared;
    const unsigned char* global;
    unsigned bytes, group;
    bool valid;
    uintptr_t address;
};

// What a switch between threads needs comes first, in one line of the processor's caches.
struct alignas(64) Thread {
    unsigned index[3], linear;
    void* stack_pointer;
    char* stack;
    Site site;  // of the wait
    State state;
    unsigned mask;     // of the warp operation it waits in
    unsigned missing;  // of a warp's first thread: a lane for which the others waited last
    Combine combine;
    Operand* operand;
    const void* token_barrier;  // that it waits at
    unsigned rank;              // of its block in the cluster
    unsigned arrivals, waits;   // at the cluster's barrier
    uint64_t cluster_tick;      // of the cluster's barrier that it waited for last, or 0
    unsigned copy_group;        // number of the cp.async group being filled
    std::vector<Copy> copies;   // cp.async not yet waited for
};

extern Thread* current;
extern const Launch* running;
extern unsigned block_number;  // 1 for the first block that runs, so that 0 means "no block"
extern uint64_t barrier_tick;  // when this block passed its last barrier, outside a cluster
extern uint64_t ticks;         // of the block's accesses and waits
inline uint64_t next_tick() { return ++ticks; }
extern uintptr_t last_access;  // of the code
// A cluster runs as one block: its threads are numbered through, and so are its warps.
constexpr unsigned MOST_BLOCKS = 16;  // of a cluster
extern bool clustered;                // whether there are several
extern unsigned block_threads;        // of one of them
bool has_ended(unsigned rank);        // whether all threads of the cluster's block have
// Whether what a thread of another block of the cluster did is known by the cluster's barrier.
bool ordered_by_cluster(unsigned thread, uint64_t tick, bool alone);
uint64_t barrier_tick_in_cluster();  // of this thread's block
unsigned char* dynamic_shared_of(unsigned rank);
bool is_dynamic(const void* shared);     // of any block that a cluster may have
std::string block_of(unsigned rank);     // "(1,0,0)"
extern std::vector<uint64_t> warp_tick;  // the last __syncwarp of the whole warp, of each warp

// Where in the kernel: a file and line, or the code addresses of the access and of the one it
// conflicts with.
struct Place {
    const char* file = "";
    int line = 0;
    uintptr_t address = 0, other_address = 0;
};
inline Place at(Site site) { return {site.file, site.line, 0, 0}; }
inline Place at(uintptr_t address, uintptr_t other_address = 0) {
    return {"", 0, address, other_address};
}

// A fault of the launch, and of the current thread.
Fault without_thread(const char* kind);
Fault describe(const char* kind, Place, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
void report(const Fault&);             // ends the block; for the scheduler
[[noreturn]] void fail(const Fault&);  // ends the block; for a thread, which never runs on
void record(const Fault&);             // for a thread, which goes on if all faults are wanted
bool on_a_stack(const void* address);
std::string coordinates(unsigned thread);  // "(1,0,0)"
// Of a block by its block_number and a thread in the cluster.
std::string block_coordinates(unsigned run_as, unsigned thread);
[[noreturn]] void leave();       // the running thread, for good
[[noreturn]] void end_launch();  // the same, and no other thread goes on

// faults.cpp
bool only_first();           // whether the first error ends the launch
bool keep(const Fault&);     // in the launch's list; whether the launch has to end
unsigned faults_of_block();  // errors of the block that runs
void begin_signals();
void end_signals();
void begin_process();  // what a process of its own has to have
unsigned char* address_of(const SharedArray&);

// Waits for every lane that `mask` names; the last to arrive runs `combine` for all.
void collective(Site, unsigned mask, Combine combine, Operand*);

// Pauses the thread until wake_tokens of this barrier.
void wait_for_token(Site, const void* barrier);
void wake_tokens(const void* barrier);
void yield();              // the other threads run first
extern bool lanes_in_use;  // by this block: a synchronisation of some lanes
bool lanes_ordered(unsigned other, uint64_t tick);  // by it

// what the threads of a block did before happened before what they do from now on
void pass_barrier(unsigned rank);

// Pauses the thread until wake_those_at its barrier finds its phase over.
void wait_for_phase(Site);
void wake_those_at(void* barrier);
// Waits for `count` threads from `first` on. The last to arrive gets all threads of the block and
// has to make the others READY; the others get none.
std::vector<Thread*> meet(Site, unsigned first, unsigned count);
// null outside the launch's dynamic shared memory
unsigned char* shared_pointer(unsigned shared_address);

// tensor_cores.cpp: c += a b of a warp, in 16 rows and 8 columns, as the launch's tensor cores add.
// c: the 4 numbers of each lane, as mma.m16n8k16 has them; row_of_b: from a row of b to the next.
constexpr int TILE_ROWS = 16, TILE_COLUMNS = 8, TILE_DEPTH = 16;
void add_tile(float* const (&c)[WARP], const double (&a)[TILE_ROWS][TILE_DEPTH], const double* b,
              int row_of_b, int depth);

// hopper.cpp; without barriers nothing of an access has to be told or asked
extern bool barriers_in_use;   // by this block: most kernels have none
extern bool stored_to_shared;  // whether a thread of the block has
void begin_hopper(unsigned threads);
void pass_barrier_hopper(unsigned first_thread, unsigned count);
void pass_warp_hopper();
void end_thread_hopper();
void end_block_hopper();
bool copy_arrives();
bool waits_at(unsigned thread, void* barrier);  // whether its phase is over
std::string why_waiting();
// The place in shared memory of another block of the cluster has to be there.
void must_be_there(Place, unsigned rank, const char* verb);
unsigned rank_of(const void* shared);
void check_destination(Place, const void* pointer, bool write);  // by a thread, or its products
void loaded_destination(const void* pointer);                    // by this thread
void check_registers(const void* pointer, size_t bytes, bool write, uintptr_t address);
void loaded_fragment(Site, const unsigned* to, size_t bytes);
bool is_fenced(unsigned thread, uint64_t since);
// Whether barriers order what that thread did up to then before what this one does.
bool handed_over(unsigned thread, uint64_t since);
void read_by_thread(const void* pointer, size_t bytes);     // of shared memory
bool reads_handed_over(const void* pointer, size_t bytes);  // of all threads

// counts.cpp; `counting`: instead of watching
extern bool counting;
void begin_counts();
void count_access(const void* pointer, size_t bytes, bool write, uintptr_t address);
void count_barrier();
void count_bulk(unsigned bytes);
void count_operand(unsigned bytes);
bool end_block_counts();  // whether another block is wanted
void end_thread_counts();
void save_runs();  // in the file of a process of its own

// atomics.cpp
extern bool fences_in_use;  // by this launch
void begin_atomics_launch();
void begin_atomics_block(size_t threads);
void pass_barrier_atomics();
// Whether what a thread, or if not `alone` some threads, of a block did is known to this thread.
bool ordered_by_fences(unsigned block, unsigned thread, uint64_t tick, bool alone);

// checks.cpp
bool watching_accesses();
void save_variables(unsigned char* to);
void accessed_atomically(const void* pointer, size_t bytes, Scope, uintptr_t address, bool reads);
void begin_checks();
void end_checks();
void end_block_checks();
extern const unsigned char* doubtful;  // where a write may be a race, or null
void settle_doubt();
// Before the running thread does anything else.
inline void settle_doubts() {
    if (__builtin_expect(doubtful != nullptr, false)) settle_doubt();
}
void accessed(const void* pointer, size_t bytes, bool write, uintptr_t address);
void must_be_shared(Site, const void* pointer, const char* what);
void copy_pending(const void* shared, size_t bytes, bool pending);
void written_by_copy(Site, const void* shared, size_t bytes, uintptr_t address);
void read_by_products(Site, const void* shared, size_t bytes);

}  // namespace emulator
