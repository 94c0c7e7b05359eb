// The product of two float32 numbers by an approximate multiplier, bit-exact. It is chosen when a
// kernel is compiled; without the macro MULTIPLIER a product is a * b and this file is not read
// (product.cuh, gemm_tile.cuh):
//     -DMULTIPLIER=exact, acc16, am32, am16, mit32, mit16, fp16, tf32, bfloat16 or float16
//     -DMULTIPLIER=table -DMULTIPLIER_TABLE_BITS=m -DMULTIPLIER_TABLE=...,...
//                                                              4^m entries, m from 1 to 7
//     -DMULTIPLIER=integers -DMULTIPLIER_SIGNED=1 or 0 -DMULTIPLIER_TABLE=...,...
//                                                              65,536 products of integers
// workflow/scripts/ladder/arithmetic/multipliers.py defines them, including zeros, subnormals,
// infinities, NaN, overflow and underflow; its kernel_defines() makes these options.
//
//     multiply(a, b)               one product
//     add_products(a, b, sum)      the products of a thread's part of a tile (gemm_tile.cuh)
//
// Most of the work depends on one operand only: Left and Right hold its result, so that 8 x 8
// products do it 16 times instead of 64. A product has two forms: for `any` operands, or for finite
// operands without overflow, which add_products detects from the largest magnitudes. A simulated
// product is rounded before it is added: where float products take part in it, they are __fmul_rn,
// which no compiler fuses with the addition.
#pragma once

namespace multipliers {

constexpr unsigned MANTISSA = 0x007fffffu, EXPONENT = 0x7f800000u, MAGNITUDE = 0x7fffffffu,
                   SIGN = 0x80000000u;
constexpr unsigned ONE = 0x3f800000u, LEAST_NORMAL = 0x00800000u, CARRY = 0x00800000u,
                   UPPER = 0xffff0000u;
constexpr unsigned NOT_A_NUMBER = 0x7fc00000u;

struct exact {
    static constexpr bool SPECIAL_CASES = false;  // true if the two forms differ
    static constexpr bool ONE_NAN = false;        // false: the NaN of a * b
    struct Left {
        float value;
        __device__ __forceinline__ explicit Left(float a) : value(a) {}
    };
    using Right = Left;
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        return a.value * b.value;
    }
};

// IEEE half(half(a) * half(b)).
struct fp16 {
    static constexpr bool SPECIAL_CASES = false, ONE_NAN = true;
    // Rounded to the nearest half, ties to even. Adding 1.5 times 2^13 the power of two below
    // `value`, 2^e, leaves no bits below 2^(e - 10), nor below the last of a subnormal half, 2^-24;
    // both sums round as float32 does. Powers beyond a half's do not matter: the result is
    // infinite.
    static __device__ __forceinline__ float half(float value) {
        unsigned bits = __float_as_uint(value);
        float shift = __uint_as_float(min(max(bits & EXPONENT, 113u << 23), 143u << 23) +
                                      (13u << 23) + 0x00400000u);
        float rounded = (value + shift) - shift;
        if (rounded >= 65536.0f || rounded <= -65536.0f) rounded = __uint_as_float(EXPONENT);
        return __uint_as_float(__float_as_uint(rounded) | (bits & SIGN));  // the sign of a zero too
    }
    struct Left {
        float value;
        __device__ __forceinline__ explicit Left(float a) : value(half(a)) {}
    };
    using Right = Left;
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        // The product of two halves has at most 22 bits: it is exact before it is rounded.
        return half(__fmul_rn(a.value, b.value));
    }
};

// The float32 product of operands rounded to nearest: added to the bits of a finite number is half
// of the last bit kept, or a little less for an even one.
template <class Format>
struct Rounded {
    static constexpr bool SPECIAL_CASES = false, ONE_NAN = true;
    struct Left {
        float value;
        __device__ __forceinline__ explicit Left(float a)
            : value(a != a ? a : __uint_as_float(Format::rounded(__float_as_uint(a)))) {}
    };
    using Right = Left;
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        return __fmul_rn(a.value, b.value);
    }
};
struct TiesAway10 {
    static __device__ __forceinline__ unsigned rounded(unsigned bits) {
        return (bits + 0x1000u) & 0xffffe000u;
    }
};
struct TiesEven7 {
    static __device__ __forceinline__ unsigned rounded(unsigned bits) {
        return (bits + 0x7fffu + (bits >> 16 & 1u)) & UPPER;
    }
};
using tf32 = Rounded<TiesAway10>;
using bfloat16 = Rounded<TiesEven7>;

// The float32 product of halves.
struct float16 : fp16 {
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        return __fmul_rn(a.value, b.value);
    }
};

