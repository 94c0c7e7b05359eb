"""What a layer is: its attributes, its output's shape, its parameters and its work. No arithmetic on data.

Shapes are (height, width, channels) of one image; convolution weights are (filters, kernel, kernel, channels).
"""

import dataclasses
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a network. `inputs` names the layers it reads, `input_shapes` and `output_shape` are resolved."""

    name: str
    kind: str
    attributes: Mapping
    inputs: tuple = ()
    input_shapes: tuple = ()
    output_shape: tuple = ()

    @property
    def parameters(self):
        """Parameter name -> shape, as kept in memory: 'enc1.weight' -> (256, 3, 3, 3)."""
        shapes = KINDS[self.kind].parameters(self.attributes, *self.input_shapes)
        return {f"{self.name}.{name}": shape for name, shape in shapes.items()}

    @property
    def macs(self):
        """Multiply-accumulates of one image's forward pass."""
        return KINDS[self.kind].macs(self.attributes, self.output_shape, *self.input_shapes)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Functions of a layer's attributes and its input shapes."""

    output_shape: Callable
    parameters: Callable = lambda attributes, *inputs: {}
    macs: Callable = lambda attributes, output, *inputs: 0


def _conv2d_output(attributes, image):
    height, width, _ = image
    grow = 2 * attributes["padding"] - attributes["kernel"] + 1
    return height + grow, width + grow, attributes["filters"]


def _conv2d_parameters(attributes, image):
    kernel, filters = attributes["kernel"], attributes["filters"]
    return {"weight": (filters, kernel, kernel, image[2]), "bias": (filters,)}


def _conv2d_macs(attributes, output, image):
    height, width, filters = output
    return height * width * filters * attributes["kernel"] ** 2 * image[2]


KINDS = {
    "conv2d": Kind(_conv2d_output, _conv2d_parameters, _conv2d_macs),
    "relu": Kind(lambda attributes, image: image),
    "maxpool2d": Kind(lambda attributes, image: (image[0] // 2, image[1] // 2, image[2])),
    "upsample2d": Kind(lambda attributes, image: (image[0] * 2, image[1] * 2, image[2])),
}


def conv2d(name, filters, kernel=3, padding=1):
    """Cross-correlation with bias and stride 1; zeros around the image."""
    return Layer(name, "conv2d", {"filters": filters, "kernel": kernel, "padding": padding})


def relu(name):
    """max(x, 0); its gradient is 1 where x > 0, else 0."""
    return Layer(name, "relu", {})


def maxpool2d(name):
    """Maximum of each 2x2 window, stride 2; an odd last row or column is dropped; the first maximum gets the gradient."""
    return Layer(name, "maxpool2d", {})


def upsample2d(name):
    """Each pixel repeated 2x2 (nearest neighbour)."""
    return Layer(name, "upsample2d", {})
