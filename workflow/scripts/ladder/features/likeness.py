"""What features without labels say of pictures: which are alike, which are like no other, and which
lie together.

Each picture is compared with all others, or with as many as GALLERY or classify_rows says where
there are more; the test pictures whose changed copies are sought are always among these. The
likeness of two pictures is the cosine of their features, from which the mean of those that all are
compared with is taken.
"""

import numpy as np

from ladder.arithmetic import matmul
from ladder.errors import NOT_FINITE, RunFailed
from ladder.machine import runtime
from ladder.progress import bar

GALLERY = 20_000  # pictures that each one is compared with; their features are in memory
NEIGHBOURS = 10  # of each picture
BLOCK = 1024  # pictures that are compared at once
FEWEST, MOST_CLUSTERS, STARTS = 10, 20, 3  # pictures that are clustered, clusters, and starts


class Directions:
    """Rows (N, D) float32, which may be memory-mapped, as unit vectors around a mean; rows equal to
    the mean stay 0.
    """

    def __init__(self, rows, mean):
        self._rows, self._mean = rows, mean

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, at):
        vectors = self._rows[at] - self._mean
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return vectors


class Stacked:
    """The rows of several arrays, one after another; slices and arrays of numbers are read."""

    def __init__(self, *parts):
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)])

    def __len__(self):
        return int(self._starts[-1])

    def __getitem__(self, at):
        rows = np.arange(len(self))[at]
        out = np.empty((len(rows), self._parts[0].shape[1]), np.float32)
        for part, start in zip(self._parts, self._starts, strict=False):
            own = (start <= rows) & (rows < start + len(part))
            out[own] = part[rows[own] - start]
        return out


def gallery(train, test, wanted, most=GALLERY):
    """Ascending numbers (G,) of the pictures that all are compared with, which count the training
    pictures first: the first of these and of the test pictures, `most` in all, the first `wanted`
    test pictures among them, and these alone where they are more than `most`. Their order is that
    of a hash of their names.
    """
    known = min(train, most - wanted)  # none if it is below 0
    return np.concatenate([np.arange(known), train + np.arange(min(test, most - known))])


def mean(rows):
    """float32 (D,): the mean of rows (N, D); raises RunFailed where one is not finite."""
    middle = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    if not np.isfinite(middle).all():
        raise RunFailed(NOT_FINITE.format(""))
    return middle


def nearest(vectors, others, count, threads, own=None):
    """(places int64 (N, count) among `others`, likeness float32 (N, count)), the most alike first.

    vectors: Directions of N; others: unit vectors (G, D); own: (N,) the place of each vector among
    the others, which is no neighbour, -1 where it is none of them. Of equal ones the first is
    first.
    """
    places, values = np.empty((len(vectors), count), np.int64), np.empty((len(vectors), count))
    for start in bar(range(0, len(vectors), BLOCK), "most alike pictures", "block"):
        block = slice(start, start + BLOCK)
        # rounded, the product of a unit vector with itself may be above 1
        likeness = np.minimum(matmul.product(vectors[block], others.T, threads), 1)
        if own is not None:
            there = np.flatnonzero(own[block] >= 0)
            likeness[there, own[block][there]] = -np.inf
        places[block], values[block] = _largest(likeness, count)
    return places, values.astype(np.float32)


def _largest(likeness, count):
    """(places, values) of the largest of each row, the largest first, of equal ones the first."""
    places = np.sort(np.argpartition(-likeness, count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(likeness, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1)


def clusters(count):
    """How many clusters so many pictures are put into: the root of a tenth of them, 2 to
    MOST_CLUSTERS; 0 for fewer than FEWEST.
    """
    return min(MOST_CLUSTERS, max(2, round((count / 10) ** 0.5))) if count >= FEWEST else 0


def centres(vectors, count, seed):
    """Centres (count, D) of unit vectors (N, D) by k-means, the largest cluster first;
    bit-identical for any number of threads.
    """
    from sklearn.cluster import KMeans  # here, because it takes a second

    with runtime.thread_pools().limit(limits=1):
        fitted = KMeans(count, n_init=STARTS, random_state=seed).fit(vectors)
    sizes = np.bincount(fitted.labels_, minlength=count)
    return fitted.cluster_centers_[np.argsort(-sizes, kind="stable")].astype(np.float32)


def clustered(vectors, centres, threads):
    """int32 (N,): the nearest of the centres (K, D) to each of N Directions."""
    half = np.square(centres).sum(axis=1) / 2
    blocks = (
        np.argmax(matmul.product(vectors[start : start + BLOCK], centres.T, threads) - half, axis=1)
        for start in range(0, len(vectors), BLOCK)
    )
    return np.concatenate(list(blocks)).astype(np.int32)
