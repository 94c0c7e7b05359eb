"""The powers of two by which a rung on pairs of halves multiplies the operands of its products
(rungs.packed_tiles.EXPONENTS), where a plan needs others than those.

A power changes no bit of a number, only which numbers exceed a half or lose bits below it.
"""

import dataclasses
import math

from ladder.plan.data import Plan
from ladder.rungs.launches import Launch, Step
from ladder.rungs.packed_tiles import EXPONENTS

# How often a training, or the forward pass of a batch, is repeated with smaller powers, and by how
# much each is smaller then.
MOST_REPEATS, SMALLER = 3, {"ACTIVATION": 4, "WEIGHT": 4, "GRADIENT": 8}


def scales(plan: Plan) -> bool:
    """Whether the plan multiplies operands by such powers."""
    return any(_kind(define) for launch in plan.launches for define in launch.defines)


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
    exponents = {kind: most - repeats * SMALLER[kind] for kind, most in EXPONENTS.items()}

    def of_launch(launch: Launch) -> Launch:
        defines = (
            f"{kind}_EXPONENT={exponents[kind]}" if (kind := _kind(define)) else define
            for define in launch.defines
        )
        return dataclasses.replace(launch, defines=tuple(defines))

    def of_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            dataclasses.replace(step, launches=tuple(map(of_launch, step.launches)))
            for step in steps
        )

    return dataclasses.replace(plan, steps=of_steps(plan.steps), prologue=of_steps(plan.prologue))


def _kind(define: str) -> str | None:
    """The key of EXPONENTS whose macro is defined."""
    kind, _, rest = define.partition("_EXPONENT=")
    return kind if rest else None
