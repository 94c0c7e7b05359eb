"""A lesson: gpu_split_k with the ReLU behind a convolution as part of it, so that what it would
read is never written.
"""

import dataclasses

from ladder.rungs import gpu_split_k
from ladder.rungs.interface import Backward, Group, Pattern, PlanBuilder
from ladder.rungs.patterns import LAYER_PATTERNS, convolution, sliding, weight_gradients


def conv2d_relu(build: PlanBuilder, group: Group) -> Backward:
    """A convolution and its ReLU; backward, the ReLU's gradient first and then the convolution's
    three.
    """
    conv, relu = group
    x, weight, bias = convolution(build, conv)
    y = build.activation(relu)
    attributes, flop = sliding(conv), 2 * conv.macs
    build.step(
        "conv2d_forward",
        group,
        {"x": x, "weight": weight, "bias": bias},
        {"y": y},
        flop=flop,
        **attributes,
        relu=True,
    )

    def backward() -> None:
        writes, dy = (
            weight_gradients(build, conv),
            build.workspace(f"{conv.name}.gradient", build.shape(y)),
        )
        build.step("relu_backward", group, {"y": y, "dy": build.gradient(y)}, {"dx": dy})
        if build.wants_gradient(x):
            build.step(
                "conv2d_input_grad",
                group,
                {"dy": dy, "weight": weight},
                {"dx": build.gradient_part(x)},
                flop=flop,
                **attributes,
            )
        if conv.attributes["bias"]:
            build.step("conv2d_bias_grad", group, {"dy": dy}, {"dbias": writes["dbias"]})
        build.step(
            "conv2d_weight_grad",
            group,
            {"x": x, "dy": dy},
            {"dweight": writes["dweight"]},
            flop=flop,
            **attributes,
        )

    return backward


RUNG = dataclasses.replace(
    gpu_split_k.RUNG, patterns=(Pattern(("conv2d", "relu"), conv2d_relu), *LAYER_PATTERNS)
)
