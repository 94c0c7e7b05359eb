"""The kernels of gpu_opt_v1 against their definitions in float64, the rung's claims, and its parity with the cpu rung."""

import itertools

import numpy as np
import pytest

import cuda_emulator
import references
from compiled import compiled
from emulated import KERNELS, load
from emulator_executor import Executor
from kernel_checks import (
    UNIT,
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
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import layers, networks
from ladder.network.optimizers import AVERAGES, Optimizer
from ladder.rungs import gpu_opt_v1
from ladder.rungs.patterns import Gradient
from ladder.training import parity, plan
from rung_checks import (
    check_forward,
    check_infinities,
    check_input_grad,
    check_weight_grad,
    convolution_launches,
    launches_of,
    run_step,
    training_plan,
)

RUNG = "gpu_opt_v1"
NETWORK = networks.build("autoencoder")
NARROW = networks.build("autoencoder", filters=(64, 32))

# batch, height, width, channels, filters, kernel, padding: every tile, more than one block each way, every operand read by 16
# bytes and by 4, and every size odd or 1 somewhere.
CONVOLUTIONS = [
    (1, 1, 1, 1, 1, 1, 0),
    (2, 6, 5, 4, 20, 3, 1),
    (3, 5, 7, 8, 68, 3, 1),
    (1, 7, 9, 12, 9, 3, 0),
    (1, 9, 8, 70, 8, 1, 0),
    (1, 9, 8, 5, 7, 5, 3),
    (2, 3, 2, 5, 3, 3, 2),
    (1, 19, 17, 4, 3, 3, 1),
    (1, 17, 16, 3, 4, 3, 1),
]
STRIDED = [   # and strides: every tile, windows that overlap, that lie side by side and that leave pixels out
    ((2, 7, 9, 3, 5, 3, 1), 2),
    ((1, 13, 8, 4, 20, 7, 3), 2),
    ((2, 9, 12, 8, 68, 1, 0), 2),
    ((1, 11, 8, 5, 7, 2, 0), 3),
    ((1, 35, 33, 12, 4, 5, 2), 2),
    ((1, 33, 31, 4, 3, 4, 1), 4),
]
DENSE = [(1, 1, 1, 1, 1, 1, 0), (3, 1, 1, 35, 10, 1, 0), (67, 1, 1, 12, 68, 1, 0)]   # images of one pixel
# batch, height, width, channels; the last fills whole blocks
IMAGES = [(1, 2, 2, 1), (3, 5, 7, 3), (2, 6, 8, 5), (2, 5, 4, 8), (1, 9, 7, 36), (2, 32, 16, 1)]
SIDE_BY_SIDE = {"window": 2, "stride": 2, "padding": 0}


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_forward(shape):
    check_forward(gpu_opt_v1.conv2d_forward, shape)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_input_grad(shape):
    check_input_grad(gpu_opt_v1.conv2d_input_grad, shape)


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_weight_and_bias_grad(shape):
    check_weight_grad(gpu_opt_v1.conv2d_weight_grad, shape)


@pytest.mark.parametrize("shape, stride", [*STRIDED, *((shape, 1) for shape in DENSE)], ids=str)
def test_conv2d_with_a_stride_and_dense(shape, stride):
    check_forward(gpu_opt_v1.conv2d_forward, shape, stride)
    check_input_grad(gpu_opt_v1.conv2d_input_grad, shape, stride)
    check_weight_grad(gpu_opt_v1.conv2d_weight_grad, shape, stride)


@pytest.mark.parametrize("channels", [9, 12])
def test_infinities(channels):
    check_infinities(gpu_opt_v1, channels)


@pytest.mark.parametrize("filters, columns, pixels", [(1, 1, 1), (3, 2304, 65536), (128, 2304, 16384), (256, 27, 65536),
                                                      (128, 1152, 4096), (5, 7, 1000), (4096, 36864, 64)])
def test_the_splits_of_a_weight_gradient_cover_its_pixels(filters, columns, pixels):
    splits, size = gpu_opt_v1.split(gpu_opt_v1.weight_tile(filters, columns, False), filters, columns, pixels)
    assert (splits - 1) * size < pixels <= splits * size and size % 8 == 0
    assert 1 <= splits <= gpu_opt_v1.SPLITS


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_maxpool2d(shape, relu):
    x = integers(*shape)   # nine values: many windows hold a tied maximum
    expected, place = references.maxpool2d(x)
    y, index = poisoned(expected.shape), poisoned(expected.shape, np.uint8)
    run_step(gpu_opt_v1.maxpool2d_forward, {"x": x}, {"y": y, "index": index}, **SIDE_BY_SIDE)
    assert np.array_equal(y, expected) and np.array_equal(index, place)

    dy, dx = normal(*y.shape), poisoned(shape)
    run_step(gpu_opt_v1.maxpool2d_backward, {"dy": dy, "index": index, "y": y}, {"dx": dx}, **SIDE_BY_SIDE, relu=relu)
    scattered = np.zeros(shape)
    for image, row, column, channel in np.ndindex(y.shape):
        i, j = divmod(int(place[image, row, column, channel]), 2)
        scattered[image, 2 * row + i, 2 * column + j, channel] = dy[image, row, column, channel]
    assert np.array_equal(dx, np.where(x > 0, scattered, 0) if relu else scattered)


@pytest.mark.parametrize("channels", [1, 4])
def test_maxpool2d_keeps_a_nan(channels):
    x = np.zeros((1, 2, 2, channels), np.float32)
    for place in range(4):
        x[...] = 1
        x[0, place // 2, place % 2, channels - 1] = np.nan
        y, index = poisoned((1, 1, 1, channels)), poisoned((1, 1, 1, channels), np.uint8)
        y[...] = 0
        run_step(gpu_opt_v1.maxpool2d_forward, {"x": x}, {"y": y, "index": index}, **SIDE_BY_SIDE)
        assert np.isnan(y[..., -1]).all() and (index[..., -1] == place).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_upsample2d(shape, relu):
    batch, height, width, channels = shape
    x = integers(*shape)
    y = poisoned((batch, 2 * height, 2 * width, channels))
    run_step(gpu_opt_v1.upsample2d_forward, {"x": x}, {"y": y})
    assert np.array_equal(y, references.upsample2d(x))

    for values, exact in ((integers, True), (normal, False)):
        dy, dx = values(*y.shape), poisoned(shape)
        run_step(gpu_opt_v1.upsample2d_backward, {"dy": dy, "x": x}, {"dx": dx}, relu=relu)
        copies = dy.reshape(batch, height, 2, width, 2, channels).astype(float)
        sums = np.where(x > 0, copies.sum(axis=(2, 4)), 0) if relu else copies.sum(axis=(2, 4))
        assert (np.abs(dx - sums) <= (0 if exact else gamma(4)) * np.abs(copies).sum(axis=(2, 4))).all()
        assert not relu or (dx[x <= 0] == 0).all()


# ---- the plan

def device_bytes(made):
    """Bytes that a step's launches read and write, each buffer once a launch; of the dataset only the batch."""
    return sum(made.buffers[name].bytes for step in made.steps for launch in step.launches for name in launch.buffers
               if made.buffers[name].kind not in ("dataset", "control"))


def test_fewer_launches_and_bytes_than_the_rung_below():
    below, here = training_plan("gpu_basic", NETWORK), training_plan(RUNG, NETWORK)
    assert sum(len(step.launches) for step in here.steps) < sum(len(step.launches) for step in below.steps)
    assert device_bytes(here) < 0.8 * device_bytes(below)


def test_no_layer_of_the_autoencoder_falls_back():
    own = ("conv2d", "maxpool2d", "upsample2d", "relu")
    for step in training_plan(RUNG, NETWORK).steps:
        if step.operation.startswith(own):
            assert all(launch.source.startswith(f"{RUNG}/") for launch in step.launches), step.operation


def test_a_relu_that_no_pooling_follows_has_a_gradient_step_of_its_own():
    table = {"input_shape": (4, 4, 2), "features": "b", "loss": "mse",
             "layers": (layers.conv2d("a", 4), layers.relu("a_relu"), layers.conv2d("b", 2), layers.relu("b_relu"))}
    network = networks.resolve("plain", **table)
    assert [step.operation for step in training_plan(RUNG, network).steps].count("relu_backward") == 2
    protocol = parity.PROTOCOLS["sgd"]
    reference = parity.train(network, "cpu", executors.create("cpu", 2), protocol)
    trained = parity.train(network, RUNG, Executor(), protocol, follow=reference)
    assert max(parity.deviations(network, trained, reference).values()) <= protocol.tolerance


@pytest.mark.parametrize("window, stride, padding, rung", [(2, 2, 0, RUNG), (3, 2, 1, "gpu_basic"), (2, 1, 0, "gpu_basic"),
                                                           (2, 2, 1, "gpu_basic"), (3, 3, 0, "gpu_basic")])
def test_only_pooling_of_2x2_has_kernels_of_its_own(window, stride, padding, rung):
    network = networks.resolve("pooled", (6, 6, 2), (layers.conv2d("a", 4), layers.relu("a_relu"),
                                                     layers.maxpool2d("pool", window, stride, padding)), "pool", "mse")
    steps = pooling_steps(network)
    assert len(steps) == 2
    assert {launch.source for step in steps for launch in step.launches} == {f"{rung}/maxpool2d.cu"}


def pooling_steps(network):
    """Without a loss: the network's output and input differ in size."""
    build = plan.Builder(plan.Settings(network=network, variant=RUNG, batch_size=2), network.layers, "float32", training=True)
    build.load_batch(plan.Dataset(2, "uint8"))
    build.lower()
    build.gradient_part(build.output)
    build.go_back()
    return [step for step in build.plan().steps if step.operation.startswith("maxpool2d")]


# ---- the losses

@pytest.mark.parametrize("count", [1, 45, 1024, 1025, 3 * 256 * 1024 + 1])   # the last: 769 blocks
def test_mse(count):
    for values, exact in ((integers, True), (normal, False)):
        prediction, target = values(1, count), values(1, count, seed=1)
        gradient, losses = poisoned((1, count)), poisoned(5, np.float64)
        run_step(gpu_opt_v1.mse, {"prediction": prediction, "target": target, "counters": counters(7, 0, 2)},
                 {"gradient": gradient, "losses": losses}, divisor=64)
        difference = prediction.astype(float) - target
        loss = np.mean(difference ** 2)
        assert (np.abs(gradient - 2 / 64 * difference) <= (0 if exact else gamma(2) * np.abs(difference))).all()
        assert abs(losses[2] - loss) <= (loss * 2 ** -50 if exact else gamma(8) * loss)   # of float32 four terms at most
        assert np.isnan(losses[[0, 1, 3, 4]]).all()


def test_a_nan_is_not_lost_in_the_loss():
    prediction, losses = np.zeros((1, 2000), np.float32), np.zeros(1)
    prediction[0, 1999] = np.nan
    run_step(gpu_opt_v1.mse, {"prediction": prediction, "target": np.zeros_like(prediction), "counters": counters(0)},
             {"gradient": poisoned(prediction.shape), "losses": losses}, divisor=64)
    assert np.isnan(losses[0])


def run_cross_entropy(scores, labels):
    """gradient, loss, hits of scores (batch, 1, 1, classes) at an offset into a larger, shuffled data set."""
    batch, rows = len(scores), len(scores) + 5
    permutation = np.random.default_rng(0).permutation(rows)
    all_labels = np.full(rows, 255, np.uint8)
    all_labels[permutation[3:3 + batch]] = labels
    gradient, losses, hits = poisoned(scores.shape), poisoned(4, np.float64), poisoned(4, np.float64)
    run_step(gpu_opt_v1.cross_entropy, {"prediction": scores, "labels": all_labels, "permutation": permutation,
                                        "counters": counters(7, 3, 2)}, {"gradient": gradient, "losses": losses, "hits": hits})
    assert np.isnan(losses[[0, 1, 3]]).all() and np.isnan(hits[[0, 1, 3]]).all()
    return gradient, losses[2], hits[2]


@pytest.mark.parametrize("values", [integers, normal])   # among integers many maxima are tied
@pytest.mark.parametrize("spread", [1, 30])              # exp(4 * 30) is infinite
@pytest.mark.parametrize("batch, classes", [(1, 2), (5, 10), (40, 33), (9, 100), (300, 3)])
def test_cross_entropy(batch, classes, spread, values):
    check_cross_entropy(run_cross_entropy, values(batch, 1, 1, classes) * np.float32(spread), values is integers)


@pytest.mark.parametrize("distance", [6, 8, 10])
def test_the_loss_of_a_sure_answer_keeps_its_digits(distance):
    check_sure_answer(run_cross_entropy, distance)


@pytest.mark.parametrize("classes", [3, 40])
def test_cross_entropy_of_a_nan(classes):
    scores = normal(4, 1, 1, classes)
    scores[0, 0, 0, 0] = scores[2, 0, 0, -1] = np.nan
    best = np.nan_to_num(scores, nan=-9).reshape(4, classes).argmax(axis=1)
    gradient, loss, hits = run_cross_entropy(scores, best)
    assert np.isnan(gradient).all(axis=(1, 2, 3)).tolist() == [True, False, True, False]
    assert np.isnan(gradient).sum() == 2 * classes and np.isnan(loss) and hits == 2
    scores[0] = np.nan
    assert run_cross_entropy(scores, [0, *best[1:]])[2] == 2   # not the row whose scores are all NaN


def test_losses_are_added_in_float64():
    """A large number and others that float32 loses beside it, within a thread, a warp and a block."""
    summed = np.full(2000, 2.0 ** -30)
    summed[0], losses, hits = 1, np.zeros(1), np.zeros(1)
    total, expected = KERNELS / RUNG / "mse.cu", 1 + 1999 * 2.0 ** -30
    cuda_emulator.check(load(total).get_function("mse_total"), (1,), (256,),
                        (summed, counters(0), losses, np.int32(4), np.int32(2000)))
    assert losses[0] == expected / 4
    rows = np.stack([summed, summed]).astype(np.float32)
    cuda_emulator.check(load(KERNELS / RUNG / "cross_entropy.cu").get_function("cross_entropy_totals"), (1,), (256,),
                        (rows, counters(0), losses, hits, np.int32(2000)))
    assert (losses[0], hits[0]) == (expected / 2000, expected)
    gradient, partials = poisoned(1024), np.zeros(1)
    prediction = np.where(np.arange(1024) == 0, 1, 2.0 ** -15).astype(np.float32)
    prediction[[256, 512, 768]] = 0
    cuda_emulator.check(load(total).get_function("mse"), (1,), (256,),
                        (prediction, np.zeros_like(prediction), gradient, partials, np.int32(1024), np.float32(1)))
    assert partials[0] == 1 + 1020 * 2.0 ** -30


# ---- the update

SIZES = {"a.weight": (257, 1, 1, 2), "a.bias": (257,), "norm.weight": (1,), "b.weight": (3, 2, 2, 64)}   # 3, 2, 1 and 3 blocks


def updates(rule, settings, at_step=3):
    """(arrays by role before, after, launches) of one launch over parameters of these SIZES."""
    gradients = {f"{name}.gradient": normal(*shape, seed=number) for number, (name, shape) in enumerate(SIZES.items())}
    writes = {name: normal(*shape, seed=10 + number) for number, (name, shape) in enumerate(SIZES.items())}
    for name, average in itertools.product(SIZES, AVERAGES[rule]):
        writes[f"{name}.{average}"] = np.abs(normal(*SIZES[name], seed=20 + len(writes)))
    before = {**gradients, **{role: array.copy() for role, array in writes.items()}}
    rates, step = step_state(at_step)
    launches = run_step(gpu_opt_v1.update, {**gradients, "learning_rates": rates, "counters": step}, writes,
                        operation=f"{rule}_update", **settings,
                        gradients={name: Gradient(f"{name}.gradient") for name in SIZES})
    return before, writes, launches


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.125])
@pytest.mark.parametrize("rule", AVERAGES)
def test_one_launch_updates_all_parameters(rule, weight_decay, clip):
    momentum = {"momentum": 0.5} if rule == "momentum" else {}
    before, after, (launch,) = updates(rule, {"weight_decay": weight_decay, "clip": clip, **momentum})
    assert launch.grid == (9,)
    for name in SIZES:
        w, g, *state = (before[role].astype(float)
                        for role in (name, f"{name}.gradient", *(f"{name}.{average}" for average in AVERAGES[rule])))
        wanted, averages = updated(rule, w, g, state, 3, weight_decay, clip, momentum.get("momentum", 0))
        # A handful of roundings, none of a difference of large numbers except w's own; sizes here are at most about 5.
        np.testing.assert_allclose(after[name], wanted, rtol=0, atol=16 * UNIT * 5)
        for average, value in zip(AVERAGES[rule], averages, strict=True):
            np.testing.assert_allclose(after[f"{name}.{average}"], value, rtol=0, atol=16 * UNIT * 5)


