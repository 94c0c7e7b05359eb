"""The polarities of maps, pooled and averaged over a grid, against their definition in float64."""

import numpy as np
import pytest

import references
from ladder.arithmetic.arrays import NumPy
from ladder.features import features, polarities


def defined(values, scaled, threshold, window, grid):
    mean, scale = scaled or (0, 1)
    both = references.soft_threshold((values.astype(np.float64) - mean) * scale, threshold)
    largest = features.max_pool(both, window)
    return features.average_pool(largest, grid).transpose(0, 3, 1, 2).reshape(len(values), -1)


@pytest.mark.parametrize(
    "shape, window, grid",
    [((1, 1, 1, 1), 1, 1), ((5, 6, 9, 7), 1, 3), ((19, 8, 12, 33), 2, 2), ((9, 6, 9, 16), 3, 1)],
    ids=str,
)
@pytest.mark.parametrize("is_scaled", [True, False], ids=["scaled", "as they are"])
@pytest.mark.parametrize("threads", [1, 3])
def test_both_polarities_are_averaged_over_each_cell(shape, window, grid, is_scaled, threads):
    rng = np.random.default_rng(0)
    values = rng.normal(size=shape).astype(np.float32)
    scaled = tuple(rng.normal(size=(2, shape[3])).astype(np.float32)) if is_scaled else None
    found = polarities.average(values, scaled, 0.25, window, grid, NumPy(threads))
    assert found.dtype == np.float32
    wanted = defined(values, scaled, 0.25, window, grid)
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert np.array_equal(found, polarities.average(values, scaled, 0.25, window, grid, NumPy()))


@pytest.mark.parametrize("window, words", [(1, "4x4"), (2, "2x2, in windows of 2x2")])
def test_a_grid_that_does_not_divide_the_maps_is_named(window, words):
    with pytest.raises(ValueError, match=f"6x8 activations cannot be pooled to {words}"):
        maps = np.zeros((1, 6, 8, 2), np.float32)
        polarities.average(maps, None, 0.5, window, 4 // window, NumPy())


@pytest.mark.parametrize("window", [1, 2])
def test_nan_is_not_lost(window):
    values = np.zeros((1, 4, 4, 2), np.float32)
    values[0, 3, 0, 1] = np.nan
    found = polarities.average(values, None, 0.5, window, 2, NumPy()).reshape(4, 2, 2)
    assert np.argwhere(np.isnan(found)).tolist() == [[1, 1, 0], [3, 1, 0]]


def test_moments_are_sums_in_float64():
    rows = np.random.default_rng(0).normal(1000, 1, (500, 3)).astype(np.float32)
    wide = rows.astype(np.float64)
    wanted = [wide.sum(axis=0), np.square(wide).sum(axis=0)]
    assert np.allclose(polarities.moments(rows), wanted, rtol=1e-13)
