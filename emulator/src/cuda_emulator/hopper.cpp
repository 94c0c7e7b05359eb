// Barriers in shared memory, bulk copies and a warpgroup's products by the PTX ISA ("mbarrier",
// "cp.async.bulk", "Asynchronous Warpgroup Level Matrix Instructions"). What is asynchronous
// happens as late as it may: a copy arrives when no thread can go on without it, and products are
// made when their registers are waited for; until then NaN is in their place. What a copy
// overwrites is gone as early as may be, when the copy begins.
//
// What orders two accesses: every arrival hands over what its warp knows to those who wait for the
// phase, of its own lanes what they did before the last __syncwarp or, if all of them arrive,
// before the first of them does; and what a copy has brought is known to the warps that waited for
// its barrier. What a warp knows is a vector clock: of every warp, and of the copies, the time of
// the last access that happened before.
//
// A thread's load is of another proxy than a copy: the copy may overtake it, although an arrival is
// between the two. It has ended, for those that know of the arrival, where the thread has called
// fence.proxy.async since. That products of what it loaded have ended orders nothing: a GPU has
// then read it, but the memory model of PTX knows no such order ("Async proxy").
#include "runtime.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

namespace emulator {

bool barriers_in_use, stored_to_shared;

namespace {

// ENGINE: of the copies, in a vector clock
constexpr unsigned WARPGROUP = 128, MOST_WARPS = 32, ENGINE = MOST_WARPS;
constexpr int DEPTH = TILE_DEPTH, MOST_COLUMNS = 256;
constexpr int CHUNK = 8;  // numbers of 16 bytes, which lie together in every layout

// ended: of a warp, up to which its loads have; arrived: of a thread, when it arrived last, empty
// where no thread has stored to shared memory.
struct VectorClock {
    uint64_t tick[MOST_WARPS + 1] = {}, ended[MOST_WARPS] = {};
    std::vector<uint64_t> arrived;
    void join(const VectorClock& other) {
        for (unsigned i = 0; i <= MOST_WARPS; i++) tick[i] = std::max(tick[i], other.tick[i]);
        for (unsigned i = 0; i < MOST_WARPS; i++) ended[i] = std::max(ended[i], other.ended[i]);
        arrived.resize(std::max(arrived.size(), other.arrived.size()));
        for (size_t i = 0; i < other.arrived.size(); i++)
            arrived[i] = std::max(arrived[i], other.arrived[i]);
    }
};

// A warp's arrivals in a phase: a bit for each lane, when the first came, and up to when the loads
// of those that came have ended.
struct Arrivals {
    unsigned lanes;
    uint64_t first, ended;
};

struct PhaseBarrier {
    int count, missing;               // arrivals of a phase; those still to come
    int64_t bytes;                    // of copies, still to come
    uint64_t phase, initialised;      // phases that ended; when it was initialised
    unsigned initialiser, warp;       // thread, warp
    bool visible;                     // to the copy engine
    VectorClock arriving, completed;  // of this phase, of the last one that ended
    Arrivals of_warp[MOST_WARPS];
};

struct BulkCopy {
    unsigned char* to;
    const unsigned char* from;
    unsigned bytes;
    void* barrier;
};

// Shared memory that a copy writes. arrived: when it did, 0 before; read: when a warp, or its
// products, read it last; loaded: when a thread of the warp did.
struct Destination {
    const unsigned char* begin;
    size_t bytes;
    uint64_t arrived, read[MOST_WARPS], loaded[MOST_WARPS];
    bool overlaps(const void* other, size_t length) const {
        return begin < static_cast<const unsigned char*>(other) + length && other < begin + bytes;
    }
};

struct Product {
    Site site;
    float* c;
    const unsigned* a;
    int columns;
    uint64_t b;
    bool transposed, float16;
    unsigned group;
};

// The registers that a thread's products add to. written: by the products, as they left them;
// under_way: products not waited for.
struct Accumulators {
    float* c;
    std::vector<float> values;
    uint64_t written;
    int under_way;
};

struct HopperThread {
    std::vector<Product> products;  // not waited for
    std::vector<Accumulators> accumulators;
    std::map<const unsigned*, uint64_t> loaded;  // fragments: when ldmatrix filled them
    uint64_t fenced, proxy_fenced;
    uint64_t load;         // the last one of what a copy brought
    unsigned group;        // number of the group of products being filled
    unsigned groups_left;  // of the wait that the thread is in
    void* barrier;         // that it waits for
    unsigned parity;
    unsigned registers;  // 0: those of the launch
    Site changed;        // where it gave or took some
};

std::vector<VectorClock> clocks;  // by warp
std::map<void*, PhaseBarrier> barriers;
std::vector<BulkCopy> copies;
std::vector<Destination> destinations;
std::vector<HopperThread> hopper;

// Chunk of 16 bytes of shared memory that threads store -> who read of it, which bytes, a bit for
// each, and when last.
struct Read {
    unsigned thread, bytes;
    uint64_t tick;
};
std::unordered_map<uintptr_t, std::vector<Read>> reads_of;
uintptr_t chunk_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) / 16; }
unsigned bytes_of_chunk(const void* pointer, size_t bytes) {
    unsigned first = reinterpret_cast<uintptr_t>(pointer) % 16;
    return ((1u << std::min<size_t>(bytes, 16 - first)) - 1) << first;
}

