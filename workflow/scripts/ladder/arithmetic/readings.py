"""Finds how a table of 65,536 products of 8-bit integers is meant: the way of reading it that comes
nearest to the exact products.

Other programs index by the operands' bytes, so that -1 is row 255, keep products with 32768 added,
or with the other sign. The distance is the mean absolute error over the mean exact magnitude, so
that signed and unsigned operands compare.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

Entries = NDArray[np.integer]
AS_IT_IS = "as it is"
CLOSER = 0.5  # of the distance of a table as it is, below which another reading is what is meant
SIDE, HALF, OFFSET = 256, 128, 32768


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


def closest(entries: Entries) -> str:
    """The words of the reading that is CLOSER than the table as it is, the closest of them;
    AS_IT_IS if there is none.
    """
    distances = {words: distance(each) for words, each in readings(entries).items()}
    best = min(distances, key=distances.__getitem__)
    return best if distances[best] < CLOSER * distances[AS_IT_IS] else AS_IT_IS


def of_bytes(data: bytes) -> Entries:
    """The table that 131,072 bytes hold, numbers of 16 bits whose order and sign nothing tells: the
    closest reading.
    """
    words = np.frombuffer(data, "<u2").reshape(SIDE, SIDE).astype(np.uint16)
    return readings(words)[min(readings(words), key=lambda name: distance(readings(words)[name]))]
