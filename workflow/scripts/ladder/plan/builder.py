"""Builds a plan by covering the layers of a network with the patterns of a rung."""

from collections.abc import Callable

from ladder.arithmetic.multipliers import DIRECTIONS, FORMATS
from ladder.network.layers import Layer
from ladder.plan.data import Plan
from ladder.plan.settings import TrainingSettings
from ladder.rungs import tiles
from ladder.rungs.gradients import Gradients
from ladder.rungs.interface import Pattern, PlanBuilder, implementation
from ladder.rungs.launches import Step
from ladder.rungs.steps import Steps
from ladder.rungs.values import Values


class Builder:
    """Covers layers with the patterns of a rung, which append to `build`: forward in `lower`,
    backward in `go_back`.
    """

    def __init__(
        self, settings: TrainingSettings, layers: tuple[Layer, ...], dtype: str, training: bool
    ) -> None:
        self.rung, self.implementation = settings.rung, implementation(settings.rung)
        launches = self.implementation.launches
        multiprocessors = settings.multiprocessors or (tiles.multiprocessors() if launches else 0)
        values = Values(
            settings.network, layers, settings.batch_size, dtype, launches, multiprocessors
        )
        steps = Steps(values, settings.multipliers, settings.rung)
        self.build = PlanBuilder(
            network=settings.network,
            values=values,
            steps=steps,
            gradients=Gradients(values, steps, settings.frozen),
            multipliers=settings.multipliers,
            seed=settings.seed,
            training=training,
        )
        self.kernels: list[tuple[tuple[str, ...], str]] = []
        self._backward: list[Callable[[], None] | None] = []  # function of each group, in order

    def lower(self) -> None:
        """Cover the layers with the rung's patterns, always with the first (longest) that
        matches.
        """
        build, steps, left = self.build, self.build.steps, self.build.values.layers
        steps.pass_ = "forward"
        while left:
            pattern = self._pattern(left)
            group, left = left[: len(pattern.kinds)], left[len(pattern.kinds) :]
            begun, backward = len(steps.appended), pattern.emit(build, group)
            self._backward.append(backward if build.gradients.is_wanted(group[-1].name) else None)
            if len(steps.appended) > begun:
                self.kernels.append(
                    (tuple(layer.name for layer in group), steps.appended[-1].operation)
                )

    def _pattern(self, layers: tuple[Layer, ...]) -> Pattern:
        decomposes = self.decomposes(layers[:2])
        for pattern in self.implementation.patterns:
            group = layers[: len(pattern.kinds)]
            if pattern.decomposes != decomposes:
                continue
            if (
                self.build.multipliers.quantises
                and len(group) > 1
                and any(layer.parameters for layer in group)
            ):
                # the sums of integers are multiplied by the scales before anything is fused with
                # them
                continue
            fits = (
                tuple(layer.kind for layer in group) == pattern.kinds
                and self.build.values.is_chain(group)
                and pattern.accepts(group)
            )
            if (
                fits
                and (self.build.multipliers.exact or not pattern.exact_only)
                and pattern.fits(self.build, group)
            ):
                return pattern
        raise ValueError(
            f"rung {self.rung} has no operation for layer {layers[0].name} ({layers[0].kind})"
        )

    def decomposes(self, group: tuple[Layer, ...]) -> bool:
        """Whether an upsampling and a convolution multiply phase weights, each rounded once, on
        every rung.

        They do where a lower precision rounds operands: the precision includes what is rounded.
        """
        numbers = {getattr(self.build.multipliers, direction).name for direction in DIRECTIONS}
        return len(numbers) == 1 and numbers <= FORMATS.keys() and self.build.has_phases(group)

    def go_back(self) -> None:
        """The backward pass: the groups of layers in reverse, starting from the gradient of the
        output.
        """
        for backward in reversed(self._backward):
            if backward is not None:
                backward()

    def plan(self) -> Plan:
        values, steps = self.build.values, self.build.steps
        return Plan(
            values.network,
            self.rung,
            values.batch,
            values.buffers,
            steps.launched(steps.appended),
            tuple(self.kernels),
            values.output,
            steps.launched(self._prologue()),
        )

    def _prologue(self) -> list[Step]:
        values = self.build.values
        if not values.copied:
            return []
        return [
            Step(
                "copy_weights",
                "",
                {name: name for name in values.copied},
                values.copies_of(values.copied),
                {"copies": values.copied},
                pass_="load",
            )
        ]
