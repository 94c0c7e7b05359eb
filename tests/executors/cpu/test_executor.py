"""The cpu rung's operations against their definitions and against finite differences, in float64."""

import functools

import numpy as np
import pytest

import cpu_rung
import references
from ladder.executors.cpu import small
from ladder.executors.cpu import winograd as numpy_winograd
from ladder.executors.cpu.convolution import windows_of
from ladder.executors.cpu.executor import OPERATIONS, Executor

CONVOLUTIONS = [   # images, height, width, channels, filters, kernel, stride, padding
    (1, 4, 4, 1, 1, 3, 1, 1),
    (3, 5, 7, 2, 3, 3, 1, 1),
    (2, 6, 5, 3, 2, 5, 1, 2),
    (2, 5, 6, 4, 2, 3, 1, 0),
    (5, 3, 3, 2, 2, 1, 1, 0),
    (2, 4, 6, 3, 17, 3, 1, 1),
    (2, 6, 7, 2, 3, 3, 2, 1),     # the last row of pixels meets no window's middle
    (3, 8, 5, 3, 2, 1, 2, 0),     # windows that leave pixels out
    (1, 9, 8, 1, 2, 7, 2, 3),
    (2, 6, 6, 2, 1, 2, 3, 1),
    (2, 3, 2, 2, 2, 2, 1, 3),     # windows that see no pixel
    (3, 2, 3, 2, 3, 4, 1, 1),     # taps that are over no pixel in any window, and over the first alone
    (4, 1, 1, 6, 3, 1, 1, 0),     # a dense layer
    (2, 1, 1, 70, 65, 1, 1, 0),
    (19, 5, 5, 2, 17, 2, 1, 0),   # several groups of images, the last one smaller
    (3, 9, 8, 3, 5, 3, 2, 0),
]


POOLED = [shape for shape in CONVOLUTIONS
          if min(references.slid(shape[1], shape[2], *(shape[place] for place in (5, 6, 7)))) > 1]
FORMS = [(shape, pool) for pool, shapes in ((False, CONVOLUTIONS), (True, POOLED)) for shape in shapes]


