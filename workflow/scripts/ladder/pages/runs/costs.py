"""What a multiplier costs, as somebody published it, and how far its products are off.

Each source has a column of its own: other circuits, technologies and units have no common axis.
"""

import functools
import pathlib

import numpy as np

from ladder.arithmetic import multipliers

# Source -> multiplier -> cost of a product. Of the other multipliers no published cost is known to
# us.
PUBLISHED = {
    "energy of a product, pJ, 45 nm (Horowitz, ISSCC 2014, pages 10 to 14)": {
        "exact": 3.7,
        "fp16": 1.1,
    }
}
# operands along a side; not a power of two, so that they sample all rounding intervals evenly
SIDE = 1000
BLUE, ORANGE = (31, 95, 180), (196, 83, 2)


def published(multiplier, given):
    """Source -> published cost of a product by a multiplier, a name or the path of a table; given:
    the setting multiplier_costs.
    """
    name = pathlib.Path(multiplier).name
    return {
        source: table[name] for source, table in {**PUBLISHED, **given}.items() if name in table
    }


@functools.cache
def errors(multiplier):
    """{"error_least", "error_mean", "error_most"} of a multiplier. Raises UserError where its table
    cannot be read.
    """
    relative = relative_errors(multipliers.find(multiplier))
    return {
        "error_least": float(relative.min()),
        "error_mean": float(relative.mean()),
        "error_most": float(relative.max()),
    }


def picture(multiplier):
    """uint8 (SIDE / 8, SIDE / 8, 4): relative_errors of a multiplier; clear where they are 0, blue
    where a product is too small, orange where it is too large, full at the largest.
    """
    errors = relative_errors(multipliers.find(multiplier))[::8, ::8, None]
    strength = 255 * np.abs(errors) / np.abs(errors).max()
    return np.concatenate([np.where(errors < 0, BLUE, ORANGE), strength], axis=2).astype(np.uint8)


def relative_errors(multiplier):
    """float64 (SIDE, SIDE): (approximate - exact) / exact of the products of SIDE operands in
    rising order; rows: first operand, columns: second.

    The operands lie in [1, 2) and have exponent 0; other exponents give the same errors, except for
    the special cases of multipliers.py. Operands of a multiplier of integers are those from 1 to
    the largest.
    """
    operands = (1 + (np.arange(SIDE) + 0.5) / SIDE).astype(np.float32)
    if isinstance(multiplier, multipliers.Integers):
        operands = np.rint(np.linspace(1, multiplier.most, SIDE)).astype(np.float32)
    exact = np.multiply.outer(operands.astype(np.float64), operands.astype(np.float64))
    return multipliers.multiply(operands[:, None], operands[None, :], multiplier) / exact - 1
