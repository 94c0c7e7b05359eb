"""What a layer is: its attributes, its output's shape, its parameters and its work. No arithmetic on data.

Shapes are (height, width, channels) of one image; a vector is (1, 1, units). Weights of a convolution are (filters, kernel,
kernel, channels), of a dense layer (units, 1, 1, inputs): a convolution of 1x1 over a vector.
"""

import dataclasses
import math
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
        """What training changes: name -> shape, as kept in memory: 'enc1.weight' -> (256, 3, 3, 3)."""
        return self._named(KINDS[self.kind].parameters)

    @property
    def state(self):
        """What the forward pass in training changes: name -> shape: 'bn1.running_mean' -> (64,)."""
        return self._named(KINDS[self.kind].state)

    @property
    def macs(self):
        """Multiply-accumulates of one image's forward pass."""
        return KINDS[self.kind].macs(self.attributes, self.output_shape, *self.input_shapes)

    def _named(self, shapes):
        return {f"{self.name}.{name}": shape for name, shape in shapes(self.attributes, *self.input_shapes).items()}


@dataclasses.dataclass(frozen=True)
class Kind:
    """Functions of a layer's attributes and its input shapes; has_gradient: whether a network with it can be trained."""

    output_shape: Callable
    parameters: Callable = lambda attributes, *inputs: {}
    state: Callable = lambda attributes, *inputs: {}
    macs: Callable = lambda attributes, output, *inputs: 0
    has_gradient: bool = True


def _same(attributes, image, *others):
    return image


