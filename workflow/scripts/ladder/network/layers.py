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
    """The attributes of layers; each kind has some of them, which the function that makes it
    describes.

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
    kept          what the backward step of rungs.patterns reads beside the gradient, by the
                  roles of the forward step
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
    "dropout": Kind(
        _same,
        "dropout and LRN",
        ("drop", "norm"),
        "rate {rate:g}".format_map,
        kept=("mask",),
    ),
    "lrn": Kind(
        _same,
        "dropout and LRN",
        ("LRN", "norm"),
        "over {size} channels".format_map,
        kept=("x", "sums"),
    ),
    "position_norm": Kind(
        _same,
        "norms and contrast",
        ("norm", "norm"),
        "each pixel to length 1".format_map,
        kept=("y", "norms"),
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
        kept=("mask",),
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
        kept=("x", "weights"),
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
    r"""A cross-correlation with stride s and padding p of zeros; weights W (filters, K, K,
    channels). The `cpu` rung multiplies matrices of windows (im2col; Chellapilla, Puri and Simard,
    IWFHR 2006).

    ```math
    \begin{array}{l}
    y_{r,q,o}=b_o+\sum_{i,j,c}W_{o,i,j,c}\;x_{sr+i-p,\;sq+j-p,\;c}\\
    dx_{u,v,c}=\sum_{o,\;sr+i-p=u,\;sq+j-p=v}W_{o,i,j,c}\;dy_{r,q,o}\\
    dW_{o,i,j,c}=\sum_{n,r,q}dy_{n,r,q,o}\;x_{n,\;sr+i-p,\;sq+j-p,\;c}
      \qquad db_o=\sum_{n,r,q}dy_{n,r,q,o}
    \end{array}
    ```
    """
    return Layer(
        name,
        "conv2d",
        {"filters": filters, "kernel": kernel, "stride": stride, "padding": padding, "bias": bias},
        inputs,
    )


def dense(name, units):
    """A vector (1, 1, inputs) times a matrix, with a bias: y = W x + b, a 1x1 convolution over
    one pixel, whose attributes it has.
    """
    return Layer(
        name, "dense", {"filters": units, "kernel": 1, "stride": 1, "padding": 0, "bias": True}
    )


def attention(name):
    r"""Attention of one head over the P pixels of an image (Vaswani et al., NIPS 2017). The thirds
    of the input's channels are queries Q, keys K and values V, each (P, d).

    ```math
    \begin{array}{l}
    S=\frac{Q K^{T}}{\sqrt{d}}\qquad A_{pq}=\frac{\exp S_{pq}}{\sum_r\exp S_{pr}}\qquad Y=A V\\
    dA=dY\,V^{T}\qquad dS_{pq}=A_{pq}\left(dA_{pq}-\sum_r A_{pr}\,dA_{pr}\right)\\
    dQ=\frac{dS\,K}{\sqrt{d}}\qquad dK=\frac{dS^{T}Q}{\sqrt{d}}\qquad dV=A^{T}dY
    \end{array}
    ```

    Multipliers and precisions leave these products as they are. Under
    [`autoencoder_attention`](configuration.md#autoencoder_attention) a map X becomes X + Y W_o,
    where [Q K V] = X W; W and W_o are 1x1 convolutions without bias.
    """
    return Layer(name, "attention", {})


def batchnorm(name, decay=0.9, epsilon=1e-5):
    r"""Normalised by channel, with n values in the batch, their mean m and variance v with divisor
    n (Ioffe and Szegedy, ICML 2015):

    ```math
    \begin{array}{l}
    z=\frac{x-m}{\sqrt{v+\epsilon}}\qquad y=w z+b\qquad db=\sum dy\qquad dw=\sum dy\,z\\
    dx=\frac{w}{\sqrt{v+\epsilon}}\left(dy-\frac{db}{n}-\frac{z\,dw}{n}\right)
    \end{array}
    ```

    At test time the running mean and variance, decay * old + (1 - decay) * new, the variance with
    divisor n - 1, stand for m and v.
    """
    return Layer(name, "batchnorm", {"decay": decay, "epsilon": epsilon})


def relu(name):
    """y = max(x, 0), dx = dy where x > 0, else 0."""
    return Layer(name, "relu", {})


def maxpool2d(name, window=2, stride=2, padding=0):
    """The maximum of the window's pixels, padding ignored; dy goes to the first one."""
    return Layer(name, "maxpool2d", {"window": window, "stride": stride, "padding": padding})


def avgpool2d(name, window=2, stride=2, padding=0):
    """The window's sum over K^2, zeros outside included."""
    return Layer(name, "avgpool2d", {"window": window, "stride": stride, "padding": padding})


def global_avgpool(name):
    """The mean of each channel over height and width."""
    return Layer(name, "global_avgpool", {})


def upsample2d(name):
    """Each pixel 2x2 times (nearest neighbour); dx is the sum of the four dy."""
    return Layer(name, "upsample2d", {})


def pad(name, amount):
    """Zeros on all four sides, `amount` pixels wide."""
    return Layer(name, "pad", {"amount": amount})


def add(name, inputs):
    r"""The sum of two layers of the same shape: y = a + b, and both get dy. A residual block (He
    et al., CVPR 2016) has s the identity or, where the numbers of channels differ, a 1x1
    convolution without bias:

    ```math
    y=\mathrm{relu}(W_2\,\mathrm{relu}(W_1x+b_1)+b_2+s(x))
    ```
    """
    return Layer(name, "add", {}, tuple(inputs))


def flatten(name):
    """The image as one vector, channel by channel, as in other frameworks."""
    return Layer(name, "flatten", {})


def dropout(name, rate):
    """In training y = x k / (1 - rate), dx = dy k / (1 - rate), where k is 1 with probability 1 -
    rate, else 0, drawn by Philox from seed, layer, step and position (Salmon et al., SC 2011). At
    test time y = x (Srivastava et al., JMLR 2014, inverted).
    """
    return Layer(name, "dropout", {"rate": rate})


def winner_take_all(name, winners, lifetime):
    """Of each channel of an image the w largest values stay, the others become 0; in training
    only in the share `lifetime`, rounded up, of the batch's images with the largest winners
    (Makhzani and Frey, NIPS 2015). Of equal values the first is taken, by row and column or by
    image. y = x k, dx = dy k. The `cpu` rung stores and multiplies winners alone.
    """
    return Layer(name, "winner_take_all", {"winners": winners, "lifetime": lifetime})


def l1_penalty(name, penalty):
    """y = x. The penalty times the sum of |x| over the batch is added to the sum of squared
    errors, before its divisor d ([n or B](#losses)): dx = dy + penalty / d sign(x), sign(0) = 0.
    The reported loss is without it.
    """
    return Layer(name, "l1_penalty", {"penalty": penalty})


def sample(name, inputs, beta):
    r"""A draw from normal distributions with means m and log-variances s, and e drawn from the
    standard normal distribution (Kingma and Welling, ICLR 2014):

    ```math
    \begin{array}{l}
    y=m+e^{s/2}\,\varepsilon\qquad\mathrm{KL}=\frac{1}{2}\sum\left(m^2+e^s-1-s\right)\\
    dm=dy+\frac{\beta}{n}m
      \qquad ds=\frac{1}{2}\left(dy\,e^{s/2}\,\varepsilon+\frac{\beta}{n}(e^s-1)\right)
    \end{array}
    ```

    Training follows the squared errors plus beta times KL (Higgins et al., ICLR 2017), both over [n
    or B](#losses); the reported loss is without KL. At test time y = m. Draws are quantiles of
    24-bit numbers of Philox (AS 241; Wichura, Applied Statistics 1988;
    `kernels/common/normal.cuh`).
    """
    return Layer(name, "sample", {"beta": beta}, tuple(inputs))


def lrn(name, size=5, alpha=1e-4, beta=0.75, k=2.0):
    r"""Local response normalisation over `size` channels, size // 2 of them before channel c
    (Krizhevsky, Sutskever and Hinton, NIPS 2012, with alpha divided by `size`):

    ```math
    \begin{array}{l}
    s_c=k+\frac{\alpha}{size}\sum_{d\in N(c)}x_d^2\qquad y_c=x_c\,s_c^{-\beta}\\
    dx_c=dy_c\,s_c^{-\beta}
      -\frac{2\alpha\beta}{size}\,x_c\sum_{d:\;c\in N(d)}dy_d\,x_d\,s_d^{-\beta-1}
    \end{array}
    ```
    """
    return Layer(name, "lrn", {"size": size, "alpha": alpha, "beta": beta, "k": k})


def position_norm(name, epsilon=1e-6):
    r"""Each pixel's channel vector is scaled to length 1:

    ```math
    l=\sqrt{\sum_c x_c^2+\epsilon}\qquad y=\frac{x}{l}\qquad dx=\frac{dy-y\,(y\cdot dy)}{l}
    ```
    """
    return Layer(name, "position_norm", {"epsilon": epsilon})


def local_contrast(name, kernel, inputs, epsilon):
    """y = x / sqrt(v + epsilon), with v the variance of the window of the image from which x was
    computed, a window of kernel x kernel pixels with stride 1 and no padding (Coates and Ng, Tricks
    of the Trade 2012). It and soft_threshold have no gradient.
    """
    return Layer(name, "local_contrast", {"kernel": kernel, "epsilon": epsilon}, tuple(inputs))


def soft_threshold(name, threshold):
    """y = max(x - t, 0) for all channels, then max(-x - t, 0) for all channels (Coates and Ng,
    ICML 2011).
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
