"""The sequential rung's loops against their definitions, whole networks' gradients, and the rung against the cpu rung."""

import dataclasses
import math
import statistics

import numpy as np
import pytest

import cpu_rung
import references
from ladder.arithmetic import randomness
from ladder.executors import create as executors
from ladder.executors import sequential as numba_executor
from ladder.executors.sequential import OPERATIONS
from ladder.network import layers, networks
from ladder.rungs import cpu_sequential
from ladder.training import parity, plan

CONVOLUTIONS = [   # images, height, width, channels, filters, kernel, padding, stride
    (1, 4, 4, 1, 1, 3, 1, 1),
    (3, 5, 7, 2, 3, 3, 1, 1),
    (2, 6, 5, 3, 2, 5, 2, 1),
    (2, 5, 6, 1, 4, 3, 0, 1),
    (5, 3, 3, 2, 2, 1, 0, 1),
    (2, 7, 8, 2, 3, 3, 1, 2),
    (2, 8, 5, 3, 2, 1, 0, 2),
    (1, 9, 11, 2, 2, 7, 3, 2),
    (2, 9, 12, 1, 3, 2, 0, 3),   # the last rows and columns are in no window
]
POOLS = [   # images, height, width, channels, window, stride, padding
    (1, 2, 2, 1, 2, 2, 0),
    (3, 5, 7, 2, 2, 2, 0),
    (2, 7, 6, 3, 3, 2, 1),
    (2, 5, 4, 2, 3, 1, 1),
    (1, 6, 7, 2, 2, 3, 0),
    (2, 5, 5, 1, 4, 3, 2),
    (1, 3, 4, 1, 15, 1, 7),   # the largest window
]
NETWORK = networks.build("autoencoder")


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def integers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(dtype)


def unwritten(*shape, dtype=np.float64):
    """NaN, or 99 for integers."""
    return np.full(shape, np.nan if np.issubdtype(dtype, np.floating) else 99, dtype)


def convolve(x, weight, bias, padding, stride):
    size = references.slid(*x.shape[1:3], weight.shape[1], stride, padding)
    y = unwritten(len(x), *size, len(weight), dtype=x.dtype)
    OPERATIONS["conv2d_forward"](x, weight, bias, y, stride=stride, padding=padding)
    return y


def assert_gradient(got, forward, x, dy):
    """got: an operation's gradient of sum(dy * forward()) by x."""
    np.testing.assert_allclose(got, references.gradient(forward, x, dy), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_is_its_definition_exactly_on_small_integers(shape):
    images, height, width, channels, filters, kernel, padding, stride = shape
    x, weight, bias = integers(images, height, width, channels), integers(filters, kernel, kernel, channels), integers(filters)
    assert np.array_equal(convolve(x, weight, bias, padding, stride), references.conv2d(x, weight, bias, padding, stride))


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_gradients_are_finite_differences(shape):
    images, height, width, channels, filters, kernel, padding, stride = shape
    x, weight, bias = normal(images, height, width, channels), normal(filters, kernel, kernel, channels), normal(filters)
    sliding = {"stride": stride, "padding": padding}
    dy = normal(*convolve(x, weight, bias, padding, stride).shape, seed=1)
    dx, dweight, dbias = (np.full_like(value, np.nan) for value in (x, weight, bias))
    OPERATIONS["conv2d_input_grad"](dy, weight, dx, **sliding)
    OPERATIONS["conv2d_weight_grad"](x, dy, dweight, **sliding)
    OPERATIONS["conv2d_bias_grad"](dy, dbias)
    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert_gradient(gradient, lambda: convolve(x, weight, bias, padding, stride), value, dy)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (4, 9, 2)], ids=str)   # rows, inputs, units
def test_dense_is_its_definition_and_its_gradients_are_finite_differences(shape):
    rows, inputs, units = shape
    x, weight, bias = integers(rows, 1, 1, inputs), integers(units, 1, 1, inputs), integers(units)
    y = unwritten(rows, 1, 1, units, dtype=np.float32)
    OPERATIONS["dense_forward"](x, weight, bias, y)
    assert np.array_equal(y, references.dense(x, weight, bias))

    x, weight, bias, dy = normal(*x.shape), normal(*weight.shape), normal(*bias.shape), normal(*y.shape, seed=1)
    dx, dweight, dbias = (np.full_like(value, np.nan) for value in (x, weight, bias))
    OPERATIONS["dense_input_grad"](dy, weight, dx)
    OPERATIONS["dense_weight_grad"](x, dy, dweight)
    OPERATIONS["dense_bias_grad"](dy, dbias)
    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert_gradient(gradient, lambda: references.dense(x, weight, bias), value, dy)


def test_relu_and_its_gradient():
    x, dy = integers(3, 5, 4, 2), normal(3, 5, 4, 2, seed=1).astype(np.float32)
    y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
    OPERATIONS["relu_forward"](x, y)
    OPERATIONS["relu_backward"](y, dy, dx)
    assert np.array_equal(y, references.relu(x))
    assert np.array_equal(dx, np.where(x > 0, dy, 0))


