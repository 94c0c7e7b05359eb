// Functions of CUDA C++ on integers and floating-point numbers (CUDA Math API, "Integer
// Intrinsics", "Type Casting Intrinsics", "Single Precision Intrinsics"), caches and the clock.
#pragma once
#include "arithmetic.h"
#include "ptx.h"
#include "vectors.h"

#include <cfenv>
#include <cfloat>
#include <climits>
#include <cstdint>
#include <type_traits>

#define EMULATOR_INLINE inline __attribute__((always_inline))

// ---- bits

static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
static inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(x)) << 32 | __brev(x >> 32);
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned choice = selector >> 4 * i & 15, byte = bytes >> 8 * (choice & 7) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (static_cast<uint64_t>(high) << 32 | low) >> (shift & 31);
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

// ---- integers

static inline int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
static inline unsigned __umul24(unsigned x, unsigned y) {
    return (x & 0xffffffu) * (y & 0xffffffu);
}
static inline int __mulhi(int x, int y) { return static_cast<int64_t>(x) * y >> 32; }
static inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<uint64_t>(x) * y >> 32;
}
static inline long long __mul64hi(long long x, long long y) {
    return static_cast<__int128>(x) * y >> 64;
}
static inline unsigned __sad(int x, int y, unsigned z) {
    return z + (x < y ? unsigned(y) - unsigned(x) : unsigned(x) - unsigned(y));
}
static inline unsigned __usad(unsigned x, unsigned y, unsigned z) {
    return z + (x < y ? y - x : x - y);
}
static inline int __hadd(int x, int y) { return (static_cast<int64_t>(x) + y) >> 1; }
static inline int __rhadd(int x, int y) { return (static_cast<int64_t>(x) + y + 1) >> 1; }
static inline unsigned __uhadd(unsigned x, unsigned y) {
    return (static_cast<uint64_t>(x) + y) >> 1;
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += int8_t(a >> 8 * i) * int8_t(b >> 8 * i);
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
static inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
static inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
static inline long long llmin(long long a, long long b) { return b < a ? b : a; }
static inline long long llmax(long long a, long long b) { return a < b ? b : a; }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) {
    return b < a ? b : a;
}
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) {
    return a < b ? b : a;
}

// ---- two or four integers in a word (CUDA Math API, "SIMD Intrinsics"). Of each pair a and b,
// `expression`; x without its sum, or the sum of all.

namespace emulator {
template <class Lane, class Operation>
static inline unsigned lanes(unsigned x, unsigned y, Operation operation) {
    constexpr int bits = 8 * sizeof(Lane);
    unsigned result = 0;
    for (int i = 0; i < 32; i += bits)
        result |= (operation(Lane(x >> i), Lane(y >> i)) & ((1u << bits) - 1)) << i;
    return result;
}
template <class Lane, class Operation>
static inline unsigned sum_of_lanes(unsigned x, unsigned y, Operation operation) {
    unsigned sum = 0;
    for (int i = 0; i < 32; i += 8 * sizeof(Lane)) sum += operation(Lane(x >> i), Lane(y >> i));
    return sum;
}
template <class Lane>
static inline int clamped(int x) {
    constexpr int least = std::numeric_limits<Lane>::min(), most = std::numeric_limits<Lane>::max();
    return x < least ? least : x > most ? most : x;
}
}  // namespace emulator

#define EMULATOR_OF_LANES(name, how, type, expression)                                        \
    static inline unsigned name(unsigned x, unsigned y = 0) {                                 \
        return emulator::how<type>(x, y, []([[maybe_unused]] int a, [[maybe_unused]] int b) { \
            using Lane [[maybe_unused]] = type;                                               \
            return expression;                                                                \
        });                                                                                   \
    }
