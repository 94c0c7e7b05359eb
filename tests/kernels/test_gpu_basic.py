"""The kernels of gpu_basic against their definitions in float64, watched in the emulator and compiled for every GPU."""

import itertools
import types

import numpy as np
import pytest

import references
import sparse_memory
from compiled import compiled
from cuda_emulator import check
from emulated import KERNELS, load
from kernel_checks import (
    UNIT,
    adam_start,
    check_cross_entropy,
    check_sure_answer,
    counters,
    fused,
    gamma,
    integers,
    normal,
    poisoned,
    rounded_update,
    step_state,
    updated,
)
from ladder.arithmetic import randomness
from ladder.executors.cuda import nvrtc
from ladder.rungs import gpu_basic
from ladder.training.plan import Step

FOLDER = KERNELS / "gpu_basic"


# batch, height, width, channels, filters, kernel, padding, stride: more than one block each way, more pixels than parts of
# a sum, every size odd or 1 somewhere, windows that overlap, that do not meet, and that leave the last pixels out
CONVOLUTIONS = [
    (1, 1, 1, 1, 1, 1, 0, 1),
    (1, 7, 9, 1, 1, 3, 1, 1),
    (3, 5, 7, 3, 5, 3, 1, 1),
    (2, 6, 5, 4, 17, 5, 2, 1),
    (1, 6, 7, 33, 9, 3, 0, 1),
    (2, 3, 2, 5, 3, 3, 2, 1),
    (2, 12, 13, 2, 3, 3, 1, 1),
    (2, 7, 6, 3, 4, 1, 0, 2),
    (1, 9, 8, 2, 3, 7, 3, 2),
    (2, 8, 7, 3, 5, 3, 1, 3),
    (1, 9, 10, 1, 2, 2, 0, 4),
]
DENSE = [(1, 1, 1), (3, 7, 5), (33, 9, 17), (2, 300, 3)]   # batch, inputs, units
IMAGES = [(1, 1, 1, 1), (1, 2, 2, 1), (3, 5, 7, 3), (2, 6, 8, 5), (1, 9, 4, 33)]   # batch, height, width, channels
POOLS = [(1, 1, 0), (2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 1), (4, 2, 2)]   # window, stride, padding
# Images and how windows slide over them, where they fit.
POOLED = [(shape, pool) for shape in IMAGES for pool in POOLS if min(shape[1:3]) + 2 * pool[2] >= pool[0]]


def kernel(file, name):
    return load(FOLDER / file).get_function(name)


def blocks(count, size=256):
    return -(-count // size)


def run(file, name, *arguments, count):
    """Check the kernel with one thread for each of `count` elements; ints and floats are passed as int32 and float32."""
    kinds = {int: np.int32, float: np.float32}
    arguments = tuple(kinds[type(value)](value) if type(value) in kinds else value for value in arguments)
    check(kernel(file, name), (blocks(count),), (256,), arguments)


class Build:
    """The part of plan.Builder that launch functions use."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.buffers = {name: types.SimpleNamespace(dtype=array.dtype) for name, array in arrays.items()}

    def shape(self, name):
        return self.arrays[name].shape

    def workspace(self, name, shape, dtype="float32"):
        self.arrays[name] = poisoned(shape, dtype)
        return name


def step(operation, reads, writes, run=check, **attributes):
    """Run a step, whose arrays are given by role, as the rung launches it, every access watched unless by another `run`."""
    arrays = {**reads, **writes}
    one = Step(operation, "layer", {role: role for role in reads}, {role: role for role in writes}, attributes)
    for launch in gpu_basic.LAUNCHES[operation](one, Build(arrays)):
        arguments = [arrays[argument] if isinstance(argument, str) else argument for argument in launch.arguments]
        run(load(KERNELS / launch.source).get_function(launch.entry), launch.grid, launch.block, arguments)


# ---- sums of products


def convolution(shape, values):
    """x, weight, bias and dy of a convolution."""
    batch, height, width, channels, filters, size, padding, stride = shape
    output = references.slid(height, width, size, stride, padding)
    return (values(batch, height, width, channels), values(filters, size, size, channels, seed=1), values(filters, seed=2),
            values(batch, *output, filters, seed=3))


def assert_sums(operation, reads, output, expected, terms, **attributes):
    """Check that a step is expected(*reads): exactly for integers, within the bound of its longest sum otherwise.

    reads: function from `integers` or `normal` to {role: array}; output: role of the result.
    """
    for values in (integers, normal):
        arrays = reads(values)
        out = poisoned(expected(*arrays.values()).shape)
        step(operation, arrays, {output: out}, **attributes)
        error = np.abs(out - expected(*arrays.values()))
        bound = 0 if values is integers else gamma(terms) * expected(*map(np.abs, arrays.values()))
        assert (error <= bound).all()   # a NaN is not


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_forward(shape):
    size, padding, stride = shape[5:]
    assert_sums("conv2d_forward", lambda values: dict(zip(("x", "weight", "bias"), convolution(shape, values), strict=False)),
                "y", lambda *reads: references.conv2d(*reads, padding, stride), size ** 2 * shape[3] + 1,
                padding=padding, stride=stride)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_input_grad(shape):
    _, height, width, _, filters, size, padding, stride = shape

    def reads(values):
        _, weight, _, dy = convolution(shape, values)
        return {"dy": dy, "weight": weight}

    assert_sums("conv2d_input_grad", reads, "dx",
                lambda dy, weight: references.conv2d_input_grad(dy, weight, padding, height, width, stride),
                size ** 2 * filters, padding=padding, stride=stride)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_weight_and_bias_grad(shape):
    size, padding, stride = shape[5:]

    def reads(values):
        x, _, _, dy = convolution(shape, values)
        return {"x": x, "dy": dy}

    pixels = reads(integers)["dy"][..., 0].size
    assert_sums("conv2d_weight_grad", reads, "dweight",
                lambda x, dy: references.conv2d_weight_grad(x, dy, padding, size, stride), pixels,
                padding=padding, stride=stride)
    assert_sums("conv2d_bias_grad", lambda values: {"dy": reads(values)["dy"]}, "dbias",
                lambda dy: dy.astype(float).sum(axis=(0, 1, 2)), pixels)


@pytest.mark.parametrize("batch, inputs, units", DENSE)
def test_dense(batch, inputs, units):
    def reads(*roles):
        shapes = {"x": (batch, 1, 1, inputs), "weight": (units, 1, 1, inputs), "bias": (units,), "dy": (batch, 1, 1, units)}
        return lambda values: {role: values(*shapes[role], seed=seed) for seed, role in enumerate(roles)}

    assert_sums("dense_forward", reads("x", "weight", "bias"), "y", references.dense, inputs + 1)
    assert_sums("dense_input_grad", reads("dy", "weight"), "dx",
                lambda dy, weight: np.tensordot(dy.astype(float), weight[:, 0, 0], 1), units)
    assert_sums("dense_weight_grad", reads("x", "dy"), "dweight",
                lambda x, dy: np.einsum("nklo,nklc->oklc", dy.astype(float), x), batch)
    assert_sums("dense_bias_grad", reads("dy"), "dbias", lambda dy: dy.astype(float).sum(axis=(0, 1, 2)), batch)


# ---- element by element

@pytest.mark.parametrize("count", [1, 255, 256, 700])
def test_relu(count):
    x, dy = integers(count), normal(count)
    y, dx = poisoned(count), poisoned(count)
    run("relu.cu", "relu_forward", x, y, count, count=count)
    assert np.array_equal(y, references.relu(x))
    run("relu.cu", "relu_backward", y, dy, dx, count, count=count)
    assert np.array_equal(dx, np.where(x > 0, dy, 0))


def test_add():
    a, b, y = normal(3, 5, 7, 3), normal(3, 5, 7, 3, seed=1), poisoned((3, 5, 7, 3))
    step("add_forward", {"a": a, "b": b}, {"y": y})
    assert np.array_equal(y, a + b)


def test_scale():
    x, y = normal(3, 5, 7, 3), poisoned((3, 5, 7, 3))
    step("scale", {"x": x}, {"y": y}, factor=1 / 1024)
    assert np.array_equal(y, x / 1024)


def philox(seed, stream, at_step, count):
    """NumPy's `count` 64-bit numbers."""
    return np.random.Philox(key=np.array((seed, stream), np.uint64), counter=(0, 0, 0, at_step)).random_raw(count)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.875])