unsigned all_threads;  // of the block, or of the cluster

void enter() {
    if (barriers_in_use) return;
    barriers_in_use = true;
    clocks.assign((all_threads + WARP - 1) / WARP, {});
    hopper.assign(all_threads, {});
}

HopperThread& mine() { return hopper[current->linear]; }
unsigned warp() { return current->linear / WARP; }
// The first thread of this thread's warpgroup.
unsigned warpgroup() {
    unsigned first = current->rank * block_threads;
    return first + (current->linear - first) / WARPGROUP * WARPGROUP;
}

PhaseBarrier& barrier_at(Site site, void* barrier) {
    enter();
    must_be_there(at(site), rank_of(barrier), "uses a barrier in");
    auto entry = barriers.find(barrier);
    if (entry == barriers.end())
        fail(describe("bad barrier", at(site), "uses a barrier that nobody has initialised"));
    PhaseBarrier& phases = entry->second;
    if (phases.warp != warp() && clocks[warp()].tick[phases.warp] < phases.initialised)
        fail(describe("race", at(site),
                      "uses a barrier that thread number %u initialises; nothing orders the two",
                      phases.initialiser));
    return phases;
}

bool is_over(const PhaseBarrier& barrier, unsigned parity) { return (barrier.phase & 1) != parity; }

void end_phase_if_complete(void* address) {
    PhaseBarrier& barrier = barriers.at(address);
    if (barrier.missing || barrier.bytes) return;
    barrier.phase++;
    barrier.missing = barrier.count;
    barrier.completed = barrier.arriving;
    barrier.arriving = {};
    std::fill(std::begin(barrier.of_warp), std::end(barrier.of_warp), Arrivals{});
    wake_those_at(address);
}

// Once all lanes of its warp have arrived, they have handed over what each of them did.
void lane_arrives(PhaseBarrier& barrier) {
    Arrivals& arrivals = barrier.of_warp[warp()];
    if (stored_to_shared) {
        barrier.arriving.arrived.resize(all_threads);
        barrier.arriving.arrived[current->linear] = ticks;
    }
    uint64_t now = ++ticks, ended = mine().load > mine().proxy_fenced ? mine().proxy_fenced : now;
    if (!arrivals.lanes) arrivals.first = arrivals.ended = now;
    arrivals.lanes |= 1u << current->linear % WARP;
    arrivals.ended = std::min(arrivals.ended, ended);
    if (arrivals.lanes != ~0u) return;
    uint64_t &tick = barrier.arriving.tick[warp()], &of_loads = barrier.arriving.ended[warp()];
    tick = std::max(tick, arrivals.first), of_loads = std::max(of_loads, arrivals.ended);
}

void arrive(Site site, void* address, int bytes) {
    PhaseBarrier& barrier = barrier_at(site, address);
    if (!barrier.missing)
        fail(
            describe("bad barrier", at(site),
                     "arrives at a phase for which all %d have arrived, and %lld bytes are missing",
                     barrier.count, static_cast<long long>(barrier.bytes)));
    barrier.arriving.join(clocks[warp()]);
    lane_arrives(barrier);
    barrier.bytes += bytes;
    barrier.missing--;
    end_phase_if_complete(address);
}

Destination* destination_at(const void* pointer) {
    for (Destination& destination : destinations)
        if (destination.overlaps(pointer, 1)) return &destination;
    return nullptr;
}

