"""One-vs-one support vector machines on many rows with many features: fit, predict, save and load.

The dual problem is solved by a library:

| backend | solver |
|---|---|
| sklearn | libsvm, in scikit-learn, on Gram matrices from BLAS |
| sklearnex | oneDAL, in scikit-learn-intelex, for few classes; else as `sklearn`, which is faster |
| cuml | cuML, one class pair at a time |

Gram matrices. libsvm computes kernel values one by one in float64, which takes nearly all of its
time for thousands of features. A one-vs-one machine is a two-class problem for each pair of
classes, and a pair's kernel matrix consists of two blocks within a class and one across. The blocks
within classes are computed once (float32 GEMM, symmetric half only) and kept; a block across is
computed when its pair is solved, then freed. Pairs are solved in parallel, each with its share of
the threads for its Gram block and its own libsvm, which runs without the GIL. libsvm solves the
same problem as before, so the result is that of SVC.

Fits and predictions are bit-identical for any number of threads: Gram blocks are computed in pieces
of fixed size, and oneDAL, whose sums depend on its threads, runs on one.

Prediction needs only the saved arrays, and follows libsvm's voting: each pair votes for one of its
two classes, and the class with most votes wins, the lower one in case of a tie. With cuml it runs
on the GPU too, by CuPy; only the last digits of a decision can differ from those of the CPU.
"""

import dataclasses
import functools
import itertools
import math
import pathlib
import time

import numpy as np
import psutil
import sklearn
import sklearn.svm

from ladder.arithmetic import arrays, matmul
from ladder.classifiers import backends, decisions
from ladder.classifiers.kernel_functions import (
    CHUNK,
    KERNELS,
    Kernel,
    resolve_gamma,
    squared_norms,
    weighted_sums,
)
from ladder.errors import NOT_FINITE, RunFailed, UserError
from ladder.progress import bar, duration, log, size
from ladder.store import artifacts

# rows^2 x features up to which oneDAL needs about 10 s. On two AVX-512 cores, RBF, C=10, 8192
# features, it fits 2000 rows in 1.6 s and 8000 in 12.8 s, on one in up to twice that; Gram blocks
# and libsvm take 0.5 s and 3.1 s on two.
ONEDAL_REACH = 2e11
# Classes from which Gram blocks are faster whatever the rows: a pair is then a small part of them.
# RBF, C=10, CPU seconds of both on Zen 4, 12,000 x 512 of 2 classes: oneDAL 1.6, Gram blocks 5.5;
# 8000 x 256 of 3: 1.0, 1.3; 10,000 x 512 of 4: 2.9, 2.6; 6000 x 288 of 10: 1.9, 0.5.
ONEDAL_CLASSES = 4
# bytes of each libsvm's cache of float32 kernel rows: holds a pair of 10,000 rows
LIBSVM_CACHE = 420e6
PAIRS_MEMORY = 5e9  # most bytes of all pairs that are solved in parallel
VALIDATED = "validated"  # a value of C
# Pairs of C and a width, in parts of gamma, that validation rows choose from. The second is better
# for features of thousands of small values, which tell many classes of few pictures apart.
CHOICES = ((10.0, 1.0), (100.0, 0.1))
PROBE_ROWS = 1000  # rows per class in the short run from which the time is estimated
# libsvm's time grows with this power of a pair's rows; measured on cats and dogs, 2500 to 10,000
# rows, C=10.
SOLVE_POWER = {"rbf": 2.2, "poly": 2.3, "linear": 2.9}
# most rows and kernel values of a thread's block in prediction
PREDICT_ROWS, PREDICT_VALUES = 512, 2**24


