"""The kernels of gpu_opt_v2 against their definitions in float64, the rung's claims, and its parity with the cpu rung."""

import functools
import itertools

import numpy as np
import pytest

import references
from compiled import compiled
from emulated import KERNELS, load
from emulator_executor import Executor
from kernel_checks import (
    adam_start,
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
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import layers, networks
from ladder.network.optimizers import AVERAGES, Optimizer
from ladder.rungs import gpu_opt_v2, tiles
from ladder.rungs.patterns import Gradient
from ladder.training import parity, plan
from rung_checks import (
    ORDERS,
    Convolution,
    check_forward,
    check_infinities,
    check_input_grad,
    check_weight_grad,
    convolution_launches,
    launches_of,
    run_step,
    training_plan,
)

RUNG = "gpu_opt_v2"
NETWORK = networks.build("autoencoder")
NARROW = networks.build("autoencoder", filters=(64, 32))
RULES = [Optimizer(name, weight_decay=0.125, clip=3.0, momentum=0.5) for name in AVERAGES]
TILES = {"large tiles": {tiles.LARGE: 1.0}, "small tiles": {tiles.SQUARE: 1.0}}
DRAWN = [(integers, ORDERS), (normal, ("random",))]   # integer sums are exact: they show a dependence on the order

# batch, height, width, channels, filters, kernel, padding: more than one block and more than one split somewhere, every operand
# read by 16 bytes and by 4, every size odd or 1 somewhere.
CONVOLUTIONS = [
    (1, 2, 2, 1, 1, 1, 0),
    (2, 6, 5, 4, 20, 3, 1),
    (1, 5, 7, 8, 68, 3, 1),
    (1, 7, 6, 5, 7, 5, 3),
    (2, 3, 2, 5, 3, 3, 2),
    (1, 13, 11, 4, 5, 3, 1),
    (1, 5, 4, 3, 132, 1, 0),
]
UPSAMPLED = [   # batch, height, width, channels, filters, before the upsampling
    (1, 1, 1, 1, 1),
    (3, 3, 5, 4, 3),
    (1, 13, 11, 9, 4),
    (2, 4, 3, 8, 20),
    (1, 5, 4, 68, 17),
    (1, 9, 8, 1, 16),
]


@pytest.fixture(params=TILES)
def tile(request, monkeypatch):
    """Two tiles of forward and input gradient, for any shape; the third computes the same (tests/rungs/test_tiles.py)."""
    monkeypatch.setattr(gpu_opt_v2, "TIMES", TILES[request.param])


# ---- convolution, alone, with ReLU, with ReLU and max-pool

@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_forward(tile, shape):
    check_forward(gpu_opt_v2.conv2d_forward, shape)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_pool_forward(tile, shape):
    for values, orders in DRAWN:
        conv = Convolution(shape, values)
        maxima, place = references.maxpool2d(conv.forward(conv.x, conv.weight, conv.bias))
        y, index = poisoned(maxima.shape), poisoned(maxima.shape, np.uint8)
        run_step(gpu_opt_v2.conv2d_forward, {"x": conv.x, "weight": conv.weight, "bias": conv.bias}, {"y": y, "index": index},
                 padding=conv.padding, relu=True, orders=orders)
        if values is integers:   # few values: many windows hold a tied maximum
            assert np.array_equal(y, references.relu(maxima)) and np.array_equal(index, np.where(maxima > 0, place, 4))
        else:
            size, _ = references.maxpool2d(conv.forward(*map(np.abs, (conv.x, conv.weight, conv.bias))))
            assert (np.abs(y - references.relu(maxima)) <= gamma(conv.weight[0].size + 1) * size).all()


def received(conv, kind, values):
    """(operands that carry dy back to the convolution's output, dy there by definition)."""
    outputs = values(*conv.output, seed=4)
    if kind == "relu":
        y = references.relu(outputs).astype(np.float32)
        return {"dy": conv.dy, "y": y}, np.where(y > 0, conv.dy, 0)
    maxima, place = references.maxpool2d(outputs)
    index, dy, behind = np.where(maxima > 0, place, 4).astype(np.uint8), values(*maxima.shape, seed=5), np.zeros(conv.output)
    for image, row, column, filter_ in np.argwhere(index < 4):
        i, j = divmod(int(index[image, row, column, filter_]), 2)
        behind[image, 2 * row + i, 2 * column + j, filter_] = dy[image, row, column, filter_]
    return {"dy": dy, "index": index}, behind


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_input_grad(tile, shape):
    check_input_grad(gpu_opt_v2.conv2d_input_grad, shape)


@pytest.mark.parametrize("kind", ["relu", "pool"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_input_grad_through_relu_and_pooling(tile, shape, kind):
    for values, orders in DRAWN:
        conv = Convolution(shape, values)
        reads, dy = received(conv, kind, values)
        dx = poisoned(conv.x.shape)
        run_step(gpu_opt_v2.conv2d_input_grad, {**reads, "weight": conv.weight}, {"dx": dx}, padding=conv.padding,
                 orders=orders)
        bound = 0 if values is integers else gamma(conv.kernel ** 2 * len(conv.weight))
        assert (np.abs(dx - conv.input_grad(dy, conv.weight)) <= bound * conv.input_grad(np.abs(dy), np.abs(conv.weight))).all()


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_weight_grad(shape):
    check_weight_grad(gpu_opt_v2.conv2d_weight_grad, shape)


@pytest.mark.parametrize("kind", ["relu", "pool"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_weight_grad_through_relu_and_pooling(shape, kind):
    for values, orders in DRAWN:
        conv = Convolution(shape, values)
        reads, dy = received(conv, kind, values)
        dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
        run_step(gpu_opt_v2.conv2d_weight_grad, {"x": conv.x, **reads}, {"dweight": dweight, "dbias": dbias},
                 padding=conv.padding, kernel=conv.kernel, orders=orders)
        bound = 0 if values is integers else gamma(dy[..., 0].size)
        assert (np.abs(dweight - conv.weight_grad(conv.x, dy)) <= bound * conv.weight_grad(np.abs(conv.x), np.abs(dy))).all()
        assert (np.abs(dbias - dy.sum(axis=(0, 1, 2))) <= bound * np.abs(dy).sum(axis=(0, 1, 2))).all()


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1, 1, 0), (3, 1, 1, 35, 10, 1, 0), (67, 1, 1, 12, 132, 1, 0)], ids=str)
def test_dense(tile, shape):
    """A dense layer is the 1x1 convolution over images of one pixel."""
    check_forward(gpu_opt_v2.conv2d_forward, shape)
    check_input_grad(gpu_opt_v2.conv2d_input_grad, shape)
    check_weight_grad(gpu_opt_v2.conv2d_weight_grad, shape)


def test_with_a_stride_the_launches_are_those_of_gpu_opt_v1():
    shape = (2, 7, 6, 4, 5, 3, 1)
    check_forward(gpu_opt_v2.conv2d_forward, shape, 2)
    for stride, rung in ((1, "gpu_opt_v2"), (2, "gpu_opt_v1")):
        assert {source.partition("/")[0] for source, _ in convolution_launches(gpu_opt_v2, shape, stride)} == {rung}


@pytest.mark.parametrize("channels", [9, 12])
def test_infinities(tile, channels):
    check_infinities(gpu_opt_v2, channels)


# ---- upsampling and convolution

def upsampled(shape, values):
    """(x, the convolution behind its upsampling)."""
    batch, height, width, channels, filters = shape
    conv = Convolution((batch, 2 * height, 2 * width, channels, filters, 3, 1), values)
    return values(batch, height, width, channels, seed=6), conv


def collapse(weight):
    filters, _, _, channels = weight.shape
    collapsed = poisoned((filters, 4, 4, channels))
    run_step(gpu_opt_v2.collapse_weight, {"weight": weight}, {"collapsed": collapsed})
    return collapsed


def four_added(dx):
    batch, height, width, channels = dx.shape
    return dx.reshape(batch, height // 2, 2, width // 2, 2, channels).sum(axis=(2, 4))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", UPSAMPLED, ids=str)
def test_upsample_conv2d_forward(tile, shape, relu):
    for values, orders in DRAWN:
        x, conv = upsampled(shape, values)
        y = poisoned(conv.output)
        run_step(gpu_opt_v2.upsample_conv2d_forward, {"x": x, "collapsed": collapse(conv.weight), "bias": conv.bias}, {"y": y},
                 relu=relu, orders=orders)
        expected = conv.forward(references.upsample2d(x), conv.weight, conv.bias)
        size = conv.forward(references.upsample2d(np.abs(x)), np.abs(conv.weight), np.abs(conv.bias))
        bound = 0 if values is integers else gamma(conv.weight[0].size + 1)
        assert (np.abs(y - (references.relu(expected) if relu else expected)) <= bound * size).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", UPSAMPLED, ids=str)
def test_upsample_conv2d_input_grad(tile, shape, relu):
    for values, orders in DRAWN:
        x, conv = upsampled(shape, values)
        reads, dy = received(conv, "relu", values) if relu else ({"dy": conv.dy}, conv.dy)
        dx = poisoned(x.shape)
        run_step(gpu_opt_v2.upsample_conv2d_input_grad, {**reads, "weight": collapse(conv.weight)}, {"dx": dx}, orders=orders)
        bound = 0 if values is integers else gamma(36 * len(conv.weight))
        size = four_added(conv.input_grad(np.abs(dy), np.abs(conv.weight)))
        assert (np.abs(dx - four_added(conv.input_grad(dy, conv.weight))) <= bound * size).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", UPSAMPLED, ids=str)
def test_upsample_conv2d_weight_grad(shape, relu):
    for values, orders in DRAWN:
        x, conv = upsampled(shape, values)
        reads, dy = received(conv, "relu", values) if relu else ({"dy": conv.dy}, conv.dy)
        dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
        run_step(gpu_opt_v2.upsample_conv2d_weight_grad, {"x": x, **reads}, {"dweight": dweight, "dbias": dbias}, orders=orders,
                 kernel=3)
        x, dy = references.upsample2d(x), dy.astype(float)
        bound = 0 if values is integers else gamma(dy[..., 0].size)
        assert (np.abs(dweight - conv.weight_grad(x, dy)) <= bound * conv.weight_grad(np.abs(x), np.abs(dy))).all()
        assert (np.abs(dbias - dy.sum(axis=(0, 1, 2))) <= bound * np.abs(dy).sum(axis=(0, 1, 2))).all()


@pytest.mark.parametrize("name, filters", [("conv2d", 1), ("pool", 1), ("upsample", 1), ("upsample", 16)])
def test_a_nan_is_not_lost(name, filters):
    """A diverged training must show in the loss."""
    x, bias = np.ones((1, 2, 2, 1), np.float32), np.zeros(filters, np.float32)
    for place in range(4):
        x[...] = 1
        x[0, place // 2, place % 2] = np.nan
        kernel = 3 if name == "upsample" else 1
        weight = np.ones((filters, kernel, kernel, 1), np.float32)
        y = np.zeros({"conv2d": (1, 2, 2, 1), "pool": (1, 1, 1, 1), "upsample": (1, 4, 4, filters)}[name], np.float32)
        if name == "upsample":
            run_step(gpu_opt_v2.upsample_conv2d_forward, {"x": x, "collapsed": collapse(weight), "bias": bias}, {"y": y},
                     relu=True)
        else:
            index = {"index": poisoned(y.shape, np.uint8)} if name == "pool" else {}
            run_step(gpu_opt_v2.conv2d_forward, {"x": x, "weight": weight, "bias": bias}, {"y": y, **index}, padding=0,
                     relu=True)
        expected = {"conv2d": 1, "pool": 1, "upsample": 9 * filters}[name]
        assert np.isnan(y).sum() == expected


# ---- the update

def gradients(layers):
    """({parameter: Gradient}, {parameter: (gradient in float64, terms of its sums)}, {buffer: its parts}).

    layers: (layer's name, gradient of a convolution or, behind an upsampling, of its collapsed taps?).
    """
    found, wanted, parts = {}, {}, {}
    for number, (name, collapsed) in enumerate(layers):
        shape = (2, 7 + number, 5, 5, 3 + number)
        x, conv = upsampled(shape, normal) if collapsed else (None, Convolution((*shape, 3, 1), normal))
        matrix = (16 * len(conv.weight), 5) if collapsed else (len(conv.weight), 9 * 5)
        pixels = 2 * shape[1] * 5
        splits, _ = gpu_opt_v2.split(gpu_opt_v2.weight_tile(*matrix), *matrix, pixels)
        parts[f"{name}.parts"] = poisoned(gpu_opt_v2.parts_shape(splits, *matrix))
        run_step(gpu_opt_v2.upsample_conv2d_weight_grad if collapsed else gpu_opt_v2.conv2d_weight_grad,
                 {"x": conv.x if x is None else x, "dy": conv.dy}, {"parts": parts[f"{name}.parts"]}, padding=1, kernel=3)
        found |= {f"{name}.weight": Gradient(f"{name}.parts", True, 0, collapsed),
                  f"{name}.bias": Gradient(f"{name}.parts", True, matrix[0] * matrix[1], collapsed)}
        wanted |= {f"{name}.weight": conv.weight_grad(conv.x if x is None else references.upsample2d(x), conv.dy),
                   f"{name}.bias": conv.dy.astype(float).sum(axis=(0, 1, 2))}
    return found, wanted, parts


@pytest.mark.parametrize("layers", [[("a", False)], [("a", True)], [("a", False), ("b", True), ("c", True), ("d", False)]],
                         ids=["plain", "collapsed", "four"])
@pytest.mark.parametrize("optimizer", RULES, ids=lambda optimizer: optimizer.name)
def test_one_launch_adds_the_parts_of_all_gradients_and_updates_all_parameters(optimizer, layers):
    found, gradient_of, parts = gradients(layers)
    whole = normal(700, seed=9)   # of a parameter whose gradient is not in parts, in three blocks
    found["norm.weight"], gradient_of["norm.weight"] = Gradient("norm.gradient"), whole.astype(float)
    writes = {}
    for seed, (name, gradient) in enumerate(gradient_of.items()):
        writes[name] = normal(*gradient.shape, seed=seed)
        writes |= {f"{name}.{average}": np.abs(normal(*gradient.shape, seed=20 + 2 * seed + number))
                   for number, average in enumerate(AVERAGES[optimizer.name])}
    before = {name: array.astype(float) for name, array in writes.items()}
    rates, step = step_state(3)
    (launch,) = run_update(optimizer.name, found, {**parts, "norm.gradient": whole}, writes, rates, step, optimizer)
    assert launch.grid == (sum(-(-gradient.size // 256) for gradient in gradient_of.values()),)
    for name, gradient in gradient_of.items():
        state = [before[f"{name}.{average}"] for average in AVERAGES[optimizer.name]]
        wanted, averages = updated(optimizer.name, before[name], gradient, state, 3, optimizer.weight_decay, optimizer.clip,
                                   optimizer.momentum)
        # The error of the gradient, at most 3 after clipping, and a handful of roundings of values of at most about 5.
        bound = gamma(2 * 10 * 14 * 10 + 8) * 40
        np.testing.assert_allclose(writes[name], wanted, rtol=0, atol=bound)
        for average, value in zip(AVERAGES[optimizer.name], averages, strict=True):
            np.testing.assert_allclose(writes[f"{name}.{average}"], value, rtol=0, atol=bound)


def run_update(rule, found, sources, writes, rates, step, settings):
    momentum = {"momentum": settings.momentum} if rule == "momentum" else {}
    return run_step(gpu_opt_v2.update, {**sources, "learning_rates": rates, "counters": step}, writes,
                    operation=f"{rule}_update", gradients=found, weight_decay=settings.weight_decay, clip=settings.clip,
                    **momentum)


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_gradients_as_small_as_epsilon_are_not_divided_by_zero(name):
    gradient = np.array([0, 1e-8, 1e-7], np.float32)
    state = {"": np.zeros(3, np.float32), **{f".{average}": np.zeros(3, np.float32) for average in AVERAGES[name]}}
    found = updated_by(gradient, 0, step_state(0)[0], state, update=name, weight_decay=0.0, clip=0.0)
    wanted, _ = updated(name, np.zeros(3), gradient.astype(float), [np.zeros(3) for _ in AVERAGES[name]], 0, 0, 0, 0)
    for role in ("weight", "bias"):
        np.testing.assert_allclose(found[role], wanted, rtol=1e-5)


def updated_by(gradient, at_step, rates, state, **settings):
    """{role or 'role.average': array} after the update of weights and biases with this gradient; state: their values before."""
    count, writes = len(gradient), {}
    for role in ("weight", "bias"):
        writes |= {f"{role}{average}": value.copy() for average, value in state.items()}
    parts = np.concatenate([gradient, gradient, [0] * (-2 * count % 4)]).astype(np.float32)[None]
    found = {"weight": Gradient("parts", True, 0), "bias": Gradient("parts", True, count)}
    run_update(settings["update"], found, {"parts": parts}, writes, rates, counters(at_step),
               Optimizer(settings["update"], weight_decay=settings["weight_decay"], clip=settings["clip"],
                         momentum=settings.get("momentum", 0.0)))
    return writes


@pytest.mark.parametrize("optimizer", [Optimizer("sgd", momentum=0), Optimizer("momentum")], ids=lambda each: each.name)
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_sgd_and_momentum_to_the_last_bit(optimizer, clip):
    w, g, velocity = (normal(1000, seed=seed) for seed in range(3))
    rates, _ = step_state(3)
    wanted = rounded_update(w, g, velocity, rates[3], 0.1, clip, optimizer.momentum)
    settings = {"update": optimizer.name, "weight_decay": 0.1, "clip": clip}
    state = {"": w}
    if optimizer.momentum:
        settings, state = {**settings, "momentum": optimizer.momentum}, {"": w, ".velocity": velocity}
    found = updated_by(g, 3, rates, state, **settings)
    for role, (average, expected) in itertools.product(("weight", "bias"), zip(state, wanted, strict=False)):
        assert np.array_equal(found[f"{role}{average}"], expected)


@pytest.mark.parametrize("at_step", [0, 1, 2, 9, 99, 1999])
def test_adam_corrects_its_start_at_every_step(at_step):
    """1 - 0.999^t is a difference of nearly equal numbers in the first steps."""
    gradient, mean, square, wanted = adam_start(at_step)
    state = {"": np.zeros(4, np.float32), ".mean": mean, ".square": square}
    found = updated_by(gradient, at_step, np.ones(2000), state, update="adam", weight_decay=0.0, clip=0.0)
    for role in ("weight", "bias"):
        np.testing.assert_allclose(found[role], wanted, rtol=1e-6)


def parameter_steps(made, name):
    """(last step that reads the parameter or a value derived from it, steps that write it)."""
    readers = {name, f"{name.removesuffix('.weight')}.collapsed"}
    reads = [i for i, step in enumerate(made.steps) if readers & set(step.reads.values())]
    return max(reads, default=-1), [i for i, step in enumerate(made.steps) if name in step.writes.values()]


@pytest.mark.parametrize("fused", [True, False])
def test_a_parameter_is_updated_once_and_after_its_last_reader(fused):
    settings = plan.Settings(network=NETWORK, variant=RUNG, batch_size=64, optimizer=Optimizer("adam"))
    made = plan.training_plan(settings, plan.Dataset(64, "uint8"), plan.Length(1, 1), fuse_update=fused)
    for name in NETWORK.parameters:
        last_read, written = parameter_steps(made, name)
        assert len(written) == 1 and written[0] > last_read
        assert (f"{name}.gradient" in made.buffers) == (not fused)
    (update,) = [step for step in made.steps if step.operation == "adam_update"]
    assert len(update.launches) == 1
    assert ("enc1.parts" in update.reads.values()) == fused


# ---- the plan

def device_bytes(made):
    """Bytes that a step's launches read and write, each buffer once a launch; of the dataset only the batch."""
    return sum(made.buffers[name].bytes for step in made.steps for launch in step.launches for name in launch.buffers
               if made.buffers[name].kind not in ("dataset", "control"))


@pytest.mark.parametrize("below", ["gpu_basic", "gpu_opt_v1"])
def test_fewer_launches_bytes_and_products_than_the_rungs_below(below):
    below, here = training_plan(below, NETWORK), training_plan(RUNG, NETWORK)
    assert sum(len(step.launches) for step in here.steps) <= 0.7 * sum(len(step.launches) for step in below.steps)
    assert device_bytes(here) < 0.5 * device_bytes(below)
    assert here.flop < 0.74 * below.flop
    kinds, kinds_below = here.bytes_by_kind(), below.bytes_by_kind()
    assert kinds["activation"] + kinds["gradient"] < 0.25 * (kinds_below["activation"] + kinds_below["gradient"])


def test_relu_pooling_and_upsampling_have_no_launches_and_nothing_falls_back():
    made = training_plan(RUNG, NETWORK)
    assert {launch.source.partition("/")[2] for step in made.steps for launch in step.launches
            if not launch.source.startswith(RUNG)} <= {"load_batch.cu", "mse.cu", "update.cu"}
    assert [operation for _, operation in made.kernels] == [
        "conv2d_forward", "conv2d_forward", "conv2d_forward", "upsample_conv2d_forward", "upsample_conv2d_forward"]
    assert not {"enc1", "enc1_relu", "enc2", "enc2_relu", "dec1", "dec1_up", "dec2", "dec2_up"} & made.buffers.keys()


def test_the_splits_of_the_weight_gradients_at_batch_64():
    """The result's bytes depend on them: a change changes every version."""
    launches = {launch.arguments[0]: launch.grid for step in training_plan(RUNG, NETWORK).steps for launch in step.launches
                if launch.source == f"{RUNG}/weight_grad.cu"}
    assert launches == {"input": (1, 2, 131), "enc1_pool": (18, 1, 7), "latent": (9, 1, 14), "dec1_relu": (1, 32, 4),
                        "dec2_relu": (4, 1, 44)}


def test_a_convolution_without_bias_is_updated_with_the_others():
    network = networks.resolve("two", (4, 4, 2), (layers.conv2d("a", 4, bias=False), layers.relu("a_relu"),
                                                  layers.conv2d("b", 2)), "a", "mse")
    made = training_plan(RUNG, network)
    (update,) = [step for step in made.steps if step.operation == "sgd_update"]
    assert update.attributes["gradients"] == {"a.weight": Gradient("a.parts", True), "b.weight": Gradient("b.parts", True),
                                              "b.bias": Gradient("b.parts", True, 2 * 9 * 4)}
    assert "a.bias" not in made.buffers and made.buffers["a.no_bias"].kind == "control"


STRIDED = networks.resolve("strided", (10, 12, 3), (
    layers.conv2d("a", 8, kernel=4, padding=1, stride=2), layers.relu("a_relu"), layers.upsample2d("up"), layers.conv2d("b", 8),
    layers.relu("b_relu"), layers.conv2d("c", 12, kernel=2, padding=0, stride=2), layers.relu("c_relu"),
    layers.upsample2d("c_up"), layers.conv2d("d", 3, kernel=5, padding=2)), "c_relu", "mse")


def test_the_gradient_of_a_relu_behind_a_stride_is_there_whatever_reads_it():
    """A fused upsampling does not apply it; an unfused one applies it again."""
    made = training_plan(RUNG, STRIDED)
    assert [step.operation for step in made.steps if step.layer in ("up", "c_up") and "forward" in step.operation] == [
        "upsample_conv2d_forward", "upsample2d_forward"]
    assert [step.layer for step in made.steps if step.operation == "relu_backward"] == ["c", "a"]
    protocol = parity.PROTOCOLS["sgd"]
    reference = parity.train(STRIDED, "cpu_sequential", executors.create("cpu_sequential", 1), protocol)
    trained = parity.train(STRIDED, RUNG, Executor(), protocol, follow=reference)
    assert max(parity.deviations(STRIDED, trained, reference).values()) <= protocol.tolerance


@pytest.mark.parametrize("rows, columns, pixels", [(1, 1, 1), (3, 2304, 65536), (128, 2304, 48), (5, 7, 1000),
                                                   (4096, 36864, 64)])
def test_splits_cover_all_pixels(rows, columns, pixels):
    splits, size = gpu_opt_v2.split(gpu_opt_v2.weight_tile(rows, columns), rows, columns, pixels)
    assert (splits - 1) * size < pixels <= splits * size and size % 8 == 0


# ---- parity with the cpu rung

# test_ladder.py trains the whole autoencoder with the unchanged rung.
@functools.cache
def reference():
    return parity.train(NARROW, "cpu", executors.create("cpu", 2), parity.PROTOCOLS["momentum"])


def check_parity():
    protocol = parity.PROTOCOLS["momentum"]
    trained = parity.train(NARROW, RUNG, Executor(), protocol, follow=reference())
    assert max(parity.deviations(NARROW, trained, reference()).values()) <= protocol.tolerance


def test_parity_with_the_tiles_of_large_batches(monkeypatch):
    monkeypatch.setattr(gpu_opt_v2, "TIMES", TILES["large tiles"])
    check_parity()


def test_parity_with_gradients_that_are_added_before_the_update(monkeypatch):
    monkeypatch.setattr(gpu_opt_v2, "GRADIENTS_IN_PARTS", False)
    check_parity()


# ---- every file

FILES = sorted(path.name for path in (KERNELS / RUNG).glob("*.cu"))
PRODUCTS = ("conv2d.cu", "upsample_conv2d.cu", "upsample_conv2d_taps.cu", "weight_grad.cu")
COMPILED = sorted({(source.partition("/")[2], defines) for batch, gpu in ((3, tiles.H200), (64, tiles.H200), (64, 108))
                   for source, defines in launches_of(training_plan(RUNG, NETWORK, batch, gpu), RUNG)})


def test_every_file_is_launched():
    assert {file for file, _ in COMPILED} == set(FILES)


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("file, defines", COMPILED, ids=str)
def test_every_gpu_can_run_it_as_the_rung_claims(file, defines, architecture):
    made = compiled(f"{RUNG}/{file}", defines, architecture)
    assert set(made.kernels) == set(load(KERNELS / RUNG / file).names)
    for name, resources in made.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
        assert resources.registers * resources.most_threads <= 65536, name
        if file in PRODUCTS and name not in ("collapse_weight", "upsample_conv2d_add_taps"):
            loads, stores = nvrtc.wide_accesses(made.ptx, name)
            by_channels = "WIDE_CHANNELS=0" in defines   # single ones, whose addresses need registers
            assert (loads >= 2 or by_channels and name.endswith("forward")) and stores > 0, name
            one_block = name.endswith("input_grad") or (by_channels and "input_grad" in name)   # GRADIENT_BLOCKS, PLAIN_BLOCKS
            most = 168 if one_block or "TILE=128,64,8,8" in defines else 128   # three blocks of 128, two of 256
            assert resources.registers <= most, name
            assert 0 < resources.static_shared_bytes <= 32 << 10, name
    if file in PRODUCTS:
        assert "ld.shared.v4.f32" in made.ptx


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("file, kernel", [("weight_update.cu", "sgd_update"), ("weight_update.cu", "momentum_update")])
def test_what_is_claimed_to_the_last_bit_has_no_fused_product(file, kernel):
    assert fused(compiled(f"{RUNG}/{file}", (), "sm_80").ptx, kernel) == []


@pytest.mark.parametrize("file", FILES)
def test_header_has_every_required_part(file):
    lines = (KERNELS / RUNG / file).read_text().splitlines()
    head = "\n".join(itertools.takewhile(lambda line: line.startswith("//"), lines))
    for part in ("Rung: gpu_opt_v2. Changed from", "Layout", "Launches:", "Bound:", "Predicted, not measured",
                 "Measured: "):
        assert part in head, part
