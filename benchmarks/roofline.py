"""The roofline model: the least arithmetic and memory traffic of a plan, and the time both take on
a GPU.

A step reads each of its inputs once and writes each output once; of the images and the permutation,
only the batch's rows. Repeated reads and caches are not modelled: these numbers are lower bounds
and predictions, not measurements.
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """flop: operations per second, of one precision; bytes: bytes per second read from and written
    to memory, together.
    """

    name: str
    flop: float
    bytes: float


# Three products for one of float32, of TF32 or of halves -> what they are of.
THREE_PRODUCTS, THREE_HALVES = "3xtf32", "3xfp16"
SPLIT = {THREE_PRODUCTS: "tf32", THREE_HALVES: "fp16"}
# By what products are made of: NVIDIA's numbers, without sparsity.
H200 = {
    name: Ceilings(f"H200, {name}", flop, 4.3e12)
    for name, flop in {
        "fp32": 67e12,
        THREE_PRODUCTS: 494e12 / 3,
        "tf32": 494e12,
        "bf16": 989e12,
        "fp16": 989e12,
        THREE_HALVES: 989e12 / 3,
    }.items()
}
# factor by which a time may beat the ceilings: of measured ones, because the clock rate varies
MARGIN = 1.1

# FLOP of a multiprocessor in a cycle, with float32 sums and without sparsity; of chips of one
# architecture the fastest. NVIDIA's peaks by its multiprocessors and clock, from: sm_75 Turing's
# white paper (T4); sm_80 A100's; sm_86 GA102's (A40); sm_87 Jetson AGX Orin's technical brief (170
# sparse TOPS in int8 of 16 at 1.3 GHz, four times those of fp16 without sparsity); sm_89 Ada's
# (L40); sm_90 H100's; sm_100, sm_103 HGX B200's and B300's data sheet; sm_110 Jetson T5000's data
# sheet (2,070 sparse TFLOP/s in FP4 of 20 at 1.57 GHz, eight times fp16's); sm_120 RTX Blackwell
# PRO's white paper; sm_121 DGX Spark's data sheet (one sparse PFLOP/s in FP4 of 48 at 2.4 GHz). No
# GPU of sm_88 is published; it is given the most of its generation, so that no possible time is
# refused.
FLOP_PER_CYCLE = {
    "sm_75": {"fp32": 128, "fp16": 1024},  # GeForce has half as many in fp16
    "sm_80": {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048},
    # GeForce has half as many of these
    "sm_86": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024},
    "sm_87": {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048},
    "sm_88": {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048},
    "sm_89": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024},  # likewise
    "sm_90": {"fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096},
    "sm_100": {"fp32": 256, "tf32": 4096, "bf16": 8192, "fp16": 8192},
    "sm_103": {"fp32": 256, "tf32": 4096, "bf16": 8192, "fp16": 8192},
    "sm_110": {"fp32": 256, "tf32": 4096, "bf16": 8192, "fp16": 8192},
    "sm_120": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024},  # likewise
    "sm_121": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024},
}


def peak(architecture, size, products):
    """The Ceilings that the clock rates and the number of multiprocessors of a GPU (driver.Size)
    allow, which nothing can beat.

    products: key of H200. None for an architecture or products that FLOP_PER_CYCLE does not know,
    or where the driver does not tell the clock.
    """
    per_cycle = rate(FLOP_PER_CYCLE.get(architecture, {}), products)
    if per_cycle is None or not size.hertz:
        return None
    moved = 2 * size.memory_hertz * size.bus_bits / 8 or math.inf  # two transfers in a cycle
    return Ceilings(
        f"{architecture}, {products}", per_cycle * size.multiprocessors * size.hertz, moved
    )


def rate(known, products):
    """The rate of products, a key of H200, None if it is not known; known: rates by precision.

    Three products have a third of the rate of theirs, or float32's, which layers too narrow for
    tensor cores have.
    """
    if products not in SPLIT:
        return known.get(products)
    parts = known.get(SPLIT[products])
    return max(parts / 3, known.get("fp32", 0)) if parts else None


def in_words():
    """The ceilings of an H200, for people."""
    flop = {products: f"{ceilings.flop / 1e12:.0f}" for products, ceilings in H200.items()}
    return (
        f"{H200['fp32'].bytes / 1e12} TB/s; {flop['fp32']} TFLOP/s in float32, {flop['tf32']} in TF32, "
        f"{flop[THREE_PRODUCTS]} in three products of TF32, {flop[THREE_HALVES]} of float16, "
        f"{flop['bf16']} in bfloat16"
    )


def step_bytes(plan, step):
    """Bytes that a step must read and write."""
    return sum(
        buffer_bytes(plan, name) for name in {*step.reads.values(), *step.writes.values()}
    ) + sum(
        buffer_bytes(plan, name) for name in set(step.reads.values()) & set(step.writes.values())
    )


def buffer_bytes(plan, name):
    """Bytes of a buffer that one batch touches."""
    buffer = plan.buffers[name]
    if buffer.kind == "dataset":
        return plan.batch * math.prod(buffer.shape[1:]) * np.dtype(buffer.dtype).itemsize
    return 0 if buffer.kind == "control" else buffer.bytes


def plan_bytes(plan):
    return sum(step_bytes(plan, step) for step in plan.steps)


def step_seconds(plan, step, ceilings):
    """The predicted time of a step: the longer of its arithmetic and its memory traffic."""
    return max(step.flop / ceilings.flop, step_bytes(plan, step) / ceilings.bytes)


def plan_seconds(plan, ceilings):
    """The predicted time of a plan: its steps one after another, without launch overhead."""
    return sum(step_seconds(plan, step, ceilings) for step in plan.steps)


def floor(flop, cold_bytes, ceilings):
    """Seconds below which a measured time is impossible; cold_bytes: bytes that cannot come from a
    cache.
    """
    return max(flop / ceilings.flop, cold_bytes / ceilings.bytes) / MARGIN


def impossible(seconds, flop, cold_bytes, ceilings):
    """One line saying that a time beats the roofline, None if it does not."""
    least = floor(flop, cold_bytes, ceilings)
    if seconds >= least:
        return None
    return (
        f"{seconds * 1e6:.1f} us is impossible: {flop / 1e9:.3g} GFLOP and {cold_bytes / 1e6:.3g} MB take at least "
        f"{least * 1e6:.1f} us; the kernel did not run, or the clock is wrong"
    )