@dataclasses.dataclass
class SvmModel:
    """A fitted one-vs-one machine of k classes, s support vectors, D features.

    classes          (k,): labels, ascending
    support          (s,) int64: rows of the training set, grouped by class
    n_support        (k,) int64: number of these of each class
    support_vectors  (s, D) float32: the support rows minus the center
    center           (D,) float32: the training rows' mean for rbf (distances do not change, and
                     rounding errors are smaller), zero for the other kernels
    dual_coef        (k-1, s) float64, in libsvm's layout: a vector of class i has its coefficient
                     against class j in row j-1 if j > i, in row j if j < i
    intercept        (k(k-1)/2,) float64, of the pairs (0,1), (0,2) .. (k-2,k-1)

    A pair's decision is sum(coefficient x kernel value) + intercept; if positive, it votes for the
    pair's first class, else for the second.

    The support vectors themselves are stored, 4 s D bytes (1.3 GB for all of CIFAR-10 at 8192
    features), so predictions need only this file.
    """

    kernel: Kernel
    C: float
    classes: np.ndarray
    n_support: np.ndarray
    support: np.ndarray
    support_vectors: np.ndarray
    dual_coef: np.ndarray
    intercept: np.ndarray
    center: np.ndarray

    def save(self, path):
        """Write the model as safetensors: numbers as float64 arrays of one element, the kernel's
        name as ASCII codes.

        No metadata, because safetensors writes it in an order that changes from run to run.
        """
        artifacts.save_tensors(
            path,
            {
                "kernel": np.frombuffer(self.kernel.name.encode(), np.uint8),
                **{
                    name: np.array([getattr(self.kernel, name)], np.float64)
                    for name in ("gamma", "degree", "coef0")
                },
                "C": np.array([self.C], np.float64),
                **{name: getattr(self, name) for name in _ARRAYS},
            },
        )


_ARRAYS = ("classes", "n_support", "support", "support_vectors", "dual_coef", "intercept", "center")


def load(path):
    """The SvmModel that SvmModel.save wrote to `path`. Raises UserError for any other file."""
    tensors = artifacts.load_tensors(pathlib.Path(path))
    try:
        name = tensors["kernel"].tobytes().decode("ascii", "replace")
        gamma, degree, coef0, penalty = (
            float(tensors[key][0]) for key in ("gamma", "degree", "coef0", "C")
        )
        arrays = {key: tensors[key] for key in _ARRAYS}
    except (KeyError, IndexError) as error:
        raise UserError(f"{path} is not an SVM's file: {error} is missing") from error
    if name not in KERNELS:
        raise UserError(f"{path} is not an SVM's file: its kernel is {name!r}")
    return SvmModel(Kernel(name, gamma, int(degree), coef0), penalty, **arrays)


def choose(features, labels, backend, kernel, gamma, threads=1):
    """(C, gamma) of the CHOICES: fitted to every other row of each class, the one by which most of
    the other rows are right, of equals the first. Arguments as those of `fit`.
    """
    width = resolve_gamma(gamma, features)
    left_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        left_out[np.flatnonzero(labels == label)[1::2]] = True
    known, others = features[~left_out], features[left_out]

    def right(choice):
        C, share = choice
        model, _ = fit(known, labels[~left_out], backend, kernel, C, share * width, threads)
        return np.sum(predict(model, others, threads, backend) == labels[left_out])

    C, share = max(CHOICES, key=right) if len(others) else CHOICES[0]
    return C, share * width