@pytest.mark.parametrize("shape", POOLS, ids=str)
def test_maxpool2d_takes_the_first_maximum_and_sends_its_gradient_there_alone(shape):
    *image, window, stride, padding = shape
    sliding = {"window": window, "stride": stride, "padding": padding}
    x = integers(*image) - 9   # few values, so many ties; all below the zero padding
    expected, place = references.maxpool2d(x, **sliding)
    y, index = unwritten(*expected.shape, dtype=np.float32), unwritten(*expected.shape, dtype=np.uint8)
    OPERATIONS["maxpool2d_forward"](x, y, index, **sliding)
    assert np.array_equal(y, expected) and np.array_equal(index, place)

    dy, dx = integers(*y.shape, seed=1), unwritten(*image, dtype=np.float32)
    OPERATIONS["maxpool2d_backward"](dy, index, dx, **sliding)
    assert np.array_equal(dx, references.maxpool2d_backward(dy, place, x.shape, **sliding))


def test_maxpool2d_of_nothing_but_minus_infinity_is_in_the_image():
    x, y, index = np.full((1, 2, 2, 1), -np.inf), unwritten(1, 2, 2, 1), unwritten(1, 2, 2, 1, dtype=np.uint8)
    OPERATIONS["maxpool2d_forward"](x, y, index, window=2, stride=2, padding=1)
    assert (y == -np.inf).all() and index.ravel().tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("shape", POOLS, ids=str)
def test_avgpool2d_divides_by_the_whole_window_and_its_gradient_is_a_finite_difference(shape):
    *image, window, stride, padding = shape
    check_linear("avgpool2d", image, window=window, stride=stride, padding=padding)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 4, 7, 2), (2, 3, 2, 5)], ids=str)
@pytest.mark.parametrize("name, attributes", [
    ("global_avgpool", {}), ("upsample2d", {}), ("flatten", {}), ("pad", {"amount": 1}), ("pad", {"amount": 3})], ids=str)
def test_linear_operations_are_their_definitions_and_their_gradients_finite_differences(name, attributes, shape):
    check_linear(name, shape, **attributes)


def check_linear(name, shape, **attributes):
    """Differences of linear functions of small integers are exact, but for the averages' divisions."""
    x = integers(*shape, dtype=np.float64)
    expected = getattr(references, name)(x, **attributes)
    y, dx, dy = unwritten(*expected.shape), unwritten(*shape), integers(*expected.shape, seed=1, dtype=np.float64)
    OPERATIONS[f"{name}_forward"](x, y, **attributes)
    OPERATIONS[f"{name}_backward"](dy, dx, **attributes)
    np.testing.assert_allclose(y, expected, rtol=1e-13)
    difference = references.gradient(lambda: getattr(references, name)(x, **attributes), x, dy, step=1)
    np.testing.assert_allclose(dx, difference, rtol=1e-12, atol=1e-12)


def test_add():
    a, b, y = integers(2, 3, 5, 2), integers(2, 3, 5, 2, seed=1), unwritten(2, 3, 5, 2, dtype=np.float32)
    OPERATIONS["add_forward"](a, b, y)
    assert np.array_equal(y, a + b)


def batchnorm_forward(x, weight, bias, running_mean, running_var, decay=0.9, epsilon=1e-5):
    """y, mean, inverse; updates running statistics."""
    y, mean, inverse = np.full_like(x, np.nan), np.full_like(weight, np.nan), np.full_like(weight, np.nan)
    OPERATIONS["batchnorm_forward"](x, weight, bias, y, mean, inverse, running_mean, running_var, decay=decay, epsilon=epsilon)
    return y, mean, inverse


@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (3, 5, 4, 2), (7, 1, 1, 5)], ids=str)
def test_batchnorm_normalises_by_the_batch_keeps_the_running_statistics_and_its_gradients_are_finite_differences(shape):
    x, dy = 3 + normal(*shape), normal(*shape, seed=1)
    weight, bias, running_mean, running_var = (normal(shape[3], seed=seed) for seed in (2, 3, 4, 5))
    expected_running = references.running_statistics(x, running_mean, running_var, 0.8)
    y, mean, inverse = batchnorm_forward(x, weight, bias, running_mean, running_var, 0.8, 1e-2)
    for got, expected in zip((y, mean, inverse, running_mean, running_var),
                             (*references.batchnorm(x, weight, bias, 1e-2), *expected_running), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)

    dx, dweight, dbias = np.full_like(x, np.nan), np.full_like(weight, np.nan), np.full_like(bias, np.nan)
    OPERATIONS["batchnorm_backward"](x, weight, mean, inverse, dy, dx, dweight, dbias)
    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        assert_gradient(gradient, lambda: references.batchnorm(x, weight, bias, 1e-2)[0], value, dy)


def test_batchnorm_of_a_single_value_has_no_variance():
    weight, bias, running_mean, running_var = np.ones(1), np.full(1, 2.0), np.zeros(1), np.ones(1)
    y, mean, inverse = batchnorm_forward(np.full((1, 1, 1, 1), 5.0), weight, bias, running_mean, running_var, epsilon=0.25)
    assert (y.item(), mean.item(), inverse.item()) == (2, 5, 2)
    assert running_mean.item() == pytest.approx(0.5) and running_var.item() == pytest.approx(0.9)


