"""Matrix products on the CPU under a multiplier of multipliers.py: C(m, n) = sum over k of
multiply(A(m, k), B(k, n)).

Every element of C is summed in float32 in the order of k, from +0: bit-identical for any number of
threads, any block size and any instruction set, and to a GPU kernel that adds one product after the
other.

B is stored in panels of at most 256 columns. Numba compiles one loop nest for each multiplier, in
which LLVM computes 8 or 16 columns at once on the bit patterns of the numbers; values that depend
only on A's element are computed once per row of a panel. In nearly all cases no product can
overflow and all numbers are finite; this follows from the largest magnitudes, so the loops need no
test for it. Where B has no zero and no product can be too small either, which follows from the
smallest magnitudes, they need no test at all. Otherwise a slower loop nest handles all special
cases.

Where no number is infinite or NaN, the product with a zero or a subnormal is +0 under every
approximate multiplier, which changes no sum that starts from +0. So the loops pass over such
elements of A, and product() takes for A the factor that leaves less work: behind a ReLU about half
of the activations are zeros. `exact` and `fp16` have other rules and multiply all.

The formats of `precision` have no loop nest: their products are those of BLAS, of operands rounded
before.
"""

import dataclasses

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from ladder.arithmetic.multipliers import Integers, Multiplier, Table, find

PANEL = 256  # columns per panel of B
DEPTH = 64  # rows of B per block of a panel, which stays in the level-2 cache
VECTOR = 16  # most columns per instruction; divides PANEL
SAMPLED = 31  # one of so many rows is looked at for zeros
# A result is between a quarter of the exact product and four times it: a table's entry may carry
# once more or less.
LARGEST_SAFE, SMALLEST_SAFE = 2.0**126, 2.0**-124


@dataclasses.dataclass(frozen=True, eq=False)
class Packed:
    """A matrix B prepared for product() with many A.

    values: float32 (k, n), B itself; panels: float32 (panels, k, at most 256), padded with zeros;
    magnitudes: B's Magnitudes.
    """

    values: np.ndarray
    panels: np.ndarray
    multiplier: object
    magnitudes: object


@dataclasses.dataclass(frozen=True)
class Magnitudes:
    """Of a matrix: the least, the least that is a normal number (infinite if none is) and the
    largest, which may be NaN.
    """

    least: float
    least_normal: float
    largest: float

    @classmethod
    def measure(cls, matrix):
        bits = _magnitudes(_contiguous(matrix).reshape(-1, order="A").view(np.int32))
        return cls(*np.array(bits, np.int32).view(np.float32).tolist())


def pack(b, multiplier):
    """The Packed of B, float32 (k, n) with any strides; B must not change while it is in use."""
    _check(b)
    multiplier = find(multiplier) if isinstance(multiplier, str) else multiplier
    if isinstance(multiplier, Integers):
        # columns of the table
        prepared = (b.astype(np.int32) + np.int32(multiplier.most)).view(np.float32)
    else:
        prepared = OPERANDS.get(_kind(multiplier), np.asarray)(b)
    return Packed(b, _panels(prepared), multiplier, Magnitudes.measure(b))


def product(a, b, multiplier, out=None):
    """C = A B under a multiplier: sums of products in float32, in the order of k.

    a: float32 (m, k); b: float32 (k, n), or Packed for the same multiplier; both with any strides,
    so transposed factors need no copy. multiplier: a type of multipliers.py or the name of one.
    Returns `out`, float32 (m, n), by default a new array. Runs on the calling thread without the
    GIL and without shared state: threads may divide the rows of `a` and `out` and use one Packed b.
    Raises ValueError for factors of another dtype and for shapes that do not match, UserError for
    an unknown multiplier.
    """
    multiplier = find(multiplier) if isinstance(multiplier, str) else multiplier
    _check(a)
    if not isinstance(b, Packed):
        _check(b)
        if _cost(b.T, len(a), multiplier) < _cost(a, b.shape[1], multiplier):
            flipped = multiplier if isinstance(multiplier, Multiplier) else multiplier.flipped
            return _handed_over(_product(b.T, pack(a.T, flipped), None).T, out)
        b = pack(b, multiplier)
    if b.multiplier is not multiplier:
        raise ValueError(f"the factor is packed for {b.multiplier.name}, not for {multiplier.name}")
    return _product(a, b, out)


