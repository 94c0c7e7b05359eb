"""The gradients of a plan under construction: which values have one, and the parts that its readers
contribute.
"""

from collections.abc import Collection, Mapping

from ladder.rungs.launches import Gradient, PackedGradient
from ladder.rungs.steps import Steps
from ladder.rungs.values import Values


class Gradients:
    """Sums the gradient of each value, and says where that of each parameter is.

    Each reader of a value registers a buffer with its part of the value's gradient
    (`part`, `pass_on`); the group of layers that produced the value, whose backward
    pass comes after those of the readers, first sums the parts (`total`).

    loss_scale  factor on all gradients
    packed      value -> where its gradient belongs, for a value that is read packed
    """

    def __init__(self, values: Values, steps: Steps, frozen: Collection[str]) -> None:
        self.values, self.steps, self.loss_scale = values, steps, 1.0
        self.packed: dict[str, PackedGradient] = {}
        self._parts: dict[str, list[str]] = {}  # value -> buffers whose sum is its gradient
        self._left_in_parts: dict[str, Gradient] = {}  # by parameter
        self._trained = self._depending_on_parameters(frozen)

    def _depending_on_parameters(self, frozen: Collection[str]) -> set[str]:
        depending: set[str] = set()
        for layer in self.values.layers:
            if depending & set(layer.inputs):
                if layer.name in frozen:
                    raise ValueError(
                        f"layer {layer.name} cannot be frozen: it reads the output of a trained layer"
                    )
                depending.add(layer.name)
            elif layer.parameters and layer.name not in frozen:
                depending.add(layer.name)
        return depending

    def is_wanted(self, value: str) -> bool:
        """Whether the value depends on a trained parameter; the images do not, so they need no
        gradient.
        """
        return value in self._trained

    def part(self, value: str) -> str:
        """A new buffer for one reader's part of the value's gradient."""
        parts = self._parts.setdefault(value, [])
        name = f"{value}.gradient{f'.{len(parts) + 1}' if parts else ''}"
        parts.append(
            self.values.buffer(name, self.values.shape(value), self.values.dtype, "gradient")
        )
        return parts[-1]

    def pass_on(self, value: str, buffer: str) -> None:
        """Register an existing buffer as one reader's part of the value's gradient."""
        if self.is_wanted(value):
            self._parts.setdefault(value, []).append(buffer)

    def total(self, value: str) -> str:
        """The buffer with the gradient of a value, once all its readers have registered their
        parts.
        """
        total, *others = self._parts[value]
        for number, other in enumerate(others, 1):
            parts = {"a": total, "b": other}
            total = self.values.buffer(
                f"{value}.gradient.sum{number}",
                self.values.shape(value),
                self.values.dtype,
                "gradient",
            )
            self.steps.append("add_forward", value, parts, {"y": total})
        self._parts[value] = [total]
        return total

    def scale(self, factor: float) -> None:
        """Multiply the gradient of the output, and so all gradients, by `factor` until the
        updates.
        """
        self.loss_scale = factor
        if self.values.output in self.packed:  # the loss does so itself
            self.steps.extend_last({}, factor=factor)
            return
        self._parts[self.values.output] = [
            self._scaled(
                f"{self.values.output}.gradient.scaled", "", self.total(self.values.output), factor
            )
        ]

    def leave_in_parts(self, gradients: Mapping[str, Gradient]) -> None:
        """gradients: parameter -> Gradient; its step leaves it so for the update."""
        self._left_in_parts |= gradients

    def for_update(self, parameter: str, scaled: bool) -> Gradient:
        """The Gradient of a parameter; scaled: the update divides the loss scale out."""
        if parameter in self._left_in_parts:
            return self._left_in_parts[parameter]
        gradient = self.values.parameter_gradient(parameter)
        if self.loss_scale != 1 and not scaled:
            gradient = self._scaled(
                f"{gradient}.unscaled", parameter.rpartition(".")[0], gradient, 1 / self.loss_scale
            )
        return Gradient(gradient)

    def _scaled(self, name: str, layer: str, gradient: str, factor: float) -> str:
        """A new buffer with a gradient times `factor`."""
        scaled = self.values.buffer(
            name, self.values.shape(gradient), self.values.dtype, "gradient"
        )
        self.steps.append("scale", layer, {"x": gradient}, {"y": scaled}, factor=float(factor))
        return scaled
