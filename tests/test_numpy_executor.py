"""The cpu rung's operations against their definitions and against finite differences, in float64."""

import numpy as np
import pytest

import references
from ladder.numpy_executor import OPERATIONS, Executor

CONVOLUTIONS = [   # images, height, width, channels, filters, kernel, padding
    (1, 4, 4, 1, 1, 3, 1),
    (3, 5, 7, 2, 3, 3, 1),
    (2, 6, 5, 3, 2, 5, 2),
    (2, 5, 6, 1, 4, 3, 0),
    (5, 3, 3, 2, 2, 1, 0),
    (2, 4, 6, 3, 17, 3, 1),
]


@pytest.fixture(params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def executor(request):
    return Executor(request.param)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(np.float32)


def convolve(executor, x, weight, bias, padding, relu=False, pool=False):
    """What conv2d_forward writes: y and, with pool, the places of the maxima. Outputs start as NaN."""
    filters, kernel = weight.shape[:2]
    height, width = (size + 2 * padding - kernel + 1 for size in x.shape[1:3])
    shape = (len(x), height // 2, width // 2, filters) if pool else (len(x), height, width, filters)
    y, index = np.full(shape, np.nan, x.dtype), np.full(shape, 99, np.uint8) if pool else None
    OPERATIONS["conv2d_forward"](executor, x, weight, bias, y, padding, relu, index)
    return y, index


@pytest.mark.parametrize("pool", [False, True], ids=["", "pool"])
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_is_its_definition_exactly_on_small_integers(executor, shape, relu, pool):
    images, height, width, channels, filters, kernel, padding = shape
    x, weight, bias = integers(images, height, width, channels), integers(filters, kernel, kernel, channels), integers(filters)
    expected = references.conv2d(x, weight, bias, padding)
    if pool:
        expected, place = references.maxpool2d(expected)
    expected = references.relu(expected) if relu else expected
    y, index = convolve(executor, x, weight, bias, padding, relu, pool)
    assert np.array_equal(y, expected)
    assert not pool or np.array_equal(index, place)


@pytest.mark.parametrize("pool", [False, True], ids=["", "pool"])
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_gradients_are_finite_differences(executor, shape, relu, pool):
    images, height, width, channels, filters, kernel, padding = shape
    x, weight, bias = normal(images, height, width, channels), normal(filters, kernel, kernel, channels), normal(filters)
    y, index = convolve(executor, x, weight, bias, padding, relu, pool)
    dy = normal(*y.shape, seed=1)
    dx, dweight, dbias = (np.full_like(value, np.nan) for value in (x, weight, bias))
    OPERATIONS["conv2d_backward"](executor, x, weight, y, dy, dweight, dbias, padding, relu, index, dx)

    def weighted():
        return np.sum(dy * convolve(executor, x, weight, bias, padding, relu, pool)[0])

    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert np.allclose(gradient, references.numerical_gradient(weighted, value), rtol=1e-6, atol=1e-7)


def upsample_convolve(executor, x, weight, bias, relu):
    collapsed = np.full((x.shape[3], 4, 4, len(weight)), np.nan, x.dtype)
    OPERATIONS["collapse_weight"](executor, weight, collapsed)
    y = np.full((len(x), 2 * x.shape[1], 2 * x.shape[2], len(weight)), np.nan, x.dtype)
    OPERATIONS["upsample_conv2d_forward"](executor, x, collapsed, bias, y, relu)
    return y, collapsed


UPSAMPLED = [(1, 1, 1, 1, 1), (3, 2, 3, 2, 3), (2, 3, 1, 3, 16), (5, 4, 3, 2, 18)]   # images, height, width, channels, filters


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("shape", UPSAMPLED, ids=str)
def test_upsample_conv2d_is_upsampling_then_convolution_exactly_on_small_integers(executor, shape, relu):
    images, height, width, channels, filters = shape
    x, weight, bias = integers(images, height, width, channels), integers(filters, 3, 3, channels), integers(filters)
    expected = references.conv2d(references.upsample2d(x), weight, bias, 1)
    y, _ = upsample_convolve(executor, x, weight, bias, relu)
    assert np.array_equal(y, references.relu(expected) if relu else expected)


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("shape", UPSAMPLED, ids=str)
def test_upsample_conv2d_gradients_are_finite_differences(executor, shape, relu):
    images, height, width, channels, filters = shape
    x, weight, bias = normal(images, height, width, channels), normal(filters, 3, 3, channels), normal(filters)
    y, collapsed = upsample_convolve(executor, x, weight, bias, relu)
    dy = normal(*y.shape, seed=1)
    dx, dweight, dbias = (np.full_like(value, np.nan) for value in (x, weight, bias))
    OPERATIONS["upsample_conv2d_backward"](executor, x, collapsed, y, dy, dweight, dbias, relu, dx)

    def weighted():
        return np.sum(dy * upsample_convolve(executor, x, weight, bias, relu)[0])

    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert np.allclose(gradient, references.numerical_gradient(weighted, value), rtol=1e-6, atol=1e-7)


def test_relu_and_its_gradient(executor):
    x, dy = normal(3, 5, 4, 2), normal(3, 5, 4, 2, seed=1)
    x[0, 0, 0] = 0
    y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
    OPERATIONS["relu_forward"](executor, x, y)
    OPERATIONS["relu_backward"](executor, y, dy, dx)
    assert np.array_equal(y, references.relu(x))
    assert np.array_equal(dx, np.where(x > 0, dy, 0))


@pytest.mark.parametrize("shape", [(1, 2, 2, 1), (3, 5, 7, 2), (4, 6, 3, 5)], ids=str)
def test_maxpool2d_takes_the_first_maximum_and_sends_its_gradient_there_alone(executor, shape):
    x = integers(*shape)   # few values, so many ties
    expected, place = references.maxpool2d(x)
    y, index, dx = np.full(expected.shape, np.nan, np.float32), np.full(expected.shape, 99, np.uint8), np.full_like(x, np.nan)
    OPERATIONS["maxpool2d_forward"](executor, x, y, index)
    assert np.array_equal(y, expected)
    assert np.array_equal(index, place)

    dy = integers(*y.shape, seed=1)
    OPERATIONS["maxpool2d_backward"](executor, dy, index, dx)
    wanted = np.zeros_like(x)
    for image, row, column, channel in np.ndindex(dy.shape):
        down, right = divmod(int(place[image, row, column, channel]), 2)
        wanted[image, 2 * row + down, 2 * column + right, channel] = dy[image, row, column, channel]
    assert np.array_equal(dx, wanted)


def test_upsample2d_repeats_pixels_and_adds_up_their_gradients(executor):
    x, dy = integers(3, 2, 5, 2), integers(3, 4, 10, 2, seed=1)
    y, dx = np.full(dy.shape, np.nan, np.float32), np.full_like(x, np.nan)
    OPERATIONS["upsample2d_forward"](executor, x, y)
    OPERATIONS["upsample2d_backward"](executor, dy, dx)
    assert np.array_equal(y, references.upsample2d(x))
    assert np.array_equal(dx, dy.reshape(3, 2, 2, 5, 2, 2).sum(axis=(2, 4)))


@pytest.mark.parametrize("divisor", [1, 24])
def test_mse_is_the_mean_over_all_elements_and_its_gradient_has_the_divisor(executor, divisor):
    prediction, target = normal(4, 3, 1, 2), normal(4, 3, 1, 2, seed=1)
    gradient, losses = np.full_like(prediction, np.nan), np.full(3, np.nan)
    OPERATIONS["mse"](executor, prediction, target, np.array([7, 0, 2]), gradient, losses, divisor)
    assert losses[2] == pytest.approx(np.mean((prediction - target) ** 2), rel=1e-14)
    assert np.isnan(losses[:2]).all()

    def scaled():
        return np.sum((prediction - target) ** 2) / divisor

    assert np.allclose(gradient, references.numerical_gradient(scaled, prediction), rtol=1e-8)


def test_load_batch_gathers_the_permuted_rows_scales_them_and_mirrors_them(executor):
    images = np.random.default_rng(0).integers(0, 256, (9, 4, 3, 2), dtype=np.uint8)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 2]), np.float32([1, -3])
    for flip in (False, True):
        batch = np.full((4, 4, 3, 2), np.nan, np.float32)
        OPERATIONS["load_batch"](executor, images, permutation, np.array([0, 5, 0]), scale, offset, batch, flip)
        rows = images[permutation[5:9]].astype(np.float32)
        assert np.array_equal(batch, (rows[:, :, ::-1] if flip else rows) * scale + offset)


