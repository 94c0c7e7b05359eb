"""The parts of a rung: patterns turn groups of layers into operations, launches map operations to
GPU kernels.
"""

import math
from collections.abc import Callable, Mapping

from ladder.network.layers import KINDS, Attributes, Layer
from ladder.network.networks import Network
from ladder.rungs.interface import Backward, Emit, Pattern, PlanBuilder
from ladder.rungs.launches import Group, Step, StepAttributes

AppliesRelu = Callable[[Network, str], bool]  # see phase_block


def alone(build: PlanBuilder, group: Group) -> Backward | None:
    """A layer without parameters, as its own operation."""
    (layer,) = group
    index = "index" in KINDS[layer.kind].kept
    saved = {"index": build.values.mask(layer)} if index else {}
    return _of_one_input(build, layer, saved, layer.attributes, layer.attributes)


def _of_one_input(
    build: PlanBuilder,
    layer: Layer,
    saved: Mapping[str, str],
    forward: Attributes,
    backward: Attributes,
    **reads: str,
) -> Backward | None:
    """The operation of a layer without parameters; saved: {role: buffer} that it writes beside y;
    forward, backward: attributes of both steps; reads: what the first reads beside x.

    A backward pass of a layer with products forms two for each of the forward pass.
    """
    x, y = build.values.source(layer), build.values.activation(layer)
    buffers, flop = {"x": x, "y": y, **saved}, 2 * layer.macs
    build.steps.add(
        f"{layer.kind}_forward", (layer,), {"x": x, **reads}, {"y": y, **saved}, flop, **forward
    )

    def go_back() -> None:
        needed = {role: buffers[role] for role in KINDS[layer.kind].kept}
        build.steps.add(
            f"{layer.kind}_backward",
            (layer,),
            {**needed, "dy": build.gradients.total(y)},
            {"dx": build.gradients.part(x)},
            2 * flop,
            **backward,
        )

    return go_back if build.gradients.is_wanted(x) else None


def flatten(build: PlanBuilder, group: Group) -> Backward | None:
    """No step for a 1x1 image, which is a vector already."""
    (layer,) = group
    if layer.input_shapes[0][:2] == (1, 1):
        build.values.unchanged(layer)
        return None
    return alone(build, group)


def add(build: PlanBuilder, group: Group) -> Backward:
    """Both terms receive the gradient of the sum unchanged."""
    (layer,) = group
    (a, b), y = build.values.sources(layer), build.values.activation(layer)
    build.steps.add("add_forward", group, {"a": a, "b": b}, {"y": y})

    def backward() -> None:
        for value in (a, b):
            build.gradients.pass_on(value, build.gradients.total(y))

    return backward


def batchnorm(build: PlanBuilder, group: Group) -> Backward | None:
    """In training: normalizes with the batch statistics, keeps them for the backward pass, updates
    the running statistics.
    """
    (layer,) = group
    x, y = build.values.source(layer), build.values.activation(layer)
    reads, written, backward_reads = batchnorm_operands(build, layer)
    if not build.training:
        build.steps.add(
            "batchnorm_inference",
            group,
            {"x": x, **reads},
            {"y": y},
            epsilon=layer.attributes["epsilon"],
        )
        return None
    build.steps.add(
        "batchnorm_forward", group, {"x": x, **reads}, {"y": y, **written}, **layer.attributes
    )

    def backward() -> None:
        build.steps.add(
            "batchnorm_backward",
            group,
            {"x": x, **backward_reads, "dy": build.gradients.total(y)},
            {"dx": build.gradients.part(x), **batchnorm_gradients(build, layer)},
        )

    return backward


