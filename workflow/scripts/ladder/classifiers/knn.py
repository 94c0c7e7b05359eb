"""k nearest neighbours: the majority class among the nearest training rows."""

import numpy as np

from ladder.arithmetic.arrays import NumPy
from ladder.errors import NOT_FINITE, RunFailed, UserError

SORTING = 40  # bytes for each distance, while CuPy sorts a block of them
ON_CPU = NumPy()


def predict(train, labels, features, k, library=ON_CPU, shifted=()):
    """The predicted labels (M,), dtype of labels, of features (M, D), from those of the training
    images, train (N, D) float32, and labels (N,), by the cosine of the angle between two rows.

    library: see arrays.py. Ties go to the lowest class. Features may be memory-mapped. Results are
    bit-identical for any number of threads. shifted: the features of shifted copies of the same
    images, each as `features`: the neighbours of all of them vote together. Raises UserError
    for fewer than k training rows, RunFailed for features that are not finite.
    """
    if k > len(train):
        raise UserError(
            f"knn_k is {k}, but there are {len(train)} training images; at most {len(train)}"
        )
    known = _prepared(train)
    classes, codes = np.unique(labels, return_inverse=True)
    side, part = library.blocks(len(known), 2 * 4 * train.shape[1] + SORTING * k, SORTING)
    parts = [slice(start, start + part) for start in range(0, len(known), part)]
    known = library.keep(known)
    codes = library.upload(codes)

    def block(start):
        votes = sum(votes_of(rows[start : start + side]) for rows in (features, *shifted))
        return classes[library.download(votes.argmax(axis=1))]

    def votes_of(queries):
        voters = _nearest(library.upload(_prepared(queries)), known, parts, k, library)
        return library.xp.stack(
            [(codes[voters] == code).sum(axis=1) for code in range(len(classes))], axis=1
        )

    return np.concatenate(
        library.each(block, range(0, len(features), side), "nearest neighbours", "block")
    )


def _nearest(queries, known, parts, k, library):
    """Numbers (n, k) of the known rows that are nearest to each of the queries (n, D), part by
    part, in no order.
    """
    xp, apart, numbers = library.xp, None, None
    for part in parts:
        distances = queries @ library.upload(known[part]).T
        distances *= -1  # as 1 - cosine orders them
        which = xp.broadcast_to(
            xp.arange(part.start, part.start + distances.shape[1]), distances.shape
        )
        if apart is not None:
            distances, which = (
                xp.concatenate([apart, distances], axis=1),
                xp.concatenate([numbers, which], axis=1),
            )
        best = library.smallest(distances, min(k, distances.shape[1]))
        apart, numbers = (xp.take_along_axis(values, best, axis=1) for values in (distances, which))
    return numbers


def _prepared(rows):
    """A float32 copy of the rows, normalised to length 1."""
    rows = np.asarray(rows, np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if not np.isfinite(norms).all():
        raise RunFailed(NOT_FINITE.format(""))
    return rows / np.where(norms > 0, norms, 1)[:, None]