// What another copy overwrites; what lies before and behind it is still there.
void forget_destinations(const unsigned char* from, const unsigned char* until) {
    std::vector<Destination> left;
    for (Destination part : destinations) {
        const unsigned char *begin = part.begin, *end = begin + part.bytes;
        for (auto [first, last] :
             {std::pair(begin, std::min(end, from)), std::pair(std::max(begin, until), end)}) {
            part.begin = first, part.bytes = last - first;
            if (first < last) left.push_back(part);
        }
    }
    destinations = left;
}

// Whether this warp may overwrite what a copy brought: it knows that it arrived, and that all who
// read it have.
void must_be_read(const Destination& destination, Place place) {
    if (!destination.arrived || clocks[warp()].tick[ENGINE] < destination.arrived)
        fail(describe("race", place,
                      "overwrites shared memory while a copy to it may be under way"));
    for (unsigned other = 0; other < MOST_WARPS; other++)
        if (other != warp() && destination.read[other] > clocks[warp()].tick[other])
            fail(describe("race", place,
                          "overwrites shared memory that warp %u reads; nothing orders the two",
                          other));
}

// The same of a copy, which may overtake loads.
void must_be_loaded(const Destination& destination, Place place) {
    must_be_read(destination, place);
    for (unsigned other = 0; other < MOST_WARPS; other++)
        if (destination.loaded[other] > clocks[warp()].ended[other])
            fail(describe("missing fence", place,
                          "may overtake a load of warp %u, which has called no fence.proxy.async",
                          other));
}

// What a warp hands over from now on, all its lanes having come here.
void hand_over(unsigned w) {
    uint64_t ended = ++ticks;
    for (unsigned i = w * WARP; i < std::min((w + 1) * WARP, all_threads); i++)
        if (hopper[i].load > hopper[i].proxy_fenced)
            ended = std::min(ended, hopper[i].proxy_fenced);
    clocks[w].tick[w] = ticks, clocks[w].ended[w] = ended;
}

// ---- matrices in shared memory

struct Layout {
    unsigned first, leading, stride, swizzle;  // swizzle: rows of so many bytes, 16 for none
};

Layout decoded(Site site, uint64_t descriptor) {
    constexpr uint64_t KNOWN =
        0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62;
    auto field = [&](int bit) { return unsigned(descriptor >> bit & 0x3fff) << 4; };
    static const unsigned ROW_BYTES[] = {16, 128, 64, 32};
    Layout layout{field(0), field(16), field(32), ROW_BYTES[descriptor >> 62]};
    if (descriptor & ~KNOWN)
        fail(describe("bad descriptor", at(site),
                      "sets bits of a matrix descriptor that have no meaning"));
    if (descriptor >> 49 & 7)
        fail(describe("bad descriptor", at(site),
                      "has a base offset, which the emulator does not model"));
    unsigned repeats = 8 * layout.swizzle;
    if (layout.swizzle > 16 &&
        (layout.first % repeats >= layout.swizzle || layout.stride % repeats))
        fail(describe(
            "bad descriptor", at(site),
            "has rows at %u, %u bytes apart by eights: the swizzle begins at multiples of %u",
            layout.first, layout.stride, repeats));
    return layout;
}

// Address of element k, n in shared memory (PTX ISA, "Strides", and canonical layouts; CUTLASS,
// make_gmma_desc).
unsigned place(const Layout& layout, bool transposed, unsigned k, unsigned n) {
    unsigned row_bytes = layout.swizzle, in_row = row_bytes / 2, address = layout.first;
    if (row_bytes == 16) {
        unsigned row = transposed ? k : n, along = transposed ? n : k;
        unsigned by_rows = transposed ? layout.leading : layout.stride,
                 by_chunks = transposed ? layout.stride : layout.leading;
        return address + row / 8 * by_rows + row % 8 * 16 + along / 8 * by_chunks + along % 8 * 2;
    }
    if (transposed)
        address += n / in_row * layout.leading + n % in_row * 2 + k / 8 * layout.stride +
                   k % 8 * row_bytes;
    else
        address += n / 8 * layout.stride + n % 8 * row_bytes + k * 2;
    return address ^ ((address >> 7 & (row_bytes / 16 - 1)) << 4);
}

// An operand's number in the lower half of the register.
double number(const Product& product, unsigned bits) {
    return product.float16 ? Binary16::to_float(bits) : Brain16::to_float(bits);
}