UPDATES = {   # (rule on scalars as the papers state it): state -> new state and parameter
    "sgd": lambda g, w, s, t, lr: (w - lr * g, {}),
    "momentum": lambda g, w, s, t, lr: (w - lr * (0.8 * s["velocity"] + g), {"velocity": 0.8 * s["velocity"] + g}),
    "rmsprop": lambda g, w, s, t, lr: (
        w - lr * g / (np.sqrt(0.99 * s["square"] + 0.01 * g * g) + 1e-8), {"square": 0.99 * s["square"] + 0.01 * g * g}),
    "adam": lambda g, w, s, t, lr: (
        w - lr * ((0.9 * s["mean"] + 0.1 * g) / (1 - 0.9 ** t))
        / (np.sqrt((0.999 * s["square"] + 0.001 * g * g) / (1 - 0.999 ** t)) + 1e-8),
        {"mean": 0.9 * s["mean"] + 0.1 * g, "square": 0.999 * s["square"] + 0.001 * g * g}),
}


@pytest.mark.parametrize("clip", [0, 0.5])
@pytest.mark.parametrize("weight_decay", [0, 0.1])
@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_their_formulas_over_several_steps(executor, name, weight_decay, clip):
    parameter, rates = normal(3, 5), np.array([0.1, 0.05, 0.2])
    expected = parameter.copy()
    averages = {key: np.zeros_like(parameter) for key in {"momentum": ["velocity"], "rmsprop": ["square"],
                                                          "adam": ["mean", "square"]}.get(name, [])}
    state = {key: value.copy() for key, value in averages.items()}
    extra = {"momentum": 0.8} if name == "momentum" else {}
    for step in range(3):
        gradient = normal(3, 5, seed=step)
        g = (np.clip(gradient, -clip, clip) if clip else gradient) + weight_decay * expected
        expected, state = UPDATES[name](g, expected, state, step + 1, rates[step])
        OPERATIONS[f"{name}_update"](executor, parameter=parameter, gradient=gradient, learning_rates=rates,
                                     counters=np.array([step, 0, 0]), weight_decay=weight_decay, clip=clip, **averages, **extra)
        assert np.allclose(parameter, expected, rtol=1e-12, atol=1e-14)
