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
    tasks = [(count, draw) for count in counts for draw in range(DRAWS)]

    def score(task):
        count, draw = task
        rows = orders[draw][:count]
        known = np.asarray(features[np.sort(rows)], np.float32)
        return Score(count, draw, *_accuracy(known, labels[np.sort(rows)], classes, test, odd))

    return matmul.for_each(score, tasks, threads, "few labels", "fit")


def _accuracy(known, labels, classes, test, odd):
    """(accuracy on the test rows, chosen width, chosen strength) of the classifier that is fitted
    to the known rows.
    """
    center = known.mean(axis=0, dtype=np.float64).astype(np.float32)
    # the sign of these columns means nothing, and so does their mean
    center[len(center) - odd :] = 0
    scaled = Kernel("rbf", resolve_gamma("scale", known), odd=odd)
    known = known - center
    mean = 2 / classes - 1
    targets = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0) - mean
    norms = squared_norms(known)
    width, strength, coefficients = _fit(known, norms, targets, labels, scaled)
    kernel = dataclasses.replace(scaled, gamma=width * scaled.gamma)
    features, expected = test
    right = 0
    for start in range(0, len(features), TESTED):
        rows = np.asarray(features[start : start + TESTED], np.float32) - center
        scores = (
            kernel.block(rows, squared_norms(rows), known, norms).astype(np.float64) @ coefficients
        )
        right += int((scores.argmax(axis=1) == expected[start : start + TESTED]).sum())
    return right / len(features), width, strength


def _fit(known, norms, targets, labels, scaled):
    """(width, strength, coefficients (n, k) float64) with the least log loss of rows that are left
    out, the first of equals.
    """
    fits, between = [], distances(known, norms, known, norms, scaled.odd)
    for width in WIDTHS:
        kernel = dataclasses.replace(scaled, gamma=width * scaled.gamma)
        values = np.tril(kernel.of_distances(between)).astype(np.float64)
        np.fill_diagonal(values, kernel.own(known))
        for strength in STRENGTHS:
            coefficients, diagonal = _solve(values, strength, targets)
            if len(labels) == targets.shape[1]:
                return width, strength, coefficients
            scores = targets - coefficients / diagonal[:, None]
            loss = -metrics.log_softmax(SHARPNESS * scores)[np.arange(len(labels)), labels].mean()
            fits.append((float(loss), len(fits), width, strength, coefficients))
    return min(fits)[2:]


def _solve(values, strength, targets):
    """(G^-1 targets (n, k), the diagonal (n,) of G^-1) of the positive definite G = values +
    strength I = L L', float64; values: the lower half, zeros above.
    """
    lower = values.copy()
    lower.flat[:: len(lower) + 1] += strength
    lapack.inverse_of_factor(lower)
    # lower is L^-1, and G^-1 is L^-T L^-1: an element of its diagonal is the squared norm of a
    # column of L^-1.
    return lower.T @ (lower @ targets), np.einsum("ij,ij->j", lower, lower)
