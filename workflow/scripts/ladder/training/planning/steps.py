"""The steps of a plan under construction, and on a GPU the launches of kernels that compute them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ladder.arithmetic.multipliers import DIRECTIONS, kernel_defines
from ladder.network.layers import Layer
from ladder.rungs import tiles
from ladder.rungs.patterns import Launch
from ladder.training import limits
from ladder.training.planning.data import Step
from ladder.training.planning.settings import Settings
from ladder.training.planning.values import Values

# Operation -> its direction, which selects its multiplier. A multiplier that is not exact becomes an attribute of the step.
DIRECTION_OF = {f"{kind}_{direction}": direction
                for kind in ("conv2d", "dense", "approximate_conv2d", "phase_conv2d") for direction in DIRECTIONS}


class Steps(Values):
    """Appends steps. pass_: see Step, of those that are appended next."""

    def __init__(self, settings: Settings, layers: tuple[Layer, ...], dtype: str) -> None:
        super().__init__(settings, layers, dtype)
        self.seed, self.multipliers = settings.seed, settings.multipliers
        self.multiprocessors: int | Any = settings.multiprocessors or (self.launches and tiles.multiprocessors())
        self.steps: list[Step] = []
        self.pass_ = "load"

    def step(self, operation: str, group: tuple[Layer, ...], reads: Mapping[str, str], writes: Mapping[str, str], flop: int = 0,
             **attributes: Any) -> None:
        """Append a step of a group of layers; flop: per image."""
        if operation in DIRECTION_OF and (multiplier := getattr(self.multipliers, DIRECTION_OF[operation])).name != "exact":
            attributes["multiplier"] = multiplier
        self.append(operation, group[0].name, reads, writes, flop * self.batch, **attributes)

    def append(self, operation: str, layer: str, reads: Mapping[str, str], writes: Mapping[str, str], flop: int = 0,
               **attributes: Any) -> None:
        """Append a step of any products; layer: '' if it belongs to none; flop: for the whole batch."""
        self.steps.append(Step(operation, layer, reads, writes, attributes, flop, pass_=self.pass_))

    def launched(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """The steps with the rung's launches; UserError if a grid is too large for a GPU."""
        if self.launches is None:
            return tuple(steps)
        return tuple(dataclasses.replace(step, launches=self._launches_of(step)) for step in steps)

    def _launches_of(self, step: Step) -> tuple[Launch, ...]:
        launches = self.launches[step.operation](step, self)
        limits.check_grids(launches, step.layer, self.rung)
        if "multiplier" not in step.attributes:
            return launches
        defines = kernel_defines(step.attributes["multiplier"])
        return tuple(dataclasses.replace(launch, defines=(*launch.defines, *defines)) for launch in launches)