def test_batchnorm_in_float32_keeps_small_variances_of_large_values():
    """E[x^2] - E[x]^2 in float32 would have no digit left, and a sum of 40,000 of them in float32 would lose the mean."""
    x = (1000 + normal(4, 100, 100, 1) / 8).astype(np.float32)
    one = np.ones(1, np.float32)
    y, mean, inverse = batchnorm_forward(x, one, 0 * one, 0 * one, one.copy())
    expected, expected_mean, expected_inverse = references.batchnorm(x, one, 0 * one, 1e-5)
    assert mean == pytest.approx(expected_mean, rel=1e-7) and inverse == pytest.approx(expected_inverse, rel=1e-6)
    np.testing.assert_allclose(y, expected, atol=6e-4)   # half a unit in the mean's last place, over a deviation of 1 / 8


def test_batchnorm_after_training_uses_the_running_statistics():
    x, y = normal(3, 5, 4, 2), unwritten(3, 5, 4, 2)
    weight, bias, mean, variance = normal(2), normal(2, seed=1), normal(2, seed=2), normal(2, seed=3) ** 2
    OPERATIONS["batchnorm_inference"](x, weight, bias, mean, variance, y, epsilon=1e-2)
    np.testing.assert_allclose(y, references.batchnorm_inference(x, weight, bias, mean, variance, 1e-2), rtol=1e-12)


@pytest.mark.parametrize("rate", [0, 0.3, 0.9])
def test_dropout_multiplies_by_the_drawn_mask_in_both_directions(rate):
    x, dy, counters = normal(3, 3, 7, 5), normal(3, 3, 7, 5, seed=1), np.array([11, 6, 2])
    y, dx, mask = np.full_like(x, np.nan), np.full_like(x, np.nan), unwritten(*x.shape, dtype=np.uint8)
    OPERATIONS["dropout_forward"](x, counters, y, mask, rate=rate, seed=3, stream=4)
    expected = references.dropout_mask(3, 4, 11, x.size, rate).reshape(x.shape)
    assert np.array_equal(mask, expected)
    assert np.mean(mask) == pytest.approx(1 - rate, abs=0.1)
    np.testing.assert_allclose(y, references.dropout(x, expected, rate), rtol=1e-14)
    OPERATIONS["dropout_backward"](dy, mask, dx, rate=rate)
    np.testing.assert_allclose(dx, references.dropout(dy, expected, rate), rtol=1e-14)


def test_sample_adds_the_drawn_noise_and_its_gradient_has_that_of_the_divergence():
    mean, log_variance, dy = (normal(3, 3, 7, 5, seed=seed) for seed in range(3))
    counters, y, noise, dmean, dlog_variance = np.array([11, 6, 2]), *(np.full_like(mean, np.nan) for _ in range(4))
    OPERATIONS["sample_forward"](mean, log_variance, counters, y, noise, seed=3, stream=4)
    drawn = references.normal(3, 16 + 4, 11, mean.size).reshape(mean.shape)
    expected, added = references.sample(mean, log_variance, drawn)
    np.testing.assert_allclose(noise, added, rtol=2e-6)
    np.testing.assert_allclose(y, expected, atol=3e-5)
    divergences = np.full(4, np.nan)
    OPERATIONS["sample_backward"](mean, log_variance, added, dy, counters, dmean, dlog_variance, divergences, factor=0.3)
    wanted = references.sample_gradients(mean, log_variance, drawn, dy, 0.3)
    np.testing.assert_allclose(dmean, wanted[0], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(dlog_variance, wanted[1], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(divergences, [np.nan, np.nan, references.divergences(mean, log_variance).mean(), np.nan])


@pytest.mark.parametrize("draw", [normal, integers], ids=["distinct", "ties"])
@pytest.mark.parametrize("shape, winners, images", [((1, 1, 1, 1), 1, 1), ((4, 3, 5, 7), 1, 2), ((5, 4, 3, 2), 3, 4)], ids=str)
def test_winner_take_all_and_its_gradient(shape, winners, images, draw):
    x, dy, mask = draw(*shape), normal(*shape, seed=1), unwritten(*shape, dtype=np.uint8)
    y, dx = np.full(shape, np.nan), np.full(shape, np.nan)
    OPERATIONS["winner_take_all_forward"](x, y, mask, winners=winners, images=images)
    expected, kept = references.winner_take_all(x, winners, images)
    assert np.array_equal(mask, kept) and np.array_equal(y, expected)
    OPERATIONS["winner_take_all_backward"](dy, mask, dx)
    assert np.array_equal(dx, dy * kept)


def test_l1_penalty_is_the_sign():
    x = np.array([-2.5, 0, 3]).reshape(1, 1, 1, 3)
    dx = np.full_like(x, np.nan)
    OPERATIONS["l1_penalty_backward"](x, dx, factor=0.25)
    assert np.array_equal(dx.ravel(), [-0.25, 0, 0.25])


LRN = {"alpha": 0.7, "beta": 0.75, "k": 1.5}


@pytest.mark.parametrize("channels", [1, 7])
def test_position_norm_is_its_definition_and_its_gradient_is_a_finite_difference(channels):
    x, dy = normal(2, 3, 4, channels), normal(2, 3, 4, channels, seed=1)
    y, norms, dx = np.full_like(x, np.nan), np.full(x.shape[:3], np.nan), np.full_like(x, np.nan)
    OPERATIONS["position_norm_forward"](x, y, norms, epsilon=0.01)
    for got, expected in zip((y, norms), references.position_norm(x, 0.01), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    OPERATIONS["position_norm_backward"](y, norms, dy, dx)
    assert_gradient(dx, lambda: references.position_norm(x, 0.01)[0], x, dy)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 2, 4), (3, 1, 5, 1)], ids=str)
