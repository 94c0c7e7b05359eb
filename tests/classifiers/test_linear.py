"""Logistic regression against Newton's method in float64."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ladder.arithmetic import randomness
from ladder.classifiers import linear
from ladder.store import artifacts

RNG = np.random.default_rng(0)
CLASSES = np.array([2, 3, 7], np.uint8)


def problem(count, width, noise=2.0):
    """(features, labels, features of others, their labels): classes apart along a few directions,
    means far from zero.
    """
    codes = RNG.integers(0, 3, count + 200)
    rows = RNG.normal(size=(3, width))[codes] + noise * RNG.normal(size=(count + 200, width)) + 3
    rows *= np.linspace(0.1, 2, width)
    return (
        rows[:count].astype(np.float32),
        CLASSES[codes[:count]],
        rows[count:].astype(np.float32),
        CLASSES[codes[count:]],
    )


def by_newton(rows, labels, strength):
    """Of standardised rows."""
    return LogisticRegression(C=1 / (strength * len(rows)), solver="newton-cholesky", tol=1e-8).fit(
        rows, labels
    )


def split(count, seed):
    drawn = randomness.generator(seed, randomness.CLASSIFIER_VALIDATION, 0).permutation(count)
    return drawn[: count // 10], drawn[count // 10 :]


SHAPES = pytest.mark.parametrize(
    "count, width", [(900, 40), (120, 300)], ids=["more rows", "more features"]
)


@SHAPES
def test_it_matches_scikit_learn_at_the_strength_chosen_by_validation(count, width):
    features, labels, others, _ = problem(count, width)
    model = linear.fit(features, labels, seed=3)
    mean, scale = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    rows, (validation, rest) = (features - mean) / scale, split(count, 3)
    for strength, share in model.validation.items():
        reference = by_newton(rows[rest], labels[rest], strength)
        assert share == pytest.approx(
            reference.score(rows[validation], labels[validation]), abs=0.011
        )
    assert model.validation[model.strength] == max(model.validation.values())
    reference = by_newton(rows, labels, model.strength)
    assert np.allclose(
        model.weights.T * scale, reference.coef_, atol=5e-3 * np.abs(reference.coef_).max()
    )
    found = linear.predict(model, others)
    assert (
        found.dtype == np.uint8
        and np.mean(found == reference.predict((others - mean) / scale)) > 0.99
    )


@SHAPES
def test_predictions_do_not_depend_on_threads_or_on_blocks_of_rows(count, width, monkeypatch):
    features, labels, others, _ = problem(count, width)
    model = linear.fit(features, labels, 1)
    whole = linear.predict(model, others)
    monkeypatch.setattr(linear, "ROWS", 64)
    assert np.array_equal(whole, linear.predict(model, others, 2))


def test_a_fit_that_does_not_converge_is_one_line(monkeypatch, caplog):
    monkeypatch.setattr(linear, "ITERATIONS", 3)
    features, labels, others, right = problem(900, 40)
    assert np.mean(linear.predict(linear.fit(features, labels, 1), others) == right) > 0.5
    assert "strength 0.0001 stopped after 3 iterations before it converged" in caplog.text


def test_the_strength_is_independent_of_the_scale_of_the_features():
    features, labels, others, _ = problem(900, 40)
    one, other = linear.fit(features, labels, 1), linear.fit(100 * features, labels, 1)
    assert one.strength == other.strength and np.allclose(
        one.weights, 100 * other.weights, atol=1e-4
    )


def test_constant_features_have_no_effect():
    features, labels, others, right = problem(400, 20)
    features[:, :5] = others[:, :5] = 7
    assert np.mean(linear.predict(linear.fit(features, labels, 1), others) == right) > 0.5
    nothing = linear.fit(np.ones((100, 5), np.float32), labels[:100], 1)
    assert set(linear.predict(nothing, np.ones((3, 5), np.float32))) <= set(CLASSES)
    # of equals the largest
    assert len(set(nothing.validation.values())) == 1 and nothing.strength == max(linear.STRENGTHS)


def test_the_saved_arrays_are_all_that_predictions_need(tmp_path):
    features, labels, others, _ = problem(300, 20)
    model = linear.fit(features, labels, 1)
    artifacts.save_tensors(tmp_path / "linear.safetensors", model.tensors())
    again = linear.LinearModel(
        **artifacts.load_tensors(tmp_path / "linear.safetensors"), strength=0, validation={}
    )
    assert np.array_equal(linear.predict(model, others), linear.predict(again, others))


def test_scores_are_means_over_the_shifted_copies():
    model = linear.LinearModel(
        np.array([3, 5]), np.array([[-1, 1]], np.float32), np.zeros(2, np.float32), 1.0, {}
    )
    rows, *shifted = (
        np.array(values, np.float32)[:, None] for values in ([0.2, 0.2], [0.2, 0.3], [-1, -0.4])
    )
    assert linear.predict(model, rows).tolist() == [5, 5]
    assert linear.predict(model, rows, shifted=shifted).tolist() == [3, 5], (
        "although two of three are 5"
    )