struct acc16 {
    static constexpr bool SPECIAL_CASES = true, ONE_NAN = true;
    struct Left {
        float given, value;
        unsigned magnitude;
        __device__ __forceinline__ explicit Left(float a)
            : given(a), magnitude(__float_as_uint(a) & MAGNITUDE) {
            value = magnitude >= LEAST_NORMAL ? __uint_as_float(__float_as_uint(a) & UPPER) : 0.0f;
        }
    };
    using Right = Left;
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        // A product of at most 16 bits: exact, or infinite.
        unsigned bits = __float_as_uint(__fmul_rn(a.value, b.value)) & UPPER;
        float result = bits & EXPONENT ? __uint_as_float(bits) : 0.0f;
        return any && max(a.magnitude, b.magnitude) >= EXPONENT ? __fmul_rn(a.given, b.given)
                                                                : result;
    }
};

// Mitchell's multiplier and MBM. Operands are cut to the bits `kept` and get those of `set`;
// correction is 2^23 c. Results of narrow operands need no cut: with `set` both mantissas are odd,
// their sum is even, and half the correction has no bit more.
template <int correction, unsigned kept, unsigned set>
struct Logarithmic {
    static constexpr bool SPECIAL_CASES = true, ONE_NAN = true;
    struct Right {
        float given;
        unsigned bits;
        __device__ __forceinline__ explicit Right(float b)
            : given(b), bits((__float_as_uint(b) & kept) | set) {}
    };
    struct Left {
        unsigned shifted;  // the bits less one bias
        int room;          // 2^23 (1 - x)
        // Magnitudes of b: below `least` the product is 0, from `most` on it is not finite.
        unsigned least, most;
        float huge;  // what makes of such a b the exact product or infinity
        __device__ __forceinline__ explicit Left(float a) {
            unsigned bits = (__float_as_uint(a) & kept) | set, magnitude = bits & MAGNITUDE;
            shifted = bits - ONE;
            room = static_cast<int>(CARRY - (bits & MANTISSA));
            // The product's exponent is the operands' sum, plus one if x + y + c >= 1 (never plus
            // two). So b needs an exponent that makes the sum one too small, and a mantissa that
            // makes up for it.
            int exponent = static_cast<int>(ONE - (magnitude & EXPONENT));
            int mantissa = static_cast<int>(ONE + CARRY - magnitude) - correction;
            int first = max(exponent, mantissa);
            least = static_cast<unsigned>(max(first, static_cast<int>(LEAST_NORMAL)));
            // `first` may be negative, not the sum
            most = min(static_cast<unsigned>(first) + (254u << 23), EXPONENT);
            if (magnitude < LEAST_NORMAL) least = SIGN;  // which no magnitude reaches
            if (magnitude >= EXPONENT) most = 0;
            huge = a * 0x1p127f;
        }
    };
    // What MBM adds to Mitchell's bits where x + y = 1 - below / 2^23: 2^23 c as long as that does
    // not carry; then the mantissa becomes (x + y + c - 1) / 2, which grows half as fast; c / 2
    // from x + y = 1 on; nothing where that would carry.
    static __device__ __forceinline__ unsigned corrected(int below) {
        int added = (min(max(below, 0), correction) + correction) >> 1;
        return below <= correction / 2 - static_cast<int>(CARRY) ? 0u
                                                                 : static_cast<unsigned>(added);
    }
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        // One addition: the mantissas carry into the exponents, and the signs add up to their
        // exclusive or.
        unsigned bits = a.shifted + b.bits, magnitude = b.bits & MAGNITUDE;
        if constexpr (correction != 0)
            bits += corrected(a.room - static_cast<int>(b.bits & MANTISSA));
        float result = magnitude >= a.least ? __uint_as_float(bits) : 0.0f;
        return any && magnitude >= a.most ? __fmul_rn(a.huge, b.given) : result;
    }
};
using mit32 = Logarithmic<0, ~0u, 0u>;
using mit16 = Logarithmic<0, UPPER, 0u>;
using am32 = Logarithmic<655360, ~0u, 0u>;  // c = 5/64
using am16 = Logarithmic<655360, UPPER, 0x00010000u>;

// Tables are in global memory: threads look up different entries, which constant memory would
// serialize.
#ifdef MULTIPLIER_TABLE_BITS
static __device__ const unsigned char ENTRIES[1 << 2 * MULTIPLIER_TABLE_BITS] = {MULTIPLIER_TABLE};

struct table {
    // One form, because the look-up dominates the time.
    static constexpr bool SPECIAL_CASES = false, ONE_NAN = true;
    static constexpr int BITS = MULTIPLIER_TABLE_BITS, SHIFT = 23 - BITS;
    struct Left {
        float given;
        unsigned bits, exponent, magnitude;
        int index;
        __device__ __forceinline__ explicit Left(float a) : given(a), bits(__float_as_uint(a)) {
            exponent = bits & EXPONENT, magnitude = bits & MAGNITUDE,
            index = static_cast<int>((bits & MANTISSA) >> SHIFT);
        }
    };
    using Right = Left;
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        unsigned entry = ENTRIES[(a.index << BITS) | b.index], sign = (a.bits ^ b.bits) & SIGN;
        // The exponent, with two biases.
        unsigned doubled =
            a.exponent + b.exponent + ((entry >> 7) << 23) + ((entry & 0x7fu) << SHIFT);
        bool zero = min(a.exponent, b.exponent) == 0 || doubled < ONE + LEAST_NORMAL;
        float result = zero ? 0.0f : __uint_as_float((doubled - ONE) | sign);
        if (!zero && doubled >= ONE + EXPONENT) result = __uint_as_float(EXPONENT | sign);
        return max(a.magnitude, b.magnitude) >= EXPONENT ? __fmul_rn(a.given, b.given) : result;
    }
};
#endif

