"""Independent definitions of the multipliers, and operands to check implementations with."""

import fractions
import struct

import numpy as np

from ladder.arithmetic.multipliers import multiply

NAMES = ("exact", "acc16", "am32", "am16", "mit32", "mit16", "fp16", "tf32", "bfloat16", "float16")
NARROW = ("acc16", "am16", "mit16")
ROUNDED = {"tf32": 10, "bfloat16": 7}  # bits of mantissa
NAN, INFINITY, SIGN = 0x7FC00000, 0x7F800000, 0x80000000
C = fractions.Fraction(5, 64)

EDGES = np.array(
    [
        0,
        1,
        0x00008000,
        0x007FFFFF,
        0x00800000,
        0x00800001,
        0x00FFFFFF,
        0x33000000,
        0x33000001,
        0x38800000,
        0x3F7FFFFF,
        0x3F800000,
        0x3F810000,
        0x3FBC0000,
        0x3FC00000,
        0x3FFFFFFF,
        0x40000000,
        0x477FE000,
        0x477FEFFF,
        0x477FF000,
        0x7F000000,
        0x7F7FFFFF,
        0x7F800000,
        0x7F800001,
        0x7FC00000,
        0x7FFFFFFF,
    ],
    np.uint32,
)
EDGES = np.concatenate([EDGES, EDGES | np.uint32(SIGN)])