#define EMULATOR_SIGNED(name, how, expression)           \
    EMULATOR_OF_LANES(name##2, how, int16_t, expression) \
    EMULATOR_OF_LANES(name##4, how, int8_t, expression)
#define EMULATOR_UNSIGNED(name, how, expression)          \
    EMULATOR_OF_LANES(name##2, how, uint16_t, expression) \
    EMULATOR_OF_LANES(name##4, how, uint8_t, expression)
#define EMULATOR_EITHER(name, how, expression) \
    EMULATOR_SIGNED(name##s, how, expression)  \
    EMULATOR_UNSIGNED(name##u, how, expression)
#define EMULATOR_COMPARED(name, sign)                 \
    EMULATOR_EITHER(__vcmp##name, lanes, -(a sign b)) \
    EMULATOR_EITHER(__vset##name, lanes, a sign b)
EMULATOR_UNSIGNED(__vadd, lanes, a + b)
EMULATOR_SIGNED(__vaddss, lanes, emulator::clamped<Lane>(a + b))
EMULATOR_UNSIGNED(__vaddus, lanes, emulator::clamped<Lane>(a + b))
EMULATOR_UNSIGNED(__vsub, lanes, a - b)
EMULATOR_SIGNED(__vsubss, lanes, emulator::clamped<Lane>(a - b))
EMULATOR_UNSIGNED(__vsubus, lanes, emulator::clamped<Lane>(a - b))
EMULATOR_SIGNED(__vneg, lanes, -a)
EMULATOR_SIGNED(__vnegss, lanes, emulator::clamped<Lane>(-a))
EMULATOR_SIGNED(__vabs, lanes, a < 0 ? -a : a)
EMULATOR_SIGNED(__vabsss, lanes, emulator::clamped<Lane>(a < 0 ? -a : a))
EMULATOR_EITHER(__vmax, lanes, a < b ? b : a)
EMULATOR_EITHER(__vmin, lanes, b < a ? b : a)
EMULATOR_EITHER(__vabsdiff, lanes, a < b ? b - a : a - b)
EMULATOR_EITHER(__vsad, sum_of_lanes, a < b ? b - a : a - b)
EMULATOR_EITHER(__vavg, lanes, (a + b + (a + b >= 0)) >> 1)
EMULATOR_UNSIGNED(__vhaddu, lanes, (a + b) >> 1)
EMULATOR_UNSIGNED(__vcmpeq, lanes, -(a == b))
EMULATOR_UNSIGNED(__vcmpne, lanes, -(a != b))
EMULATOR_UNSIGNED(__vseteq, lanes, a == b)
EMULATOR_UNSIGNED(__vsetne, lanes, a != b)
EMULATOR_COMPARED(lt, <)
EMULATOR_COMPARED(le, <=)
EMULATOR_COMPARED(gt, >)
EMULATOR_COMPARED(ge, >=)
#undef EMULATOR_COMPARED
#undef EMULATOR_EITHER
#undef EMULATOR_UNSIGNED
#undef EMULATOR_SIGNED
#undef EMULATOR_OF_LANES

// ---- conversions. Out of range is the nearest integer, a NaN 0, as cvt.sat has it.

namespace emulator {
template <class To>
static inline To saturated(double whole) {
    if (whole != whole) return 0;
    if (whole <= static_cast<double>(std::numeric_limits<To>::min()))
        return std::numeric_limits<To>::min();
    if (whole >= static_cast<double>(std::numeric_limits<To>::max()))
        return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
}
}  // namespace emulator

#define EMULATOR_TO_WHOLE(from, of, to, type)                                                     \
    static inline type __##from##2##to##_rn(of x) { return emulator::saturated<type>(rint(x)); }  \
    static inline type __##from##2##to##_rz(of x) { return emulator::saturated<type>(trunc(x)); } \
    static inline type __##from##2##to##_rd(of x) { return emulator::saturated<type>(floor(x)); } \
    static inline type __##from##2##to##_ru(of x) { return emulator::saturated<type>(ceil(x)); }
EMULATOR_TO_WHOLE(float, float, int, int)
EMULATOR_TO_WHOLE(float, float, uint, unsigned)
EMULATOR_TO_WHOLE(float, float, ll, long long)
EMULATOR_TO_WHOLE(float, float, ull, unsigned long long)
EMULATOR_TO_WHOLE(double, double, int, int)
EMULATOR_TO_WHOLE(double, double, uint, unsigned)
EMULATOR_TO_WHOLE(double, double, ll, long long)
EMULATOR_TO_WHOLE(double, double, ull, unsigned long long)
#undef EMULATOR_TO_WHOLE
static inline float __int2float_rn(int x) { return x; }
static inline float __int2float_rz(int x) {
    float f = x;
    return fabs(static_cast<double>(f)) > fabs(static_cast<double>(x)) ? nextafterf(f, 0.0f) : f;
}
static inline float __uint2float_rn(unsigned x) { return x; }
static inline float __ll2float_rn(long long x) { return x; }
static inline float __ull2float_rn(unsigned long long x) { return x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return x; }
static inline double __ull2double_rn(unsigned long long x) { return x; }
static inline float __double2float_rn(double x) { return x; }
static inline long long __double_as_longlong(double x) { return emulator::bits_of<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulator::bits_of<double>(x); }
static inline int __double2hiint(double x) { return emulator::bits_of<uint64_t>(x) >> 32; }
static inline int __double2loint(double x) { return emulator::bits_of<uint64_t>(x); }
static inline double __hiloint2double(int high, int low) {
    return emulator::bits_of<double>(uint64_t(uint32_t(high)) << 32 | uint32_t(low));
}

// ---- floating point

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// Rounded down, up or to zero.
namespace emulator {
template <class Number, class Operation>
static __attribute__((noinline)) Number directed(int mode, Operation operation, Number a,
                                                 Number b = 0, Number c = 0) {
    int before = fegetround();
    fesetround(mode);
    asm volatile("" : EMULATOR_IN_REGISTER(a), EMULATOR_IN_REGISTER(b), EMULATOR_IN_REGISTER(c));
    auto result = operation(a, b, c);
    asm volatile("" : EMULATOR_IN_REGISTER(result));
    fesetround(before);
    return result;
}
}  // namespace emulator
#define EMULATOR_DIRECTED(name, type, expression)                                            \
    template <class... Numbers>                                                              \
    static inline auto name##_rd(type x, Numbers... others) {                                \
        return emulator::directed<type>(                                                     \
            FE_DOWNWARD, [](type a, type b, type c) { return expression; }, x, others...);   \
    }                                                                                        \
    template <class... Numbers>                                                              \
    static inline auto name##_ru(type x, Numbers... others) {                                \
        return emulator::directed<type>(                                                     \
            FE_UPWARD, [](type a, type b, type c) { return expression; }, x, others...);     \
    }                                                                                        \
    template <class... Numbers>                                                              \
    static inline auto name##_rz(type x, Numbers... others) {                                \
        return emulator::directed<type>(                                                     \
            FE_TOWARDZERO, [](type a, type b, type c) { return expression; }, x, others...); \
    }
#define EMULATOR_DIRECTED_OF(f, d, expression) \
    EMULATOR_DIRECTED(f, float, expression)    \
    EMULATOR_DIRECTED(d, double, expression)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
EMULATOR_DIRECTED_OF(__fadd, __dadd, a + b)
EMULATOR_DIRECTED_OF(__fsub, __dsub, a - b)
EMULATOR_DIRECTED_OF(__fmul, __dmul, a* b)
EMULATOR_DIRECTED_OF(__fdiv, __ddiv, a / b)
EMULATOR_DIRECTED_OF(__frcp, __drcp, 1 / a)
EMULATOR_DIRECTED_OF(__fsqrt, __dsqrt, std::sqrt(a))
EMULATOR_DIRECTED_OF(__fmaf, __fma, std::fma(a, b, c))
EMULATOR_DIRECTED(__double2float, double, static_cast<float>(a))
#pragma GCC diagnostic pop
#undef EMULATOR_DIRECTED_OF
#undef EMULATOR_DIRECTED

// Names that glibc declares are macros.
#define EMULATOR_WRONG(x, exact, ulps) emulator::off_by_ulps(exact(static_cast<double>(x)), ulps, x)
#define __exp10f(x) EMULATOR_WRONG(x, exp10, 4)
#define exp10f(x) EMULATOR_WRONG(x, exp10, 2)
#define __log2f(x) EMULATOR_WRONG(x, log2, 2)
#define __log10f(x) EMULATOR_WRONG(x, log10, 2)
#define __tanf(x) EMULATOR_WRONG(x, tan, 4)
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline float rcbrtf(float x) { return 1.0 / cbrt(static_cast<double>(x)); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __frsqrt_rn(float x) { return 1.0 / sqrt(static_cast<double>(x)); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double x) { return 1.0 / x; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __fsub_rn(float a, float b) { return __fadd_rn(a, -b); }
static inline double __dsub_rn(double a, double b) { return __dadd_rn(a, -b); }
static inline float sinpif(float x) { return sin(M_PI * fmod(static_cast<double>(x), 2.0)); }
static inline float cospif(float x) { return cos(M_PI * fmod(static_cast<double>(x), 2.0)); }
static inline double sinpi(double x) { return sin(M_PI * fmod(x, 2.0)); }
static inline double cospi(double x) { return cos(M_PI * fmod(x, 2.0)); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
static inline float normcdff(float x) { return 0.5 * erfc(-static_cast<double>(x) * M_SQRT1_2); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
static inline float norm3df(float a, float b, float c) {
    return sqrt(double(a) * a + double(b) * b + double(c) * c);
}
static inline float rnorm3df(float a, float b, float c) {
    return 1.0 / sqrt(double(a) * a + double(b) * b + double(c) * c);
}
static inline float rhypotf(float a, float b) { return 1.0 / hypot(double(a), double(b)); }
static inline double rhypot(double a, double b) { return 1.0 / hypot(a, b); }
static inline double norm3d(double a, double b, double c) { return std::hypot(a, b, c); }
static inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
static inline double norm4d(double a, double b, double c, double d) {
    return hypot(norm3d(a, b, c), d);
}
static inline double rnorm4d(double a, double b, double c, double d) {
    return 1.0 / norm4d(a, b, c, d);
}
static inline float norm4df(float a, float b, float c, float d) { return norm4d(a, b, c, d); }
static inline float rnorm4df(float a, float b, float c, float d) { return rnorm4d(a, b, c, d); }
// by bisection
static inline double normcdfinv(double p) {
    if (!(p > 0.0 && p < 1.0)) return p == 0.0 ? -INFINITY : p == 1.0 ? INFINITY : NAN;
    double low = -40.0, high = 40.0;
    for (int i = 0; i < 100; i++) {
        double middle = 0.5 * (low + high);
        (normcdf(middle) < p ? low : high) = middle;
    }
    return 0.5 * (low + high);
}
static inline float normcdfinvf(float p) { return normcdfinv(p); }
static inline double erfcinv(double y) { return -normcdfinv(0.5 * y) * M_SQRT1_2; }
static inline double erfinv(double y) { return normcdfinv(0.5 * y + 0.5) * M_SQRT1_2; }
static inline float erfcinvf(float y) { return erfcinv(y); }
static inline float erfinvf(float y) { return erfinv(y); }
#define __sincosf(x, s, c) (*(s) = __sinf(x), *(c) = __cosf(x))

// math_constants.h
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
#define CUDART_MAX_NORMAL_F FLT_MAX
#define CUDART_PI_F 3.14159265f
#define CUDART_SQRT_TWO_F 1.41421356f
#define CUDART_L2E_F 1.44269504f
#define CUDART_LN2_F 0.69314718f
#define CUDART_INF double(INFINITY)
#define CUDART_NAN double(NAN)
#define CUDART_PI M_PI
#define CUDART_SQRT_TWO M_SQRT2
#define CUDART_L2E M_LOG2E
#define CUDART_LN2 M_LN2

// ---- caches: hints alone

#define EMULATOR_LOAD(name)                        \
    template <class T>                             \
    static EMULATOR_INLINE T name(const T* from) { \
        return *from;                              \
    }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcv)
EMULATOR_LOAD(__ldlu)
#undef EMULATOR_LOAD
#define EMULATOR_STORE(name)                                               \
    template <class T>                                                     \
    static EMULATOR_INLINE void name(T* to, std::common_type_t<T> value) { \
        *to = value;                                                       \
    }
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

// ---- the rest

namespace emulator {
long long clock_ticks();  // grows with every call
[[noreturn]] void failed_assertion(Site, const char* condition);
[[noreturn]] void trapped(Site);
void print(const char* format, ...) __attribute__((format(printf, 1, 2)));
}  // namespace emulator
#define clock() clock_t(emulator::clock_ticks())
#define clock64() emulator::clock_ticks()
#define __nanosleep(nanoseconds) ((void)(nanoseconds))
#define __trap() emulator::trapped(EMULATOR_SITE)
#undef assert
#define assert(condition) \
    ((condition) ? void() : emulator::failed_assertion(EMULATOR_SITE, #condition))
#define printf(...) emulator::print(__VA_ARGS__)
#define __builtin_assume(condition) ((void)0)
#define __assume(condition) ((void)0)
#define __builtin_assume_aligned(pointer, ...) (pointer)
