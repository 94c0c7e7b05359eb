// Cooperative groups (CUDA C++ Programming Guide, "Cooperative Groups"): the block, tiles of a warp
// and coalesced lanes, with their shuffles, votes, reductions and scans. A grid can be asked for
// its sizes; nothing synchronises one. Included behind the names of cuda_emulator.h.
#pragma once

namespace cooperative_groups {

namespace emulated {
using emulator::here;
using emulator::Site;

// Lanes of a warp, the mask of which is known. Ranks count its lanes from the lowest on.
struct Lanes {
    unsigned mask;
    unsigned long long num_threads() const { return __builtin_popcount(mask); }
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const {
        return __builtin_popcount(mask & ((1u << emulator::lane()) - 1));
    }
    // The lane of a rank.
    unsigned lane_of(unsigned rank) const {
        unsigned rest = mask;
        for (; rank && rest; rank--) rest &= rest - 1;
        return rest ? __builtin_ctz(rest) : emulator::lane();
    }
    // Bits of lanes as bits of ranks.
    unsigned ranks(unsigned lanes) const {
        unsigned result = 0, rank = 0;
        for (unsigned l = 0; l < 32; l++)
            if (mask >> l & 1) result |= (lanes >> l & 1) << rank++;
        return result;
    }
    EMULATOR_INLINE void sync(Site site = here()) const { emulator::syncwarp(site, mask); }
    template <class T>
    EMULATOR_INLINE T shfl(T value, int rank, Site site = here()) const {
        return emulator::shuffle_value(site, mask, value, lane_of(unsigned(rank) % size()));
    }
    template <class T>
    EMULATOR_INLINE T shfl_up(T value, unsigned delta, Site site = here()) const {
        unsigned rank = thread_rank();
        return emulator::shuffle_value(site, mask, value,
                                       lane_of(rank < delta ? rank : rank - delta));
    }
    template <class T>
    EMULATOR_INLINE T shfl_down(T value, unsigned delta, Site site = here()) const {
        unsigned rank = thread_rank();
        return emulator::shuffle_value(site, mask, value,
                                       lane_of(rank + delta < size() ? rank + delta : rank));
    }
    template <class T>
    EMULATOR_INLINE T shfl_xor(T value, unsigned bits, Site site = here()) const {
        unsigned rank = thread_rank();
        return emulator::shuffle_value(site, mask, value,
                                       lane_of((rank ^ bits) < size() ? rank ^ bits : rank));
    }
    EMULATOR_INLINE unsigned ballot(int predicate, Site site = here()) const {
        return ranks(emulator::ballot(site, mask, predicate != 0));
    }
    EMULATOR_INLINE int any(int predicate, Site site = here()) const {
        return emulator::ballot(site, mask, predicate != 0) != 0;
    }
    EMULATOR_INLINE int all(int predicate, Site site = here()) const {
        return emulator::ballot(site, mask, predicate == 0) == 0;
    }
    template <class T>
    EMULATOR_INLINE unsigned match_any(T value, Site site = here()) const {
        return ranks(emulator::match_any(site, mask, value));
    }
    template <class T>
    EMULATOR_INLINE unsigned match_all(T value, int& all, Site site = here()) const {
        return ranks(emulator::match_all(site, mask, value, &all));
    }
};

static inline unsigned lanes_of_warp() {
    unsigned threads = blockDim.x * blockDim.y * blockDim.z,
             first = emulator::thread_number() / 32 * 32;
    return threads - first >= 32 ? ~0u : (1u << (threads - first)) - 1;
}
static inline unsigned lanes_of_tile(unsigned size) {
    unsigned first = emulator::lane() / size * size;
    return (size == 32 ? ~0u : ((1u << size) - 1) << first) & lanes_of_warp();
}
}  // namespace emulated

// A group of any kind: the block, or lanes.
class thread_group : public emulated::Lanes {
public:
    bool block = false;
    thread_group(bool is_block, unsigned lanes) : Lanes{lanes}, block(is_block) {}
    unsigned long long num_threads() const {
        return block ? blockDim.x * blockDim.y * blockDim.z : Lanes::num_threads();
    }
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const {
        return block ? emulator::thread_number() : Lanes::thread_rank();
    }
    EMULATOR_INLINE void sync(emulator::Site site = emulator::here()) const {
        block ? emulator::syncthreads(site) : Lanes::sync(site);
    }
    bool is_valid() const { return true; }
};

class thread_block : public thread_group {
public:
    thread_block() : thread_group(true, 0) {}
    static unsigned thread_rank() { return emulator::thread_number(); }
    static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned size() { return num_threads(); }
    EMULATOR_INLINE static void sync(emulator::Site site = emulator::here()) {
        emulator::syncthreads(site);
    }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};

class grid_group {
public:
    bool is_valid() const { return true; }
    unsigned long long block_rank() const {
        return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
               blockIdx.x;
    }
    unsigned long long num_blocks() const { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long thread_rank() const {
        return block_rank() * thread_block::num_threads() + emulator::thread_number();
    }
    unsigned long long num_threads() const { return num_blocks() * thread_block::num_threads(); }
    unsigned long long size() const { return num_threads(); }
    dim3 group_dim() const { return gridDim; }
    dim3 dim_blocks() const { return gridDim; }
    dim3 block_index() const { return blockIdx; }
    void sync(emulator::Site site = emulator::here()) const { emulator::sync_grid(site); }
};

class coalesced_group : public thread_group {
public:
    explicit coalesced_group(unsigned lanes) : thread_group(false, lanes) {}
    unsigned meta_group_rank() const { return 0; }
    unsigned meta_group_size() const { return 1; }
};

template <unsigned Size, class Parent = void>
class thread_block_tile : public thread_group {
public:
    thread_block_tile() : thread_group(false, emulated::lanes_of_tile(Size)) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned thread_rank() { return emulator::lane() % Size; }
    static unsigned meta_group_rank() { return emulator::thread_number() / Size; }
    static unsigned meta_group_size() { return (thread_block::num_threads() + Size - 1) / Size; }
};

static inline thread_block this_thread_block() { return {}; }
static inline grid_group this_grid() { return {}; }
#define coalesced_threads() coalesced_group_of(emulator::active_lanes(EMULATOR_SITE))
static inline coalesced_group coalesced_group_of(unsigned lanes) { return coalesced_group(lanes); }

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    static_assert(Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");
    return {};
}
template <class Parent>
thread_group tiled_partition(const Parent&, unsigned size) {
    return {false, emulated::lanes_of_tile(size)};
}
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate) {
    unsigned chosen = emulator::ballot(emulator::here(), group.mask, predicate);
    return coalesced_group(predicate ? chosen : group.mask & ~chosen);
}
template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label) {
    return coalesced_group(emulator::match_any(emulator::here(), group.mask, label));
}