def test_attention_is_its_definition_and_its_gradient_is_a_finite_difference(shape):
    images, height, width, channels = shape
    x, dy = normal(images, height, width, 3 * channels), normal(*shape, seed=1)
    y, weights, dx = np.full(shape, np.nan), np.full((images, *2 * (height * width,)), np.nan), np.full_like(x, np.nan)
    OPERATIONS["attention_forward"](x, y, weights)
    for got, expected in zip((y, weights), references.attention(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    OPERATIONS["attention_backward"](x, weights, dy, dx)
    assert_gradient(dx, lambda: references.attention(x)[0], x, dy)


def test_attention_of_large_scores_does_not_overflow():
    x = 1000 * normal(1, 2, 3, 6)
    y, weights = np.full((1, 2, 3, 2), np.nan), np.full((1, 6, 6), np.nan)
    OPERATIONS["attention_forward"](x, y, weights)
    np.testing.assert_allclose(y, references.attention(x)[0], rtol=1e-12)


def test_local_contrast_is_its_definition():
    image, x = normal(2, 6, 5, 3), normal(2, 4, 3, 7, seed=1)
    y = np.full_like(x, np.nan)
    OPERATIONS["local_contrast_forward"](x, image, y, kernel=3, epsilon=0.01)
    np.testing.assert_allclose(y, references.local_contrast(x, image, 3, 0.01), rtol=1e-12)


def test_soft_threshold_is_its_definition():
    x = normal(2, 3, 4, 5)
    y = np.full((2, 3, 4, 10), np.nan)
    OPERATIONS["soft_threshold_forward"](x, y, threshold=0.5)
    np.testing.assert_array_equal(y, references.soft_threshold(x, 0.5))


@pytest.mark.parametrize("channels, size", [(1, 5), (4, 1), (7, 5), (6, 4), (3, 9)])
def test_lrn_is_its_definition_and_its_gradient_is_a_finite_difference(channels, size):
    x, dy = normal(2, 3, 2, channels), normal(2, 3, 2, channels, seed=1)
    y, sums, dx = (np.full_like(x, np.nan) for _ in range(3))
    OPERATIONS["lrn_forward"](x, y, sums, size=size, **LRN)
    for got, expected in zip((y, sums), references.lrn(x, size, **LRN), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    OPERATIONS["lrn_backward"](x, sums, dy, dx, size=size, **LRN)
    assert_gradient(dx, lambda: references.lrn(x, size, **LRN)[0], x, dy)


def classify(prediction, labels, permutation=None, counters=(5, 0, 1)):
    """(gradient, losses, hits) of three steps."""
    written = np.full_like(prediction, np.nan), unwritten(3), unwritten(3)
    permutation = np.arange(len(labels)) if permutation is None else permutation
    OPERATIONS["cross_entropy"](prediction, np.asarray(labels, np.uint8), permutation, np.array(counters), *written)
    return written


def test_cross_entropy_is_its_definition_and_its_gradient_is_a_finite_difference():
    prediction, labels, permutation = normal(5, 1, 1, 7), np.arange(9) % 7, np.random.default_rng(0).permutation(9)
    gradient, losses, hits = classify(prediction, labels, permutation, (8, 3, 1))
    drawn = labels[permutation[3:8]]
    expected, loss, expected_hits = references.cross_entropy(prediction, drawn)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)
    assert losses[1] == pytest.approx(loss, rel=1e-13) and hits[1] == expected_hits
    assert np.isnan([losses[0], losses[2], hits[0], hits[2]]).all()
    difference = references.numerical_gradient(lambda: references.cross_entropy(prediction, drawn)[1], prediction)
    np.testing.assert_allclose(gradient, difference, rtol=1e-6, atol=1e-9)


def test_cross_entropy_of_large_scores_is_finite():
    gradient, losses, hits = classify(np.float32([[1e4, -1e4, 0], [0, 3e38, -3e38]])[:, None, None], [2, 1])
    assert losses[1] == pytest.approx(5000) and hits[1] == 1
    assert gradient.reshape(2, 3).tolist() == [[0.5, 0, -0.5], [0, 0, 0]]


def test_cross_entropy_hits_are_of_the_first_of_equal_scores_and_none_of_a_row_with_nan():
    scores = np.array([[1, 2, 2], [1, 2, 2], [np.nan, 1, 0], [1, 2, np.nan]])[:, None, None]
    assert classify(scores[:2], [1, 1])[2][1] == 2
    assert classify(scores[:2], [2, 2])[2][1] == 0
    _, losses, hits = classify(scores, [1, 2, 0, 1])
    assert hits[1] == 1 and np.isnan(losses[1])


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
        batch = unwritten(4, 4, 3, 2, dtype=np.float32)
        OPERATIONS["load_batch"](images, permutation, np.array([0, 5, 0]), scale, offset, batch, flip)
        assert np.array_equal(batch, references.load_batch(images, permutation[5:9], scale, offset, flip))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_load_augmented_batch_mirrors_and_shifts_each_image_by_its_own(dtype):
    images = np.random.default_rng(0).integers(1, 256, (9, 4, 3, 2)).astype(dtype)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 1 / 3]), np.float32([1, -3])
    augmentation = np.array([[0, 0, 0], [0, 0, 1], [2, -1, 0], [-1, 2, 1], [-4, 0, 0], [1, 7, 1]], np.int32)
    batch = unwritten(6, 4, 3, 2, dtype=np.float32)
    OPERATIONS["load_augmented_batch"](images, permutation, np.array([0, 2, 0]), scale, offset, augmentation, batch)
    assert np.array_equal(batch, references.load_augmented_batch(images, permutation[2:8], scale, offset, augmentation))
    assert np.array_equal(batch[:1], references.load_batch(images, permutation[2:3], scale, offset))
    assert np.array_equal(batch[1:2], references.load_batch(images, permutation[3:4], scale, offset, flip=True))
    assert (batch[4] == offset).all() and (batch[5] == offset).all()   # nothing of the image is left


