"""Kernel ridge regression on the classes with the RBF kernel, solved in closed form.

With rows X (N, D) and Y (N, k), +1 for a row's class and -1 otherwise, minus its mean m, the scores
of a row r are k(r, X) A + m with
    A = (K + strength I)^-1 Y    K_ij = k(x_i, x_j) = exp(-width g |x_i - x_j|^2)    g: the SVM's
                                 `svm_gamma: scale`
and its class is the one with the highest score: one-vs-rest, whereas the SVM is one-vs-one.
Features with an odd part, whose sign mirroring changes, take the mean of the kernel values with
either sign (Kernel.odd), so that an image and its mirror image have the same scores although both
halves of what distinguishes them are used. Width and strength are chosen from WIDTHS and STRENGTHS
by the log loss of softmax(SHARPNESS scores) on a validation set of its own, fitted to other
training rows; both are drawn by the seed. Accuracy would not do: good settings differ in it by less
than chance does. Of cifar10_best, fitted to 5,000, 10,000 or 15,000 training rows, the setting with
the least log loss on 10,000 others had an accuracy within 0.1 points of the highest there; that
with the least squared error was 0.3 below it, fitted to 10,000 or 15,000. On the test images of
cifar10_best this choice made no difference. More rows want wider kernels (a smaller width), so the
subset is large.

Only K's lower half is stored, in rows of square tiles, and replaced by its Cholesky factor: 2 N^2
bytes. Each tile is computed by one thread in a fixed order, so results are bit-identical for any
number of threads.

On a GPU the same program runs with CuPy. cuML's KernelRidge would store all of K, 4 N^2 bytes,
beside a copy for cuSOLVER, and solves a system that is not positive definite by least squares
instead of saying so.
"""

import dataclasses
import itertools
import pathlib

import numpy as np

from ladder.arithmetic import randomness
from ladder.arithmetic.arrays import NumPy
from ladder.arithmetic.lazy_rows import Centered
from ladder.classifiers import decisions, metrics
from ladder.classifiers.kernel_functions import (
    CHUNK,
    Kernel,
    distances,
    resolve_gamma,
    squared_norms,
    weighted_sums,
)
from ladder.errors import NOT_FINITE, RunFailed, UserError
from ladder.progress import bar
from ladder.store import artifacts

WIDTHS = (0.25, 0.5, 1.0)
STRENGTHS = (0.3, 0.1, 0.03, 0.01)
SHARPNESS = 4  # of the scores, which are about -1 and 1, as logits
TRIED = 10000  # most rows of the subset, and of the validation set, that choose width and strength
TESTED = 512  # of the validation set at once
LEAST = 20  # rows
ON_CPU = NumPy()


@dataclasses.dataclass(frozen=True)
class RidgeModel:
    """A fitted kernel ridge regression.

    center        (D,) float32
    rows          (N, D) float32 minus the center, an array or lazy_rows.Centered
    coefficients  (N, k) float32
    intercept     (k,) float32
    kernel        kernel_functions.Kernel
    classes       (k,): labels, ascending
    width         the chosen one
    strength      the chosen one
    validation    (width, strength) -> log loss on the validation set

    A saved model leaves out the rows, which the features have, and what only the report needs of
    the choice.
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
        artifacts.save_tensors(
            path,
            {
                **{name: getattr(self, name) for name in _SAVED},
                "gamma": np.array([self.kernel.gamma], np.float64),
                "odd": np.array([self.kernel.odd]),
            },
        )


_SAVED = ("classes", "center", "coefficients", "intercept")


def load(path, features):
    """The RidgeModel that RidgeModel.save wrote to `path`, with the training features (N, D)
    float32 that it was fitted to.

    Raises UserError for any other file.
    """
    tensors = artifacts.load_tensors(pathlib.Path(path))
    try:
        saved = {name: tensors[name] for name in _SAVED}
        kernel = Kernel("rbf", float(tensors["gamma"][0]), odd=int(tensors["odd"][0]))
    except (KeyError, IndexError) as error:
        raise UserError(
            f"{path} is not a file of kernel ridge regression: {error} is missing"
        ) from error
    return RidgeModel(rows=features - saved["center"], kernel=kernel, **saved)


def fit(features, labels, seed, library=ON_CPU, odd=0):
    """The RidgeModel of features (N, D) float32, an array, which may be memory-mapped, or rows of
    lazy_rows.py, and labels (N,) integer; library: see arrays.py.

    odd: number of last columns that are the odd part of the features; their sign and their mean
    mean nothing. Raises UserError for fewer than two classes or fewer than 20 rows, RunFailed for
    features that are not finite.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2 or len(labels) < LEAST:
        raise UserError(
            f"kernel ridge needs two classes and {LEAST} training images, not {len(classes)} and {len(labels)}; "
            "take more images, or leave ridge out of evaluations"
        )
    center = _mean(features).astype(np.float32)
    if not np.isfinite(center).all():
        raise RunFailed(NOT_FINITE.format(""))
    center[len(center) - odd :] = 0
    rows = Centered(features, center)
    # gamma of the rows as they are: minus their mean they lose the columns' differences.
    scaled = Kernel("rbf", resolve_gamma("scale", features), odd=odd)
    targets = np.where(codes[:, None] == np.arange(len(classes)), 1.0, -1.0)
    validation = _validate(rows, codes, targets, scaled, seed, library)
    width, strength = min(validation, key=validation.get)
    intercept = targets.mean(axis=0)
    kernel = dataclasses.replace(scaled, gamma=width * scaled.gamma)
    coefficients = _solve(rows, targets - intercept, kernel, strength, library)
    return RidgeModel(
        classes,
        center,
        rows,
        coefficients,
        intercept.astype(np.float32),
        kernel,
        width,
        strength,
        validation,
    )


