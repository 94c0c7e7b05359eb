"""How the cpu rung cuts products: ladder/executors/cpu/blocks.py."""

import numpy as np
import pytest

from ladder.executors.cpu import blocks


def _multiplications(monkeypatch, left, right, out):
    """Multiplications of each product that NumPy hands to BLAS in blocks.multiply."""
    called = []

    def matmul(left, right, out):
        called.extend([left.shape[1] * right.size] * len(left))
        return original(left, right, out=out)

    original = np.matmul
    monkeypatch.setattr(np, "matmul", matmul)
    blocks.multiply(left, right, out)
    return called


# LeNet-5's second convolution, odd parts of a few images, one part, a number of rows without
# divisors, and many weights.
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((800, 150, 16), 2),
        ((605, 144, 32), 5),
        ((64, 9, 4), 1),
        ((6007, 150, 16), 1),
        ((300, 576, 64), 1),
        ((3, 2000, 1000), 1),
    ],
    ids=str,
)
def test_a_product_in_parts_is_the_product_exactly_on_small_integers(
    monkeypatch, shape, parts, turned
):
    rows, width, columns = shape
    random = np.random.default_rng(0)
    left = random.integers(-4, 5, (width, rows) if turned else (rows, width)).astype(np.float32)
    left = left.T if turned else left
    right, out = (
        random.integers(-4, 5, (width, columns)).astype(np.float32),
        np.full((rows, columns), np.nan, np.float32),
    )
    called = _multiplications(monkeypatch, left, right, out)
    assert called == [rows // parts * width * columns] * parts
    np.testing.assert_array_equal(out, (left.astype(np.int64) @ right.astype(np.int64)))


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
def test_the_bias_gradient_of_a_pooled_convolution_needs_the_pooled_pixels_only(relu):
    random = np.random.default_rng(0)
    y, dy = (random.integers(-4, 5, (3, 2, 3, 5)).astype(np.float32) for _ in range(2))
    y = np.maximum(y, 0) if relu else y
    index = random.integers(0, 4, y.shape).astype(np.uint8)
    gradient, worker = blocks.Gradient(y, dy, relu, index, (5, 7, 5)), Worker()
    whole = gradient.of_block(worker, slice(1, 3))
    seen = gradient.for_bias(worker, slice(1, 3), whole)
    assert seen.size == y[1:3].size
    np.testing.assert_array_equal(blocks.bias_gradient(seen), whole.sum(axis=(0, 1, 2)))


class Worker:
    """A thread's workspace without reuse, and no clock."""

    def workspace(self, name, shape, dtype):
        return np.full(shape, np.nan, dtype)

    def lap(self, label):
        pass
