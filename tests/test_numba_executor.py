"""The sequential rung's loops against their definitions, and the rung against the cpu rung."""

import numpy as np
import pytest

import references
from ladder import executors, networks, numba_executor, parity
from ladder.numba_executor import OPERATIONS
from ladder.rungs import cpu_sequential

CONVOLUTIONS = [   # images, height, width, channels, filters, kernel, padding
    (1, 4, 4, 1, 1, 3, 1),
    (3, 5, 7, 2, 3, 3, 1),
    (2, 6, 5, 3, 2, 5, 2),
    (2, 5, 6, 1, 4, 3, 0),
    (5, 3, 3, 2, 2, 1, 0),
]
NETWORK = networks.build("autoencoder")


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(np.float32)


def convolve(x, weight, bias, padding):
    height, width = (size + 2 * padding - weight.shape[1] + 1 for size in x.shape[1:3])
    y = np.full((len(x), height, width, len(weight)), np.nan, x.dtype)
    OPERATIONS["conv2d_forward"](x, weight, bias, y, padding)
    return y


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_is_its_definition_exactly_on_small_integers(shape):
    images, height, width, channels, filters, kernel, padding = shape
    x, weight, bias = integers(images, height, width, channels), integers(filters, kernel, kernel, channels), integers(filters)
    assert np.array_equal(convolve(x, weight, bias, padding), references.conv2d(x, weight, bias, padding))


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_gradients_are_finite_differences(shape):
    images, height, width, channels, filters, kernel, padding = shape
    x, weight, bias = normal(images, height, width, channels), normal(filters, kernel, kernel, channels), normal(filters)
    dy = normal(*convolve(x, weight, bias, padding).shape, seed=1)
    dx, dweight, dbias = (np.full_like(value, np.nan) for value in (x, weight, bias))
    OPERATIONS["conv2d_input_grad"](dy, weight, dx, padding)
    OPERATIONS["conv2d_weight_grad"](x, dy, dweight, padding)
    OPERATIONS["conv2d_bias_grad"](dy, dbias)

    def weighted():
        return np.sum(dy * convolve(x, weight, bias, padding))

    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert np.allclose(gradient, references.numerical_gradient(weighted, value), rtol=1e-6, atol=1e-7)


def test_relu_and_its_gradient():
    x, dy = integers(3, 5, 4, 2), normal(3, 5, 4, 2, seed=1).astype(np.float32)
    y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
    OPERATIONS["relu_forward"](x, y)
    OPERATIONS["relu_backward"](y, dy, dx)
    assert np.array_equal(y, references.relu(x))
    assert np.array_equal(dx, np.where(x > 0, dy, 0))


@pytest.mark.parametrize("shape", [(1, 2, 2, 1), (3, 5, 7, 2), (4, 6, 3, 5)], ids=str)
def test_maxpool2d_takes_the_first_maximum_and_sends_its_gradient_there_alone(shape):
    x = integers(*shape)   # few values, so many ties
    expected, place = references.maxpool2d(x)
    y, index, dx = np.full(expected.shape, np.nan, np.float32), np.full(expected.shape, 99, np.uint8), np.full_like(x, np.nan)
    OPERATIONS["maxpool2d_forward"](x, y, index)
    assert np.array_equal(y, expected) and np.array_equal(index, place)

    dy = integers(*y.shape, seed=1)
    OPERATIONS["maxpool2d_backward"](dy, index, dx)
    wanted = np.zeros_like(x)
    for image, row, column, channel in np.ndindex(dy.shape):
        down, right = divmod(int(place[image, row, column, channel]), 2)
        wanted[image, 2 * row + down, 2 * column + right, channel] = dy[image, row, column, channel]
    assert np.array_equal(dx, wanted)


def test_upsample2d_repeats_pixels_and_adds_up_their_gradients():
    x, dy = integers(3, 2, 5, 2), integers(3, 4, 10, 2, seed=1)
    y, dx = np.full(dy.shape, np.nan, np.float32), np.full_like(x, np.nan)
    OPERATIONS["upsample2d_forward"](x, y)
    OPERATIONS["upsample2d_backward"](dy, dx)
    assert np.array_equal(y, references.upsample2d(x))
    assert np.array_equal(dx, dy.reshape(3, 2, 2, 5, 2, 2).sum(axis=(2, 4)))


