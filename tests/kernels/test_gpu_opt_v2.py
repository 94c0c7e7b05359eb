"""The kernels of gpu_opt_v2 against their definitions in float64, the rung's claims, and its parity
with the cpu rung.
"""

import dataclasses
import functools

import numpy as np
import pytest

import backends
import emulated
import needs
import plan_checks
import references
from compiled import without_spills
from emulated import KERNELS, load
from emulator_executor import Executor
from kernel_checks import gamma, integers, normal, poisoned, step_state, updated
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import layers, networks
from ladder.network.optimizers import AVERAGES, Optimizer
from ladder.plan import plan
from ladder.rungs import gpu_opt_v2, tiles
from ladder.rungs.launches import Gradient
from ladder.verify import parity
from rung_checks import (
    ORDERS,
    Convolution,
    Upsampled,
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
# integer sums are exact: they show a dependence on the order
DRAWN = [(integers, ORDERS), (normal, ("random",))]

# batch, height, width, channels, filters, kernel, padding: more than one block and more than one
# split somewhere, every operand read by 16 bytes and by 4, every size odd or 1 somewhere.
CONVOLUTIONS = [
    (1, 2, 2, 1, 1, 1, 0),
    (2, 6, 5, 4, 20, 3, 1),
    (1, 5, 7, 8, 68, 3, 1),
    (1, 7, 6, 5, 7, 5, 3),
    (2, 3, 2, 5, 3, 3, 2),
    (1, 13, 11, 4, 5, 3, 1),
    (1, 5, 4, 3, 132, 1, 0),
]
UPSAMPLED = [  # batch, height, width, channels, filters, before the upsampling
    (1, 1, 1, 1, 1),
    (3, 3, 5, 4, 3),
    (1, 13, 11, 9, 4),
    (2, 4, 3, 8, 20),
    (1, 5, 4, 68, 17),
    (1, 9, 8, 1, 16),
]


@pytest.fixture(params=TILES)
def tile(request, monkeypatch):
    """Two tiles of forward and input gradient, for any shape; the third computes the same
    (tests/rungs/test_tiles.py).
    """
    monkeypatch.setattr(gpu_opt_v2, "TIMES", TILES[request.param])


# ---- convolution with ReLU and max-pool, and behind an upsampling; alone: tests/operations


def decomposed(weight):
    filters, _, _, channels = weight.shape
    phase_weights = poisoned((filters, 4, 4, channels))
    run_step(gpu_opt_v2.decompose_weight, {"weight": weight}, {"phase_weights": phase_weights})
    return phase_weights


def assert_sums(found, function, operands, terms, values, last=lambda sums: sums):
    """Exact for integers, within the bound of a sum otherwise; last: of the kernel, behind the
    sum.
    """
    bound = 0 if values is integers else gamma(terms) * function(*map(np.abs, operands))
    assert (np.abs(found - last(function(*operands))) <= bound).all()


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_pool_forward(tile, shape):
    for values, orders in DRAWN:
        conv = Convolution(shape, values)
        maxima, place = references.maxpool2d(conv.forward(conv.x, conv.weight, conv.bias))
        y, index = poisoned(maxima.shape), poisoned(maxima.shape, np.uint8)
        run_step(
            gpu_opt_v2.conv2d_forward,
            {"x": conv.x, "weight": conv.weight, "bias": conv.bias},
            {"y": y, "index": index},
            padding=conv.padding,
            relu=True,
            orders=orders,
        )
        if values is integers:  # few values: many windows hold a tied maximum
            assert np.array_equal(y, references.relu(maxima)) and np.array_equal(
                index, np.where(maxima > 0, place, 4)
            )
        else:
            size, _ = references.maxpool2d(
                conv.forward(*map(np.abs, (conv.x, conv.weight, conv.bias)))
            )
            assert (
                np.abs(y - references.relu(maxima)) <= gamma(conv.weight[0].size + 1) * size
            ).all()


def received(conv, kind, values):
    """(operands that carry dy back to the convolution's output, dy there by definition)."""
    outputs = values(*conv.output, seed=4)
    if kind == "":
        return {"dy": conv.dy}, conv.dy
    if kind == "relu":
        y = references.relu(outputs).astype(np.float32)
        return {"dy": conv.dy, "y": y}, np.where(y > 0, conv.dy, 0)
    maxima, place = references.maxpool2d(outputs)
    dy = values(*maxima.shape, seed=5)
    behind = references.maxpool2d_backward(np.where(maxima > 0, dy, 0), place, conv.output)
    return {"dy": dy, "index": np.where(maxima > 0, place, 4).astype(np.uint8)}, behind


def check_gradients(conv, kind, values, orders, operation, weight):
    """operation: the beginning of its name; weight: that the input gradient reads."""
    reads, dy = received(conv, kind, values)
    dx, dweight, dbias = (poisoned(array.shape) for array in (conv.x, conv.weight, conv.bias))
    run_step(
        gpu_opt_v2.RUNG.launches[f"{operation}_input_grad"],
        {**reads, "weight": weight},
        {"dx": dx},
        padding=conv.padding,
        orders=orders,
    )
    run_step(
        gpu_opt_v2.RUNG.launches[f"{operation}_weight_grad"],
        {"x": conv.x, **reads},
        {"dweight": dweight, "dbias": dbias},
        padding=conv.padding,
        kernel=conv.kernel,
        orders=orders,
    )
    taps = 36 if isinstance(conv, Upsampled) else conv.kernel**2
    assert_sums(dx, conv.input_grad, (dy, conv.weight), taps * len(conv.weight), values)
    assert_sums(dweight, conv.weight_grad, (conv.x, dy), dy[..., 0].size, values)
    assert_sums(
        dbias, lambda dy: dy.sum(axis=(0, 1, 2), dtype=float), (dy,), dy[..., 0].size, values
    )


@pytest.mark.parametrize("kind", ["relu", "pool"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_gradients_through_relu_and_pooling(tile, shape, kind):
    for values, orders in DRAWN:
        conv = Convolution(shape, values)
        check_gradients(conv, kind, values, orders, "conv2d", conv.weight)


def test_what_is_compiled_by_a_newer_compiler_computes_the_same_bytes(monkeypatch):
    found = []
    for defines in ((), ("-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=2")):
        monkeypatch.setattr(
            emulated, "load", lambda source, more, defines=defines: load(source, (*more, *defines))
        )
        conv = Convolution((1, 7, 6, 8, 12, 3, 1), normal)
        reads, _ = received(conv, "pool", normal)
        found.append(poisoned(conv.x.shape))
        run_step(
            gpu_opt_v2.RUNG.launches["conv2d_input_grad"],
            {**reads, "weight": conv.weight},
            {"dx": found[-1]},
            padding=conv.padding,
        )
    assert np.array_equal(*found)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_in_large_tiles(shape, monkeypatch):
    monkeypatch.setattr(gpu_opt_v2, "TIMES", TILES["large tiles"])
    backends.check_convolution(backends.Rung(RUNG), shape)


def test_with_a_stride_the_launches_are_those_of_gpu_opt_v1():
    shape = (2, 7, 6, 4, 5, 3, 1)
    for stride, rung in ((1, "gpu_opt_v2"), (2, "gpu_opt_v1")):
        assert {
            source.partition("/")[0]
            for source, _ in convolution_launches(gpu_opt_v2, shape, stride)
        } == {rung}


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", UPSAMPLED, ids=str)
def test_upsample_conv2d(tile, shape, relu):
    for values, orders in DRAWN:
        conv, y = Upsampled(shape, values), poisoned(Upsampled(shape, values).output)
        phase_weights = decomposed(conv.weight)
        run_step(
            gpu_opt_v2.upsample_conv2d_forward,
            {"x": conv.x, "phase_weights": phase_weights, "bias": conv.bias},
            {"y": y},
            relu=relu,
            orders=orders,
        )
        assert_sums(
            y,
            conv.forward,
            (conv.x, conv.weight, conv.bias),
            conv.weight[0].size + 1,
            values,
            references.relu if relu else lambda sums: sums,
        )
        check_gradients(
            conv, "relu" if relu else "", values, orders, "upsample_conv2d", phase_weights
        )


@pytest.mark.parametrize("place", range(4))
def test_a_nan_is_not_lost(place):
    """A diverged training must show in the loss."""
    x, bias = np.ones((1, 2, 2, 1), np.float32), np.zeros(16, np.float32)
    x[0, place // 2, place % 2] = np.nan
    y, index = np.zeros((1, 1, 1, 1), np.float32), poisoned((1, 1, 1, 1), np.uint8)
    run_step(
        gpu_opt_v2.conv2d_forward,
        {"x": x, "weight": np.ones((1, 1, 1, 1), np.float32), "bias": bias[:1]},
        {"y": y, "index": index},
        padding=0,
        relu=True,
    )
    assert np.isnan(y).all()
    for filters in (1, 16):
        y, weight = (
            np.zeros((1, 4, 4, filters), np.float32),
            np.ones((filters, 3, 3, 1), np.float32),
        )
        reads = {"x": x, "phase_weights": decomposed(weight), "bias": bias[:filters]}
        run_step(gpu_opt_v2.upsample_conv2d_forward, reads, {"y": y}, relu=True)
        assert np.isnan(y).sum() == 9 * filters


# ---- the update


def gradients(layers):
    """({parameter: Gradient}, {parameter: (gradient in float64, terms of its sums)}, {buffer: its
    parts}).

    layers: (layer's name, gradient of a convolution or, behind an upsampling, of its phase
    weights?).
    """
    found, wanted, parts = {}, {}, {}
    for number, (name, phases) in enumerate(layers):
        shape = (2, 7 + number, 5, 5, 3 + number)
        conv = Upsampled(shape, normal) if phases else Convolution((*shape, 3, 1), normal)
        matrix = (16 * len(conv.weight), 5) if phases else (len(conv.weight), 9 * 5)
        pixels = 2 * shape[1] * 5
        splits, _ = gpu_opt_v2.split(gpu_opt_v2.weight_tile(*matrix), *matrix, pixels)
        parts[f"{name}.parts"] = poisoned(gpu_opt_v2.parts_shape(splits, *matrix))
        run_step(
            gpu_opt_v2.upsample_conv2d_weight_grad if phases else gpu_opt_v2.conv2d_weight_grad,
            {"x": conv.x, "dy": conv.dy},
            {"parts": parts[f"{name}.parts"]},
            padding=1,
            kernel=3,
        )
        found |= {
            f"{name}.weight": Gradient(f"{name}.parts", True, 0, phases),
            f"{name}.bias": Gradient(f"{name}.parts", True, matrix[0] * matrix[1], phases),
        }
        wanted |= {
            f"{name}.weight": conv.weight_grad(conv.x, conv.dy),
            f"{name}.bias": conv.dy.astype(float).sum(axis=(0, 1, 2)),
        }
    return found, wanted, parts


@pytest.mark.parametrize(
    "layers",
    [[("a", False)], [("a", True)], [("a", False), ("b", True), ("c", True), ("d", False)]],
    ids=["plain", "phases", "four"],
)
@pytest.mark.parametrize("optimizer", RULES, ids=lambda optimizer: optimizer.name)
def test_one_launch_adds_the_parts_of_all_gradients_and_updates_all_parameters(optimizer, layers):
    found, gradient_of, parts = gradients(layers)
    whole = normal(700, seed=9)  # of a parameter whose gradient is not in parts, in three blocks
    found["norm.weight"], gradient_of["norm.weight"] = (
        Gradient("norm.gradient"),
        whole.astype(float),
    )
    writes = {}
    for seed, (name, gradient) in enumerate(gradient_of.items()):
        writes[name] = normal(*gradient.shape, seed=seed)
        writes |= {
            f"{name}.{average}": np.abs(normal(*gradient.shape, seed=20 + 2 * seed + number))
            for number, average in enumerate(AVERAGES[optimizer.name])
        }
    before = {name: array.astype(float) for name, array in writes.items()}
    rates, step = step_state(3)
    (launch,) = run_update(
        optimizer.name, found, {**parts, "norm.gradient": whole}, writes, rates, step, optimizer
    )
    assert launch.grid == (sum(-(-gradient.size // 256) for gradient in gradient_of.values()),)
    for name, gradient in gradient_of.items():
        state = [before[f"{name}.{average}"] for average in AVERAGES[optimizer.name]]
        wanted, averages = updated(
            optimizer.name,
            before[name],
            gradient,
            state,
            3,
            optimizer.weight_decay,
            optimizer.clip,
            optimizer.momentum,
        )
        # The error of the gradient, at most 3 after clipping, and a handful of roundings of values
        # of at most about 5.
        bound = gamma(2 * 10 * 14 * 10 + 8) * 40
        np.testing.assert_allclose(writes[name], wanted, rtol=0, atol=bound)
        for average, value in zip(AVERAGES[optimizer.name], averages, strict=True):
            np.testing.assert_allclose(writes[f"{name}.{average}"], value, rtol=0, atol=bound)


def run_update(rule, found, sources, writes, rates, step, settings):
    momentum = {"momentum": settings.momentum} if rule == "momentum" else {}
    return run_step(
        gpu_opt_v2.update,
        {**sources, "learning_rates": rates, "counters": step},
        writes,
        operation=f"{rule}_update",
        gradients=found,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
        **momentum,
    )


def parameter_steps(made, name):
    """(last step that reads the parameter or a value derived from it, steps that write it)."""
    readers = {name, f"{name.removesuffix('.weight')}.phase_weights"}
    reads = [i for i, step in enumerate(made.steps) if readers & set(step.reads.values())]
    return max(reads, default=-1), [
        i for i, step in enumerate(made.steps) if name in step.writes.values()
    ]


@pytest.mark.parametrize("fused", [True, False])
def test_a_parameter_is_updated_once_and_after_its_last_reader(fused):
    settings = plan.TrainingSettings(
        network=NETWORK, rung=RUNG, batch_size=64, optimizer=Optimizer("adam")
    )
    made = plan.training_plan(
        settings, plan.Dataset(64, "uint8"), plan.Length(1, 1), fuse_update=fused
    )
    for name in NETWORK.parameters:
        last_read, written = parameter_steps(made, name)
        assert len(written) == 1 and written[0] > last_read
        assert (f"{name}.gradient" in made.buffers) == (not fused)
    (update,) = [step for step in made.steps if step.operation == "adam_update"]
    assert len(update.launches) == 1
    assert ("enc1.parts" in update.reads.values()) == fused


# ---- the plan


@pytest.mark.parametrize("below", ["gpu_basic", "gpu_opt_v1"])
def test_fewer_launches_bytes_and_products_than_the_rungs_below(below):
    below, here = training_plan(below, NETWORK), training_plan(RUNG, NETWORK)
    assert sum(len(step.launches) for step in here.steps) <= 0.7 * sum(
        len(step.launches) for step in below.steps
    )
    assert plan_checks.touched_bytes(here) < 0.5 * plan_checks.touched_bytes(below)
    assert here.flop < 0.74 * below.flop
    kinds, kinds_below = here.bytes_by_kind(), below.bytes_by_kind()
    assert kinds["activation"] + kinds["gradient"] < 0.25 * (
        kinds_below["activation"] + kinds_below["gradient"]
    )


def test_relu_pooling_and_upsampling_have_no_launches_and_nothing_falls_back():
    made = training_plan(RUNG, NETWORK)
    assert {
        launch.source.partition("/")[2]
        for step in made.steps
        for launch in step.launches
        if not launch.source.startswith(RUNG)
    } <= {"load_batch.cu", "mse.cu", "update.cu"}
    assert [operation for _, operation in made.kernels] == [
        "conv2d_forward",
        "conv2d_forward",
        "conv2d_forward",
        "upsample_conv2d_forward",
        "upsample_conv2d_forward",
    ]
    assert (
        not {"enc1", "enc1_relu", "enc2", "enc2_relu", "dec1", "dec1_up", "dec2", "dec2_up"}
        & made.buffers.keys()
    )


def test_the_splits_of_the_weight_gradients_at_batch_64():
    """The result's bytes depend on them: a change changes every version."""
    launches = {
        launch.arguments[0]: launch.grid
        for step in training_plan(RUNG, NETWORK).steps
        for launch in step.launches
        if launch.source == f"{RUNG}/weight_grad.cu"
    }
    assert launches == {
        "input": (1, 2, 131),
        "enc1_pool": (18, 1, 7),
        "latent": (9, 1, 14),
        "dec1_relu": (1, 32, 4),
        "dec2_relu": (4, 1, 44),
    }


def test_a_convolution_without_bias_is_updated_with_the_others():
    network = networks.resolve(
        "two",
        (4, 4, 2),
        (layers.conv2d("a", 4, bias=False), layers.relu("a_relu"), layers.conv2d("b", 2)),
        "a",
        "mse",
    )
    made = training_plan(RUNG, network)
    (update,) = [step for step in made.steps if step.operation == "sgd_update"]
    assert update.attributes["gradients"] == {
        "a.weight": Gradient("a.parts", True),
        "b.weight": Gradient("b.parts", True),
        "b.bias": Gradient("b.parts", True, 2 * 9 * 4),
    }
    assert "a.bias" not in made.buffers and made.buffers["a.no_bias"].kind == "control"


STRIDED = networks.resolve(
    "strided",
    (10, 12, 3),
    (
        layers.conv2d("a", 8, kernel=4, padding=1, stride=2),
        layers.relu("a_relu"),
        layers.upsample2d("up"),
        layers.conv2d("b", 8),
        layers.relu("b_relu"),
        layers.conv2d("c", 12, kernel=2, padding=0, stride=2),
        layers.relu("c_relu"),
        layers.upsample2d("c_up"),
        layers.conv2d("d", 3, kernel=5, padding=2),
    ),
    "c_relu",
    "mse",
)


def test_the_gradient_of_a_relu_behind_a_stride_is_there_whatever_reads_it():
    """A fused upsampling does not apply it; an unfused one applies it again."""
    made = training_plan(RUNG, STRIDED)
    assert [
        step.operation
        for step in made.steps
        if step.layer in ("up", "c_up") and "forward" in step.operation
    ] == ["upsample_conv2d_forward", "upsample2d_forward"]
    assert [step.layer for step in made.steps if step.operation == "relu_backward"] == ["c", "a"]
    protocol = parity.PROTOCOLS["sgd"]
    reference = parity.train(
        STRIDED, "cpu_sequential", executors.create("cpu_sequential", 1), protocol
    )
    trained = parity.train(STRIDED, RUNG, Executor(), protocol, follow=reference)
    assert max(parity.deviations(STRIDED, trained, reference).values()) <= protocol.tolerance


@pytest.mark.parametrize(
    "rows, columns, pixels",
    [(1, 1, 1), (3, 2304, 65536), (128, 2304, 48), (5, 7, 1000), (4096, 36864, 64)],
)
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
    monkeypatch.setattr(
        gpu_opt_v2, "RUNG", dataclasses.replace(gpu_opt_v2.RUNG, gradients_in_parts=False)
    )
    check_parity()


# ---- every file

FILES = sorted(path.name for path in (KERNELS / RUNG).glob("*.cu"))
PRODUCTS = ("conv2d.cu", "upsample_conv2d.cu", "upsample_conv2d_taps.cu", "weight_grad.cu")
COMPILED = sorted(
    {
        (source.partition("/")[2], defines)
        for batch, gpu in ((3, tiles.H200), (64, tiles.H200), (64, 108))
        for source, defines in launches_of(training_plan(RUNG, NETWORK, batch, gpu), RUNG)
    }
)


def test_every_file_is_launched():
    assert {file for file, _ in COMPILED} == set(FILES)


@needs.NVRTC
@pytest.mark.parametrize("file, defines", COMPILED, ids=str)
def test_a_gpu_can_run_it_as_the_rung_claims(file, defines):
    made = without_spills(f"{RUNG}/{file}", defines, nvrtc.ARCHITECTURES[-1])
    assert set(made.kernels) == set(load(KERNELS / RUNG / file).names)
    for name, resources in made.kernels.items():
        if file in PRODUCTS and name not in ("decompose_weight", "upsample_conv2d_add_taps"):
            loads, stores = nvrtc.wide_accesses(made.ptx, name)
            # single ones, whose addresses need registers
            by_channels = "WIDE_CHANNELS=0" in defines
            assert (loads >= 2 or by_channels and name.endswith("forward")) and stores > 0, name
            # GRADIENT_BLOCKS, PLAIN_BLOCKS
            one_block = name.endswith("input_grad") or (by_channels and "input_grad" in name)
            # three blocks of 128, two of 256
            most = 168 if one_block or "TILE=128,64,8,8" in defines else 128
            assert resources.registers <= most, name
            assert 0 < resources.static_shared_bytes <= 32 << 10, name
    if file in PRODUCTS:
        assert "ld.shared.v4.f32" in made.ptx
