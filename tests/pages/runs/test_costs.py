"""Relative errors of multipliers compared with their formulas in float64, and published costs."""

import numpy as np
import pytest

from ladder.arithmetic import multipliers
from ladder.pages.runs import costs
from ladder.pages.runs.costs import SIDE, relative_errors


def errors_of(name):
    return relative_errors(multipliers.find(name))


def test_mitchells_error_is_that_of_its_formula():
    x = (1 + (np.arange(SIDE) + 0.5) / SIDE).astype(np.float32).astype(np.float64) - 1
    x, y = x[:, None], x[None, :]
    product = np.where(x + y < 1, 1 + x + y, 2 * (x + y))
    found = errors_of("mit32")
    assert np.abs(found - (product / ((1 + x) * (1 + y)) - 1)).max() < 2e-7
    # the largest error, at x = y = 1/2
    assert costs.errors("mit32")["error_least"] == found.min() == pytest.approx(-1 / 9, abs=1e-5)
    assert costs.errors("mit32")["error_mean"] == found.mean()


def test_exact_is_off_by_its_rounding_alone():
    assert 0 < np.abs(errors_of("exact")).max() <= 2**-24


def test_a_cut_product_is_never_too_large_and_a_rounded_one_is_off_by_few_units():
    cut, rounded = errors_of("acc16"), errors_of("fp16")
    assert cut.max() <= 0 and cut.min() > -3 * 2**-7
    assert np.abs(rounded).max() <= 3 * 2**-11 and abs(rounded.mean()) < 1e-5


def test_rows_are_the_first_operand():
    # as large as the first operand's half
    table = multipliers.Table("rows", np.array([[0, 0], [0x80, 0x80]], np.uint8))
    found = relative_errors(table)
    assert (found[0, -1], found[-1, 0]) == pytest.approx((-0.5, 0), abs=0.01)


def test_operands_of_integers_are_those_from_one_to_the_largest():
    sizes = np.arange(256)
    found = relative_errors(
        multipliers.Integers("half", (np.outer(sizes, sizes) // 2).astype(np.uint16))
    )
    assert (found[0, 0], found[0, -1], found[-1, -1]) == pytest.approx(
        (-1, 127 / 255 - 1, 32512 / 65025 - 1)
    )


def test_a_multiplier_has_the_costs_of_each_source_that_names_it_a_table_by_its_file():
    (published,) = costs.PUBLISHED
    given = {"power in mW": {"am32": 0.3, "mine.npy": 0.2}}
    assert costs.published("exact", given) == {published: 3.7}
    assert costs.published("am32", given) == {"power in mW": 0.3} == costs.published("am32", given)
    assert costs.published("tables/mine.npy", given) == {"power in mW": 0.2}