def _product(a, b, out):
    """product() of float32 (m, k) and a Packed."""
    if a.shape[1] != len(b.values):
        raise ValueError(f"{a.shape} by {b.values.shape} is no matrix product")
    a, table = _contiguous(a), _table(b.multiplier)
    sums, panels = _loops(Magnitudes.measure(a), b)
    direct = out is not None and out.flags.c_contiguous and out.dtype == np.float32
    result = out if direct else np.empty((len(a), b.values.shape[1]), np.float32)
    if result.shape != (len(a), b.values.shape[1]):
        raise ValueError(f"the product of {a.shape} and {b.values.shape} is not {result.shape}")
    transposed = not a.flags.c_contiguous
    sums(
        (
            table,
            (a.T if transposed else a).view(np.int32),
            transposed,
            panels.view(np.int32),
            result,
        )
    )
    return result if direct else _handed_over(result, out)


def _loops(a, b):
    """(the loop nest for a product of a matrix with these Magnitudes and a Packed, the panels that
    it reads).
    """
    name = _kind(b.multiplier)
    # False for NaN too: infinity times zero
    safe = a.largest * b.magnitudes.largest < LARGEST_SAFE
    if name in _GENERAL and not safe:
        return _GENERAL[name], _panels(b.values)
    normal = b.magnitudes.least == b.magnitudes.least_normal
    plain = normal and a.least_normal * b.magnitudes.least >= SMALLEST_SAFE
    return _PLAIN[name] if plain and name in _PLAIN else _GUARDED[name], b.panels


def _kind(multiplier):
    """The key of a multiplier's loops."""
    if isinstance(multiplier, Multiplier):
        return multiplier.name
    return "table" if isinstance(multiplier, Table) else "integers"


def _table(multiplier):
    """(words, how far a mantissa is shifted, or the row of the integer 0)."""
    if isinstance(multiplier, Multiplier):
        return _NO_TABLE
    return multiplier.words, 23 - multiplier.bits if isinstance(
        multiplier, Table
    ) else multiplier.most


def _contiguous(matrix):
    """A transposed matrix stays as it lies: the loops look at each element once for each panel, and
    a copy takes as long.
    """
    return matrix if matrix.flags.f_contiguous else np.ascontiguousarray(matrix)


def _handed_over(result, out):
    if out is None:
        return np.ascontiguousarray(result)
    if out.shape != result.shape:
        raise ValueError(f"the product is {result.shape}, not {out.shape}")
    out[...] = result
    return out


def _check(factor):
    if factor.ndim != 2 or factor.dtype != np.float32:
        raise ValueError(f"a factor must be a float32 matrix, not {factor.dtype} {factor.shape}")


