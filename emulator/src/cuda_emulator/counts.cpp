// Counts what the warps of a launch ask of the memories, for a kernel that was compiled with
// -fsanitize=thread and -fsanitize-coverage=trace-pc: the compiler puts a call before every access
// and at the start of every basic block.
//
// The threads run one after another, so the accesses that a GPU makes together, in one instruction
// of a warp, have to be found: those of one place in the code in the same iterations of the loops
// around it. Lanes that skip an iteration or leave a loop early stay in step with the others, as on
// a GPU, where they are masked off and wait.
//
// Loops are found while the kernel runs, in a launch before the one that counts. A basic block that
// is entered again without having been left heads a loop, and all blocks since then belong to it.
#include "runtime.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <list>
#include <map>
#include <set>
#include <unordered_map>

extern "C" unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" unsigned char _end[] __attribute__((visibility("hidden")));

namespace emulator {

constexpr uintptr_t SECTOR = 32, LINE = 128, BANKS = 32, WORD = 4;

bool counting;

// ---- where a thread is: the basic blocks that it has entered and not left, with the iteration of
// those that head a loop

struct Entered {
    uintptr_t block;
    uint64_t iteration;
    // place -> loads of global memory there, in no loop within this one
    std::map<uintptr_t, uint64_t> loads;
};
struct Path {
    std::vector<Entered> entered;
    // a number for the iterations of the loops that hold the last block; 0: not known
    uint64_t iterations;
    // place, loads in one run of its loop, iterations of it -> how often
    std::map<std::array<uint64_t, 3>, uint64_t> runs;
    std::unordered_map<uintptr_t, const void*> last;  // place -> address of its last load
};
static std::vector<Path> paths;                                   // of each thread of a block
static std::unordered_map<uintptr_t, std::set<uintptr_t>> loops;  // head -> its blocks

// Ends the runs of the loops that were entered after the first `kept` blocks.
static void end_runs(Path& path, size_t kept) {
    for (size_t i = kept; i < path.entered.size(); i++) {
        const Entered& head = path.entered[i];
        if (head.loads.empty()) continue;
        auto loop = loops.find(head.block);
        // the run ended in the midst of an iteration
        bool inside = loop == loops.end() || loop->second.size() == 1;
        for (size_t above = i + 1; above < path.entered.size() && !inside; above++)
            inside = loop->second.count(path.entered[above].block);
        for (auto& [place, loads] : head.loads)
            path.runs[{place, loads, head.iteration + inside}]++;
    }
    path.entered.resize(kept);
}

static void enter(uintptr_t block) {
    paths[current->linear].iterations = 0;
    auto& path = paths[current->linear].entered;
    for (size_t i = path.size(); i-- > 0;) {
        if (path[i].block != block) continue;
        auto& loop = loops[block];
        loop.insert(block);
        for (size_t above = i + 1; above < path.size(); above++) {
            loop.insert(path[above].block);
            // has blocks that its last iteration left out
            auto inner = loops.find(path[above].block);
            if (inner != loops.end()) loop.insert(inner->second.begin(), inner->second.end());
        }
        end_runs(paths[current->linear], i + 1);
        path[i].iteration++;
        return;
    }
    path.push_back({block, 0, {}});
}

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

// A number for the place `address` in the iterations of the loops that hold the current block.
static uint64_t instance(uintptr_t address) {
    Path& path = paths[current->linear];
    if (!path.iterations) {
        path.iterations = 1;
        for (const Entered& entered : path.entered) {
            auto loop = loops.find(entered.block);
            if (loop != loops.end() && loop->second.count(path.entered.back().block))
                path.iterations = mixed(mixed(path.iterations, entered.block), entered.iteration);
        }
    }
    return mixed(path.iterations, address);
}

// A load from where its place in the code loaded before is left out: the compiler moves it out of
// the loop.
static void count_run(const void* target, uintptr_t address) {
    Path& path = paths[current->linear];
    const void*& last = path.last[address];
    if (last == target) return;
    last = target;
    uintptr_t place = address - reinterpret_cast<uintptr_t>(__ehdr_start);
    for (size_t i = path.entered.size(); i-- > 0;) {
        auto loop = loops.find(path.entered[i].block);
        if (loop == loops.end() || !loop->second.count(path.entered.back().block)) continue;
        path.entered[i].loads[place]++;
        return;
    }
    path.runs[{place, 1, 1}]++;
}

static std::set<std::vector<uint64_t>> runs_of_threads;  // different ones
static std::vector<uint64_t> runs;                       // the same, as Counts has them

// ---- requests: one access of a warp

struct Request {
    std::array<uintptr_t, WARP> address;
    uint32_t lanes;
    uint8_t bytes;
    bool write, shared;
};
static std::vector<std::vector<Request>> requests;  // of each warp, in the order of its first lane
// of each warp: instance -> its request
static std::vector<std::unordered_map<uint64_t, uint32_t>> numbers;

static bool is_shared(const unsigned char* pointer) {
    for (uint64_t i = 0; i < running->shared_array_count; i++) {
        const SharedArray& array = running->shared_arrays[i];
        if (pointer >= address_of(array) && pointer < address_of(array) + array.bytes) return true;
    }
    return pointer >= dynamic_shared() && pointer < dynamic_shared() + running->shared_bytes;
}

static bool enough() { return running->counts->accesses >= running->counts->enough; }

void count_access(const void* target, size_t bytes, bool write, uintptr_t address) {
    auto* pointer = static_cast<const unsigned char*>(target);
    bool on_stack = static_cast<const char*>(target) >= current->stack &&
                    static_cast<const char*>(target) < current->stack + STACK_STRIDE;
    if (on_stack) return;
    bool shared = is_shared(pointer);
    if (!shared && pointer >= __ehdr_start && pointer < _end) return;  // a constant
    running->counts->accesses++;
    if (running->counts->learns && enough()) end_launch();
    if (running->counts->learns) return;
    if (!shared && !write) count_run(target, address);
    unsigned warp = current->linear / WARP;
    // A cp.async reads and writes at one place.
    auto [place, is_new] =
        numbers[warp].try_emplace(instance(address + write), requests[warp].size());
    if (is_new) requests[warp].push_back({{}, 0, uint8_t(bytes), write, shared});
    Request& request = requests[warp][place->second];
    request.address[lane()] = reinterpret_cast<uintptr_t>(target);
    request.lanes |= 1u << lane();
}

void count_barrier() { running->counts->barriers += paths.size() / WARP; }

void count_bulk(unsigned bytes) {
    running->counts->accesses += bytes / 16;
    if (running->counts->learns) return;
    running->counts->bulk_copies.requests++;
    running->counts->bulk_copies.bytes += bytes;
}

void count_operand(unsigned bytes) {
    if (running->counts->learns) return;
    running->counts->operands.requests++;
    running->counts->operands.bytes += bytes;
}

// The different blocks of `size` bytes that the lanes of a request touch.
static std::vector<uintptr_t> touched(const Request& request, uintptr_t size) {
    std::vector<uintptr_t> numbers;
    for (unsigned l = 0; l < WARP; l++)
        if (request.lanes >> l & 1)
            for (uintptr_t at = request.address[l] / size;
                 at <= (request.address[l] + request.bytes - 1) / size; at++)
                numbers.push_back(at);
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers;
}

static void count_global(const Request& request, Traffic& traffic) {
    traffic.requests++;
    traffic.sectors += touched(request, SECTOR).size();
    traffic.lines += touched(request, LINE).size();
    traffic.bytes += touched(request, 1).size();
}

// A wavefront has one word of each bank. Lanes that access 8 or 16 bytes do so in two or four
// groups of neighbours.
static void count_shared(const Request& request, SharedTraffic& traffic) {
    traffic.requests++;
    unsigned together = request.bytes > WORD ? WARP * WORD / request.bytes : WARP;
    for (unsigned first = 0; first < WARP; first += together) {
        Request group = request;
        group.lanes &= (together == WARP ? ~0u : (1u << together) - 1) << first;
        if (!group.lanes) continue;
        std::array<unsigned, BANKS> words{};
        for (uintptr_t word : touched(group, WORD)) words[word % BANKS]++;
        traffic.wavefronts += *std::max_element(words.begin(), words.end());
        traffic.least++;
    }
}

// ---- level 1: lines of 128 bytes of which the least recently used is dropped; sectors come one by
// one; stores pass through

struct Cache {
    struct Held {
        uintptr_t line;
        unsigned sectors;  // bits of those that have come
    };
    std::list<Held> held;
    std::unordered_map<uintptr_t, std::list<Held>::iterator> places;

