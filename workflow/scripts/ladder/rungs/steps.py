"""The steps of a plan under construction, and on a GPU the launches of kernels that compute
them.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Unpack

from ladder.arithmetic.multipliers import (
    DIRECTIONS,
    MULTIPLIERS,
    ByDirection,
    Integers,
    kernel_defines,
)
from ladder.errors import UserError
from ladder.network.layers import Layer
from ladder.rungs.launches import Launches, Step, StepAttributes
from ladder.rungs.values import Values

MOST_BLOCKS = 2**31 - 1, 65_535, 65_535  # of a grid

# Operation -> its direction, which selects its multiplier. A multiplier that is not exact becomes
# an attribute of the step.
DIRECTION_OF = {
    f"{kind}_{direction}": direction
    for kind in ("conv2d", "dense", "approximate_conv2d", "phase_conv2d")
    for direction in DIRECTIONS
}


class Steps:
    """Appends steps over the values of a plan. pass_: see Step, of those that are appended next."""

    def __init__(self, values: Values, multipliers: ByDirection, rung: str) -> None:
        self.values, self.multipliers, self.rung = values, multipliers, rung
        self.appended: list[Step] = []
        # operand -> the buffers of its integers and of their scale
        self._quantised: dict[str, tuple[str, str]] = {}
        self.pass_ = "load"

    def add(
        self,
        operation: str,
        group: tuple[Layer, ...],
        reads: Mapping[str, str],
        writes: Mapping[str, str],
        flop: int = 0,
        **attributes: Unpack[StepAttributes],
    ) -> None:
        """Append a step of a group of layers; flop: per image."""
        multiplier = (
            getattr(self.multipliers, DIRECTION_OF[operation])
            if operation in DIRECTION_OF
            else MULTIPLIERS["exact"]
        )
        if multiplier is not MULTIPLIERS["exact"]:
            attributes["multiplier"] = multiplier
        self.append(operation, group[0].name, reads, writes, flop * self.values.batch, **attributes)
        if isinstance(multiplier, Integers):
            self._multiply_integers(self.appended.pop(), multiplier)

    def _multiply_integers(self, step: Step, multiplier: Integers) -> None:
        """Append the step's product of integers without bias and bias gradient, which are added and
        formed in floating point.
        """
        layer, reads, operands, scales = step.layer, step.reads, {}, {}
        for role in (role for role in reads if role != "bias"):
            operands[role], scales[f"{role}_scale"] = self._integers(
                reads[role], layer, multiplier.most
            )
        (role, result), *others = step.writes.items()
        sums = self.values.workspace(f"{result}.sums", self.values.shape(result), self.values.dtype)
        nothing = self.values.zeros(f"{result}.nothing", self.values.shape(result)[-1:])
        bias = reads.get("bias", nothing)
        unused = {
            name: self.values.workspace(
                f"{buffer}.unused", self.values.shape(buffer), self.values.dtype
            )
            for name, buffer in others
        }
        bias_operand = {"bias": nothing} if "bias" in reads else {}
        self.appended.append(
            dataclasses.replace(step, reads=operands | bias_operand, writes={role: sums} | unused)
        )
        first, second = scales.values()
        self.append(
            "rescale",
            layer,
            {"x": sums, "first": first, "second": second, "bias": bias},
            {"y": result},
        )
        for name, buffer in others:  # the bias gradient, where it is not a step of its own
            self.append("conv2d_bias_grad", layer, {"dy": reads["dy"]}, {name: buffer})

    def _integers(self, operand: str, layer: str, most: int) -> tuple[str, str]:
        """The buffers of an operand's integers and of their scale, which a step fills where the
        operand is used first.
        """
        if operand not in self._quantised:
            self._quantised[operand] = integers, scale = (
                self.values.buffer(
                    f"{operand}.integers",
                    self.values.shape(operand),
                    self.values.dtype,
                    "activation",
                ),
                self.values.buffer(f"{operand}.scale", (1,), self.values.dtype, "activation"),
            )
            self.append(
                "quantise", layer, {"x": operand}, {"y": integers, "scale": scale}, most=most
            )
        return self._quantised[operand]

    def append(
        self,
        operation: str,
        layer: str,
        reads: Mapping[str, str],
        writes: Mapping[str, str],
        flop: int = 0,
        **attributes: Unpack[StepAttributes],
    ) -> None:
        """Append a step of any products; layer: '' if it belongs to none; flop: for the whole
        batch.
        """
        self.appended.append(
            Step(operation, layer, reads, writes, attributes, flop, pass_=self.pass_)
        )

    def extend_last(self, writes: Mapping[str, str], **attributes: Unpack[StepAttributes]) -> None:
        """Let the last step write this too."""
        last = self.appended.pop()
        writes, attributes = {**last.writes, **writes}, {**last.attributes, **attributes}
        self.appended.append(dataclasses.replace(last, writes=writes, attributes=attributes))

    def launched(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """The steps with the rung's launches; UserError if a grid is too large for a GPU."""
        if not self.values.launches:
            return tuple(steps)
        return tuple(dataclasses.replace(step, launches=self._launches_of(step)) for step in steps)

    def _launches_of(self, step: Step) -> Launches:
        launches = self.values.launches[step.operation](step, self.values)
        for launch in launches:
            if any(blocks > most for blocks, most in zip(launch.grid, MOST_BLOCKS, strict=False)):
                raise UserError(
                    f"layer {step.layer} is too large for {self.rung}, whose {launch.entry} would need a grid of "
                    f"{' x '.join(map(str, launch.grid))} blocks; make the layer smaller or set variant to cpu"
                )
        if "multiplier" not in step.attributes:
            return launches
        defines = kernel_defines(step.attributes["multiplier"])
        return tuple(
            dataclasses.replace(launch, defines=(*launch.defines, *defines)) for launch in launches
        )
