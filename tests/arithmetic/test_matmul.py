"""Matrix products in pieces: correct, and bit-identical for any number of threads."""

import numpy as np
import pytest

from ladder.arithmetic import matmul as products

RNG = np.random.default_rng(0)
ROWS, MATRIX = (RNG.normal(size=shape).astype(np.float32) for shape in ((700, 1100), (1100, 90)))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_product_matches_float64_and_is_bit_identical_to_one_thread(threads):
    found = products.product(ROWS, MATRIX, threads)
    assert np.allclose(found, ROWS.astype(np.float64) @ MATRIX, atol=1e-3)
    assert found.tobytes() == products.product(ROWS, MATRIX, 1).tobytes()


@pytest.mark.parametrize("columns", [ROWS, ROWS.T], ids=["contiguous", "transposed"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_upper_triangle_of_a_gram_matrix(columns, threads):
    found = products.gram(columns, threads)
    assert np.allclose(np.triu(found), np.triu(columns.T.astype(np.float64) @ columns), atol=2e-3)
    assert found.tobytes() == products.gram(columns, 1).tobytes()


def test_an_error_in_a_piece_is_raised():
    with pytest.raises(ZeroDivisionError):
        products.for_each(lambda item: 1 // item, [1, 0], 2)
