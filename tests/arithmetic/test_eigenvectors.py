"""Eigenvectors have SciPy's bits, and Python goes on while LAPACK computes."""

import threading
import time

import numpy as np
import pytest
import scipy.linalg

from ladder.arithmetic import eigenvectors
from ladder.machine import runtime


def gram(size):
    rows = np.random.default_rng(size).standard_normal((size, size + 3)).astype(np.float32)
    return rows @ rows.T


@pytest.mark.parametrize("size, count", [(1, 1), (5, 5), (150, 20)])
def test_the_largest_have_the_bits_of_scipy_and_the_matrix_stays(size, count):
    matrix = gram(size)
    upper = np.triu(matrix) + np.tril(np.full_like(matrix, np.nan), -1)
    before = upper.tobytes()
    with runtime.one_blas_thread():
        own = eigenvectors.largest(upper, count)
        theirs = scipy.linalg.eigh(matrix, lower=False, driver="evr", subset_by_index=[size - count, size - 1])
    assert all(np.array_equal(a, b) for a, b in zip(own, theirs, strict=True)) and upper.tobytes() == before
    np.testing.assert_allclose(matrix.astype(np.float64) @ own[1], own[1] * own[0].astype(np.float64), rtol=0,
                               atol=1e-5 * own[0][-1])


def test_python_goes_on_while_lapack_computes():
    """With Python's lock kept, as by scipy.linalg.eigh, this thread would wake before and after the call alone."""
    matrix, inside, awake = gram(1200), threading.Event(), 0

    def work():
        inside.set()
        eigenvectors.largest(matrix, 300)
        inside.clear()

    with runtime.one_blas_thread():
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)
            awake += inside.is_set()
    assert awake > 40
