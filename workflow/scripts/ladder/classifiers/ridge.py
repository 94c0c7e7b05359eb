"""Kernel ridge regression on the classes with the RBF kernel, solved in closed form.

With rows X (N, D) and Y (N, k), +1 for a row's class and -1 otherwise, minus its mean m, the scores of a row r are
k(r, X) A + m with
    A = (K + strength I)^-1 Y    K_ij = k(x_i, x_j) = exp(-width g |x_i - x_j|^2)    g: the SVM's `svm_gamma: scale`
and its class is the one with the highest score: one-vs-rest, whereas the SVM is one-vs-one. Width and strength are chosen from
WIDTHS and STRENGTHS by the accuracy on a validation set, fitted to a subset of the training rows; both are drawn by the seed.

Only K's lower half is stored, in square tiles, and replaced by its Cholesky factor: 2 N^2 bytes. Each tile is computed by one
thread in a fixed order, so results are bit-identical for any number of threads.
"""

import dataclasses
import pathlib

import numpy as np
import scipy.linalg

from ladder.arithmetic import matmul, randomness
from ladder.classifiers.kernel_functions import Kernel, resolve_gamma, squared_norms
from ladder.errors import NOT_FINITE, RunFailed, UserError
from ladder.progress import bar
from ladder.store import artifacts

WIDTHS = (0.25, 0.5, 1.0)
STRENGTHS = (0.3, 0.1, 0.03, 0.01)
TRIED = 5000   # most rows of the subset, and of the validation set, that choose width and strength
TILE = 1024    # rows and columns per tile


@dataclasses.dataclass(frozen=True)
class Model:
    """center (D,), rows (N, D) minus it, coefficients (N, k) and intercept (k,) float32; kernel: kernel_functions.Kernel.

    classes (k,): labels, ascending; width, strength: the chosen ones; validation: (width, strength) -> accuracy on the
    validation set. A saved model leaves out the rows, which the features have, and what only the report needs of the choice.
    """

    classes: np.ndarray
    center: np.ndarray
    rows: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    kernel: Kernel
    width: float | None = None
    strength: float | None = None
    validation: dict | None = None

    def save(self, path):
        """Write what `load` needs besides the training features as safetensors."""
        artifacts.save_tensors(path, {**{name: getattr(self, name) for name in _SAVED},
                                      "gamma": np.array([self.kernel.gamma], np.float64)})


_SAVED = ("classes", "center", "coefficients", "intercept")


def load(path, features):
    """The Model that Model.save wrote to `path`, with the training features (N, D) float32 that it was fitted to.

    Raises UserError for any other file.
    """
    tensors = artifacts.load_tensors(pathlib.Path(path))
    try:
        found, gamma = {name: tensors[name] for name in _SAVED}, float(tensors["gamma"][0])
    except (KeyError, IndexError) as error:
        raise UserError(f"{path} is not a file of kernel ridge regression: {error} is missing") from error
    return Model(rows=features - found["center"], kernel=Kernel("rbf", gamma), **found)


def fit(features, labels, seed, threads=1):
    """The Model of features (N, D) float32, which may be memory-mapped, and labels (N,) integer.

    Raises UserError for fewer than two classes or fewer than 20 rows, RunFailed for features that are not finite.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2 or len(labels) < 20:
        raise UserError(f"kernel ridge needs two classes and 20 training images, not {len(classes)} and {len(labels)}; "
                        "raise train_limit")
    center = np.mean(features, axis=0, dtype=np.float64).astype(np.float32)
    if not np.isfinite(center).all():
        raise RunFailed(NOT_FINITE.format(""))
    rows = features - center
    gamma = resolve_gamma("scale", features)   # of the rows as they are: minus their mean they lose the columns' differences
    targets = np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)
    validation = _validate(rows, codes, targets, gamma, seed, threads)
    width, strength = max(validation, key=validation.get)
    intercept = targets.mean(axis=0)
    kernel = Kernel("rbf", width * gamma)
    coefficients = _solve(rows, targets - intercept, kernel, strength, threads)
    return Model(classes, center, rows, coefficients, intercept.astype(np.float32), kernel, width, strength, validation)


def predict(model, rows, threads=1):
    """The predicted labels (M,), dtype of model.classes, of rows (M, D) float32, which may be memory-mapped."""
    return model.classes[scores(model, rows, threads).argmax(axis=1)]


def scores(model, rows, threads=1):
    """The scores float32 (M, k) of rows (M, D) float32, which may be memory-mapped: about 1 for a row's class, -1 otherwise."""
    norms = squared_norms(model.rows)

    def block(start):
        some = rows[start:start + TILE] - model.center
        return model.kernel.block(some, squared_norms(some), model.rows, norms) @ model.coefficients + model.intercept

    return np.concatenate(matmul.for_each(block, range(0, len(rows), TILE), threads, "kernel ridge", "block"))


