"""Principal components of rows that need not fit in memory: they are read in blocks of columns, or
of rows where these are more, which do not stay in memory.
"""

import dataclasses

import numpy as np

from ladder.arithmetic.arrays import NumPy
from ladder.arithmetic.lazy_rows import forget
from ladder.errors import NOT_FINITE, RunFailed

ON_CPU = NumPy()
BLOCK_NUMBERS = 2**25  # of the rows, in memory at once
BLOCK_COLUMNS = 512  # columns of a block are a multiple of this
PIECE = 512  # rows that are read at once


@dataclasses.dataclass(frozen=True)
class Part:
    """The columns from `first` on of `rows` (N, W) float32, minus `mean` (D,) and times `scale`
    (D,) where they are read.
    """

    rows: np.ndarray
    first: int
    mean: np.ndarray
    scale: np.ndarray

    @property
    def shape(self):
        return len(self.rows), len(self.mean)

    def __getitem__(self, place):
        rows, columns = place
        start, stop, _ = columns.indices(len(self.mean))
        read = self.rows[rows, self.first + start : self.first + stop]
        values = np.empty(read.shape, np.float32)
        # Some columns of all rows would have the whole file in memory: what is read of a page maps
        # those around it.
        for at in range(0, len(read), PIECE):
            piece = values[at : at + PIECE]
            np.subtract(read[at : at + PIECE], self.mean[start:stop], out=piece)
            piece *= self.scale[start:stop]
            forget(self.rows)
        return values


def principal_components(parts, count, library=ON_CPU):
    """[(components float32 (D, count), explained share of the variance, float32 (N, count): the
    rows projected on them)] of parts (N, D), float32 arrays or Parts whose columns have mean 0.

    Unit vectors in order of decreasing variance, each with its largest element positive, from the
    eigenvectors of the smaller of rows' rows (D, D) and rows rows' (N, N) in float32 (LAPACK's
    ssyevr on one thread, or cuSOLVER's syevd): bit-identical for any number of threads. Directions
    without variance are zeros. Raises RunFailed for values that are not finite.
    """
    grams = [_gram(part, library) for part in parts]
    totals = [float(library.download(gram.trace(dtype=np.float64))) for gram in grams]
    if not np.isfinite(totals).all():
        raise RunFailed(NOT_FINITE.format(""))
    # One thread computes the eigenvectors of a part, so on a CPU two parts' take as long as one's.
    pairs = library.each(lambda gram: library.largest_eigenvectors(gram, count), grams)
    del grams
    return [
        _components(part, *map(library.download, eigen), total, library)
        for part, eigen, total in zip(parts, pairs, totals, strict=True)
    ]


def _is_tall(rows):
    return rows.shape[0] >= rows.shape[1]


def _row_blocks(rows):
    """The rows (n, D), block by block."""
    size = max(1, BLOCK_NUMBERS // rows.shape[1])
    return (rows[start : start + size, :] for start in range(0, rows.shape[0], size))


def _column_blocks(rows):
    """(columns, the rows' numbers there (N, n)), block by block."""
    size = max(1, BLOCK_NUMBERS // rows.shape[0] // BLOCK_COLUMNS) * BLOCK_COLUMNS
    for start in range(0, rows.shape[1], size):
        yield slice(start, start + size), rows[:, start : start + size]


def _gram(rows, library):
    """The smaller of rows' rows and rows rows', the library's array, its upper half at least."""
    blocks = _row_blocks(rows) if _is_tall(rows) else (block.T for _, block in _column_blocks(rows))
    total = library.gram(next(blocks))
    for block in blocks:
        total += library.gram(block)
    return total


def _components(rows, values, vectors, total, library):
    """As principal_components, of the largest eigenvalues and their vectors, the largest last."""
    values, vectors = np.maximum(values[::-1], 0), np.ascontiguousarray(vectors[:, ::-1])
    significant = values > 1e-6 * values[0]
    share = float(values[significant].sum() / total) if total else 0.0
    if _is_tall(rows):
        components = vectors * _signs(vectors.max(axis=0), vectors.min(axis=0), significant)
        project = library.multiplier(components)
        return components, share, np.concatenate([project(block) for block in _row_blocks(rows)])
    # rows = U S V': the vectors are U, so the components are rows' U / S, and rows V is U S
    lengths = np.sqrt(np.where(significant, values, 1)).astype(np.float32)
    components = np.empty((rows.shape[1], len(values)), np.float32)
    project = library.multiplier(vectors)
    for columns, block in _column_blocks(rows):
        np.divide(project(block.T), lengths, out=components[columns])
    signs = _signs(components.max(axis=0), components.min(axis=0), significant)
    components *= signs
    vectors *= lengths * signs
    return components, share, vectors


def _signs(largest, smallest, significant):
    """float32 1 or -1 for each column, so that its largest element is positive; 0 unless it is
    significant.
    """
    return np.where(significant, np.where(largest >= -smallest, 1, -1), 0).astype(np.float32)
