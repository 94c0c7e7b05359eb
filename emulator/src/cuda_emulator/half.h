// CUDA's 16-bit floating-point numbers, __half and __nv_bfloat16, and their intrinsics (CUDA Math
// API, "Half Precision Intrinsics", "Bfloat16 Precision Intrinsics"). Each operation is made in
// float32 or float64 and rounded once.
#pragma once
#include "atomics.h"

namespace emulator {

struct Binary16 {
    static constexpr const char* name = "float16";
    static float to_float(unsigned short bits) {
        unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
        float magnitude =
            exponent == 0
                ? fraction * 0x1p-24f
                : bits_of<float>((exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
        return bits & 0x8000 ? -magnitude : magnitude;
    }
    static unsigned short from_float(float x) { return cvt_f16(x); }
};
struct Brain16 {
    static constexpr const char* name = "bfloat16";
    static float to_float(unsigned short bits) { return bits_of<float>(unsigned(bits) << 16); }
    static unsigned short from_float(float x) { return cvt_bf16(x); }
};

// A float64 as a float32 that rounds to 16 bits as the float64 would: to odd where it is inexact.
static inline float to_odd(double x) {
    float near = static_cast<float>(x);
    if (near == x || x != x || std::isinf(near)) return near;
    unsigned bits = bits_of<unsigned>(near);
    if (fabs(static_cast<double>(near)) > fabs(x)) bits--;
    return bits_of<float>(bits | 1);
}

// One of the two numbers of 16 bits in a register.
static inline float half_of(unsigned register_, int high) {
    return Binary16::to_float(register_ >> 16 * high);
}

template <class Format>
struct Narrow {
    using Of = Format;
    unsigned short bits;
    Narrow() = default;
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    constexpr Narrow(Number x)
        : bits(Format::from_float(sizeof(Number) > 4 ? to_odd(x) : static_cast<float>(x))) {}
    operator float() const { return Format::to_float(bits); }
    static Narrow of_bits(unsigned short bits) {
        Narrow result;
        result.bits = bits;
        return result;
    }
    Narrow& operator+=(Narrow other) { return *this = *this + other; }
    Narrow& operator-=(Narrow other) { return *this = *this - other; }
    Narrow& operator*=(Narrow other) { return *this = *this * other; }
    Narrow& operator/=(Narrow other) { return *this = *this / other; }
    Narrow operator-() const { return of_bits(bits ^ 0x8000); }
    Narrow operator+() const { return *this; }
    Narrow& operator++() { return *this = *this + Narrow(1.0f); }
    Narrow& operator--() { return *this = *this - Narrow(1.0f); }
    friend Narrow operator+(Narrow a, Narrow b) { return float(a) + float(b); }
    friend Narrow operator-(Narrow a, Narrow b) { return float(a) - float(b); }
    friend Narrow operator*(Narrow a, Narrow b) { return float(a) * float(b); }
    friend Narrow operator/(Narrow a, Narrow b) { return float(a) / float(b); }
    friend bool operator==(Narrow a, Narrow b) { return float(a) == float(b); }
    friend bool operator!=(Narrow a, Narrow b) { return float(a) != float(b); }
    friend bool operator<(Narrow a, Narrow b) { return float(a) < float(b); }
    friend bool operator>(Narrow a, Narrow b) { return float(a) > float(b); }
    friend bool operator<=(Narrow a, Narrow b) { return float(a) <= float(b); }
    friend bool operator>=(Narrow a, Narrow b) { return float(a) >= float(b); }
};

template <class Format>
struct alignas(4) NarrowPair {
    using Of = Format;
    Narrow<Format> x, y;
    NarrowPair() = default;
    constexpr NarrowPair(Narrow<Format> x, Narrow<Format> y) : x(x), y(y) {}
    NarrowPair& operator+=(NarrowPair other) { return *this = *this + other; }
    NarrowPair& operator-=(NarrowPair other) { return *this = *this - other; }
    NarrowPair& operator*=(NarrowPair other) { return *this = *this * other; }
    NarrowPair operator-() const { return {-x, -y}; }
    friend NarrowPair operator+(NarrowPair a, NarrowPair b) { return {a.x + b.x, a.y + b.y}; }
    friend NarrowPair operator-(NarrowPair a, NarrowPair b) { return {a.x - b.x, a.y - b.y}; }
    friend NarrowPair operator*(NarrowPair a, NarrowPair b) { return {a.x * b.x, a.y * b.y}; }
    friend NarrowPair operator/(NarrowPair a, NarrowPair b) { return {a.x / b.x, a.y / b.y}; }
    friend bool operator==(NarrowPair a, NarrowPair b) { return a.x == b.x && a.y == b.y; }
};

template <class Format>
Narrow<Format> fused(Narrow<Format> a, Narrow<Format> b, Narrow<Format> c) {
    return double(float(a)) * float(b) + float(c);
}

}  // namespace emulator

using __half = emulator::Narrow<emulator::Binary16>;
using __half2 = emulator::NarrowPair<emulator::Binary16>;
using __nv_bfloat16 = emulator::Narrow<emulator::Brain16>;
using __nv_bfloat162 = emulator::NarrowPair<emulator::Brain16>;
struct __half_raw {
    unsigned short x;
};
namespace emulator {
template <>
struct Scalar<__half2> {
    using type = __half;
};
template <>
struct Scalar<__nv_bfloat162> {
    using type = __nv_bfloat16;
};
}  // namespace emulator

// ---- of both formats

#define EMULATOR_NARROW template <class Format>
#define EMULATOR_ONE emulator::Narrow<Format>
#define EMULATOR_TWO emulator::NarrowPair<Format>
#define EMULATOR_BINARY(name, suffix, expression)                                  \
    EMULATOR_NARROW EMULATOR_ONE name##suffix(EMULATOR_ONE a, EMULATOR_ONE b) {    \
        return expression;                                                         \
    }                                                                              \
    EMULATOR_NARROW EMULATOR_TWO name##2##suffix(EMULATOR_TWO a, EMULATOR_TWO b) { \
        return {name##suffix(a.x, b.x), name##suffix(a.y, b.y)};                   \
    }
EMULATOR_BINARY(__hadd, , a + b)
EMULATOR_BINARY(__hsub, , a - b)
EMULATOR_BINARY(__hmul, , a* b)
EMULATOR_BINARY(__hadd, _rn, a + b)
EMULATOR_BINARY(__hsub, _rn, a - b)
EMULATOR_BINARY(__hmul, _rn, a* b)
EMULATOR_BINARY(__hadd, _sat, __saturatef(a + b))
EMULATOR_BINARY(__hsub, _sat, __saturatef(a - b))
EMULATOR_BINARY(__hmul, _sat, __saturatef(a* b))
EMULATOR_BINARY(__hmin, , fminf(a, b))
EMULATOR_BINARY(__hmax, , fmaxf(a, b))
#undef EMULATOR_BINARY
EMULATOR_NARROW EMULATOR_ONE __hdiv(EMULATOR_ONE a, EMULATOR_ONE b) { return a / b; }
EMULATOR_NARROW EMULATOR_TWO __h2div(EMULATOR_TWO a, EMULATOR_TWO b) { return a / b; }
#define EMULATOR_FUSED(suffix, expression)                                                         \
    EMULATOR_NARROW EMULATOR_ONE __hfma##suffix(EMULATOR_ONE a, EMULATOR_ONE b, EMULATOR_ONE c) {  \
        return expression;                                                                         \
    }                                                                                              \
    EMULATOR_NARROW EMULATOR_TWO __hfma2##suffix(EMULATOR_TWO a, EMULATOR_TWO b, EMULATOR_TWO c) { \
        return {__hfma##suffix(a.x, b.x, c.x), __hfma##suffix(a.y, b.y, c.y)};                     \
    }