def _validate(rows, codes, targets, gamma, seed, threads):
    """(width, strength) -> accuracy on the validation set, the narrowest kernel and largest strength first."""
    drawn = randomness.generator(seed, randomness.HELD_OUT_ROWS, 0).permutation(len(rows))
    count = min(TRIED, len(rows) // 2)
    held, fitted = np.sort(drawn[:count]), np.sort(drawn[count:2 * count])
    mean = targets[fitted].mean(axis=0)
    wanted, norms = (targets[fitted] - mean).astype(np.float32), squared_norms(rows)

    def shares(width):
        kernel = Kernel("rbf", width * gamma)
        within, across = (kernel.block(rows[some], norms[some], rows[fitted], norms[fitted]) for some in (fitted, held))
        found = {}
        for strength in STRENGTHS:
            within[np.diag_indices(count)] = 1 + strength
            coefficients = scipy.linalg.solve(within, wanted, assume_a="pos", check_finite=False)
            found[width, strength] = float(np.mean((across @ coefficients + mean).argmax(axis=1) == codes[held]))
        return found

    each = matmul.for_each(shares, WIDTHS[::-1], threads, "kernel ridge, settings", "width")
    return {setting: share for found in each for setting, share in found.items()}


def _solve(rows, targets, kernel, strength, threads):
    """(K + strength I)^-1 targets, float32, by a tiled Cholesky factorisation."""
    norms = squared_norms(rows)
    parts = [slice(start, start + TILE) for start in range(0, len(rows), TILE)]
    tiles = {}

    def tile(i, j):
        """Tile (i, j) of K + strength I minus the contribution of the factor's columns before j."""
        made = kernel.block(rows[parts[i]], norms[parts[i]], rows[parts[j]], norms[parts[j]])
        if i == j:
            made[np.diag_indices(len(made))] = 1 + strength
        for before in range(j):
            made -= tiles[i, before] @ tiles[j, before].T
        return made

    for j in bar(range(len(parts)), "kernel ridge", "column of tiles"):
        below = range(j, len(parts))
        tiles.update(zip(((i, j) for i in below), matmul.for_each(lambda i, j=j: tile(i, j), below, threads), strict=True))
        tiles[j, j] = corner = scipy.linalg.cholesky(tiles[j, j], lower=True, overwrite_a=True, check_finite=False)

        def divide(i, j=j, corner=corner):
            tiles[i, j] = scipy.linalg.solve_triangular(corner, tiles[i, j].T, lower=True, check_finite=False).T

        matmul.for_each(divide, below[1:], threads)
    return _substitute(tiles, parts, targets)


def _substitute(tiles, parts, targets):
    """(L L')^-1 targets, float32, from the tiles of the factor L."""
    found = targets.astype(np.float32)
    last = len(parts)
    for i in range(last):
        for j in range(i):
            found[parts[i]] -= tiles[i, j] @ found[parts[j]]
        found[parts[i]] = scipy.linalg.solve_triangular(tiles[i, i], found[parts[i]], lower=True)
    for i in reversed(range(last)):
        for j in range(i + 1, last):
            found[parts[i]] -= tiles[j, i].T @ found[parts[j]]
        found[parts[i]] = scipy.linalg.solve_triangular(tiles[i, i], found[parts[i]], lower=True, trans="T")
    return found
