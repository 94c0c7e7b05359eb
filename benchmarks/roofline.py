"""What a plan costs at the least: its arithmetic and the bytes it has to move, and the time both take on a GPU.

A step reads each of its inputs once and writes each output once; of the images and the permutation only the batch's rows.
What a kernel reads again (or keeps in a cache) is not in these numbers: they are floors and predictions, not measurements.
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """flop: float32 operations a second; bytes: moved to and from memory a second, reads and writes together."""

    name: str
    flop: float
    bytes: float


H200 = Ceilings("H200", 67e12, 4.3e12)
MARGIN = 1.1   # by how much a time may beat measured ceilings: clocks differ from moment to moment


def step_bytes(plan, step):
    """Bytes that a step has to read and write."""
    return sum(buffer_bytes(plan, name) for name in {*step.reads.values(), *step.writes.values()}) + sum(
        buffer_bytes(plan, name) for name in set(step.reads.values()) & set(step.writes.values()))


def buffer_bytes(plan, name):
    """Bytes of a buffer that one batch touches."""
    buffer = plan.buffers[name]
    if buffer.kind == "dataset":
        return plan.batch * math.prod(buffer.shape[1:]) * np.dtype(buffer.dtype).itemsize
    return 0 if buffer.kind == "control" else buffer.bytes


def plan_bytes(plan):
    return sum(step_bytes(plan, step) for step in plan.steps)


def step_seconds(plan, step, ceilings):
    """The time predicted for a step: of its arithmetic or of its bytes, whichever is longer."""
    return max(step.flop / ceilings.flop, step_bytes(plan, step) / ceilings.bytes)


def plan_seconds(plan, ceilings):
    """The time predicted for a whole plan, its steps one after another, launches free of charge."""
    return sum(step_seconds(plan, step, ceilings) for step in plan.steps)


def bound_by(plan, ceilings):
    """'FLOP' or 'bytes': what most of the predicted time goes to."""
    by_flop = sum(step_seconds(plan, step, ceilings) for step in plan.steps
                  if step.flop / ceilings.flop >= step_bytes(plan, step) / ceilings.bytes)
    return "FLOP" if by_flop >= plan_seconds(plan, ceilings) / 2 else "bytes"


def floor(flop, cold_bytes, ceilings):
    """Seconds below which a measured time is impossible; cold_bytes: read from memory for certain, not from a cache."""
    return max(flop / ceilings.flop, cold_bytes / ceilings.bytes) / MARGIN


def impossible(seconds, flop, cold_bytes, ceilings):
    """One line saying that a time beats the roofline, None where it does not."""
    least = floor(flop, cold_bytes, ceilings)
    if seconds >= least:
        return None
    return (f"{seconds * 1e6:.1f} us is impossible: {flop / 1e9:.3g} GFLOP and {cold_bytes / 1e6:.3g} MB take at least "
            f"{least * 1e6:.1f} us; the work was not done, or the clock is wrong")
