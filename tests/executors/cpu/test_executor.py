"""What the cpu rung alone has: fused operations and other algorithms. tests/operations has the
operations of all rungs.
"""

import queue
import threading
import time

import numpy as np
import pytest

import cpu_rung
import references
from cpu_rung import perform
from kernel_checks import integers
from ladder.executors.cpu import convolution, small
from ladder.executors.cpu import executor as cpu_executor
from ladder.executors.cpu import winograd as numpy_winograd
from ladder.executors.cpu.convolution import windows_of
from ladder.executors.cpu.executor import Executor
from rung_checks import Convolution, Upsampled

POOLED = [  # images, height, width, channels, filters, kernel, stride, padding
    (1, 4, 4, 1, 1, 3, 1, 1),
    (3, 5, 7, 2, 3, 3, 1, 1),
    (2, 6, 5, 3, 2, 5, 1, 2),
    (2, 5, 6, 4, 2, 3, 1, 0),
    (2, 4, 6, 3, 17, 3, 1, 1),
    (2, 6, 7, 2, 3, 3, 2, 1),  # the last row of pixels meets no window's middle
    (3, 8, 5, 3, 2, 1, 2, 0),  # windows that leave pixels out
    (2, 3, 2, 2, 2, 2, 1, 3),  # windows that see no pixel
    # taps that are over no pixel in any window, and over the first alone
    (3, 2, 3, 2, 3, 4, 1, 1),
    (19, 5, 5, 2, 17, 2, 1, 0),  # several groups of images, the last one smaller
    (3, 9, 8, 3, 5, 3, 2, 0),
]