JITTERED = np.array([[0, 0, 0], [0, 0, 1], [2, -1, 0], [-1, 2, 1]], np.int32)
TURNED = np.array([(math.cos(angle), math.sin(angle), *factors) for angle, *factors in (
    (0.3, 1, 1), (-0.7, 0.5, 1.25), (0.1, 1.5, 0.75), (-0.2, 0.9, 1.1))], np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_load_jittered_batch_is_its_definition_to_the_last_bit(dtype):
    images = np.random.default_rng(0).integers(1, 256, (9, 6, 5, 2)).astype(dtype)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 1 / 3]), np.float32([1, -3])
    batch = unwritten(4, 6, 5, 2, dtype=np.float32)
    OPERATIONS["load_jittered_batch"](images, permutation, np.array([0, 2, 0]), scale, offset, JITTERED, TURNED, batch)
    assert np.array_equal(batch, references.load_jittered_batch(images, permutation[2:6], scale, offset, JITTERED, TURNED))


def test_the_definition_of_jitter_moves_nothing_without_an_angle_and_turns_by_the_angle():
    images, unit = np.random.default_rng(0).integers(1, 256, (4, 5, 5, 2)).astype(np.uint8), np.ones(2, np.float32)
    still, quarter = (np.float32([(*angle, 1, 1)] * 4) for angle in ((1, 0), (0, 1)))
    rows, scale, offset = np.arange(4), np.float32([0.5, 1 / 3]), np.float32([1, -3])
    assert np.array_equal(references.load_jittered_batch(images, rows, scale, offset, JITTERED, still),
                          references.load_augmented_batch(images, rows, scale, offset, JITTERED))
    turned = references.load_jittered_batch(images, rows, unit, 0 * unit, np.zeros((4, 3), np.int32), quarter)
    assert np.array_equal(turned, np.rot90(images, axes=(2, 1)))
    factors = np.float32([(1, 0, 0.5, 1.25)] * 4)
    coloured = references.load_jittered_batch(images, rows, unit, 0 * unit, np.zeros((4, 3), np.int32), factors)
    assert np.array_equal(coloured, images * np.float32([0.5, 1.25]))


@pytest.mark.parametrize("seed, step, count, channels, degrees, colour", [
    (0, 0, 5, 3, 15, 0.4), (3, 9, 300, 1, 45, 0), (2 ** 64 - 3, 2 ** 40, 300, 9, 0, 0.9)])
def test_jitter_is_the_definition_and_within_its_limits(seed, step, count, channels, degrees, colour):
    drawn = randomness.jitter(seed, step, count, channels, math.tan(math.radians(degrees) / 2), colour)
    assert drawn.dtype == np.float32
    assert np.array_equal(drawn, references.jitter(seed, step, count, channels, math.tan(math.radians(degrees) / 2), colour))
    angles, factors = np.degrees(np.arctan2(drawn[:, 1], drawn[:, 0])), drawn[:, 2:]
    assert np.allclose(drawn[:, 0] ** 2 + drawn[:, 1] ** 2, 1, atol=1e-6)
    assert abs(angles).max() <= degrees + 1e-4 and abs(factors - 1).max() <= colour + 1e-6
    if count == 300:
        assert degrees == 0 or angles.min() < -0.9 * degrees and angles.max() > 0.9 * degrees
        assert colour == 0 or factors.min() < 1 - 0.9 * colour and factors.max() > 1 + 0.9 * colour


