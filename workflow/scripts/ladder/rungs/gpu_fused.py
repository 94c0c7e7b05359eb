"""A lesson: gpu_split_k with the ReLU behind a convolution as part of it, so that what it would
read is never written.
"""

import dataclasses

from ladder.rungs import gpu_split_k
from ladder.rungs.interface import Backward, Pattern, PlanBuilder
from ladder.rungs.launches import Group
from ladder.rungs.patterns import LAYER_PATTERNS, convolution, sliding, weight_gradients


def conv2d_relu(build: PlanBuilder, group: Group) -> Backward:
    """A convolution and its ReLU; backward, the ReLU's gradient first and then the convolution's
    three.
    """
    conv, relu = group
    x, weight, bias = convolution(build, conv)
    y = build.values.activation(relu)
    attributes, flop = sliding(conv), 2 * conv.macs
    build.steps.add(
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
            build.values.workspace(f"{conv.name}.gradient", build.values.shape(y)),
        )
        build.steps.add(
            "relu_backward", group, {"y": y, "dy": build.gradients.total(y)}, {"dx": dy}
        )
        if build.gradients.is_wanted(x):
            build.steps.add(
                "conv2d_input_grad",
                group,
                {"dy": dy, "weight": weight},
                {"dx": build.gradients.part(x)},
                flop=flop,
                **attributes,
            )
        if conv.attributes["bias"]:
            build.steps.add("conv2d_bias_grad", group, {"dy": dy}, {"dbias": writes["dbias"]})
        build.steps.add(
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
