// CUDA's vector types with their sizes and alignments (CUDA C++ Programming Guide, "Built-in Vector
// Types"), and dim3.
#pragma once
#include <cstddef>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

namespace emulator {
// what a vector consists of
template <class Vector>
struct Scalar {
    using type = void;
};
constexpr size_t vector_alignment(size_t bytes) { return bytes < 16 ? bytes : 16; }
}  // namespace emulator

#define EMULATOR_SCALAR(vector, scalar) \
    template <>                         \
    struct emulator::Scalar<vector> {   \
        using type = scalar;            \
    };
#define EMULATOR_THREE(type, name) \
    struct name##3 { type x, y, z; };
#define EMULATOR_OTHERS(type, name)                                                              \
    struct name##1 { type x; };                                                                  \
    struct alignas(emulator::vector_alignment(2 * sizeof(type))) name##2 { type x, y; };         \
    struct alignas(emulator::vector_alignment(4 * sizeof(type))) name##4 { type x, y, z, w; };   \
    static inline constexpr name##1 make_##name##1(type x) { return {x}; }                       \
    static inline constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }            \
    static inline constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    static inline constexpr name##4 make_##name##4(type x, type y, type z, type w) {             \
        return {x, y, z, w};                                                                     \
    }                                                                                            \
    EMULATOR_SCALAR(name##1, type)                                                               \
    EMULATOR_SCALAR(name##2, type)                                                               \
    EMULATOR_SCALAR(name##3, type)                                                               \
    EMULATOR_SCALAR(name##4, type)
#define EMULATOR_VECTOR(type, name) \
    EMULATOR_THREE(type, name)      \
    EMULATOR_OTHERS(type, name)
EMULATOR_VECTOR(signed char, char)
EMULATOR_VECTOR(unsigned char, uchar)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(unsigned short, ushort)
EMULATOR_VECTOR(int, int)
EMULATOR_OTHERS(unsigned, uint)
EMULATOR_VECTOR(long, long)
EMULATOR_VECTOR(unsigned long, ulong)
EMULATOR_VECTOR(long long, longlong)
EMULATOR_VECTOR(unsigned long long, ulonglong)
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(double, double)
#undef EMULATOR_VECTOR
#undef EMULATOR_OTHERS
#undef EMULATOR_THREE
