"""The networks, as tables of layers.

Each function returns the table for an input shape (height, width, channels) and a number of
classes.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ladder.errors import UserError
from ladder.network.layers import (
    KINDS,
    Layer,
    add,
    attention,
    avgpool2d,
    batchnorm,
    conv2d,
    dense,
    dropout,
    flatten,
    from_row,
    global_avgpool,
    l1_penalty,
    local_contrast,
    lrn,
    maxpool2d,
    pad,
    position_norm,
    relu,
    sample,
    soft_threshold,
    upsample2d,
    winner_take_all,
)

INPUT = "input"
CIFAR, CLASSES = (32, 32, 3), 10


@dataclasses.dataclass(frozen=True)
class Fit:
    """How the weights of convolution `layer` are fitted to patches of its input;
    features/patches.py has the formulas.

    whitening   'zca', 'pca', 'none', or 'rotation' for PCA without scaling
    components  number of PCA components, None for the number of filters
    atoms       whether the filters are unit vectors learned from the whitened patches; else they
                are the PCA components
    centred     whether each patch's mean is subtracted first
    contrast    regularisation of the variance by whose root a patch is divided; None: no division
    bias        added to the responses of the filters, whose standard deviation is 1
    """

    layer: str
    whitening: str
    components: int | None = None
    atoms: bool = True
    centred: bool = False
    contrast: float | None = None
    bias: float = 0.0


@dataclasses.dataclass(frozen=True)
class Network:
    """A network with all shapes resolved.

    layers    in execution order
    features  the layer whose output is the feature vector
    loss      'mse' between output and input, 'cross_entropy' of the softmax of the output, or None
              if the network can only be fitted
    fits      the Fit of each layer that can be fitted to patches, in execution order
    """

    name: str
    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    features: str
    loss: str | None
    fits: tuple[Fit, ...] = ()

    @functools.cached_property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Parameter name -> shape, in the order of the layers."""
        return {name: shape for layer in self.layers for name, shape in layer.parameters.items()}

    @functools.cached_property
    def state(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the values that training updates besides the parameters, i.e. running
        statistics.
        """
        return {name: shape for layer in self.layers for name, shape in layer.state.items()}

    @property
    def parameter_count(self) -> int:
        return sum(math.prod(shape) for shape in self.parameters.values())

    @property
    def classifies(self) -> bool:
        """Whether the output is a score for each class, not an image."""
        return self.loss == "cross_entropy"

    @property
    def encoder(self) -> tuple[str, ...]:
        """Names of the layers with parameters up to the features."""
        return tuple(layer.name for layer in self.needed_for(self.features) if layer.parameters)

    @property
    def trains(self) -> bool:
        """Whether the network can be trained by gradient descent."""
        return self.loss is not None

    @property
    def draws(self) -> Layer | None:
        """The layer whose output is drawn in training; None if there is none."""
        return next((layer for layer in self.layers if layer.kind == "sample"), None)

    @property
    def code(self) -> tuple[str, int, int | None] | None:
        """(layer, values, nonzero) of the layer from which an autoencoder rebuilds its input; None
        where none is known.

        values: of the layer's output; nonzero: the most of them that are not zero, None where all
        may be.
        """
        way = self.needed_for(self.layers[-1].name)
        sparse = [layer for layer in way if layer.kind == "winner_take_all"]
        candidates = sparse or [layer for layer in way if layer.name == self.features]
        if self.loss != "mse" or not candidates:
            return None
        layer = candidates[-1]
        nonzero = layer.attributes["winners"] * layer.output_shape[2] if sparse else None
        return layer.name, math.prod(layer.output_shape), nonzero

    @property
    def table(self) -> list[dict[str, Any]]:
        """A JSON-able row for each layer: layer, kind, inputs, output (shape), macs per image,
        parameters (count).
        """
        return [
            {
                "layer": layer.name,
                "kind": layer.kind,
                "inputs": list(layer.inputs),
                "output": list(layer.output_shape),
                "macs": layer.macs,
                "parameters": sum(math.prod(shape) for shape in layer.parameters.values()),
            }
            for layer in self.layers
        ]

    def layer(self, name: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == name)

    def readers(self, name: str) -> list[Layer]:
        """The layers that read layer `name`."""
        return [layer for layer in self.layers if name in layer.inputs]

    def needed_for(self, name: str) -> tuple[Layer, ...]:
        """Layer `name` and all layers that it depends on, in execution order."""
        needed = {name}
        for layer in reversed(self.layers):
            if layer.name in needed:
                needed.update(layer.inputs)
        return tuple(layer for layer in self.layers if layer.name in needed)


FIRST_BIAS = -0.25  # of the autoencoder's first layer if it is fitted
CODE = 0.25  # the patch network's soft threshold, in standard deviations
# Added to the variance of a window: 10 for pixels 0..255 (Coates and Ng, 2012), here scaled to a
# standard deviation of 1.
CONTRAST = 10 / 64**2
# As CONTRAST, for whitened images, whose variance is 0.17 on CIFAR-10; docs/preset-notes.md has
# what others gave.
WHITENED_CONTRAST = 0.03


def autoencoder(
    input_shape,
    classes,
    filters=(256, 128),
    norm=False,
    residual=False,
    attentive=False,
    noise=0.0,
    penalty=0.0,
    variational=False,
    beta=1.0,
):
    """An encoder of 3x3 convolutions with ReLU and pooling, one for each number in `filters`, and
    the mirrored decoder.

    256 and 128 filters on 32x32x3 are 751,875 parameters and 8x8x128 = 8192 features.

    norm         replaces each convolution of the encoder but the first by a 3x3 convolution with
                 as many filters as channels, a normalisation of each pixel's vector, and a 1x1
                 convolution
    residual     each convolution of the encoder begins a residual block
    attentive    attention over the pixels of the encoder's last map is added to it
    noise        share of the input's values that are set to 0 in training (Vincent et al., 2008)
    penalty      of the magnitudes of the latent values
    variational  the latent values are drawn from normal distributions, whose means, which are the
                 features, and log-variances are two 1x1 convolutions of the encoder's output
    beta         see layers.sample

    The weights of residual blocks and attention are trained, not fitted to patches.
    """
    height, width, channels = input_shape
    smallest = 2 ** len(filters)
    if height % smallest or width % smallest:
        raise UserError(
            f"config: autoencoder_filters has {len(filters)} numbers, so {len(filters)} times a 2x2 pooling, which "
            f"images of {height}x{width} do not survive; at most {_halvings(height, width)}"
        )
    layers, fits = _noise(noise), []
    for number, count in enumerate(filters, 1):
        name, last, read = f"enc{number}", number == len(filters), (channels, *filters)[number - 1]
        source = layers[-1].name if layers else INPUT
        if number == 1:
            layers.append(conv2d(name, count))
            fits.append(Fit(name, "zca", centred=True, bias=FIRST_BIAS))
        elif norm:
            layers += [
                conv2d(f"{name}_whiten", read),
                position_norm(f"{name}_norm"),
                conv2d(name, count, kernel=1, padding=0),
            ]
            fits += [Fit(f"{name}_whiten", "pca", atoms=False), Fit(name, "none")]
        else:
            layers.append(conv2d(name, count))
            fits.append(Fit(name, "pca", components=read))
        layers += [
            relu(f"{name}_relu"),
            *(_end_of_block(name, source, read, count) if residual else ()),
            maxpool2d("latent" if last and not (attentive or variational) else f"{name}_pool"),
        ]
    layers += (
        _attended("attended" if variational else "latent", layers[-1].name, filters[-1])
        if attentive
        else []
    )
    layers += _drawn(layers[-1].name, filters[-1], beta) if variational else []
    layers += [l1_penalty("latent_penalty", penalty)] if penalty else []
    for number, count in enumerate(reversed(filters), 1):
        layers += [
            conv2d(f"dec{number}", count),
            relu(f"dec{number}_relu"),
            upsample2d(f"dec{number}_up"),
        ]
    return {
        "layers": (*layers, conv2d(f"dec{len(filters) + 1}", channels)),
        "features": "mean" if variational else "latent",
        "loss": "mse",
        "fits": () if residual or attentive or variational else tuple(fits),
    }


def _drawn(encoded, filters, beta):
    """Latent values drawn around means, both of which `encoded` determines."""
    return [
        conv2d("mean", filters, kernel=1, padding=0),
        conv2d("log_variance", filters, kernel=1, padding=0, inputs=(encoded,)),
        sample("latent", ("mean", "log_variance"), beta),
    ]


def _end_of_block(name, source, channels, filters):
    """What makes a convolution with ReLU, which reads `source`, a residual block (He et al.,
    2016a).

    A second convolution, to whose output the input is added, by a 1x1 convolution if they differ in
    channels, and ReLU.
    """
    layers = [conv2d(f"{name}_second", filters)]
    if channels != filters:
        layers.append(conv2d(f"{name}_shortcut", filters, 1, 0, bias=False, inputs=(source,)))
        source = f"{name}_shortcut"
    return [*layers, add(f"{name}_sum", (f"{name}_second", source)), relu(f"{name}_sum_relu")]


def _attended(name, source, channels):
    """The layers from `source` to `name`: attention over its pixels, projected and added to it."""
    return [
        conv2d("attention_parts", 3 * channels, 1, 0, bias=False),
        attention("attention"),
        conv2d("attention_out", channels, 1, 0, bias=False),
        add(name, ("attention_out", source)),
    ]


def autoencoder_classifier(
    input_shape, classes, filters=(256, 128), norm=False, residual=False, attentive=False, units=128
):
    """The encoder of `autoencoder` with a head of a dense layer of `units`, ReLU, and the scores;
    trained with labels.

    Its encoder's parameters have the names that they have in the autoencoder, from whose weights it
    can start.
    """
    table = autoencoder(input_shape, classes, filters, norm, residual, attentive)
    names = [layer.name for layer in table["layers"]]
    encoder = table["layers"][: names.index(table["features"]) + 1]
    head = flatten("flat"), dense("head", units), relu("head_relu"), dense("scores", classes)
    return {**_classifier(table["features"], *encoder, *head), "fits": table["fits"]}


def wta_autoencoder(
    input_shape, classes, filters=1024, kernels=(5, 5), winners=1, lifetime=0.2, noise=0.0
):
    """One convolution, a sparse code of its winners, and a linear decoder (Makhzani and Frey,
    2015).

    kernels: sides of the filters of the encoder and of the decoder. The features are the responses
    of the filters over the local contrast of the image, without the sparsity. winners, lifetime:
    see layers.winner_take_all; noise: see autoencoder.
    """
    (height, width, channels), (kernel, decoder_kernel) = input_shape, kernels
    maps = [size - kernel + 1 for size in (height, width)]
    if min(maps) < 1:
        raise UserError(
            f"config: wta_kernels has {kernel}, but images are {height}x{width}; at most {min(height, width)}"
        )
    if (kernel + decoder_kernel) % 2:
        raise UserError(
            f"config: wta_kernels is [{kernel}, {decoder_kernel}], but the decoder restores the image only if both "
            f"are odd or both even; [{kernel}, {decoder_kernel + 1}]"
        )
    if winners > math.prod(maps):
        raise UserError(
            f"config: wta_winners is {winners}, but a map has {maps[0]}x{maps[1]} pixels; at most "
            f"{math.prod(maps)}"
        )
    return {
        "layers": (
            *_noise(noise),
            conv2d("code", filters, kernel, padding=0),
            local_contrast("contrast", kernel, ("code", INPUT), WHITENED_CONTRAST),
            dataclasses.replace(relu("code_relu"), inputs=("code",)),
            winner_take_all("winners", winners, lifetime),
            conv2d("decoder", channels, decoder_kernel, padding=(kernel + decoder_kernel) // 2 - 1),
        ),
        "features": "contrast",
        "loss": "mse",
    }


def _noise(share):
    return [dropout("noise", share)] if share else []


def patch_net(input_shape, classes, filters=(800, 256, 400, 1600), kernel=6):
    """Two layers of filters on whitened patches, thresholded and pooled: fitted only, never trained
    (Coates and Ng, 2012).

    filters: filters of layer 1 (on contrast-normalised patches), PCA components of its output, PCA
    components of 3x3 patches of those, filters of layer 2, each of which gives two features at each
    position. kernel: side of the filters of layer 1. 800, 256, 400 and 1600 of 6x6 on 32x32x3 are
    2.1 million parameters and 3x3x3200 = 28,800 features.
    """
    height, width = input_shape[:2]
    # maps of 13 pixels on a side have 6 after pool1, 4 after the 3x3 patches, 1 after pool2
    largest = min(height, width) - 12
    if 2 <= largest < kernel:
        raise UserError(
            f"config: patch_net_kernel is {kernel}, with which network patch_net cannot read images of "
            f"{height}x{width}; at most {largest}"
        )
    first, reduced, whitened, second = filters
    for number, (count, most) in enumerate(((reduced, 2 * first), (whitened, 9 * reduced)), 2):
        if count > most:
            raise UserError(
                f"config: number {number} of patch_net_filters is {count}, but there are only {most} principal "
                f"directions; at most {most}"
            )
    return {
        "layers": (
            conv2d("conv1", first, kernel, padding=0, bias=False),
            local_contrast("contrast", kernel, ("conv1", INPUT), CONTRAST),
            soft_threshold("code1", CODE),
            avgpool2d("pool1", 3, 2),
            conv2d("reduce", reduced, kernel=1, padding=0),
            conv2d("whiten", whitened, padding=0),
            position_norm("norm"),
            conv2d("conv2", second, kernel=1, padding=0),
            soft_threshold("code2", CODE),
            avgpool2d("pool2", _last_window(height, width, kernel), 3),
        ),
        "features": "pool2",
        "loss": None,
        "fits": (
            Fit("conv1", "zca", centred=True, contrast=CONTRAST),
            Fit("reduce", "rotation", atoms=False),
            Fit("whiten", "pca", atoms=False),
            Fit("conv2", "none"),
        ),
    }


def _last_window(height, width, kernel):
    """Side of the windows, three pixels apart, of the patch network's last pooling: 5, or 4 where
    only these fit the map.

    That is where 5 is more than the map has, or where windows of 4 cover it exactly; not with
    filters of 6x6 on maps of 5 and more, whose windows have always been of 5.
    """
    sides = [(size - kernel) // 2 - 2 for size in (height, width)]  # of conv2's map
    exact = kernel != 6 and all(side % 3 == 1 for side in sides)
    return 4 if exact or min(sides) < 5 else 5


def _halvings(*sizes):
    return min((size & -size).bit_length() - 1 for size in sizes)


def lenet_300_100(input_shape, classes):
    """Dense layers of 300 and 100 units and the output layer (LeCun et al., 1998)."""
    return _classifier(
        "fc2_relu",
        flatten("pixels"),
        dense("fc1", 300),
        relu("fc1_relu"),
        dense("fc2", 100),
        relu("fc2_relu"),
        dense("fc3", classes),
    )


def lenet_5(input_shape, classes):
    """LeNet-5 (LeCun et al., 1998) with ReLU and max-pooling: 6 and 16 filters of 5x5, then 120 and
    84 units.

    Images smaller than 32x32 pixels are zero-padded.
    """
    return _classifier(
        "fc2_relu",
        *_padded(input_shape),
        conv2d("conv1", 6, kernel=5, padding=0),
        relu("conv1_relu"),
        maxpool2d("pool1"),
        conv2d("conv2", 16, kernel=5, padding=0),
        relu("conv2_relu"),
        maxpool2d("pool2"),
        flatten("flat"),
        dense("fc1", 120),
        relu("fc1_relu"),
        dense("fc2", 84),
        relu("fc2_relu"),
        dense("fc3", classes),
    )


def small_cnn(input_shape, classes):
    """Two 3x3 convolutions of 16 and 32 filters with pooling between them, and a dense layer of 128
    units.
    """
    return _classifier(
        "fc1_relu",
        conv2d("conv1", 16, padding=0),
        relu("conv1_relu"),
        maxpool2d("pool1"),
        conv2d("conv2", 32, padding=0),
        relu("conv2_relu"),
        flatten("flat"),
        dense("fc1", 128),
        relu("fc1_relu"),
        dense("fc2", classes),
    )


def _padded(input_shape):
    """Zero padding of images smaller than 32x32."""
    missing = 32 - input_shape[0]
    return [pad("padded", missing // 2)] if missing > 0 else []


def alexnet(input_shape, classes, width=64):
    """AlexNet for images of 32x32 or 28x28: five convolutions, LRN, overlapping pooling, two dense
    layers with dropout.

    The numbers of filters, from `width`, are those of the form with one tower (Krizhevsky, 2014),
    units and layers those of Krizhevsky et al. (2012). The first convolution is 5x5 with stride 1,
    where theirs is 11x11 with stride 4.
    """
    layers = []
    for number, (filters, kernel) in enumerate(
        ((width, 5), (3 * width, 5), (6 * width, 3), (4 * width, 3), (4 * width, 3)), 1
    ):
        name = f"conv{number}"
        layers += [conv2d(name, filters, kernel, kernel // 2), relu(f"{name}_relu")]
        layers += [lrn(f"lrn{number}")] if number in (1, 2) else []
        layers += [maxpool2d(f"pool{number}", 3, 2, 1)] if number in (1, 2, 5) else []
    layers.append(flatten("flat"))
    for number in (6, 7):
        layers += [
            dropout(f"drop{number}", 0.5),
            dense(f"fc{number}", 64 * width),
            relu(f"fc{number}_relu"),
        ]
    return _classifier("fc7_relu", *layers, dense("fc8", classes))


# Depth -> convolutions in each of the five stages: configurations A and D of Simonyan and Zisserman
# (2015).
VGGS = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3)}


def vgg(depth):
    """The table of a VGG network for images of 32x32; smaller ones are zero-padded.

    Stages of 3x3 convolutions with `width`, 2, 4, 8 and 8 times as many filters, each stage with
    pooling at its end. A batch normalisation follows each convolution (Ioffe and Szegedy, 2015).
    Five poolings leave one pixel, which one dense layer reads in place of three; so the dropout of
    the other two is left out too.
    """

    def table(input_shape, classes, width=64):
        layers = _padded(input_shape)
        for stage, count in enumerate(VGGS[depth], 1):
            for place in range(1, count + 1):
                name = f"conv{stage}_{place}"
                layers += [
                    _conv(name, width * min(2 ** (stage - 1), 8), 3, 1),
                    batchnorm(f"{name}_bn"),
                    relu(f"{name}_relu"),
                ]
            layers.append(maxpool2d(f"pool{stage}"))
        return _classifier("flat", *layers, flatten("flat"), dense("scores", classes))

    return table


# Depth -> blocks in each of the four stages, and whether a block is a bottleneck (He et al., 2016).
RESNETS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
}
EXPANSION = 4  # the last convolution of a bottleneck has EXPANSION times the filters of the others


def resnet(depth):
    """The table of a ResNet for images of at least 32x32 (the CIFAR form) or smaller ones (the
    MNIST form).

    CIFAR form: activations before each convolution (He et al., 2016b), a 3x3 stem, no pooling.
    MNIST form: activations after each convolution, a 7x7 stem of stride 2 and a 3x3 max-pool of
    stride 2, as for large images (He et al., 2016a).
    """
    blocks, bottleneck = RESNETS[depth]

    def table(input_shape, classes, width=64):
        form = _preactivation if input_shape[0] >= 32 else _postactivation
        return _classifier(
            "average",
            *form(blocks, bottleneck, width),
            global_avgpool("average"),
            dense("scores", classes),
        )

    return table


def _stages(blocks, width):
    """(name, filters, stride) of each block; the first block of every stage but the first halves
    the image.
    """
    for stage, count in enumerate(blocks):
        for block in range(count):
            yield f"stage{stage + 1}_{block + 1}", width * 2**stage, 2 if stage and not block else 1


def _convolutions(bottleneck, filters, stride):
    """(filters, kernel, stride) of a block's convolutions."""
    if bottleneck:
        return (filters, 1, 1), (filters, 3, stride), (EXPANSION * filters, 1, 1)
    return (filters, 3, stride), (filters, 3, 1)


def _postactivation(blocks, bottleneck, width):
    layers = [
        _conv("stem", width, 7, 2),
        batchnorm("stem_bn"),
        relu("stem_relu"),
        maxpool2d("stem_pool", 3, 2, 1),
    ]
    shortcut, channels = "stem_pool", width
    for name, filters, stride in _stages(blocks, width):
        convolutions = _convolutions(bottleneck, filters, stride)
        source, out = shortcut, convolutions[-1][0]
        if stride != 1 or channels != out:
            layers += [
                _conv(f"{name}_shortcut", out, 1, stride, source),
                batchnorm(f"{name}_shortcut_bn"),
            ]
            shortcut = f"{name}_shortcut_bn"
        for number, (count, kernel, step) in enumerate(convolutions, 1):
            layers += [
                _conv(f"{name}_conv{number}", count, kernel, step, source),
                batchnorm(f"{name}_bn{number}"),
            ]
            if number < len(convolutions):
                layers.append(relu(f"{name}_relu{number}"))
                source = f"{name}_relu{number}"
        layers += [add(f"{name}_sum", (f"{name}_bn{len(convolutions)}", shortcut)), relu(name)]
        shortcut, channels = name, out
    return layers


def _preactivation(blocks, bottleneck, width):
    layers, previous, channels = [_conv("stem", width, 3, 1)], "stem", width
    for name, filters, stride in _stages(blocks, width):
        convolutions = _convolutions(bottleneck, filters, stride)
        out = convolutions[-1][0]
        layers += [batchnorm(f"{name}_bn1"), relu(f"{name}_relu1")]
        shortcut = previous
        if stride != 1 or channels != out:
            layers.append(_conv(f"{name}_shortcut", out, 1, stride, f"{name}_relu1"))
            shortcut = f"{name}_shortcut"
        for number, (count, kernel, step) in enumerate(convolutions, 1):
            layers.append(
                _conv(f"{name}_conv{number}", count, kernel, step, f"{name}_relu{number}")
            )
            if number < len(convolutions):
                layers += [batchnorm(f"{name}_bn{number + 1}"), relu(f"{name}_relu{number + 1}")]
        layers.append(add(name, (f"{name}_conv{len(convolutions)}", shortcut)))
        previous, channels = name, out
    return [*layers, batchnorm("last_bn"), relu("last_relu")]


def _conv(name, filters, kernel, stride, source=None):
    return conv2d(
        name, filters, kernel, kernel // 2, stride, bias=False, inputs=(source,) if source else ()
    )


def _classifier(features, *layers):
    return {"layers": layers, "features": features, "loss": "cross_entropy"}


NETWORKS = {
    "autoencoder": autoencoder,
    "wta_autoencoder": wta_autoencoder,
    "autoencoder_classifier": autoencoder_classifier,
    "lenet_300_100": lenet_300_100,
    "lenet_5": lenet_5,
    "small_cnn": small_cnn,
    "alexnet": alexnet,
    **{f"vgg{depth}": vgg(depth) for depth in VGGS},
    **{f"resnet{depth}": resnet(depth) for depth in RESNETS},
    "patch_net": patch_net,
}
# Network -> its options: keyword of its table -> key of the configuration.
ENCODER = {
    "filters": "autoencoder_filters",
    "norm": "autoencoder_norm",
    "residual": "autoencoder_residual",
    "attentive": "autoencoder_attention",
}
OPTIONS = {
    "autoencoder": {
        **ENCODER,
        "noise": "input_noise",
        "penalty": "latent_penalty",
        "variational": "variational",
        "beta": "variational_beta",
    },
    "autoencoder_classifier": {**ENCODER, "units": "head_units"},
    "wta_autoencoder": {
        "filters": "wta_filters",
        "kernels": "wta_kernels",
        "winners": "wta_winners",
        "lifetime": "wta_lifetime",
        "noise": "input_noise",
    },
    "patch_net": {"filters": "patch_net_filters", "kernel": "patch_net_kernel"},
    **{f"resnet{depth}": {"width": "resnet_width"} for depth in RESNETS},
}


# Network with a head -> the network whose encoder it has, and can start from.
HEADED = {"autoencoder_classifier": "autoencoder"}


def build(name, input_shape=CIFAR, classes=CLASSES, **options):
    """The Network `name` with every layer's inputs and shapes resolved.

    options: see OPTIONS. Raises KeyError for a name that is not in NETWORKS, UserError for images
    that it cannot process.
    """
    return resolve(name, input_shape, **NETWORKS[name](tuple(input_shape), classes, **options))


def from_params(params: Mapping[str, Any]) -> Network:
    """The Network for a stage's parameters: network, image (the input shape), classes if it
    classifies, and its options.

    Options missing in older artifacts have their defaults. A network of a person's own file has its
    `table` (see from_table).
    """
    if "table" in params:
        return from_table(params["network"], tuple(params["image"]), params["table"])
    options = {
        keyword: params[key]
        for keyword, key in OPTIONS.get(params["network"], {}).items()
        if key in params
    }
    return build(
        params["network"], tuple(params["image"]), params.get("classes", CLASSES), **options
    )


def encoder_of(params: Mapping[str, Any]) -> Network | None:
    """The Network whose encoder the network of these parameters has, under the same names; None if
    it has no such encoder.
    """
    return (
        from_params({**params, "network": HEADED[params["network"]]})
        if params["network"] in HEADED
        else None
    )


def decoder(network: Network) -> Network | None:
    """The Network from the latent values that `network` draws to its output; None if the output
    does not follow from these.
    """
    drawn = network.draws
    if not drawn:
        return None
    after = network.layers[network.layers.index(drawn) + 1 :]
    if {name for layer in after for name in layer.inputs} - {
        drawn.name,
        *(layer.name for layer in after),
    }:
        return None
    renamed = (
        dataclasses.replace(
            layer, inputs=tuple(INPUT if name == drawn.name else name for name in layer.inputs)
        )
        for layer in after
    )
    return resolve(
        f"decoder of {network.name}", drawn.output_shape, renamed, network.layers[-1].name, None
    )


def from_table(name: str, input_shape: tuple[int, ...], table: Mapping[str, Any]) -> Network:
    """The Network of a JSON-able table: {"layers": rows of layers.from_row, "features": a layer's
    name, "loss": of Network}.
    """
    return resolve(
        name, input_shape, tuple(map(from_row, table["layers"])), table["features"], table["loss"]
    )


class Unreadable(UserError):
    """Layer `layer` of a network cannot process the shape of its input, for this `reason`."""

    def __init__(
        self, name: str, input_shape: tuple[int, ...], layer: str, reason: Exception
    ) -> None:
        height, width, _ = input_shape
        super().__init__(
            f"config: network {name} cannot read images of {height}x{width}: layer {layer}: {reason}"
        )
        self.layer, self.reason = layer, reason


def resolve(
    name: str,
    input_shape: tuple[int, ...],
    layers: Iterable[Layer],
    features: str,
    loss: str | None,
    fits: Iterable[Fit] = (),
) -> Network:
    """A Network from its layers; a layer without `inputs` reads the previous layer.

    Raises Unreadable if a layer cannot process its input's shape.
    """
    shapes, resolved, previous = {INPUT: tuple(input_shape)}, [], INPUT
    for layer in layers:
        inputs = layer.inputs or (previous,)
        input_shapes = tuple(shapes[source] for source in inputs)
        try:
            output = KINDS[layer.kind].output_shape(layer.attributes, *input_shapes)
        except ValueError as error:
            raise Unreadable(name, input_shape, layer.name, error) from error
        resolved.append(
            dataclasses.replace(
                layer, inputs=inputs, input_shapes=input_shapes, output_shape=output
            )
        )
        shapes[layer.name], previous = output, layer.name
    return Network(name, tuple(input_shape), tuple(resolved), features, loss, tuple(fits))