@pytest.mark.parametrize("rule", ["sgd", "momentum"])
def test_sgd_and_momentum_to_the_last_bit(rule):
    momentum = {"momentum": 0.9} if rule == "momentum" else {}
    before, after, _ = updates(rule, {"weight_decay": 0.1, "clip": 0.5, **momentum})
    for name in SIZES:
        velocity = before.get(f"{name}.velocity", np.zeros(SIZES[name], np.float32))
        wanted, velocity = rounded_update(before[name], before[f"{name}.gradient"], velocity, step_state(3)[0][3], 0.1, 0.5,
                                          momentum.get("momentum", 0))
        assert np.array_equal(after[name], wanted)
        assert rule == "sgd" or np.array_equal(after[f"{name}.velocity"], velocity)


def test_a_plan_updates_the_parameters_that_learn_in_one_launch_and_no_others():
    settings = plan.Settings(network=NETWORK, variant=RUNG, batch_size=2, optimizer=Optimizer("adam"), frozen=NETWORK.encoder)
    made = plan.training_plan(settings, plan.Dataset(64, "uint8"), plan.Length(1, 1))
    (update,) = [step for step in made.steps if step.work == "update" and step.operation != "advance"]
    (launch,) = update.launches
    learning = {name for name in NETWORK.parameters if name.startswith("dec")}
    averages = {f"{name}.{average}" for name in learning for average in ("mean", "square")}
    assert launch.arguments[0].written == learning | averages
    assert launch.buffers == {*learning, *averages, "counters", "learning_rates", *(f"{name}.gradient" for name in learning)}


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("file, kernel", [("update.cu", "sgd_update"), ("update.cu", "momentum_update")])
def test_what_is_claimed_to_the_last_bit_has_no_fused_product(file, kernel):
    assert fused(compiled(f"{RUNG}/{file}", (), "sm_80").ptx, kernel) == []


