"""Means and deviations over seeds compared with their definitions, and intervals with tables of
Student's t.
"""

import math

import numpy as np
import pytest

from ladder.pages.spread import DIFFERENCES, SHARES, Spread, paired, spread


def test_mean_and_sample_deviation():
    values = [0.91, 0.93, 0.9, 0.98]
    found = spread(values)
    assert (found.mean, found.deviation, found.n) == (
        pytest.approx(np.mean(values)),
        pytest.approx(np.std(values, ddof=1)),
        4,
    )


def test_a_single_number_has_no_spread_and_none_has_nothing():
    assert spread([0.5]) == Spread(0.5, None, 1) and spread([0.5]).interval is None
    assert spread([]) is None


# t at 97.5 %, n - 1 degrees
@pytest.mark.parametrize("n, quantile", [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262)])
def test_the_interval_is_students(n, quantile):
    low, high = Spread(0.1, 0.02, n).interval
    assert (low, high) == pytest.approx(
        (0.1 - quantile * 0.02 / math.sqrt(n), 0.1 + quantile * 0.02 / math.sqrt(n)), abs=1e-5
    )


def test_the_interval_of_an_accuracy_ends_where_accuracies_do():
    found = spread([0.8875, 0.9425], SHARES)
    assert found.interval == (pytest.approx(0.915 - 12.706 * 0.0275, abs=1e-5), 1.0)
    assert (
        spread([0.01, 0.03], SHARES).interval[0] == 0
        and spread([0.9, 0.91, 0.92, 0.93], SHARES).interval[1] < 1
    )
    assert paired({1: 0.0, 2: 1.0}, {1: 1.0, 2: 0.0}).interval == (-1.0, 1.0)


def test_pairs_take_out_what_a_seed_does_to_both():
    exact = {1: 0.90, 2: 0.95, 3: 0.85}
    found = paired({seed: value - 0.01 - 0.001 * seed for seed, value in exact.items()}, exact)
    assert (
        found.mean == pytest.approx(-0.012)
        and found.deviation == pytest.approx(0.001)
        and found.interval[1] < 0
    )


def test_only_seeds_of_both_are_paired():
    found = paired({1: 0.5, 2: 0.6, 7: 0.1}, {2: 0.7, 1: 0.7, 9: 0.9})
    assert found == Spread(pytest.approx(-0.15), pytest.approx(0.0707107), 2, DIFFERENCES)
    assert paired({1: 0.5}, {2: 0.5}) is None


def test_equal_differences_have_no_spread_though_their_fractions_round():
    exact = {seed: (970 + seed) / 1000 for seed in range(5)}
    found = paired({seed: (967 + seed) / 1000 for seed in range(5)}, exact)
    assert found.deviation == 0 and found.interval is None and found.mean == -0.003
