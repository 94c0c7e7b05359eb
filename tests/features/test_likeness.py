"""What features without labels say of pictures."""

import numpy as np
import pytest

from ladder.errors import RunFailed
from ladder.features import likeness

ROWS = np.random.default_rng(2).normal(1, 1, (50, 7)).astype(np.float32)


def test_neighbours_are_those_of_the_cosines_around_the_mean_in_float64(monkeypatch):
    monkeypatch.setattr(likeness, "BLOCK", 16)
    vectors = likeness.Directions(ROWS, likeness.mean(ROWS))
    centred = ROWS.astype(np.float64) - ROWS.astype(np.float64).mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    wanted = np.argsort(-cosines, axis=1)[:, :10]
    places, values = likeness.nearest(vectors, vectors[:], 10, 2, np.arange(50))
    assert np.array_equal(places, wanted)
    assert np.allclose(values, np.take_along_axis(cosines, wanted, axis=1), atol=1e-6)
    alone, same = likeness.nearest(vectors, vectors[:], 10, 1, np.arange(50))
    assert np.array_equal(alone, places) and np.array_equal(same, values)


def test_of_equal_ones_the_first_is_first_and_one_that_is_the_mean_has_no_direction():
    rows = np.float32([[1, 0], [1, 0], [-1, 0], [-1, 0], [0, 0]])
    vectors = likeness.Directions(rows, likeness.mean(rows))
    places, values = likeness.nearest(vectors, vectors[:], 2, 1, np.arange(5))
    assert places.tolist() == [[1, 4], [0, 4], [3, 4], [2, 4], [0, 1]]
    assert values[4].tolist() == [0, 0]


def test_stacked_arrays_are_read_as_one():
    stacked = likeness.Stacked(ROWS[:20], ROWS[20:])
    assert len(stacked) == 50
    for part in (slice(15, 25), np.array([40, 3, 20]), slice(None)):
        assert np.array_equal(stacked[part], ROWS[part])


@pytest.mark.parametrize(
    "train, test, wanted, numbers",
    [
        (6, 4, 1, range(10)),
        (40, 10, 2, [*range(8), 40, 41]),
        (4, 30, 2, [*range(4), *range(4, 10)]),
        (40, 20, 12, range(40, 52)),
    ],
)
def test_above_a_number_all_are_compared_with_the_first_and_the_wanted(
    train, test, wanted, numbers
):
    assert likeness.gallery(train, test, wanted, 10).tolist() == list(numbers)


def test_clusters_are_as_many_as_the_rule_says_and_their_members_the_nearest(monkeypatch):
    assert [likeness.clusters(count) for count in (9, 10, 40, 1000, 10**6)] == [0, 2, 2, 10, 20]
    random = np.random.default_rng(3)
    middles = np.float32([[10, 0, 0], [0, 10, 0], [0, 0, 10]])
    rows = np.repeat(middles, [20, 5, 10], axis=0) + random.normal(0, 0.1, (35, 3)).astype("f4")
    vectors = likeness.Directions(rows, likeness.mean(rows))
    centres = likeness.centres(vectors[:], 3, 1)
    assert likeness.clustered(vectors, centres, 2).tolist() == [0] * 20 + [2] * 5 + [1] * 10
    assert np.array_equal(centres, likeness.centres(vectors[:], 3, 1))


def test_features_that_are_not_finite_fail_the_run():
    with pytest.raises(RunFailed, match="diverged"):
        likeness.mean(np.float32([[1, np.nan]]))