using Matrix = double[DEPTH][MOST_COLUMNS];

// Reads b for one warp after the other: each has to know that it is there.
void read_operand(const Product& product, unsigned first_thread,
                  const std::vector<Thread*>& threads, Matrix& b) {
    Layout layout = decoded(product.site, product.b);
    Thread* me = current;
    for (unsigned w = 0; w < WARPGROUP / WARP; w++) {
        current = threads[first_thread + w * WARP];
        for (int k = 0; k < DEPTH; k += product.transposed ? 1 : CHUNK)
            for (int n = 0; n < product.columns; n += product.transposed ? CHUNK : 1) {
                unsigned address = place(layout, product.transposed, k, n);
                const unsigned char* from = shared_pointer(address);
                uint16_t bits[CHUNK];
                if (!from || !shared_pointer(address + sizeof bits - 1))
                    fail(describe("shared memory overflow", at(product.site),
                                  "reads a matrix past shared memory"));
                if (!counting) read_by_products(product.site, from, sizeof bits);
                memcpy(bits, from, sizeof bits);
                for (int i = 0; i < CHUNK; i++)
                    (product.transposed ? b[k][n + i] : b[k + i][n]) = number(product, bits[i]);
            }
    }
    current = me;
    if (counting) count_operand(product.columns * DEPTH * 2);
}

void add_products(const Product* const* of_lane, const std::vector<Accumulators*>& sums,
                  const Matrix& b) {
    double a[TILE_ROWS][DEPTH];
    for (unsigned l = 0; l < WARP; l++)
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                a[l / 4 + 8 * (i % 2)][2 * (l % 4) + half + 8 * (i / 2)] =
                    number(*of_lane[l], of_lane[l]->a[i] >> 16 * half);
    for (int column = 0; column < of_lane[0]->columns; column += TILE_COLUMNS) {
        float* c[WARP];
        for (unsigned l = 0; l < WARP; l++) c[l] = sums[l]->values.data() + column / 2;
        add_tile(c, a, b[0] + column, MOST_COLUMNS, DEPTH);
    }
}

// Those in the registers `c`, or none.
Accumulators* accumulators_at(HopperThread& thread, float* c) {
    for (Accumulators& accumulators : thread.accumulators)
        if (accumulators.c == c) return &accumulators;
    return nullptr;
}

bool same(const Product& x, const Product& y) {
    return x.site.line == y.site.line && x.columns == y.columns && x.b == y.b &&
           x.transposed == y.transposed && x.float16 == y.float16 && x.group == y.group;
}

// The oldest product of a warpgroup, in all its threads.
void finish_product(unsigned first, const std::vector<Thread*>& threads) {
    static Matrix b;
    const Product product = hopper[first].products.front();
    for (unsigned i = 0; i < WARPGROUP; i++) {
        auto& products = hopper[first + i].products;
        if (products.empty() || !same(products.front(), product))
            fail(describe("divergent warpgroup operation", at(product.site),
                          "and thread number %u make different products", first + i));
    }
    read_operand(product, first, threads, b);
    for (unsigned w = first; w < first + WARPGROUP; w += WARP) {
        const Product* of_lane[WARP];
        std::vector<Accumulators*> sums(WARP);
        for (unsigned l = 0; l < WARP; l++) {
            of_lane[l] = &hopper[w + l].products.front();
            sums[l] = accumulators_at(hopper[w + l], of_lane[l]->c);
        }
        add_products(of_lane, sums, b);
    }
    for (unsigned i = first; i < first + WARPGROUP; i++) {
        HopperThread& thread = hopper[i];
        Accumulators& sums = *accumulators_at(thread, thread.products.front().c);
        if (!--sums.under_way) {
            memcpy(sums.c, sums.values.data(), sums.values.size() * sizeof(float));
            sums.written = ++ticks;
        }
        thread.products.erase(thread.products.begin());
    }
}

bool overlap(const void* first, size_t length, const void* other, size_t other_length) {
    auto *a = static_cast<const char*>(first), *b = static_cast<const char*>(other);
    return a < b + other_length && b < a + length;
}

// ---- registers

// A thread's at the launch: what a block alone on a multiprocessor may have, as __launch_bounds__
// asks of these kernels.
unsigned at_launch() { return std::min(65536 / block_threads, 256u) / 8 * 8; }
unsigned registers_of(const HopperThread& thread) {
    return thread.registers ? thread.registers : at_launch();
}