def pairs(count, seed=0):
    """Two arrays of `count` float32: random bit patterns, products near overflow and underflow,
    mantissas whose sum is where a formula changes, numbers around a half's range, and all pairs of
    EDGES.
    """
    random = np.random.default_rng(seed)
    kinds = [
        _any_bits,
        _near(random, 382),
        _near(random, 128),
        _near(random, 254),
        _half_sized,
        _adding_up,
    ]
    parts = [kind(random, -(-count // len(kinds))) for kind in kinds]
    a, b = (np.concatenate(side)[:count] for side in zip(*parts, strict=True))
    edges = np.meshgrid(EDGES, EDGES)
    if count > edges[0].size:
        a[: edges[0].size], b[: edges[0].size] = (side.reshape(-1) for side in edges)
    return a.view(np.float32), b.view(np.float32)


def ordinary(shape, seed=0):
    """float32 of many sizes, no product of which overflows; some zeros and subnormals."""
    random = np.random.default_rng([seed, *shape])
    values = random.standard_normal(shape) * 2.0 ** random.integers(-60, 20, shape)
    values[random.random(shape) < 0.1] = 0
    values[random.random(shape) < 0.02] = 1e-40
    return values.astype(np.float32)


def _any_bits(random, count):
    return random.integers(0, 1 << 32, (2, count), np.uint32)


def _near(random, total):
    """Pairs whose exponents add up to `total`, give or take 2, with mantissas of which every third
    is near an end.
    """

    def draw(random, count):
        wanted = total + random.integers(-2, 3, count)
        first = random.integers(np.maximum(1, wanted - 254), np.minimum(254, wanted - 1) + 1)
        mantissas = random.integers(0, 1 << 23, (2, count))
        small = random.integers(0, 4, (2, count))
        mantissas = np.choose(
            random.integers(0, 6, (2, count)), [small, (1 << 23) - 1 - small, *[mantissas] * 4]
        )
        signs = random.integers(0, 2, (2, count)) << 31
        return (signs | np.stack([first, wanted - first]) << 23 | mantissas).astype(np.uint32)

    return draw


def _half_sized(random, count):
    """Numbers around the range of a half, many of them ties."""
    exponents = random.integers(127 - 26, 127 + 17, (2, count))
    kept = np.choose(random.integers(0, 3, (2, count)), [-1, -(1 << 12), -(1 << 16)])
    mantissas, signs = (
        random.integers(0, 1 << 23, (2, count)) & kept,
        random.integers(0, 2, (2, count)) << 31,
    )
    return (signs | exponents << 23 | mantissas).astype(np.uint32)


def _adding_up(random, count):
    """Pairs whose mantissas add up to where MBM's correction begins to carry, halves, and ends,
    give or take 2.
    """
    total = random.choice(
        [(1 << 23) - 655360, 1 << 23, (1 << 24) - 327680], count
    ) + random.integers(-2, 3, count)
    x = random.integers(np.maximum(0, total - (1 << 23) + 1), np.minimum(total, (1 << 23) - 1) + 1)
    exponents, signs = (
        random.integers(100, 150, (2, count)),
        random.integers(0, 2, (2, count)) << 31,
    )
    return (signs | exponents << 23 | np.stack([x, total - x])).astype(np.uint32)


def adding_up(count, seed=0):
    """Two arrays of `count` float32 whose mantissas, i to i, add up to where MBM's formula changes;
    no product overflows.
    """
    return _adding_up(np.random.default_rng(seed), count).view(np.float32)


# ---- by definition, in fractions, one pair at a time


def scalar(a, b, name):
    """Bits of the product of two float32 given by their bits."""
    if name == "fp16":
        return _half_product(a, b)
    if name == "float16":
        return _bits32(_number(_half(a)) * _number(_half(b)))
    if name in ROUNDED:
        return _bits32(_rounded(a, name) * _rounded(b, name))
    product = _special(a, b)
    if product is not None:
        return product
    (x, a_exponent), (y, b_exponent) = (_parts(bits, name) for bits in (a, b))
    value = {"acc": _exact, "mit": _mitchell, "am1": _mbm, "am3": _mbm}[name[:3]](x, y)
    exponent = a_exponent + b_exponent
    while value >= 2:
        value, exponent = value / 2, exponent + 1
    places = 7 if name in NARROW else 23
    mantissa = int((value - 1) * 2**places) << (23 - places)
    sign = (a ^ b) & SIGN
    return (
        0
        if exponent < -126
        else sign | INFINITY
        if exponent > 127
        else sign | (exponent + 127) << 23 | mantissa
    )


def _special(a, b):
    """Bits of the product where an operand is infinite, NaN, zero or subnormal, else None."""
    least, largest = sorted((a & ~SIGN, b & ~SIGN))
    if largest > INFINITY or (largest == INFINITY and least == 0):
        return NAN
    if largest == INFINITY:
        return INFINITY | (a ^ b) & SIGN
    return 0 if least < 0x00800000 else None


def _parts(bits, name):
    """(x, e) of (1 + x) 2^e, as far as the multiplier reads it."""
    mantissa = bits & 0x007FFFFF
    if name in NARROW:
        mantissa &= 0x007F0000
    if name == "am16":
        mantissa |= 0x00010000
    return fractions.Fraction(mantissa, 1 << 23), (bits >> 23 & 0xFF) - 127


def _exact(x, y):
    return (1 + x) * (1 + y)


def _mitchell(x, y):
    return 1 + x + y if x + y < 1 else 2 * (x + y)


def _mbm(x, y):
    if x + y < 1:
        return 1 + x + y + C
    return 2 * (x + y) + (C if x + y - 1 + C / 2 < 1 else 0)


def _half_product(a, b):
    a, b = _half(a), _half(b)
    return _half(_bits(_number(a) * _number(b)))


def _half(bits):
    """Bits of the float32 that is nearest to it among the halves; struct rounds to even."""
    value = _number(bits)
    if value != value:
        return NAN
    try:
        return _bits(struct.unpack("e", struct.pack("e", value))[0])
    except OverflowError:
        return bits & SIGN | INFINITY


def _rounded(bits, name):
    """The number of a float32's bits, rounded in fractions: tf32 away from zero on ties, bfloat16
    to even.
    """
    value = _number(bits)
    if value != value or abs(value) == float("inf") or value == 0:
        return value
    unit = fractions.Fraction(2) ** (max((bits >> 23 & 0xFF), 1) - 127 - ROUNDED[name])
    units, rest = divmod(abs(fractions.Fraction(value)), unit)
    up = rest * 2 > unit or (rest * 2 == unit and (name == "tf32" or units % 2))
    size = (units + up) * unit
    size = float("inf") if size >= 2**128 else float(size)
    return -size if bits & SIGN else size


def _bits32(product):
    """Bits of the float32 nearest to a float64, which holds the product of two rounded numbers
    exactly.
    """
    with np.errstate(all="ignore"):
        return int(_one_nan(np.float64(product).astype(np.float32)).view(np.uint32))


def _number(bits):
    return struct.unpack("f", struct.pack("I", bits))[0]


def _bits(number):
    bits = struct.unpack("I", struct.pack("f", number))[0]
    return NAN if number != number else bits


def _one_nan(values):
    values = np.array(values, np.float32)
    values[np.isnan(values)] = np.uint32(NAN).view(np.float32)
    return values


def table_product(a, b, entries):
    """Bits of the product of two float32, given by their bits, by a table uint8 (2^m, 2^m)."""
    product = _special(a, b)
    if product is not None:
        return product
    side = len(entries)
    i, j = ((bits & 0x007FFFFF) * side >> 23 for bits in (a, b))
    entry = int(entries[i, j])
    exponent = (a >> 23 & 0xFF) + (b >> 23 & 0xFF) - 127 + (1 if entry >= 128 else 0)
    sign = (a ^ b) & SIGN
    mantissa = entry % 128 * (1 << 23) // side
    return (
        0
        if exponent < 1
        else sign | INFINITY
        if exponent > 254
        else sign | exponent << 23 | mantissa
    )


def in_order(a, b, multiplier):
    """The product of two matrices whose sums are added in order, in float32."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(len(b)):
            total = total + multiply(a[:, k, None], b[None, k], multiplier)
    return total


def same_bits(a, b):
    """Where two float32 arrays hold the same bits."""
    return np.ascontiguousarray(a).view(np.uint32) == np.ascontiguousarray(b).view(np.uint32)


def random_table(bits, seed=0):
    """Any entries that have no stray bits: neither symmetric nor monotone."""
    entries = np.random.default_rng([seed, bits]).integers(0, 256, (2**bits, 2**bits), np.uint8)
    return entries & np.uint8(0x80 | (2**bits - 1))


def random_integers(signed=True):
    """int16 or uint16 (256, 256): products of integers with errors, others in the other order;
    those with 0 are not all 0.
    """
    sizes = np.arange(-128, 128) if signed else np.arange(256)
    errors = np.random.default_rng(6).integers(-300, 301, (256, 256))
    return np.clip(
        np.outer(sizes, sizes) + errors,
        -(2**15) if signed else 0,
        2**15 - 1 if signed else 2**16 - 1,
    ).astype(np.int16 if signed else np.uint16)
