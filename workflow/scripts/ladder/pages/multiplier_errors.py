"""The relative error of a multiplier over the mantissas: (approximate - exact) / exact for operands
in [1, 2) x [1, 2).

These operands have exponent 0; other exponents give the same errors, except for the special cases
of multipliers.py. Operands of a multiplier of integers are those from 1 to the largest.
"""

import numpy as np

from ladder.arithmetic import multipliers
from ladder.pages import figures

# operands along a side; not a power of two, so that they sample all rounding intervals evenly
SIDE = 1000
BLOCK = 8  # operands along a side of a pixel
# too small, too large: blue and orange, safe for colour-blind readers
BELOW, ABOVE = (38, 112, 208), (214, 92, 14)


def relative_errors(multiplier):
    """float64 (SIDE, SIDE): errors of the products of SIDE operands in rising order; rows: first
    operand, columns: second.

    multiplier: as multipliers.multiply takes it.
    """
    multiplier = multipliers.find(multiplier) if isinstance(multiplier, str) else multiplier
    operands = (1 + (np.arange(SIDE) + 0.5) / SIDE).astype(np.float32)
    if isinstance(multiplier, multipliers.Integers):
        operands = np.rint(np.linspace(1, multiplier.most, SIDE)).astype(np.float32)
    exact = np.multiply.outer(operands.astype(np.float64), operands.astype(np.float64))
    return multipliers.multiply(operands[:, None], operands[None, :], multiplier) / exact - 1


def picture(errors, scale):
    """A `data:` URI of the errors, the first operand upwards; larger errors have a stronger colour,
    zero is transparent.

    Each pixel shows the mean over BLOCK x BLOCK operands; scale: the error with full colour.
    """
    side = SIDE // BLOCK
    means = errors.reshape(side, BLOCK, side, BLOCK).mean(axis=(1, 3))[::-1] / scale
    pixels = np.empty((side, side, 4), np.uint8)
    pixels[..., :3] = np.where(means[..., None] < 0, BELOW, ABOVE)
    pixels[..., 3] = np.rint(255 * np.minimum(np.abs(means), 1))
    return figures.png_uri(pixels)
