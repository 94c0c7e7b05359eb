"""The embedding of the features: neighbours stay neighbours, and results are reproducible."""

import numpy as np

from ladder.features import map as feature_map

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(3), 30)
VECTORS = (RNG.normal(size=(90, 200)) + 3 * RNG.normal(size=(3, 200))[GROUPS]).astype(np.float32)


def test_similar_rows_are_close_to_each_other():
    places = feature_map.layout(VECTORS, seed=1)
    assert places.shape == (90, 2) and places.min() == 0 and places.max() == 1
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (GROUPS[apart.argmin(axis=1)] == GROUPS).all()


def test_the_same_features_and_seed_give_the_same_bits():
    assert feature_map.layout(VECTORS, 1).tobytes() == feature_map.layout(VECTORS, 1).tobytes()


def test_a_seeded_sample_is_embedded_and_too_few_rows_are_not():
    assert len(feature_map.rows(5000, 1)) == feature_map.ROWS
    assert np.array_equal(feature_map.rows(20, 1), np.arange(20))
    assert len(feature_map.rows(9, 1)) == 0


def test_equal_rows_have_coordinates():
    assert np.isfinite(feature_map.layout(np.ones((20, 5), np.float32), 1)).all()


def test_fewer_features_than_components_are_embedded():
    assert feature_map.layout(VECTORS[:12, :3], 1).shape == (12, 2)
