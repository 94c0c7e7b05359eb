"""Every rung with every multiplier: single products to the bit, training as on the cpu rung."""

import functools
import itertools

import numpy as np
import pytest

import emulator_executor
import multiplier_references as references
import needs
import references as upsampled
import zoo
from ladder.arithmetic import multipliers
from ladder.arithmetic.multipliers import (
    FORMATS,
    MULTIPLIERS,
    ByDirection,
    Integers,
    Table,
    multiply,
    quantised,
)
from ladder.executors import create as executors
from ladder.network import layers, networks
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.verify import parity

pytestmark = needs.COMPILER
# Those of tensor cores launch gpu_gemm's kernels for such products:
# tests/kernels/test_gpu_3xtf32.py.
GPU_RUNGS = [
    name
    for name, entry in catalog.RUNGS.items()
    if entry.executor == "cuda" and entry.role != "lesson" and not entry.on_tensor_cores
]
RUNGS = ["cpu", "cpu_sequential", *GPU_RUNGS]
TABLE = Table("random", references.random_table(7))  # asymmetric: the operands' order matters
ALL = [*MULTIPLIERS.values(), *FORMATS.values(), TABLE]
# for rungs whose tiles take g++ seconds to compile
SOME = [MULTIPLIERS["am16"], MULTIPLIERS["fp16"], TABLE]
LENGTH = plan.Length(10, 5)
FILTERS = 70  # more than a tile's width on every rung
# largest deviation caused by operands rounded to 8 bits that differ in the last bit
ROUNDED = 5e-3


def executor(rung):
    return (
        emulator_executor.Executor()
        if catalog.RUNGS[rung].executor == "cuda"
        else executors.create(rung, 2)
    )


def step(rung, multiplier, image, batch):
    """The arrays of one training step of two 1x1 convolutions, 1 -> FILTERS -> 1, without biases;
    initial weights by name.
    """
    network = networks.resolve(
        "two",
        image,
        (
            layers.conv2d("up", FILTERS, kernel=1, padding=0, bias=False),
            layers.conv2d("down", 1, kernel=1, padding=0, bias=False),
        ),
        "up",
        "mse",
    )
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=batch,
        gradient_scale="batch",
        loss_scale=1,
        multipliers=ByDirection.everywhere(multiplier),
    )
    made = plan.training_plan(settings, plan.Dataset(batch, "float32"), LENGTH, fuse_update=False)
    arrays = one_step(rung, made)
    return arrays, {name: arrays[name].copy() for name in network.parameters}


def one_step(rung, made):
    """The arrays of a training step of random images and weights, with a learning rate of zero."""
    batch, *image = made.buffers["input"].shape
    random = np.random.default_rng(3)
    initial = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in made.network.parameters.items()
    }
    machine = executor(rung)
    uploaded = machine.upload(
        {
            **initial,
            "images": random.normal(size=(batch, *image)).astype(np.float32),
            "scale": np.ones(image[2], np.float32),
            "offset": np.zeros(image[2], np.float32),
            "permutation": np.arange(batch),
            "counters": np.zeros(3, np.int64),
            "losses": np.zeros(5),
            "learning_rates": np.zeros(10),
        }
    )
    arrays = machine.allocate(made, uploaded)
    machine.run(made, arrays)
    return arrays


@pytest.mark.parametrize(
    "rung, multiplier",
    [*itertools.product(RUNGS[:3], ALL), *itertools.product(RUNGS[3:], SOME)],
    ids=lambda value: getattr(value, "name", value),
)
def test_sums_of_one_product_are_that_product_to_the_bit_in_every_direction(rung, multiplier):
    zero = np.float32(0)  # a sum starts from it, so a zero product loses its sign
    arrays, weights = step(rung, multiplier, (5, 7, 1), 2)
    up, down = weights["up.weight"].reshape(-1), weights["down.weight"].reshape(-1)
    assert np.array_equal(arrays["up"], multiply(arrays["input"], up, multiplier) + zero)
    assert np.array_equal(
        arrays["up.gradient"], multiply(arrays["down.gradient"], down, multiplier) + zero
    )
    arrays, _ = step(rung, multiplier, (1, 1, 1), 1)
    found = arrays["up.weight.gradient"].reshape(-1)
    assert np.array_equal(
        found,
        multiply(arrays["up.gradient"].reshape(-1), arrays["input"].reshape(-1), multiplier) + zero,
    )
    found = arrays["down.weight.gradient"].reshape(-1)
    assert np.array_equal(
        found,
        multiply(arrays["down.gradient"].reshape(-1), arrays["up"].reshape(-1), multiplier) + zero,
    )
    if multiplier.name not in ("exact", "fp16"):
        assert not np.array_equal(arrays["up"].reshape(-1), arrays["input"].reshape(-1) * up)


@functools.cache
def trained_by_cpu(network, name, loss_scale=1):
    network = zoo.NETWORKS[network]
    return parity.train(
        network,
        "cpu",
        executors.create("cpu", 1),
        parity.protocols(network)["sgd"],
        multipliers=ByDirection.everywhere(MULTIPLIERS[name]),
        loss_scale=loss_scale,
    )


