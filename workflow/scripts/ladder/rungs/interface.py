"""The interface between a plan and its rung: what a rung is, and the plan under construction that
its patterns append to.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping

from ladder.arithmetic.multipliers import ByDirection
from ladder.network.networks import Network
from ladder.rungs.gradients import Gradients
from ladder.rungs.launches import Group
from ladder.rungs.steps import Steps
from ladder.rungs.values import LaunchFunction, Values


@dataclasses.dataclass(kw_only=True)
class PlanBuilder:
    """A plan under construction.

    training       whether it has a backward pass
    in_parts       whether weight gradients are left in parts
    with_loss      whether a loss will be appended
    divisor        of the sum over the batch whose gradient is followed
    packed_inputs  value -> its packed copy, which alone is read (packed_lowering.py)
    """

    network: Network
    values: Values
    steps: Steps
    gradients: Gradients
    multipliers: ByDirection
    seed: int
    training: bool
    in_parts: bool = False
    with_loss: bool = False
    divisor: int = 1
    packed_inputs: dict[str, str] = dataclasses.field(default_factory=dict)

    def has_phases(self, group: Group) -> bool:
        """Whether an upsampling and the convolution behind it have phase weights.

        A 3x3 convolution with stride 1 and padding 1 has them, unless another layer of the network
        reads the larger image, whether this plan has it or not.
        """
        kinds = tuple(layer.kind for layer in group)
        if kinds != ("upsample2d", "conv2d") or not self.values.is_chain(group):
            return False
        if len(self.network.readers(group[0].name)) > 1:
            return False
        conv = group[1].attributes
        return (conv["kernel"], conv["stride"], conv["padding"]) == (3, 1, 1)


Backward = Callable[[], None]
Emit = Callable[[PlanBuilder, Group], Backward | None]


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Consecutive layer kinds that a rung lowers together; each layer's output is read by the next
    one alone.

    emit        appends the forward steps of a group to the plan under construction; returns what
                appends the backward steps, or None if there are none
    accepts     whether it covers layers with these attributes
    fits        whether it covers them among these other layers and with this arithmetic
    exact_only  valid for exact multiplication only: the operation takes no multiplier, or
                multiplies other numbers (Winograd)
    decomposes  for an upsampling and the convolution behind it where the plan asks for phase
                weights (plan.builder.decomposes), and nowhere else
    """

    kinds: tuple[str, ...]
    emit: Emit
    accepts: Callable[[Group], bool] = lambda group: True
    fits: Callable[[PlanBuilder, Group], bool] = lambda build, group: True
    exact_only: bool = False
    decomposes: bool = False


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A rung: how it computes a network. RUNG of its module, beside its row in catalog.RUNGS.

    patterns            in the order in which they are tried, the longest first
    launches            operation -> its launches; none on the CPU, whose executor has operations
    updates_together    whether one step updates all parameters (plan.frame.update)
    gradients_in_parts  whether weight gradients stay in parts, which that step adds
    in_halves           whether operands are pairs of halves, for which gradients are scaled
    """

    patterns: tuple[Pattern, ...]
    launches: Mapping[str, LaunchFunction] = dataclasses.field(default_factory=dict)
    updates_together: bool = False
    gradients_in_parts: bool = False
    in_halves: bool = False

    def with_launches(self, launches: Mapping[str, LaunchFunction]) -> "Implementation":
        """This rung with other launches of these operations."""
        return dataclasses.replace(self, launches={**self.launches, **launches})

    def with_files(self, files: Mapping[str, str]) -> "Implementation":
        """This rung with kernels of other files; files: {file below kernels/: the file that takes
        its place}.
        """

        def from_files(function: LaunchFunction) -> LaunchFunction:
            return lambda step, values: tuple(
                dataclasses.replace(launch, source=files.get(launch.source, launch.source))
                for launch in function(step, values)
            )

        return self.with_launches(
            {operation: from_files(function) for operation, function in self.launches.items()}
        )


def implementation(rung: str) -> Implementation:
    """RUNG of the module rungs/<rung>.py, imported by name so that a version depends on the module
    of its own rung only.
    """
    opened: Implementation = importlib.import_module(f"ladder.rungs.{rung}").RUNG
    return opened
