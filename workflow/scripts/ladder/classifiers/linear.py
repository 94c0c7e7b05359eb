"""A linear classifier: multinomial logistic regression with an L2 penalty, by scikit-learn
(L-BFGS).

Every feature is centred and divided by its standard deviation, so that the penalty does not depend
on the features' scale. The weights minimise the mean cross-entropy of the training rows + strength
/ 2 x the sum of their squares; intercepts are free. The strength is chosen from STRENGTHS by the
accuracy on a validation set of its own, a tenth of the training rows drawn by the seed; ties go to
the larger strength. Each fit begins where the one before ended: a regularisation path with warm
starts.
"""

import dataclasses
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from ladder.arithmetic import matmul, randomness
from ladder.classifiers import decisions
from ladder.errors import NOT_FINITE, RunFailed, UserError
from ladder.features.features import moments
from ladder.machine import runtime
from ladder.progress import bar, log

STRENGTHS = (0.1, 0.01, 0.001, 0.0001)
VALIDATION_PART = 10  # one training row in VALIDATION_PART is in the validation set
ITERATIONS = 1000  # at most, of a fit
ROWS = 4096  # rows per block


@dataclasses.dataclass(frozen=True)
class LinearModel:
    """classes (k,): labels, ascending; weights (D, k) and intercept (k,) float32; strength: the one
    chosen.

    validation: strength -> accuracy on the validation set.
    """

    classes: np.ndarray
    weights: np.ndarray
    intercept: np.ndarray
    strength: float
    validation: dict

    def tensors(self):
        """The arrays as saved: all that predictions need."""
        return {name: getattr(self, name) for name in ("classes", "weights", "intercept")}


def fit(features, labels, seed):
    """The LinearModel of features (N, D) float32, which may be memory-mapped, and labels (N,)
    integer.

    Computes on one thread, so that the bits do not depend on their number. Raises UserError for
    fewer than two classes or fewer than 20 rows, RunFailed for features that are not finite.
    """
    count = len(np.unique(labels))
    if count < 2 or len(labels) < 2 * VALIDATION_PART:
        raise UserError(
            f"logistic regression needs two classes and {2 * VALIDATION_PART} training images, not {count} "
            f"and {len(labels)}; raise train_limit"
        )
    with np.errstate(invalid="ignore"):  # of values that are not finite, which are refused
        mean, scale = moments(features)
    if not np.isfinite(mean).all():
        raise RunFailed(NOT_FINITE.format(""))
    rows = features - mean
    rows *= scale
    drawn = randomness.generator(seed, randomness.CLASSIFIER_VALIDATION, 0).permutation(len(labels))
    validation, counted = drawn[: len(drawn) // VALIDATION_PART], np.ones(len(labels))
    counted[validation] = 0
    solver, accuracies = LogisticRegression(max_iter=ITERATIONS, warm_start=True), {}
    with runtime.one_blas_thread():
        for strength in bar(STRENGTHS, "logistic regression", "strength"):
            _solve(solver, rows, labels, counted, strength)
            accuracies[strength] = float(solver.score(rows[validation], labels[validation]))
        # the first maximum, which has the largest strength
        strength = max(accuracies, key=accuracies.get)
        _solve(solver, rows, labels, np.ones(len(labels)), strength)
    weights, intercept = solver.coef_, solver.intercept_
    if count == 2:  # scikit-learn has the scores of the second class alone
        weights, intercept = (
            np.concatenate([-half, half]) for half in (weights / 2, intercept / 2)
        )
    weights = weights.T * scale[:, None]
    return LinearModel(
        solver.classes_,
        weights.astype(np.float32),
        (intercept - mean @ weights).astype(np.float32),
        strength,
        accuracies,
    )


def _solve(solver, rows, labels, counted, strength):
    """Fit `solver` to the rows, each as often as `counted` (N,) says, from the weights that it
    has.
    """
    solver.C = 1 / (strength * counted.sum())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        solver.fit(rows, labels, counted)
    if caught:
        log.warning(
            "logistic regression of strength %g stopped after %d iterations before it converged",
            strength,
            solver.n_iter_[0],
        )


def predict(model, features, threads=1, shifted=()):
    """The predicted labels (M,), dtype of model.classes, of features (M, D) float32, which may be
    memory-mapped.

    shifted: the features of shifted copies of the same images, each as `features`: scores are means
    over `features` and these.
    """

    def block(start):
        scores = [
            np.asarray(rows[start : start + ROWS]) @ model.weights + model.intercept
            for rows in (features, *shifted)
        ]
        return model.classes[decisions.mean(scores).argmax(axis=1)]

    return np.concatenate(matmul.for_each(block, range(0, len(features), ROWS), threads))