    // 1 if the sector is not held, which it is afterwards.
    unsigned load(uintptr_t sector) {
        if (!running->counts->cache_lines) return 1;
        uintptr_t line = sector * SECTOR / LINE;
        unsigned bit = 1u << sector % (LINE / SECTOR);
        auto place = places.find(line);
        if (place == places.end()) {
            held.push_front({line, 0});
            if (held.size() > running->counts->cache_lines)
                places.erase(held.back().line), held.pop_back();
            place = places.insert_or_assign(line, held.begin()).first;
        } else
            held.splice(held.begin(), held, place->second);
        bool missed = !(held.front().sectors & bit);
        held.front().sectors |= bit;
        return missed;
    }
};

// The warps of a block take turns, a request each.
static void count_missed() {
    Cache cache;
    size_t most = 0;
    for (auto& of_warp : requests) most = std::max(most, of_warp.size());
    for (size_t turn = 0; turn < most; turn++)
        for (auto& of_warp : requests)
            if (turn < of_warp.size() && !of_warp[turn].write && !of_warp[turn].shared)
                for (uintptr_t sector : touched(of_warp[turn], SECTOR))
                    running->counts->missed += cache.load(sector);
}

// ---- a launch

void save_runs() {
    const Counts& counts = *running->counts;
    size_t bytes = counts.run_words * sizeof *counts.runs;
    if (write(counts.file, counts.runs, bytes) != ssize_t(bytes)) abort();
}

static void forget_block() {
    const uint32_t *block = running->block, *cluster = running->cluster;
    size_t threads = size_t(block[0]) * block[1] * block[2] * cluster[0] * cluster[1] * cluster[2],
           warps = (threads + WARP - 1) / WARP;
    paths.assign(threads, {});
    requests.assign(warps, {});
    numbers.assign(warps, {});
}

void begin_counts() {
    counting = running->counts;
    if (!counting) return;
    if (running->counts->learns) loops.clear();
    runs_of_threads.clear();
    forget_block();
}

static void count_block() {
    Counts& counts = *running->counts;
    if (counts.learns) return;
    for (auto& of_warp : requests)
        for (const Request& request : of_warp) {
            if (request.shared)
                count_shared(request, request.write ? counts.shared_stores : counts.shared_loads);
            else
                count_global(request, request.write ? counts.stores : counts.loads);
        }
    count_missed();
    forget_block();
}

static void keep_runs(Path& path) {
    end_runs(path, 0);
    std::vector<uint64_t> words;
    for (auto& [run, times] : path.runs) words.insert(words.end(), {run[0], run[1], run[2], times});
    if (!runs_of_threads.insert(words).second) return;
    runs.clear();
    for (auto& thread : runs_of_threads) {
        runs.insert(runs.end(), thread.begin(), thread.end());
        runs.insert(runs.end(), {0, 0, 0, 0});
    }
    running->counts->runs = runs.data();
    running->counts->run_words = runs.size();
}

// Without barriers the threads run one after another: a warp that is enough ends the launch.
void end_thread_counts() {
    Counts& counts = *running->counts;
    if (!counts.learns) keep_runs(paths[current->linear]);
    paths[current->linear] = {};
    if (current->linear % WARP != WARP - 1 && current->linear != paths.size() - 1) return;
    counts.warps++;
    if (counts.barriers || !enough()) return;
    count_block();
    end_launch();
}

bool end_block_counts() {
    count_block();
    return !enough();
}

}  // namespace emulator

extern "C" void __sanitizer_cov_trace_pc() {
    if (emulator::counting)
        emulator::enter(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}