def fit(features, labels, backend="sklearn", kernel="rbf", C=10.0, gamma="scale", threads=1):
    """Fit a one-vs-one machine to features (N, D) float, which may be memory-mapped, and labels
    (N,) integer.

    gamma: 'scale' = 1 / (D x variance of all the features), 'auto' = 1 / D, or a number. Returns
    (SvmModel, name of the solver). Raises UserError for hyperparameters out of range, a backend
    that this machine cannot run, or fewer than two classes, RunFailed for features that are not
    finite.
    """
    _check_settings(backend, kernel, C, gamma)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise UserError(
            f"an SVM needs two classes, the training labels hold {len(classes)}; raise train_limit"
        )
    if len(features) != len(labels):
        raise UserError(
            f"{len(features)} rows of features but {len(labels)} labels; make the features again"
        )
    rows = _RowsByClass.sorted_by_class(features, labels, classes, centered=kernel == "rbf")
    function = Kernel(kernel, resolve_gamma(gamma, features))
    suits_onedal = (
        len(classes) < ONEDAL_CLASSES and len(features) ** 2 * features.shape[1] <= ONEDAL_REACH
    )
    if backend == "sklearnex" and suits_onedal:
        return _fit_onedal(rows, classes, function, C), "oneDAL"
    if backend == "cuml":
        solved, solver = _solve_pairs_on_gpu(rows, function, C), "cuML"
    else:
        solved, solver = _solve_pairs(rows, function, C, threads), "libsvm on BLAS Gram blocks"
    if backend == "sklearnex":
        log.info(
            "%d rows x %d features, %d classes: oneDAL would take longer than %s, which is used",
            *features.shape,
            len(classes),
            solver,
        )
    return _assemble(rows, classes, function, C, solved), solver


def predict(model, features, threads=1, backend="sklearn", shifted=()):
    """The labels that `classify` gives."""
    return classify(model, features, threads, backend, shifted)[0]


def classify(model, features, threads=1, backend="sklearn", shifted=()):
    """(predicted labels (M,), dtype of model.classes; their margins (M,) float64; decisions (M,
    pairs) float32) of features.

    The features (M, D) float may be memory-mapped. A margin is the least decision value of the
    label against another class, below 0 where the label won by votes alone.

    backend: with cuml, decisions are computed on the GPU; shifted: the features of shifted copies
    of the same images, each as `features`: the pairs vote by the means of their decisions. Raises
    RunFailed for features that are not finite, UserError for another number of features than in
    training.
    """

    def winners(decided):
        best = np.argmax(decisions.votes(decided, len(model.classes)), axis=1)
        against = margins(model, decided, best)
        against[np.arange(len(best)), best] = np.inf
        return model.classes[best], against.min(axis=1), decided.astype(np.float32)

    if backend == "cuml":
        return winners(
            decisions.mean([decisions_on_gpu(model, rows) for rows in (features, *shifted)])
        )
    return tuple(
        map(
            np.concatenate,
            zip(*decision_blocks(model, features, threads, shifted, winners), strict=True),
        )
    )


def margins(model, decided, classes):
    """Decision values of classes[row], an index into model.classes, against each class, (rows, k)
    float64; 0 against itself.

    decided: those of the pairs, (rows, pairs). 1 is the margin of a pair of classes; a negative
    value means that the other class won.
    """
    values = np.zeros((len(decided), len(model.classes)))
    for decision, (i, j) in zip(decided.T, decisions.pairs(len(model.classes)), strict=True):
        values[:, j] += np.where(classes == i, decision, 0)
        values[:, i] -= np.where(classes == j, decision, 0)
    return values


def decisions_on_gpu(model, features):
    """Decisions (M, pairs) float64 for features (M, D), as those of decision_blocks."""
    _check_width(model, features)
    for start in range(0, len(features), PREDICT_ROWS):
        _check_finite(features[start : start + PREDICT_ROWS], start)
    return (
        weighted_sums(
            model.kernel,
            features,
            model.support_vectors,
            _pair_coefficients(model),
            model.center,
            arrays.CuPy(),
            "predict",
        )
        + model.intercept
    )


