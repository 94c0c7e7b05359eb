"""The polarities of maps, averaged over a grid, against their definition in float64."""

import numpy as np
import pytest

import references
from ladder.arithmetic.arrays import NumPy
from ladder.features import features, polarities


def defined(values, mean, scale, threshold, grid):
    both = references.soft_threshold((values.astype(np.float64) - mean) * scale, threshold)
    return features.average_pool(both, grid).transpose(0, 3, 1, 2).reshape(len(values), -1)


@pytest.mark.parametrize(
    "shape, grid", [((1, 1, 1, 1), 1), ((5, 6, 9, 7), 3), ((19, 8, 4, 33), 2)], ids=str
)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_both_polarities_are_averaged_over_each_cell(shape, grid, threads):
    rng = np.random.default_rng(0)
    values, (mean, scale) = (
        rng.normal(size=shape).astype(np.float32),
        rng.normal(size=(2, shape[3])).astype(np.float32),
    )
    found = polarities.average(values, mean, scale, 0.25, grid, NumPy(threads))
    assert found.dtype == np.float32
    assert np.allclose(found, defined(values, mean, scale, 0.25, grid), rtol=1e-5, atol=1e-6)
    assert np.array_equal(found, polarities.average(values, mean, scale, 0.25, grid, NumPy()))


def test_a_grid_that_does_not_divide_the_maps_is_named():
    with pytest.raises(ValueError, match="6x8 activations cannot be pooled to 4x4"):
        polarities.average(
            np.zeros((1, 6, 8, 2), np.float32),
            np.zeros(2, np.float32),
            np.ones(2, np.float32),
            0.5,
            4,
            NumPy(),
        )


def test_nan_is_not_lost():
    values = np.zeros((1, 4, 4, 2), np.float32)
    values[0, 3, 0, 1] = np.nan
    found = polarities.average(
        values, np.zeros(2, np.float32), np.ones(2, np.float32), 0.5, 2, NumPy()
    ).reshape(4, 2, 2)
    assert np.argwhere(np.isnan(found)).tolist() == [[1, 1, 0], [3, 1, 0]]
