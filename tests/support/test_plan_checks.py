"""The checks of plan_checks.py find what was planted for them, and nothing in a plan as it is."""

import dataclasses

import numpy as np
import pytest

import needs
import plan_checks
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.plan import plan
from ladder.rungs.launches import Launch
from ladder.rungs.values import Buffer

pytestmark = needs.COMPILER

NETWORK = networks.build("autoencoder")
PLAN = plan.training_plan(
    plan.TrainingSettings(network=NETWORK, rung="gpu_basic", batch_size=2),
    plan.Dataset(4, "uint8"),
    plan.Length(2, 2),
)
FITTING = nvrtc.Resources(
    registers=32, spill_bytes=0, stack_bytes=0, static_shared_bytes=0, most_threads=256
)
LAUNCH = Launch(
    "gpu_basic/relu.cu", "relu_forward", (10,), (256,), ("enc1", "enc1_relu", np.int32(2560))
)


def refusals(architecture="sm_80", resources=None, buffers=None, **launch):
    made = dataclasses.replace(PLAN, buffers={**PLAN.buffers, **(buffers or {})})
    return plan_checks.refusals(
        dataclasses.replace(LAUNCH, **launch),
        made,
        dataclasses.replace(FITTING, **(resources or {})),
        architecture,
    )


@pytest.mark.parametrize(
    "launch",
    [
        {},
        {"grid": (1, 65535, 65535)},
        {"grid": (2**23 - 1,)},
        {"block": (16, 16)},
        {"block": (1,)},
        {"block": (4, 1, 64)},
        {"resources": {"registers": 255}},
        {"shared_bytes": 48 << 10},
        {"shared_bytes": 64 << 10},
        {"shared_bytes": 99 << 10, "architecture": "sm_86"},
        {"shared_bytes": 227 << 10, "architecture": "sm_90"},
        {"resources": {"static_shared_bytes": 48 << 10}, "architecture": "sm_75"},
        {"resources": {"registers": 64, "most_threads": 1024}, "block": (1024,)},
    ],
    ids=str,
)
def test_what_a_gpu_accepts_is_accepted(launch):
    assert refusals(**launch) == []


@pytest.mark.parametrize(
    "launch, said",
    [
        ({"grid": (0,)}, "empty grid"),
        ({"grid": (4, 0)}, "empty grid"),
        ({"grid": (1, 65536)}, "a grid of"),
        ({"grid": (1, 1, 65536)}, "a grid of"),
        ({"grid": (2**31,), "block": (1,)}, "a grid of"),
        ({"grid": (2**23,)}, "number does not fit 32 bits"),
        ({"block": (257,)}, "256 threads are allowed"),
        ({"block": (1025,), "resources": {"most_threads": None}}, "1024 threads are allowed"),
        ({"block": (1, 1, 65)}, "a block of"),
        ({"block": (1024,), "resources": {"registers": 65, "most_threads": 1024}}, "registers"),
        # 31 warps take the room of 32
        ({"block": (992,), "resources": {"registers": 65, "most_threads": 1024}}, "registers"),
        ({"shared_bytes": (64 << 10) + 1, "architecture": "sm_75"}, "shared memory"),
        ({"shared_bytes": (99 << 10) + 1, "architecture": "sm_86"}, "shared memory"),
        ({"shared_bytes": (163 << 10) + 1}, "shared memory"),
        (
            {
                "shared_bytes": 227 << 10,
                "resources": {"static_shared_bytes": 4},
                "architecture": "sm_90",
            },
            "shared memory",
        ),
        ({"shared_bytes": 48 << 10, "resources": {"static_shared_bytes": 4}}, "does not ask"),
        (
            {"buffers": {"enc1": Buffer("enc1", (2**23, 256), "float32", "activation")}},
            "an index does not fit",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_gpu_refuses_is_found(launch, said):
    assert said in " ".join(refusals(**launch))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("enc1", "enc1_relu"), "2 arguments where the kernel takes 3"),
        (("enc1", "enc1_relu", 2560), "argument 2"),
        (("enc1", "enc1_relu", np.float32(2560)), "argument 2"),
        (("enc1", np.int32(1), np.int32(2560)), "argument 1"),
        (("enc1", "enc1_pool.index", np.int32(2560)), "argument 1 is enc1_pool.index (uint8)"),
    ],
)
def test_arguments_that_a_kernel_does_not_take_are_found(arguments, said):
    assert plan_checks.wrong_arguments(LAUNCH, PLAN) == []
    (found,) = plan_checks.wrong_arguments(dataclasses.replace(LAUNCH, arguments=arguments), PLAN)
    assert said in found


def with_step(operation, layer="", **changes):
    """PLAN with one step changed."""
    steps = list(PLAN.steps)
    number = next(
        i
        for i, step in enumerate(steps)
        if step.operation == operation and layer in ("", step.layer)
    )
    steps[number] = dataclasses.replace(steps[number], **changes)
    return dataclasses.replace(PLAN, steps=tuple(steps))


def on_stream(operation, layer):
    """PLAN with one step's launches on a stream of their own."""
    step = next(step for step in PLAN.steps if (step.operation, step.layer) == (operation, layer))
    return with_step(
        operation,
        layer,
        launches=tuple(dataclasses.replace(launch, stream=1) for launch in step.launches),
    )


def no_waits(made):
    return [()] * len(plan_checks.launches(made))


def test_a_plan_as_it_is_has_no_hazard():
    assert plan_checks.hazards(PLAN, no_waits(PLAN)) == []
    assert plan_checks.undeclared_writes(PLAN) == []


def test_a_read_of_what_nothing_has_written_is_found():
    found = plan_checks.hazards(with_step("relu_forward", "enc2_relu", launches=()), no_waits(PLAN))
    assert found and all("reads enc2_relu, which nothing before it writes" in one for one in found)


@pytest.mark.parametrize(
    "operation, layer, shared",
    [
        ("conv2d_weight_grad", "enc2", {"enc1_pool", "enc2.gradient", "enc2.weight.gradient"}),
        ("conv2d_input_grad", "enc2", {"enc2.gradient", "enc1_pool.gradient", "enc2.weight"}),
    ],
)
def test_another_stream_needs_its_waits(operation, layer, shared):
    made = on_stream(operation, layer)
    unordered = [one for one in plan_checks.hazards(made, no_waits(made)) if "both use" in one]
    assert shared == {one.rpartition(" ")[2] for one in unordered}
    waits = cuda_executor.waits_between_streams(made)
    assert plan_checks.hazards(made, waits) == []
    for number, waited in enumerate(waits):  # each of them is needed
        if waited:
            assert plan_checks.hazards(
                made, [() if i == number else one for i, one in enumerate(waits)]
            )


def test_a_write_that_the_step_does_not_declare_is_found():
    step = next(step for step in PLAN.steps if step.operation == "relu_forward")
    made = with_step("relu_forward", reads={**step.reads, **step.writes}, writes={})
    assert plan_checks.undeclared_writes(made) == [("relu_forward", "enc1_relu")]


def test_bytes_count_each_array_once_a_launch_and_a_batch_of_the_images():
    steps = tuple(step for step in PLAN.steps if step.operation == "load_batch")
    images = 2 * 32 * 32 * 3
    assert plan_checks.touched_bytes(dataclasses.replace(PLAN, steps=steps)) == images + 4 * images