def test_draw_jitter_follows_the_step():
    jitter = unwritten(5, 4, dtype=np.float32)
    OPERATIONS["draw_jitter"](np.array([7, 40, 1]), jitter, tangent=0.2, colour=0.5, seed=9)
    assert np.array_equal(jitter, references.jitter(9, 7, 5, 2, 0.2, 0.5))


def test_draw_augmentation_follows_the_step():
    augmentation = unwritten(5, 3, dtype=np.int32)
    OPERATIONS["draw_augmentation"](np.array([7, 40, 1]), augmentation, crop=4, flip=True, seed=9)
    assert np.array_equal(augmentation, references.augmentation(9, 7, 5, 4, True))


# ---- random draws

def test_blocks_are_those_of_numpys_philox():
    """And the first known answer of Random123, its authors' library."""
    assert references.philox((0, 0, 0, 0), (0, 0)) == (
        0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)
    for seed, stream, step in ((0, 16, 0), (5, 3, 2**40), (2**64 - 3, 19, 2**63 + 1)):
        drawn = np.random.Philox(key=np.array([seed, stream], np.uint64), counter=np.array([0, 0, 0, step], np.uint64))
        assert drawn.random_raw(12).tolist() == [word for block in references.blocks(seed, stream, step, 3) for word in block]


@pytest.mark.parametrize("seed, layer, step, count, rate", [
    (0, 0, 0, 1, 0.5), (7, 3, 5, 1003, 0.3), (2**63 + 5, 2, 9, 64, 0.1), (1, 2, 3, 24, 0), (1, 1, 2**40, 17, 0.999999),
    (1, 1, 1, 0, 0.5)])
def test_dropout_masks_are_the_definitions(seed, layer, step, count, rate):
    mask = randomness.dropout_mask(seed, layer, step, 0, count, rate)
    assert mask.dtype == np.uint8 and np.array_equal(mask, references.dropout_mask(seed, layer, step, count, rate))


def test_a_value_whose_number_is_the_rate_is_kept():
    first = references.blocks(3, randomness.LAYER, 0, 1)[0][0] & 0xFFFFFFFF
    assert randomness.dropout_mask(3, 0, 0, 0, 1, first / 2**32) == 1
    assert randomness.dropout_mask(3, 0, 0, 0, 1, (first + 1) / 2**32) == 0


def test_shares_of_a_dropout_mask_are_the_masks():
    whole = randomness.dropout_mask(7, 3, 5, 0, 1003, 0.3)
    shares = [randomness.dropout_mask(7, 3, 5, start, stop - start, 0.3) for start, stop in ((0, 8), (8, 504), (504, 1003))]
    assert np.array_equal(np.concatenate(shares), whole)
    with pytest.raises(ValueError, match="multiple of 8, not at 12"):
        randomness.dropout_mask(7, 3, 5, 12, 8, 0.3)


@pytest.mark.parametrize("seed, stream, step, count", [
    (0, 16, 0, 1), (7, 10, 5, 3001), (2**63 + 5, 18, 2**40, 64), (1, 1, 1, 0)])
def test_normal_numbers_are_the_quantiles_of_the_words(seed, stream, step, count):
    drawn = randomness.normal(seed, stream, step, 0, count)
    assert drawn.dtype == np.float32 and drawn.shape == (count,)
    np.testing.assert_allclose(drawn, references.normal(seed, stream, step, count), rtol=5e-7)
    if count > 1000:
        assert abs(drawn).max() > 3 and drawn.mean() == pytest.approx(0, abs=0.06) and drawn.std() == pytest.approx(1, abs=0.04)


def test_normal_numbers_are_the_quantiles_from_end_to_end(monkeypatch):
    """Also where the tails begin, and at the ends."""
    tails = [np.arange(-50, 50) + round(share * 2**24) for share in (0.075, 0.925)]
    upper = np.r_[0:300, 2**24 - 300:2**24, 0:2**24:4001, *tails]
    monkeypatch.setattr(randomness, "_words", lambda *key: (upper << 8 | 0xAB).astype(np.uint32))
    drawn = randomness.normal(0, 0, 0, 0, len(upper))
    expected = [statistics.NormalDist().inv_cdf((2 * int(one) + 1) / 2**25) for one in upper]
    np.testing.assert_allclose(drawn, expected, rtol=5e-7)
    assert drawn.max() == -drawn.min() and 5.41 < drawn.max() < 5.43


def test_shares_of_normal_numbers_are_the_numbers():
    whole = randomness.normal(7, 3, 5, 0, 1003)
    shares = [randomness.normal(7, 3, 5, start, stop - start) for start, stop in ((0, 8), (8, 504), (504, 1003))]
    assert np.array_equal(np.concatenate(shares), whole)
    with pytest.raises(ValueError, match="multiple of 8, not at 12"):
        randomness.normal(7, 3, 5, 12, 8)


@pytest.mark.parametrize("seed, step, count, crop, flip", [(0, 0, 5, 4, True), (3, 9, 200, 0, True), (3, 9, 200, 2, False)])
def test_augmentations_are_the_definitions(seed, step, count, crop, flip):
    drawn = randomness.augmentation(seed, step, count, crop, flip)
    assert drawn.dtype == np.int32 and np.array_equal(drawn, references.augmentation(seed, step, count, crop, flip))
    if count == 200:
        assert {tuple(np.unique(column)) for column in drawn[:, :2].T} == {tuple(range(-crop, crop + 1))}
        assert set(drawn[:, 2]) == ({0, 1} if flip else {0})


