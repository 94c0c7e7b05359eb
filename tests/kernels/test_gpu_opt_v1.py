"""The kernels of gpu_opt_v1 against their definitions in float64, the rung's claims, and its parity
with the cpu rung.
"""

import itertools

import numpy as np
import pytest

import cuda_emulator
import needs
import operation_cases
import plan_checks
from compiled import without_spills
from emulated import KERNELS, load
from emulator_executor import Executor
from kernel_checks import counters, poisoned
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import layers, networks
from ladder.network.optimizers import Optimizer
from ladder.plan import frame, plan
from ladder.plan.builder import Builder
from ladder.rungs import gpu_opt_v1
from ladder.verify import parity
from rung_checks import convolution_launches, launches_of, training_plan

RUNG = "gpu_opt_v1"
NETWORK = networks.build("autoencoder")
NARROW = networks.build("autoencoder", filters=(64, 32))


@pytest.mark.parametrize(
    "filters, columns, pixels",
    [
        (1, 1, 1),
        (3, 2304, 65536),
        (128, 2304, 16384),
        (256, 27, 65536),
        (128, 1152, 4096),
        (5, 7, 1000),
        (4096, 36864, 64),
    ],
)
def test_the_splits_of_a_weight_gradient_cover_its_pixels(filters, columns, pixels):
    splits, size = gpu_opt_v1.split(
        gpu_opt_v1.weight_tile(filters, columns, False), filters, columns, pixels
    )
    assert (splits - 1) * size < pixels <= splits * size and size % 8 == 0
    assert 1 <= splits <= gpu_opt_v1.SPLITS


# ---- the plan


def test_fewer_launches_and_bytes_than_the_rung_below():
    below, here = training_plan("gpu_basic", NETWORK), training_plan(RUNG, NETWORK)
    assert sum(len(step.launches) for step in here.steps) < sum(
        len(step.launches) for step in below.steps
    )
    assert plan_checks.touched_bytes(here) < 0.8 * plan_checks.touched_bytes(below)


def test_no_layer_of_the_autoencoder_falls_back():
    own = ("conv2d", "maxpool2d", "upsample2d", "relu")
    for step in training_plan(RUNG, NETWORK).steps:
        if step.operation.startswith(own):
            assert all(launch.source.startswith(f"{RUNG}/") for launch in step.launches), (
                step.operation
            )


def test_a_relu_that_no_pooling_follows_has_a_gradient_step_of_its_own():
    table = {
        "input_shape": (4, 4, 2),
        "features": "b",
        "loss": "mse",
        "layers": (
            layers.conv2d("a", 4),
            layers.relu("a_relu"),
            layers.conv2d("b", 2),
            layers.relu("b_relu"),
        ),
    }
    network = networks.resolve("plain", **table)
    assert [step.operation for step in training_plan(RUNG, network).steps].count(
        "relu_backward"
    ) == 2
    protocol = parity.PROTOCOLS["sgd"]
    reference = parity.train(network, "cpu", executors.create("cpu", 2), protocol)
    trained = parity.train(network, RUNG, Executor(), protocol, follow=reference)
    assert max(parity.deviations(network, trained, reference).values()) <= protocol.tolerance


@pytest.mark.parametrize(
    "window, stride, padding, rung",
    [
        (2, 2, 0, RUNG),
        (3, 2, 1, "gpu_basic"),
        (2, 1, 0, "gpu_basic"),
        (2, 2, 1, "gpu_basic"),
        (3, 3, 0, "gpu_basic"),
    ],
)
def test_only_pooling_of_2x2_has_kernels_of_its_own(window, stride, padding, rung):
    network = networks.resolve(
        "pooled",
        (6, 6, 2),
        (
            layers.conv2d("a", 4),
            layers.relu("a_relu"),
            layers.maxpool2d("pool", window, stride, padding),
        ),
        "pool",
        "mse",
    )
    steps = pooling_steps(network)
    assert len(steps) == 2
    assert {launch.source for step in steps for launch in step.launches} == {f"{rung}/maxpool2d.cu"}


def pooling_steps(network):
    """Without a loss: the network's output and input differ in size."""
    builder = Builder(
        plan.TrainingSettings(network=network, rung=RUNG, batch_size=2),
        network.layers,
        "float32",
        training=True,
    )
    frame.load_batch(builder.build, plan.Dataset(2, "uint8"))
    builder.lower()
    builder.build.gradients.part(builder.build.values.output)
    builder.go_back()
    return [step for step in builder.plan().steps if step.operation.startswith("maxpool2d")]


