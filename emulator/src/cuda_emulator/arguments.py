"""Arguments of a kernel as words of a command line.

x:float32[1024]      random numbers between -1 and 1, integers between 0 and 99
y:float32[64,64]=0   all of this value; =empty: nothing is in it before the kernel writes
mask:uint8[n*4]      sizes are products of numbers and of the names of --size
w=weights.npy        an array from a file
n:int32=1000         a number; n:int32=n takes one of --size
"""

import dataclasses
import math
import re

import numpy as np

_ARRAY = re.compile(
    r"(?:(?P<name>\w+):)?(?P<dtype>\w+)\[(?P<shape>[\w*+,() -]+)\](?:=(?P<value>.+))?"
)
_NUMBER = re.compile(r"(?:(?P<name>\w+):)?(?P<dtype>\w+)=(?P<value>.+)")
_FILE = re.compile(r"(?:(?P<name>\w+)=)?(?P<path>.+\.npy)")
_TERM = re.compile(r"\s*(\w+(?:\s*[*+]\s*\w+)*)\s*")


class ArgumentError(ValueError):
    """A word that is no argument; the text says what is wrong in one line."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """value: an array or a NumPy scalar; empty: whether nothing is in it at first."""

    name: str
    value: object
    empty: bool = False


def parsed(word, sizes=None, seed=0):
    """The Argument of a word; sizes: {name: number} of the names in it; seed: of random numbers.

    Raises ArgumentError.
    """
    sizes = sizes or {}
    if match := _FILE.fullmatch(word):
        return Argument(match["name"] or "", _read(match["path"]))
    if match := _ARRAY.fullmatch(word):
        shape = tuple(number(part, sizes) for part in match["shape"].split(","))
        dtype, value = _dtype(match["dtype"]), match["value"]
        if min(shape) < 0:
            raise ArgumentError(f"{word}: a size below 0")
        if math.prod(shape) * dtype.itemsize > 1 << 32:
            raise ArgumentError(f"{word}: an array of more than 4 GB")
        if value == "empty":
            return Argument(match["name"] or "", np.zeros(shape, dtype), True)
        filled = (
            _random(shape, dtype, seed)
            if value is None
            else np.full(shape, _scalar(value, dtype, sizes))
        )
        return Argument(match["name"] or "", filled)
    if match := _NUMBER.fullmatch(word):
        dtype = _dtype(match["dtype"])
        return Argument(match["name"] or "", _scalar(match["value"], dtype, sizes))
    raise ArgumentError(
        f"{word}: no argument; write x:float32[1024] for an array, n:int32=1000 for a number, "
        "w=weights.npy for a file"
    )


def number(text, sizes):
    """The value of a sum of products of numbers and of names in `sizes`; raises ArgumentError."""
    try:
        return sum(
            math.prod(_factor(factor.strip(), sizes) for factor in term.split("*"))
            for term in text.split("+")
        )
    except ValueError:
        known = f"; there is {', '.join(sizes)}" if sizes else "; --size n=1000 gives n a value"
        raise ArgumentError(f"{text.strip()!r} is no size{known}") from None


def _factor(text, sizes):
    return sizes[text] if text in sizes else int(text)


def _dtype(name):
    names = {"float": "float32", "double": "float64", "int": "int32", "object": ""}
    try:
        return np.dtype(names.get(name, name))
    except TypeError:
        raise ArgumentError(f"{name!r} is no type; float32, int32 or uint8 are some") from None


def _scalar(text, dtype, sizes):
    try:
        return dtype.type(sizes[text] if text in sizes else dtype.type(float(text)))
    except (ValueError, OverflowError):
        raise ArgumentError(f"{text!r} is no {dtype}") from None


def _random(shape, dtype, seed):
    random = np.random.default_rng(seed)
    if dtype.kind in "fc":
        return random.uniform(-1, 1, shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    return random.integers(0, 100, shape).astype(dtype)


def _read(path):
    try:
        return np.ascontiguousarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: {error}") from None