# ---- updates, and NaN

@pytest.mark.parametrize("clip", [0, 0.5])
@pytest.mark.parametrize("name", ["sgd", "momentum", "rmsprop", "adam"])
def test_updates_are_the_cpu_rungs_over_several_steps(name, clip):
    """Those are checked against the papers' formulas in cpu/test_executor.py."""
    from ladder.executors.cpu import executor as numpy_executor
    from ladder.network import optimizers
    averages = optimizers.AVERAGES[name]
    extra = {"momentum": 0.8} if name == "momentum" else {}
    states = [{"parameter": normal(3, 5), **{average: np.zeros((3, 5)) for average in averages}} for _ in range(2)]
    for step in range(3):
        common = {"gradient": normal(3, 5, seed=step), "learning_rates": np.array([0.1, 0.05, 0.2]),
                  "counters": np.array([step, 0, 0]), "weight_decay": 0.1, "clip": clip, **extra}
        OPERATIONS[f"{name}_update"](**states[0], **common)
        cpu_rung.perform(numpy_executor.Executor(1), f"{name}_update", **states[1],
                         **common | {"gradient": common["gradient"].copy()})
        for key, value in states[0].items():
            np.testing.assert_allclose(value, states[1][key], rtol=1e-12, atol=1e-14)


def test_nan_is_not_lost():
    """A diverged training must show in the loss."""
    x, y = np.array([1, np.nan, -1, 2], np.float32), np.zeros(4, np.float32)
    OPERATIONS["relu_forward"](x, y)
    assert np.isnan(y).tolist() == [False, True, False, False]
    OPERATIONS["dropout_backward"](x, np.zeros(4, np.uint8), y, rate=0.5)
    assert np.isnan(y).tolist() == [False, True, False, False]
    column, out, mask = x.reshape(1, 4, 1, 1), np.zeros((1, 4, 1, 1), np.float32), np.zeros((1, 4, 1, 1), np.uint8)
    OPERATIONS["winner_take_all_forward"](column, out, mask, winners=1, images=1)
    assert np.isnan(out).ravel().tolist() == [False, True, False, False] and mask.ravel().tolist() == [0, 1, 0, 0]

    out = np.zeros((1, 1, 2, 1), np.float32)
    x = np.array([[1, 2, np.nan, 0], [np.nan, 3, 5, 6]], np.float32).reshape(1, 2, 4, 1)
    OPERATIONS["maxpool2d_forward"](x, out, np.zeros(out.shape, np.uint8), window=2, stride=2, padding=0)
    assert np.isnan(out).all()

    parameter = np.ones(2, np.float32)
    OPERATIONS["sgd_update"](parameter, np.array([np.nan, 9], np.float32), np.ones(1), np.zeros(3, np.int64), 0.0, 1.0)
    assert np.isnan(parameter).tolist() == [True, False]


# ---- whole networks

ALL_KINDS = networks.resolve("all kinds", (8, 6, 2), (
    layers.conv2d("conv1", 4, bias=False), layers.batchnorm("bn"), layers.relu("relu1"),
    layers.conv2d("parts", 12, 1, 0), layers.attention("attention"),
    layers.lrn("lrn", size=3, alpha=0.5, k=1.0), layers.position_norm("lengths"), layers.maxpool2d("pool", 3, 2, 1),
    layers.pad("padded", 1),
    layers.conv2d("conv2", 3, padding=0), layers.conv2d("shortcut", 3, kernel=1, padding=0, inputs=("pool",)),
    layers.add("sum", ("conv2", "shortcut")), layers.relu("relu2"), layers.sample("drawn", ("relu2", "shortcut"), 0.3),
    layers.upsample2d("up"),
    layers.conv2d("conv3", 3, kernel=2, padding=1, stride=2), layers.avgpool2d("average", 3, 2, 1),
    layers.winner_take_all("winners", 2, 0.5), layers.l1_penalty("penalty", 0.0),
    layers.dropout("dropout", 0.3), layers.global_avgpool("mean"), layers.dense("gate", 5),
    dataclasses.replace(layers.flatten("flat"), inputs=("dropout",)), layers.dense("fc", 5),
    layers.add("scores", ("fc", "gate"))), "flat", "cross_entropy")


