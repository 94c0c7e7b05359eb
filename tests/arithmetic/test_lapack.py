"""What LAPACK computes is right to the bit or against float64, and Python goes on meanwhile."""

import threading
import time

import numpy as np
import pytest
import scipy.linalg

from ladder.arithmetic import lapack
from ladder.machine import runtime


def gram(size):
    rows = np.random.default_rng(size).standard_normal((size, size + 3)).astype(np.float32)
    return rows @ rows.T


@pytest.mark.parametrize("size, count", [(1, 1), (5, 5), (150, 20)])
def test_the_largest_have_the_bits_of_scipy(size, count):
    matrix = gram(size)
    upper = np.triu(matrix) + np.tril(np.full_like(matrix, np.nan), -1)
    with runtime.one_blas_thread():
        own = lapack.largest_eigenvectors(upper, count)
        theirs = scipy.linalg.eigh(
            matrix, lower=False, driver="evr", subset_by_index=[size - count, size - 1]
        )
    assert all(np.array_equal(a, b) for a, b in zip(own, theirs, strict=True))
    np.testing.assert_allclose(
        matrix.astype(np.float64) @ own[1],
        own[1] * own[0].astype(np.float64),
        rtol=0,
        atol=1e-5 * own[0][-1],
    )


@pytest.mark.parametrize("size", [1, 2, 150])
def test_the_inverse_of_the_factor_takes_the_place_of_the_lower_half(size):
    whole = gram(size).astype(np.float64) + size * np.eye(size)
    expected, lower = np.linalg.inv(np.linalg.cholesky(whole)), np.tril(whole)
    assert lapack.inverse_of_factor(lower) is lower
    np.testing.assert_allclose(lower, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_a_matrix_that_is_not_positive_definite_has_no_factor():
    with pytest.raises(np.linalg.LinAlgError, match="dpotrf ended with 2"):
        lapack.inverse_of_factor(np.diag([1.0, 0.0, 1.0]))


@pytest.mark.parametrize(
    "compute",
    [
        lambda: lapack.largest_eigenvectors(gram(1200), 300),
        lambda: lapack.inverse_of_factor(np.eye(3000)),
    ],
)
def test_python_goes_on_while_lapack_computes(compute):
    """With Python's lock kept, as by scipy.linalg, this thread would wake before and after the call
    alone.
    """
    inside, awake = threading.Event(), 0

    def work():
        inside.set()
        compute()
        inside.clear()

    with runtime.one_blas_thread():
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)
            awake += inside.is_set()
    assert awake > 40
