"""The cpu rung's convolutions under a multiplier against sums of single products, in float64."""

import numpy as np
import pytest

import cpu_rung
import references
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS, multiply
from ladder.executors import create as executors
from ladder.executors.cpu import approximate as operations

# images, height, width, channels, filters, kernel, stride, padding
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1, 0),
    (3, 5, 7, 2, 5, 3, 1, 1),
    (5, 9, 8, 3, 4, 3, 2, 1),
    (2, 7, 6, 5, 20, 5, 2, 2),
    (4, 6, 6, 1, 6, 5, 1, 0),
    (7, 1, 1, 33, 10, 1, 1, 0),
]
NAMED = {**MULTIPLIERS, **FORMATS}


def case(shape, seed=0):
    images, height, width, channels, filters, kernel, stride, padding = shape
    random = np.random.default_rng(seed)
    out = tuple((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
    x, weight, bias, dy = (
        random.normal(size=size).astype(np.float32)
        for size in (
            (images, height, width, channels),
            (filters, kernel, kernel, channels),
            (filters,),
            (images, *out, filters),
        )
    )
    return x, weight, bias, dy, {"stride": stride, "padding": padding}


def products(a, b, name):
    """float64 of the products that `name` makes."""
    return multiply(a, b, NAMED[name]).astype(np.float64)


def patches(x, kernel, stride, padding):
    """(images, rows, columns, kernel, kernel, channels): each window's pixels."""
    padded = references.pad(x, padding) if padding else x
    seen = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))[
        :, ::stride, ::stride
    ]
    return np.ascontiguousarray(seen.transpose(0, 1, 2, 4, 5, 3))


def close(found, expected, magnitudes):
    """Within the error of float32 sums of these total magnitudes."""
    return (np.abs(found - expected) <= 1e-6 * np.maximum(magnitudes, 1e-30)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", [name for name in NAMED if name != "exact"])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_direction_adds_up_the_products_of_its_definition(name, shape, threads, monkeypatch):
    if threads > 1:
        cpu_rung.cut_at_any_size(monkeypatch, cpu_rung.BY_IMAGE)
    x, weight, bias, dy, sliding = case(shape)
    executor, multiplier = executors.create("cpu", threads), NAMED[name]
    seen = patches(x, weight.shape[1], **sliding)

    y = np.full_like(dy, np.nan)
    operations.approximate_conv2d_forward(
        executor, x, weight, bias, y, multiplier=multiplier, **sliding
    )
    made = products(seen[..., None, :, :, :], weight, name)
    assert close(
        y, made.sum(axis=(4, 5, 6)) + bias, np.abs(made).sum(axis=(4, 5, 6)) + np.abs(bias)
    )

    dweight, dbias = np.full_like(weight, np.nan), np.full_like(bias, np.nan)
    operations.approximate_conv2d_weight_grad(
        executor, x, dy, dweight, dbias, multiplier=multiplier, **sliding
    )
    made = products(dy[..., None, None, None], seen[..., None, :, :, :], name)
    assert close(dweight, made.sum(axis=(0, 1, 2)), np.abs(made).sum(axis=(0, 1, 2)))
    assert close(dbias, dy.astype(np.float64).sum(axis=(0, 1, 2)), np.abs(dy).sum(axis=(0, 1, 2)))

    dx = np.full_like(x, np.nan)
    operations.approximate_conv2d_input_grad(
        executor, dy, weight, dx, multiplier=multiplier, **sliding
    )
    # (images, rows, columns, filters, kernel, kernel, channels)
    made = products(dy[..., None, None, None], weight, name)
    assert close(
        dx, scattered(made, x.shape, **sliding), scattered(np.abs(made), x.shape, **sliding)
    )


def scattered(made, shape, stride, padding):
    """The products of an output pixel with each tap, added to the input pixels under the taps."""
    images, height, width, channels = shape
    padded = np.zeros((images, height + 2 * padding, width + 2 * padding, channels))
    _, rows, columns, _, kernel, _, _ = made.shape
    for row, column, i, j in np.ndindex(rows, columns, kernel, kernel):
        padded[:, row * stride + i, column * stride + j] += made[:, row, column, :, i, j].sum(
            axis=1
        )
    return padded[:, padding : padding + height, padding : padding + width]