@pytest.mark.parametrize(
    "network, name, loss_scale",
    [
        ("odd", "am16", 1),
        ("zoo", "am16", 1),
        ("preactivation", "am16", 1),
        ("odd", "fp16", 1024),
        ("zoo", "fp16", 1024),
    ],
)
@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != "cpu"])
def test_networks_train_as_on_the_cpu_rung(rung, network, name, loss_scale):
    """A multiplier is not continuous: another summation order can move an operand across a step."""
    network, reference = zoo.NETWORKS[network], trained_by_cpu(network, name, loss_scale)
    trained = parity.train(
        network,
        rung,
        executor(rung),
        parity.protocols(network)["sgd"],
        follow=reference,
        multipliers=ByDirection.everywhere(MULTIPLIERS[name]),
        loss_scale=loss_scale,
    )
    deviations = parity.deviations(network, trained, reference)
    assert max(deviations.values()) <= ROUNDED, deviations


@pytest.mark.parametrize("name", ["mit32", "acc16"])
def test_another_multiplier_would_not_pass_for_it(name):
    network, reference = zoo.NETWORKS["odd"], trained_by_cpu("odd", name)
    trained = parity.train(
        network,
        "cpu",
        executors.create("cpu", 1),
        parity.protocols(network)["sgd"],
        follow=reference,
    )
    assert max(parity.deviations(network, trained, reference).values()) > ROUNDED


@pytest.mark.parametrize("rung", RUNGS)
def test_only_the_directions_asked_for_are_approximate(rung):
    network, am32 = zoo.NETWORKS["lenet_5"], MULTIPLIERS["am32"]
    for direction in multipliers.DIRECTIONS:
        settings = plan.TrainingSettings(
            network=network,
            rung=rung,
            batch_size=4,
            multipliers=ByDirection(**{direction: am32}),
        )
        made = plan.training_plan(settings, plan.Dataset(8, "uint8"), LENGTH)
        marked = {step.operation for step in made.steps if "multiplier" in step.attributes}
        assert marked and all(operation.endswith(direction) for operation in marked)
        if catalog.RUNGS[rung].executor == "cuda":
            told = {
                step.operation
                for step in made.steps
                for launch in step.launches
                if "MULTIPLIER=am32" in launch.defines
            }
            assert told == marked


@pytest.mark.parametrize("rung", RUNGS)
def test_no_step_of_an_inexact_plan_forms_other_products_than_the_definition(rung):
    settings = plan.TrainingSettings(
        network=networks.build("autoencoder"),
        rung=rung,
        batch_size=4,
        multipliers=ByDirection(weight_grad=MULTIPLIERS["mit32"]),
    )
    made = plan.training_plan(settings, plan.Dataset(8, "uint8"), LENGTH)
    assert not [
        step.operation
        for step in made.steps
        if "winograd" in step.operation
        or "decompose" in step.operation
        or "upsample_conv2d" in step.operation
    ]


UPSAMPLED = networks.resolve(
    "upsampled",
    (10, 8, 3),
    (
        layers.maxpool2d("pool"),
        layers.conv2d("a", 4),
        layers.relu("a_relu"),
        layers.upsample2d("up"),
        layers.conv2d("b", 3),
    ),
    "a",
    "mse",
)


@pytest.mark.parametrize("rung", [*RUNGS, "gpu_3xtf32", "gpu_tf32", "gpu_bf16", "gpu_bf16_sm90"])
def test_behind_an_upsampling_phase_weights_are_rounded_once(rung):
    """y, and the gradients of the weight and of the input behind its ReLU, by definition: sums of
    rounded taps are far off.
    """
    settings = plan.TrainingSettings(
        network=UPSAMPLED,
        rung=rung,
        batch_size=3,
        gradient_scale="batch",
        multipliers=multipliers.PRECISIONS["bfloat16"],
    )
    found = one_step(
        rung, plan.training_plan(settings, plan.Dataset(3, "float32"), LENGTH, fuse_update=False)
    )
    rounded = multipliers.to_bfloat16
    x, weight, dy = rounded(found["a_relu"]), found["b.weight"], rounded(found["b.gradient"])
    phase_weights = upsampled.decompose_taps(weight)
    near(
        found["b"],
        upsampled.conv2d_input_grad(x, rounded(phase_weights), 1, 10, 8, 2) + found["b.bias"],
    )
    near(
        found["b.weight.gradient"],
        upsampled.add_tap_gradients(upsampled.conv2d_weight_grad(dy, x, 1, 4, 2)),
    )
    near(found["b.bias.gradient"], found["b.gradient"].astype(float).sum(axis=(0, 1, 2)))
    dx = upsampled.conv2d(dy, rounded(phase_weights), 0, 1, 2)
    masked = np.where(found["a_relu"] > 0, dx, 0)
    images = multipliers.to_bfloat16(found["pool"])
    near(
        found["a.weight.gradient"],
        upsampled.conv2d_weight_grad(images, rounded(masked.astype(np.float32)), 1, 3),
        2e-3,
    )
    apart = (
        upsampled.conv2d_input_grad(x, upsampled.decompose_taps(rounded(weight)), 1, 10, 8, 2)
        + found["b.bias"]
    )
    assert np.abs(found["b"] - apart).max() > 1e-3 * np.abs(apart).max()