@pytest.fixture(params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def executor(request, monkeypatch):
    """One thread, which does all at once, or several that share pieces: of filters, or of images."""
    if request.param > 1:
        cpu_rung.cut_at_any_size(monkeypatch, cpu_rung.BY_FILTER if request.param == 2 else cpu_rung.BY_IMAGE)
    return Executor(request.param)


@pytest.fixture(params=[True, False], ids=["tasks", "pieces"])
def small_or_not(request, monkeypatch):
    """Convolutions as tasks where they can be, and as pieces of large ones."""
    if not request.param:
        monkeypatch.setattr(small, "MOST_WEIGHTS", 0)


def test_several_threads_share_small_operands_in_blocks_and_groups_of_which_the_last_are_smaller(monkeypatch):
    cpu_rung.cut_at_any_size(monkeypatch, cpu_rung.BY_IMAGE)
    shape, shares = (19, 5, 5, 2, 17, 2, 1, 0), []
    assert shape in CONVOLUTIONS and 19 % -(-19 // small.GROUPS), "as tasks, groups of two images and a last one of one"
    cut = windows_of(shape[:4], (17, 2, 2, 2), 1, 0).cut(17)
    assert (cut.size, cut.group, cut.groups) == (2, 8, 3), "blocks of two images and one of one, groups of four and of two"
    Executor(3).parallel(19, lambda worker, *share: shares.append(share), cut.cost, piece=cut.group)
    assert sorted(shares) == [(0, 8), (8, 16), (16, 19)]


def test_the_device_names_the_number_of_threads(executor):
    assert executor.device().endswith(", 1 thread" if executor.threads == 1 else f", {executor.threads} threads")


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(np.float32)


def empty(*shape, dtype=np.float64):
    """An array filled with NaN, which the operation under test must overwrite."""
    return np.full(shape, np.nan, dtype)


def call(executor, operation, **operands):
    cpu_rung.perform(executor, operation, **operands)


def convolve(executor, x, weight, bias, stride, padding, relu=False, pool=False):
    """(y, {"index": positions of the maxima} with pool, else {}) from conv2d_forward."""
    filters, kernel = weight.shape[:2]
    height, width = references.slid(*x.shape[1:3], kernel, stride, padding)
    shape = (len(x), height // 2, width // 2, filters) if pool else (len(x), height, width, filters)
    y, index = empty(*shape, dtype=x.dtype), {"index": np.full(shape, 99, np.uint8)} if pool else {}
    call(executor, "conv2d_forward", x=x, weight=weight, bias=bias, y=y, stride=stride, padding=padding, relu=relu, **index)
    return y, index


def convolution_operands(shape, values):
    images, height, width, channels, filters, kernel, stride, padding = shape
    operands = values(images, height, width, channels), values(filters, kernel, kernel, channels), values(filters)
    return *operands, {"stride": stride, "padding": padding}


@functools.cache
def finite_differences(shape, relu=False, pool=False, upsample=False):
    """Gradients of sum(dy * layer) by x, weight and bias; the layer by its definition, so one result serves all executors."""
    x, weight, bias, sliding = convolution_operands(shape, normal)

    def layer():
        y = references.conv2d(references.upsample2d(x) if upsample else x, weight, bias, **sliding)
        if pool:   # as references.maxpool2d, whose scalar loop is too slow for this many calls
            images, height, width, filters = y.shape
            y = y[:, :height // 2 * 2, :width // 2 * 2].reshape(images, height // 2, 2, width // 2, 2, filters).max(axis=(2, 4))
        return references.relu(y) if relu else y

    dy = normal(*layer().shape, seed=1)
    return [references.gradient(layer, value, dy) for value in (x, weight, bias)]


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize(("shape", "pool"), FORMS, ids=str)
def test_conv2d_is_its_definition_exactly_on_small_integers(executor, small_or_not, shape, pool, relu):
    x, weight, bias, sliding = convolution_operands(shape, integers)
    expected = references.conv2d(x, weight, bias, **sliding)
    if pool:
        expected, place = references.maxpool2d(expected)
    expected = references.relu(expected) if relu else expected
    y, index = convolve(executor, x, weight, bias, **sliding, relu=relu, pool=pool)
    assert np.array_equal(y, expected)
    assert not pool or np.array_equal(index["index"], place)


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize(("shape", "pool"), FORMS, ids=str)
def test_conv2d_gradients_are_finite_differences(executor, small_or_not, shape, pool, relu):
    x, weight, bias, sliding = convolution_operands(shape, normal)
    attributes = {**sliding, "relu": relu}
    y, index = convolve(executor, x, weight, bias, **attributes, pool=pool)
    dy = normal(*y.shape, seed=1)
    dx, dweight, dbias = (empty(*value.shape) for value in (x, weight, bias))
    call(executor, "conv2d_backward", x=x, weight=weight, y=y, dy=dy, dweight=dweight, dbias=dbias, dx=dx, **attributes,
         **index)
    for gradient, expected in zip((dx, dweight, dbias), finite_differences(shape, relu, pool), strict=True):
        assert np.allclose(gradient, expected, rtol=1e-6, atol=1e-7)


WINOGRAD = [   # images, height, width, channels, filters, padding
    (1, 2, 2, 1, 1, 1),
    (3, 5, 7, 2, 3, 1),     # tiles that reach over the edge
    (4, 4, 6, 3, 2, 0),
    (2, 3, 4, 2, 2, 2),
    (2, 2, 3, 17, 18, 1),
    (2, 8, 9, 2, 3, 1),     # tiles that overlap in both axes
]


def winograd(executor, x, weight, bias, padding, relu=False, pool=False):
    """As `convolve`, and the transformed weight."""
    height, width = references.slid(*x.shape[1:3], 3, 1, padding)
    shape = (len(x), height // 2, width // 2, len(weight)) if pool else (len(x), height, width, len(weight))
    transformed, y = empty(36, len(weight), weight.shape[3], dtype=x.dtype), empty(*shape, dtype=x.dtype)
    index = {"index": np.full(shape, 99, np.uint8)} if pool else {}
    call(executor, "winograd_conv2d_weight", weight=weight, transformed=transformed)
    call(executor, "winograd_conv2d_forward", x=x, transformed=transformed, bias=bias, y=y, padding=padding, relu=relu, **index)
    return y, index, transformed


@pytest.fixture(params=["by image", "by plane", "by plane in chunks"])
def shared_out(request, monkeypatch):
    """Every way of distributing a Winograd convolution over threads, at any size."""
    if request.param != "by image":
        monkeypatch.setattr(numpy_winograd, "FEW_WEIGHTS", 0)
    if request.param == "by plane in chunks":
        monkeypatch.setattr(numpy_winograd, "SUM_TILES", 4)
        monkeypatch.setattr(numpy_winograd, "CHUNK_NUMBERS", 1)


@pytest.mark.parametrize("form", [(False, False), (True, False), (True, True)], ids=["", "relu", "relu and pool"])
@pytest.mark.parametrize("shape", WINOGRAD, ids=str)
def test_winograd_conv2d_is_a_convolution(executor, shared_out, shape, form):
    images, height, width, channels, filters, padding = shape
    x, weight, bias = (integers(*shape).astype(np.float64) for shape in
                       ((images, height, width, channels), (filters, 3, 3, channels), (filters,)))
    convolved, (relu, pool) = references.conv2d(x, weight, bias, padding), form
    expected = references.maxpool2d(convolved)[0] if pool else convolved
    y, index, _ = winograd(executor, x, weight, bias, padding, relu, pool)
    np.testing.assert_allclose(y, references.relu(expected) if relu else expected, rtol=1e-12, atol=1e-12)
    if pool:   # equal sums are rounded differently, so any of several maxima may be the first
        row, column = np.divmod(index["index"], 2)
        n, r, q, c = np.indices(y.shape)
        assert np.array_equal(convolved[n, 2 * r + row, 2 * q + column, c], expected)


@pytest.mark.parametrize("form", [(False, False), (True, False), (True, True)], ids=["", "relu", "relu and pool"])
@pytest.mark.parametrize("shape", WINOGRAD, ids=str)
def test_winograd_conv2d_gradients_are_finite_differences(executor, shared_out, shape, form):
    images, height, width, channels, filters, padding = shape
    x, weight, bias = normal(images, height, width, channels), normal(filters, 3, 3, channels), normal(filters)
    relu, pool = form
    y, index, transformed = winograd(executor, x, weight, bias, padding, relu, pool)
    dy = normal(*y.shape, seed=1)
    dx, dweight, dbias = (empty(*value.shape) for value in (x, weight, bias))
    call(executor, "winograd_conv2d_backward", x=x, transformed=transformed, y=y, dy=dy, dweight=dweight, dbias=dbias, dx=dx,
         padding=padding, relu=relu, **index)
    expected = finite_differences((images, height, width, channels, filters, 3, 1, padding), relu, pool)
    for gradient, wanted in zip((dx, dweight, dbias), expected, strict=True):
        assert np.allclose(gradient, wanted, rtol=1e-6, atol=1e-7)


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
    expected = finite_differences((*shape, 3, 1, 1), relu, upsample=True)
    for gradient, wanted in zip((dx, dweight, dbias), expected, strict=True):
        assert np.allclose(gradient, wanted, rtol=1e-6, atol=1e-7)


def forward(executor, operation, x, shape, dtype=None, **attributes):
    """y of an operation that reads x only."""
    y = empty(*shape, dtype=dtype or x.dtype)
    call(executor, f"{operation}_forward", x=x, y=y, **attributes)
    return y


def backward(executor, operation, shape, **operands):
    """dx of this shape, of dy's dtype."""
    dx = empty(*shape, dtype=operands["dy"].dtype)
    call(executor, f"{operation}_backward", dx=dx, **operands)
    return dx


def test_relu_and_its_gradient(executor):
    x, dy = normal(3, 5, 4, 2), normal(3, 5, 4, 2, seed=1)
    x[0, 0, 0] = 0
    y = forward(executor, "relu", x, x.shape)
    assert np.array_equal(y, references.relu(x))
    assert np.array_equal(backward(executor, "relu", x.shape, y=y, dy=dy), np.where(x > 0, dy, 0))


def test_add(executor):
    a, b = integers(3, 5, 4, 2), integers(3, 5, 4, 2, seed=1)
    y = empty(*a.shape, dtype=a.dtype)
    call(executor, "add_forward", a=a, b=b, y=y)
    assert np.array_equal(y, a + b)


@pytest.mark.parametrize("amount", [1, 3])
def test_pad_and_its_gradient(executor, amount):
    x = integers(3, 4, 5, 2)
    expected = references.pad(x, amount)
    assert np.array_equal(forward(executor, "pad", x, expected.shape, amount=amount), expected)
    dy = integers(*expected.shape, seed=1)
    assert np.array_equal(backward(executor, "pad", x.shape, dy=dy, amount=amount), dy[:, amount:-amount, amount:-amount])


def test_flatten_is_channel_by_channel_and_so_is_its_gradient(executor):
    x = integers(3, 4, 5, 2)
    expected = references.flatten(x)
    assert np.array_equal(forward(executor, "flatten", x, expected.shape), expected)
    dy = integers(*expected.shape, seed=1)
    assert np.array_equal(backward(executor, "flatten", x.shape, dy=dy), dy.reshape(3, 2, 4, 5).transpose(0, 2, 3, 1))


WINDOWS = [   # images, height, width, channels, window, stride, padding
    (1, 2, 2, 1, 2, 2, 0),
    (3, 5, 7, 2, 2, 2, 0),
    (4, 6, 3, 5, 2, 2, 0),
    (2, 7, 6, 3, 3, 2, 1),    # windows that overlap
    (2, 4, 4, 2, 3, 2, 0),    # pixels that no window sees
    (3, 4, 5, 2, 2, 1, 1),
    (2, 9, 7, 1, 3, 4, 1),    # pixels between windows
    (1, 15, 16, 17, 15, 1, 0),
]


def pooled_shape(shape):
    images, height, width, channels, window, stride, padding = shape
    sliding = {"window": window, "stride": stride, "padding": padding}
    return (images, height, width, channels), (images, *references.slid(height, width, **sliding), channels), sliding


def maxpool(executor, x, shape, sliding):
    y, index = empty(*shape, dtype=x.dtype), np.full(shape, 99, np.uint8)
    call(executor, "maxpool2d_forward", x=x, y=y, index=index, **sliding)
    return y, index


@pytest.mark.parametrize("shape", WINDOWS, ids=str)
def test_maxpool2d_takes_the_first_maximum_and_sends_its_gradient_there_alone(executor, shape):
    image, out, sliding = pooled_shape(shape)
    x = integers(*image)   # few values, so many ties
    expected, place = references.maxpool2d(x, **sliding)
    y, index = maxpool(executor, x, out, sliding)
    assert np.array_equal(y, expected)
    assert np.array_equal(index, place)
    dy = integers(*out, seed=1)
    assert np.array_equal(backward(executor, "maxpool2d", image, dy=dy, index=index, **sliding),
                          references.maxpool2d_backward(dy, place, image, **sliding))


@pytest.mark.parametrize("sliding", [(2, 2, 0), (3, 2, 1)], ids=str)
def test_in_maxpool2d_a_nan_wins_and_minus_infinity_is_a_value(executor, sliding):
    image, out, sliding = pooled_shape((3, 6, 6, 17, *sliding))
    x = np.where(integers(*image) > 2, np.nan, -np.inf).astype(np.float32)
    expected, place = references.maxpool2d(x, **sliding)
    y, index = maxpool(executor, x, out, sliding)
    assert np.isnan(y).any() and not np.isnan(y).all()
    assert np.array_equal(y, expected, equal_nan=True)
    assert np.array_equal(index, place)


@functools.cache
def avgpool2d_differences(shape):
    """dx by the definition, for any number of threads."""
    image, out, sliding = pooled_shape(shape)
    x, dy = normal(*image), normal(*out, seed=1)
    return references.gradient(lambda: references.avgpool2d(x, **sliding), x, dy, step=1)


@pytest.mark.parametrize("shape", WINDOWS, ids=str)
def test_avgpool2d_and_its_gradient(executor, shape):
    image, out, sliding = pooled_shape(shape)
    x, dy = normal(*image), normal(*out, seed=1)
    assert np.allclose(forward(executor, "avgpool2d", x, out, **sliding), references.avgpool2d(x, **sliding), rtol=1e-12)
    found = backward(executor, "avgpool2d", image, dy=dy, **sliding)
    assert np.allclose(found, avgpool2d_differences(shape), rtol=1e-9, atol=1e-12)


def test_global_avgpool_and_its_gradient(executor):
    x, dy = normal(4, 5, 3, 18), normal(4, 1, 1, 18, seed=1)
    assert np.allclose(forward(executor, "global_avgpool", x, dy.shape), references.global_avgpool(x), rtol=1e-12)
    assert np.allclose(backward(executor, "global_avgpool", x.shape, dy=dy), np.broadcast_to(dy / 15, x.shape), rtol=1e-12)


def test_upsample2d_repeats_pixels_and_adds_up_their_gradients(executor):
    x, dy = integers(3, 2, 5, 2), integers(3, 4, 10, 2, seed=1)
    assert np.array_equal(forward(executor, "upsample2d", x, dy.shape), references.upsample2d(x))
    assert np.array_equal(backward(executor, "upsample2d", x.shape, dy=dy),
                          dy.reshape(3, 2, 2, 5, 2, 2).sum(axis=(2, 4)))


NORMALIZED = [(1, 1, 1, 2), (5, 1, 1, 3), (4, 3, 5, 2), (3, 4, 4, 33), (12, 4, 3, 2)]   # the last has many rows
EPSILON, DECAY = 1e-3, 0.7


def normalize(executor, x, weight, bias, running=None):
    """The outputs of batchnorm_forward: y, mean, inverse."""
    channels = x.shape[3]
    mean, inverse, y = empty(channels, dtype=x.dtype), empty(channels, dtype=x.dtype), empty(*x.shape, dtype=x.dtype)
    running_mean, running_var = running or (np.zeros(channels, x.dtype), np.ones(channels, x.dtype))
    call(executor, "batchnorm_forward", x=x, weight=weight, bias=bias, y=y, mean=mean, inverse=inverse,
         running_mean=running_mean, running_var=running_var, decay=DECAY, epsilon=EPSILON)
    return y, mean, inverse


@pytest.mark.parametrize("shape", NORMALIZED, ids=str)
def test_batchnorm_normalises_each_channel_and_keeps_running_statistics(executor, shape):
    x, weight, bias, *running = normal(*shape), *(normal(shape[3], seed=seed) for seed in range(4))
    expected = references.running_statistics(x, *running, DECAY)
    for found, wanted in zip(normalize(executor, x, weight, bias, running), references.batchnorm(x, weight, bias, EPSILON),
                             strict=True):
        assert np.allclose(found, wanted, rtol=1e-9, atol=1e-12)
    for found, wanted in zip(running, expected, strict=True):
        assert np.allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("shape", NORMALIZED, ids=str)
def test_batchnorm_gradients_are_finite_differences(executor, shape):
    x, weight, bias, dy = normal(*shape), normal(shape[3]), normal(shape[3], seed=1), normal(*shape, seed=2)
    _, mean, inverse = normalize(executor, x, weight, bias)
    dx, dweight, dbias = (empty(*value.shape) for value in (x, weight, bias))
    call(executor, "batchnorm_backward", x=x, weight=weight, mean=mean, inverse=inverse, dy=dy, dx=dx, dweight=dweight,
         dbias=dbias)
    for value, gradient in ((x, dx), (weight, dweight), (bias, dbias)):
        expected = references.gradient(lambda: references.batchnorm(x, weight, bias, EPSILON)[0], value, dy)
        assert np.allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_batchnorm_of_values_far_from_zero_keeps_its_digits(executor):
    """E[x^2] - E[x]^2 in float32 has none left here."""
    x = (3000 + normal(8, 16, 16, 20)).astype(np.float32)
    _, mean, inverse = normalize(executor, x, np.ones(20, np.float32), np.zeros(20, np.float32))
    _, expected_mean, expected_inverse = references.batchnorm(x, 1, 0, EPSILON)
    assert np.allclose(mean, expected_mean, rtol=2e-7, atol=0)
    assert np.allclose(inverse, expected_inverse, rtol=1e-5, atol=0)


def test_batchnorm_inference_uses_the_running_statistics(executor):
    x, weight, bias, running_mean = normal(5, 3, 2, 4), normal(4), normal(4, seed=1), normal(4, seed=2)
    running_var, y = np.square(normal(4, seed=3)), empty(5, 3, 2, 4)
    call(executor, "batchnorm_inference", x=x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var,
         y=y, epsilon=EPSILON)
    expected = references.batchnorm_inference(x, weight, bias, running_mean, running_var, EPSILON)
    assert np.allclose(y, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 1, 7), (4, 2, 5, 6)], ids=str)
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.5])
def test_dropout_is_drawn_by_seed_layer_step_and_place(executor, shape, rate):
    x, dy = normal(*shape), normal(*shape, seed=1)
    y, mask = empty(*shape), np.full(shape, 99, np.uint8)
    call(executor, "dropout_forward", x=x, counters=np.array([6, 0, 0]), y=y, mask=mask, rate=rate, seed=5, stream=4)
    assert np.array_equal(mask, references.dropout_mask(5, 4, 6, x.size, rate).reshape(shape))
    assert np.allclose(y, references.dropout(x, mask, rate), rtol=1e-12)
    assert np.allclose(backward(executor, "dropout", shape, dy=dy, mask=mask, rate=rate), references.dropout(dy, mask, rate),
                       rtol=1e-12)


SAMPLED = [(1, 1, 1, 1), (3, 1, 1, 7), (4, 2, 5, 6)]


@pytest.mark.parametrize("shape", SAMPLED, ids=str)
def test_a_sample_is_drawn_by_seed_layer_step_and_place(executor, shape):
    mean, log_variance, y, noise = normal(*shape), normal(*shape, seed=1), empty(*shape), empty(*shape)
    call(executor, "sample_forward", mean=mean, log_variance=log_variance, counters=np.array([6, 0, 0]), y=y, noise=noise,
         seed=5, stream=4)
    drawn = references.normal(5, 16 + 4, 6, mean.size).reshape(shape)
    expected, added = references.sample(mean, log_variance, drawn)
    assert np.allclose(y, expected, rtol=0, atol=3e-5) and np.allclose(noise, added, rtol=2e-6, atol=0)


@pytest.mark.parametrize("shape", SAMPLED, ids=str)
def test_the_gradient_of_a_sample_has_that_of_its_divergence(executor, shape):
    mean, log_variance, dy = (normal(*shape, seed=seed) for seed in range(3))
    drawn, divergences, gradients = normal(*shape, seed=3), np.full(3, 99.0), [empty(*shape), empty(*shape)]
    call(executor, "sample_backward", mean=mean, log_variance=log_variance,
         noise=references.sample(mean, log_variance, drawn)[1], dy=dy, counters=np.array([7, 40, 1]), dmean=gradients[0],
         dlog_variance=gradients[1], divergences=divergences, factor=0.3)
    for found, expected in zip(gradients, references.sample_gradients(mean, log_variance, drawn, dy, 0.3), strict=True):
        assert np.allclose(found, expected, rtol=1e-7, atol=1e-8)
    assert divergences == pytest.approx([99, references.divergences(mean, log_variance).mean(), 99], rel=1e-12)


WINNERS = [   # shape, winners of a map, images of the batch
    ((1, 1, 1, 1), 1, 1), ((4, 3, 5, 7), 1, 2), ((5, 4, 3, 2), 3, 5), ((3, 2, 2, 9), 4, 1)]


@pytest.mark.parametrize("draw", [normal, integers], ids=["distinct", "ties"])
@pytest.mark.parametrize("shape, winners, images", WINNERS, ids=str)
def test_winner_take_all_and_its_gradient(executor, shape, winners, images, draw):
    x, dy, y, mask = draw(*shape), normal(*shape, seed=1), empty(*shape), np.full(shape, 99, np.uint8)
    call(executor, "winner_take_all_forward", x=x, y=y, mask=mask, winners=winners, images=images)
    expected, kept = references.winner_take_all(x, winners, images)
    assert np.array_equal(mask, kept) and np.array_equal(y, expected)
    assert np.array_equal(backward(executor, "winner_take_all", shape, dy=dy, mask=mask), dy * kept)


@pytest.mark.parametrize("shape, filters, kernel, padding, wide", [
    ((1, 1, 1, 1), 1, 1, 0, 1), ((4, 6, 5, 3), 7, 3, 0, 5), ((3, 5, 8, 2), 300, 4, 2, 2), ((5, 7, 7, 1), 33, 5, 1, 9)], ids=str)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("winners", [1, 4])
def test_a_code_of_winners_is_the_dense_code(executor, shape, filters, kernel, padding, wide, images, winners):
    """Convolution, ReLU, winner-take-all and a second convolution that restores the image's size; all gradients."""
    count, height, width, channels = shape
    x, weight, bias = normal(*shape), normal(filters, kernel, kernel, channels), normal(filters)
    second, second_bias = normal(channels, wide, wide, filters), normal(channels, seed=1)
    maps = references.relu(references.conv2d(x, weight, bias, padding))
    winners = min(winners, maps[0, :, :, 0].size)
    sparse, mask = references.winner_take_all(maps, winners, images)
    outer = (height - maps.shape[1] + wide - 1) // 2
    rebuilt = references.conv2d(sparse, second, second_bias, outer)

    value, place = empty(count, winners, 1, filters), np.full((count, winners, 1, filters), 99, np.int32)
    call(executor, "winner_conv2d_forward", x=x, weight=weight, bias=bias, value=value, place=place, padding=padding,
         images=images)
    largest = -np.sort(-sparse.reshape(count, -1, filters), axis=1)[:, :winners]
    assert np.allclose(value[:, :, 0], largest, rtol=1e-12)
    y = empty(*rebuilt.shape)
    call(executor, "winner_decode_forward", value=value, place=place, weight=second, bias=second_bias, y=y, padding=outer,
         width=maps.shape[2])
    assert np.allclose(y, rebuilt, rtol=1e-10, atol=1e-11)

    dy, dvalue, gradients = normal(*y.shape, seed=2), empty(*value.shape), [empty(*second.shape), empty(channels)]
    call(executor, "winner_decode_backward", value=value, place=place, weight=second, dy=dy, dvalue=dvalue,
         dweight=gradients[0], dbias=gradients[1], padding=outer, width=maps.shape[2])
    dense = references.conv2d_input_grad(dy, second, outer, *maps.shape[1:3])
    assert np.allclose(gradients[0], references.conv2d_weight_grad(sparse, dy, outer, wide), rtol=1e-10, atol=1e-11)
    assert np.allclose(gradients[1], dy.sum(axis=(0, 1, 2)), rtol=1e-10, atol=1e-11)

    passed = dense * mask * (maps > 0)
    dx, dweight, dbias = empty(*x.shape), empty(*weight.shape), empty(filters)
    call(executor, "winner_conv2d_backward", x=x, place=place, dvalue=dvalue, dweight=dweight, dbias=dbias,
         padding=padding, weight=weight, dx=dx)
    assert np.allclose(dweight, references.conv2d_weight_grad(x, passed, padding, kernel), rtol=1e-10, atol=1e-11)
    assert np.allclose(dbias, passed.sum(axis=(0, 1, 2)), rtol=1e-10, atol=1e-11)
    assert np.allclose(dx, references.conv2d_input_grad(passed, weight, padding, height, width), rtol=1e-10, atol=1e-11)


def test_nan_is_a_winner(executor):
    """A diverged training must show in the loss."""
    x, weight = normal(2, 4, 4, 1), normal(3, 2, 2, 1)
    x[1, 2, 2] = np.nan
    value, place = empty(2, 1, 1, 3), np.full((2, 1, 1, 3), 99, np.int32)
    call(executor, "winner_conv2d_forward", x=x, weight=weight, bias=np.zeros(3), value=value, place=place, padding=0, images=1)
    assert np.isnan(value).tolist() == [[[[False] * 3]], [[[True] * 3]]]
    y, mask = empty(*x.shape), np.zeros(x.shape, np.uint8)
    call(executor, "winner_take_all_forward", x=x, y=y, mask=mask, winners=1, images=1)
    assert mask[1, 2, 2] == 1 and mask.sum() == 1 and np.isnan(y).sum() == 1


def test_l1_penalty_is_the_sign(executor):
    x = np.array([[-2.5, 0, 3]]).reshape(1, 1, 1, 3)
    dx = empty(*x.shape)
    call(executor, "l1_penalty_backward", x=x, dx=dx, factor=0.25)
    assert np.array_equal(dx.ravel(), [-0.25, 0, 0.25])


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 4, 7), (5, 2, 9, 3)])
@pytest.mark.parametrize("scale", [1, 1000])   # exp(1000) is infinite
def test_attention_and_its_gradient(executor, shape, scale):
    images, height, width, channels = shape
    x, dy = scale * normal(images, height, width, 3 * channels), normal(*shape, seed=1)
    y, weights = empty(*shape), empty(images, *2 * (height * width,))
    call(executor, "attention_forward", x=x, y=y, weights=weights)
    for found, wanted in zip((y, weights), references.attention(x), strict=True):
        assert np.allclose(found, wanted, rtol=1e-9, atol=1e-12)
    if scale == 1:   # of such scores the weights are 0 and 1
        expected = references.gradient(lambda: references.attention(x)[0], x, dy)
        dx = backward(executor, "attention", x.shape, x=x, weights=weights, dy=dy)
        assert np.allclose(dx, expected, rtol=1e-6, atol=1e-9)


