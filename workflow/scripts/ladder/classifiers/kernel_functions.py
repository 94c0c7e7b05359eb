"""Kernel functions of two sets of rows in float32, and the values of gamma `scale` and `auto`."""

import dataclasses
import math

import numpy as np

from ladder.arithmetic import matmul

KERNELS = ("rbf", "linear", "poly")
DEGREE, COEF0 = 3, 0.0  # of poly, scikit-learn's defaults
CHUNK = 256  # rows per piece of a sum of squares
CHUNK_VALUES = 2**18  # values per piece of elementwise work, which stays in the cache
PIECE = 512  # rows per piece of a product


@dataclasses.dataclass(frozen=True)
class Kernel:
    """name: rbf exp(-gamma |x-y|^2), linear x.y, poly (gamma x.y + coef0)^degree, or distance
    -|x-y|^2, of which rbf kernels of several gammas are made (of_distances).

    odd: number of last columns whose common sign means nothing, for rbf alone. The value is then
    the mean over both signs of these columns of x, a Haar integration kernel (Haasdonk and
    Burkhardt, 2007).
    """

    name: str
    gamma: float
    degree: int = DEGREE
    coef0: float = COEF0
    odd: int = 0

    def settings(self):
        """Keyword arguments of SVC in scikit-learn, scikit-learn-intelex and cuML."""
        return {
            "kernel": self.name,
            "gamma": self.gamma,
            "degree": self.degree,
            "coef0": self.coef0,
        }

    def block(self, x, x_norms, y, y_norms, threads=1, xp=np):
        """Kernel values (n, m) float32 of rows x (n, D) and y (m, D) float32, given their
        squared_norms; all arrays of xp.

        Bit-identical for any number of threads.
        """
        if xp is not np:  # a GPU spreads a whole block itself
            return self._on_gpu(x, x_norms, y, y_norms, xp)
        values = np.empty((len(x), len(y)), np.float32)
        matmul.for_each(
            lambda start: self._fill(
                values[start : start + PIECE],
                x[start : start + PIECE],
                x_norms[start : start + PIECE],
                y,
                y_norms,
            ),
            range(0, len(x), PIECE),
            threads,
        )
        return values

    def own(self, rows, xp=np):
        """Kernel values (N,) float32 of rows (N, D) with themselves, of rbf: 1 without odd
        columns.
        """
        odd = squared_norms(rows[:, rows.shape[1] - self.odd :], xp)
        return (1 + xp.exp(np.float32(-4 * self.gamma) * odd)) / 2

    def within(self, x, norms, threads=1, xp=np):
        """Kernel values (n, n) float32 of all pairs of rows x (n, D), as `block`; on the CPU, half
        of them are computed.
        """
        if xp is not np:
            return self.block(x, norms, x, norms, xp=xp)
        values, starts = np.empty((len(x), len(x)), np.float32), range(0, len(x), PIECE)

        def compute(start):
            rows = slice(start, start + PIECE)
            self._fill(values[rows, start:], x[rows], norms[rows], x[start:], norms[start:])

        def mirror(start):
            values[start : start + PIECE, :start] = values[:start, start : start + PIECE].T

        for work in (compute, mirror):
            matmul.for_each(work, starts, threads)
        return values

    def of_distances(self, distances, xp=np):
        """Kernel values (n, m) float32, of rbf, of what `distances` returns; the same bytes as
        those of `block` without odd columns.
        """
        values, *other = [np.float32(self.gamma) * each for each in distances]
        xp.exp(values, out=values)
        for each in other:
            values += xp.exp(each, out=each)
            values *= np.float32(0.5)
        return values

    def _fill(self, values, x, x_norms, y, y_norms):
        step = max(1, CHUNK_VALUES // len(y))
        pieces = [slice(start, start + step) for start in range(0, len(x), step)]
        if not self.odd:
            np.matmul(x, y.T, out=values)
            for rows in pieces:
                self._finish(values[rows], x_norms[rows], y_norms, np)
            return
        # The product of the even columns serves either sign: both take one product of all columns,
        # not two.
        even = x.shape[1] - self.odd
        np.matmul(x[:, even:], y[:, even:].T, out=values)
        evens = np.matmul(x[:, :even], y[:, :even].T)
        for rows in pieces:
            self._finish_either_sign(values[rows], evens[rows], x_norms[rows], y_norms)

    def _finish_either_sign(self, odd, even, x_norms, y_norms):
        """Turn dot products of the odd and of the even columns into kernel values, in `odd`."""
        other = even - odd
        odd += even
        for products in (odd, other):
            self._finish(products, x_norms, y_norms, np)
        odd += other
        odd *= np.float32(0.5)

    def _on_gpu(self, x, x_norms, y, y_norms, xp):
        values = x @ y.T
        self._finish(values, x_norms, y_norms, xp)
        if self.odd:
            other = x.copy()
            other[:, -self.odd :] *= -1
            values += dataclasses.replace(self, odd=0)._on_gpu(other, x_norms, y, y_norms, xp)
            values *= np.float32(0.5)
        return values

    def _finish(self, products, x_norms, y_norms, xp):
        """Turn dot products into kernel values, in place."""
        gamma = np.float32(self.gamma)
        if self.name in ("rbf", "distance"):
            products *= 2
            products -= x_norms[:, None] + y_norms
            xp.minimum(products, 0, out=products)
        if self.name == "rbf":
            products *= gamma
            xp.exp(products, out=products)
        elif self.name == "poly":
            products *= gamma
            products += np.float32(self.coef0)
            xp.power(products, self.degree, out=products)


def distances(x, x_norms, y, y_norms, odd, threads=1, xp=np):
    """-|x - y|^2 (n, m) float32 of rows as for Kernel.block, of either sign of x's last `odd`
    columns: one matrix, or two. Of x that is y half of the first is computed.
    """
    distance = Kernel("distance", gamma=1)
    if x is y:
        first = distance.within(x, x_norms, threads, xp)
    else:
        first = distance.block(x, x_norms, y, y_norms, threads, xp)
    if not odd:
        return [first]
    other = x.copy()
    other[:, -odd:] *= -1
    return [first, distance.block(other, x_norms, y, y_norms, threads, xp)]


def squared_norms(rows, xp=np):
    """|row|^2 (N,) float32 of rows (N, D), summed in float64; both arrays of xp."""
    norms, step = xp.empty(len(rows), np.float32), CHUNK_VALUES // (rows.shape[1] + 1) + 1
    for start in range(0, len(rows), step):
        wide = rows[start : start + step].astype(np.float64)
        norms[start : start + step] = xp.einsum("ij,ij->i", wide, wide)
    return norms


def weighted_sums(kernel, rows, known, weights, center, library, label):
    """Sum over the known rows of kernel value x weight: float64 (M, k), for rows (M, D), which may
    be memory-mapped.

    known: float32 (n, D) minus `center` (D,), read whole; weights: float64 or float32 (n, k), in
    whose type values are weighted; library: see arrays.py. A GPU holds a block of the rows, and all
    the known ones if they fit, else a block of them too.
    """
    xp, wide = library.xp, np.dtype(weights.dtype).itemsize
    side, part_side = library.blocks(len(known), 3 * 4 * known.shape[1], 4 + 4 + wide)
    known = library.keep(np.asarray(known))
    uploaded, middle = library.upload(weights), library.upload(center)
    parts = [slice(start, start + part_side) for start in range(0, len(known), part_side)]
    norms = [squared_norms(library.upload(known[part]), xp) for part in parts]

    def sums(start):
        centred = library.upload(np.asarray(rows[start : start + side], np.float32)) - middle
        lengths, total = squared_norms(centred, xp), 0.0
        for part, part_norms in zip(parts, norms, strict=True):
            values = kernel.block(centred, lengths, library.upload(known[part]), part_norms, xp=xp)
            total = total + values.astype(uploaded.dtype, copy=False) @ uploaded[part]
        return library.download(total).astype(np.float64)

    return np.concatenate(library.each(sums, range(0, len(rows), side), label, "block"))


def resolve_gamma(gamma, features):
    """gamma as a number; 'scale' and 'auto' as defined by scikit-learn."""
    if gamma == "auto":
        return 1.0 / features.shape[1]
    if gamma == "scale":
        spread = _variance(features)
        return 1.0 / (features.shape[1] * spread) if spread > 0 else 1.0
    return float(gamma)


def _variance(features):
    """Variance of all elements in float64, without a float64 copy of the features."""
    count = math.prod(features.shape)
    chunks = [slice(start, start + CHUNK) for start in range(0, len(features), CHUNK)]
    mean = sum(np.sum(features[chunk], dtype=np.float64) for chunk in chunks) / count
    return (
        sum(np.square(features[chunk].astype(np.float64) - mean).sum() for chunk in chunks) / count
    )