template <class Group>
EMULATOR_INLINE void sync(const Group& group, emulator::Site site = emulator::here()) {
    group.sync(site);
}
template <class Group>
EMULATOR_INLINE unsigned long long thread_rank(const Group& group) {
    return group.thread_rank();
}
template <class Group>
EMULATOR_INLINE unsigned long long group_size(const Group& group) {
    return group.size();
}

// ---- reductions and scans

#define EMULATOR_OPERATOR(name, expression) \
    template <class T = void>               \
    struct name {                           \
        template <class A>                  \
        A operator()(A a, A b) const {      \
            return expression;              \
        }                                   \
    };
EMULATOR_OPERATOR(plus, a + b)
EMULATOR_OPERATOR(less, b < a ? b : a)
EMULATOR_OPERATOR(greater, a < b ? b : a)
EMULATOR_OPERATOR(bit_and, a& b)
EMULATOR_OPERATOR(bit_or, a | b)
EMULATOR_OPERATOR(bit_xor, a ^ b)
#undef EMULATOR_OPERATOR

template <class Group, class T, class Operator>
EMULATOR_INLINE T reduce(const Group& group, T value, Operator combine,
                         emulator::Site site = emulator::here()) {
    return emulator::reduce_lanes(site, group.mask, value, combine);
}
template <class Group, class T, class Operator>
T scanned(const Group& group, T value, Operator combine, bool inclusive, emulator::Site site) {
    T result{};
    bool first = true;
    for (unsigned l = 0; l < 32; l++) {
        if (!(group.mask >> l & 1)) continue;
        T other = emulator::shuffle_value(site, group.mask, value, l);
        if (l > emulator::lane() || (l == emulator::lane() && !inclusive)) continue;
        result = first ? other : combine(result, other);
        first = false;
    }
    return result;
}
template <class Group, class T, class Operator = plus<>>
EMULATOR_INLINE T inclusive_scan(const Group& group, T value, Operator combine = {},
                                 emulator::Site site = emulator::here()) {
    return scanned(group, value, combine, true, site);
}
template <class Group, class T, class Operator = plus<>>
EMULATOR_INLINE T exclusive_scan(const Group& group, T value, Operator combine = {},
                                 emulator::Site site = emulator::here()) {
    return scanned(group, value, combine, false, site);
}

// ---- the cluster

struct cluster_group {
    using Site = emulator::Site;
    void barrier_arrive(Site site = emulator::here()) const { emulator::cluster_arrive(site); }
    void barrier_wait(Site site = emulator::here()) const { emulator::cluster_wait(site); }
    void sync(Site site = emulator::here()) const { barrier_arrive(site), barrier_wait(site); }
    unsigned block_rank() const { return emulator::cluster_rank(); }
    unsigned num_blocks() const { return emulator::cluster_blocks(); }
    template <class T>
    T* map_shared_rank(T* shared, unsigned rank) const {
        return static_cast<T*>(emulator::in_block(shared, rank));
    }
};
inline cluster_group this_cluster() { return {}; }

// ---- copies of a whole group: each thread's share by cp.async

template <class Group>
void memcpy_async(const Group& group, void* to, const void* from, size_t bytes) {
    for (size_t at = 4 * group.thread_rank(); at + 4 <= bytes; at += 4 * group.size())
        emulator::cp_async(4, static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
                           true);
    emulator::cp_async_commit_group();
}
template <class Group, class T, class Shape>
void memcpy_async(const Group& group, T* to, const T* from, Shape bytes) {
    memcpy_async(group, static_cast<void*>(to), static_cast<const void*>(from), size_t(bytes));
}
template <class Group>
EMULATOR_INLINE void wait(const Group& group, emulator::Site site = emulator::here()) {
    emulator::wait_for_copies(0);
    group.sync(site);
}
template <unsigned stages, class Group>
EMULATOR_INLINE void wait_prior(const Group& group, emulator::Site site = emulator::here()) {
    emulator::wait_for_copies(stages);
    group.sync(site);
}

}  // namespace cooperative_groups