def test_nan_spreads_over_its_image_by_attention_and_no_further(executor):
    """A diverged training must show in the loss."""
    x = normal(2, 3, 4, 6)
    x[1, 2, 3, 5] = np.nan   # a value
    y = empty(2, 3, 4, 2)
    call(executor, "attention_forward", x=x, y=y, weights=empty(2, 12, 12))
    assert np.isnan(y).all(axis=(1, 2)).tolist() == [[False, False], [False, True]] and np.isnan(y).sum() == 12


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 4, 7), (2, 3, 3, 65)])
def test_position_norm_and_its_gradient(executor, shape):
    x, dy = normal(*shape), normal(*shape, seed=1)
    y, norms = empty(*shape), empty(*shape[:3])
    call(executor, "position_norm_forward", x=x, y=y, norms=norms, epsilon=0.01)
    for found, wanted in zip((y, norms), references.position_norm(x, 0.01), strict=True):
        assert np.allclose(found, wanted, rtol=1e-12)
    expected = references.gradient(lambda: references.position_norm(x, 0.01)[0], x, dy)
    assert np.allclose(backward(executor, "position_norm", shape, y=y, norms=norms, dy=dy), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("channels, kernel", [(1, 1), (3, 2), (2, 4)])
def test_local_contrast(executor, channels, kernel):
    image, x = normal(3, 6, 5, channels), normal(3, 7 - kernel, 6 - kernel, 4, seed=1)
    image[0, :4, :4] = 2   # windows without contrast
    y = empty(*x.shape)
    call(executor, "local_contrast_forward", x=x, image=image, y=y, kernel=kernel, epsilon=0.01)
    assert np.allclose(y, references.local_contrast(x, image, kernel, 0.01), rtol=1e-10)


def test_soft_threshold(executor):
    x = normal(3, 4, 5, 6)
    x[0, 0, 0, :3] = 0.25, -0.25, np.nan
    y = empty(3, 4, 5, 12)
    call(executor, "soft_threshold_forward", x=x, y=y, threshold=0.25)
    assert np.array_equal(np.nan_to_num(y, nan=9), np.nan_to_num(np.where(
        np.isnan(np.concatenate((x, x), axis=3)), 9, references.soft_threshold(x, 0.25))))


@pytest.mark.parametrize("contrast", [False, True])
@pytest.mark.parametrize("pool", [(3, 2, 0), (2, 1, 1), (5, 3, 0)], ids=str)
def test_a_convolution_with_contrast_threshold_and_pool_is_these_in_turn(executor, pool, contrast):
    x, weight, bias = normal(3, 9, 8, 2), normal(5, 3, 3, 2, seed=1), normal(5, seed=2)
    window, stride, padding = pool
    answers = references.conv2d(x, weight, bias, padding=0)
    if contrast:
        answers = references.local_contrast(references.conv2d(x, weight, 0 * bias, padding=0), x, 3, 0.01)
    expected = references.avgpool2d(references.soft_threshold(answers, 0.5), window, stride, padding)
    y, own = empty(*expected.shape), {"image": x, "contrast": {"kernel": 3, "epsilon": 0.01}} if contrast else {"bias": bias}
    call(executor, "conv2d_code_forward", x=x, weight=weight, y=y, stride=1, padding=0, threshold=0.5,
         pool={"window": window, "stride": stride, "padding": padding}, **own)
    assert np.allclose(y, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1, 4, 5, 9])
