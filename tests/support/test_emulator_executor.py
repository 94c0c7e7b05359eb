"""A whole plan's writes and reads beyond a buffer are found, and the step that made them is
named.
"""

import dataclasses

import numpy as np
import pytest

import needs
import zoo
from cuda_emulator import KernelFault
from emulator_executor import Executor
from ladder.plan import plan
from ladder.verify import parity

pytestmark = needs.COMPILER

NETWORK = zoo.FORKED
MADE = plan.inference_plan(NETWORK, "gpu_basic", 2, plan.Dataset(2, "uint8"))


def run(entry="", change=lambda arguments: arguments):
    """The values of a plan's buffers after it ran; change: of the arguments of the first launch of
    the kernel `entry`.
    """
    launch = next(
        (launch for step in MADE.steps for launch in step.launches if launch.entry == entry), None
    )

    def changed(step):
        return dataclasses.replace(
            step,
            launches=tuple(
                dataclasses.replace(each, arguments=change(each.arguments))
                if each is launch
                else each
                for each in step.launches
            ),
        )

    made, executor = (
        dataclasses.replace(MADE, steps=tuple(changed(step) for step in MADE.steps)),
        Executor(),
    )
    arrays = executor.allocate(
        made, executor.upload({**parity.random_images(NETWORK, 2), **parity.initial(NETWORK)})
    )
    executor.run(made, arrays)
    return arrays


def one_more(arguments):
    """The last argument, a count of elements, larger by one."""
    return (*arguments[:-1], np.int32(arguments[-1] + 1))


def test_a_plan_as_it_is_passes():
    assert np.isfinite(run()[MADE.output]).all()


def test_a_launch_that_writes_one_element_too_many_is_named():
    """What it writes there is the NaN that it read behind its input."""
    with pytest.raises(
        KernelFault,
        match="^relu_forward: out of bounds: relu_forward of layer a_relu wrote [1-4] bytes behind "
        "buffer a_relu$",
    ):
        run("relu_forward", one_more)


def test_a_launch_that_writes_before_its_buffer_is_named():
    """The counters are three numbers, of which the last says where in the losses the launch
    writes.
    """
    made = plan.training_plan(
        plan.TrainingSettings(network=NETWORK, rung="gpu_basic", batch_size=2),
        plan.Dataset(2, "uint8"),
        plan.Length(1, 1),
    )
    executor = Executor()
    arrays = executor.allocate(
        made,
        executor.upload(
            {
                **parity.random_images(NETWORK, 2),
                **parity.initial(NETWORK),
                "counters": np.array([0, 0, -1]),
                "learning_rates": np.zeros(1),
            }
        ),
    )
    with pytest.raises(
        KernelFault,
        match="mse_total: out of bounds: mse of layer  wrote [1-8] bytes before buffer losses$",
    ):
        executor.run(made, arrays)


def test_a_read_beyond_a_buffer_is_a_nan_in_the_results():
    """Of images that are wider than the buffer: the last row of the last image is beyond it."""

    def wider(arguments):
        *arrays, batch, height, width, channels, filters, kernel, padding, stride = arguments
        return (
            *arrays,
            batch,
            height,
            width,
            np.int32(channels + 1),
            filters,
            kernel,
            padding,
            stride,
        )

    assert np.isnan(run("conv2d_forward", wider)["a"]).any()


def test_every_guard_is_checked_when_the_plan_ends():
    """Also those of buffers that the launch which wrote there does not use."""

    class Straying(Executor):
        def launch(self, launch, arrays):
            super().launch(launch, arrays)
            if launch.entry == "advance":
                arrays["a"].base[-300] += 1  # at most 256 bytes before the end belong to no guard

    executor = Straying()
    arrays = executor.allocate(
        MADE, executor.upload({**parity.random_images(NETWORK, 2), **parity.initial(NETWORK)})
    )
    with pytest.raises(
        KernelFault, match="a step that does not use the buffer wrote 1 bytes behind buffer a$"
    ):
        executor.run(MADE, arrays)
