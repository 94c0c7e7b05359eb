"""Kernel ridge against scikit-learn's in float64; what it and logistic regression refuse."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import log_loss
from sklearn.svm import SVC

import numpy_cupy
from ladder.arithmetic import arrays, randomness
from ladder.classifiers import linear
from ladder.classifiers import ridge as kernel_ridge
from ladder.classifiers.kernel_functions import Kernel, squared_norms
from ladder.errors import RunFailed, UserError
from ladder.store import artifacts

CLASSES = np.array([2, 3, 7], np.uint8)


def problem(count, width=12):
    """(features, labels, features of others): classes that no plane parts, means far from zero."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 3, count + 150)
    rows = random.normal(size=(count + 150, width)) * (0.5 + codes[:, None]) + 4
    return rows[:count].astype(np.float32), CLASSES[codes[:count]], rows[count:].astype(np.float32)


def reference(features, labels, others, width, strength):
    """float64 scores of the others."""
    features = features.astype(np.float64)
    targets = np.where(labels[:, None] == CLASSES, 1.0, -1.0)
    gamma = width / (features.shape[1] * features.var())
    fitted = KernelRidge(alpha=strength, kernel="rbf", gamma=gamma).fit(
        features, targets - targets.mean(axis=0)
    )
    return fitted.predict(others.astype(np.float64)) + targets.mean(axis=0)


@pytest.mark.parametrize("count", [20, 300, 517])
def test_it_matches_scikit_learn_at_the_chosen_hyperparameters(count, monkeypatch):
    monkeypatch.setattr(arrays.NumPy, "side", 64)
    features, labels, others = problem(count)
    model = kernel_ridge.fit(features, labels, seed=3)
    assert model.validation.keys() == set(
        itertools.product(kernel_ridge.WIDTHS, kernel_ridge.STRENGTHS)
    )
    assert model.validation[model.width, model.strength] == min(model.validation.values())
    scores = reference(features, labels, others, model.width, model.strength)
    found = kernel_ridge.predict(model, others)
    assert found.dtype == np.uint8 and np.array_equal(found, CLASSES[scores.argmax(axis=1)])
    np.testing.assert_allclose(kernel_ridge.classify(model, others)[2], scores, atol=1e-3)


@pytest.mark.parametrize("strength", kernel_ridge.STRENGTHS)
@pytest.mark.parametrize("tile", [7, 64, 1024])
def test_the_coefficients_are_those_of_float64(tile, strength, monkeypatch):
    monkeypatch.setattr(arrays.NumPy, "side", tile)
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 9)).astype(np.float32)
    targets = random.normal(size=(200, 4))
    apart = np.square(rows[:, None].astype(np.float64) - rows).sum(axis=2)
    exact = np.linalg.solve(np.exp(-0.1 * apart) + strength * np.eye(200), targets)
    found = kernel_ridge._solve(rows, targets, Kernel("rbf", 0.1), strength, arrays.NumPy(2))
    assert np.abs(found - exact).max() < 1e-3 * np.abs(exact).max()


def symmetric(rows, others, gamma, odd):
    """The kernel with an odd part by definition, float64."""
    rows, others, sign = rows.astype(np.float64), others.astype(np.float64), np.ones(rows.shape[1])
    sign[len(sign) - odd :] = -1
    return (
        sum(
            np.exp(-gamma * np.square(rows[:, None] * one - others).sum(axis=2))
            for one in (1, sign)
        )
        / 2
    )


@pytest.mark.parametrize("tile", [64, 1024])
def test_an_odd_part_is_compared_with_either_sign(tile, monkeypatch):
    monkeypatch.setattr(arrays.NumPy, "side", tile)
    features, labels, others = problem(200)
    features[:, -5:] -= 4
    others[:, -5:] -= 4
    model = kernel_ridge.fit(features, labels, 3, odd=5)
    gamma = model.width / (features.shape[1] * features.astype(np.float64).var())
    targets = np.where(labels[:, None] == CLASSES, 1.0, -1.0)
    center = np.where(np.arange(12) < 7, features.mean(axis=0, dtype=np.float64), 0)
    rows, others = features - center, others - center
    exact = np.linalg.solve(
        symmetric(rows, rows, gamma, 5) + model.strength * np.eye(200),
        targets - targets.mean(axis=0),
    )
    wanted = symmetric(others, rows, gamma, 5) @ exact + targets.mean(axis=0)
    sign = np.where(np.arange(12) < 7, 1, -1)
    for some in (others, others * sign):
        scores = kernel_ridge.scores(model, (some + center).astype(np.float32))
        assert np.abs(scores - wanted).max() < 2e-3
    alike = kernel_ridge.scores(
        kernel_ridge.fit(features, labels, 3), (others + center).astype(np.float32)
    )
    assert np.abs(alike - wanted).max() > 0.05


