"""Kernels at the largest batch that a plan accepts: indices near 2^31 and many million pixels.

The last blocks of each launch run on arrays of which the last images alone hold values; everything
else takes no memory. Their results are those of the same launch in the plan of these images alone.
"""

import itertools
import re

import numpy as np
import pytest

import emulator_executor
import needs
import plan_checks
import sparse_memory
import zoo
from ladder.errors import UserError
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.verify import parity

pytestmark = needs.COMPILER

RUNGS = [
    name
    for name, entry in catalog.RUNGS.items()
    if entry.executor == "cuda" and entry.role != "lesson"
]
IMAGES = 3  # that hold values
# Kernels whose results depend on the place in the batch, or its size.
OF_THE_BATCH = {
    "dropout_forward",
    "sample_forward",
    "cross_entropy_rows",
    "batchnorm_input_grad",
    "lasting_images",
}
IN_PLACE = {"add_bias"}  # kernels that read what they write


def made_for(network, rung, batch):
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=batch,
        optimizer=Optimizer("momentum"),
        multipliers=plan.made_for(rung),
    )
    return plan.training_plan(settings, plan.Dataset(batch, "uint8"), plan.Length(1, 1))


def largest(network, rung):
    with pytest.raises(UserError) as refused:
        made_for(network, rung, 2**31)
    most = int(re.search(r"(\d+) or less$", str(refused.value))[1])
    # chunks are swapped by the pixel's number, modulo 8
    return made_for(network, rung, most - (most - IMAGES) % 8)


def last_images(array, batch):
    """The part of an array of a batch that belongs to its last images."""
    return array[(slice(None),) * array.shape.index(batch) + (slice(-IMAGES, None),)]


def at_the_end(name, small, buffer, batch):
    """The array of a launch at the largest batch, and its part to compare; small: the values of the
    same buffer.
    """
    if batch not in buffer.shape:
        return small.copy(), None
    array = sparse_memory.zeros(buffer.shape, buffer.dtype)
    last_images(array, batch)[...] = small + (batch - IMAGES if name == "permutation" else 0)
    return array, last_images(array, batch)


def check_last_blocks(launch, made, small_launch, arrays):
    """Runs the small launch, too. False if the launch is not one that can be compared."""
    names, written = launch.buffers, plan_checks.writes(launch)
    grows = {name for name in names if made.batch in made.buffers[name].shape}
    # not written <= grows: a sum over the batch
    if not written <= grows or launch.entry in OF_THE_BATCH:
        emulator_executor.Executor().launch(small_launch, arrays)
        return False
    for name in written if launch.entry not in IN_PLACE else ():
        arrays[name][...] = np.nan if arrays[name].dtype.kind == "f" else 255
    at = {name: at_the_end(name, arrays[name], made.buffers[name], made.batch) for name in names}
    arguments = []
    for argument, own in zip(launch.arguments, small_launch.arguments, strict=True):
        of_the_size = not isinstance(own, np.floating)  # as 1 over the numbers of the batch is not
        arguments.append(
            at[argument][0] if isinstance(argument, str) else argument if of_the_size else own
        )
    blocks = small_launch.grid[0] + 1  # one more, because the last may be almost empty
    emulator_executor.function(launch)(
        launch.grid,
        launch.block,
        arguments,
        launch.shared_bytes,
        first_block=max(0, launch.grid[0] - blocks),
    )
    emulator_executor.Executor().launch(small_launch, arrays)
    for name in written:
        np.testing.assert_allclose(
            at[name][1], arrays[name], rtol=1e-5, atol=1e-6, equal_nan=False, err_msg=launch.entry
        )
    return True


@pytest.mark.parametrize(
    "rung, network",
    [
        *itertools.product(RUNGS, zoo.NETWORKS),
        ("gpu_bf16", "wide"),
        ("gpu_bf16", "deep"),
        ("gpu_bf16", "rising"),
        ("gpu_bf16_sm90", "deep"),
        ("gpu_bf16_sm90", "rising"),
        ("gpu_3xf16_sm90", "deep"),
        ("gpu_3xf16_sm90", "rising"),
    ],
)
def test_the_last_blocks_of_every_launch_of_the_largest_batch(rung, network):
    network = {**zoo.NETWORKS, "wide": zoo.WIDE, "deep": zoo.DEEP, "rising": zoo.RISING}[network]
    made, small = largest(network, rung), made_for(network, rung, IMAGES)
    executor = emulator_executor.Executor()
    arrays = executor.allocate(
        small, executor.upload({**parity.random_images(network, IMAGES), **parity.initial(network)})
    )
    compared = {}
    for launch, small_launch in zip(*(launches(each) for each in (made, small)), strict=True):
        kind = launch.source, launch.entry
        compared[kind] = check_last_blocks(launch, made, small_launch, arrays) or compared.get(
            kind, False
        )
    assert sum(compared.values()) > len(compared) / 4, compared


def launches(made):
    return [launch for step in (*made.prologue, *made.steps) for launch in step.launches]