@pytest.mark.parametrize("name", parity.PROTOCOLS)
def test_parity_with_the_cpu_rung(name):
    """test_ladder.py trains the whole autoencoder."""
    protocol = parity.PROTOCOLS[name]
    reference = parity.train(NARROW, "cpu", executors.create("cpu", 2), protocol)
    trained = parity.train(NARROW, RUNG, Executor(), protocol, follow=reference)
    assert max(parity.deviations(NARROW, trained, reference).values()) <= protocol.tolerance


# ---- every file

RESIZINGS = {(f"{RUNG}/{file}.cu", (f"WIDTH={width}",)) for file in ("maxpool2d", "upsample2d") for width in (1, 4)}
FILES = sorted(path.name for path in (KERNELS / RUNG).glob("*.cu"))
LAUNCHES = sorted({*launches_of(training_plan(RUNG, NETWORK), RUNG), *RESIZINGS, (f"{RUNG}/cross_entropy.cu", ()),
                   *itertools.chain(*(convolution_launches(gpu_opt_v1, shape) for shape in CONVOLUTIONS)),
                   *itertools.chain(*(convolution_launches(gpu_opt_v1, *case) for case in STRIDED))})


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("source, defines", LAUNCHES, ids=str)
def test_every_gpu_can_run_it_as_the_rung_claims(source, defines, architecture):
    made = compiled(source, defines, architecture)
    assert sorted(made.kernels) == sorted(load(KERNELS / source).names)
    if not defines:   # losses and updates: no tiles
        assert all(resources.spill_bytes == resources.stack_bytes == 0 for resources in made.kernels.values())
        return
    resizing = (source, defines) in RESIZINGS
    for name, resources in made.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
        assert resources.registers * resources.most_threads <= 65536, name
        loads, stores = nvrtc.wide_accesses(made.ptx, name)
        if "WIDTH=1" in defines:
            assert loads == stores == 0
            continue
        assert stores > 0, name
        if resizing or name == "conv2d_add_splits" or any(define in defines for define in ("WIDE=1", "WIDE_DY=1", "WIDE_X=1")):
            assert loads > 0, name
        assert resizing or name == "conv2d_add_splits" or resources.static_shared_bytes > 0, name
    assert resizing or "ld.shared.v4.f32" in made.ptx


@pytest.mark.parametrize("file", FILES)
def test_header_has_every_required_part(file):
    lines = (KERNELS / RUNG / file).read_text().splitlines()
    head = "\n".join(itertools.takewhile(lambda line: line.startswith("//"), lines))
    for part in ("Rung: over gpu_basic", "Layout", "Launches:", "Bound:", "Predicted, not measured", "Measured: "):
        assert part in head, part


def test_every_file_is_launched():
    assert {source for source, _ in LAUNCHES} == {f"{RUNG}/{file}" for file in FILES}
