"""The cpu rung: fused groups of layers for the NumPy executor."""

from typing import Unpack

from ladder.network.layers import Attributes
from ladder.rungs.interface import Backward, Implementation, Pattern, PlanBuilder
from ladder.rungs.launches import Group, Shape, StepAttributes
from ladder.rungs.patterns import (
    LAYERS,
    batchnorm_gradients,
    batchnorm_operands,
    convolution,
    flop_of_phases,
    is_2x2,
    is_same_3x3,
    lasting_images,
    product_gradients,
    sliding,
    weight_gradients,
)

# channels or filters below which a Winograd convolution's transforms cost more than they save
NARROW = 32


def conv_block(build: PlanBuilder, group: Group) -> Backward:
    """conv2d or dense, then optionally ReLU and 2x2 max-pool."""
    conv = group[0]
    weight = {"weight": build.values.parameter(f"{conv.name}.weight")}
    return _block(build, group, "conv2d", weight, 2 * conv.macs, sliding(conv))


def winograd_block(build: PlanBuilder, group: Group) -> Backward:
    """As conv_block, for 3x3 filters with stride 1: Winograd needs 36 products instead of 144."""
    conv = group[0]
    (height, width, filters), (_, _, channels) = conv.output_shape, conv.input_shapes[0]
    flop = 2 * 36 * -(-height // 4) * -(-width // 4) * filters * channels
    attributes: Attributes = {"padding": conv.attributes["padding"]}
    return _in_planes(build, group, "winograd_conv2d", (36, filters, channels), flop, attributes)


def winograd_upsample_conv_block(build: PlanBuilder, group: Group) -> Backward:
    """As upsample_conv_block, by 25 products for 4x4 outputs, where phase weights need 64."""
    upsample, conv = group[:2]
    (height, width, channels), filters = upsample.input_shapes[0], conv.attributes["filters"]
    flop = 2 * 25 * -(-height // 2) * -(-width // 2) * filters * channels
    return _in_planes(build, group, "winograd_upsample_conv2d", (25, filters, channels), flop, {})


def _in_planes(
    build: PlanBuilder,
    group: Group,
    operation: str,
    planes: Shape,
    flop: int,
    attributes: Attributes,
) -> Backward:
    """_block on a weight that is transformed first; planes: the shape of what it becomes."""
    conv = next(layer for layer in group if layer.parameters)
    transformed = build.values.derived(f"{conv.name}.transformed", planes)
    build.steps.add(
        f"{operation}_weight",
        group,
        {"weight": build.values.parameter(f"{conv.name}.weight")},
        {"transformed": transformed},
    )
    return _block(build, group, operation, {"transformed": transformed}, flop, attributes)


def upsample_conv_block(build: PlanBuilder, group: Group) -> Backward:
    """Nearest upsampling by 2, conv2d 3x3 and optionally ReLU as one 4x4 transposed convolution
    with stride 2.

    A pixel repeated 2x2 meets several taps of the 3x3 filter; phase weights, which are those taps
    added up once, leave 16 products per input pixel, channel and filter instead of 36.
    """
    upsample, conv = group[:2]
    phase_weights = build.values.derived(
        f"{conv.name}.phase_weights", (upsample.output_shape[2], 4, 4, conv.attributes["filters"])
    )
    build.steps.add(
        "decompose_weight",
        group,
        {"weight": build.values.parameter(f"{conv.name}.weight")},
        {"phase_weights": phase_weights},
    )
    return _block(
        build,
        group,
        "upsample_conv2d",
        {"phase_weights": phase_weights},
        flop_of_phases(conv),
        {},
    )


def _block(
    build: PlanBuilder,
    group: Group,
    operation: str,
    weight: dict[str, str],
    flop: int,
    attributes: Attributes,
) -> Backward:
    """A convolution in any form with its fused layers; weight: {role: buffer} it reads as weight;
    flop: forward pass.
    """
    conv, last = next(layer for layer in group if layer.parameters), group[-1]
    kinds = [layer.kind for layer in group]
    x, y = build.values.source(group[0]), build.values.activation(last)
    bias = {"bias": build.values.parameter(f"{conv.name}.bias")} if conv.attributes["bias"] else {}
    index = {"index": build.values.mask(last)} if "maxpool2d" in kinds else {}
    relu = "relu" in kinds
    build.steps.add(
        f"{operation}_forward",
        group,
        {"x": x, **weight, **bias},
        {"y": y, **index},
        flop=flop,
        **attributes,
        relu=relu,
    )

    def backward() -> None:
        """Weight and input gradient cost as much as the forward pass each; images need no input
        gradient.
        """
        reads = {"x": x, **weight, "y": y, **index, "dy": build.gradients.total(y)}
        writes = {
            f"d{role}": build.values.parameter_gradient(f"{conv.name}.{role}")
            for role in ("weight", *bias)
        }
        more = {"dx": build.gradients.part(x)} if build.gradients.is_wanted(x) else {}
        build.steps.add(
            f"{operation}_backward",
            group,
            reads,
            {**writes, **more},
            flop=2 * flop if more else flop,
            **attributes,
            relu=relu,
        )

    return backward


def winner_block(build: PlanBuilder, group: Group) -> Backward:
    """conv2d, ReLU, winner-take-all, conv2d: between the convolutions only winners are stored and
    used.
    """
    conv, _, sparse, decode = group
    x, weight, bias = convolution(build, conv)
    decode_weight, decode_bias = (
        build.values.parameter(f"{decode.name}.{role}") for role in ("weight", "bias")
    )
    (height, width, filters), y = conv.output_shape, build.values.activation(decode)
    winners = sparse.attributes["winners"]
    code = {
        role: build.values.kept(
            f"{sparse.name}.{role}", (build.values.batch, winners, 1, filters), dtype
        )
        for role, dtype in (("value", build.values.dtype), ("place", "int32"))
    }
    inside: Attributes = {"padding": conv.attributes["padding"]}
    outside: StepAttributes = {"padding": decode.attributes["padding"], "width": width}
    products = 2 * winners * filters * decode.attributes["kernel"] ** 2 * decode.output_shape[2]
    build.steps.add(
        "winner_conv2d_forward",
        (conv,),
        {"x": x, "weight": weight, "bias": bias},
        code,
        flop=2 * conv.macs,
        images=lasting_images(build, sparse),
        **inside,
    )
    build.steps.add(
        "winner_decode_forward",
        group,
        {**code, "weight": decode_weight, "bias": decode_bias},
        {"y": y},
        flop=products,
        **outside,
    )

    def backward() -> None:
        dvalue = build.values.workspace(
            f"{sparse.name}.dvalue", (build.values.batch, winners, 1, filters), build.values.dtype
        )
        build.steps.add(
            "winner_decode_backward",
            (decode,),
            {**code, "weight": decode_weight, "dy": build.gradients.total(y)},
            {"dvalue": dvalue, **weight_gradients(build, decode)},
            flop=2 * products,
            **outside,
        )
        more = (
            ({"weight": weight}, {"dx": build.gradients.part(x)})
            if build.gradients.is_wanted(x)
            else ({}, {})
        )
        build.steps.add(
            "winner_conv2d_backward",
            group,
            {"x": x, "place": code["place"], "dvalue": dvalue, **more[0]},
            {**weight_gradients(build, conv), **more[1]},
            flop=2 * winners * conv.macs // (height * width),
            **inside,
        )

    return backward


def with_stride_1_and_bias(group: Group) -> bool:
    """True if both convolutions of a winner_block have stride 1 and a bias."""
    conv, _, _, decode = group
    return all(
        layer.attributes["stride"] == 1 and layer.attributes["bias"] for layer in (conv, decode)
    )


def contrast_block(build: PlanBuilder, group: Group) -> None:
    """A convolution, divided by the local contrast of its input."""
    _with_what_follows(build, group, "conv2d_forward", relu=False)


def code_block(build: PlanBuilder, group: Group) -> None:
    """A convolution, optionally divided by the local contrast of its input, then soft threshold and
    average pooling.
    """
    *_, threshold, pool = group
    _with_what_follows(
        build, group, "conv2d_code_forward", **threshold.attributes, pool=pool.attributes
    )


def _with_what_follows(
    build: PlanBuilder, group: Group, operation: str, **attributes: Unpack[StepAttributes]
) -> None:
    """A convolution and the layers behind it as one forward step; the contrast, if it is the next
    one, is that of its image.
    """
    conv, second = group[:2]
    step_attributes: StepAttributes = {**attributes, **sliding(conv)}
    operands = {
        "x": build.values.source(conv),
        "weight": build.values.parameter(f"{conv.name}.weight"),
    }
    if conv.attributes["bias"]:
        operands["bias"] = build.values.parameter(f"{conv.name}.bias")
    if second.kind == "local_contrast":
        operands["image"], step_attributes["contrast"] = (
            build.values.value(second.inputs[1]),
            second.attributes,
        )
    build.steps.add(
        operation,
        group,
        operands,
        {"y": build.values.activation(group[-1])},
        flop=2 * conv.macs,
        **step_attributes,
    )


def approximate_conv(build: PlanBuilder, group: Group) -> Backward:
    """conv2d or dense without fusion; multiplies exactly the pairs of the layer's definition."""
    (conv,) = group
    (x, weight, bias), y = convolution(build, conv), build.values.activation(conv)
    build.steps.add(
        "approximate_conv2d_forward",
        group,
        {"x": x, "weight": weight, "bias": bias},
        {"y": y},
        flop=2 * conv.macs,
        **sliding(conv),
    )

    def backward() -> None:
        operands = {"x": x, "weight": weight, "dy": build.gradients.total(y)}
        product_gradients(build, "approximate_conv2d", conv, operands, sliding(conv))

    return backward


def batchnorm_block(build: PlanBuilder, group: Group) -> Backward | None:
    """Batch normalization and optionally ReLU."""
    norm, relu = group[0], len(group) == 2
    x, y = build.values.source(norm), build.values.activation(group[-1])
    reads, written, backward_reads = batchnorm_operands(build, norm)
    if not build.training:
        build.steps.add(
            "batchnorm_inference",
            group,
            {"x": x, **reads},
            {"y": y},
            epsilon=norm.attributes["epsilon"],
            relu=relu,
        )
        return None
    build.steps.add(
        "batchnorm_forward",
        group,
        {"x": x, **reads},
        {"y": y, **written},
        relu=relu,
        **norm.attributes,
    )

    def backward() -> None:
        build.steps.add(
            "batchnorm_backward",
            group,
            {"x": x, **backward_reads, "bias": reads["bias"], "dy": build.gradients.total(y)},
            {"dx": build.gradients.part(x), **batchnorm_gradients(build, norm)},
            relu=relu,
        )

    return backward


def add_relu(build: PlanBuilder, group: Group) -> Backward:
    """The sum of two layers, then ReLU; both terms receive the ReLU's gradient."""
    (a, b), y = build.values.sources(group[0]), build.values.activation(group[1])
    build.steps.add("add_forward", group, {"a": a, "b": b}, {"y": y}, relu=True)

    def backward() -> None:
        dy, left = build.gradients.total(y), build.gradients.part(a)
        build.steps.add("relu_backward", group, {"y": y, "dy": dy}, {"dx": left})
        build.gradients.pass_on(b, left)

    return backward


def _suits_winograd(group: Group) -> bool:
    conv = group[0]
    (height, width, filters), channels = conv.output_shape, conv.input_shapes[0][2]
    return (
        (conv.attributes["kernel"], conv.attributes["stride"]) == (3, 1)
        and min(filters, channels) >= NARROW
        and min(height, width) > 2
    )


def _suits_winograd_upsampling(group: Group) -> bool:
    upsample, conv = group[:2]
    height, width, channels = upsample.input_shapes[0]
    wide = min(channels, conv.attributes["filters"]) >= NARROW and min(height, width) > 1
    return wide and is_same_3x3(group)


# Longest first: the plan takes the first match.
RUNG = Implementation(
    (
        Pattern(
            ("conv2d", "relu", "winner_take_all", "conv2d"),
            winner_block,
            with_stride_1_and_bias,
            exact_only=True,
        ),
        Pattern(
            ("conv2d", "local_contrast", "soft_threshold", "avgpool2d"), code_block, exact_only=True
        ),
        Pattern(("conv2d", "soft_threshold", "avgpool2d"), code_block, exact_only=True),
        Pattern(("conv2d", "local_contrast"), contrast_block, exact_only=True),
        Pattern(
            ("conv2d", "relu", "maxpool2d"),
            winograd_block,
            lambda group: is_2x2(group[2]) and _suits_winograd(group),
            exact_only=True,
        ),
        Pattern(
            ("conv2d", "relu", "maxpool2d"),
            conv_block,
            lambda group: is_2x2(group[2]),
            exact_only=True,
        ),
        *(
            Pattern(("upsample2d", "conv2d", *relu), block, suits, exact_only=True)
            for relu in (("relu",), ())
            for block, suits in (
                (winograd_upsample_conv_block, _suits_winograd_upsampling),
                (upsample_conv_block, is_same_3x3),
            )
        ),
        Pattern(("conv2d", "relu"), winograd_block, _suits_winograd, exact_only=True),
        Pattern(("conv2d", "relu"), conv_block, exact_only=True),
        Pattern(("dense", "relu"), conv_block, exact_only=True),
        Pattern(("batchnorm", "relu"), batchnorm_block),
        Pattern(("add", "relu"), add_relu),
        Pattern(("conv2d",), winograd_block, _suits_winograd, exact_only=True),
        Pattern(("conv2d",), conv_block, exact_only=True),
        Pattern(("dense",), conv_block, exact_only=True),
        Pattern(("conv2d",), approximate_conv),
        Pattern(("dense",), approximate_conv),
        Pattern(("batchnorm",), batchnorm_block),
        *LAYERS,
    )
)
