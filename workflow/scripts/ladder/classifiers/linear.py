"""A linear classifier: ridge regression (least squares with an L2 penalty) on the classes, solved in closed form.

With X (N, D) the training rows minus their mean and Y (N, k), +1 for a row's class and -1 otherwise, minus its mean, the
weights are W = (X'X + strength s I)^-1 X'Y = X'(XX' + strength s I)^-1 Y; the smaller system is solved. s = |X|^2 / D, the mean
eigenvalue of X'X, makes the strength independent of the scale of the features. The strength is chosen from STRENGTHS by the
accuracy on a validation set of its own, a tenth of the training rows drawn by the seed; ties go to the larger strength.
"""

import dataclasses

import numpy as np
import scipy.linalg

from ladder.arithmetic import matmul, randomness
from ladder.classifiers import decisions
from ladder.errors import NOT_FINITE, RunFailed, UserError
from ladder.machine import runtime
from ladder.progress import bar

STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)
VALIDATION_PART = 10   # one training row in VALIDATION_PART is in the validation set
ROWS = 4096      # rows per block


@dataclasses.dataclass(frozen=True)
class Model:
    """classes (k,): labels, ascending; weights (D, k) and intercept (k,) float32; strength: the one chosen.

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


def fit(features, labels, seed, threads=1):
    """The Model of features (N, D) float32, which may be memory-mapped, and labels (N,) integer.

    Bit-identical for any number of threads. Raises UserError for fewer than two classes or fewer than 20 rows, RunFailed for
    features that are not finite.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2 or len(labels) < 2 * VALIDATION_PART:
        raise UserError(f"a linear classifier needs two classes and {2 * VALIDATION_PART} training images, not {len(classes)} "
                        f"and {len(labels)}; raise train_limit")
    center = np.mean(features, axis=0, dtype=np.float64)
    if not np.isfinite(center).all():
        raise RunFailed(NOT_FINITE.format(""))
    targets = np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)
    system = (_Primal if features.shape[1] <= len(features) else _Dual)(features, center.astype(np.float32), targets, threads)
    drawn = randomness.generator(seed, randomness.CLASSIFIER_VALIDATION, 0).permutation(len(labels))
    validation, rest = np.sort(drawn[:len(drawn) // VALIDATION_PART]), np.sort(drawn[len(drawn) // VALIDATION_PART:])
    with runtime.one_blas_thread():   # LAPACK's rounding depends on its threads
        system.leave_out(validation, rest)
        accuracies = {strength: float(np.mean(system.scores(validation, strength).argmax(axis=1) == codes[validation]))
                 for strength in bar(STRENGTHS, "linear", "strength")}
        strength = max(accuracies, key=accuracies.get)   # the first maximum, which has the largest strength
        weights = system.weights(strength)
    intercept = targets.mean(axis=0) - center @ weights
    return Model(classes, weights.astype(np.float32), intercept.astype(np.float32), strength, accuracies)


def predict(model, rows, threads=1, shifted=()):
    """The predicted labels (M,), dtype of model.classes, of rows (M, D) float32, which may be memory-mapped.

    shifted: the features of shifted copies of the same images, each as `rows`: scores are means over `rows` and these.
    """
    def block(start):
        scores = [np.asarray(features[start:start + ROWS]) @ model.weights + model.intercept for features in (rows, *shifted)]
        return model.classes[decisions.mean(scores).argmax(axis=1)]

    return np.concatenate(matmul.for_each(block, range(0, len(rows), ROWS), threads))


class _Primal:
    """For D <= N: sums of x x' and x y' over all rows, and over the rows outside the validation set."""

    def __init__(self, features, center, targets, threads):
        self._features, self._center, self._targets, self._threads = features, center, targets, threads

    def leave_out(self, validation, rest):
        self._validation, self._rest = self._sums(validation, "validation rows"), self._sums(rest, "other rows")

    def scores(self, rows, strength):
        weights, mean_x, mean_y = _solve(self._rest, strength)
        return np.concatenate([(self._centred(block) - mean_x) @ weights + mean_y for block in _blocks(rows)])

    def weights(self, strength):
        return _solve([left_out + rest for left_out, rest in zip(self._validation, self._rest, strict=True)], strength)[0]

    def _sums(self, rows, label):
        """[count, sum of x (D,), sum of y (k,), upper triangle of the sum of x x' (D, D), sum of x y' (D, k)], float64."""
        width, classes = self._features.shape[1], self._targets.shape[1]
        sums = [0, np.zeros(width), np.zeros(classes), np.zeros((width, width), order="F"), np.zeros((width, classes))]
        for block in bar(list(_blocks(rows)), f"linear, {label}", "block"):
            x, y = self._centred(block), self._targets[block]
            for total, part in zip(sums[1:], (x.sum(axis=0, dtype=np.float64), y.sum(axis=0), matmul.gram(x, self._threads),
                                            x.T @ y.astype(np.float32)), strict=True):
                total += part
            sums[0] += len(block)
        return sums

    def _centred(self, rows):
        return self._features[rows] - self._center


def _solve(sums, strength):
    """(weights (D, k), mean of x, mean of y) from the sums of _Primal."""
    count, x, y, squares, with_y = sums
    squares = squares - np.outer(x, x) / count
    squares[np.diag_indices(len(x))] += _penalty(np.trace(squares), len(x), strength)
    weights = scipy.linalg.solve(squares, with_y - np.outer(x, y) / count, lower=False, assume_a="pos", overwrite_a=True,
                                 check_finite=False)
    return weights, x / count, y / count


class _Dual:
    """For D > N: the dot products of all pairs of rows."""

    def __init__(self, features, center, targets, threads):
        self._x, self._targets = features - center, targets
        upper = np.triu(matmul.gram(self._x.T, threads)).astype(np.float64)
        self._products = upper + np.triu(upper, 1).T

    def leave_out(self, validation, rest):
        self._rest = rest

    def scores(self, rows, strength):
        within, across = (self._products[np.ix_(selected, self._rest)] for selected in (self._rest, rows))
        # Subtract the mean of the rest from both factors of every dot product.
        means = within.mean(axis=0)
        across = across - across.mean(axis=1, keepdims=True) - means + means.mean()
        mean_y = self._targets[self._rest].mean(axis=0)
        within = within - means - means[:, None] + means.mean()
        return across @ self._coefficients(within, self._targets[self._rest] - mean_y, strength) + mean_y

    def weights(self, strength):
        targets = self._targets - self._targets.mean(axis=0)
        return self._x.T @ self._coefficients(self._products.copy(), targets, strength).astype(np.float32)

    def _coefficients(self, within, targets, strength):
        """(XX' + penalty)^-1 Y; within: XX', which is overwritten; targets: Y."""
        within[np.diag_indices(len(within))] += _penalty(np.trace(within), self._x.shape[1], strength)
        return scipy.linalg.solve(within, targets, assume_a="pos", overwrite_a=True, check_finite=False)


def _penalty(squares, width, strength):
    """strength x |X|^2 / D; 1 if all features are constant."""
    return strength * squares / width or 1.0


def _blocks(rows):
    return (rows[start:start + ROWS] for start in range(0, len(rows), ROWS))
