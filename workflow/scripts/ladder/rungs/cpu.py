"""The cpu rung: fused groups for the NumPy executor."""

from ..networks import INPUT
from ..patterns import Pattern, alone, conv_gradients


def conv_block(build, group):
    """conv2d with what follows it: ReLU and 2x2 max-pool, both optional."""
    conv, last = group[0], group[-1]
    kinds = [layer.kind for layer in group]
    x, weight, bias = conv.inputs[0], build.parameter(f"{conv.name}.weight"), build.parameter(f"{conv.name}.bias")
    y = build.activation(last)
    attributes = {"padding": conv.attributes["padding"], "relu": "relu" in kinds}
    index = {"index": build.mask(last)} if "maxpool2d" in kinds else {}
    build.forward("conv2d_forward", group, {"x": x, "weight": weight, "bias": bias}, {"y": y, **index},
                  flop=2 * conv.macs, **attributes)
    if build.training:
        build.backward("conv2d_backward", group, {"x": x, "weight": weight, "y": y, "dy": build.gradient(y), **index},
                       conv_gradients(build, weight, bias, x), flop=_backward_flop(2 * conv.macs, x), **attributes)


def upsample_conv_block(build, group):
    """Nearest upsampling by 2, then conv2d 3x3, then ReLU where there is one, as one 4x4 transposed convolution of stride 2.

    A pixel repeated 2x2 meets several taps of the 3x3 filter; adding up those taps once ('collapsed') leaves 16 products
    per input pixel, channel and filter where the plain form has 36.
    """
    upsample, conv, last = group[0], group[1], group[-1]
    x, weight, bias = upsample.inputs[0], build.parameter(f"{conv.name}.weight"), build.parameter(f"{conv.name}.bias")
    y = build.activation(last)
    collapsed = build.derived(f"{conv.name}.collapsed", (upsample.output_shape[2], 4, 4, conv.attributes["filters"]))
    flop = 2 * conv.macs * 16 // 36
    attributes = {"relu": last.kind == "relu"}
    build.forward("collapse_weight", group, {"weight": weight}, {"collapsed": collapsed})
    build.forward("upsample_conv2d_forward", group, {"x": x, "collapsed": collapsed, "bias": bias}, {"y": y},
                  flop=flop, **attributes)
    if build.training:
        build.backward("upsample_conv2d_backward", group,
                       {"x": x, "collapsed": collapsed, "y": y, "dy": build.gradient(y)},
                       conv_gradients(build, weight, bias, x), flop=_backward_flop(flop, x), **attributes)


def _backward_flop(forward, x):
    """The weight gradient costs what the forward pass costs, and so does the input gradient, which the images do not need."""
    return forward if x == INPUT else 2 * forward


def _is_same_3x3(group):
    conv = group[1].attributes
    return conv["kernel"] == 3 and conv["padding"] == 1


# Longest first: the plan takes the first that fits.
PATTERNS = (
    Pattern(("conv2d", "relu", "maxpool2d"), conv_block),
    Pattern(("upsample2d", "conv2d", "relu"), upsample_conv_block, _is_same_3x3),
    Pattern(("upsample2d", "conv2d"), upsample_conv_block, _is_same_3x3),
    Pattern(("conv2d", "relu"), conv_block),
    Pattern(("conv2d",), conv_block),
    Pattern(("relu",), alone),
    Pattern(("maxpool2d",), alone),
    Pattern(("upsample2d",), alone),
)