#ifdef MULTIPLIER_SIGNED
// Of operands that are integers: from -127 to 127, or up to 255 with a sign of their own. The table
// has 0 for products with 0.
struct integers {
    static constexpr bool SPECIAL_CASES = false, ONE_NAN = false;
#if MULTIPLIER_SIGNED
    using Product = short;
#else
    using Product = unsigned short;
#endif
    // The row of the table, or the column, and an unsigned operand's sign: the sum of two is the
    // product's place and sign.
    template <int shift>
    struct Operand {
        unsigned place;
        __device__ __forceinline__ explicit Operand(float a) {
            int integer = static_cast<int>(a);
            place = static_cast<unsigned>(MULTIPLIER_SIGNED ? integer + 128 : abs(integer))
                    << shift;
            if (!MULTIPLIER_SIGNED) place |= __float_as_uint(a) & SIGN;
        }
    };
    using Left = Operand<8>;
    using Right = Operand<0>;
    template <bool any>
    static __device__ __forceinline__ float product(const Left& a, const Right& b) {
        static const __device__ Product PRODUCTS[1 << 16] = {MULTIPLIER_TABLE};
        unsigned sum = a.place + b.place;
        float size = PRODUCTS[sum & 0xffffu];
        return MULTIPLIER_SIGNED ? size : __uint_as_float(__float_as_uint(size) | (sum & SIGN));
    }
};
#endif

using Chosen = MULTIPLIER;

template <class Multiplier>
constexpr bool IS_EXACT = false;
template <>
constexpr bool IS_EXACT<exact> = true;

template <class Multiplier>
__device__ __forceinline__ float multiply(float a, float b) {
    float product = Multiplier::template product<true>(typename Multiplier::Left(a),
                                                       typename Multiplier::Right(b));
    return Multiplier::ONE_NAN && product != product ? __uint_as_float(NOT_A_NUMBER) : product;
}

// ---- the products of a thread's part of a tile

// Whether no operand of a piece is infinite or NaN and no product can overflow.
template <int m, int n>
__device__ __forceinline__ bool safe(const float (&a)[m][4], const float (&b)[n][4]) {
    unsigned largest_a = 0, largest_b = 0;
#pragma unroll
    for (int i = 0; i < 4 * m; i++)
        largest_a = max(largest_a, __float_as_uint(a[i / 4][i % 4]) & MAGNITUDE);
#pragma unroll
    for (int j = 0; j < 4 * n; j++)
        largest_b = max(largest_b, __float_as_uint(b[j / 4][j % 4]) & MAGNITUDE);
    // A result's magnitude is at most the sum of both, less one bias, plus 2 in its exponent, for
    // any mantissas.
    return max(largest_a, largest_b) < EXPONENT &&
           largest_a + largest_b < ONE + EXPONENT - 2 * CARRY;
}

template <class Multiplier, bool any, int m, int n>
__device__ __forceinline__ void add_piece(const float (&a)[m][4], const float (&b)[n][4],
                                          float (&sum)[4 * m][4 * n]) {
#pragma unroll
    for (int i = 0; i < 4 * m; i++) {
        typename Multiplier::Left left(a[i / 4][i % 4]);
#pragma unroll
        for (int j = 0; j < 4 * n; j++) {
            // The same for every i: the compiler makes it once.
            typename Multiplier::Right right(b[j / 4][j % 4]);
            float product = Multiplier::template product<any>(left, right);
            // Additions per branch: with a shared one the compiler would keep both branches'
            // products live, in twice the registers.
            sum[i][j] = any ? __fadd_rn(sum[i][j], product) : sum[i][j] + product;
        }
    }
}

template <class Multiplier, int m, int n>
__device__ __forceinline__ void add_products(const float (&a)[m][4], const float (&b)[n][4],
                                             float (&sum)[4 * m][4 * n]) {
    if (Multiplier::SPECIAL_CASES && !safe(a, b))
        add_piece<Multiplier, true>(a, b, sum);
    else
        add_piece<Multiplier, false>(a, b, sum);
}

}  // namespace multipliers

constexpr bool EXACT_PRODUCTS = multipliers::IS_EXACT<multipliers::Chosen>;

__device__ __forceinline__ float multiply(float a, float b) {
    return multipliers::multiply<multipliers::Chosen>(a, b);
}

// sum(i, j) += multiply(a(i), b(j)) for a thread's accumulators; the operands in quads.
template <int m, int n>
__device__ __forceinline__ void add_products(const float (&a)[m][4], const float (&b)[n][4],
                                             float (&sum)[4 * m][4 * n]) {
    multipliers::add_products<multipliers::Chosen>(a, b, sum);
}