def _cost(a, columns, multiplier):
    """Relative cost of a product of `a` and a factor of so many columns: the number of vectors and
    about one more for each element of `a` that is multiplied."""
    share = _share_of_normals(a) if _passes_over_zeros(multiplier) else 1
    return share * a.size * (-(-columns // VECTOR) + 1)


def _share_of_normals(matrix):
    """About the share of elements that are neither zero nor subnormal: that of a few rows as they
    lie in memory.
    """
    sample = np.ascontiguousarray(
        (matrix if matrix.strides[0] >= matrix.strides[1] else matrix.T)[::SAMPLED]
    )
    return np.count_nonzero(sample.view(np.uint32) & np.uint32(EXPONENT)) / max(sample.size, 1)


def _passes_over_zeros(multiplier):
    return _kind(multiplier) not in ("exact", "fp16")


def _panels(b):
    rows, columns = b.shape
    pitch = min(PANEL, -(-columns // VECTOR) * VECTOR)
    panels = np.zeros((-(-columns // PANEL), rows, pitch), np.float32)
    for i, panel in enumerate(panels):
        part = b[:, i * PANEL : (i + 1) * PANEL]
        panel[:, : part.shape[1]] = part
    return panels


# ---- B's elements, prepared for the products below


def _cut(b):
    return (np.ascontiguousarray(b).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _cut_normal(b):
    cut = _cut(b)
    return np.where(np.abs(cut) < np.finfo(np.float32).smallest_normal, np.float32(0), cut)


def _cut_odd(b):
    return (_cut(b).view(np.uint32) | np.uint32(0x00010000)).view(np.float32)


def _halves(b):
    with np.errstate(over="ignore"):
        return b.astype(np.float16).astype(np.float32)


_NO_TABLE = (np.zeros((1, 1), np.uint32), 0)
OPERANDS = {"acc16": _cut_normal, "mit16": _cut, "am16": _cut_odd, "fp16": _halves}


# ---- products of bit patterns, int32: left(a) once per element of A, times(left(a), b) for each
# element of B in its row

compiled = numba.njit(error_model="numpy", nogil=True, forceinline=True)
cached = numba.njit(error_model="numpy", nogil=True, cache=True)

MAGNITUDE, SIGN, EXPONENT = np.int32(0x7FFFFFFF), np.int32(-0x80000000), np.int32(0x7F800000)
MANTISSA, UPPER, LOWEST = np.int32(0x007FFFFF), np.int32(-0x10000), np.int32(0x00010000)
BIAS, CARRY, LEAST_NORMAL, NAN = (
    np.int32(0x3F800000),
    np.int32(0x00800000),
    np.int32(0x00800000),
    np.int32(0x7FC00000),
)
CORRECTION, ZERO, ONE = np.int32(655360), np.int32(0), np.int32(1)  # 5/64 of 2^23
NEVER = MAGNITUDE  # no finite number has this magnitude


@intrinsic
def _float(typing, bits):
    def bitcast(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), bitcast


@intrinsic
def _bits(typing, value):
    def bitcast(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), bitcast


@compiled
def _as_it_is(a, table):
    return a


@compiled
def _left_exact(a, table):
    return _float(a)


@compiled
def _times_exact(a, b, table):
    return a * _float(b)


@compiled
def _half(value):
    """`value` rounded to the nearest half, ties to even.

    With 2^e the power of two below `value`, adding 1.5 * 2^(e + 13) rounds off all bits below 2^(e
    - 10), and below 2^-24, the last bit of a subnormal half; both additions round as float32 does.
    For powers beyond the range of a half the result is infinite. -0 becomes +0, which makes no
    difference in a sum.
    """
    power = min(max(np.int32(_bits(value) & EXPONENT), np.int32(113 << 23)), np.int32(143 << 23))
    shift = _float(np.int32(power + np.int32((13 << 23) + 0x00400000)))
    rounded = np.float32(np.float32(value + shift) - shift)
    infinite = _float(np.int32((_bits(value) & SIGN) | EXPONENT))
    return infinite if abs(rounded) >= np.float32(65536) else rounded


@compiled
def _left_fp16(a, table):
    return _half(_float(a))


@compiled
def _times_fp16(a, b, table):
    return _half(a * _float(b))  # at most 22 bits: exact before it is rounded


@compiled
def _tf32(value):
    return (
        value
        if value != value
        else _float(np.int32((_bits(value) + np.int32(0x1000)) & np.int32(-0x2000)))
    )


@compiled
def _bfloat16(value):
    bits = _bits(value)
    return (
        value
        if value != value
        else _float(np.int32((bits + np.int32(0x7FFF) + ((bits >> 16) & ONE)) & UPPER))
    )


@compiled
def _left_acc16(a, table):
    return _float(np.int32(a & UPPER) if a & EXPONENT else ZERO)


@compiled
def _times_acc16(a, b, table):
    product = _plain_acc16(a, b, table)
    return product if _bits(product) & EXPONENT else _float(ZERO)


@compiled
def _plain_acc16(a, b, table):
    return _float(np.int32(_bits(a * _float(b)) & UPPER))


@compiled
def _least(a, correction):
    """The least magnitude of b whose product with a is a normal number; at least LEAST_NORMAL,
    since b must be normal too.

    The product's exponent is the sum of both exponents, plus one if x + y + correction >= 1 (never
    plus two). So b needs at least the exponent for which the sum is one too small, and then a
    mantissa large enough to carry.
    """
    magnitude = np.int32(a & MAGNITUDE)
    exponent = np.int32(BIAS - (magnitude & EXPONENT))
    # with that exponent: the magnitude at which x + y reaches 1
    mantissa = np.int32(BIAS + CARRY - correction - magnitude)
    return NEVER if magnitude < LEAST_NORMAL else max(exponent, mantissa, LEAST_NORMAL)


@compiled
def _left_mit(a, table):
    return np.int32(a - BIAS), _least(a, ZERO)


@compiled
def _left_mit16(a, table):
    return _left_mit(np.int32(a & UPPER), table)


@compiled
def _times_mit(left, b, table):
    return _plain_mit(left, b, table) if np.int32(b & MAGNITUDE) >= left[1] else _float(ZERO)


@compiled
def _plain_mit(left, b, table):
    # One addition: the mantissas carry into the exponents, and the sum of the signs is their
    # exclusive or.
    return _float(np.int32(left[0] + b))


@compiled
def _correction(raised):
    """The correction that MBM adds to Mitchell's bits for x + y = 1 + c - raised / 2^23.

    With c = 5/64: 2^23 c as long as that does not carry; if it does, the mantissa is (x + y + c -
    1) / 2, which grows half as fast; half of 2^23 c for x + y >= 1; and 0 if that would carry.
    """
    correction = np.int32(min(max(raised, CORRECTION), np.int32(CORRECTION << ONE)) >> ONE)
    return ZERO if raised <= np.int32((CORRECTION >> ONE) + CORRECTION - CARRY) else correction


@compiled
def _left_am(a, table):
    return np.int32(a - BIAS), _least(a, CORRECTION), np.int32(CARRY + CORRECTION - (a & MANTISSA))


@compiled
def _left_am16(a, table):
    # Two odd mantissas have an even sum, and half the correction has no more bits: the result has 7
    # bits without truncation.
    return _left_am(np.int32((a & UPPER) | LOWEST), table)


@compiled
def _times_am(left, b, table):
    return _plain_am(left, b, table) if np.int32(b & MAGNITUDE) >= left[1] else _float(ZERO)


@compiled
def _plain_am(left, b, table):
    shifted, _, room = left
    return _float(np.int32(shifted + b + _correction(np.int32(room - (b & MANTISSA)))))


@compiled
def _left_table(a, table):
    exponent = np.int32(a & EXPONENT)
    # If one operand is zero, no exponent of the other makes the product a normal number.
    shifted = np.int32(exponent - BIAS) if exponent else np.int32(-EXPONENT)
    return shifted, np.int32(a & SIGN), table[0][np.uint32((a & MANTISSA) >> table[1])]


@compiled
def _times_table(left, b, word):
    shifted, sign, _ = left
    bits = np.int32(shifted + (b & EXPONENT) + word)
    live = (np.int32(b & MAGNITUDE) >= LEAST_NORMAL) & (bits >= LEAST_NORMAL)
    return _float(np.int32(bits | (sign ^ (b & SIGN))) if live else ZERO)


@compiled
def _plain_table(left, b, word):
    shifted, sign, _ = left
    return _float(np.int32((shifted + (b & EXPONENT) + word) | (sign ^ (b & SIGN))))


# ---- the same for all operands and results, special cases included


@compiled
def _finished(a, b, bits):
    """The product with these bits, except for operands that are zero, subnormal or not finite."""
    a_magnitude, b_magnitude = np.int32(a & MAGNITUDE), np.int32(b & MAGNITUDE)
    bits = ZERO if min(a_magnitude, b_magnitude) < LEAST_NORMAL else bits
    exact = _float(a) * _float(b)
    exact_bits = NAN if exact != exact else _bits(exact)
    return _float(bits if max(a_magnitude, b_magnitude) < EXPONENT else exact_bits)


@compiled
def _ranged(a, b, doubled):
    """The product whose magnitude has the bits `doubled`, in which the exponent is too large by
    127.
    """
    sign, doubled = np.int32((a ^ b) & SIGN), np.uint32(doubled)
    bits = np.int32(np.uint32(doubled - np.uint32(BIAS))) | sign
    bits = np.int32(EXPONENT | sign) if doubled >= np.uint32(0xBF000000) else np.int32(bits)
    return _finished(a, b, ZERO if doubled < np.uint32(0x40000000) else bits)


@compiled
def _any_acc16(a, b, table):
    return _finished(
        a, b, _bits(_times_acc16(_float(np.int32(a & UPPER)), np.int32(b & UPPER), table))
    )


@compiled
def _any_mit32(a, b, table):
    return _ranged(a, b, np.uint32(a & MAGNITUDE) + np.uint32(b & MAGNITUDE))


@compiled
def _any_mit16(a, b, table):
    return _ranged(a, b, np.uint32(a & MAGNITUDE & UPPER) + np.uint32(b & MAGNITUDE & UPPER))


@compiled
def _mbm(a, b):
    correction = _correction(np.int32(CARRY + CORRECTION - (a & MANTISSA) - (b & MANTISSA)))
    return np.uint32(np.uint32(a & MAGNITUDE) + np.uint32(b & MAGNITUDE) + np.uint32(correction))


@compiled
def _any_am32(a, b, table):
    return _ranged(a, b, _mbm(a, b))


@compiled
def _any_am16(a, b, table):
    return _ranged(a, b, _mbm(np.int32((a & UPPER) | LOWEST), np.int32((b & UPPER) | LOWEST)))


@compiled
def _any_table(a, b, table):
    words, shift = table
    row, column = (
        np.uint32(a & MANTISSA) >> np.uint32(shift),
        np.uint32(b & MANTISSA) >> np.uint32(shift),
    )
    return _ranged(
        a,
        b,
        np.uint32(a & EXPONENT)
        + np.uint32(b & EXPONENT)
        + words[np.uint32(row), np.uint32(column)],
    )


@cached
def round_to_tf32(values, rounded):
    """rounded = values in TF32 (see multipliers.to_tf32); flat float32 arrays."""
    for i in range(values.size):
        rounded[i] = _tf32(values[i])


@cached
def round_to_bfloat16(values, rounded):
    """rounded = values in bfloat16 (see multipliers.to_bfloat16); flat float32 arrays."""
    for i in range(values.size):
        rounded[i] = _bfloat16(values[i])


@cached
def round_to_float16(values, rounded):
    """rounded = values in float16 (see multipliers.to_float16), a zero without its sign; flat
    float32 arrays.
    """
    for i in range(values.size):
        rounded[i] = _half(values[i])


# ---- a single product, for loops that multiply one pair at a time

CODES = {
    name: np.int64(code)
    for code, name in enumerate(
        (
            "fp16",
            "tf32",
            "bfloat16",
            "float16",
            "acc16",
            "mit32",
            "mit16",
            "am32",
            "am16",
            "integers",
            "table",
        )
    )
}
FP16, TF32, BFLOAT16, FLOAT16, ACC16, MIT32, MIT16, AM32, AM16, INTEGERS = (
    int(code) for code in list(CODES.values())[:-1]
)


def coded(multiplier):
    """The argument of single() for a multiplier; None for the exact one, which then costs no test
    in the loop.
    """
    words, place = _table(multiplier)
    return (
        None
        if _kind(multiplier) == "exact"
        else (CODES[_kind(multiplier)], (words, np.int64(place)))
    )


@compiled
def _one_nan(value):
    return _float(NAN) if value != value else value


@compiled
def single(a, b, multiplier):
    """The product of two float32 numbers, or of any float type if multiplier (see coded()) is
    None.
    """
    if multiplier is None:
        return a * b
    code, table = multiplier
    a_bits, b_bits = _bits(a), _bits(b)
    if code == FP16:
        return _half(_half(a) * _half(b))
    if code == TF32:
        return _one_nan(_tf32(a) * _tf32(b))
    if code == BFLOAT16:
        return _one_nan(_bfloat16(a) * _bfloat16(b))
    if code == FLOAT16:
        return _one_nan(_half(a) * _half(b))
    if code == ACC16:
        return _any_acc16(a_bits, b_bits, table)
    if code == MIT32:
        return _any_mit32(a_bits, b_bits, table)
    if code == MIT16:
        return _any_mit16(a_bits, b_bits, table)
    if code == AM32:
        return _any_am32(a_bits, b_bits, table)
    if code == AM16:
        return _any_am16(a_bits, b_bits, table)
    if code == INTEGERS:
        words, middle = table
        return np.float32(np.int32(words[np.int64(a) + middle, np.int64(b) + middle]))
    return _any_table(a_bits, b_bits, table)


# ---- the loops


@compiled
def _all(a):
    return True


@compiled
def _normal(a):
    return (a & EXPONENT) != ZERO


@compiled
def _sums(add, taken, left, times, operands):
    """out = the products of `a` and the panels, but for the elements of `a` that are not `taken`,
    whose products are +0.

    operands: (table, a or its transpose, whether it is that, panels, out).
    """
    table, a, transposed, panels, out = operands
    rows, depth = len(out), panels.shape[1]
    total, places, tile = (
        np.zeros(PANEL, np.float32),
        np.empty(DEPTH, np.uintp),
        np.empty((VECTOR, DEPTH), np.int32),
    )
    for panel in range(len(panels)):
        first = panel * PANEL
        width = min(PANEL, out.shape[1] - first)
        # whole vectors, so no columns remain for a slower loop
        whole = (width + VECTOR - 1) // VECTOR * VECTOR
        for start in range(0, max(depth, 1), DEPTH):
            stop = min(depth, start + DEPTH)
            for row in range(rows):
                if transposed and row % VECTOR == 0:
                    _turn(a[start:stop, row : row + VECTOR], tile)
                factors = tile[row % VECTOR] if transposed else a[row, start:stop]
                for n in range(width):
                    total[n] = out[row, first + n] if start else np.float32(0)
                count = 0
                for k in range(stop - start):
                    places[count] = k
                    count += 1 if taken(factors[k]) else 0
                add(
                    left, times, table, factors, panels[panel, start:], places[:count], total, whole
                )
                for n in range(width):
                    out[row, first + n] = total[n]


@compiled
def _turn(part, tile):
    """tile = the transpose of a part of a matrix, whose rows, far from each other in memory, are
    each read once.
    """
    for k in range(part.shape[0]):
        for row in range(part.shape[1]):
            tile[row, k] = part[k, row]


@compiled
def _add_products(left, times, table, a, panel, places, total, width):
    """total[n] += the products of a[k] and panel[k, n] for the k in `places`, in their order."""
    odd = len(places) - len(places) % 4
    for i in range(0, odd, 4):  # four rows at once: a quarter of the loads and stores of total
        k0, k1, k2, k3 = places[i], places[i + 1], places[i + 2], places[i + 3]
        a0, a1, a2, a3 = (
            left(a[k0], table),
            left(a[k1], table),
            left(a[k2], table),
            left(a[k3], table),
        )
        for n in range(width):
            two = total[n] + times(a0, panel[k0, n], table) + times(a1, panel[k1, n], table)
            total[n] = two + times(a2, panel[k2, n], table) + times(a3, panel[k3, n], table)
    _add_singly(left, times, table, a, panel, places[odd:], total, width)


@compiled
def _add_singly(left, times, table, a, panel, places, total, width):
    """The same as _add_products, one row of B at a time."""
    for k in places:
        a0 = left(a[k], table)
        for n in range(width):
            total[n] += times(a0, panel[k, n], table)


@compiled
def _add_table_products(left, times, table, a, panel, places, total, width):
    """The same as _add_products; the table has a loop of its own, since LLVM does not vectorise one
    that gathers and stores.
    """
    shift, entries = np.uint32(table[1]), np.empty(PANEL, np.int32)
    for k in places:
        a0 = left(a[k], table)
        words = a0[2]
        for n in range(width):
            entries[n] = words[np.uint32(np.uint32(panel[k, n] & MANTISSA) >> shift)]
        for n in range(width):
            total[n] += times(a0, panel[k, n], entries[n])


@compiled
def _add_integer_products(left, times, table, a, panel, places, total, width):
    """The same as _add_products; a panel has columns of the table."""
    for k in places:
        words = table[0][np.int64(_float(a[k])) + table[1]]
        for n in range(width):
            total[n] += np.float32(np.int32(words[np.uint32(panel[k, n])]))


@cached
def _magnitudes(bits):
    """Bits of the least magnitude, of the least normal one and of the largest, of flat float32
    numbers; see Magnitudes.
    """
    least, least_normal, largest = EXPONENT, np.uint32(EXPONENT - LEAST_NORMAL), ZERO
    for i in range(bits.size):
        magnitude = np.int32(bits[i] & MAGNITUDE)
        least, largest = min(least, magnitude), max(largest, magnitude)
        # that of a subnormal one wraps around
        least_normal = min(least_normal, np.uint32(magnitude - LEAST_NORMAL))
    return np.int32(least), np.int32(np.int32(least_normal) + LEAST_NORMAL), np.int32(largest)


# Three tables, multiplier -> its loops. Each is on a line of its own, by which Numba keeps what it
# compiled. Where B has no zero and no product is too small:
_PLAIN = {
    "acc16": cached(
        lambda operands: _sums(_add_products, _normal, _left_acc16, _plain_acc16, operands)
    ),
    "mit32": cached(
        lambda operands: _sums(_add_products, _normal, _left_mit, _plain_mit, operands)
    ),
    "mit16": cached(
        lambda operands: _sums(_add_products, _normal, _left_mit16, _plain_mit, operands)
    ),
    "am32": cached(lambda operands: _sums(_add_products, _normal, _left_am, _plain_am, operands)),
    "am16": cached(lambda operands: _sums(_add_products, _normal, _left_am16, _plain_am, operands)),
    "table": cached(
        lambda operands: _sums(_add_table_products, _normal, _left_table, _plain_table, operands)
    ),
}
# For finite numbers without overflow:
_GUARDED = {
    "exact": cached(
        lambda operands: _sums(_add_products, _all, _left_exact, _times_exact, operands)
    ),
    "fp16": cached(lambda operands: _sums(_add_products, _all, _left_fp16, _times_fp16, operands)),
    "acc16": cached(
        lambda operands: _sums(_add_products, _normal, _left_acc16, _times_acc16, operands)
    ),
    "mit32": cached(
        lambda operands: _sums(_add_products, _normal, _left_mit, _times_mit, operands)
    ),
    "mit16": cached(
        lambda operands: _sums(_add_products, _normal, _left_mit16, _times_mit, operands)
    ),
    "am32": cached(lambda operands: _sums(_add_products, _normal, _left_am, _times_am, operands)),
    "am16": cached(lambda operands: _sums(_add_products, _normal, _left_am16, _times_am, operands)),
    "table": cached(
        lambda operands: _sums(_add_table_products, _normal, _left_table, _times_table, operands)
    ),
    "integers": cached(
        lambda operands: _sums(_add_integer_products, _normal, _as_it_is, _as_it_is, operands)
    ),
}
# For all numbers, where these loops are others:
_GENERAL = {
    "acc16": cached(lambda operands: _sums(_add_singly, _all, _as_it_is, _any_acc16, operands)),
    "mit32": cached(lambda operands: _sums(_add_singly, _all, _as_it_is, _any_mit32, operands)),
    "mit16": cached(lambda operands: _sums(_add_singly, _all, _as_it_is, _any_mit16, operands)),
    "am32": cached(lambda operands: _sums(_add_singly, _all, _as_it_is, _any_am32, operands)),
    "am16": cached(lambda operands: _sums(_add_singly, _all, _as_it_is, _any_am16, operands)),
    "table": cached(lambda operands: _sums(_add_singly, _all, _as_it_is, _any_table, operands)),
}
