// cuda::atomic and cuda::atomic_ref of libcu++ (its reference, "Atomic Types"). Every order but
// memory_order_relaxed fences before the access.
#pragma once
#include <atomic>

#include "barriers.h"

namespace cuda {
namespace std = ::std;
using ::std::memory_order, ::std::memory_order_acq_rel, ::std::memory_order_acquire,
    ::std::memory_order_relaxed, ::std::memory_order_release, ::std::memory_order_seq_cst;

constexpr emulator::Scope reach_of(thread_scope scope) {
    return scope == thread_scope_block ? emulator::Scope::BLOCK : emulator::Scope::DEVICE;
}

// What both have; Self::place() is the number's address.
template <class Self, class T, thread_scope Scope>
class AtomicOperations {
    template <class Next>
    EMULATOR_INLINE T replace(memory_order order, Next next, bool reads = true) const {
        if (order != memory_order_relaxed) emulator::fence(reach_of(Scope));
        return emulator::atomic(reach_of(Scope), static_cast<const Self*>(this)->place(), next,
                                reads);
    }

public:
#define EMULATOR_FETCH(name, expression)                                               \
    EMULATOR_INLINE T name(T value, memory_order order = memory_order_seq_cst) const { \
        return replace(order, [value](T old) { return static_cast<T>(expression); });  \
    }
    EMULATOR_FETCH(fetch_add, old + value)
    EMULATOR_FETCH(fetch_sub, old - value)
    EMULATOR_FETCH(fetch_and, old& value)
    EMULATOR_FETCH(fetch_or, old | value)
    EMULATOR_FETCH(fetch_xor, old ^ value)
    EMULATOR_FETCH(fetch_min, value < old ? value : old)
    EMULATOR_FETCH(fetch_max, old < value ? value : old)
    EMULATOR_FETCH(exchange, value)
#undef EMULATOR_FETCH
    EMULATOR_INLINE void store(T value, memory_order order = memory_order_seq_cst) const {
        replace(order, [value](T) { return value; }, false);
    }
    EMULATOR_INLINE T load(memory_order order = memory_order_seq_cst) const {
        return replace(order, [](T old) { return old; });
    }
    EMULATOR_INLINE bool compare_exchange_strong(T& expected, T value,
                                                 memory_order order = memory_order_seq_cst,
                                                 memory_order = memory_order_seq_cst) const {
        T compare = expected;
        expected = replace(order, [compare, value](T old) {
            return emulator::same_bits(old, compare) ? value : old;
        });
        return emulator::same_bits(expected, compare);
    }
    EMULATOR_INLINE bool compare_exchange_weak(T& expected, T value,
                                               memory_order order = memory_order_seq_cst,
                                               memory_order = memory_order_seq_cst) const {
        return compare_exchange_strong(expected, value, order);
    }
    EMULATOR_INLINE operator T() const { return load(); }
    EMULATOR_INLINE T operator=(T value) const { return store(value), value; }
    EMULATOR_INLINE T operator++() const { return fetch_add(1) + 1; }
    EMULATOR_INLINE T operator++(int) const { return fetch_add(1); }
    EMULATOR_INLINE T operator--() const { return fetch_sub(1) - 1; }
    EMULATOR_INLINE T operator--(int) const { return fetch_sub(1); }
    EMULATOR_INLINE T operator+=(T value) const { return fetch_add(value) + value; }
    EMULATOR_INLINE T operator-=(T value) const { return fetch_sub(value) - value; }
};

template <class T, thread_scope Scope = thread_scope_system>
class atomic : public AtomicOperations<atomic<T, Scope>, T, Scope> {
    T value;

public:
    atomic() = default;
    constexpr atomic(T value) : value(value) {}
    using AtomicOperations<atomic, T, Scope>::operator=;
    T* place() const { return const_cast<T*>(&value); }
};
template <class T, thread_scope Scope = thread_scope_system>
class atomic_ref : public AtomicOperations<atomic_ref<T, Scope>, T, Scope> {
    T* pointer;

public:
    explicit atomic_ref(T& value) : pointer(&value) {}
    using AtomicOperations<atomic_ref, T, Scope>::operator=;
    T* place() const { return pointer; }
};

EMULATOR_INLINE void atomic_thread_fence(memory_order, thread_scope scope = thread_scope_system) {
    emulator::fence(reach_of(scope));
}

}  // namespace cuda
