"""Accuracy against the number of labels: kernel ridge regression (ridge.py) on a few training rows
of each class.

A draw is a random order of the rows in which the classes take turns, as long as they have rows; a
count of labels takes the first ones, so that the rows of a smaller count are among those of a
larger one. The kernel's width and the strength of the penalty are chosen by leave-one-out
cross-validation on these rows alone. With G = K + strength I and A = G^-1 (Y - m), a row's scores
without it are

    y_i - A_i / (G^-1)_ii

(R. M. Rifkin and R. A. Lippert, "Notes on Regularized Least Squares", MIT-CSAIL-TR-2007-025), so
that one factorisation serves all rows; m is the mean of balanced classes. What is least is the log
loss, as in ridge.py. One row of each class cannot be left out, because no other would be of its
class: the first width and strength are taken there.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from ladder.arithmetic import lapack, matmul, randomness
from ladder.classifiers import metrics
from ladder.classifiers.kernel_functions import Kernel, distances, resolve_gamma, squared_norms
from ladder.classifiers.ridge import SHARPNESS

DRAWS = 5
WIDTHS, STRENGTHS = (1.0, 0.5, 0.25), (0.1, 0.03, 0.01, 0.3)
TESTED = 1000  # test rows per piece of a prediction


@dataclasses.dataclass(frozen=True)
class Score:
    """The accuracy of one draw of so many labels, and the settings that its rows chose; width,
    strength: as in ridge.py.
    """

    labels: int
    draw: int
    accuracy: float
    width: float
    strength: float


def draws(labels, classes, seed):
    """DRAWS random orders (N,) of the rows of labels (N,), 0 to classes - 1, in which the classes
    take turns.
    """
    orders = []
    for draw in range(DRAWS):
        order = randomness.generator(seed, randomness.LABELLED_ROWS, draw).permutation(len(labels))
        turns = np.empty(len(labels), np.int64)
        for label in range(classes):
            rows = np.flatnonzero(labels[order] == label)
            turns[rows] = np.arange(len(rows))
        orders.append(order[np.lexsort((labels[order], turns))])
    return orders


def curve(train, test, counts, seed, threads, odd=0):
    """The Score of each draw of each count, by count and draw.

    train, test: (features (N, D) float32, which may be memory-mapped, labels (N,) integer from 0);
    counts: of labels, each at least the number of classes; odd: as in ridge.fit. Bit-identical for
    any number of threads.
    """
    features, labels = train
    classes = int(labels.max()) + 1
    orders = draws(labels, classes, seed)

    def measure(draw):
        rows = orders[draw][: max(counts)]
        known = np.asarray(features[rows], np.float32), labels[rows]
        return _accuracies(known, classes, counts, test, odd)

    by_draw = matmul.for_each(measure, range(DRAWS), threads, "few labels", "draw")
    return [
        Score(count, draw, *by_draw[draw][at])
        for at, count in enumerate(counts)
        for draw in range(DRAWS)
    ]


class _Fit(NamedTuple):
    width: float
    strength: float
    kernel: Kernel
    coefficients: np.ndarray  # (n, k) float64


def _accuracies(drawn, classes, counts, test, odd):
    """(accuracy on the test rows, width, strength) for each count: of the classifier that is fitted
    to so many of the drawn rows, the first ones. All counts share the distances.
    """
    (known, labels), (features, expected) = drawn, test
    scaled = [Kernel("rbf", resolve_gamma("scale", known[:count]), odd=odd) for count in counts]
    center = known.mean(axis=0, dtype=np.float64).astype(np.float32)
    # the sign of these columns means nothing, and so does their mean
    center[len(center) - odd :] = 0
    known = known - center
    norms = squared_norms(known)
    between = distances(known, norms, known, norms, odd)
    targets = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0) - (2 / classes - 1)
    fits = [
        _fit(known[:count], [each[:count, :count] for each in between], labels, targets, kernel)
        for count, kernel in zip(counts, scaled, strict=True)
    ]
    right = np.zeros(len(fits))
    for start in range(0, len(features), TESTED):
        block = slice(start, start + TESTED)
        rows = np.asarray(features[block], np.float32) - center
        between = distances(rows, squared_norms(rows), known, norms, odd)
        right += [(_predict(fit, between) == expected[block]).sum() for fit in fits]
    return [
        (float(share), *fit[:2]) for share, fit in zip(right / len(features), fits, strict=True)
    ]


def _predict(fit, between):
    values = fit.kernel.of_distances([each[:, : len(fit.coefficients)] for each in between])
    return (values.astype(np.float64) @ fit.coefficients).argmax(axis=1)


def _fit(known, between, labels, targets, scaled):
    """The _Fit with the least log loss of rows (n, D) that are left out, the first of equals;
    between: their distances; labels, targets: those of the rows, and perhaps of more.
    """
    labels, targets = labels[: len(known)], targets[: len(known)]

    def values(width):
        kernel = dataclasses.replace(scaled, gamma=width * scaled.gamma)
        lower = np.tril(kernel.of_distances(between))
        np.fill_diagonal(lower, kernel.own(known))
        return kernel, lower

    def loss(lower, strength):
        coefficients, diagonal = _solve(lower, strength, targets)
        scores = targets - coefficients / diagonal[:, None]
        return -metrics.log_softmax(SHARPNESS * scores)[np.arange(len(labels)), labels].mean()

    width, strength = WIDTHS[0], STRENGTHS[0]
    if len(labels) > targets.shape[1]:
        # in float32, which takes half of the time and chooses as float64 does
        losses = {}
        for each in WIDTHS:
            _, lower = values(each)
            losses |= {(each, strength): loss(lower, strength) for strength in STRENGTHS}
        width, strength = min(losses, key=losses.get)
    kernel, lower = values(width)
    return _Fit(width, strength, kernel, _solve(lower.astype(np.float64), strength, targets)[0])


def _solve(values, strength, targets):
    """(G^-1 targets (n, k), the diagonal (n,) of G^-1) of the positive definite G = values +
    strength I = L L', float32 or float64; values: the lower half, zeros above.
    """
    lower = values.copy()
    lower.flat[:: len(lower) + 1] += strength
    lapack.inverse_of_factor(lower)
    # lower is L^-1, and G^-1 is L^-T L^-1: an element of its diagonal is the squared norm of a
    # column of L^-1.
    return lower.T @ (lower @ targets.astype(lower.dtype)), np.einsum("ij,ij->j", lower, lower)
