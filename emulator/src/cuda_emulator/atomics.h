// Atomics and fences (CUDA C++ Programming Guide, "Atomic Functions", "Memory Fence Functions").
// atomics.cpp says what they order.
#pragma once
#include "intrinsics.h"

namespace emulator {

enum class Scope : uint8_t { BLOCK, DEVICE };

// Checks an atomic access, before it is made; reads: what was there before.
void atomic_access(const void* pointer, size_t bytes, Scope, uintptr_t address, bool reads);
void fence(Scope);
uintptr_t code_address() __attribute__((noinline));  // of the call
// What this thread has read plainly there was a guess, which it compares now.
void compares(const void* pointer, size_t bytes);

// The access itself is not watched.
template <class T, class Next>
__attribute__((no_sanitize("thread", "undefined"), noinline)) T replace(T* pointer, Next next) {
    T old = *pointer;
    *pointer = next(old);
    return old;
}
template <class T, class Next>
EMULATOR_INLINE T atomic(Scope scope, T* pointer, Next next, bool reads = true) {
    atomic_access(pointer, sizeof(T), scope, code_address(), reads);
    return replace(pointer, next);
}
template <class T>
inline bool same_bits(const T& x, const T& y) {
    return !__builtin_memcmp(&x, &y, sizeof x);
}
template <class T>
using Same = std::common_type_t<T>;  // not deduced
template <class T>
EMULATOR_INLINE T compare_and_swap(Scope scope, T* pointer, Same<T> compare, Same<T> value) {
    compares(pointer, sizeof(T));
    return atomic(scope, pointer,
                  [compare, value](T old) { return same_bits(old, compare) ? value : old; });
}

}  // namespace emulator

// `old` and `value`: what the expression combines
#define EMULATOR_ATOMIC(name, expression)                                               \
    template <class T>                                                                  \
    EMULATOR_INLINE T name(T* pointer, emulator::Same<T> value) {                       \
        return emulator::atomic(emulator::Scope::DEVICE, pointer,                       \
                                [value](T old) { return static_cast<T>(expression); }); \
    }                                                                                   \
    template <class T>                                                                  \
    EMULATOR_INLINE T name##_block(T* pointer, emulator::Same<T> value) {               \
        return emulator::atomic(emulator::Scope::BLOCK, pointer,                        \
                                [value](T old) { return static_cast<T>(expression); }); \
    }                                                                                   \
    template <class T>                                                                  \
    EMULATOR_INLINE T name##_system(T* pointer, emulator::Same<T> value) {              \
        return name(pointer, value);                                                    \
    }                                                                                   \
    template <class T>                                                                  \
    EMULATOR_INLINE T name(volatile T* pointer, emulator::Same<T> value) {              \
        return name(const_cast<T*>(pointer), value);                                    \
    }
EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicSub, old - value)
EMULATOR_ATOMIC(atomicExch, value)
EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, old& value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicXor, old ^ value)
EMULATOR_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef EMULATOR_ATOMIC
template <class T>
EMULATOR_INLINE T atomicCAS(T* pointer, emulator::Same<T> compare, emulator::Same<T> value) {
    return emulator::compare_and_swap(emulator::Scope::DEVICE, pointer, compare, value);
}
template <class T>
EMULATOR_INLINE T atomicCAS(volatile T* pointer, emulator::Same<T> compare,
                            emulator::Same<T> value) {
    return atomicCAS(const_cast<T*>(pointer), compare, value);
}
template <class T>
EMULATOR_INLINE T atomicCAS_block(T* pointer, emulator::Same<T> compare, emulator::Same<T> value) {
    return emulator::compare_and_swap(emulator::Scope::BLOCK, pointer, compare, value);
}
template <class T>
EMULATOR_INLINE T atomicCAS_system(T* pointer, emulator::Same<T> compare, emulator::Same<T> value) {
    return atomicCAS(pointer, compare, value);
}
static inline void __threadfence_block() { emulator::fence(emulator::Scope::BLOCK); }
static inline void __threadfence() { emulator::fence(emulator::Scope::DEVICE); }
static inline void __threadfence_system() { emulator::fence(emulator::Scope::DEVICE); }
