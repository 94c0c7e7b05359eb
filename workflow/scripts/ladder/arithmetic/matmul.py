"""Matrix products in float32, in pieces that do not depend on the number of threads, so that their bits do not either."""

import concurrent.futures

import numpy as np
import threadpoolctl

from ladder.progress import bar

SHARE = 256   # rows of a product at a time
TILE = 512    # columns of a matrix's product with itself at a time


def product(rows, matrix, threads):
    """rows @ matrix: float32 (N, n) of rows (N, D) and matrix (D, n) float32."""
    out = np.empty((len(rows), matrix.shape[1]), np.float32)

    def share(start):
        np.matmul(rows[start:start + SHARE], matrix, out=out[start:start + SHARE])

    for_each(share, range(0, len(rows), SHARE), threads)
    return out


def gram(columns, threads):
    """columns.T @ columns: the upper triangle, and some of what lies below it, float32 (D, D), of columns (N, D) float32."""
    size = columns.shape[1]
    out = np.zeros((size, size), np.float32, order="F")

    def tile(start):
        out[start:start + TILE, start:] = columns[:, start:start + TILE].T @ columns[:, start:]

    for_each(tile, range(0, size, TILE), threads)
    return out


def for_each(work, items, threads, label="", unit=""):
    """Call work(item) for each of the items, on so many threads, each with BLAS on one; returns the results in order.

    label, unit: of a progress bar; none without a label.
    """
    with threadpoolctl.threadpool_limits(1, user_api="blas"), concurrent.futures.ThreadPoolExecutor(threads) as pool:
        found = pool.map(work, items)
        return list(bar(found, label, unit, total=len(items)) if label else found)