@pytest.mark.parametrize("odd", [0, 4])
def test_a_row_is_compared_with_itself_as_with_an_equal_one(odd):
    rows = problem(20)[0] - 4
    kernel, norms = Kernel("rbf", 0.05, odd=odd), squared_norms(rows)
    found = kernel.own(rows)
    assert np.allclose(found, np.diag(kernel.block(rows, norms, rows, norms)), atol=1e-5)
    assert (found == 1).all() if not odd else found.min() < 0.7


def test_the_hyperparameters_are_chosen_on_a_validation_set(monkeypatch):
    monkeypatch.setattr(kernel_ridge, "TRIED", 500)
    features, labels, _ = problem(1000)
    # random labels: no setting does better than equal probabilities
    noise = np.random.default_rng(1).permutation(labels)
    assert min(kernel_ridge.fit(features, noise, 1).validation.values()) > math.log(3)
    assert min(kernel_ridge.fit(features, labels, 1).validation.values()) < 0.7 * math.log(3)


@pytest.mark.parametrize("width, strength, odd", [(0.25, 0.1, 0), (1.0, 0.01, 5)])
def test_the_validation_is_the_log_loss_of_rows_that_were_not_fitted(
    width, strength, odd, monkeypatch
):
    monkeypatch.setattr(kernel_ridge, "TRIED", 100)
    features, labels, _ = problem(400)
    features[:, 12 - odd :] -= 4  # an odd part has no mean
    drawn = randomness.generator(7, randomness.CLASSIFIER_VALIDATION, 0).permutation(400)
    validation, fitted = drawn[:100], drawn[100:200]
    gamma = width / (features.shape[1] * features.astype(np.float64).var())  # of all rows
    targets = np.where(labels[fitted, None] == CLASSES, 1.0, -1.0)
    within, across = (
        symmetric(features[some], features[fitted], gamma, odd) for some in (fitted, validation)
    )
    exact = KernelRidge(alpha=strength, kernel="precomputed").fit(
        within, targets - targets.mean(axis=0)
    )
    scores = exact.predict(across) + targets.mean(axis=0)
    expected = log_loss(
        labels[validation], softmax(kernel_ridge.SHARPNESS * scores, axis=1), labels=CLASSES
    )
    assert kernel_ridge.fit(features, labels, 7, odd=odd).validation[
        width, strength
    ] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "count, threads, needed",
    [
        (50000, 2, 2 * 50000**2),
        (20000, 2, 16 * 10000**2),
        (20000, 16, 24 * 10000**2),
        (1000, 1, 12 * 500**2),
    ],
)
def test_choosing_may_take_more_memory_than_fitting(count, threads, needed):
    assert kernel_ridge.needed_bytes(count, threads) == needed


def test_the_width_is_independent_of_the_scale_of_the_features():
    features, labels, others = problem(300)
    one, other = kernel_ridge.fit(features, labels, 1), kernel_ridge.fit(64 * features, labels, 1)
    assert (one.width, one.strength) == (other.width, other.strength)
    assert np.array_equal(
        kernel_ridge.predict(one, others), kernel_ridge.predict(other, 64 * others)
    )


@pytest.mark.parametrize("standardised", [False, True])
def test_the_width_is_a_share_of_scikit_learns_gamma_scale(standardised):
    """Columns of different means, which centred rows do not show."""
    features, labels, _ = problem(300)
    features += 3 * np.arange(features.shape[1], dtype=np.float32)
    if standardised:
        features = (features - features.mean(axis=0)) / features.std(axis=0)
    model = kernel_ridge.fit(features, labels, 1)
    gamma = SVC(gamma="scale").fit(features.astype(np.float64), labels)._gamma
    assert model.kernel.gamma == pytest.approx(model.width * gamma, rel=1e-5)


def test_constant_features_have_no_effect():
    _, labels, _ = problem(100)
    nothing = kernel_ridge.fit(np.ones((100, 5), np.float32), labels, 1)
    assert set(kernel_ridge.predict(nothing, np.ones((3, 5), np.float32))) <= set(CLASSES)


BOTH = pytest.mark.parametrize("classifier", [linear, kernel_ridge])


@BOTH
@pytest.mark.parametrize("rows", [0, 10, 19])
def test_too_few_rows_are_one_line(classifier, rows):
    features, labels, _ = problem(300)
    with pytest.raises(UserError, match="raise train_limit|leave ridge out"):
        classifier.fit(features[:rows], labels[:rows], 1)
    classifier.fit(features[:20], labels[:20], 1)


@BOTH
def test_two_classes_are_enough_and_one_is_not(classifier):
    features, labels, others = problem(100)
    two = labels != CLASSES[2]
    model = classifier.fit(features[two], labels[two], 1)
    assert set(classifier.predict(model, others)) == set(CLASSES[:2])
    with pytest.raises(UserError, match="needs two classes"):
        classifier.fit(features[~two], labels[~two], 1)