class OneStep:
    """One training step of a network in float64 from random weights, on augmented images, at any weights."""

    def __init__(self, network, batch=4):
        rng = np.random.default_rng(0)
        self.executor, self.network, rows = executors.create("cpu_sequential", 1), network, 2 * batch
        settings = plan.Settings(network=network, variant="cpu_sequential", batch_size=batch,
                                 augmentation=plan.Augmentation(flip=True, crop=1), seed=5)
        made = plan.training_plan(settings, plan.Dataset(rows, "uint8"), plan.Length(2, 2), "float64")
        self.plan, self.parameters = made, self._random_parameters(rng)
        channels = network.input_shape[2]
        self.arrays = self.executor.allocate(made, self.executor.place({
            "images": rng.integers(0, 256, (rows, *network.input_shape), np.uint8), "permutation": rng.permutation(rows),
            "labels": rng.integers(0, 5, rows).astype(np.uint8), "learning_rates": np.zeros(2),
            "scale": np.full(channels, 1 / 64, np.float32), "offset": np.full(channels, -2, np.float32),
            **{name: value.copy() for name, value in self.parameters.items()}}))

    def _random_parameters(self, rng):
        scales = {name: np.sqrt(2 / np.prod(shape[1:])) if len(shape) == 4 else 0.3
                  for name, shape in self.network.parameters.items()}
        return {name: (len(shape) == 1 and name.endswith("weight")) + scales[name] * rng.standard_normal(shape)
                for name, shape in self.network.parameters.items()}

    def loss(self):
        """The second step's, on the second half of the images, with the divergence by its weight."""
        self.arrays["counters"][...] = 1, self.plan.batch, 1
        self.executor.run(self.plan, self.arrays)
        drawn = self.network.draws
        return self.arrays["losses"][1] + (drawn.attributes["beta"] * self.arrays["divergences"][1] if drawn else 0)

    def gradients(self):
        """Parameter -> its decrease in a step with learning rate 1; the step is undone."""
        self.arrays["learning_rates"][1] = 1
        self.loss()
        self.arrays["learning_rates"][1] = 0
        found = {name: before - self.arrays[name] for name, before in self.parameters.items()}
        for name, before in self.parameters.items():
            self.arrays[name][...] = before
        return found


def test_all_kinds_of_layers_with_a_gradient_are_in_the_network_of_all_kinds():
    assert {layer.kind for layer in ALL_KINDS.layers} == {name for name, kind in layers.KINDS.items() if kind.has_gradient}


@pytest.mark.parametrize("network", [ALL_KINDS, networks.build("autoencoder", (4, 4, 2), filters=(3, 2))],
                         ids=lambda network: network.name)
def test_a_step_goes_down_the_gradient_of_the_loss(network):
    step = OneStep(network)
    for name, gradient in step.gradients().items():
        difference = references.numerical_gradient(step.loss, step.arrays[name], step=1e-6)
        np.testing.assert_allclose(gradient, difference, rtol=1e-5, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("image", [(15, 14, 1), (32, 33, 2)], ids=["activations after", "activations before"])
@pytest.mark.parametrize("bottleneck", [False, True], ids=["", "bottleneck"])
def test_a_step_of_a_residual_network_goes_down_the_gradient_of_the_loss(bottleneck, image, monkeypatch):
    """A step so small, in a random direction per tensor, that hardly any ReLU switches."""
    monkeypatch.setitem(networks.RESNETS, 0, ((2, 2), bottleneck))
    step = OneStep(networks.resolve("small resnet", image, **networks.resnet(0)(image, 5, width=2)), batch=6)
    rng, nudge = np.random.default_rng(1), 1e-7
    for name, gradient in step.gradients().items():
        direction, losses = rng.standard_normal(gradient.shape), []
        for sign in (1, -1):
            step.arrays[name][...] = step.parameters[name] + sign * nudge * direction
            losses.append(step.loss())
        step.arrays[name][...] = step.parameters[name]
        assert (losses[0] - losses[1]) / (2 * nudge) == pytest.approx(np.sum(gradient * direction), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("protocol", parity.PROTOCOLS)
def test_the_sequential_rung_passes_the_parity_protocol(protocol):
    protocol = parity.PROTOCOLS[protocol]
    reference = parity.train(NETWORK, "cpu", executors.create("cpu", 2), protocol)
    trained = parity.train(NETWORK, "cpu_sequential", executors.create("cpu_sequential", 2), protocol, follow=reference)
    deviations = parity.deviations(NETWORK, trained, reference)
    assert 0 < max(deviations.values()) <= protocol.tolerance


def test_every_layer_is_an_operation_of_its_own_but_where_taps_are_summed_before_they_are_rounded():
    assert [pattern.kinds for pattern in cpu_sequential.PATTERNS if len(pattern.kinds) > 1] == [("upsample2d", "conv2d")]
    assert all(pattern.collapses for pattern in cpu_sequential.PATTERNS if len(pattern.kinds) > 1)


def test_the_seconds_are_those_of_every_kind_of_work():
    executor = numba_executor.Executor(1)
    protocol = parity.PROTOCOLS["sgd"]
    parity.train(NETWORK, "cpu_sequential", executor, protocol)
    assert set(executor.seconds) == {"input", "convolution forward", "convolution backward", "ReLU", "pooling", "upsampling",
                                     "loss", "update"}


def test_every_kind_of_work_is_counted():
    step = OneStep(ALL_KINDS)
    step.loss()
    step.executor.seconds = {}
    step.loss()
    assert set(step.executor.seconds) == {
        "input", "convolution forward", "convolution backward", "dense layers", "batch normalisation", "ReLU", "pooling",
        "upsampling", "shortcuts and shapes", "dropout and LRN", "norms and contrast", "sparsity", "sampling", "attention",
        "loss", "update"}
