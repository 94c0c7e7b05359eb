"""Relative errors of multipliers compared with their formulas in float64, and their pictures."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ladder.arithmetic import multipliers
from ladder.pages.multiplier_errors import ABOVE, BELOW, BLOCK, SIDE, picture, relative_errors


def operands():
    x = (1 + (np.arange(SIDE) + 0.5) / SIDE).astype(np.float32).astype(np.float64) - 1
    return x[:, None], x[None, :]


def test_mitchells_error_is_that_of_its_formula():
    x, y = operands()
    product = np.where(x + y < 1, 1 + x + y, 2 * (x + y))
    found = relative_errors("mit32")
    assert np.abs(found - (product / ((1 + x) * (1 + y)) - 1)).max() < 2e-7
    assert found.min() == pytest.approx(-1 / 9, abs=1e-5)  # the largest error, at x = y = 1/2


def test_exact_is_off_by_its_rounding_alone():
    assert 0 < np.abs(relative_errors("exact")).max() <= 2**-24


def test_a_cut_product_is_never_too_large_and_a_rounded_one_is_off_by_few_units():
    cut, rounded = relative_errors("acc16"), relative_errors("fp16")
    assert cut.max() <= 0 and cut.min() > -3 * 2**-7
    assert np.abs(rounded).max() <= 3 * 2**-11 and abs(rounded.mean()) < 1e-5


def test_rows_are_the_first_operand():
    # as large as the first operand's half
    table = multipliers.Table("rows", np.array([[0, 0], [0x80, 0x80]], np.uint8))
    found = relative_errors(table)
    assert (found[0, -1], found[-1, 0]) == pytest.approx((-0.5, 0), abs=0.01)


def pixels(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_the_picture_is_blue_below_orange_above_and_has_the_first_operand_upwards():
    errors = np.zeros((SIDE, SIDE))
    errors[:BLOCK, :BLOCK], errors[-BLOCK:, :BLOCK] = -0.1, 0.06
    shown = pixels(picture(errors, 0.1))
    assert shown.shape == (SIDE // BLOCK, SIDE // BLOCK, 4)
    assert tuple(shown[-1, 0]) == (*BELOW, 255) and tuple(shown[0, 0]) == (*ABOVE, 153)
    assert (shown[1:-1, 1:, 3] == 0).all()


def test_a_pixel_is_the_mean_of_its_operands():
    errors = np.zeros((SIDE, SIDE))
    errors[:BLOCK, : BLOCK // 2] = 0.08
    assert pixels(picture(errors, 0.1))[-1, 0, 3] == 102


def test_operands_of_integers_are_those_from_one_to_the_largest():
    sizes = np.arange(256)
    found = relative_errors(
        multipliers.Integers("half", (np.outer(sizes, sizes) // 2).astype(np.uint16))
    )
    assert (found[0, 0], found[0, -1], found[-1, -1]) == pytest.approx(
        (-1, 127 / 255 - 1, 32512 / 65025 - 1)
    )
