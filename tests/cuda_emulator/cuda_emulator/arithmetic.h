// Arithmetic where a GPU is less kind than g++: functions that it approximates are wrong by the
// largest error that NVIDIA documents (CUDA C++ Programming Guide, "Mathematical Functions"), up or
// down by a hash of their arguments; the minimum and the maximum of a NaN and a number are the
// number. Whether a product that is added is rounded on its own is the compiler's choice on both;
// __init__.py compiles for either.
#pragma once
#include <cmath>
#include <cstring>

namespace emulator {

template <class To, class From>
static inline To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits are kept");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline bool rounds_up(float x, float y) {
    unsigned hash = bits_of<unsigned>(x) * 2654435761u ^ bits_of<unsigned>(y) * 2246822519u;
    hash ^= hash >> 15;
    return hash * 3266489917u >> 31;
}

// `exact` rounded, then this many units in the last place larger or smaller; zeros, infinities and
// NaN are exact.
static inline float off_by_ulps(double exact, unsigned ulps, float x, float y = 0.0f) {
    float rounded = static_cast<float>(exact);
    unsigned magnitude = bits_of<unsigned>(rounded) & 0x7fffffffu,
             sign = bits_of<unsigned>(rounded) ^ magnitude;
    if (magnitude == 0 || magnitude >= 0x7f800000u) return rounded;
    bool up = magnitude <= ulps || (magnitude + ulps < 0x7f800000u && rounds_up(x, y));
    return bits_of<float>(sign | (up ? magnitude + ulps : magnitude - ulps));
}

static inline float off_by(double exact, double error, float x) {
    return static_cast<float>(exact + (rounds_up(x, 0.0f) ? error : -error));
}

// Powers of 0 and 1, and to the power of 0, are exact.
static inline float approximate_expf(double x, unsigned ulps) {
    return x == 0.0 ? 1.0f : off_by_ulps(exp(x), ulps, x);
}
static inline float approximate_powf(double x, double y) {
    double exact = pow(x, y);
    return exact == 1.0 ? 1.0f : off_by_ulps(exact, 4, x, y);
}

// exp2f(y * __log2f(x)), the logarithm wrong by 2^-22 from 0.5 to 2 and by 2 units elsewhere, the
// power by 2 more.
static inline float fast_powf(double x, float y) {
    double logarithm = log2(x);
    float wrong =
        x >= 0.5 && x <= 2.0 ? off_by(logarithm, 0x1p-22, x) : off_by_ulps(logarithm, 2, x);
    float exponent = y * wrong;
    return exponent == 0.0f ? 1.0f : off_by_ulps(exp2(exponent), 2, x, y);
}
static inline float fast_expf(double x) {
    return approximate_expf(x, 2 + static_cast<unsigned>(fmin(fabs(1.173 * x), 1000.0)));
}
static inline float fast_logf(double x) {
    // 2^-21.41 and less
    return x >= 0.5 && x <= 2.0 ? off_by(log(x), 0x1.8p-22, x) : off_by_ulps(log(x), 3, x);
}
static inline float fast_divide(float a, float b) {
    return fabsf(b) > 0x1p126f && std::isfinite(b)
               ? a * 0.0f
               : off_by_ulps(static_cast<double>(a) / b, 2, a, b);
}

}  // namespace emulator

// glibc declares some of these names itself, so they are macros.
#define expf(x) emulator::approximate_expf(x, 2)
#define expm1f(x) emulator::off_by_ulps(expm1(static_cast<double>(x)), 1, x)
#define logf(x) emulator::off_by_ulps(log(static_cast<double>(x)), 1, x)
#define powf(x, y) emulator::approximate_powf(x, y)
#define __expf(x) emulator::fast_expf(x)
#define __logf(x) emulator::fast_logf(x)
#define __powf(x, y) emulator::fast_powf(x, y)
#define __sinf(x) emulator::off_by(sin(static_cast<double>(x)), 0x1.8p-22, x)
#define __cosf(x) emulator::off_by(cos(static_cast<double>(x)), 0x1.8p-22, x)
static inline float rsqrtf(float x) {
    return emulator::off_by_ulps(1.0 / sqrt(static_cast<double>(x)), 2, x);
}
static inline float __fdividef(float a, float b) { return emulator::fast_divide(a, b); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
// Results rounded on their own: neither compiler may fuse them into a multiply-add.
#if defined(__x86_64__)
#define EMULATOR_IN_REGISTER "+x"
#else
#define EMULATOR_IN_REGISTER "+w"
#endif
#define EMULATOR_ROUNDED(type, name, operation) \
    static inline type name(type a, type b) {   \
        type result = a operation b;            \
        asm("" : EMULATOR_IN_REGISTER(result)); \
        return result;                          \
    }
EMULATOR_ROUNDED(float, __fmul_rn, *)
EMULATOR_ROUNDED(float, __fadd_rn, +)
EMULATOR_ROUNDED(double, __dmul_rn, *)
EMULATOR_ROUNDED(double, __dadd_rn, +)
#undef EMULATOR_ROUNDED
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned __int128>(a) * b >> 64;
}
static inline int __float_as_int(float f) { return emulator::bits_of<int>(f); }
static inline unsigned __float_as_uint(float f) { return emulator::bits_of<unsigned>(f); }
static inline float __int_as_float(int i) { return emulator::bits_of<float>(i); }
static inline float __uint_as_float(unsigned i) { return emulator::bits_of<float>(i); }
// No templates, so that `using namespace std` makes no call ambiguous; of mixed integers as CUDA.
#define EMULATOR_LEAST(type, a_type, b_type)           \
    static inline type min(a_type a_of, b_type b_of) { \
        type a = a_of, b = b_of;                       \
        return b < a ? b : a;                          \
    }                                                  \
    static inline type max(a_type a_of, b_type b_of) { \
        type a = a_of, b = b_of;                       \
        return a < b ? b : a;                          \
    }
#define EMULATOR_LEAST_OF(signed_type, unsigned_type)           \
    EMULATOR_LEAST(signed_type, signed_type, signed_type)       \
    EMULATOR_LEAST(unsigned_type, unsigned_type, unsigned_type) \
    EMULATOR_LEAST(unsigned_type, signed_type, unsigned_type)   \
    EMULATOR_LEAST(unsigned_type, unsigned_type, signed_type)
EMULATOR_LEAST_OF(int, unsigned)
EMULATOR_LEAST_OF(long, unsigned long)
EMULATOR_LEAST_OF(long long, unsigned long long)
#undef EMULATOR_LEAST_OF
#undef EMULATOR_LEAST
// Of a number and a NaN, the number (IEEE 754's minNum), as fminf and fmaxf.
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }
