"""What a product of two float32 numbers is: exact, of operands with fewer bits, or a bit-exact
model of simplified hardware.

A number is +-(1 + x) 2^e with x in [0, 1). All but `exact`, `fp16` and FORMATS add the exponents,
take the sign as the exclusive or of the signs and approximate (1 + x)(1 + y). They share their
special cases, in this order:

    an operand is infinite or NaN         the exact float32 product; a NaN is always 0x7fc00000
    an operand is zero or subnormal       +0
    the result's exponent is too small    +0 (there are no subnormal results)
    the result's exponent is too large    infinity with the product's sign

The first rule that applies counts: infinity times zero is NaN. The others take

    mitchell   1 + x + y if x + y < 1, else 2 (x + y)
               (Mitchell, Computer multiplication and division using binary logarithms, 1962)
    mbm        Mitchell's plus 5/64, which reduces its bias, unless that would carry
               (the minimally biased multiplier; Saadat et al., 2018)

for (1 + x)(1 + y). `fp16` is IEEE arithmetic: half(half(a) * half(b)), rounded to nearest, ties to
even, with IEEE subnormals, signed zeros and infinities; its NaN too is always 0x7fc00000. FORMATS
are what tensor cores multiply. Their operands are rounded to nearest, and the product is float32's:

    tf32       10 bits of mantissa, ties away from zero
    bfloat16   7 bits of mantissa, ties to even
    float16    IEEE halves: `fp16` without the rounding of the product

tf32 and bfloat16 have a float32's exponents, subnormals, signed zeros and infinities, and the NaN
0x7fc00000.

Integers multiplies integers of 8 bits: each operand of a layer is first quantised as a whole, with
one scale (quantised()).

The same formulas are in kernels/common/multiplier.cuh for GPUs and in approximate_matmul.py for
matrix products.
"""

import dataclasses
import difflib
import functools
import hashlib
import io
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder import files
from ladder.arithmetic import readings
from ladder.errors import UserError, excerpt

MOST_TABLE_BITS = 7  # an entry is a byte: a carry and at most 7 bits of mantissa
MOST_BYTES = 600_000  # of a table's file
INTEGERS = 256  # a side of a table of products of integers
CARRY = 0x80  # in a table's entry

MANTISSA = np.uint32(0x007FFFFF)
EXPONENT = np.uint32(0x7F800000)  # also the bits of infinity
MAGNITUDE = np.uint32(0x7FFFFFFF)
SIGN = np.uint32(0x80000000)
UPPER = np.uint32(0xFFFF0000)  # the bits of a bfloat16 in a float32
LEAST_NORMAL = np.uint32(0x00800000)
ONE = np.uint32(0x3F800000)
NAN = np.uint32(0x7FC00000)
CORRECTION = np.uint32(655360)  # 5/64 of 2^23


@dataclasses.dataclass(frozen=True)
class Multiplier:
    """A multiplier given by a formula; text: its description."""

    name: str
    text: str


MULTIPLIERS = {
    name: Multiplier(name, text)
    for name, text in {
        "exact": "float32",
        "acc16": "bfloat16: operands and product truncated to 7 bits of mantissa",
        "am32": "minimally biased multiplier (MBM), 23 bits of mantissa",
        "am16": "minimally biased multiplier (MBM), 7 bits of mantissa",
        "mit32": "Mitchell's logarithmic multiplier, 23 bits of mantissa",
        "mit16": "Mitchell's logarithmic multiplier, 7 bits of mantissa",
        "fp16": "IEEE half: operands and product rounded to 10 bits of mantissa and 5 of exponent",
    }.items()
}
FORMATS = {
    name: Multiplier(name, text)
    for name, text in {
        "tf32": "TF32: operands rounded to 10 bits of mantissa",
        "bfloat16": "bfloat16: operands rounded to 7 bits of mantissa",
        "float16": "float16: operands rounded to 10 bits of mantissa and 5 of exponent",
    }.items()
}


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A multiplier given by the products of all pairs of m-bit mantissas; longer mantissas are
    truncated to m bits.

    entries: uint8 (2^m, 2^m); entries[i, j] stands for (1 + i / 2^m)(1 + j / 2^m): its low m bits
    are the mantissa f of the result and bit 7 the carry c, so the result is (1 + f / 2^m) 2^c. The
    table need not be symmetric.
    """

    name: str
    entries: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if faults := stray_bits(self.entries):
            i, j = faults[0]
            raise UserError(
                f"{self.name}: entry [{i}, {j}] is {self.entries[i, j]:#04x}, but with mantissas of {self.bits} "
                f"bits an entry has no other bits than the carry 0x80 and {2**self.bits - 1:#04x}"
            )

    @property
    def bits(self) -> int:
        """m, 1 to 7."""
        return len(self.entries).bit_length() - 1

    @property
    def text(self) -> str:
        return f"table {self.name}, {self.bits} bits of mantissa"

    @functools.cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of the sha256 of the entries."""
        return hashlib.sha256(self.entries.tobytes()).hexdigest()[:16]

    @functools.cached_property
    def words(self):
        """uint32 (2^m, 2^m): the entries with mantissa and carry shifted to the mantissa and the
        exponent of a float32.
        """
        entries = self.entries.astype(np.uint32)
        return (entries & CARRY) << 16 | (entries & (CARRY - 1)) << (23 - self.bits)

    @functools.cached_property
    def flipped(self) -> "Table":
        """The same multiplier with the operands exchanged."""
        return Table(self.name, np.ascontiguousarray(self.entries.T))


@dataclasses.dataclass(frozen=True, eq=False)
class Integers:
    """A multiplier of integers of 8 bits, given by all of its products.

    entries  int16 (256, 256): entry [i, j] is the product of i - 128 and j - 128; or uint16 (256,
             256): the product of the magnitudes i and j, whose sign is the exclusive or of the
             operands' signs. A product with 0 is 0, whatever the table has.
    """

    name: str
    entries: NDArray[np.integer[Any]]

    @property
    def signed(self) -> bool:
        return self.entries.dtype == np.int16

    @property
    def most(self) -> int:
        """The largest magnitude of an operand."""
        return INTEGERS // 2 - 1 if self.signed else INTEGERS - 1

    @property
    def text(self) -> str:
        return f"table {self.name}, {'signed' if self.signed else 'unsigned'} integers of 8 bits"

    @functools.cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of the sha256 of the entries and of their type."""
        return hashlib.sha256(self.entries.dtype.str.encode() + self.entries.tobytes()).hexdigest()[
            :16
        ]

    @functools.cached_property
    def words(self):
        """int32 (2 most + 1, 2 most + 1) as uint32: the product of i - most and j - most at [i,
        j].
        """
        sizes = np.arange(-self.most, self.most + 1)
        if self.signed:
            products = self.entries.astype(np.int32)[1:, 1:]
        else:
            of_sizes = np.abs(sizes)
            products = self.entries[of_sizes[:, None], of_sizes] * np.sign(
                np.outer(sizes, sizes)
            ).astype(np.int32)
        return np.where(np.outer(sizes, sizes) == 0, 0, products).astype(np.int32).view(np.uint32)

    @functools.cached_property
    def flipped(self) -> "Integers":
        """The same multiplier with the operands exchanged."""
        return Integers(self.name, np.ascontiguousarray(self.entries.T))


Chosen = Multiplier | Table | Integers


def find(name: str) -> Chosen:
    """The multiplier called `name`: one of MULTIPLIERS, or the table in the file of that name.
    Raises UserError.
    """
    if name in MULTIPLIERS:
        return MULTIPLIERS[name]
    if os.path.isfile(name):  # False also for a name that no file can have
        return load_table(name)
    near = difflib.get_close_matches(str(name)[:100], MULTIPLIERS, n=1, cutoff=0.6)
    raise UserError(
        f"there is no multiplier {excerpt(str(name))}; it must be {', '.join(MULTIPLIERS)} or the file of a table"
        + (f"; did you mean {near[0]}?" if near else "")
    )


def identity(name: str) -> str:
    """The identity of the multiplier `name` in versions: its name, or 'table' or 'integers' and the
    digest of its entries.

    Raises UserError as find().
    """
    multiplier = find(name)
    if isinstance(multiplier, Multiplier):
        return multiplier.name
    return f"{'table' if isinstance(multiplier, Table) else 'integers'} {multiplier.digest}"


def check_reading(name: str) -> None:
    """Raise UserError if the table `name` is meant to be read in another order, offset or sign."""
    multiplier = find(name)
    if isinstance(multiplier, Integers) and (words := readings.meant(multiplier.entries)[1]):
        raise UserError(
            f"{name} is {words}; check_multiplier.py {name} --rewrite FILE.npy writes what is meant, "
            "and multiplier_as_it_is: true takes it as it is"
        )


@dataclasses.dataclass(frozen=True)
class ByDirection:
    """The multiplier that convolutions and dense layers use in the forward pass, the input and the
    weight gradient.
    """

    forward: Chosen = MULTIPLIERS["exact"]
    input_grad: Chosen = MULTIPLIERS["exact"]
    weight_grad: Chosen = MULTIPLIERS["exact"]

    @classmethod
    def everywhere(cls, multiplier: Chosen) -> "ByDirection":
        return cls(multiplier, multiplier, multiplier)

    @property
    def exact(self) -> bool:
        """Whether all three are the exact one."""
        return all(getattr(self, direction) is MULTIPLIERS["exact"] for direction in DIRECTIONS)

    @property
    def quantises(self) -> bool:
        """Whether one of them multiplies integers."""
        return any(isinstance(getattr(self, direction), Integers) for direction in DIRECTIONS)


DIRECTIONS = tuple(field.name for field in dataclasses.fields(ByDirection))
EXACT = ByDirection()
# Precision -> what convolutions and dense layers multiply with it: the operands rounded, in all
# directions; sums are float32.
PRECISIONS = {
    "float32": EXACT,
    **{name: ByDirection.everywhere(multiplier) for name, multiplier in FORMATS.items()},
}


def from_params(params: Mapping[str, Any], name: str) -> ByDirection:
    """The ByDirection of a stage's parameters: `precision`, or `multiplier` and `multiplier_in`;
    EXACT with neither.

    name: argument of find(), used in all directions if there is no `multiplier_in`. Raises
    UserError as find(), and if the file no longer holds the table that the run was planned with.
    """
    if "multiplier" not in params:
        return PRECISIONS[params.get("precision", "float32")]
    if identity(name) != params["multiplier"]:
        raise UserError(f"{name} changed after this run was planned; run it again")
    return ByDirection(**dict.fromkeys(params.get("multiplier_in", DIRECTIONS), find(name)))


def load_table(path: str | pathlib.Path) -> Table | Integers:
    """The multiplier in a file (see read_entries). Raises UserError if the file holds none."""
    entries = read_entries(path)
    return Table(str(path), entries) if entries.dtype == np.uint8 else Integers(str(path), entries)


def read_entries(path: str | pathlib.Path) -> NDArray[Any]:
    """The unchecked entries in a file: uint8 (2^m, 2^m) of a Table, int16 or uint16 (256, 256) of
    Integers.

    A Table's file holds 4^m bytes, m from 1 to 7, entry [i, j] at offset (i << m) | j; or these
    entries as a .npy, flat or square; that of Integers is a .npy, or the 131,072 bytes of TFApprox
    (readings.of_bytes). Raises UserError for a file that cannot be read, a wrong number of entries,
    and any other dtype.
    """
    path = pathlib.Path(path)
    data = files.read(path, MOST_BYTES)
    if path.suffix != ".npy" and len(data) == 2 * INTEGERS**2:
        return readings.of_bytes(data)
    entries = _read_npy(path, data) if path.suffix == ".npy" else np.frombuffer(data, np.uint8)
    mantissas = entries.dtype == np.uint8
    sizes = [4**m for m in range(1, MOST_TABLE_BITS + 1)] if mantissas else [INTEGERS**2]
    if entries.size not in sizes:
        raise UserError(
            f"{path} has {entries.size} entries of {entries.dtype}, but a multiplier table has "
            + (
                f"4^m, m from 1 to {MOST_TABLE_BITS}: {', '.join(map(str, sizes))}"
                if mantissas
                else f"{sizes[0]}, the products of all integers of 8 bits"
            )
        )
    side = math.isqrt(entries.size)
    if entries.shape not in ((side * side,), (side, side)):
        raise UserError(
            f"{path} is {entries.shape}, but a multiplier table of {entries.size} entries is {(side * side,)} or "
            f"{(side, side)}"
        )
    entries = np.ascontiguousarray(entries).reshape(side, side)
    entries.flags.writeable = False
    return entries


def _read_npy(path, data):
    try:
        entries = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    # NumPy raises many types of errors for damaged headers, MemoryError for absurd shapes
    except Exception as error:
        raise UserError(
            f"{path} is not a .npy file of numbers: {' '.join(str(error).split())[:200]}"
        ) from error
    if entries.dtype not in (np.uint8, np.int16, np.uint16):
        raise UserError(
            f"{path} is {entries.dtype}, but the entries of a multiplier table are uint8, of mantissas, or int16 "
            "or uint16, of integers"
        )
    return entries


def stray_bits(entries: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Indices (i, j) of the entries with bits between their mantissa and their carry."""
    meant = CARRY | (len(entries) - 1)
    return [(int(i), int(j)) for i, j in np.argwhere(entries & np.uint8(0xFF - meant))]


def tabulated(kind, bits):
    """The entries, uint8 (2^bits, 2^bits), of `exact`, `mitchell` or `mbm` with mantissas and
    results truncated to `bits` bits.

    With 7 bits these are acc16, mit16 and am16.
    """
    mantissas = np.arange(2**bits, dtype=np.uint32) << (23 - bits)
    if kind == "mbm":
        mantissas |= np.uint32(1 << (23 - bits))  # MBM sets the lowest bit of both operands
    values = (mantissas | ONE).view(np.float32)
    by = {"exact": "exact", "mitchell": "mit32", "mbm": "am32"}[kind]
    results = multiply(values[:, None], values[None, :], by).view(np.uint32)
    carry = ((results & EXPONENT) > ONE) * np.uint32(CARRY)
    return (carry | (results & MANTISSA) >> (23 - bits)).astype(np.uint8)


def kernel_defines(multiplier: Chosen) -> tuple[str, ...]:
    """Macro definitions NAME=VALUE for kernels that include common/multiplier.cuh."""
    if isinstance(multiplier, Multiplier):
        return (f"MULTIPLIER={multiplier.name}",)
    entries = multiplier.entries
    if isinstance(multiplier, Integers):
        entries = entries.copy()
        zero = INTEGERS // 2 if multiplier.signed else 0
        entries[zero], entries[:, zero] = 0, 0
        chosen = "MULTIPLIER=integers", f"MULTIPLIER_SIGNED={multiplier.signed:d}"
    else:
        chosen = "MULTIPLIER=table", f"MULTIPLIER_TABLE_BITS={multiplier.bits}"
    return *chosen, f"MULTIPLIER_TABLE={','.join(map(str, entries.reshape(-1).tolist()))}"


# ---- products


def multiply(a, b, multiplier):
    """a * b element by element under `multiplier` (one of the three types, or an argument of
    find()).

    a, b: float32 arrays or numbers whose shapes broadcast, for Integers integers in them; returns a
    float32 array. Raises TypeError for another dtype, UserError for an unknown multiplier.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != np.float32 or b.dtype != np.float32:
        raise TypeError(f"a multiplier takes float32, not {a.dtype} and {b.dtype}")
    multiplier = find(multiplier) if isinstance(multiplier, (str, pathlib.Path)) else multiplier
    a, b = np.broadcast_arrays(a, b)
    with np.errstate(all="ignore"):
        if isinstance(multiplier, Table):
            return _tabular(a, b, multiplier)
        if isinstance(multiplier, Integers):
            places = (values.astype(np.int32) + multiplier.most for values in (a, b))
            return multiplier.words[*places].view(np.int32).astype(np.float32)
        return FORMULAS[multiplier.name](a, b)


def quantised(values, most):
    """(integers, scale): the values as integers of magnitude `most` at the most, in their dtype,
    and the unit of these.

    The scale is the largest magnitude / most, or 1 where that is 0; values / scale are rounded to
    nearest, ties to even. With an infinite value or a NaN the integers are 0 and the scale is that,
    so every result that depends on it is a NaN.
    """
    largest = np.maximum(values.max(), -values.min())  # which keep a NaN
    scale = (largest / values.dtype.type(most)).astype(values.dtype)
    scale = scale if scale != 0 else values.dtype.type(1)
    if not np.isfinite(scale):
        return np.zeros_like(values), scale
    return np.clip(np.rint(values / scale), -most, most), scale


def _exact(a, b):
    return a * b


def _fp16(a, b):
    # NumPy's product of two halves is their float32 product, which has at most 22 bits and is
    # exact, rounded once.
    return _float(_bits((a.astype(np.float16) * b.astype(np.float16)).astype(np.float32)))


def _tf32(a, b):
    return _float(_bits(to_tf32(a) * to_tf32(b)))


def _bfloat16(a, b):
    return _float(_bits(to_bfloat16(a) * to_bfloat16(b)))


def _float16(a, b):
    return _float(_bits(to_float16(a) * to_float16(b)))


def to_tf32(values):
    """float32 rounded to TF32, ties away from zero, as PTX's cvt.rna.tf32.f32."""
    bits = _bits(values)
    return np.where(
        np.isnan(values),
        values,
        ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32),
    )


def to_bfloat16(values):
    """float32 rounded to bfloat16, ties to even, as PTX's cvt.rn.bf16.f32."""
    bits = _bits(values)
    return np.where(
        np.isnan(values),
        values,
        ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & UPPER).view(np.float32),
    )


def to_float16(values):
    """float32 rounded to IEEE half, ties to even, as PTX's cvt.rn.f16.f32: infinite from 65520
    on.
    """
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float16).astype(np.float32)


def _acc16(a, b):
    # of at most 16 bits: exact, or infinite
    product = _float(_bits(a) & UPPER) * _float(_bits(b) & UPPER)
    bits = _bits(product) & UPPER
    return _special_cases(a, b, np.where(bits & EXPONENT, bits, 0))


def _mit32(a, b):
    return _by_exponent(a, b, _mitchell(_bits(a), _bits(b)))


def _mit16(a, b):
    return _by_exponent(a, b, _mitchell(_bits(a) & UPPER, _bits(b) & UPPER))


def _am32(a, b):
    return _by_exponent(a, b, _mbm(_bits(a), _bits(b)))


def _am16(a, b):
    lowest = np.uint32(1 << 16)
    return _by_exponent(a, b, _mbm(_bits(a) & UPPER | lowest, _bits(b) & UPPER | lowest) & UPPER)


def _tabular(a, b, table):
    shift = 23 - table.bits
    a_bits, b_bits = _bits(a), _bits(b)
    words = table.words[(a_bits & MANTISSA) >> shift, (b_bits & MANTISSA) >> shift]
    return _by_exponent(a, b, (a_bits & EXPONENT) + (b_bits & EXPONENT) + words)


def _mitchell(a, b):
    """The bits of the product's magnitude, with the exponent too large by 127."""
    # if x + y >= 1, the mantissas carry into the exponent, as the formula requires
    return (a & MAGNITUDE) + (b & MAGNITUDE)


def _mbm(a, b):
    """The same as _mitchell for MBM."""
    total = (a & MANTISSA) + (b & MANTISSA)
    carry = total >> 23
    fraction = (total & MANTISSA) + (CORRECTION >> carry)
    too_large = fraction >= LEAST_NORMAL  # the correction would carry: omit it, or renormalise
    fraction = np.where(
        too_large, np.where(carry, total & MANTISSA, (fraction - LEAST_NORMAL) >> 1), fraction
    )
    exponents = (a & EXPONENT) + (b & EXPONENT)
    return exponents + np.where(carry | too_large, LEAST_NORMAL, np.uint32(0)) + fraction


def _by_exponent(a, b, doubled):
    """The product whose magnitude has the bits `doubled`, in which the exponent is too large by
    127.
    """
    sign = (_bits(a) ^ _bits(b)) & SIGN
    bits = np.where(doubled < ONE + EXPONENT, (doubled - ONE) | sign, EXPONENT | sign)
    return _special_cases(a, b, np.where(doubled < ONE + LEAST_NORMAL, 0, bits))


def _special_cases(a, b, bits):
    """The float32 of `bits`, except for operands that are zero, subnormal or not finite."""
    a_magnitude, b_magnitude = _bits(a) & MAGNITUDE, _bits(b) & MAGNITUDE
    least, largest = np.minimum(a_magnitude, b_magnitude), np.maximum(a_magnitude, b_magnitude)
    bits = np.where(least < LEAST_NORMAL, 0, bits)
    return _float(np.where(largest < EXPONENT, bits, _bits(a * b)))


def _bits(values):
    return np.ascontiguousarray(values).view(np.uint32).reshape(np.shape(values))


def _float(bits):
    """float32 of `bits`, with every NaN replaced by NAN."""
    values = np.asarray(bits, np.uint32).view(np.float32)
    return np.where(np.isnan(values), NAN.view(np.float32), values)


FORMULAS = {
    "exact": _exact,
    "acc16": _acc16,
    "am32": _am32,
    "am16": _am16,
    "mit32": _mit32,
    "mit16": _mit16,
    "fp16": _fp16,
    "tf32": _tf32,
    "bfloat16": _bfloat16,
    "float16": _float16,
}
