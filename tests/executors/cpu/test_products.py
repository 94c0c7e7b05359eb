"""Products of compiled code: exact on small integers in every size of a tile, and nothing written
beside them.
"""

import numba
import numpy as np
import pytest

from ladder.executors.cpu import products

FLOATS = [np.float32, np.float64]
LANES = {dtype: products.REGISTER // np.dtype(dtype).itemsize for dtype in FLOATS}


@numba.njit
def _multiply(address, out, rows, columns, left, right, outer, inner, add, like):
    products.product(
        address,
        products.Rows(*out),
        rows,
        columns,
        products.Strided(*left),
        products.Rows(*right),
        outer,
        inner,
        add,
        like,
    )


def multiply(out, rows, columns, left, steps, right, outer, inner, add=False):
    """steps: of left's rows, outer and inner terms."""
    _multiply(
        products.compiled_product(out.dtype).address,
        (out.ctypes.data, out.shape[1]),
        rows,
        columns,
        (left.ctypes.data, *steps),
        (right.ctypes.data, right.shape[1]),
        outer,
        inner,
        add,
        out.dtype.type(0),
    )


def integers(*shape, dtype):
    return np.random.default_rng(shape).integers(-9, 10, shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("add", [False, True])
def test_every_tile_is_exact_and_leaves_what_is_beside_it(dtype, add):
    lanes, rows = LANES[dtype], max(products.MOST_ROWS) + 2
    right = integers(7, products.VECTORS * lanes + 9, dtype=dtype)
    left = integers(rows, 7, dtype=dtype)
    for height in range(1, rows + 1):
        for width in (
            1,
            lanes - 1,
            lanes,
            lanes + 1,
            2 * lanes,
            3 * lanes + 1,
            4 * lanes,
            products.VECTORS * lanes + 5,
        ):
            columns = min(width, right.shape[1])
            out = integers(rows + 1, right.shape[1] + 1, dtype=dtype)
            expected = out.copy()
            expected[:height, :columns] = left[:height] @ right[:, :columns] + (
                expected[:height, :columns] if add else 0
            )
            multiply(out, height, columns, left, (7, 0, 1), right, 1, 7, add)
            assert np.array_equal(out, expected), (height, columns)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_factor_may_be_transposed_or_have_more_terms_than_are_added_at_a_time(dtype):
    terms = 2 * products.SUM_TERMS + 3
    left, right = integers(terms, 5, dtype=dtype), integers(terms, 6, dtype=dtype)
    out = np.empty((5, 6), dtype)
    multiply(out, 5, 6, left, (1, 0, 5), right, 1, terms)
    assert np.array_equal(out, left.T @ right)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_windows_of_a_row_of_an_image_are_a_factor(dtype):
    # windows of 4x2 pixels, 2 apart
    image, weight = integers(4, 9, 3, dtype=dtype), integers(4 * 2 * 3, 5, dtype=dtype)
    out = np.empty((4, 5), dtype)
    multiply(out, 4, 5, image, (2 * 3, 9 * 3, 1), weight, 4, 2 * 3)
    windows = np.stack([image[:, 2 * q : 2 * q + 2].reshape(-1) for q in range(4)])
    assert np.array_equal(out, windows @ weight)


def test_a_number_is_the_sum_of_its_terms_in_order_whatever_the_tile():
    left = np.random.default_rng(0).standard_normal((23, 300), np.float32)
    right = np.random.default_rng(1).standard_normal((300, 70), np.float32)
    whole = np.empty((23, 70), np.float32)
    multiply(whole, 23, 70, left, (300, 0, 1), right, 1, 300)
    for row in range(23):
        one = np.empty((1, 70), np.float32)
        multiply(one, 1, 70, left[row:], (300, 0, 1), right, 1, 300)
        assert one.tobytes() == whole[row].tobytes()


@numba.njit
def _add_run(out, x, count, like):
    products.add_run(out, x, count, like)


@pytest.mark.parametrize("dtype", FLOATS)
def test_add_run_adds_as_many_numbers_as_it_is_told(dtype):
    for count in range(2 * LANES[dtype] + 2):
        out, x = integers(50, dtype=dtype), integers(51, dtype=dtype)
        expected = out + np.where(np.arange(50) < count, x[:50], 0)
        _add_run(out.ctypes.data, x.ctypes.data, count, out.dtype.type(0))
        assert np.array_equal(out, expected)