EMULATOR_FUSED(, emulator::fused(a, b, c))
EMULATOR_FUSED(_sat, __saturatef(emulator::fused(a, b, c)))
EMULATOR_FUSED(_relu, fmaxf(emulator::fused(a, b, c), 0.0f))
#undef EMULATOR_FUSED
#define EMULATOR_COMPARE(name, sign)                                            \
    EMULATOR_NARROW bool __h##name(EMULATOR_ONE a, EMULATOR_ONE b) {            \
        return float(a) sign float(b);                                          \
    }                                                                           \
    EMULATOR_NARROW EMULATOR_TWO __h##name##2(EMULATOR_TWO a, EMULATOR_TWO b) { \
        return {float(__h##name(a.x, b.x)), float(__h##name(a.y, b.y))};        \
    }                                                                           \
    EMULATOR_NARROW bool __hb##name##2(EMULATOR_TWO a, EMULATOR_TWO b) {        \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                      \
    }
EMULATOR_COMPARE(eq, ==)
EMULATOR_COMPARE(ne, !=)
EMULATOR_COMPARE(lt, <)
EMULATOR_COMPARE(le, <=)
EMULATOR_COMPARE(gt, >)
EMULATOR_COMPARE(ge, >=)
#undef EMULATOR_COMPARE
EMULATOR_NARROW bool __hisnan(EMULATOR_ONE a) { return float(a) != float(a); }
EMULATOR_NARROW int __hisinf(EMULATOR_ONE a) {
    return std::isinf(float(a)) ? (float(a) > 0.0f ? 1 : -1) : 0;
}
#define EMULATOR_UNARY(name, pair, expression)                               \
    EMULATOR_NARROW EMULATOR_ONE name(EMULATOR_ONE a) { return expression; } \
    EMULATOR_NARROW EMULATOR_TWO pair(EMULATOR_TWO a) { return {name(a.x), name(a.y)}; }