def _slid(attributes, image, window):
    """Height and width of what a window sees that slides over the padded image; ValueError where it does not fit."""
    sizes = [(size + 2 * attributes["padding"] - window) // attributes["stride"] + 1 for size in image[:2]]
    if min(sizes) < 1:
        raise ValueError(f"a window of {window}x{window} does not fit {image[0]}x{image[1]} pixels")
    return tuple(sizes)


def _conv2d_output(attributes, image):
    return *_slid(attributes, image, attributes["kernel"]), attributes["filters"]


def _conv2d_parameters(attributes, image):
    kernel, filters = attributes["kernel"], attributes["filters"]
    bias = {"bias": (filters,)} if attributes["bias"] else {}
    return {"weight": (filters, kernel, kernel, image[2]), **bias}


def _conv2d_macs(attributes, output, image):
    height, width, filters = output
    return height * width * filters * attributes["kernel"] ** 2 * image[2]


def _dense_output(attributes, image):
    if image[:2] != (1, 1):
        raise ValueError(f"a dense layer reads a vector, not {image[0]}x{image[1]} pixels; flatten them first")
    return 1, 1, attributes["filters"]


def _pool_output(attributes, image):
    if attributes["window"] > 15:
        raise ValueError(f"a pooling window of {attributes['window']}: a place in it is kept in 8 bits, so at most 15")
    if 2 * attributes["padding"] > attributes["window"]:
        raise ValueError(f"a pooling window of {attributes['window']} with padding {attributes['padding']} may see no pixel")
    return *_slid(attributes, image, attributes["window"]), image[2]


def _add_output(attributes, *images):
    if len(set(images)) != 1:
        raise ValueError(f"layers of shapes {' and '.join(map(str, images))} cannot be added")
    return images[0]


def _local_contrast_output(attributes, image, windowed):
    kernel, expected = attributes["kernel"], tuple(size - attributes["kernel"] + 1 for size in windowed[:2])
    if image[:2] != expected:
        raise ValueError(f"{image[0]}x{image[1]} pixels are not those of a window of {kernel}x{kernel} that slides over "
                         f"{windowed[0]}x{windowed[1]} pixels")
    return image


def _by_channel(*names):
    return lambda attributes, image: {name: (image[2],) for name in names}


KINDS = {
    "conv2d": Kind(_conv2d_output, _conv2d_parameters, macs=_conv2d_macs),
    "dense": Kind(_dense_output, _conv2d_parameters, macs=_conv2d_macs),
    "batchnorm": Kind(_same, _by_channel("weight", "bias"), _by_channel("running_mean", "running_var")),
    "relu": Kind(_same),
    "maxpool2d": Kind(_pool_output),
    "avgpool2d": Kind(_pool_output),
    "global_avgpool": Kind(lambda attributes, image: (1, 1, image[2])),
    "upsample2d": Kind(lambda attributes, image: (image[0] * 2, image[1] * 2, image[2])),
    "pad": Kind(lambda attributes, image: (image[0] + 2 * attributes["amount"], image[1] + 2 * attributes["amount"], image[2])),
    "add": Kind(_add_output),
    "flatten": Kind(lambda attributes, image: (1, 1, math.prod(image))),
    "dropout": Kind(_same),
    "lrn": Kind(_same),
    "position_norm": Kind(_same),
    "local_contrast": Kind(_local_contrast_output, has_gradient=False),
    "soft_threshold": Kind(lambda attributes, image: (*image[:2], 2 * image[2]), has_gradient=False),
}


def conv2d(name, filters, kernel=3, padding=1, stride=1, bias=True, inputs=()):
    """Cross-correlation with zeros around the image, and a bias where asked for."""
    return Layer(name, "conv2d", {"filters": filters, "kernel": kernel, "stride": stride, "padding": padding, "bias": bias},
                 inputs)


def dense(name, units):
    """Weighted sums of a whole vector (1, 1, inputs), with bias. Its attributes are those of the convolution it is."""
    return Layer(name, "dense", {"filters": units, "kernel": 1, "stride": 1, "padding": 0, "bias": True})


def batchnorm(name, decay=0.9, epsilon=1e-5):
    """weight (x - mean) / sqrt(variance + epsilon) + bias by channel (Ioffe and Szegedy, 2015).

    In training mean and variance are those of the batch, and what the running ones keep is decay old + (1 - decay) new, the
    new variance with n - 1 for n; afterwards the running ones are used.
    """
    return Layer(name, "batchnorm", {"decay": decay, "epsilon": epsilon})


def relu(name):
    """max(x, 0); its gradient is 1 where x > 0, else 0."""
    return Layer(name, "relu", {})


def maxpool2d(name, window=2, stride=2, padding=0):
    """Maximum of each window, of those of its pixels that lie in the image; the first maximum gets the gradient."""
    return Layer(name, "maxpool2d", {"window": window, "stride": stride, "padding": padding})


def avgpool2d(name, window=2, stride=2, padding=0):
    """Mean of each window; zeros around the image count as pixels."""
    return Layer(name, "avgpool2d", {"window": window, "stride": stride, "padding": padding})


def global_avgpool(name):
    """Mean of each channel over the whole image."""
    return Layer(name, "global_avgpool", {})


def upsample2d(name):
    """Each pixel repeated 2x2 (nearest neighbour)."""
    return Layer(name, "upsample2d", {})


def pad(name, amount):
    """Zeros on all four sides."""
    return Layer(name, "pad", {"amount": amount})


def add(name, inputs):
    """The sum of two layers of one shape."""
    return Layer(name, "add", {}, tuple(inputs))


def flatten(name):
    """The image as one vector, channel by channel (CHW), as other frameworks do it."""
    return Layer(name, "flatten", {})


def dropout(name, rate):
    """In training each value is zero with probability `rate`, else divided by 1 - rate; afterwards nothing changes."""
    return Layer(name, "dropout", {"rate": rate})


def lrn(name, size=5, alpha=1e-4, beta=0.75, k=2.0):
    """x / (k + alpha / size * the sum of squares over `size` neighbouring channels) ** beta (Krizhevsky et al., 2012)."""
    return Layer(name, "lrn", {"size": size, "alpha": alpha, "beta": beta, "k": k})


def position_norm(name, epsilon=1e-6):
    """x / sqrt(the sum of squares over the channels of its pixel + epsilon): every pixel's vector has the length 1."""
    return Layer(name, "position_norm", {"epsilon": epsilon})


def local_contrast(name, kernel, inputs, epsilon):
    """The first of two inputs over sqrt(variance + epsilon) of the window of the second that it was computed from.

    The variance is that of all numbers of a window of kernel x kernel pixels; the windows lie inside the image, at stride 1.
    """
    return Layer(name, "local_contrast", {"kernel": kernel, "epsilon": epsilon}, tuple(inputs))


def soft_threshold(name, threshold):
    """max(x - threshold, 0) of every channel, then max(-x - threshold, 0) of every channel (Coates and Ng, 2011)."""
    return Layer(name, "soft_threshold", {"threshold": threshold})