@pytest.fixture(params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def executor(request, monkeypatch):
    """One thread, which does all at once, or several that share pieces: of filters, or of
    images.
    """
    if request.param > 1:
        cpu_rung.cut_at_any_size(
            monkeypatch, cpu_rung.BY_FILTER if request.param == 2 else cpu_rung.BY_IMAGE
        )
    return Executor(request.param)


@pytest.fixture(params=[True, False], ids=["tasks", "pieces"])
def small_or_not(request, monkeypatch):
    """Convolutions as tasks where they can be, and as pieces of large ones."""
    if not request.param:
        monkeypatch.setattr(small, "MOST_WEIGHTS", 0)


def test_nobody_waits_for_a_thread_that_is_not_running(monkeypatch):
    monkeypatch.setattr(cpu_executor, "SMALL", 1)
    executor, runs, done = Executor(3), threading.Event(), []
    for helper in executor._helpers:
        helper.tasks.put((lambda *_: runs.wait(), [(0, 1)], queue.SimpleQueue()))
    executor.parallel(20, lambda worker, start, stop: done.extend(range(start, stop)), 100, piece=3)
    runs.set()
    assert sorted(done) == list(range(20))


def test_what_a_share_raises_is_raised_when_all_others_are_finished(monkeypatch):
    monkeypatch.setattr(cpu_executor, "SMALL", 1)
    executor, done = Executor(3), []

    def work(worker, start, stop):
        if start == 0:
            raise ValueError("the first share")
        time.sleep(0.01)
        done.append(start)

    with pytest.raises(ValueError, match="the first share"):
        executor.parallel(20, work, 100)
    finished = len(done)
    time.sleep(0.05)
    assert len(done) == finished


def test_threads_share_small_operands_in_blocks_and_groups_with_smaller_last_ones(
    monkeypatch,
):
    cpu_rung.cut_at_any_size(monkeypatch, cpu_rung.BY_IMAGE)
    shape, shares = (19, 5, 5, 2, 17, 2, 1, 0), []  # of POOLED, and of tests/operations
    assert 19 % -(-19 // small.GROUPS), "as tasks, groups of two images and a last one of one"
    cut = windows_of(shape[:4], (17, 2, 2, 2), 1, 0).cut(17)
    assert (cut.size, cut.group, cut.groups) == (2, 8, 3), (
        "blocks of two images and one of one, groups of four and of two"
    )
    Executor(3).parallel(19, lambda worker, *share: shares.append(share), cut.cost, piece=cut.group)
    assert sorted(shares) == [(0, 8), (8, 16), (16, 19)]


def test_the_device_names_the_number_of_threads(executor):
    assert executor.device().endswith(
        ", 1 thread" if executor.threads == 1 else f", {executor.threads} threads"
    )


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def empty(*shape, dtype=np.float64):
    """An array filled with NaN, which the operation under test must overwrite."""
    return np.full(shape, np.nan, dtype)


def by_definition(conv, values, relu, pool):
    """(y, places of the maxima or None, dy, [dx, dweight, dbias]) of a convolution, pooled, then
    with ReLU.
    """
    convolved = conv.forward(conv.x, conv.weight, conv.bias)
    y, place = references.maxpool2d(convolved) if pool else (convolved, None)
    dy = values(*y.shape, seed=5)
    passed = np.where(y > 0, dy, 0) if relu else dy
    passed = references.maxpool2d_backward(passed, place, convolved.shape) if pool else passed
    dx, dweight = conv.input_grad(passed, conv.weight), conv.weight_grad(conv.x, passed)
    return (
        references.relu(y) if relu else y,
        place,
        dy,
        [dx, dweight, passed.sum(axis=(0, 1, 2), dtype=float)],
    )


def directions(executor, operation, conv, dy, **operands):
    """(y, [dx, dweight, dbias]) by an operation's functions of both directions, which share the
    operands.
    """
    y = empty(*dy.shape, dtype=conv.x.dtype)
    written = {
        f"d{role}": np.full_like(getattr(conv, role), np.nan) for role in ("x", "weight", "bias")
    }
    perform(executor, f"{operation}_forward", x=conv.x, bias=conv.bias, y=y, **operands)
    perform(executor, f"{operation}_backward", x=conv.x, y=y, dy=dy, **written, **operands)
    return y, written.values()


EXACT_OR_CLOSE = [(integers, 0), (normal, 1e-11)]


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("shape", POOLED, ids=str)
def test_conv2d_with_pooling_is_its_definition(executor, small_or_not, shape, relu):
    *sizes, stride, padding = shape
    for values, tolerance in EXACT_OR_CLOSE:
        conv = Convolution((*sizes, padding), values, stride)
        wanted, place, dy, gradients = by_definition(conv, values, relu, pool=True)
        index = np.full(place.shape, 99, np.uint8)
        y, found = directions(
            executor,
            "conv2d",
            conv,
            dy.astype(conv.x.dtype),
            weight=conv.weight,
            index=index,
            stride=stride,
            padding=padding,
            relu=relu,
        )
        assert np.array_equal(index, place)
        for one, other in zip((y, *found), (wanted, *gradients), strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


WINOGRAD = [  # images, height, width, channels, filters, padding
    (1, 2, 2, 1, 1, 1),
    (3, 5, 7, 2, 3, 1),  # tiles that reach over the edge
    (4, 4, 6, 3, 2, 0),
    (2, 3, 4, 2, 2, 2),
    (2, 2, 3, 17, 18, 1),
    (2, 8, 9, 2, 3, 1),  # tiles that overlap in both axes
]


@pytest.fixture(params=["by image", "by plane", "by plane in chunks"])
def shared_out(request, monkeypatch):
    """Every way of distributing a Winograd convolution over threads, at any size."""
    if request.param != "by image":
        monkeypatch.setattr(numpy_winograd, "FEW_WEIGHTS", 0)
    if request.param == "by plane in chunks":
        monkeypatch.setattr(numpy_winograd, "SUM_TILES", 4)
        monkeypatch.setattr(numpy_winograd, "CHUNK_NUMBERS", 1)


@pytest.mark.parametrize(
    "relu, pool", [(False, False), (True, False), (True, True)], ids=["", "relu", "relu and pool"]
)
@pytest.mark.parametrize("shape", WINOGRAD, ids=str)
def test_winograd_conv2d_is_a_convolution(executor, shared_out, shape, relu, pool):
    *sizes, padding = shape
    for values in (normal, lambda *shape, seed=0: integers(*shape, seed=seed).astype(float)):
        conv, transformed = Convolution((*sizes, 3, padding), values), empty(36, sizes[4], sizes[3])
        wanted, place, dy, gradients = by_definition(conv, values, relu, pool)
        index = {"index": np.full(place.shape, 99, np.uint8)} if pool else {}
        perform(executor, "winograd_conv2d_weight", weight=conv.weight, transformed=transformed)
        y, found = directions(
            executor,
            "winograd_conv2d",
            conv,
            dy,
            transformed=transformed,
            padding=padding,
            relu=relu,
            **index,
        )
        np.testing.assert_allclose(y, wanted, rtol=1e-11, atol=1e-11)
        # equal sums of integers are rounded differently: any of several may be the largest, or
        # above 0
        if values is normal:
            assert not pool or np.array_equal(index["index"], place)
            for one, other in zip(found, gradients, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


# The forms of an upsampled convolution: its operation, that of its weights, and their role and
# shape, of filters and channels.
UPSAMPLED = {
    "upsample_conv2d": (
        "decompose_weight",
        "phase_weights",
        lambda filters, channels: (channels, 4, 4, filters),
    ),
    "winograd_upsample_conv2d": (
        "winograd_upsample_conv2d_weight",
        "transformed",
        lambda filters, channels: (25, filters, channels),
    ),
}


def upsampled_by(executor, form, conv, dy, relu):
    """(y, gradients) of an Upsampled convolution by one of UPSAMPLED."""
    weight, role, shape = UPSAMPLED[form]
    operands = {role: empty(*shape(len(conv.weight), conv.x.shape[3]), dtype=conv.x.dtype)}
    perform(executor, weight, weight=conv.weight, **operands)
    return directions(executor, form, conv, dy, **operands, relu=relu)


@pytest.mark.parametrize("form", UPSAMPLED)
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1, 1), (3, 2, 3, 2, 3), (2, 3, 1, 3, 16), (5, 4, 3, 2, 18)], ids=str
)
def test_upsample_conv2d_is_upsampling_then_convolution(executor, shape, relu, form):
    for values, tolerance in EXACT_OR_CLOSE:
        conv = Upsampled(shape, values)
        wanted, _, dy, gradients = by_definition(conv, values, relu, pool=False)
        y, found = upsampled_by(executor, form, conv, dy, relu)
        for one, other in zip((y, *found), (wanted, *gradients), strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_rounding_of_an_upsampled_convolution():
    """The errors in docs/math.md."""
    found = {}
    conv = Upsampled((16, 8, 8, 128, 256), normal)
    for number in (np.float32, np.float64):
        for role in ("x", "weight", "bias", "dy"):
            setattr(conv, role, getattr(conv, role).astype(np.float32).astype(number))
        for form in UPSAMPLED:
            y, gradients = upsampled_by(Executor(2), form, conv, conv.dy, relu=False)
            found[number, form] = y, *gradients
    for form in UPSAMPLED:
        pairs = zip(found[np.float32, form], found[np.float64, "upsample_conv2d"], strict=True)
        errors = [
            np.sqrt(np.mean((one - wanted) ** 2) / np.mean(wanted**2)) for one, wanted in pairs
        ]
        print(form, *(f"{error:.1e}" for error in errors))
        assert max(errors) < 6e-7


def test_batchnorm_of_values_far_from_zero_keeps_its_digits(executor):
    """E[x^2] - E[x]^2 in float32 has none left here."""
    x, one = (3000 + normal(8, 16, 16, 20)).astype(np.float32), np.ones(20, np.float32)
    mean, inverse = empty(20, dtype=np.float32), empty(20, dtype=np.float32)
    perform(
        executor,
        "batchnorm_forward",
        x=x,
        weight=one,
        bias=0 * one,
        y=empty(*x.shape, dtype=np.float32),
        mean=mean,
        inverse=inverse,
        running_mean=0 * one,
        running_var=one.copy(),
        decay=0.7,
        epsilon=1e-3,
    )
    _, expected_mean, expected_inverse = references.batchnorm(x, 1, 0, 1e-3)
    assert np.allclose(mean, expected_mean, rtol=2e-7, atol=0)
    assert np.allclose(inverse, expected_inverse, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "shape, filters, kernel, padding, wide",
    [
        ((1, 1, 1, 1), 1, 1, 0, 1),
        ((4, 6, 5, 3), 7, 3, 0, 5),
        ((3, 5, 8, 2), 300, 4, 2, 2),
        ((5, 7, 7, 1), 33, 5, 1, 9),
    ],
    ids=str,
)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("winners", [1, 4])
def test_a_code_of_winners_is_the_dense_code(
    executor, shape, filters, kernel, padding, wide, images, winners
):
    """Convolution, ReLU, winner-take-all and a second convolution that restores the image's size;
    all gradients.
    """
    count, height, width, channels = shape
    x, weight, bias = normal(*shape), normal(filters, kernel, kernel, channels), normal(filters)
    second, second_bias = normal(channels, wide, wide, filters), normal(channels, seed=1)
    maps = references.relu(references.conv2d(x, weight, bias, padding))
    winners = min(winners, maps[0, :, :, 0].size)
    sparse, mask = references.winner_take_all(maps, winners, images)
    outer = (height - maps.shape[1] + wide - 1) // 2
    rebuilt = references.conv2d(sparse, second, second_bias, outer)

    value, place = (
        empty(count, winners, 1, filters),
        np.full((count, winners, 1, filters), 99, np.int32),
    )
    perform(
        executor,
        "winner_conv2d_forward",
        x=x,
        weight=weight,
        bias=bias,
        value=value,
        place=place,
        padding=padding,
        images=images,
    )
    largest = -np.sort(-sparse.reshape(count, -1, filters), axis=1)[:, :winners]
    assert np.allclose(value[:, :, 0], largest, rtol=1e-12)
    y = empty(*rebuilt.shape)
    perform(
        executor,
        "winner_decode_forward",
        value=value,
        place=place,
        weight=second,
        bias=second_bias,
        y=y,
        padding=outer,
        width=maps.shape[2],
    )
    assert np.allclose(y, rebuilt, rtol=1e-10, atol=1e-11)

    dy, dvalue, gradients = (
        normal(*y.shape, seed=2),
        empty(*value.shape),
        [empty(*second.shape), empty(channels)],
    )
    perform(
        executor,
        "winner_decode_backward",
        value=value,
        place=place,
        weight=second,
        dy=dy,
        dvalue=dvalue,
        dweight=gradients[0],
        dbias=gradients[1],
        padding=outer,
        width=maps.shape[2],
    )
    dense = references.conv2d_input_grad(dy, second, outer, *maps.shape[1:3])
    assert np.allclose(
        gradients[0], references.conv2d_weight_grad(sparse, dy, outer, wide), rtol=1e-10, atol=1e-11
    )
    assert np.allclose(gradients[1], dy.sum(axis=(0, 1, 2)), rtol=1e-10, atol=1e-11)

    passed = dense * mask * (maps > 0)
    dx, dweight, dbias = empty(*x.shape), empty(*weight.shape), empty(filters)
    perform(
        executor,
        "winner_conv2d_backward",
        x=x,
        place=place,
        dvalue=dvalue,
        dweight=dweight,
        dbias=dbias,
        padding=padding,
        weight=weight,
        dx=dx,
    )
    assert np.allclose(
        dweight, references.conv2d_weight_grad(x, passed, padding, kernel), rtol=1e-10, atol=1e-11
    )
    assert np.allclose(dbias, passed.sum(axis=(0, 1, 2)), rtol=1e-10, atol=1e-11)
    assert np.allclose(
        dx,
        references.conv2d_input_grad(passed, weight, padding, height, width),
        rtol=1e-10,
        atol=1e-11,
    )


def test_nan_is_a_winner(executor):
    """A diverged training must show in the loss."""
    x, weight = normal(2, 4, 4, 1), normal(3, 2, 2, 1)
    x[1, 2, 2] = np.nan
    value, place = empty(2, 1, 1, 3), np.full((2, 1, 1, 3), 99, np.int32)
    perform(
        executor,
        "winner_conv2d_forward",
        x=x,
        weight=weight,
        bias=np.zeros(3),
        value=value,
        place=place,
        padding=0,
        images=1,
    )
    assert np.isnan(value).tolist() == [[[[False] * 3]], [[[True] * 3]]]


@pytest.mark.parametrize(
    "bias", [None, normal(5, seed=2).astype(np.float32)], ids=["without", "with bias"]
)
def test_a_convolution_divided_by_contrast_is_these_in_turn_to_the_bit(executor, bias):
    x, weight = (
        normal(60, 9, 8, 2).astype(np.float32),
        normal(5, 3, 3, 2, seed=1).astype(np.float32),
    )
    operands = {"x": x, "weight": weight, "stride": 1, "padding": 0, "relu": False, "bias": bias}
    contrast, (y, divided, expected) = (
        {"kernel": 3, "epsilon": 0.01},
        np.full((3, 60, 7, 6, 5), np.nan, np.float32),
    )
    perform(executor, "conv2d_forward", **operands, y=divided, image=x, contrast=contrast)
    convolution.conv2d_forward(executor, **operands, y=y)
    perform(executor, "local_contrast_forward", x=y, image=x, y=expected, **contrast)
    assert np.abs(expected - y).max() > 0.1
    np.testing.assert_array_equal(divided, expected)
    of_doubles = references.conv2d(x, weight, np.zeros(5) if bias is None else bias, padding=0)
    np.testing.assert_allclose(
        divided, references.local_contrast(of_doubles, x, 3, 0.01), atol=1e-4
    )


@pytest.mark.parametrize("filters", [2, 400])
@pytest.mark.parametrize("contrast", [False, True])
@pytest.mark.parametrize("pool", [(3, 2, 0), (2, 1, 1), (5, 3, 0)], ids=str)
def test_a_convolution_with_contrast_threshold_and_pool_is_these_in_turn(
    executor, pool, contrast, filters, monkeypatch
):
    monkeypatch.setattr(convolution, "CODE_FILTERS", filters)
    x, weight, bias = normal(3, 9, 8, 2), normal(5, 3, 3, 2, seed=1), normal(5, seed=2)
    window, stride, padding = pool
    answers = references.conv2d(x, weight, bias, padding=0)
    if contrast:
        answers = references.local_contrast(
            references.conv2d(x, weight, 0 * bias, padding=0), x, 3, 0.01
        )
    expected = references.avgpool2d(
        references.soft_threshold(answers, 0.5), window, stride, padding
    )
    y, own = (
        empty(*expected.shape),
        {"image": x, "contrast": {"kernel": 3, "epsilon": 0.01}} if contrast else {"bias": bias},
    )
    perform(
        executor,
        "conv2d_code_forward",
        x=x,
        weight=weight,
        y=y,
        stride=1,
        padding=0,
        threshold=0.5,
        pool={"window": window, "stride": stride, "padding": padding},
        **own,
    )
    assert np.allclose(y, expected, rtol=1e-10, atol=1e-12)
