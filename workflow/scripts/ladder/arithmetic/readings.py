"""Finds how a table of 65,536 products of 8-bit integers is meant: the way of reading it that comes
nearest to the exact products.

Other programs index by the operands' bytes, so that -1 is row 255, keep products with 32768 added,
or with the other sign. The distance is the mean absolute error over the mean exact magnitude, so
that signed and unsigned operands compare.

A transposed table has the same distance, so it is told only of a circuit whose table is known: one
of EvoApproxLib that is not symmetric.
"""

import functools
import hashlib
import itertools

import numpy as np
from numpy.typing import NDArray

from ladder.sources import ROOT

Entries = NDArray[np.integer]
AS_IT_IS = "as it is"
CLOSER = 0.5  # of the distance of a table as it is, below which another reading is what is meant
SIDE, HALF, OFFSET = 256, 128, 32768
CIRCUITS = ROOT / "workflow" / "resources" / "evoapproxlib.txt"


def readings(entries: Entries) -> dict[str, Entries]:
    """Words -> int16 or uint16 (256, 256) in our order, as multipliers.Integers has it; the first
    is the table as it is.
    """
    read, bits = {AS_IT_IS: entries}, entries.view(np.uint16)
    signed = {
        "": bits.view(np.int16),
        "with 32768 added": (bits ^ np.uint16(OFFSET)).view(np.int16),
    }
    for (added, values), by_bytes, negated in itertools.product(
        signed.items(), (False, True), (False, True)
    ):
        words = [
            added,
            "indexed by the operands' bytes" * by_bytes,
            "with the other sign" * negated,
        ]
        ordered = np.roll(values, (HALF, HALF), (0, 1)) if by_bytes else values
        read[", ".join(filter(None, ["signed", *words]))] = -ordered if negated else ordered
    read["unsigned"] = bits
    return read


def distance(entries: Entries) -> float:
    """The mean absolute error of all products over the mean magnitude of the exact ones."""
    sizes = np.arange(SIDE) - (HALF if entries.dtype == np.int16 else 0)
    exact = np.outer(sizes, sizes)
    return float(np.abs(entries.astype(np.int64) - exact).mean() / np.abs(exact).mean())


def meant(entries: Entries) -> tuple[Entries, str]:
    """The table that `entries` are meant to be, and what they are if that is another one: in words
    behind "is", else nothing.
    """
    read = readings(entries)
    distances = {name: distance(each) for name, each in read.items()}
    best = min(distances, key=distances.__getitem__)
    if distances[best] >= CLOSER * distances[AS_IT_IS]:
        best = AS_IT_IS
    words = [f"closer to the exact products as a table that is {best}"] * (best != AS_IT_IS)
    table, circuit = read[best], circuits().get(digest(read[best].T))
    if circuit:
        table = np.ascontiguousarray(table.T)
        words.append(f"the table of {circuit} with its operands exchanged (EvoApproxLib)")
    return table, ", and ".join(words)


@functools.cache
def circuits() -> dict[str, str]:
    """Digest of the table -> name of the circuit."""
    rows = (line.split() for line in CIRCUITS.read_text("ascii").splitlines() if line[0] != "#")
    return {known: name for name, known in rows}


def digest(entries: Entries) -> str:
    """SHA-256 of the products in C order, 16 bits each, the lowest byte first."""
    return hashlib.sha256(entries.astype(entries.dtype.newbyteorder("<")).tobytes()).hexdigest()


def of_bytes(data: bytes) -> Entries:
    """The table that 131,072 bytes hold, numbers of 16 bits whose order and sign nothing tells: the
    closest reading.
    """
    words = np.frombuffer(data, "<u2").reshape(SIDE, SIDE).astype(np.uint16)
    return readings(words)[min(readings(words), key=lambda name: distance(readings(words)[name]))]