// Who takes registers waits until the block has them; that it ever does is all that is looked at.
void check_registers_of_block(unsigned first_thread) {
    unsigned total = 0;
    const HopperThread* taker = nullptr;
    for (unsigned i = 0; i < block_threads; i++) {
        const HopperThread &thread = hopper[first_thread + i],
                           &first = hopper[first_thread + i / WARPGROUP * WARPGROUP];
        if (registers_of(thread) != registers_of(first))
            return report(describe("divergent warpgroup operation",
                                   at((thread.registers ? thread : first).changed),
                                   "has %u registers, thread number %u has %u", registers_of(first),
                                   i, registers_of(thread)));
        total += registers_of(thread);
        if (registers_of(thread) > at_launch()) taker = &thread;
    }
    if (total > block_threads * at_launch())
        report(describe("deadlock", at(taker->changed),
                        "waits for registers: the block would have %u, and has %u", total,
                        block_threads * at_launch()));
}

}  // namespace

// ---- a block

void begin_hopper(unsigned threads) {
    all_threads = threads;
    barriers_in_use = false;
    ticks = 0;
    barriers.clear();
    copies.clear();
    destinations.clear();
    reads_of.clear();
    stored_to_shared = false;
}

void pass_barrier_hopper(unsigned first_thread, unsigned count) {
    if (!barriers_in_use) return;
    unsigned first = first_thread / WARP, last = (first_thread + count + WARP - 1) / WARP;
    VectorClock all;
    for (unsigned w = first; w < last; w++) hand_over(w), all.join(clocks[w]);
    std::fill(clocks.begin() + first, clocks.begin() + last, all);
}

void pass_warp_hopper() {
    if (barriers_in_use) hand_over(warp());
}

void end_thread_hopper() {
    if (barriers_in_use && !mine().products.empty())
        fail(describe("missing wgmma wait", at(mine().products.front().site),
                      "ends before its products"));
}

void end_block_hopper() {
    if (!copies.empty())
        report(describe("missing barrier wait", Place{},
                        "or another of its block ends before its copies"));
    for (unsigned first = 0; barriers_in_use && first < all_threads; first += block_threads)
        check_registers_of_block(first);
}

// No thread can go on: the oldest copy arrives. False if there is none.
bool copy_arrives() {
    if (copies.empty()) return false;
    BulkCopy copy = copies.front();
    copies.erase(copies.begin());
    if (has_ended(rank_of(copy.to))) {
        report(describe("missing cluster barrier", Place{},
                        "or another copies to shared memory of block %s, which has ended",
                        block_of(rank_of(copy.to)).c_str()));
        return true;
    }
    memcpy(copy.to, copy.from, copy.bytes);
    copy_pending(copy.to, copy.bytes, false);
    destination_at(copy.to)->arrived = ++ticks;
    PhaseBarrier& barrier = barriers.at(copy.barrier);
    barrier.arriving.tick[ENGINE] = ticks;
    barrier.bytes -= copy.bytes;
    end_phase_if_complete(copy.barrier);
    return true;
}

std::string why_waiting() {
    const HopperThread& thread = mine();
    const PhaseBarrier& barrier = barriers.at(thread.barrier);
    char text[200];
    snprintf(text, sizeof text,
             "waits for a phase of parity %u that never ends: %d of %d arrivals and %lld bytes "
             "are missing",
             thread.parity, barrier.missing, barrier.count, static_cast<long long>(barrier.bytes));
    return text;
}

// ---- barriers

static void must_be_own(Site site, const void* barrier) {
    if (rank_of(barrier) != current->rank)
        fail(describe("bad barrier", at(site), "initialises or waits for a barrier of block %s",
                      block_of(rank_of(barrier)).c_str()));
}

