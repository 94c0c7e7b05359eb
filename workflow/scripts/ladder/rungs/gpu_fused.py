"""A lesson: gpu_split_k with the ReLU behind a convolution as part of it, so that what it would
read is never written.
"""

import dataclasses

from ladder.rungs import gpu_split_k
from ladder.rungs.interface import Backward, Pattern, PlanBuilder
from ladder.rungs.launches import Group
from ladder.rungs.patterns import LAYER_PATTERNS, convolution, product_gradients, sliding


def conv2d_relu(build: PlanBuilder, group: Group) -> Backward:
    """A convolution and its ReLU; backward, the ReLU's gradient first and then the convolution's
    three.
    """
    conv, relu = group
    x, weight, bias = convolution(build, conv)
    y = build.values.activation(relu)
    build.steps.add(
        "conv2d_forward",
        group,
        {"x": x, "weight": weight, "bias": bias},
        {"y": y},
        flop=2 * conv.macs,
        **sliding(conv),
        relu=True,
    )

    def backward() -> None:
        dy = build.values.workspace(f"{conv.name}.gradient", build.values.shape(y))
        build.steps.add(
            "relu_backward", group, {"y": y, "dy": build.gradients.total(y)}, {"dx": dy}
        )
        operands = {"x": x, "weight": weight, "dy": dy}
        product_gradients(build, "conv2d", conv, operands, sliding(conv), bias_apart=True)

    return backward


RUNG = dataclasses.replace(
    gpu_split_k.RUNG, patterns=(Pattern(("conv2d", "relu"), conv2d_relu), *LAYER_PATTERNS)
)