READ_TWICE = networks.resolve(
    "read_twice",
    (10, 8, 3),
    (
        layers.conv2d("a", 4),
        layers.maxpool2d("pool"),
        layers.upsample2d("up"),
        layers.conv2d("b", 3),
        layers.conv2d("c", 3, inputs=("up",)),
        layers.add("sum", ("b", "c")),
    ),
    "b",
    "mse",
)


def test_features_multiply_the_taps_of_training_where_another_layer_reads_the_image():
    """The plan of the features of b leaves out c, the other reader."""
    settings = plan.TrainingSettings(
        network=READ_TWICE,
        rung="cpu",
        batch_size=3,
        multipliers=multipliers.PRECISIONS["bfloat16"],
    )
    trained = plan.training_plan(settings, plan.Dataset(3, "float32"), LENGTH)
    features = plan.inference_plan(
        READ_TWICE, "cpu", 3, plan.Dataset(3, "float32"), "b", multipliers=settings.multipliers
    )
    made = [
        [
            step.operation
            for step in one.steps
            if step.layer == "b" and step.operation.endswith("conv2d_forward")
        ]
        for one in (trained, features)
    ]
    assert made[0] == made[1] == ["approximate_conv2d_forward"]


def near(found, wanted, share=1e-5):
    assert np.abs(found - wanted).max() <= share * np.abs(wanted).max()


# ---- integers

INTEGERS = [
    Integers(kind, references.random_integers(kind == "signed")) for kind in ("signed", "unsigned")
]


@pytest.mark.parametrize("multiplier", INTEGERS, ids=lambda multiplier: multiplier.name)
@pytest.mark.parametrize("rung", RUNGS)
def test_products_of_integers_are_those_of_quantised_operands(rung, multiplier):
    """Every operand has one scale; the bias and its gradient are not quantised."""
    settings = plan.TrainingSettings(
        network=UPSAMPLED,
        rung=rung,
        batch_size=3,
        gradient_scale="batch",
        multipliers=ByDirection.everywhere(multiplier),
    )
    found = one_step(
        rung, plan.training_plan(settings, plan.Dataset(3, "float32"), LENGTH, fuse_update=False)
    )
    (x, x_unit), (weight, weight_unit), (dy, dy_unit) = (
        quantised(found[name], multiplier.most) for name in ("up", "b.weight", "b.gradient")
    )
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), axis=(1, 2)
    )
    windows = windows.transpose(0, 1, 2, 4, 5, 3)  # images, rows, columns, taps, channels
    products = multiply(windows[:, :, :, None], weight, multiplier).astype(float)
    near(found["b"], products.sum(axis=(4, 5, 6)) * x_unit * weight_unit + found["b.bias"])
    products = multiply(dy[..., None, None, None], windows[:, :, :, None], multiplier).astype(float)
    near(found["b.weight.gradient"], products.sum(axis=(0, 1, 2)) * x_unit * dy_unit)
    near(found["b.bias.gradient"], found["b.gradient"].astype(float).sum(axis=(0, 1, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(dy, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), axis=(1, 2)
    )
    flipped = weight[:, ::-1, ::-1].transpose(3, 1, 2, 0)  # channels, taps, filters
    products = multiply(
        windows.transpose(0, 1, 2, 4, 5, 3)[:, :, :, None], flipped, multiplier
    ).astype(float)
    near(found["up.gradient"], products.sum(axis=(4, 5, 6)) * dy_unit * weight_unit)


@pytest.mark.parametrize("rung", ["cpu_sequential", "gpu_basic", "gpu_opt_v2", "gpu_3xtf32"])
def test_networks_train_with_integers_as_on_the_cpu_rung(rung):
    network, multiplier = zoo.NETWORKS["odd"], ByDirection.everywhere(INTEGERS[0])
    protocol = parity.protocols(network)["sgd"]
    reference = parity.train(
        network, "cpu", executors.create("cpu", 1), protocol, multipliers=multiplier
    )
    trained = parity.train(
        network, rung, executor(rung), protocol, follow=reference, multipliers=multiplier
    )
    assert max(parity.deviations(network, trained, reference).values()) <= ROUNDED
    exact = parity.train(network, "cpu", executors.create("cpu", 1), protocol, follow=reference)
    assert max(parity.deviations(network, exact, reference).values()) > 4 * ROUNDED


def test_a_forward_pass_of_integers_leaves_the_gradients_exact():
    settings = plan.TrainingSettings(
        network=UPSAMPLED, rung="cpu", batch_size=3, multipliers=ByDirection(forward=INTEGERS[0])
    )
    made = plan.training_plan(settings, plan.Dataset(3, "float32"), LENGTH)
    assert {step.operation for step in made.steps if "multiplier" in step.attributes} == {
        "approximate_conv2d_forward"
    }
    # two images and two weights
    assert sum(step.operation == "quantise" for step in made.steps) == 4
