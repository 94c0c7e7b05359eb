// The functions of cuComplex.h.
#pragma once
#include "vectors.h"

#include <cmath>

using cuFloatComplex = float2;
using cuComplex = float2;
using cuDoubleComplex = double2;

// f: behind the names of a type
#define EMULATOR_COMPLEX(type, real, name, f)                                       \
    static inline type make_##name(real x, real y) { return {x, y}; }               \
    static inline real cuCreal##f(type a) { return a.x; }                           \
    static inline real cuCimag##f(type a) { return a.y; }                           \
    static inline real cuCabs##f(type a) { return std::hypot(a.x, a.y); }           \
    static inline type cuConj##f(type a) { return {a.x, -a.y}; }                    \
    static inline type cuCadd##f(type a, type b) { return {a.x + b.x, a.y + b.y}; } \
    static inline type cuCsub##f(type a, type b) { return {a.x - b.x, a.y - b.y}; } \
    static inline type cuCmul##f(type a, type b) {                                  \
        return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};                      \
    }                                                                               \
    static inline type cuCdiv##f(type a, type b) {                                  \
        real scale = 1 / (std::fabs(b.x) + std::fabs(b.y));                         \
        real x = b.x * scale, y = b.y * scale, whole = 1 / (x * x + y * y);         \
        return {(a.x * scale * x + a.y * scale * y) * whole,                        \
                (a.y * scale * x - a.x * scale * y) * whole};                       \
    }
EMULATOR_COMPLEX(float2, float, cuFloatComplex, f)
EMULATOR_COMPLEX(double2, double, cuDoubleComplex, )
#undef EMULATOR_COMPLEX
static inline float2 make_cuComplex(float x, float y) { return {x, y}; }
static inline float2 cuCfmaf(float2 a, float2 b, float2 c) { return cuCaddf(cuCmulf(a, b), c); }
static inline double2 cuCfma(double2 a, double2 b, double2 c) { return cuCadd(cuCmul(a, b), c); }
