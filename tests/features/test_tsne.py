"""t-SNE: similarities by their definition, the gradient by differences, and an end about as good as
scikit-learn's.
"""

import numpy as np
import pytest
from sklearn.manifold import TSNE

from ladder.features import tsne
from ladder.machine import runtime


def points(count, width=10):
    """Rows (count, width) in three groups, of which the first columns vary most."""
    rng = np.random.default_rng(0)
    scales = np.linspace(3, 1, width)
    groups = 4 * rng.normal(size=(3, width))[np.arange(count) % 3]
    return (scales * (rng.normal(size=(count, width)) + groups)).astype(np.float32)


def divergence(similar, places):
    """sum p log(p / q), float64."""
    p, y = similar.astype(np.float64), places.astype(np.float64)
    close = 1 / (1 + np.square(y[:, None] - y).sum(axis=2))
    np.fill_diagonal(close, 0)
    q = close / close.sum()
    pairs = ~np.eye(len(y), dtype=bool)
    return float((p[pairs] * np.log(p[pairs] / q[pairs])).sum())


@pytest.mark.parametrize("perplexity", [3, 20])
def test_each_point_has_neighbours_of_the_perplexity(perplexity):
    rows = points(60).astype(np.float64)
    similar = tsne.similarities(rows.astype(np.float32), perplexity)
    assert np.array_equal(similar, similar.T) and abs(similar.sum() - 1) < 1e-6
    apart = np.square(rows[:, None] - rows).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    expected = np.zeros((60, 60))
    for row, distances in enumerate(apart):
        low, high = 1e-9, 1e3
        for _ in range(200):
            width = (low * high) ** 0.5
            shares = np.exp(-width * (distances - distances.min()))
            shares /= shares.sum()
            entropy = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
            low, high = (width, high) if entropy > np.log(perplexity) else (low, width)
        expected[row] = shares
    expected = (expected + expected.T) / 120
    assert np.allclose(similar, expected, rtol=1e-3, atol=2 * tsne.LEAST)


@pytest.mark.parametrize("count", [30, tsne.BLOCK + 3])
def test_the_gradient_is_that_of_the_divergence(count):
    similar = tsne.similarities(points(count), 5)
    places = np.random.default_rng(1).normal(size=(count, 2)).astype(np.float32)
    found = tsne.gradient(similar, places)
    for row, column in ((0, 0), (7, 1), (count - 1, 0)):
        step = np.zeros((count, 2))
        step[row, column] = 1e-5
        upper, lower = (divergence(similar, places + sign * step) for sign in (1, -1))
        assert found[row, column] == pytest.approx((upper - lower) / 2e-5, rel=1e-3, abs=1e-6)
    twice = tsne.gradient(2 * similar, places)
    assert np.allclose(tsne.gradient(similar, places, 2), twice, rtol=1e-5, atol=1e-8)


def test_it_ends_about_where_scikit_learn_does():
    rows = points(200)
    similar, start = tsne.similarities(rows, 15), 1e-4 * rows[:, :2] / rows[:, 0].std()
    with runtime.thread_pools().limit(limits=1):  # its loops wait by spinning
        other = TSNE(perplexity=15, init=start).fit_transform(rows)
    # by four seeds 0.95 to 1.09 times
    assert divergence(similar, tsne.embed(rows, 15)) < 1.15 * divergence(similar, other)


def test_many_equal_points_have_places():
    rows = np.concatenate([np.zeros((40, 4)), np.eye(4)]).astype(np.float32)
    assert np.isfinite(tsne.embed(rows - rows.mean(axis=0), 10)).all()