def _mean(features):
    """The mean float64 (D,) of features (N, D) float32, which are read in blocks."""
    starts = range(0, len(features), CHUNK)
    sums = [features[start : start + CHUNK].sum(axis=0, dtype=np.float64) for start in starts]
    return sum(sums) / len(features)


def needed_bytes(count, threads, odd=0):
    """Bytes of the matrices that `fit` holds at once for so many rows: K's lower half; or before
    that, while it chooses, two matrices of a part of the rows, four with odd columns, and one for
    each strength.
    """
    matrices = (4 if odd else 2) + min(threads, len(STRENGTHS))
    return max(2 * count**2, matrices * 4 * min(TRIED, count // 2) ** 2)


def predict(model, features, library=ON_CPU, shifted=()):
    """The labels that `classify` gives."""
    return classify(model, features, library, shifted)[0]


def classify(model, features, library=ON_CPU, shifted=()):
    """(predicted labels (M,), dtype of model.classes; the lead of their scores (M,) float64; scores
    (M, k) float32) of features.

    The features (M, D) float32 may be memory-mapped; shifted: as for `scores`.
    """
    values = scores(model, features, library, shifted)
    second, first = np.partition(values, -2, axis=1)[:, -2:].T
    return model.classes[values.argmax(axis=1)], first - second, values.astype(np.float32)


def scores(model, features, library=ON_CPU, shifted=()):
    """The scores float64 (M, k) of features (M, D) float32, which may be memory-mapped: about 1 for
    a row's class, -1 otherwise.

    shifted: the features of shifted copies of the same images, each as `features`: scores are
    means over `features` and these.
    """
    sums = [
        weighted_sums(
            model.kernel,
            rows,
            model.rows,
            model.coefficients,
            model.center,
            library,
            "kernel ridge",
        )
        for rows in (features, *shifted)
    ]
    return decisions.mean(sums) + model.intercept


def _validate(rows, codes, targets, scaled, seed, library):
    """(width, strength) -> log loss on the validation set, the narrowest kernel and largest
    strength first.
    """
    drawn = randomness.generator(seed, randomness.CLASSIFIER_VALIDATION, 0).permutation(len(rows))
    count = min(TRIED, len(rows) // 2)
    left_out, fitted = np.sort(drawn[:count]), np.sort(drawn[count : 2 * count])
    mean = targets[fitted].mean(axis=0)
    known = library.upload(rows[fitted])
    kernels = {width: dataclasses.replace(scaled, gamma=width * scaled.gamma) for width in WIDTHS}
    norms = squared_norms(known, library.xp)
    wanted = library.upload((targets[fitted] - mean).astype(np.float32))
    coefficients = _of_settings(kernels, known, norms, wanted, library)

    def losses(start):
        """The log loss of each row of a block, by width and strength."""
        indices = left_out[start : start + TESTED]
        others = library.upload(rows[indices])
        other_norms = squared_norms(others, library.xp)
        between = distances(others, other_norms, known, norms, scaled.odd, xp=library.xp)
        rows_losses = []
        for width, of_strengths in coefficients.items():
            values = kernels[width].of_distances(between, library.xp)
            for solution in of_strengths:
                scores = library.download(values @ solution) + mean
                logarithms = metrics.log_softmax(SHARPNESS * scores)
                rows_losses.append(-logarithms[np.arange(len(indices)), codes[indices]])
        return rows_losses

    blocks = library.each(losses, range(0, count, TESTED))
    settings = itertools.product(coefficients, STRENGTHS)
    return dict(zip(settings, np.concatenate(blocks, axis=1).mean(axis=1).tolist(), strict=True))


def _of_settings(kernels, known, norms, wanted, library):
    """width -> the solutions (K + strength I)^-1 wanted, one for each strength, the narrowest
    kernel first; kernels: by width.
    """
    xp, solutions = library.xp, {}
    between = distances(known, norms, known, norms, kernels[1.0].odd, library.threads, xp)
    for width in bar(WIDTHS[::-1], "kernel ridge, settings", "width"):
        own, within = kernels[width].own(known, xp), kernels[width].of_distances(between, xp)

        def solve(strength, own=own, within=within):
            matrix = within.copy()
            _set_diagonal(matrix, own + np.float32(strength), xp)
            factor = library.cholesky(matrix)
            return library.solve_triangular(
                factor, library.solve_triangular(factor, wanted), transposed=True
            )

        solutions[width] = library.each(solve, STRENGTHS)
    return solutions


def _solve(rows, targets, kernel, strength, library):
    """(K + strength I)^-1 targets, float32, by a tiled Cholesky factorisation."""
    xp, side = library.xp, library.side
    parts = [slice(start, min(start + side, len(rows))) for start in range(0, len(rows), side)]
    rows = library.keep(rows, beside=_factor_bytes(len(rows), rows.shape[1], side))
    norms = [squared_norms(library.upload(rows[part]), xp) for part in parts]
    # The factor's rows of tiles up to the diagonal: what the columns before take from a tile is one
    # long product.
    factor = [xp.empty((part.stop - part.start, part.stop), np.float32) for part in parts]

    def fill(i, j, known):
        """Tile (i, j) of K + strength I minus the contribution of the factor's columns before j;
        known: the rows of part j.
        """
        block, columns = known if i == j else library.upload(rows[parts[i]]), parts[j]
        values = kernel.block(block, norms[i], known, norms[j], xp=xp)
        if i == j:
            _set_diagonal(values, kernel.own(block, xp) + np.float32(strength), xp)
        if j:
            values -= factor[i][:, : columns.start] @ factor[j][:, : columns.start].T
        factor[i][:, columns] = values

    for j in bar(range(len(parts)), "kernel ridge", "column of tiles"):
        below, columns = range(j, len(parts)), parts[j]
        known = library.upload(rows[columns])
        library.each(lambda i, j=j, known=known: fill(i, j, known), below)
        factor[j][:, columns] = library.cholesky(factor[j][:, columns])
        corner = factor[j][:, columns].copy()

        def divide(i, columns=columns, corner=corner):
            factor[i][:, columns] = library.solve_triangular(corner, factor[i][:, columns].T).T

        library.each(divide, below[1:])
    return library.download(
        _substitute(factor, parts, library.upload(targets.astype(np.float32)), library)
    )


def _factor_bytes(count, width, side):
    """Bytes of a factor's rows of tiles, and of what computes one tile more: two copies of it, the
    rows of both its sides, and the two rows of tiles before it, which CuPy copies to multiply them.
    """
    tiles = -(-count // side)
    return 4 * side**2 * (tiles * (tiles + 1) // 2 + 2) + 2 * 4 * side * (width + count)


def _set_diagonal(matrix, value, xp):
    at = xp.arange(len(matrix))
    matrix[at, at] = value


def _substitute(factor, parts, targets, library):
    """(L L')^-1 targets, float32, which is overwritten, from the rows of tiles of the factor L."""
    for rows, part in zip(factor, parts, strict=True):
        targets[part] -= rows[:, : part.start] @ targets[: part.start]
        targets[part] = library.solve_triangular(rows[:, part], targets[part])
    for rows, part in zip(reversed(factor), reversed(parts), strict=True):
        targets[part] = library.solve_triangular(rows[:, part], targets[part], transposed=True)
        targets[: part.start] -= rows[:, : part.start].T @ targets[part]
    return targets