def test_lrn_and_its_gradient(executor, size):
    x, dy, constants = normal(3, 2, 3, 7), normal(3, 2, 3, 7, seed=1), {"size": size, "alpha": 0.3, "beta": 0.75, "k": 2.0}
    y, sums = empty(*x.shape), empty(*x.shape)
    call(executor, "lrn_forward", x=x, y=y, sums=sums, **constants)
    for found, wanted in zip((y, sums), references.lrn(x, **constants), strict=True):
        assert np.allclose(found, wanted, rtol=1e-12)
    expected = references.gradient(lambda: references.lrn(x, **constants)[0], x, dy)
    assert np.allclose(backward(executor, "lrn", x.shape, x=x, sums=sums, dy=dy, **constants), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_of_the_rows_labels(executor, dtype):
    prediction = (3 * normal(7, 1, 1, 5)).astype(dtype)
    prediction[0] += 1000          # exp would overflow
    prediction[1, 0, 0] = [2, 7, 7, 1, 7]
    labels, permutation = np.arange(12, dtype=np.uint8) % 5, np.random.default_rng(0).permutation(12)
    prediction[2, 0, 0, labels[permutation[4 + 2]]] = 20
    labels[permutation[4 + 1]] = 1
    gradient, losses, hits = empty(*prediction.shape, dtype=dtype), empty(3), empty(3)
    call(executor, "cross_entropy", prediction=prediction, labels=labels, permutation=permutation,
         counters=np.array([9, 4, 1]), gradient=gradient, losses=losses, hits=hits)
    wanted, loss, found = references.cross_entropy(prediction, labels[permutation[4:11]])
    assert found >= 2
    assert hits[1] == found and losses[1] == pytest.approx(loss, rel=1e-12)
    assert np.allclose(gradient, wanted, rtol=1e-6, atol=1e-7 if dtype == np.float32 else 1e-14)
    assert np.isnan([losses[0], losses[2], hits[0], hits[2]]).all()


def test_cross_entropy_counts_of_equal_scores_the_first_and_no_row_with_a_nan(executor):
    prediction = np.float32([[5, 5, 1], [5, 5, 1], [9, np.nan, 1], [np.nan, 0, 1]]).reshape(4, 1, 1, 3)
    gradient, losses, hits = empty(4, 1, 1, 3, dtype=np.float32), np.zeros(1), np.zeros(1)
    call(executor, "cross_entropy", prediction=prediction, labels=np.uint8([0, 1, 0, 0]), permutation=np.arange(4),
         counters=np.zeros(3, int), gradient=gradient, losses=losses, hits=hits)
    assert hits[0] == 1 and np.isnan(losses[0])


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


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_load_batch_gathers_the_permuted_rows_scales_them_and_mirrors_them(executor, dtype, flip):
    images = np.random.default_rng(0).integers(0, 256, (9, 4, 3, 2)).astype(dtype)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 2]), np.float32([1, -3])
    batch = empty(4, 4, 3, 2, dtype=np.float32)
    call(executor, "load_batch", images=images, permutation=permutation, counters=np.array([0, 5, 0]), scale=scale,
         offset=offset, batch=batch, flip=flip)
    assert np.array_equal(batch, references.load_batch(images, permutation[5:9], scale, offset, flip))


