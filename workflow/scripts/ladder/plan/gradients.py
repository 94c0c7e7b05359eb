"""The gradients of a plan under construction: which values have one, and the parts that its readers
contribute.
"""

from collections.abc import Collection, Mapping

from ladder.network.layers import Layer
from ladder.plan.settings import TrainingSettings
from ladder.plan.steps import Steps
from ladder.rungs.interface import Gradient, PackedGradient


class Gradients(Steps):
    """Sums the gradient of each value, and says where that of each parameter is.

    Each reader of a value registers a buffer with its part of the value's gradient
    (`gradient_part`, `pass_gradient`); the group of layers that produced the value, whose backward
    pass comes after those of the readers, first sums the parts (`gradient`).

    in_parts          whether weight gradients are left in parts
    with_loss         whether a loss will be appended
    loss_scale        factor on all gradients
    divisor           of the sum over the batch whose gradient is followed
    packed_inputs     value -> its packed copy, which alone is read (packed_lowering.py)
    packed_gradients  value -> where its gradient belongs, for a value that is read packed
    """

    def __init__(self, settings: TrainingSettings, layers: tuple[Layer, ...], dtype: str) -> None:
        super().__init__(settings, layers, dtype)
        self.in_parts, self.with_loss, self.loss_scale, self.divisor = False, False, 1.0, 1
        self.packed_inputs: dict[str, str] = {}
        self.packed_gradients: dict[str, PackedGradient] = {}
        self._parts: dict[str, list[str]] = {}  # value -> buffers whose sum is its gradient
        self._left_in_parts: dict[str, Gradient] = {}  # by parameter
        self._trained = self._depending_on_parameters(settings.frozen)

    def _depending_on_parameters(self, frozen: Collection[str]) -> set[str]:
        depending: set[str] = set()
        for layer in self.layers:
            if depending & set(layer.inputs):
                if layer.name in frozen:
                    raise ValueError(
                        f"layer {layer.name} cannot be frozen: it reads the output of a trained layer"
                    )
                depending.add(layer.name)
            elif layer.parameters and layer.name not in frozen:
                depending.add(layer.name)
        return depending

    def wants_gradient(self, value: str) -> bool:
        """Whether the value depends on a trained parameter; the images do not, so they need no
        gradient.
        """
        return value in self._trained

    def gradient_part(self, value: str) -> str:
        """A new buffer for one reader's part of the value's gradient."""
        parts = self._parts.setdefault(value, [])
        name = f"{value}.gradient{f'.{len(parts) + 1}' if parts else ''}"
        parts.append(self.buffer(name, self.shape(value), self.dtype, "gradient"))
        return parts[-1]

    def pass_gradient(self, value: str, buffer: str) -> None:
        """Register an existing buffer as one reader's part of the value's gradient."""
        if self.wants_gradient(value):
            self._parts.setdefault(value, []).append(buffer)

    def gradient(self, value: str) -> str:
        """The buffer with the gradient of a value, once all its readers have registered their
        parts.
        """
        total, *others = self._parts[value]
        for number, other in enumerate(others, 1):
            parts = {"a": total, "b": other}
            total = self.buffer(
                f"{value}.gradient.sum{number}", self.shape(value), self.dtype, "gradient"
            )
            self.append("add_forward", value, parts, {"y": total})
        self._parts[value] = [total]
        return total

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradient of the output, and so all gradients, by `factor` until the
        updates.
        """
        self.loss_scale = factor
        if self.output in self.packed_gradients:  # the loss does so itself
            self.extend_step({}, factor=factor)
            return
        self._parts[self.output] = [
            self._scaled(f"{self.output}.gradient.scaled", "", self.gradient(self.output), factor)
        ]

    def leave_in_parts(self, gradients: Mapping[str, Gradient]) -> None:
        """gradients: parameter -> Gradient; its step leaves it so for the update."""
        self._left_in_parts |= gradients

    def gradient_for_update(self, parameter: str) -> Gradient:
        """The Gradient of a parameter, the loss scale divided out but where the update does so
        (planning.frame.update).
        """
        if parameter in self._left_in_parts:
            return self._left_in_parts[parameter]
        gradient = self.parameter_gradient(parameter)
        if self.loss_scale != 1 and not self.implementation.updates_together:
            gradient = self._scaled(
                f"{gradient}.unscaled", parameter.rpartition(".")[0], gradient, 1 / self.loss_scale
            )
        return Gradient(gradient)

    def _scaled(self, name: str, layer: str, gradient: str, factor: float) -> str:
        """A new buffer with a gradient times `factor`."""
        scaled = self.buffer(name, self.shape(gradient), self.dtype, "gradient")
        self.append("scale", layer, {"x": gradient}, {"y": scaled}, factor=float(factor))
        return scaled