def batchnorm_operands(
    build: PlanBuilder, layer: Layer
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """({role: buffer} read forward, written forward in training, read backward), without x and
    y.
    """
    parameters = {
        role: build.values.parameter(f"{layer.name}.{role}") for role in ("weight", "bias")
    }
    running = {
        role: build.values.state(f"{layer.name}.{role}") for role in ("running_mean", "running_var")
    }
    if not build.training:
        return {**parameters, **running}, {}, {}
    statistics = {
        role: build.values.kept(f"{layer.name}.{role}", layer.output_shape[2:])
        for role in ("mean", "inverse")
    }
    return parameters, {**statistics, **running}, {"weight": parameters["weight"], **statistics}


def batchnorm_gradients(build: PlanBuilder, layer: Layer) -> dict[str, str]:
    return {
        f"d{role}": build.values.parameter_gradient(f"{layer.name}.{role}")
        for role in ("weight", "bias")
    }


def dropout(build: PlanBuilder, group: Group) -> Backward | None:
    """The random number of each value is keyed by seed, layer, step and position."""
    (layer,) = group
    if not build.training:
        build.values.unchanged(layer)
        return None
    mask, stream = build.values.mask(layer, "mask"), build.network.layers.index(layer)
    drawn = StepAttributes(rate=layer.attributes["rate"], seed=build.seed, stream=stream)
    return _of_one_input(build, layer, {"mask": mask}, drawn, layer.attributes, counters="counters")


def winner_take_all(build: PlanBuilder, group: Group) -> Backward | None:
    """The share of the batch's images that keep their winners is a number of images here: all of
    them at test time.
    """
    (layer,) = group
    images, mask = lasting_images(build, layer), build.values.mask(layer, "mask")
    winners = StepAttributes(winners=layer.attributes["winners"], images=images)
    return _of_one_input(build, layer, {"mask": mask}, winners, {})


def lasting_images(build: PlanBuilder, layer: Layer) -> int:
    """Number of images of a batch that keep the winners of a channel: the share rounded up, but for
    a rounding error.
    """
    return (
        math.ceil(layer.attributes["lifetime"] * build.values.batch - 1e-6)
        if build.training
        else build.values.batch
    )


def l1_penalty(build: PlanBuilder, group: Group) -> Backward | None:
    """The identity, without a step; backward, the penalty is one more reader of the value."""
    (layer,) = group
    x = build.values.source(layer)
    build.values.unchanged(layer)

    def backward() -> None:
        build.steps.add(
            "l1_penalty_backward",
            group,
            {"x": x},
            {"dx": build.gradients.part(x)},
            factor=layer.attributes["penalty"] * build.gradients.loss_scale / build.divisor,
        )

    return backward if build.gradients.is_wanted(x) else None


def sample(build: PlanBuilder, group: Group) -> Backward | None:
    """As in dropout, the random number of each value is keyed by seed, layer, step and position;
    keeps what it has added.
    """
    (layer,) = group
    if not build.training:
        build.values.unchanged(layer)
        return None
    (mean, log_variance), y = build.values.sources(layer), build.values.activation(layer)
    noise, stream = (
        build.values.kept(f"{layer.name}.noise", build.values.shape(y)),
        build.network.layers.index(layer),
    )
    build.steps.add(
        "sample_forward",
        group,
        {"mean": mean, "log_variance": log_variance, "counters": "counters"},
        {"y": y, "noise": noise},
        seed=build.seed,
        stream=stream,
    )

    def backward() -> None:
        reads = {
            "mean": mean,
            "log_variance": log_variance,
            "noise": noise,
            "dy": build.gradients.total(y),
            "counters": "counters",
        }
        build.steps.add(
            "sample_backward",
            group,
            reads,
            {
                "dmean": build.gradients.part(mean),
                "dlog_variance": build.gradients.part(log_variance),
                "divergences": build.values.by_step("divergences"),
            },
            factor=layer.attributes["beta"] * build.gradients.loss_scale / build.divisor,
        )

    return backward if any(map(build.gradients.is_wanted, (mean, log_variance))) else None


def lrn(build: PlanBuilder, group: Group) -> Backward | None:
    """Keeps the divisors for the backward pass."""
    (layer,) = group
    sums = build.values.kept(f"{layer.name}.sums", (build.values.batch, *layer.output_shape))
    return _of_one_input(build, layer, {"sums": sums}, layer.attributes, layer.attributes)


def position_norm(build: PlanBuilder, group: Group) -> Backward | None:
    """Keeps each pixel's norm for the backward pass."""
    (layer,) = group
    norms = build.values.kept(f"{layer.name}.norms", (build.values.batch, *layer.output_shape[:2]))
    return _of_one_input(build, layer, {"norms": norms}, layer.attributes, {})


def attention(build: PlanBuilder, group: Group) -> Backward | None:
    """Keeps the attention weights, pixels times pixels, for the backward pass."""
    (layer,) = group
    pixels = math.prod(layer.output_shape[:2])
    weights = build.values.kept(f"{layer.name}.weights", (build.values.batch, pixels, pixels))
    return _of_one_input(build, layer, {"weights": weights}, {}, {})


def local_contrast(build: PlanBuilder, group: Group) -> None:
    """The second input is the image whose local contrast is measured."""
    (layer,) = group
    (x, image), y = build.values.sources(layer), build.values.activation(layer)
    build.steps.add(
        "local_contrast_forward", group, {"x": x, "image": image}, {"y": y}, **layer.attributes
    )


def phase_block(
    build: PlanBuilder, group: Group, applies_relu: AppliesRelu = lambda network, x: False
) -> Backward:
    """upsample2d, then conv2d 3x3: the transposed convolution of the small image with stride 2 and
    4x4 phase weights.

    applies_relu(network, x): whether the gradient of x is to be that of the input of the ReLU that
    made x.
    """
    upsample, conv = group
    x = build.values.source(upsample)
    build.values.unchanged(upsample)
    _, weight, bias = convolution(build, conv)
    y, flop = build.values.activation(conv), flop_of_phases(conv)
    channels, filters = upsample.output_shape[2], conv.attributes["filters"]
    phase_weights = build.values.derived(f"{conv.name}.phase_weights", (channels, 4, 4, filters))
    build.steps.add("decompose_taps", group, {"weight": weight}, {"phase_weights": phase_weights})
    build.steps.add(
        "phase_conv2d_forward",
        group,
        {"x": x, "phase_weights": phase_weights, "bias": bias},
        {"y": y},
        flop=flop,
    )

    def backward() -> None:
        dy = build.gradients.total(y)
        if build.gradients.is_wanted(x):
            dx, masks = build.gradients.part(x), applies_relu(build.network, x)
            whole = (
                build.values.workspace(
                    f"{upsample.name}.gradient", build.values.shape(x), build.values.dtype
                )
                if masks
                else dx
            )
            build.steps.add(
                "phase_conv2d_input_grad",
                group,
                {
                    "dy": dy,
                    "phase_weights": phase_weights,
                    "zeros": build.values.zeros(f"{conv.name}.no_shift", (channels,)),
                },
                {"dx": whole},
                flop=flop,
            )
            if masks:
                build.steps.add("relu_backward", group, {"y": x, "dy": whole}, {"dx": dx})
        build.steps.add(
            "phase_conv2d_weight_grad",
            group,
            {"x": x, "dy": dy},
            weight_gradients(build, conv),
            flop=flop,
        )

    return backward


def flop_of_phases(conv: Layer) -> int:
    """Of an image: 16 products of an input pixel, where the 3x3 taps of four output pixels make
    36.
    """
    return 2 * conv.macs * 16 // 36


# One layer each, with any attributes: the end of every rung's table. A kind without a function of
# its own is `alone`.
OWN: dict[str, Emit] = {
    emit.__name__: emit
    for emit in (
        flatten,
        add,
        batchnorm,
        dropout,
        winner_take_all,
        l1_penalty,
        sample,
        lrn,
        position_norm,
        attention,
        local_contrast,
    )
}
LAYERS = (
    Pattern(("upsample2d", "conv2d"), phase_block, decomposes=True),
    *(Pattern((kind,), OWN.get(kind, alone)) for kind in KINDS if kind not in ("conv2d", "dense")),
)


def convolution(build: PlanBuilder, conv: Layer) -> tuple[str, str, str]:
    """(x, weight, bias): the buffers of a convolution or dense layer; without a bias, bias is a
    buffer of zeros.
    """
    bias = f"{conv.name}.bias"
    bias = (
        build.values.parameter(bias)
        if conv.attributes["bias"]
        else build.values.zeros(f"{conv.name}.no_bias", conv.output_shape[2:])
    )
    return build.values.source(conv), build.values.parameter(f"{conv.name}.weight"), bias


def weight_gradients(build: PlanBuilder, conv: Layer) -> dict[str, str]:
    """{role: buffer} of a weight gradient's outputs; without a bias, the bias gradient goes to
    scratch memory.
    """
    dbias = (
        build.values.parameter_gradient(f"{conv.name}.bias")
        if conv.attributes["bias"]
        else build.values.workspace(f"{conv.name}.no_bias.gradient", conv.output_shape[2:])
    )
    return {"dweight": build.values.parameter_gradient(f"{conv.name}.weight"), "dbias": dbias}


def is_2x2(pool: Layer | Step) -> bool:
    """True for pooling with 2x2 windows, stride 2 and no padding."""
    return (pool.attributes["window"], pool.attributes["stride"], pool.attributes["padding"]) == (
        2,
        2,
        0,
    )


def is_same_3x3(group: Group) -> bool:
    """True for an upsampling and a 3x3 convolution with stride 1, padding 1 and a bias."""
    conv = group[1].attributes
    return (conv["kernel"], conv["padding"], conv["stride"], conv["bias"]) == (3, 1, 1, True)


def sliding(conv: Layer) -> Attributes:
    """Stride and padding as attributes of a convolution's operations."""
    return {"stride": conv.attributes["stride"], "padding": conv.attributes["padding"]}


# One layer at a time, without fusion.


def conv2d(build: PlanBuilder, group: Group) -> Backward:
    """A convolution without fusion; input, bias and weight gradient are separate operations."""
    (conv,) = group
    return _product(build, conv, sliding(conv))


def dense(build: PlanBuilder, group: Group) -> Backward:
    """As conv2d."""
    (layer,) = group
    return _product(build, layer, {})


def _product(build: PlanBuilder, layer: Layer, attributes: Attributes) -> Backward:
    x, weight, bias = convolution(build, layer)
    y = build.values.activation(layer)
    build.steps.add(
        f"{layer.kind}_forward",
        (layer,),
        {"x": x, "weight": weight, "bias": bias},
        {"y": y},
        flop=2 * layer.macs,
        **attributes,
    )

    def backward() -> None:
        operands = {"x": x, "weight": weight, "dy": build.gradients.total(y)}
        product_gradients(build, layer.kind, layer, operands, attributes, bias_apart=True)

    return backward


def product_gradients(
    build: PlanBuilder,
    operation: str,
    layer: Layer,
    operands: Mapping[str, str],
    attributes: Attributes,
    bias_apart: bool = False,
) -> None:
    """Append the input gradient, if it is wanted, and the weight gradient of a convolution or dense
    layer.

    operands: buffers of x, weight and dy; bias_apart: the bias gradient is a step of its own.
    """
    group, flop, writes = (layer,), 2 * layer.macs, weight_gradients(build, layer)
    x, weight, dy = (operands[role] for role in ("x", "weight", "dy"))
    if build.gradients.is_wanted(x):
        build.steps.add(
            f"{operation}_input_grad",
            group,
            {"dy": dy, "weight": weight},
            {"dx": build.gradients.part(x)},
            flop=flop,
            **attributes,
        )
    if bias_apart:
        dbias = {"dbias": writes.pop("dbias")}
        if layer.attributes["bias"]:
            build.steps.add(f"{operation}_bias_grad", group, {"dy": dy}, dbias)
    build.steps.add(
        f"{operation}_weight_grad", group, {"x": x, "dy": dy}, writes, flop=flop, **attributes
    )


LAYER_PATTERNS = (Pattern(("conv2d",), conv2d), Pattern(("dense",), dense), *LAYERS)