def decision_blocks(model, features, threads=1, shifted=(), finish=np.asarray):
    """[finish(decisions (rows, pairs) float64)] of consecutive blocks of features (M, D), several
    in parallel.

    shifted: as for `predict`; decisions are means over `features` and these.
    """
    _check_width(model, features)
    coefficients = _pair_coefficients(model)
    norms = squared_norms(model.support_vectors)
    step = max(1, min(PREDICT_ROWS, PREDICT_VALUES // len(norms)))

    def decided(features, start):
        rows = np.array(features[start : start + step], np.float32)
        _check_finite(rows, start)
        rows -= model.center
        values = model.kernel.block(rows, squared_norms(rows), model.support_vectors, norms)
        return values.astype(np.float64) @ coefficients + model.intercept

    def decide(start):
        return finish(decisions.mean([decided(rows, start) for rows in (features, *shifted)]))

    return matmul.for_each(decide, range(0, len(features), step), threads, "predict", "block")


# Preparing the rows


@dataclasses.dataclass
class _RowsByClass:
    """Training rows (N, D) float32 minus `center`, grouped by class: those of class i are
    rows[slices[i]].

    order (N,): index of each row in the training set. norms (N,) float32: their squared_norms.
    """

    rows: np.ndarray
    order: np.ndarray
    slices: list
    center: np.ndarray
    norms: np.ndarray

    @classmethod
    def sorted_by_class(cls, features, labels, classes, centered):
        order = np.argsort(labels, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        rows, total = np.empty(features.shape, np.float32), np.zeros(features.shape[1])
        # in the file's order, so the file is read once sequentially
        for start in range(0, len(features), CHUNK):
            chunk = np.asarray(features[start : start + CHUNK], np.float32)
            _check_finite(chunk, start)
            total += chunk.sum(axis=0, dtype=np.float64)
            rows[place[start : start + CHUNK]] = chunk
        center = (total / len(rows) if centered else np.zeros(len(total))).astype(np.float32)
        if centered:
            rows -= center
        ends = np.searchsorted(labels[order], classes, side="right")
        slices = [slice(int(start), int(end)) for start, end in itertools.pairwise([0, *ends])]
        return cls(rows, order, slices, center, squared_norms(rows))

    def of_class(self, i):
        """Rows and norms of class i."""
        return self.rows[self.slices[i]], self.norms[self.slices[i]]

    @functools.cached_property
    def counts(self):
        """Rows of each class."""
        return [part.stop - part.start for part in self.slices]


def _check_width(model, features):
    if features.shape[1] != len(model.center):
        raise UserError(
            f"the SVM was fitted to {len(model.center)} features, these rows have {features.shape[1]}"
        )


def _check_finite(chunk, start):
    if not np.isfinite(chunk).all():
        row = start + int(np.flatnonzero(~np.isfinite(chunk).all(axis=1))[0])
        raise RunFailed(NOT_FINITE.format(f", first in row {row}"))


def _check_settings(backend, kernel, C, gamma):
    reason = backends.unavailable(backends.resolve_backend(backend))
    if reason:
        raise UserError(reason)
    if kernel not in KERNELS:
        raise UserError(f"svm_kernel is {kernel!r}; it can be {', '.join(KERNELS)}")
    if not (C > 0 and math.isfinite(C)):
        raise UserError(f"svm_C is {C}; it must be a number above 0, 10 is the default")
    if gamma not in ("scale", "auto") and not (
        not isinstance(gamma, str) and gamma > 0 and math.isfinite(gamma)
    ):
        raise UserError(f"svm_gamma is {gamma!r}; it can be scale, auto, or a number above 0")


# The solvers. One class pair's solution: (support, coefficients, intercept), where support (s,)
# indexes the rows of the first class, then of the second, and a decision > 0 means the second
# class, as for two classes in scikit-learn and cuML.


def _solve_pairs(rows, kernel, C, threads):
    """Solutions of all class pairs, several pairs in parallel."""
    pairs = decisions.pairs(len(rows.slices))
    largest = sum(sorted(rows.counts)[-2:])
    workers = int(max(1, min(threads, len(pairs), PAIRS_MEMORY // _pair_bytes(largest))))
    _announce(rows, kernel, C, pairs, workers)
    within = [kernel.within(*rows.of_class(i), threads) for i in range(len(rows.slices))]

    def solve(pair):
        i, j = pair
        across = kernel.block(*rows.of_class(i), *rows.of_class(j), max(1, threads // workers))
        return _solve_pair(within[i], within[j], across, kernel, C)

    return matmul.for_each(solve, pairs, workers, "SVM", "pair")


def _solve_pair(first, second, across, kernel, C):
    """libsvm's solution for two classes with the Gram blocks (n, n), (m, m) and (n, m) float32."""
    n = len(first)
    gram = np.empty((n + len(second), n + len(second)))  # float64 is what libsvm reads
    gram[:n, :n], gram[n:, n:], gram[:n, n:] = first, second, across
    gram[n:, :n] = across.T
    second_class = np.arange(len(gram)) >= n
    # Shrinking, libsvm's heuristic of skipping rows at their bounds, only affects the time: 1/4
    # less for the many iterations of linear and poly on a pair of 10,000 rows, 1/4 more for rbf.
    svc = sklearn.svm.SVC(
        kernel="precomputed", C=C, shrinking=kernel.name != "rbf", cache_size=LIBSVM_CACHE / 2**20
    )
    with sklearn.config_context(assume_finite=True):
        svc.fit(gram, second_class)
    return svc.support_, svc.dual_coef_[0], svc.intercept_[0]


def _solve_pairs_on_gpu(rows, kernel, C):
    """Solutions of all class pairs by cuML, on rows that are uploaded once where the GPU's memory
    holds all of them.

    Tested only with a mock that was written from cuML's documentation (SVC for two classes:
    support_, dual_coef_ (1, s), intercept_), not on a GPU.
    """
    library = arrays.CuPy()  # before cuML loads CUDA's libraries: it switches TF32 off in them
    from cuml.svm import SVC

    log.info("SVM: %d rows x %d features on the GPU", *rows.rows.shape)
    # Beside them: a pair's rows, in cuML's order of memory too, and as support vectors, and cuML's
    # cache of kernel rows.
    beside = 3 * sum(sorted(rows.counts)[-2:]) * rows.rows[0].nbytes + (1 << 30)
    held = library.keep(rows.rows, beside)
    xp = np if held is rows.rows else library.xp
    if xp is np:
        log.info(
            "SVM: the GPU's memory does not hold them beside a pair of classes; each pair is copied to it"
        )
    solutions = []
    for i, j in bar(decisions.pairs(len(rows.slices)), "SVM", "pair"):
        svc = SVC(C=C, **kernel.settings(), output_type="numpy")
        pair = xp.concatenate([held[rows.slices[i]], held[rows.slices[j]]])
        svc.fit(pair, (xp.arange(len(pair)) >= rows.counts[i]).astype(np.float32))
        solutions.append(
            (np.asarray(svc.support_), np.ravel(svc.dual_coef_), float(np.ravel(svc.intercept_)[0]))
        )
    return solutions


def _fit_onedal(rows, classes, kernel, C):
    """The SvmModel of scikit-learn-intelex's SVC, which has libsvm's layout, but opposite signs for
    two classes.
    """
    from sklearnex.svm import SVC

    log.info("SVM: %d rows x %d features by oneDAL, which takes seconds", *rows.rows.shape)
    position = np.repeat(np.arange(len(classes)), rows.counts)
    svc = SVC(C=C, **kernel.settings(), n_jobs=1)
    svc.fit(rows.rows, position)
    if not hasattr(svc, "_onedal_estimator"):
        raise UserError(
            "scikit-learn-intelex handed the work back to scikit-learn; set svm_backend to sklearn"
        )
    sign = -1.0 if len(classes) == 2 else 1.0
    solution = svc.support_, sign * svc.dual_coef_, sign * svc.intercept_
    return _model(rows, classes, kernel, C, solution)


def _assemble(rows, classes, kernel, C, solutions):
    """The SvmModel assembled from the solutions of all class pairs."""
    dual, intercepts = np.zeros((len(classes) - 1, len(rows.rows))), []
    for (i, j), (support, coefficients, intercept) in zip(
        decisions.pairs(len(classes)), solutions, strict=True
    ):
        is_second = support >= rows.counts[i]
        dual[j - 1, rows.slices[i].start + support[~is_second]] = -coefficients[~is_second]
        dual[i, rows.slices[j].start + support[is_second] - rows.counts[i]] = -coefficients[
            is_second
        ]
        intercepts.append(-intercept)
    support = np.flatnonzero(dual.any(axis=0))
    solution = support, dual[:, support], np.array(intercepts)
    return _model(rows, classes, kernel, C, solution)


def _model(rows, classes, kernel, C, solution):
    """The SvmModel of a solution: (support, dual_coef, intercept), with support vectors
    rows.rows[support], `support` ascending.
    """
    support, dual_coef, intercept = solution
    n_support = [
        np.count_nonzero((support >= part.start) & (support < part.stop)) for part in rows.slices
    ]
    return SvmModel(
        kernel,
        float(C),
        classes,
        np.array(n_support, np.int64),
        rows.order[support].astype(np.int64),
        rows.rows[support],
        np.asarray(dual_coef, np.float64),
        np.asarray(intercept, np.float64),
        rows.center,
    )


def _pair_coefficients(model):
    """Coefficients (s, pairs) float64: one column for each class pair, zero for vectors of other
    classes.
    """
    ends = np.cumsum(model.n_support)
    parts = [slice(end - count, end) for end, count in zip(ends, model.n_support, strict=True)]
    pairs = decisions.pairs(len(model.classes))
    coefficients = np.zeros((len(model.support), len(pairs)))
    for column, (i, j) in enumerate(pairs):
        coefficients[parts[i], column] = model.dual_coef[j - 1, parts[i]]
        coefficients[parts[j], column] = model.dual_coef[i, parts[j]]
    return coefficients


# Time and memory


def _announce(rows, kernel, C, pairs, workers):
    """Log rows, pairs, expected time and memory before the fit."""
    working = sum(4 * count**2 for count in rows.counts) + workers * _pair_bytes(
        sum(sorted(rows.counts)[-2:])
    )
    log.info(
        "SVM: %d rows x %d features, %d class pairs, %d at a time: about %s, up to %s of memory; the model's file "
        "takes up to %s",
        *rows.rows.shape,
        len(pairs),
        workers,
        duration(_expected_seconds(rows, kernel, C, pairs, workers)),
        # features twice: as mapped, as sorted
        size(2 * rows.rows.nbytes + working),
        size(rows.rows.nbytes),
    )
    free = psutil.virtual_memory().available
    if working > free:
        log.warning(
            "only %s of memory are free here; if this run is killed, a smaller train_limit needs less",
            size(free),
        )


def _pair_bytes(count):
    """Bytes of one pair of `count` rows: float64 Gram matrix, float32 block across, libsvm's
    cache.
    """
    return 8 * count**2 + count**2 + min(LIBSVM_CACHE, 4 * count**2)


def _expected_seconds(rows, kernel, C, pairs, workers):
    """Expected time of all Gram blocks (proportional to their areas) and of libsvm, extrapolated
    from a probe.
    """
    power = SOLVE_POWER[kernel.name]
    (x, x_norms), (y, y_norms) = ([part[:PROBE_ROWS] for part in rows.of_class(i)] for i in (0, 1))
    start = time.perf_counter()
    across = kernel.block(x, x_norms, y, y_norms)
    gemm = (time.perf_counter() - start) / across.size
    first, second = kernel.block(x, x_norms, x, x_norms), kernel.block(y, y_norms, y, y_norms)
    start = time.perf_counter()
    _solve_pair(first, second, across, kernel, C)
    solve = (time.perf_counter() - start) / (len(x) + len(y)) ** power
    values = sum(rows.counts) ** 2 / 2
    return (
        gemm * values + solve * sum((rows.counts[i] + rows.counts[j]) ** power for i, j in pairs)
    ) / workers
