"""The powers of two by which a rung on pairs of halves multiplies the operands of its products
(macros, rungs.packed_tiles.EXPONENTS), where a plan needs others than the rung's.

A power changes no bit of a number, only which numbers exceed a half or lose bits below it.
"""

import dataclasses
import math

from ladder.plan.data import Plan
from ladder.rungs.launches import Launch, Step

NAME = "_EXPONENT="  # in a launch's defines, behind the kind of tensor
# How often a training, or the forward pass of a batch, is repeated with smaller powers, and by how
# much each is smaller then.
MOST_REPEATS, SMALLER = 3, {"ACTIVATION": 4, "WEIGHT": 4, "GRADIENT": 8}


def scales(plan: Plan) -> bool:
    """Whether the plan multiplies operands by such powers."""
    return any(NAME in define for launch in plan.launches for define in launch.defines)


def repeats_of(plan: Plan) -> range:
    """The numbers of the repeats of a plan whose results are not finite."""
    return range(1, MOST_REPEATS + 1) if scales(plan) else range(0)


def of_loss(divisor: int) -> float:
    """The loss scale, a power of two, that undoes what the loss divides gradients by."""
    return float(2.0 ** math.floor(math.log2(divisor)))


def fitted(plan: Plan, repeats: int = 0) -> Plan:
    """The plan with the powers after so many repeats."""
    if not repeats or not scales(plan):
        return plan

    def of_define(define: str) -> str:
        kind, name, exponent = define.partition(NAME)
        return f"{kind}{name}{int(exponent) - repeats * SMALLER[kind]}" if name else define

    def of_launch(launch: Launch) -> Launch:
        return dataclasses.replace(launch, defines=tuple(map(of_define, launch.defines)))

    def of_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            dataclasses.replace(step, launches=tuple(map(of_launch, step.launches)))
            for step in steps
        )

    return dataclasses.replace(plan, steps=of_steps(plan.steps), prologue=of_steps(plan.prologue))