@pytest.mark.parametrize("shape, seed, at_step, stream", [
    ((1, 1, 1, 1), 0, 0, 0), ((2, 1, 1, 300), 7, 3, 5), ((3, 5, 7, 3), 2 ** 64 - 3, 2 ** 40 + 1, 11)], ids=str)
def test_dropout(shape, seed, at_step, stream, rate):
    x, dy, counts = normal(*shape), normal(*shape, seed=1), counters(at_step, 64, 1)
    kept = philox(seed, 16 + stream, at_step, x.size // 2 + 1).view("<u4")[:x.size] >= np.uint32(int(rate * 2 ** 32))
    kept = kept.reshape(shape)
    y, mask, dx = poisoned(shape), poisoned(shape, np.uint8), poisoned(shape)
    step("dropout_forward", {"x": x, "counters": counts}, {"y": y, "mask": mask}, rate=rate, seed=seed, stream=stream)
    assert np.array_equal(mask, kept)
    assert (np.abs(y - references.dropout(x, mask, rate)) <= gamma(2) * np.abs(y)).all()
    step("dropout_backward", {"dy": dy, "mask": mask}, {"dx": dx}, rate=rate)
    assert (np.abs(dx - references.dropout(dy, mask, rate)) <= gamma(2) * np.abs(dx)).all()


@pytest.mark.parametrize("draw", [normal, integers], ids=["distinct", "ties"])
@pytest.mark.parametrize("shape, winners, images", [
    ((1, 1, 1, 1), 1, 1), ((4, 3, 5, 17), 1, 2), ((5, 4, 3, 2), 3, 5), ((3, 2, 2, 9), 4, 1)], ids=str)
def test_winner_take_all_to_the_last_bit(shape, winners, images, draw):
    x, dy = draw(*shape), normal(*shape, seed=1)
    y, mask, dx = poisoned(shape), poisoned(shape, np.uint8), poisoned(shape)
    step("winner_take_all_forward", {"x": x}, {"y": y, "mask": mask}, winners=winners, images=images)
    wanted, kept = references.winner_take_all(x, winners, images)
    assert np.array_equal(mask, kept) and np.array_equal(y, wanted)
    step("winner_take_all_backward", {"dy": dy, "mask": mask}, {"dx": dx})
    assert np.array_equal(dx, dy * kept)


def test_of_several_nans_the_first_wins():
    x = np.array([1, np.nan, np.nan, 2], np.float32).reshape(1, 4, 1, 1)
    y, mask = poisoned(x.shape), poisoned(x.shape, np.uint8)
    step("winner_take_all_forward", {"x": x}, {"y": y, "mask": mask}, winners=1, images=1)
    assert mask.ravel().tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_l1_penalty_to_the_last_bit(shape):
    x, dx = integers(*shape), poisoned(shape)   # some are 0
    step("l1_penalty_backward", {"x": x}, {"dx": dx}, factor=0.3)
    assert np.array_equal(dx, np.float32(0.3) * np.sign(x))


@pytest.mark.parametrize("shape, seed, at_step, stream", [
    ((1, 1, 1, 1), 0, 0, 0), ((2, 1, 1, 300), 7, 3, 5), ((3, 5, 7, 3), 2 ** 64 - 3, 2 ** 40 + 1, 11)], ids=str)
def test_sample(shape, seed, at_step, stream):
    mean, log_variance = normal(*shape), 3 * normal(*shape, seed=1)
    y, noise = poisoned(shape), poisoned(shape)
    step("sample_forward", {"mean": mean, "log_variance": log_variance, "counters": counters(at_step, 64, 1)},
         {"y": y, "noise": noise}, seed=seed, stream=stream)
    drawn = randomness.normal(seed, 16 + stream, at_step, 0, mean.size).reshape(shape)
    added = references.sample(mean, log_variance, drawn)[1]
    assert (np.abs(noise - added) <= gamma(6) * np.abs(added)).all()   # expf is within two units in the last place
    assert np.array_equal(y, mean + noise)


def test_normal_numbers_are_those_of_the_cpu_to_the_last_bit():
    """Of so many words that every branch and rounding is seen; with a variance of 1 they are the noise."""
    mean = np.zeros((200, 8, 8, 8), np.float32)
    y, noise = poisoned(mean.shape), poisoned(mean.shape)
    step("sample_forward", {"mean": mean, "log_variance": mean, "counters": counters(3, 0, 0)}, {"y": y, "noise": noise},
         seed=8, stream=2)
    assert np.array_equal(y.ravel(), randomness.normal(8, 18, 3, 0, y.size)) and abs(y).max() > 4


@pytest.mark.parametrize("shape", [*IMAGES, (7, 5, 6, 9)], ids=str)
def test_the_gradient_of_a_sample_has_that_of_its_divergence(shape):
    mean, log_variance, dy, drawn = (normal(*shape, seed=seed) for seed in range(4))
    noise = references.sample(mean, log_variance, drawn)[1].astype(np.float32)
    dmean, dlog_variance, divergences = poisoned(shape), poisoned(shape), poisoned(4, np.float64)
    kept = divergences.copy()
    reads = {"mean": mean, "log_variance": log_variance, "noise": noise, "dy": dy, "counters": counters(7, 0, 2)}
    step("sample_backward", reads, {"dmean": dmean, "dlog_variance": dlog_variance, "divergences": divergences}, factor=0.375)
    wanted = references.sample_gradients(mean, log_variance, drawn, dy, 0.375)
    np.testing.assert_allclose(dmean, wanted[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(dlog_variance, wanted[1], rtol=0, atol=8e-6)
    assert divergences[2] == pytest.approx(references.divergences(mean, log_variance).mean(), rel=1e-5)
    kept[2] = divergences[2]
    assert np.array_equal(divergences, kept, equal_nan=True)


@pytest.mark.parametrize("count, parts", [(1, 1024), (45, 7), (1024, 1024), (5003, 1000)])
def test_a_divergence_is_added_up_in_parts(count, parts):
    for mean, log_variance in ((integers(count), np.zeros(count, np.float32)), (normal(count), normal(count, seed=1))):
        partials, padded = poisoned(parts), np.zeros((2, -(-count // parts) * parts))
        run("sample.cu", "divergence_partials", mean, log_variance, partials, count, parts, count=parts)
        padded[:, :count] = mean, log_variance
        wanted = references.divergences(*padded.reshape(2, -1, parts).swapaxes(1, 2))
        np.testing.assert_allclose(partials, wanted, rtol=0, atol=1e-5 * log_variance.any())


def test_the_parts_of_a_divergence_are_added_in_double_precision():
    divergences = poisoned(5, np.float64)
    check(kernel("sample.cu", "divergence_total"), (1,), (1,),
          (np.float32([2 ** 24, 1, 1, 1]), counters(7, 0, 2), divergences, np.int32(2), np.int32(4)))
    assert divergences[2] == (2 ** 24 + 3) / 2 and np.isnan(divergences).sum() == 4


def test_small_divergences_keep_their_digits():
    """Near the prior, 1 taken from the exponential of a log-variance would leave few."""
    mean, log_variance = np.zeros((1, 2, 2, 2), np.float32), np.float32(1e-3) * normal(1, 2, 2, 2)
    dlog_variance = poisoned(mean.shape)
    step("sample_backward", {"mean": mean, "log_variance": log_variance, "noise": mean, "dy": mean, "counters": counters(0)},
         {"dmean": poisoned(mean.shape), "dlog_variance": dlog_variance, "divergences": poisoned(1, np.float64)}, factor=2.0)
    np.testing.assert_allclose(dlog_variance, np.expm1(log_variance.astype(np.float64)), rtol=1e-6)


# ---- pixel by pixel

@pytest.mark.parametrize("shape, pool", POOLED, ids=str)
def test_maxpool2d(shape, pool):
    attributes = dict(zip(gpu_basic.SLIDING, pool, strict=True))
    x = integers(*shape)   # nine values: many windows hold a tied maximum
    expected, place = references.maxpool2d(x, *pool)
    y, index = poisoned(expected.shape), poisoned(expected.shape, np.uint8)
    step("maxpool2d_forward", {"x": x}, {"y": y, "index": index}, **attributes)
    assert np.array_equal(y, expected) and np.array_equal(index, place)

    for values in (integers, normal):
        dy, dx = values(*y.shape), poisoned(shape)
        step("maxpool2d_backward", {"dy": dy, "index": index}, {"dx": dx}, **attributes)
        bound = 0 if values is integers else gamma(pool[0] ** 2)
        error = np.abs(dx - references.maxpool2d_backward(dy, place, shape, *pool))
        assert (error <= bound * references.maxpool2d_backward(np.abs(dy), place, shape, *pool)).all()


def test_maxpool2d_finds_the_least_of_numbers_and_the_first_of_nans():
    x = np.array([[-np.inf, -np.inf, np.nan, np.inf], [-np.inf, -np.inf, 7, np.nan]], np.float32).reshape(1, 2, 4, 1)
    y, index = poisoned((1, 1, 2, 1)), poisoned((1, 1, 2, 1), np.uint8)
    step("maxpool2d_forward", {"x": x}, {"y": y, "index": index}, window=2, stride=2, padding=0)
    assert np.array_equal(y.ravel(), [-np.inf, np.nan], equal_nan=True) and index.ravel().tolist() == [0, 0]


def avgpool2d_backward(dy, shape, window, stride, padding):
    batch, height, width, channels = shape
    dx = np.zeros((batch, height + 2 * padding, width + 2 * padding, channels))
    for row, column in np.ndindex(dy.shape[1:3]):
        dx[:, stride * row:stride * row + window, stride * column:stride * column + window] += dy[:, [[row]], [[column]]]
    return dx[:, padding:padding + height, padding:padding + width] / window ** 2


def assert_means(operation, read, shape, written, expected, terms, **attributes):
    """Check that a step is expected(array): the exact sums rounded once for integers, within the bound of a sum otherwise."""
    for values in (integers, normal):
        array = values(*shape)
        wanted = expected(array.astype(float))
        out = poisoned(wanted.shape)
        step(operation, {read: array}, {written: out}, **attributes)
        if values is integers:
            assert np.array_equal(out, wanted.astype(np.float32))
        assert (np.abs(out - wanted) <= gamma(terms) * expected(np.abs(array).astype(float))).all()


@pytest.mark.parametrize("shape, pool", POOLED, ids=str)
def test_avgpool2d(shape, pool):
    attributes, terms = dict(zip(gpu_basic.SLIDING, pool, strict=True)), pool[0] ** 2
    assert_means("avgpool2d_forward", "x", shape, "y", lambda x: references.avgpool2d(x, *pool), terms, **attributes)
    output = references.avgpool2d(np.zeros(shape), *pool).shape
    assert_means("avgpool2d_backward", "dy", output, "dx", lambda dy: avgpool2d_backward(dy, shape, *pool), terms, **attributes)


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_global_avgpool(shape):
    batch, height, width, channels = shape
    pixels = height * width
    assert_means("global_avgpool_forward", "x", shape, "y", references.global_avgpool, pixels)
    assert_means("global_avgpool_backward", "dy", (batch, 1, 1, channels), "dx",
                 lambda dy: np.broadcast_to(dy / pixels, shape), 1)


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_upsample2d(shape):
    batch, height, width, channels = shape
    x = normal(*shape)
    y = poisoned((batch, 2 * height, 2 * width, channels))
    step("upsample2d_forward", {"x": x}, {"y": y})
    assert np.array_equal(y, references.upsample2d(x))
    assert_means("upsample2d_backward", "dy", y.shape, "dx",
                 lambda dy: dy.reshape(batch, height, 2, width, 2, channels).sum(axis=(2, 4)), 4)


@pytest.mark.parametrize("amount", [0, 1, 3])
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_pad(shape, amount):
    x = normal(*shape)
    padded = references.pad(x, amount)
    y, dx = poisoned(padded.shape), poisoned(shape)
    step("pad_forward", {"x": x}, {"y": y}, amount=amount)
    assert np.array_equal(y, padded)
    dy = normal(*y.shape, seed=1)
    step("pad_backward", {"dy": dy}, {"dx": dx}, amount=amount)
    assert np.array_equal(dx, dy[:, amount:amount + shape[1], amount:amount + shape[2]])


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_flatten(shape):
    x = normal(*shape)
    y, dx = poisoned(references.flatten(x).shape), poisoned(shape)
    step("flatten_forward", {"x": x}, {"y": y})
    assert np.array_equal(y, references.flatten(x))
    step("flatten_backward", {"dy": y}, {"dx": dx})
    assert np.array_equal(dx, x)


# ---- normalisation

# One pixel, one channel, as many pixels as there are parts of a sum, more, and more than a block of channels.
NORMALIZED = [(1, 1, 1, 2), (3, 1, 1, 33), (1, 5, 3, 1), (4, 8, 8, 3), (2, 13, 11, 3)]
EPSILON = 1e-5


def sum_terms(x):
    """Float32 additions of each term of a sum over all pixels, and a few more."""
    return -(-x[..., 0].size // gpu_basic.CHANNEL_PARTS) + 4


def by_channel(shape):
    """weight, bias, running_mean, running_var."""
    channels = shape[3]
    return (normal(channels, seed=1), normal(channels, seed=2), normal(channels, seed=3), np.abs(normal(channels, seed=4)))


@pytest.mark.parametrize("middle", [0, 1000])   # beside which a variance of 1 is lost to the mean of squares
@pytest.mark.parametrize("shape", NORMALIZED, ids=str)
def test_batchnorm_forward(shape, middle):
    x = normal(*shape) + np.float32(middle)
    weight, bias, running_mean, running_var = by_channel(shape)
    old_mean, old_var = running_mean.copy(), running_var.copy()
    y, mean, inverse = poisoned(shape), poisoned(shape[3]), poisoned(shape[3])
    step("batchnorm_forward", {"x": x, "weight": weight, "bias": bias},
         {"y": y, "mean": mean, "inverse": inverse, "running_mean": running_mean, "running_var": running_var},
         decay=0.75, epsilon=EPSILON)

    _, wanted_mean, wanted_inverse = references.batchnorm(x, weight, bias, EPSILON)
    mean_error = gamma(sum_terms(x)) * np.abs(x).mean(axis=(0, 1, 2), dtype=float)
    assert (np.abs(mean - wanted_mean) <= mean_error).all()
    off = np.abs(x - wanted_mean) + mean_error
    variance_error = gamma(sum_terms(x)) * np.mean(off ** 2, axis=(0, 1, 2)) + mean_error ** 2
    assert (np.abs(inverse - wanted_inverse) <= wanted_inverse * (variance_error * wanted_inverse ** 2 + UNIT)).all()
    new_mean, new_var = references.running_statistics(x, old_mean, old_var, 0.75)
    assert (np.abs(running_mean - new_mean) <= mean_error + UNIT * np.abs(new_mean)).all()
    assert (np.abs(running_var - new_var) <= 2 * variance_error + UNIT * new_var).all()
    # Normalised by the statistics it reports.
    wanted = weight * (x.astype(float) - mean) * inverse + bias
    assert (np.abs(y - wanted) <= gamma(4) * (np.abs(weight * (np.abs(x) + np.abs(mean)) * inverse) + np.abs(bias))).all()


def test_batchnorm_statistics_of_integers_are_exact():
    x = integers(8, 8, 8, 3)
    mean, running_mean = poisoned(3), np.array([1, -2, 3], np.float32)
    expected = x.mean(axis=(0, 1, 2), dtype=float)
    step("batchnorm_forward", {"x": x, "weight": normal(3), "bias": normal(3)},
         {"y": poisoned(x.shape), "mean": mean, "inverse": poisoned(3), "running_mean": running_mean,
          "running_var": np.ones(3, np.float32)}, decay=0.5, epsilon=EPSILON)
    assert np.array_equal(mean, expected) and np.array_equal(running_mean, (expected + [1, -2, 3]) / 2)


@pytest.mark.parametrize("shape", NORMALIZED, ids=str)
def test_batchnorm_inference(shape):
    x, y = normal(*shape), poisoned(shape)
    weight, bias, running_mean, running_var = by_channel(shape)
    step("batchnorm_inference", {"x": x, "weight": weight, "bias": bias, "running_mean": running_mean,
                                 "running_var": running_var}, {"y": y}, epsilon=EPSILON)
    wanted = references.batchnorm_inference(x, weight, bias, running_mean, running_var, EPSILON)
    size = references.batchnorm_inference(np.abs(x), np.abs(weight), np.abs(bias), -np.abs(running_mean), running_var, EPSILON)
    assert (np.abs(y - wanted) <= gamma(8) * size).all()


def run_batchnorm_backward(x, weight, mean, inverse, dy):
    """dx, dweight, dbias."""
    written = poisoned(x.shape), poisoned(x.shape[3]), poisoned(x.shape[3])
    step("batchnorm_backward", {"x": x, "weight": weight, "mean": mean, "inverse": inverse, "dy": dy},
         dict(zip(("dx", "dweight", "dbias"), written, strict=True)))
    return written


@pytest.mark.parametrize("shape", NORMALIZED, ids=str)
def test_batchnorm_backward(shape):
    x, dy = normal(*shape), normal(*shape, seed=5)
    weight, bias, *_ = by_channel(shape)
    _, mean, inverse = (array.astype(np.float32) for array in references.batchnorm(x, weight, bias, EPSILON))
    dx, dweight, dbias = run_batchnorm_backward(x, weight, mean, inverse, dy)

    axes, pixels, terms = (0, 1, 2), x[..., 0].size, sum_terms(x)
    normalized, size = (x.astype(float) - mean) * inverse, (np.abs(x).astype(float) + np.abs(mean)) * inverse
    sizes = np.abs(dy).sum(axis=axes, dtype=float), (np.abs(dy) * size).sum(axis=axes)
    assert (np.abs(dbias - dy.sum(axis=axes, dtype=float)) <= gamma(terms) * sizes[0]).all()
    assert (np.abs(dweight - (dy * normalized).sum(axis=axes)) <= gamma(terms) * sizes[1]).all()

    wide = x.astype(float)
    wanted = references.gradient(lambda: references.batchnorm(wide, weight, bias, EPSILON)[0], wide, dy)
    bound = gamma(terms + 10) * np.abs(weight * inverse) * (np.abs(dy) + (sizes[0] + size * sizes[1]) / pixels)
    assert (np.abs(dx - wanted) <= bound + 1e-7 * inverse).all()   # the last is for the differences


def test_batchnorm_backward_of_integers_is_exact():
    x, dy, weight, mean = integers(8, 8, 8, 3), integers(8, 8, 8, 3, seed=1), integers(3), integers(3, seed=1)
    inverse = np.array([0.5, 1, 2], np.float32)
    dx, dweight, dbias = run_batchnorm_backward(x, weight, mean, inverse, dy)
    normalized = (x - mean) * inverse
    assert np.array_equal(dbias, dy.sum(axis=(0, 1, 2))) and np.array_equal(dweight, (dy * normalized).sum(axis=(0, 1, 2)))
    assert np.array_equal(dx, weight * inverse * (dy - dbias / 512 - normalized.astype(float) * dweight / 512))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 2, 7), (3, 5, 7, 3)], ids=str)
@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("scale", [1, 100])   # an error of the logarithm grows with it
def test_lrn(shape, size, scale):
    settings = {"size": size, "alpha": 0.5, "beta": 0.75, "k": 2.0}   # alpha large enough to matter beside k
    x, dy, ratio = scale * normal(*shape), normal(*shape, seed=1), 0.5 / size
    x[..., 0] = 0   # whose gradient is that of the power alone
    y, sums, dx = poisoned(shape), poisoned(shape), poisoned(shape)
    step("lrn_forward", {"x": x}, {"y": y, "sums": sums}, **settings)
    wanted, wanted_sums = references.lrn(x, **settings)
    assert (np.abs(sums - wanted_sums) <= gamma(size + 3) * wanted_sums).all()
    assert (np.abs(y - wanted) <= gamma(size + 12) * np.abs(wanted)).all()   # 9 of them for powf

    step("lrn_backward", {"x": x, "sums": sums, "dy": dy}, {"dx": dx}, **settings)
    wide = x.astype(float)
    wanted = references.gradient(lambda: references.lrn(wide, **settings)[0], wide, dy)
    products = np.abs(dy * x) * wanted_sums ** -1.75
    neighbours = [slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(shape[3])]
    total = np.stack([products[..., those].sum(axis=3) for those in neighbours], axis=3)
    bound = gamma(size + 12) * np.abs(dy) * wanted_sums ** -0.75 + gamma(2 * size + 24) * 2 * ratio * 0.75 * np.abs(x) * total
    assert (np.abs(dx - wanted) <= bound + 1e-8).all()


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 2, 7), (3, 10, 9, 3)], ids=str)
def test_position_norm(shape):
    x, dy = normal(*shape), normal(*shape, seed=1)
    y, norms, dx = poisoned(shape), poisoned(shape[:3]), poisoned(shape)
    step("position_norm_forward", {"x": x}, {"y": y, "norms": norms}, epsilon=0.01)
    wanted, wanted_norms = references.position_norm(x, 0.01)
    assert (np.abs(norms - wanted_norms) <= gamma(shape[3] + 3) * wanted_norms).all()
    assert (np.abs(y - wanted) <= gamma(shape[3] + 4) * np.abs(wanted)).all()

    step("position_norm_backward", {"y": y, "norms": norms, "dy": dy}, {"dx": dx}, epsilon=0.01)
    wide = x.astype(float)
    wanted = references.gradient(lambda: references.position_norm(wide, 0.01)[0], wide, dy)
    along = np.abs(y * dy).sum(axis=3, keepdims=True)
    bound = gamma(4 * shape[3] + 16) * (np.abs(dy) + np.abs(y) * along) / wanted_norms[..., None]
    assert (np.abs(dx - wanted) <= bound + 1e-8).all()


def split(x):
    """Queries, keys, values (N, pixels, channels) of attention's input, in float64."""
    return np.split(x.astype(float).reshape(len(x), -1, x.shape[3]), 3, axis=2)


# Pixels beyond a block of rows; channels whose root is exact, so that scores of integers are too, and others.
ATTENTION = [(1, 1, 1, 1), (2, 3, 5, 4), (3, 2, 2, 3), (1, 7, 5, 1)]


@pytest.mark.parametrize("shape", ATTENTION, ids=str)
@pytest.mark.parametrize("values", [integers, normal])
def test_attention(shape, values):
    batch, height, width, channels = shape
    pixels = height * width
    x = values(batch, height, width, 3 * channels)
    y, weights = poisoned(shape), poisoned((batch, pixels, pixels))
    step("attention_forward", {"x": x}, {"y": y, "weights": weights})
    wanted, wanted_weights = references.attention(x)
    query, key, value = split(x)
    scores = np.abs(query) @ np.abs(key).transpose(0, 2, 1) * channels ** -0.5
    exact = values is integers and channels in (1, 4)
    error = 0 if exact else 2 * gamma(channels + 4) * scores.max(axis=2, keepdims=True)
    relative = error + gamma(pixels + 6)   # 2 for expf, in a term and in the sum
    assert (np.abs(weights - wanted_weights) <= relative * wanted_weights + 1e-38).all()
    bound = (relative + gamma(pixels)) * wanted_weights @ np.abs(value)
    assert (np.abs(y - wanted).reshape(bound.shape) <= bound).all()


@pytest.mark.parametrize("shape", ATTENTION, ids=str)
def test_attention_backward(shape):
    batch, height, width, channels = shape
    pixels = height * width
    x, dy = normal(batch, height, width, 3 * channels), normal(*shape, seed=1)
    dx, weights = poisoned(x.shape), references.attention(x)[1].astype(np.float32)
    step("attention_backward", {"x": x, "weights": weights, "dy": dy}, {"dx": dx})
    wide = x.astype(float)
    wanted = split(references.gradient(lambda: references.attention(wide)[0], wide, dy))
    (query, key, value), passed = map(np.abs, split(x)), np.abs(dy.astype(float)).reshape(batch, pixels, channels)
    of_weights = passed @ value.transpose(0, 2, 1)
    scores = weights * (of_weights + (weights * of_weights).sum(axis=2, keepdims=True)) * channels ** -0.5
    across = weights.transpose(0, 2, 1), scores.transpose(0, 2, 1)
    bounds = scores @ key, across[1] @ query, across[0] @ passed
    for found, expected, bound in zip(split(dx), wanted, bounds, strict=True):
        assert (np.abs(found - expected) <= gamma(channels + 2 * pixels + 8) * bound + 1e-8).all()


@pytest.mark.parametrize("size", [200, -200])   # exp(200) is infinite, exp(-200) is 0
def test_attention_of_large_scores(size):
    keys = size + normal(6)
    keys[1] += 100   # so is exp(100)
    x = np.stack([np.ones(6, np.float32), keys, normal(6, seed=1)], axis=1).reshape(1, 2, 3, 3)
    y, weights = poisoned((1, 2, 3, 1)), poisoned((1, 6, 6))
    step("attention_forward", {"x": x}, {"y": y, "weights": weights})
    np.testing.assert_allclose(y, references.attention(x)[0], rtol=1e-5)


@pytest.mark.parametrize("image, kernel, values", [((1, 1, 1, 1), 1, 1), ((2, 9, 7, 3), 6, 5), ((3, 5, 19, 1), 2, 9)], ids=str)
def test_local_contrast(image, kernel, values):
    batch, height, width, _ = image
    image, x = normal(*image), normal(batch, height - kernel + 1, width - kernel + 1, values, seed=1)
    image[0, :kernel, :kernel] = 2   # a window without contrast
    y = poisoned(x.shape)
    step("local_contrast_forward", {"x": x, "image": image}, {"y": y}, kernel=kernel, epsilon=0.01)
    np.testing.assert_allclose(y, references.local_contrast(x, image, kernel, 0.01), rtol=gamma(2 * image[0].size + 8))


def test_local_contrast_of_bright_windows_keeps_its_digits():
    """The mean of squares minus the square of the mean would lose them."""
    image, x = 1000 + normal(1, 9, 7, 3), normal(1, 4, 2, 5, seed=1)
    y = poisoned(x.shape)
    step("local_contrast_forward", {"x": x, "image": image}, {"y": y}, kernel=6, epsilon=0.01)
    np.testing.assert_allclose(y, references.local_contrast(x, image, 6, 0.01), rtol=1e-4)


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_soft_threshold_to_the_last_bit(shape):
    x = integers(*shape) / np.float32(4)   # some at the threshold
    y = poisoned((*shape[:3], 2 * shape[3]))
    step("soft_threshold_forward", {"x": x}, {"y": y}, threshold=0.25)
    assert np.array_equal(y, references.soft_threshold(x, 0.25))


# ---- NaN

# Operation -> (its function, its other reads by role, its other writes by role, attributes).
SPREADS = {
    "relu_forward": (lambda x: np.where(x < 0, 0, x), {}, {}, {}),
    "add_forward": (lambda x: x, {"b": normal(2, 6, 5, 3)}, {}, {}),
    "maxpool2d_forward": (lambda x: references.maxpool2d(x, 3, 2, 1)[0], {}, {"index": poisoned((2, 3, 3, 3), np.uint8)},
                          {"window": 3, "stride": 2, "padding": 1}),
    "avgpool2d_forward": (lambda x: references.avgpool2d(x, 3, 2, 1), {}, {}, {"window": 3, "stride": 2, "padding": 1}),
    "global_avgpool_forward": (references.global_avgpool, {}, {}, {}),
    "pad_forward": (lambda x: references.pad(x, 1), {}, {}, {"amount": 1}),
    "flatten_forward": (references.flatten, {}, {}, {}),
    "dropout_forward": (lambda x: x, {"counters": np.zeros(3, np.int64)}, {"mask": poisoned((2, 6, 5, 3), np.uint8)},
                        {"rate": 0.999, "seed": 0, "stream": 0}),
    "winner_take_all_forward": (lambda x: x, {}, {"mask": poisoned((2, 6, 5, 3), np.uint8)}, {"winners": 1, "images": 1}),
    "lrn_forward": (lambda x: references.lrn(x, 3, 1, 1, 1)[0], {}, {"sums": poisoned((2, 6, 5, 3))},
                    {"size": 3, "alpha": 1.0, "beta": 1.0, "k": 1.0}),
    "position_norm_forward": (lambda x: x + x.sum(axis=3, keepdims=True), {}, {"norms": poisoned((2, 6, 5))},
                              {"epsilon": 0.01}),
    "attention_forward": (lambda x: references.attention(x)[0], {}, {"weights": poisoned((2, 30, 30))}, {}),
    "local_contrast_forward": (lambda x: x, {"image": normal(2, 7, 6, 1)}, {}, {"kernel": 2, "epsilon": 0.01}),
    "soft_threshold_forward": (lambda x: np.concatenate((x, x), axis=3), {}, {}, {"threshold": 0.25}),
    "batchnorm_forward": (lambda x: x + x.sum(axis=(0, 1, 2)), {"weight": normal(3), "bias": normal(3)},
                          {"mean": poisoned(3), "inverse": poisoned(3), "running_mean": normal(3), "running_var": normal(3)},
                          {"decay": 0.9, "epsilon": EPSILON}),
}


@pytest.mark.parametrize("operation", SPREADS)
def test_nan_is_not_lost_and_does_not_spread(operation):
    """A diverged training must show in the loss."""
    expected, reads, writes, attributes = SPREADS[operation]
    x = normal(2, 6, 5, 3)
    x[1, 3, 2, 1] = np.nan
    y = poisoned(expected(x).shape)
    step(operation, {"a" if operation == "add_forward" else "x": x, **reads}, {"y": y, **writes}, **attributes)
    assert np.array_equal(np.isnan(y), np.isnan(expected(x)))


def test_nan_of_a_gradient_is_not_lost_in_the_update():
    parameter = np.ones(2, np.float32)
    run("update.cu", "sgd_update", parameter, np.array([np.nan, 9], np.float32), *step_state(0), 2, 0.0, 1.0, count=2)
    assert np.isnan(parameter).tolist() == [True, False]


# ---- loss, update, input


@pytest.mark.parametrize("count, parts", [(1, 1024), (45, 7), (1024, 1024), (3 * 32 * 32 * 3 + 1, 1000)])
def test_mse(count, parts):
    for values, exact in ((integers, True), (normal, False)):
        prediction, target = values(count), values(count, seed=1)
        gradient, partials, losses = poisoned(count), poisoned(parts), poisoned(5, np.float64)
        run("mse.cu", "mse_gradient", prediction, target, gradient, count, 2 / 64, count=count)
        run("mse.cu", "mse_partials", prediction, target, partials, count, parts, count=parts)
        check(kernel("mse.cu", "mse_total"), (1,), (1,),
              (partials, counters(7, 0, 2), losses, np.int32(count), np.int32(parts)))
        difference = prediction.astype(float) - target
        loss = np.mean(difference ** 2)
        assert (np.abs(gradient - 2 / 64 * difference) <= (0 if exact else gamma(2) * np.abs(difference))).all()
        assert abs(losses[2] - loss) <= (loss * 2 ** -50 if exact else gamma(count // parts + 5) * loss)
        assert np.isnan(losses[[0, 1, 3, 4]]).all()


def run_cross_entropy(scores, labels):
    """gradient, loss, hits of scores (batch, 1, 1, classes) at an offset into a larger, shuffled data set."""
    batch, rows = len(scores), len(scores) + 5
    permutation = np.random.default_rng(0).permutation(rows)
    all_labels = np.full(rows, 255, np.uint8)
    all_labels[permutation[3:3 + batch]] = labels
    gradient, losses, hits = poisoned(scores.shape), poisoned(4, np.float64), poisoned(4, np.float64)
    step("cross_entropy", {"prediction": scores, "labels": all_labels, "permutation": permutation,
                           "counters": counters(7, 3, 2)},
         {"gradient": gradient, "losses": losses, "hits": hits})
    assert np.isnan(losses[[0, 1, 3]]).all() and np.isnan(hits[[0, 1, 3]]).all()
    return gradient, losses[2], hits[2]


@pytest.mark.parametrize("values", [integers, normal])   # among integers many maxima are tied
@pytest.mark.parametrize("spread", [1, 30])              # exp(4 * 30) is infinite
@pytest.mark.parametrize("batch, classes", [(1, 2), (5, 10), (40, 33)])
def test_cross_entropy(batch, classes, spread, values):
    check_cross_entropy(run_cross_entropy, values(batch, 1, 1, classes) * np.float32(spread), values is integers)


@pytest.mark.parametrize("distance", [6, 8, 10])
def test_the_loss_of_a_sure_answer_keeps_its_digits(distance):
    check_sure_answer(run_cross_entropy, distance)


def test_cross_entropy_of_a_nan():
    scores = normal(4, 1, 1, 3)
    scores[0, 0, 0, 0] = scores[2, 0, 0, 2] = np.nan   # one where the search for the largest starts
    gradient, loss, hits = run_cross_entropy(scores, np.nan_to_num(scores, nan=-9).reshape(4, 3).argmax(axis=1))
    assert np.isnan(gradient).all(axis=(1, 2, 3)).tolist() == [True, False, True, False]
    assert np.isnan(gradient).sum() == 6 and np.isnan(loss) and hits == 2
    scores[0] = np.nan
    assert run_cross_entropy(scores, [0, 0, 0, 0])[2] <= 2   # not the row whose scores are all NaN


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.125])
@pytest.mark.parametrize("name, averages", [("sgd", 0), ("momentum", 1), ("rmsprop", 1), ("adam", 2)])
def test_update(name, averages, weight_decay, clip):
    count = 300
    for step in (0, 3):
        w, g, state = normal(count), normal(count, seed=1), [np.abs(normal(count, seed=2 + i)) for i in range(averages)]
        momentum = [0.5] if name == "momentum" else []
        wanted, wanted_state = updated(name, *(array.astype(float) for array in (w, g)),
                                       [array.astype(float) for array in state], step, weight_decay, clip, *(momentum or [0]))
        rates, count_of = step_state(step)
        run("update.cu", f"{name}_update", w, *state, g, rates, count_of, count, weight_decay, clip, *momentum, count=count)
        # A handful of roundings, none of a difference of large numbers except w's own; sizes here are at most about 5.
        np.testing.assert_allclose(w, wanted, rtol=0, atol=8 * gamma(8))
        for found, average in zip(state, wanted_state, strict=True):
            np.testing.assert_allclose(found, average, rtol=0, atol=8 * gamma(4))


@pytest.mark.parametrize("name, averages", [("rmsprop", 1), ("adam", 2)])
def test_gradients_as_small_as_epsilon_are_not_divided_by_zero(name, averages):
    w, g = np.zeros(3, np.float32), np.array([0, 1e-8, 1e-7], np.float32)
    state = [np.zeros(3, np.float32) for _ in range(averages)]
    wanted, _ = updated(name, w.astype(float), g.astype(float), [average.astype(float) for average in state], 0, 0, 0, 0)
    run("update.cu", f"{name}_update", w, *state, g, *step_state(0), 3, 0.0, 0.0, count=3)
    np.testing.assert_allclose(w, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ["sgd", "momentum"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_sgd_and_momentum_to_the_last_bit(name, clip):
    w, g, velocity = (normal(3000, seed=seed) for seed in range(3))
    state, momentum = ([velocity], [0.9]) if name == "momentum" else ([], [])
    rates, at = step_state(3)
    wanted = rounded_update(w, g, velocity, rates[3], 0.1, clip, *(momentum or [0]))
    run("update.cu", f"{name}_update", w, *state, g, rates, at, len(w), 0.1, clip, *momentum, count=len(w))
    for found, expected in zip((w, *state), wanted, strict=False):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("at_step", [0, 1, 2, 9, 99, 1999])
def test_adam_corrects_its_start_at_every_step(at_step):
    """1 - 0.999^t is a difference of nearly equal numbers in the first steps."""
    gradient, mean, square, wanted = adam_start(at_step)
    w = np.zeros(4, np.float32)
    run("update.cu", "adam_update", w, mean, square, gradient, np.ones(2000), counters(at_step), 4, 0.0, 0.0, count=4)
    np.testing.assert_allclose(w, wanted, rtol=1e-6)


# A large number and 256 that float32 loses beside it, one by one.
LOST_IN_FLOAT32 = np.array([2 ** 24, *[1] * 256], np.float32)


def test_sums_over_parts_are_in_float64():
    parts, total = len(LOST_IN_FLOAT32), 2 ** 24 + 256
    column = LOST_IN_FLOAT32[:, None].copy()
    mean = poisoned(1)
    run("batchnorm.cu", "batchnorm_mean", column, mean, 2, 1, parts, count=1)
    assert mean[0] == total / 2

    inverse, running_mean, running_var = poisoned(1), np.full(1, 3, np.float32), np.full(1, 5, np.float32)
    run("batchnorm.cu", "batchnorm_statistics", column[1:], np.full(1, 0.1, np.float32), inverse, running_mean, running_var,
        3, 1, parts - 1, np.float64(0.9), np.float64(1e-5), count=1)
    assert inverse[0] == np.float32(1 / np.sqrt(256 / 3 + 1e-5))
    assert running_mean[0] == np.float32(0.9 * 3 + (1 - 0.9) * np.float64(np.float32(0.1)))
    assert running_var[0] == np.float32(0.9 * 5 + (1 - 0.9) * 256 / 2)

    odd = total - 1   # no float32
    run("batchnorm.cu", "batchnorm_statistics", column[:-1], mean, inverse, running_mean, running_var, 6, 1, parts - 1,
        np.float64(0), np.float64(0), count=1)
    assert running_var[0] == np.float32(odd / 5) != np.float32(np.float32(odd) / np.float64(5))

    both, dweight, dbias = np.stack([column, 2 * column]), poisoned(1), poisoned(1)
    run("batchnorm.cu", "batchnorm_parameter_grads", both, dweight, dbias, 1, parts, count=1)
    assert (dbias[0], dweight[0]) == (total, 2 * total)

    run("conv2d.cu", "conv2d_bias_grad", column, dbias, 1, parts, count=1)
    assert dbias[0] == total


def test_losses_are_added_in_float64():
    parts, total, losses, hits = len(LOST_IN_FLOAT32), 2 ** 24 + 256, np.zeros(1), np.zeros(1)
    check(kernel("mse.cu", "mse_total"), (1,), (1,), (LOST_IN_FLOAT32, counters(0), losses, np.int32(3), np.int32(parts)))
    assert losses[0] == total / 3
    rows = np.stack([LOST_IN_FLOAT32, LOST_IN_FLOAT32])
    check(kernel("cross_entropy.cu", "cross_entropy_totals"), (1,), (1,), (rows, counters(0), losses, hits, np.int32(parts)))
    assert (losses[0], hits[0]) == (total / parts, total)


def test_advance():
    state = counters(4, 128, 2)
    check(kernel("update.cu", "advance"), (1,), (1,), (state, np.int32(64)))
    assert state.tolist() == [5, 192, 3]


def dataset(darkest, dtype):
    """(images, an order of them, scale and offset by channel)."""
    images = np.random.default_rng(0).integers(darkest, 256, (11, 5, 7, 3)).astype(dtype)
    scale, offset = np.array([1 / 255, 0.3, 1], np.float32), np.array([0.1, -2, 0], np.float32)
    return images, np.random.default_rng(1).permutation(11), scale, offset


@pytest.mark.parametrize("flip", [0, 1])
@pytest.mark.parametrize("name, dtype", [("load_batch_uint8", np.uint8), ("load_batch_float32", np.float32)])
def test_load_batch_is_what_numpy_gathers_to_the_last_bit(name, dtype, flip):
    images, permutation, scale, offset = dataset(0, dtype)
    x = poisoned((4, 5, 7, 3))
    run("load_batch.cu", name, images, permutation, counters(9, 5), scale, offset, x, *x.shape, flip, count=x.size)
    gathered = images[permutation[5:9]][:, :, ::-1 if flip else 1]
    assert np.array_equal(x, gathered * scale + offset)


@pytest.mark.parametrize("crop, flip", [(0, True), (4, False), (4, True), (100, True)])
@pytest.mark.parametrize("batch, seed, at_step", [(1, 0, 0), (300, 2 ** 64 - 3, 2 ** 40 + 1)])
def test_draw_augmentation(batch, seed, at_step, crop, flip):
    drawn = poisoned((batch, 3), np.int32)
    step("draw_augmentation", {"counters": counters(at_step, 64, 1)}, {"augmentation": drawn}, crop=crop, flip=flip, seed=seed)
    numbers = philox(seed, 3, at_step, 4 * batch).reshape(batch, 4)
    shifts = (numbers[:, :2] % np.uint64(2 * crop + 1)).astype(int) - crop
    assert np.array_equal(drawn[:, :2], shifts)
    assert np.array_equal(drawn[:, 2], numbers[:, 2] >> np.uint64(63) if flip else np.zeros(batch))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_load_augmented_batch_is_what_numpy_gathers_to_the_last_bit(dtype):
    images, permutation, scale, offset = dataset(1, dtype)
    augmentation = np.array([[0, 0, 0], [0, 0, 1], [1, -2, 0], [-2, 1, 1], [3, 4, 1], [-5, 0, 0], [0, 7, 1], [5, -1, 0]],
                            np.int32)
    x = poisoned((8, 5, 7, 3))
    step("load_augmented_batch", {"images": images, "permutation": permutation, "counters": counters(9, 3), "scale": scale,
                                  "offset": offset, "augmentation": augmentation}, {"batch": x})
    assert np.array_equal(x, references.load_augmented_batch(images, permutation[3:11], scale, offset, augmentation))


@pytest.mark.parametrize("tangent, colour, channels", [(0, 0.5, 3), (0.4, 0, 1), (0.2, 0.9, 9)])
@pytest.mark.parametrize("batch, seed, at_step", [(1, 0, 0), (300, 2 ** 64 - 3, 2 ** 40 + 1)])
def test_draw_jitter(batch, seed, at_step, tangent, colour, channels):
    drawn = poisoned((batch, 2 + channels))
    step("draw_jitter", {"counters": counters(at_step, 64, 1)}, {"jitter": drawn}, tangent=tangent, colour=colour, seed=seed)
    assert np.array_equal(drawn, references.jitter(seed, at_step, batch, channels, tangent, colour))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_load_jittered_batch_is_the_definition_to_the_last_bit(dtype):
    images, permutation, scale, offset = dataset(1, dtype)
    augmentation = np.array([[0, 0, 0], [0, 0, 1], [1, -2, 0], [-2, 1, 1], [3, 4, 1], [-5, 0, 0], [0, 9, 1], [5, -1, 0]],
                            np.int32)
    jitter = references.jitter(4, 5, 8, 3, 0.4, 0.5)
    jitter[0, :2] = 1, 0   # not turned
    x = poisoned((8, 5, 7, 3))
    step("load_jittered_batch", {"images": images, "permutation": permutation, "counters": counters(9, 3), "scale": scale,
                                 "offset": offset, "augmentation": augmentation, "jitter": jitter}, {"batch": x})
    assert np.array_equal(x, references.load_jittered_batch(images, permutation[3:11], scale, offset, augmentation, jitter))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("operation, more", [
    ("load_batch", {}), ("load_augmented_batch", {"augmentation": np.zeros((8, 3), np.int32)}),
    ("load_jittered_batch", {"augmentation": np.zeros((8, 3), np.int32),
                             "jitter": np.tile(np.array([1, 0, 1, 1, 1], np.float32), (8, 1))})])
def test_a_data_set_may_have_more_values_than_32_bits_count(operation, more, dtype):
    images, permutation, scale, offset = dataset(1, dtype)
    first = 2 ** 32 // images[0].size + 1
    all_images = sparse_memory.zeros((first + len(images), *images.shape[1:]), dtype)
    all_images[first:] = images
    x = poisoned((8, 5, 7, 3))
    step(operation, {"images": all_images, "permutation": permutation + first, "counters": counters(9, 3), "scale": scale,
                     "offset": offset, **more}, {"batch": x}, run=lambda kernel, *launch: kernel(*launch),
         **({} if more else {"flip": 0}))
    assert np.array_equal(x, references.load_batch(images, permutation[3:11], scale, offset, False))


# ---- every file

FILES = sorted(path.name for path in FOLDER.glob("*.cu"))


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("file", FILES)
def test_every_gpu_can_run_it(file, architecture):
    binary = compiled(f"gpu_basic/{file}", (), architecture)
    assert sorted(binary.kernels) == sorted(load(FOLDER / file).names)
    for name, resources in binary.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
        assert resources.static_shared_bytes == 0, f"{name}: this rung uses global memory only"
        assert resources.registers * (resources.most_threads or 1) <= 65536, name
        body = binary.ptx.partition(f".entry {name}(")[2]
        assert "st.global" in body.partition(".entry")[0], f"{name} does nothing on {architecture}"


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("file, kernels", [
    ("load_batch.cu", ("load_batch_uint8", "load_batch_float32")), ("update.cu", ("sgd_update", "momentum_update")),
    ("augmentation.cu", ("load_augmented_batch_uint8", "load_augmented_batch_float32")),
    ("jitter.cu", ("draw_jitter", "load_jittered_batch_uint8", "load_jittered_batch_float32"))])
def test_what_is_claimed_to_the_last_bit_has_no_fused_product(file, kernels):
    ptx = compiled(f"gpu_basic/{file}", (), "sm_80").ptx
    assert {name: fused(ptx, name) for name in kernels} == {name: [] for name in kernels}


@pytest.mark.parametrize("file", FILES)
def test_header_has_every_required_part(file):
    lines = (FOLDER / file).read_text().splitlines()
    head = "\n".join(itertools.takewhile(lambda line: line.startswith("//"), lines))
    for part in ("Rung:", "Layout", "Launches:", "Bound:", "Predicted, not measured", "Measured: "):
        assert part in head, part