@BOTH
def test_features_that_are_not_finite_are_one_line(classifier):
    features, labels, _ = problem(300)
    features[7, 3] = np.inf
    with pytest.raises(RunFailed, match="lower learning_rate"):
        classifier.fit(features, labels, 1)


def test_a_saved_model_scores_as_the_fitted_one_with_the_features_it_was_fitted_to(tmp_path):
    features, labels, others = problem(100)
    model = kernel_ridge.fit(features, labels, seed=3)
    model.save(tmp_path / "model.safetensors")
    # the features are not in it
    assert (tmp_path / "model.safetensors").stat().st_size < features.nbytes
    loaded = kernel_ridge.load(tmp_path / "model.safetensors", features)
    scores = kernel_ridge.scores(loaded, others)
    np.testing.assert_array_equal(scores, kernel_ridge.scores(model, others))
    np.testing.assert_array_equal(
        loaded.classes[scores.argmax(axis=1)], kernel_ridge.predict(model, others)
    )
    expected = reference(features, labels, others, model.width, model.strength)
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_a_saved_model_knows_its_odd_part(tmp_path):
    features, labels, others = problem(100)
    model = kernel_ridge.fit(features, labels, seed=3, odd=5)
    model.save(tmp_path / "model.safetensors")
    loaded = kernel_ridge.load(tmp_path / "model.safetensors", features)
    np.testing.assert_array_equal(
        kernel_ridge.scores(loaded, others), kernel_ridge.scores(model, others)
    )


def test_another_file_is_named(tmp_path):
    artifacts.save_tensors(tmp_path / "other.safetensors", {"classes": CLASSES})
    with pytest.raises(
        UserError,
        match="other.safetensors is not a file of kernel ridge regression: 'center' is missing",
    ):
        kernel_ridge.load(tmp_path / "other.safetensors", problem(20)[0])


# ---- on a GPU


@pytest.mark.parametrize("count, side, rows", [(300, 2048, 4096), (517, 64, 100)])
def test_a_gpu_gives_the_classes_of_the_cpu(monkeypatch, count, side, rows):
    gpu = numpy_cupy.install(monkeypatch)
    monkeypatch.setattr(arrays.CuPy, "side", side)
    monkeypatch.setattr(arrays.CuPy, "rows", rows)
    features, labels, others = problem(count)
    here = kernel_ridge.fit(features, labels, 3)
    there = kernel_ridge.fit(features, labels, 3, arrays.CuPy())
    assert (there.width, there.strength) == (here.width, here.strength)
    assert there.validation == pytest.approx(here.validation, rel=1e-3)
    assert (
        np.abs(there.coefficients - here.coefficients).max()
        < 1e-3 * np.abs(here.coefficients).max()
    )
    found = kernel_ridge.predict(there, others, arrays.CuPy())
    assert np.array_equal(found, kernel_ridge.predict(here, others)) and found.dtype == np.uint8
    assert gpu.used < 10_000  # what is left is given back


def test_rows_that_a_gpu_cannot_keep_give_the_same_coefficients(monkeypatch):
    """Tiles of the factor take 4 (N^2 + N side) / 2 bytes; the rows, which are wide, are uploaded
    part by part.
    """
    features, labels, others = problem(500, width=3000)
    found = []
    for memory in (1 << 30, 6 << 20):
        gpu = numpy_cupy.install(monkeypatch, memory=memory)
        monkeypatch.setattr(arrays.CuPy, "side", 90)  # the last tile is smaller
        rows = features - features.mean(axis=0)
        targets = np.where(labels[:, None] == CLASSES, 1.0, -1.0)
        found.append(kernel_ridge._solve(rows, targets, Kernel("rbf", 1e-4), 0.1, arrays.CuPy()))
        assert gpu.most < memory
    assert gpu.moved["there"] > 20 and rows.nbytes == 6_000_000
    # NumPy multiplies an array by itself in another order
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


def test_predictions_take_no_more_memory_than_is_free(monkeypatch):
    features, labels, others = problem(600, width=200)
    model = kernel_ridge.fit(features, labels, 3)
    for memory in (2_300_000, 700_000):
        gpu = numpy_cupy.install(monkeypatch, memory=memory)
        assert np.array_equal(
            kernel_ridge.predict(model, others, arrays.CuPy()), kernel_ridge.predict(model, others)
        )
        assert gpu.most < memory


def test_scores_are_means_over_the_shifted_copies():
    features, labels, others = problem(300)
    model, shifted = kernel_ridge.fit(features, labels, seed=3), [others[::-1], others + 1]
    each = [kernel_ridge.scores(model, rows) for rows in (others, *shifted)]
    found = kernel_ridge.scores(model, others, shifted=shifted)
    np.testing.assert_allclose(found, sum(each) / 3, atol=1e-6)
    assert np.array_equal(
        kernel_ridge.predict(model, others, shifted=shifted), CLASSES[found.argmax(axis=1)]
    )
    assert not np.array_equal(found.argmax(axis=1), each[0].argmax(axis=1))