void mbarrier_init(void* barrier, int count, Site site) {
    enter();
    must_be_shared(site, barrier, "barrier");
    must_be_own(site, barrier);
    if (reinterpret_cast<uintptr_t>(barrier) % 8)
        fail(describe("misaligned access", at(site), "has a barrier at no multiple of 8"));
    if (barriers.count(barrier))
        fail(describe("bad barrier", at(site), "initialises a barrier again"));
    accessed(barrier, 8, true, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
    clocks[warp()].tick[warp()] = ++ticks;
    barriers[barrier] = {count, count, 0, 0, ticks, current->linear, warp(), false, {}, {}, {}};
}

void fence_mbarrier_init() {
    for (auto& [address, barrier] : barriers)
        if (barrier.initialiser == current->linear) barrier.visible = true;
}

void mbarrier_arrive(void* barrier, Site site) { arrive(site, barrier, 0); }

void mbarrier_arrive_expect_tx(void* barrier, int bytes, Site site) {
    arrive(site, barrier, bytes);
}

void mbarrier_wait_parity(void* address, unsigned parity, Site site) {
    PhaseBarrier& barrier = barrier_at(site, address);
    must_be_own(site, address);
    if (parity > 1) fail(describe("bad barrier", at(site), "waits for a parity of %u", parity));
    if (!is_over(barrier, parity)) {
        mine().barrier = address, mine().parity = parity;
        wait_for_phase(site);
    }
    clocks[warp()].join(barrier.completed);
}

bool waits_at(unsigned thread, void* barrier) {
    return hopper[thread].barrier == barrier &&
           is_over(barriers.at(barrier), hopper[thread].parity);
}

// ---- copies

void cp_async_bulk(void* to, const void* from, int bytes, void* barrier, Site site) {
    uintptr_t address = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    if (bytes <= 0 ||
        (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | unsigned(bytes)) %
            16)
        fail(describe("misaligned access", at(site),
                      "copies %d bytes, to or from no multiple of 16, or not so many", bytes));
    must_be_shared(site, to, "copy");
    if (rank_of(to) != rank_of(barrier))
        fail(describe("bad copy", at(site), "copies to one block and completes in another"));
    if (!barrier_at(site, barrier).visible)
        fail(describe("missing fence", at(site),
                      "names a barrier that is not yet visible to the copy engine"));
    for (const Destination& earlier : destinations)
        if (earlier.overlaps(to, bytes)) must_be_loaded(earlier, at(site));
    if (counting)
        count_bulk(bytes);
    else {
        accessed(from, bytes, false, address);
        written_by_copy(site, to, bytes, address);
    }
    auto* first = static_cast<unsigned char*>(to);
    forget_destinations(first, first + bytes);
    destinations.push_back({first, size_t(bytes), 0, {}, {}});
    memset(to, 0xff, bytes);
    copies.push_back({first, static_cast<const unsigned char*>(from), unsigned(bytes), barrier});
}

void cp_async_bulk_multicast(void* to, const void* from, int bytes, void* barrier, unsigned ranks,
                             Site site) {
    for (unsigned rank = 0; rank < 32; rank++)
        if (ranks >> rank & 1) {
            must_be_there(at(site), rank, "copies to");
            cp_async_bulk(in_block(to, rank), from, bytes, in_block(barrier, rank), site);
        }
}

// An access to what a copy has written, by this thread.
void check_destination(Place place, const void* pointer, bool write) {
    Destination* destination = destination_at(pointer);
    if (!destination->arrived || clocks[warp()].tick[ENGINE] < destination->arrived)
        fail(describe("missing barrier wait", place,
                      "%s what a copy brings without waiting for its barrier",
                      write ? "overwrites" : "reads"));
    if (write)
        must_be_read(*destination, place);
    else
        destination->read[warp()] = ++ticks;
}

void loaded_destination(const void* pointer) {
    destination_at(pointer)->loaded[warp()] = mine().load = ++ticks;
}

void fence_proxy_async() {
    enter();
    mine().proxy_fenced = ++ticks;
}

bool handed_over(unsigned thread, uint64_t since) {
    const VectorClock& known = clocks[warp()];
    return known.tick[thread / WARP] >= since ||
           (thread < known.arrived.size() && known.arrived[thread] >= since);
}

void read_by_thread(const void* pointer, size_t bytes) {
    unsigned these = bytes_of_chunk(pointer, bytes);
    std::vector<Read>& reads = reads_of[chunk_of(pointer)];
    for (Read& read : reads)
        if (read.thread == current->linear) {
            read.bytes |= these;
            read.tick = ticks;
            return;
        }
    reads.push_back({current->linear, these, ticks});
}

bool reads_handed_over(const void* pointer, size_t bytes) {
    auto reads = reads_of.find(chunk_of(pointer));
    if (reads == reads_of.end()) return false;
    unsigned these = bytes_of_chunk(pointer, bytes);
    return std::all_of(reads->second.begin(), reads->second.end(), [these](const Read& read) {
        return !(read.bytes & these) || read.thread == current->linear ||
               handed_over(read.thread, read.tick);
    });
}

bool is_fenced(unsigned thread, uint64_t since) {
    return barriers_in_use && hopper[thread].proxy_fenced > since;
}

// ---- products

void wgmma_fence() {
    enter();
    mine().fenced = ++ticks;
}

void wgmma_commit_group() {
    enter();
    mine().group++;
}

void loaded_fragment(Site site, const unsigned* to, size_t bytes) {
    if (!barriers_in_use) return;
    for (const Product& product : mine().products)
        if (overlap(product.a, 16, to, bytes))
            fail(describe("missing wgmma wait", at(site),
                          "loads a fragment to registers of products under way"));
    mine().loaded[to] = ++ticks;
}

void check_registers(const void* pointer, size_t bytes, bool write, uintptr_t address) {
    for (const Product& product : mine().products)
        if (overlap(product.c, product.columns / 2 * sizeof(float), pointer, bytes) ||
            (write && overlap(product.a, 16, pointer, bytes)))
            fail(describe("missing wgmma wait", at(address), "%s registers of products under way",
                          write ? "writes" : "reads"));
}

void multiply_warpgroup(Site site, float* c, const unsigned* a, int columns, uint64_t b,
                        bool transposed, bool float16) {
    enter();
    HopperThread& thread = mine();
    if ((current->rank + 1) * block_threads < warpgroup() + WARPGROUP)
        fail(describe("divergent warpgroup operation", at(site),
                      "is not in a warpgroup of 128 threads"));
    decoded(site, b);
    Accumulators* sums = accumulators_at(thread, c);
    if (!sums) {
        thread.accumulators.push_back(
            {c, std::vector<float>(columns / 2, std::numeric_limits<float>::quiet_NaN()), 0, 0});
        sums = &thread.accumulators.back();
    }
    size_t bytes = sums->values.size() * sizeof(float);
    bool changed = !sums->under_way && memcmp(sums->values.data(), c, bytes);
    bool loaded = thread.loaded.count(a) && thread.loaded[a] > thread.fenced;
    if ((changed && thread.fenced <= sums->written) || loaded)
        fail(describe("missing wgmma fence", at(site),
                      "multiplies with registers written since the last wgmma.fence"));
    if (!sums->under_way++) memcpy(sums->values.data(), c, bytes);
    memset(c, 0xff, bytes);
    thread.products.push_back({site, c, a, columns, b, transposed, float16, thread.group});
}

// As __syncthreads, of whole warpgroups. Nothing is checked of the others, which should touch no
// memory by then.
void sync_first(Site site, unsigned count) {
    unsigned first = current->rank * block_threads;
    std::vector<Thread*> threads = meet(site, first, count);
    if (threads.empty()) return;  // the last thread has done it
    pass_barrier(current->rank);
    for (unsigned i = first; i < first + count; i++) threads[i]->state = State::READY;
}

void change_registers(Site site, unsigned count, bool more) {
    enter();
    unsigned before = registers_of(mine());
    if (more ? count < before : count > before)
        fail(describe("bad registers", at(site), "%s registers to have %u, of %u",
                      more ? "takes" : "gives", count, before));
    mine().registers = count, mine().changed = site;
}

void wait_for_products(Site site, unsigned groups_left) {
    enter();
    mine().groups_left = groups_left;
    unsigned first = warpgroup();
    std::vector<Thread*> threads = meet(site, first, WARPGROUP);
    if (threads.empty()) return;  // the last of the warpgroup has done it
    auto waits = [&] {
        const HopperThread& leader = hopper[first];
        return !leader.products.empty() &&
               leader.products.front().group + groups_left < leader.group;
    };
    for (unsigned i = first; i < first + WARPGROUP; i++)
        if (hopper[i].groups_left != groups_left)
            fail(describe("divergent warpgroup operation", at(site),
                          "leaves %u groups under way, thread number %u leaves %u", groups_left, i,
                          hopper[i].groups_left));
    while (waits()) finish_product(first, threads);
    for (unsigned i = first; i < first + WARPGROUP; i++) threads[i]->state = State::READY;
}

}  // namespace emulator
