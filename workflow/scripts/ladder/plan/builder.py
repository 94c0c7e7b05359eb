"""Builds a plan by covering the layers of a network with the patterns of a rung."""

import itertools
from collections.abc import Callable

from ladder.arithmetic.multipliers import DIRECTIONS, FORMATS
from ladder.network.layers import Layer
from ladder.plan.data import Plan, Step
from ladder.plan.gradients import Gradients
from ladder.plan.settings import TrainingSettings
from ladder.rungs.interface import Pattern


class Builder(Gradients):
    """A plan under construction; the rung's patterns append to it, forward in `lower` and backward
    in `go_back`.

    Its base classes are its three jobs, of which each knows those before it alone: Values, Steps,
    Gradients.
    """

    def __init__(
        self, settings: TrainingSettings, layers: tuple[Layer, ...], dtype: str, training: bool
    ) -> None:
        super().__init__(settings, layers, dtype)
        self.training = training
        self.kernels: list[tuple[tuple[str, ...], str]] = []
        self._backward: list[Callable[[], None] | None] = []  # function of each group, in order

    def lower(self) -> None:
        """Cover the layers with the rung's patterns, always with the first (longest) that
        matches.
        """
        self.pass_ = "forward"
        left = self.layers
        while left:
            pattern = self._pattern(left)
            group, left = left[: len(pattern.kinds)], left[len(pattern.kinds) :]
            begun, backward = len(self.steps), pattern.emit(self, group)
            self._backward.append(backward if self.wants_gradient(group[-1].name) else None)
            if len(self.steps) > begun:
                self.kernels.append(
                    (tuple(layer.name for layer in group), self.steps[-1].operation)
                )

    def _pattern(self, layers: tuple[Layer, ...]) -> Pattern:
        decomposes = self.decomposes(layers[:2])
        for pattern in self.implementation.patterns:
            group = layers[: len(pattern.kinds)]
            if pattern.decomposes != decomposes:
                continue
            if (
                self.multipliers.quantises
                and len(group) > 1
                and any(layer.parameters for layer in group)
            ):
                # the sums of integers are multiplied by the scales before anything is fused with
                # them
                continue
            fits = (
                tuple(layer.kind for layer in group) == pattern.kinds
                and self._is_chain(group)
                and pattern.accepts(group)
            )
            if (
                fits
                and (self.multipliers.exact or not pattern.exact_only)
                and pattern.fits(self, group)
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
        numbers = {getattr(self.multipliers, direction).name for direction in DIRECTIONS}
        return len(numbers) == 1 and numbers <= FORMATS.keys() and self.has_phases(group)

    def has_phases(self, group: tuple[Layer, ...]) -> bool:
        """Whether phase weights are the weights of an upsampling and a convolution.

        A 3x3 convolution with stride 1 and padding 1 has them, unless another layer of the network
        reads the larger image, whether this plan has it or not.
        """
        if tuple(layer.kind for layer in group) != ("upsample2d", "conv2d") or not self._is_chain(
            group
        ):
            return False
        if len(self.network.readers(group[0].name)) > 1:
            return False
        conv = group[1].attributes
        return (conv["kernel"], conv["stride"], conv["padding"]) == (3, 1, 1)

    def _is_chain(self, group: tuple[Layer, ...]) -> bool:
        """Whether each layer's first input is the previous layer, and no other layer reads that
        one.
        """
        return all(
            after.inputs[0] == layer.name and self._readers[layer.name] == 1
            for layer, after in itertools.pairwise(group)
        )

    def go_back(self) -> None:
        """The backward pass: the groups of layers in reverse, starting from the gradient of the
        output.
        """
        for backward in reversed(self._backward):
            if backward is not None:
                backward()

    def plan(self) -> Plan:
        return Plan(
            self.network,
            self.rung,
            self.batch,
            self.buffers,
            self.launched(self.steps),
            tuple(self.kernels),
            self.output,
            self.launched(self._prologue()),
        )

    def _prologue(self) -> list[Step]:
        if not self.copied:
            return []
        return [
            Step(
                "copy_weights",
                "",
                {name: name for name in self.copied},
                self.copies_of(self.copied),
                {"copies": self.copied},
                pass_="load",
            )
        ]
