// cuda::barrier and cuda::pipeline of libcu++ (its reference, "Synchronization Primitives"), of a
// block's threads. A pipeline's copies are cp.async, and its stages their groups.
#pragma once
#include "atomics.h"

namespace emulator {
void token_barrier_init(const void* barrier, unsigned count);
unsigned token_barrier_arrive(Site, const void* barrier, unsigned times, bool drops);
void token_barrier_wait(Site, const void* barrier, unsigned token);
unsigned thread_number();

// Bytes by as many copies as the alignment of both sides allows.
EMULATOR_INLINE void copy_by_cp_async(void* to, const void* from, size_t bytes, Site site) {
    auto both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    size_t each = both % 16 == 0 ? 16 : both % 8 == 0 ? 8 : 4;
    for (size_t i = 0; i < bytes; i += each)
        cp_async(each, static_cast<char*>(to) + i, static_cast<const char*>(from) + i, true, site);
}
}  // namespace emulator

namespace cuda {

enum thread_scope {
    thread_scope_system,
    thread_scope_device,
    thread_scope_block,
    thread_scope_thread
};

template <thread_scope Scope>
class barrier {
    uint64_t opaque;

public:
    using arrival_token = unsigned;
    barrier() = default;
    friend void init(barrier* self, ptrdiff_t count) { emulator::token_barrier_init(self, count); }
    arrival_token arrive(ptrdiff_t times = 1, emulator::Site site = emulator::here()) {
        emulator::
            cp_async_commit_group();  // copies are on the barrier that their thread arrives at
        emulator::wait_for_copies(0);
        return emulator::token_barrier_arrive(site, this, times, false);
    }
    void wait(arrival_token token, emulator::Site site = emulator::here()) const {
        emulator::token_barrier_wait(site, this, token);
    }
    void arrive_and_wait(emulator::Site site = emulator::here()) { wait(arrive(1, site), site); }
    void arrive_and_drop(emulator::Site site = emulator::here()) {
        emulator::token_barrier_arrive(site, this, 1, true);
    }
};

template <size_t Alignment>
struct aligned_size_t {
    size_t value;
    explicit aligned_size_t(size_t bytes) : value(bytes) {}
    operator size_t() const { return value; }
};

template <thread_scope Scope, unsigned Stages>
struct pipeline_shared_state {
    uint64_t opaque;
};

// of_block: every thread of the block takes part in every stage.
template <thread_scope Scope>
class pipeline {
    bool of_block = false;
    unsigned committed = 0, consumed = 0;

public:
    explicit pipeline(bool of_block = false) : of_block(of_block) {}
    void producer_acquire() {}
    void producer_commit() {
        emulator::cp_async_commit_group();
        committed++;
    }
    EMULATOR_INLINE void consumer_wait(emulator::Site site = emulator::here()) {
        wait_prior(committed - consumed - 1, site);
        consumed++;
    }
    EMULATOR_INLINE void consumer_release(emulator::Site site = emulator::here()) {
        if (of_block) emulator::syncthreads(site);
    }
    EMULATOR_INLINE void wait_prior(unsigned left, emulator::Site site) {
        emulator::wait_for_copies(left);
        if (of_block) emulator::syncthreads(site);
    }
    bool quit() { return true; }
};
inline pipeline<thread_scope_thread> make_pipeline() { return pipeline<thread_scope_thread>(); }
template <class Group, thread_scope Scope, unsigned Stages>
pipeline<Scope> make_pipeline(const Group&, pipeline_shared_state<Scope, Stages>*) {
    return pipeline<Scope>(true);
}
template <unsigned Left, thread_scope Scope>
EMULATOR_INLINE void pipeline_consumer_wait_prior(pipeline<Scope>& pipe,
                                                  emulator::Site site = emulator::here()) {
    pipe.wait_prior(Left, site);
}

template <class T, class Shape, class Sync>
EMULATOR_INLINE void memcpy_async(T* to, const T* from, Shape bytes, Sync&,
                                  emulator::Site site = emulator::here()) {
    emulator::copy_by_cp_async(to, from, bytes, site);
}
template <class Group, class T, class Shape, class Sync>
EMULATOR_INLINE void memcpy_async(const Group& group, T* to, const T* from, Shape bytes, Sync&,
                                  emulator::Site site = emulator::here()) {
    size_t each = size_t(bytes) % (16 * group.size()) == 0 ? 16 : 4;
    for (size_t at = each * group.thread_rank(); at < size_t(bytes); at += each * group.size())
        emulator::copy_by_cp_async(reinterpret_cast<char*>(to) + at,
                                   reinterpret_cast<const char*>(from) + at, each, site);
}

}  // namespace cuda

// ---- cuda_pipeline.h

static inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes,
                                           size_t zeros = 0,
                                           emulator::Site site = emulator::here()) {
    emulator::cp_async(bytes, to, from, zeros == 0, site);
}
static inline void __pipeline_commit() { emulator::cp_async_commit_group(); }
static inline void __pipeline_wait_prior(unsigned left) { emulator::wait_for_copies(left); }
