// Quantiles of the standard normal distribution, as ladder/arithmetic/randomness.py computes them,
// to the last bit: every operation is rounded alone, and the logarithm is a series, because logf
// differs from NumPy's.
//   normal_of(word)   the quantile of p = (2 k + 1) / 2^25, k the upper 24 bits (AS 241, PPND7;
//                     Wichura, 1988)
#pragma once

// One step of Horner's rule.
__device__ __forceinline__ float times_plus(float total, float x, float coefficient) {
    return __fadd_rn(__fmul_rn(total, x), coefficient);
}

// -log x of x below 1: log(m 2^e) with m from 1 to 2, by the series of 2 artanh((m - 1) / (m + 1)).
__device__ __forceinline__ float minus_log(float x) {
    int exponent;
    float mantissa = 2.0f * frexpf(x, &exponent);  // exact
    float share = __fdiv_rn(__fadd_rn(mantissa, -1.0f), __fadd_rn(mantissa, 1.0f)),
          square = __fmul_rn(share, share);
    float series = 1.0f / 15.0f;
#pragma unroll
    for (int odd = 13; odd > 0; odd -= 2)
        series = times_plus(series, square, __fdiv_rn(1.0f, static_cast<float>(odd)));
    return __fadd_rn(__fmul_rn(static_cast<float>(1 - exponent), 0.693147180559945f),
                     -__fmul_rn(2.0f * share, series));
}

__device__ __forceinline__ float normal_of(unsigned word) {
    int odd = 2 * static_cast<int>(word >> 8) - 16777215;  // of p - 1/2, times 2^25
    float from_middle = __fmul_rn(static_cast<float>(odd), 2.98023223876953125e-8f);  // exact
    if (fabsf(from_middle) <= 0.425f) {
        float x = __fadd_rn(0.180625f, -__fmul_rn(from_middle, from_middle));
        float above =
            times_plus(times_plus(times_plus(59.109374720f, x, 159.29113202f), x, 50.434271938f), x,
                       3.3871327179f);
        float below = times_plus(
            times_plus(times_plus(67.187563600f, x, 78.757757664f), x, 17.895169469f), x, 1.0f);
        return __fmul_rn(from_middle, __fdiv_rn(above, below));
    }
    float outside = __fmul_rn(static_cast<float>(16777216 - abs(odd)), 2.98023223876953125e-8f);
    float x = __fadd_rn(__fsqrt_rn(minus_log(outside)), -1.6f);
    float above =
        times_plus(times_plus(times_plus(0.17023821103f, x, 1.3067284816f), x, 2.7568153900f), x,
                   1.4234372777f);
    float below = times_plus(times_plus(0.12021132975f, x, 0.73700164250f), x, 1.0f);
    return copysignf(__fdiv_rn(above, below), from_middle);
}
