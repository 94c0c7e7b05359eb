"""k nearest neighbours: the majority class among the nearest training rows."""

import numpy as np

from ladder.arithmetic import matmul
from ladder.errors import NOT_FINITE, RunFailed, UserError

DISTANCES = ("cosine", "euclidean")
ROWS = 512   # rows per piece of a thread, each with its distances to all training rows


def predict(train, labels, rows, k, distance, threads=1):
    """The predicted labels (M,), dtype of labels, of rows (M, D), from train (N, D) float32 and labels (N,).

    distance: cosine or euclidean. Ties go to the lowest class. Rows may be memory-mapped. Results are bit-identical for any
    number of threads. Raises UserError for fewer than k training rows, RunFailed for features that are not finite.
    """
    if k > len(train):
        raise UserError(f"knn_k is {k}, but there are {len(train)} training images; at most {len(train)}")
    center = np.mean(train, axis=0, dtype=np.float64).astype(np.float32) if distance == "euclidean" else np.float32(0)
    known = _prepared(train, center, distance)
    offsets = np.einsum("ij,ij->i", known, known) if distance == "euclidean" else np.float32(0)
    classes, codes = np.unique(labels, return_inverse=True)

    def block(start):
        some = _prepared(rows[start:start + ROWS], center, distance)
        # |x - y|^2 without |x|^2, which is equal for all neighbours of x; -x.y has the order of 1 - cosine.
        apart = some @ known.T
        apart *= -2 if distance == "euclidean" else -1
        apart += offsets
        nearest = np.argpartition(apart, k - 1, axis=1)[:, :k] if k < len(known) else np.tile(np.arange(k), (len(some), 1))
        votes = np.zeros((len(some), len(classes)), np.int64)
        np.add.at(votes, (np.arange(len(some))[:, None], codes[nearest]), 1)
        return classes[votes.argmax(axis=1)]

    return np.concatenate(matmul.for_each(block, range(0, len(rows), ROWS), threads, "nearest neighbours", "block"))


def _prepared(rows, center, distance):
    """A float32 copy of the rows, normalised to length 1 for cosine, else centred, which reduces rounding errors."""
    rows = np.asarray(rows, np.float32) - center
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if not np.isfinite(norms).all():
        raise RunFailed(NOT_FINITE.format(""))
    if distance == "cosine":
        rows /= np.where(norms > 0, norms, 1)[:, None]
    return rows
