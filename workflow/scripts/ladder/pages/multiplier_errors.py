"""The relative error of a multiplier over the mantissas: (its product - the product) / the product, on [1, 2) x [1, 2).

All operands have exponent 0 there; the special cases of multipliers.py apart, other exponents give the same errors.
"""

import numpy as np

from ladder.arithmetic import multipliers
from ladder.pages import figures

SIDE = 1000      # operands along a side; no power of two, so that they fall on and between all roundings alike
BLOCK = 8        # operands each way in a pixel
BELOW, ABOVE = (38, 112, 208), (214, 92, 14)   # too small, too large: blue and orange, told apart by every eye


def relative_errors(multiplier):
    """float64 (SIDE, SIDE): of the products of SIDE operands, rows by the first, columns by the second, both rising.

    multiplier: as multipliers.multiply takes it.
    """
    operands = (1 + (np.arange(SIDE) + 0.5) / SIDE).astype(np.float32)
    exact = np.multiply.outer(operands.astype(np.float64), operands.astype(np.float64))
    return multipliers.multiply(operands[:, None], operands[None, :], multiplier) / exact - 1


def picture(errors, scale):
    """A `data:` URI of the errors, the first operand upwards: the stronger the colour the larger, clear where there is none.

    Each pixel shows the mean over BLOCK x BLOCK operands; scale: the error of full colour.
    """
    side = SIDE // BLOCK
    means = errors.reshape(side, BLOCK, side, BLOCK).mean(axis=(1, 3))[::-1] / scale
    pixels = np.empty((side, side, 4), np.uint8)
    pixels[..., :3] = np.where(means[..., None] < 0, BELOW, ABOVE)
    pixels[..., 3] = np.rint(255 * np.minimum(np.abs(means), 1))
    return figures.png_uri(pixels)
