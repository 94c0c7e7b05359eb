"""Layers: their attributes, output shapes, parameters and multiply-accumulates. No arithmetic on
data.

Shapes are (height, width, channels) of one image; a vector is (1, 1, units). Weights of a
convolution are (filters, kernel, kernel, channels), of a dense layer (units, 1, 1, inputs), as of a
1x1 convolution over a vector.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict


class Attributes(TypedDict, total=False):
    """What a layer of each kind has of these; the functions that make layers say what they are.

    window: of a pooling; of a step that packs, (kernel, stride).
    """

    filters: int
    kernel: int
    stride: int
    padding: int
    bias: bool
    window: int | tuple[int, int]
    amount: int
    size: int
    winners: int
    lifetime: float
    decay: float
    epsilon: float
    rate: float
    penalty: float
    alpha: float
    beta: float
    k: float
    threshold: float


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a network. inputs: names of the layers it reads; networks.resolve sets
    input_shapes and output_shape.
    """

    name: str
    kind: str
    attributes: Attributes
    inputs: tuple[str, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    output_shape: tuple[int, ...] = ()

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Trained parameters: name -> shape in memory, e.g. 'enc1.weight' -> (256, 3, 3, 3)."""
        return self._named(KINDS[self.kind].parameters)

    @property
    def state(self) -> dict[str, tuple[int, ...]]:
        """Values that the forward pass updates in training: name -> shape, e.g. 'bn1.running_mean'
        -> (64,).
        """
        return self._named(KINDS[self.kind].state)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image's forward pass."""
        return KINDS[self.kind].macs(self.attributes, self.output_shape, *self.input_shapes)

    def _named(self, shapes):
        return {
            f"{self.name}.{name}": shape
            for name, shape in shapes(self.attributes, *self.input_shapes).items()
        }


@dataclasses.dataclass(frozen=True)
class Kind:
    """What there is to know of a kind of layer but its arithmetic. The functions take a layer's
    attributes and input shapes.

    work          the category that its time is reported under (of a convolution, in each direction)
    node          its text in a drawing and the family that determines its colour
    words         of attributes: these in words, but for stride and padding
    kept          what the backward step of rungs.patterns.alone reads beside the gradient, by the
                  roles of the forward step's outputs
    inputs        their number
    has_gradient  whether a network with this layer can be trained
    """

    output_shape: Callable
    work: str
    node: tuple[str, str]
    words: Callable
    parameters: Callable = lambda attributes, *inputs: {}
    state: Callable = lambda attributes, *inputs: {}
    macs: Callable = lambda attributes, output, *inputs: 0
    kept: tuple[str, ...] = ()
    inputs: int = 1
    has_gradient: bool = True


def _same(attributes, image, *others):
    return image


def _slid(attributes, image, window):
    """Height and width of the output of a sliding window over the padded image; ValueError if the
    window does not fit.
    """
    sizes = [
        (size + 2 * attributes["padding"] - window) // attributes["stride"] + 1
        for size in image[:2]
    ]
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
        raise ValueError(
            f"a dense layer reads a vector, not {image[0]}x{image[1]} pixels; flatten them first"
        )
    return 1, 1, attributes["filters"]


def _pool_output(attributes, image):
    if attributes["window"] > 15:
        raise ValueError(
            f"a pooling window of {attributes['window']}: the maximum's index has 8 bits, so at most 15"
        )
    if 2 * attributes["padding"] > attributes["window"]:
        raise ValueError(
            f"a pooling window of {attributes['window']} with padding {attributes['padding']} may see no pixel"
        )
    return *_slid(attributes, image, attributes["window"]), image[2]


def _add_output(attributes, *images):
    if len(set(images)) != 1:
        raise ValueError(f"layers of shapes {' and '.join(map(str, images))} cannot be added")
    return images[0]


def _winners_output(attributes, image):
    pixels = image[0] * image[1]
    if attributes["winners"] > pixels:
        raise ValueError(
            f"{attributes['winners']} winners of maps of {image[0]}x{image[1]} pixels; at most {pixels}"
        )
    return image


def _sample_output(attributes, mean, log_variance):
    if mean != log_variance:
        raise ValueError(f"a mean of shape {mean} has no log-variance of shape {log_variance}")
    return mean


def _local_contrast_output(attributes, image, windowed):
    kernel, expected = (
        attributes["kernel"],
        tuple(size - attributes["kernel"] + 1 for size in windowed[:2]),
    )
    if image[:2] != expected:
        raise ValueError(
            f"{image[0]}x{image[1]} pixels are not those of a window of {kernel}x{kernel} that slides over "
            f"{windowed[0]}x{windowed[1]} pixels"
        )
    return image


def _attention_output(attributes, image):
    if image[2] % 3:
        raise ValueError(
            f"attention reads queries, keys and values, a third of the channels each, not of {image[2]}; "
            f"{image[2] + -image[2] % 3} can be parted"
        )
    return *image[:2], image[2] // 3


def _attention_macs(attributes, output, image):
    """Of the scores and of the weighted sums."""
    height, width, channels = output
    return 2 * (height * width) ** 2 * channels


def _by_channel(*names):
    return lambda attributes, image: {name: (image[2],) for name in names}


KINDS = {  # in the order in which reports have their work
    "conv2d": Kind(
        _conv2d_output,
        "convolution",
        ("conv", "product"),
        "{kernel} × {kernel}, {filters} filters".format_map,
        _conv2d_parameters,
        macs=_conv2d_macs,
    ),
    "dense": Kind(
        _dense_output,
        "dense layers",
        ("dense", "product"),
        "{filters} units".format_map,
        _conv2d_parameters,
        macs=_conv2d_macs,
    ),
    "batchnorm": Kind(
        _same,
        "batch normalisation",
        ("norm", "norm"),
        "by channel".format_map,
        _by_channel("weight", "bias"),
        _by_channel("running_mean", "running_var"),
    ),
    "relu": Kind(_same, "ReLU", ("ReLU", "relu"), "".format_map, kept=("y",)),
    "maxpool2d": Kind(
        _pool_output,
        "pooling",
        ("max", "pool"),
        "max of {window} × {window}".format_map,
        kept=("index",),
    ),
    "avgpool2d": Kind(
        _pool_output, "pooling", ("avg", "pool"), "avg of {window} × {window}".format_map
    ),
    "global_avgpool": Kind(
        lambda attributes, image: (1, 1, image[2]),
        "pooling",
        ("avg", "pool"),
        "mean of each channel".format_map,
    ),
    "upsample2d": Kind(
        lambda attributes, image: (image[0] * 2, image[1] * 2, image[2]),
        "upsampling",
        ("up", "pool"),
        "nearest neighbour, 2 × 2".format_map,
    ),
    "dropout": Kind(_same, "dropout and LRN", ("drop", "norm"), "rate {rate:g}".format_map),
    "lrn": Kind(_same, "dropout and LRN", ("LRN", "norm"), "over {size} channels".format_map),
    "position_norm": Kind(
        _same, "norms and contrast", ("norm", "norm"), "each pixel to length 1".format_map
    ),
    "local_contrast": Kind(
        _local_contrast_output,
        "norms and contrast",
        ("even", "norm"),
        "contrast of {kernel} × {kernel} patches".format_map,
        inputs=2,
        has_gradient=False,
    ),
    "soft_threshold": Kind(
        lambda attributes, image: (*image[:2], 2 * image[2]),
        "thresholds",
        ("±", "relu"),
        "both signs, threshold {threshold:g}".format_map,
        has_gradient=False,
    ),
    "winner_take_all": Kind(
        _winners_output,
        "sparsity",
        ("win", "relu"),
        "{winners} of each map, in {lifetime:.3g} of the images".format_map,
    ),
    "l1_penalty": Kind(_same, "sparsity", ("L1", "norm"), "{penalty:g}".format_map),
    "sample": Kind(
        _sample_output,
        "sampling",
        ("draw", "norm"),
        "in training, divergence × {beta:g}".format_map,
        inputs=2,
    ),
    "attention": Kind(
        _attention_output,
        "attention",
        ("att", "sum"),
        "of each pixel to all".format_map,
        macs=_attention_macs,
    ),
    "pad": Kind(
        lambda attributes, image: (
            image[0] + 2 * attributes["amount"],
            image[1] + 2 * attributes["amount"],
            image[2],
        ),
        "shortcuts and shapes",
        ("pad", "shape"),
        lambda attributes: (
            f"{attributes['amount']} zero{'s' if attributes['amount'] != 1 else ''} on each side"
        ),
    ),
    "add": Kind(
        _add_output, "shortcuts and shapes", ("+", "sum"), "sum of two".format_map, inputs=2
    ),
    "flatten": Kind(
        lambda attributes, image: (1, 1, math.prod(image)),
        "shortcuts and shapes",
        ("flat", "shape"),
        "to a vector".format_map,
    ),
}


def conv2d(name, filters, kernel=3, padding=1, stride=1, bias=True, inputs=()):
    """Cross-correlation with zero padding and, optionally, a bias."""
    return Layer(
        name,
        "conv2d",
        {"filters": filters, "kernel": kernel, "stride": stride, "padding": padding, "bias": bias},
        inputs,
    )


def dense(name, units):
    """Fully connected layer over a vector (1, 1, inputs), with bias; its attributes are those of a
    1x1 convolution.
    """
    return Layer(
        name, "dense", {"filters": units, "kernel": 1, "stride": 1, "padding": 0, "bias": True}
    )


def attention(name):
    """softmax(Q K' / sqrt(d)) V over the pixels of an image, one head (Vaswani et al., 2017).

    Q, K and V are a third of the input's channels each, d, in this order; a pixel of the output has
    d channels.
    """
    return Layer(name, "attention", {})


def batchnorm(name, decay=0.9, epsilon=1e-5):
    """weight (x - mean) / sqrt(variance + epsilon) + bias, per channel (Ioffe and Szegedy, 2015).

    Training uses the mean and variance of the batch and updates the running ones to decay old + (1
    - decay) new, the new variance with n - 1 for n; inference uses the running ones.
    """
    return Layer(name, "batchnorm", {"decay": decay, "epsilon": epsilon})


def relu(name):
    """max(x, 0); its gradient is 1 where x > 0, else 0."""
    return Layer(name, "relu", {})


def maxpool2d(name, window=2, stride=2, padding=0):
    """Maximum of each window, padding ignored; the gradient goes to the first maximum."""
    return Layer(name, "maxpool2d", {"window": window, "stride": stride, "padding": padding})


def avgpool2d(name, window=2, stride=2, padding=0):
    """Mean of each window; the zero padding is included."""
    return Layer(name, "avgpool2d", {"window": window, "stride": stride, "padding": padding})


def global_avgpool(name):
    """Mean of each channel over the whole image."""
    return Layer(name, "global_avgpool", {})


def upsample2d(name):
    """Each pixel repeated 2x2 (nearest neighbour)."""
    return Layer(name, "upsample2d", {})


def pad(name, amount):
    """Zero padding on all four sides."""
    return Layer(name, "pad", {"amount": amount})


def add(name, inputs):
    """The sum of two layers of the same shape."""
    return Layer(name, "add", {}, tuple(inputs))


def flatten(name):
    """The image as one vector in CHW order, as in other frameworks."""
    return Layer(name, "flatten", {})


def dropout(name, rate):
    """In training each value is zero with probability `rate`, else divided by 1 - rate; the
    identity in inference.
    """
    return Layer(name, "dropout", {"rate": rate})


def winner_take_all(name, winners, lifetime):
    """Keeps the `winners` largest values of each channel of an image and sets the others to 0
    (Makhzani and Frey, 2015).

    In training, of each channel only the share `lifetime` of the batch's images, rounded up, keeps
    its winners: those with the largest values. Of equal values the first is taken, by row and
    column or by image.
    """
    return Layer(name, "winner_take_all", {"winners": winners, "lifetime": lifetime})


def l1_penalty(name, penalty):
    """The identity, whose values' magnitudes, times `penalty`, are added to the squared errors that
    training makes small.
    """
    return Layer(name, "l1_penalty", {"penalty": penalty})


def sample(name, inputs, beta):
    """A draw from the normal distributions whose means and log-variances are the two inputs (Kingma
    and Welling, 2014).

    In training it adds `beta` times the distributions' Kullback-Leibler divergences from the
    standard normal distribution to the squared errors that training makes small (Higgins et al.,
    2017). In inference it is the mean.
    """
    return Layer(name, "sample", {"beta": beta}, tuple(inputs))


def lrn(name, size=5, alpha=1e-4, beta=0.75, k=2.0):
    """x / (k + alpha / size * the sum of squares over `size` neighbouring channels) ** beta
    (Krizhevsky et al., 2012).
    """
    return Layer(name, "lrn", {"size": size, "alpha": alpha, "beta": beta, "k": k})


def position_norm(name, epsilon=1e-6):
    """x / sqrt(sum of squares over the channels of the pixel + epsilon), which normalises each
    pixel's vector to length 1.
    """
    return Layer(name, "position_norm", {"epsilon": epsilon})


def local_contrast(name, kernel, inputs, epsilon):
    """The first input divided by sqrt(variance + epsilon) of the window of the second input that it
    was computed from.

    The variance is over all values of a window of kernel x kernel pixels; windows have stride 1 and
    no padding.
    """
    return Layer(name, "local_contrast", {"kernel": kernel, "epsilon": epsilon}, tuple(inputs))


def soft_threshold(name, threshold):
    """max(x - threshold, 0) of all channels, followed by max(-x - threshold, 0) of all channels
    (Coates and Ng, 2011).
    """
    return Layer(name, "soft_threshold", {"threshold": threshold})


# Layers as rows of a table, which is JSON-able: the layer's name as `layer`, its `kind`, its
# `inputs` unless it reads the layer above it, and the arguments of the function of its kind.

MAKERS = {kind: globals()[kind] for kind in KINDS}


def arguments(kind: str) -> dict[str, Any]:
    """Argument -> its default, inspect.Parameter.empty if it has none, of the function that makes a
    layer of this kind.
    """
    taken = inspect.signature(MAKERS[kind]).parameters
    return {
        name: parameter.default
        for name, parameter in taken.items()
        if name not in ("name", "inputs")
    }


def from_row(row: Mapping[str, Any]) -> Layer:
    """The Layer of a row."""
    given = {name: value for name, value in row.items() if name not in ("layer", "kind", "inputs")}
    maker = MAKERS[row["kind"]]
    inputs = tuple(row.get("inputs", ()))
    if len(inputs) > 1:
        return maker(row["layer"], inputs=inputs, **given)
    return dataclasses.replace(maker(row["layer"], **given), inputs=inputs)


def to_row(layer: Layer) -> dict[str, Any]:
    """The row of a layer, with its inputs."""
    names = {"units": "filters"} if layer.kind == "dense" else {}
    attributes: Mapping[str, object] = layer.attributes
    given = {name: attributes[names.get(name, name)] for name in arguments(layer.kind)}
    return {"layer": layer.name, "kind": layer.kind, "inputs": list(layer.inputs), **given}
