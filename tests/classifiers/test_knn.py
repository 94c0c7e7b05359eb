"""Nearest neighbours against scikit-learn's in float64."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import numpy_cupy
from ladder.arithmetic import arrays
from ladder.classifiers import knn
from ladder.errors import RunFailed, UserError

RNG = np.random.default_rng(0)
LABELS = RNG.choice([2, 3, 7], 600).astype(np.uint8)
TRAIN = (RNG.normal(size=(600, 20)) + LABELS[:, None] * 0.3 + 5).astype(np.float32)
ROWS = (RNG.normal(size=(150, 20)) + RNG.choice([2, 3, 7], 150)[:, None] * 0.3 + 5).astype(
    np.float32
)


@pytest.mark.parametrize("k", [1, 4, 15])
def test_it_matches_scikit_learn(k):
    reference = KNeighborsClassifier(k, metric="cosine", algorithm="brute").fit(
        TRAIN.astype(np.float64), LABELS
    )
    found = knn.predict(TRAIN, LABELS, ROWS, k)
    assert found.dtype == LABELS.dtype and len(set(found)) == 3
    assert np.array_equal(found, reference.predict(ROWS.astype(np.float64)))


def test_all_training_rows_may_be_neighbours():
    assert set(knn.predict(TRAIN, LABELS, ROWS, len(TRAIN))) == {np.bincount(LABELS).argmax()}


def test_ties_go_to_the_lower_class():
    train = np.array([[1, 0], [0, 1]], np.float32)
    assert knn.predict(train, np.array([9, 4]), np.array([[1, 0.1]], np.float32), 2).tolist() == [4]


def test_neither_blocks_nor_threads_change_the_result(monkeypatch):
    whole = knn.predict(TRAIN, LABELS, ROWS, 5)
    monkeypatch.setattr(arrays.NumPy, "rows", 32)
    for threads in (1, 3):
        assert np.array_equal(whole, knn.predict(TRAIN, LABELS, ROWS, 5, arrays.NumPy(threads)))


def test_a_row_of_zeros_has_the_cosine_zero_and_neighbours_by_it():
    train, labels = np.array([[0, 0], [-1, 0]], np.float32), np.array([4, 9])
    assert knn.predict(train, labels, np.array([[1, 0]], np.float32), 1).tolist() == [4], (
        "a cosine of 0 above -1"
    )


def test_errors_are_one_line():
    with pytest.raises(
        UserError, match="knn_k is 700, but there are 600 training images; at most 600"
    ):
        knn.predict(TRAIN, LABELS, ROWS, 700)
    with pytest.raises(RunFailed, match="lower learning_rate"):
        knn.predict(
            TRAIN,
            LABELS,
            np.where(np.arange(2)[:, None] == 1, np.float32(np.nan), ROWS[:2]),
            3,
        )


# ---- on a GPU


@pytest.mark.parametrize("k", [1, 4, 15, 150, 600])
@pytest.mark.parametrize("side", [4096, 64])
def test_a_gpu_gives_the_classes_of_the_cpu(monkeypatch, k, side):
    gpu = numpy_cupy.install(monkeypatch)
    monkeypatch.setattr(arrays.CuPy, "rows", side)
    found = knn.predict(TRAIN, LABELS, ROWS, k, arrays.CuPy())
    assert (
        np.array_equal(found, knn.predict(TRAIN, LABELS, ROWS, k)) and found.dtype == LABELS.dtype
    )
    assert gpu.moved["there"] > 2


def test_known_rows_that_do_not_fit_are_placed_part_by_part(monkeypatch):
    gpu = numpy_cupy.install(monkeypatch, memory=1_200_000)
    wide = np.repeat(TRAIN, 30, axis=1)
    assert np.array_equal(
        knn.predict(wide, LABELS, wide[:150], 5, arrays.CuPy()),
        knn.predict(wide, LABELS, wide[:150], 5),
    )
    assert wide.nbytes > gpu.most and gpu.most < gpu.total


def at_angles(*degrees):
    """Rows of length 1 at these angles."""
    turned = np.radians(degrees)
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_the_neighbours_of_shifted_copies_vote_too():
    train, labels = at_angles(0, 1, 2, 80, 81, 82), np.array([3, 3, 5, 5, 5, 5])
    rows, shifted = at_angles(0, 0), [at_angles(0, 81), at_angles(2, 81)]
    assert knn.predict(train, labels, rows, 3).tolist() == [3, 3]
    assert knn.predict(train, labels, rows, 3, shifted=shifted).tolist() == [3, 5]