# ---- the losses


def test_losses_are_added_in_float64():
    """A large number and others that float32 loses beside it, within a thread, a warp and a
    block.
    """
    summed = np.full(2000, 2.0**-30)
    summed[0], losses, hits = 1, np.zeros(1), np.zeros(1)
    total, expected = KERNELS / RUNG / "mse.cu", 1 + 1999 * 2.0**-30
    cuda_emulator.check(
        load(total).get_function("mse_total"),
        (1,),
        (256,),
        (summed, counters(0), losses, np.int32(4), np.int32(2000)),
    )
    assert losses[0] == expected / 4
    rows = np.stack([summed, summed]).astype(np.float32)
    cuda_emulator.check(
        load(KERNELS / RUNG / "cross_entropy.cu").get_function("cross_entropy_totals"),
        (1,),
        (256,),
        (rows, counters(0), losses, hits, np.int32(2000)),
    )
    assert (losses[0], hits[0]) == (expected / 2000, expected)
    gradient, partials = poisoned(1024), np.zeros(1)
    prediction = np.where(np.arange(1024) == 0, 1, 2.0**-15).astype(np.float32)
    prediction[[256, 512, 768]] = 0
    cuda_emulator.check(
        load(total).get_function("mse"),
        (1,),
        (256,),
        (prediction, np.zeros_like(prediction), gradient, partials, np.int32(1024), np.float32(1)),
    )
    assert partials[0] == 1 + 1020 * 2.0**-30


# ---- the update


def test_a_plan_updates_the_parameters_that_learn_in_one_launch_and_no_others():
    settings = plan.TrainingSettings(
        network=NETWORK,
        rung=RUNG,
        batch_size=2,
        optimizer=Optimizer("adam"),
        frozen=NETWORK.encoder,
    )
    made = plan.training_plan(settings, plan.Dataset(64, "uint8"), plan.Length(1, 1))
    (update,) = [
        step for step in made.steps if step.work == "update" and step.operation != "advance"
    ]
    (launch,) = update.launches
    learning = {name for name in NETWORK.parameters if name.startswith("dec")}
    averages = {f"{name}.{average}" for name in learning for average in ("mean", "square")}
    assert launch.arguments[0].written == learning | averages
    assert launch.buffers == {
        *learning,
        *averages,
        "counters",
        "learning_rates",
        *(f"{name}.gradient" for name in learning),
    }


# ---- every file

RESIZINGS = {
    (f"{RUNG}/{file}.cu", (f"WIDTH={width}",))
    for file in ("maxpool2d", "upsample2d")
    for width in (1, 4)
}
FILES = sorted(path.name for path in (KERNELS / RUNG).glob("*.cu"))
LAUNCHES = sorted(
    {
        *launches_of(training_plan(RUNG, NETWORK), RUNG),
        *RESIZINGS,
        (f"{RUNG}/cross_entropy.cu", ()),
        *itertools.chain(
            *(convolution_launches(gpu_opt_v1, *case) for case in operation_cases.CONVOLUTIONS)
        ),
    }
)


@needs.NVRTC
@pytest.mark.parametrize("source, defines", LAUNCHES, ids=str)
def test_a_gpu_can_run_it_as_the_rung_claims(source, defines):
    made = without_spills(source, defines, nvrtc.ARCHITECTURES[-1])
    assert sorted(made.kernels) == sorted(load(KERNELS / source).names)
    if not defines:  # losses and updates: no tiles
        return
    resizing = (source, defines) in RESIZINGS
    for name, resources in made.kernels.items():
        loads, stores = nvrtc.wide_accesses(made.ptx, name)
        if "WIDTH=1" in defines:
            assert loads == stores == 0
            continue
        assert stores > 0, name
        if (
            resizing
            or name == "conv2d_add_splits"
            or any(define in defines for define in ("WIDE=1", "WIDE_DY=1", "WIDE_X=1"))
        ):
            assert loads > 0, name
        assert resizing or name == "conv2d_add_splits" or resources.static_shared_bytes > 0, name
    assert resizing or "ld.shared.v4.f32" in made.ptx


def test_every_file_is_launched():
    assert {source for source, _ in LAUNCHES} == {f"{RUNG}/{file}" for file in FILES}