EMULATOR_UNARY(__hneg, __hneg2, -a)
EMULATOR_UNARY(__habs, __habs2, fabsf(a))
EMULATOR_UNARY(hexp, h2exp, exp(double(float(a))))
EMULATOR_UNARY(hexp2, h2exp2, exp2(double(float(a))))
EMULATOR_UNARY(hexp10, h2exp10, exp10(double(float(a))))
EMULATOR_UNARY(hlog, h2log, log(double(float(a))))
EMULATOR_UNARY(hlog2, h2log2, log2(double(float(a))))
EMULATOR_UNARY(hlog10, h2log10, log10(double(float(a))))
EMULATOR_UNARY(hsqrt, h2sqrt, sqrt(double(float(a))))
EMULATOR_UNARY(hrsqrt, h2rsqrt, 1.0 / sqrt(double(float(a))))
EMULATOR_UNARY(hrcp, h2rcp, 1.0 / float(a))
EMULATOR_UNARY(hsin, h2sin, sin(double(float(a))))
EMULATOR_UNARY(hcos, h2cos, cos(double(float(a))))
EMULATOR_UNARY(htanh, h2tanh, tanh(double(float(a))))
EMULATOR_UNARY(htanh_approx, h2tanh_approx, tanh(double(float(a))))
EMULATOR_UNARY(hfloor, h2floor, floorf(a))
EMULATOR_UNARY(hceil, h2ceil, ceilf(a))
EMULATOR_UNARY(htrunc, h2trunc, truncf(a))
EMULATOR_UNARY(hrint, h2rint, rintf(a))
#undef EMULATOR_UNARY
EMULATOR_NARROW EMULATOR_ONE __low2half(EMULATOR_TWO a) { return a.x; }
EMULATOR_NARROW EMULATOR_ONE __high2half(EMULATOR_TWO a) { return a.y; }
EMULATOR_NARROW EMULATOR_ONE __low2bfloat16(EMULATOR_TWO a) { return a.x; }
EMULATOR_NARROW EMULATOR_ONE __high2bfloat16(EMULATOR_TWO a) { return a.y; }
EMULATOR_NARROW float __low2float(EMULATOR_TWO a) { return a.x; }
EMULATOR_NARROW float __high2float(EMULATOR_TWO a) { return a.y; }
EMULATOR_NARROW EMULATOR_TWO __lowhigh2highlow(EMULATOR_TWO a) { return {a.y, a.x}; }
EMULATOR_NARROW EMULATOR_TWO __lows2half2(EMULATOR_TWO a, EMULATOR_TWO b) { return {a.x, b.x}; }
EMULATOR_NARROW EMULATOR_TWO __highs2half2(EMULATOR_TWO a, EMULATOR_TWO b) { return {a.y, b.y}; }
EMULATOR_NARROW EMULATOR_TWO __low2half2(EMULATOR_TWO a) { return {a.x, a.x}; }
EMULATOR_NARROW EMULATOR_TWO __high2half2(EMULATOR_TWO a) { return {a.y, a.y}; }
#undef EMULATOR_NARROW
#undef EMULATOR_ONE
#undef EMULATOR_TWO

// ---- conversions, of each format by its name

#define EMULATOR_CONVERSIONS(type, pair, name, name2)                                    \
    static inline type __float2##name(float x) { return x; }                             \
    static inline type __float2##name##_rn(float x) { return x; }                        \
    static inline type __double2##name(double x) { return x; }                           \
    static inline float __##name##2float(type x) { return x; }                           \
    static inline type __int2##name##_rn(int x) { return double(x); }                    \
    static inline type __uint2##name##_rn(unsigned x) { return double(x); }              \
    static inline type __short2##name##_rn(short x) { return float(x); }                 \
    static inline int __##name##2int_rn(type x) { return __float2int_rn(x); }            \
    static inline int __##name##2int_rz(type x) { return __float2int_rz(x); }            \
    static inline unsigned __##name##2uint_rn(type x) { return __float2uint_rn(x); }     \
    static inline unsigned short __##name##_as_ushort(type x) { return x.bits; }         \
    static inline short __##name##_as_short(type x) { return x.bits; }                   \
    static inline type __ushort_as_##name(unsigned short x) { return type::of_bits(x); } \
    static inline type __short_as_##name(short x) { return type::of_bits(x); }           \
    static inline pair __floats2##name2##_rn(float x, float y) { return {x, y}; }        \
    static inline pair __float22##name2##_rn(float2 v) { return {v.x, v.y}; }            \
    static inline pair __float2##name2##_rn(float x) { return {x, x}; }                  \
    static inline float2 __##name##22float2(pair v) { return {v.x, v.y}; }               \
    static inline pair __halves2##name2(type x, type y) { return {x, y}; }               \
    static inline pair __##name##2##name2(type x) { return {x, x}; }                     \
    static inline pair make_##name2(type x, type y) { return {x, y}; }
EMULATOR_CONVERSIONS(__half, __half2, half, half2)
EMULATOR_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
#undef EMULATOR_CONVERSIONS
#define CUDART_ZERO_FP16 __ushort_as_half(0)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)
#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