def test_mse_is_the_mean_over_all_elements_and_its_gradient_has_the_divisor():
    prediction, target = normal(4, 3, 1, 2), normal(4, 3, 1, 2, seed=1)
    gradient, losses = np.full_like(prediction, np.nan), np.full(3, np.nan)
    OPERATIONS["mse"](prediction, target, np.array([7, 0, 2]), gradient, losses, 24)
    assert losses[2] == pytest.approx(np.mean((prediction - target) ** 2), rel=1e-14)
    assert np.isnan(losses[:2]).all()
    assert np.allclose(gradient, 2 * (prediction - target) / 24, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_load_batch_gathers_the_permuted_rows_scales_them_and_mirrors_them(dtype):
    images = np.random.default_rng(0).integers(0, 256, (9, 4, 3, 2)).astype(dtype)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 1 / 3]), np.float32([1, -3])
    for flip in (False, True):
        batch = np.full((4, 4, 3, 2), np.nan, np.float32)
        OPERATIONS["load_batch"](images, permutation, np.array([0, 5, 0]), scale, offset, batch, flip)
        rows = images[permutation[5:9]].astype(np.float32)
        assert np.array_equal(batch, (rows[:, :, ::-1] if flip else rows) * scale + offset)


@pytest.mark.parametrize("clip", [0, 0.5])
@pytest.mark.parametrize("name", ["sgd", "momentum", "rmsprop", "adam"])
def test_updates_are_the_cpu_rungs_over_several_steps(name, clip):
    """Those are held against the papers' formulas in test_numpy_executor.py."""
    from ladder import numpy_executor, optimizers
    averages = optimizers.AVERAGES[name]
    extra = {"momentum": 0.8} if name == "momentum" else {}
    states = [{"parameter": normal(3, 5), **{average: np.zeros((3, 5)) for average in averages}} for _ in range(2)]
    for step in range(3):
        common = {"gradient": normal(3, 5, seed=step), "learning_rates": np.array([0.1, 0.05, 0.2]),
                  "counters": np.array([step, 0, 0]), "weight_decay": 0.1, "clip": clip, **extra}
        OPERATIONS[f"{name}_update"](**states[0], **common)
        numpy_executor.OPERATIONS[f"{name}_update"](numpy_executor.Executor(1), **states[1],
                                                    **common | {"gradient": common["gradient"].copy()})
        for key, value in states[0].items():
            np.testing.assert_allclose(value, states[1][key], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["relu_forward", "maxpool2d_forward", "sgd_update"])
def test_nan_is_not_lost(name):
    """A training that has diverged must show in the loss."""
    if name == "relu_forward":
        out = np.zeros(4, np.float32)
        OPERATIONS[name](np.array([1, np.nan, -1, 2], np.float32), out)
        assert np.isnan(out).tolist() == [False, True, False, False]
    elif name == "maxpool2d_forward":
        out = np.zeros((1, 1, 2, 1), np.float32)
        x = np.array([[1, 2, np.nan, 0], [np.nan, 3, 5, 6]], np.float32).reshape(1, 2, 4, 1)
        OPERATIONS[name](x, out, np.zeros(out.shape, np.uint8))
        assert np.isnan(out).all()
    else:
        parameter = np.ones(2, np.float32)
        OPERATIONS[name](parameter, np.array([np.nan, 9], np.float32), np.ones(1), np.zeros(3, np.int64), 0.0, 1.0)
        assert np.isnan(parameter).tolist() == [True, False]


@pytest.mark.parametrize("protocol", parity.PROTOCOLS)
def test_the_sequential_rung_passes_the_parity_protocol(protocol):
    protocol = parity.PROTOCOLS[protocol]
    reference = parity.train(NETWORK, "cpu", executors.create("cpu", 2), protocol)
    trained = parity.train(NETWORK, "cpu_sequential", executors.create("cpu_sequential", 2), protocol)
    deviations = parity.deviations(NETWORK, trained, reference)
    assert 0 < max(deviations.values()) <= protocol.tolerance


def test_every_layer_is_an_operation_of_its_own():
    assert all(len(pattern.kinds) == 1 for pattern in cpu_sequential.PATTERNS)


def test_time_that_numba_compiled_in_is_not_counted():
    executor = numba_executor.Executor(1)
    protocol = parity.PROTOCOLS["sgd"]
    parity.train(NETWORK, "cpu_sequential", executor, protocol)
    assert set(executor.seconds) == {"input", "convolution forward", "convolution backward", "ReLU", "pooling", "upsampling",
                                     "loss", "update"}
    assert executor.seconds["input"] < 0.1 < executor.seconds["convolution forward"]