@pytest.mark.parametrize(("crop", "flip"), [(0, True), (4, False), (2, True)])
def test_augmentation_is_drawn_by_seed_step_and_row(executor, crop, flip):
    augmentation = np.full((9, 3), 99, np.int32)
    call(executor, "draw_augmentation", counters=np.array([7, 0, 0]), augmentation=augmentation, crop=crop, flip=flip, seed=3)
    assert np.array_equal(augmentation, references.augmentation(3, 7, 9, crop, flip))


def test_augmented_images_are_mirrored_then_shifted_with_zeros_moving_in(executor):
    images = np.random.default_rng(0).integers(0, 256, (9, 4, 3, 2), dtype=np.uint8)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 2]), np.float32([1, -3])
    augmentation = np.int32([(0, 0, 0), (1, -2, 0), (-2, 1, 1), (5, 0, 1), (0, -3, 0)])   # the last two see nothing
    batch = empty(5, 4, 3, 2, dtype=np.float32)
    call(executor, "load_augmented_batch", images=images, permutation=permutation, counters=np.array([0, 4, 0]), scale=scale,
         offset=offset, augmentation=augmentation, batch=batch)
    assert np.array_equal(batch, references.load_augmented_batch(images, permutation[4:], scale, offset, augmentation))


def test_jitter_is_drawn_by_seed_step_and_row(executor):
    jitter = np.full((9, 5), 99, np.float32)
    call(executor, "draw_jitter", counters=np.array([7, 0, 0]), jitter=jitter, tangent=0.3, colour=0.4, seed=3)
    assert np.array_equal(jitter, references.jitter(3, 7, 9, 3, 0.3, 0.4))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_jittered_images_are_their_definition_to_the_last_bit(executor, dtype):
    images = np.random.default_rng(0).integers(0, 256, (9, 6, 5, 2)).astype(dtype)
    permutation, scale, offset = np.random.default_rng(1).permutation(9), np.float32([0.5, 1 / 3]), np.float32([1, -3])
    augmentation = np.int32([(0, 0, 0), (1, -2, 0), (-2, 1, 1), (5, 0, 1), (0, -9, 0)])   # the last sees nothing
    jitter = references.jitter(1, 2, 5, 2, 0.4, 0.5)
    batch = empty(5, 6, 5, 2, dtype=np.float32)
    call(executor, "load_jittered_batch", images=images, permutation=permutation, counters=np.array([0, 4, 0]), scale=scale,
         offset=offset, augmentation=augmentation, jitter=jitter, batch=batch)
    assert np.array_equal(batch, references.load_jittered_batch(images, permutation[4:], scale, offset, augmentation, jitter))


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
        call(executor, f"{name}_update", parameter=parameter, gradient=gradient, learning_rates=rates,
             counters=np.array([step, 0, 0]), weight_decay=weight_decay, clip=clip, **averages, **extra)
        assert np.allclose(parameter, expected, rtol=1e-12, atol=1e-14)
