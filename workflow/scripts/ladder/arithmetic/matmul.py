"""float32 matrix products cut into fixed-size pieces, so results are bit-identical for any number
of threads.
"""

import concurrent.futures

import numpy as np

from ladder.machine import runtime
from ladder.progress import bar

SHARE = 512  # rows per piece of a product
TILE = 512  # columns per piece of a Gram matrix


def product(rows, matrix, threads):
    """rows @ matrix: float32 (N, n) of rows (N, D) and matrix (D, n) float32."""
    out = np.empty((len(rows), matrix.shape[1]), np.float32)

    def share(start):
        np.matmul(rows[start : start + SHARE], matrix, out=out[start : start + SHARE])

    for_each(share, range(0, len(rows), SHARE), threads)
    return out


def gram(columns, threads):
    """columns.T @ columns, float32 (D, D), of columns (N, D) float32; below the diagonal only part
    of it is computed.
    """
    size = columns.shape[1]
    out = np.zeros((size, size), np.float32, order="F")

    def tile(start):
        out[start : start + TILE, start:] = columns[:, start : start + TILE].T @ columns[:, start:]

    for_each(tile, range(0, size, TILE), threads)
    return out


def for_each(work, items, threads, label="", unit=""):
    """The results of work(item) for all items in order, computed on `threads` threads, each with
    single-threaded BLAS.

    label, unit: of the progress bar; without a label there is none.
    """
    with runtime.one_blas_thread(), concurrent.futures.ThreadPoolExecutor(threads) as pool:
        results = pool.map(work, items)
        return list(bar(results, label, unit, total=len(items)) if label else results)
