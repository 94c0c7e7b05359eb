"""The cpu rung: fused groups for the NumPy executor."""

from ..patterns import LAYERS, Pattern, convolution, is_2x2, sliding, weight_gradients


def conv_block(build, group):
    """conv2d or dense with what follows it: ReLU and 2x2 max-pool, both optional."""
    conv, last = group[0], group[-1]
    kinds = [layer.kind for layer in group]
    x, weight, bias = convolution(build, conv)
    y = build.activation(last)
    attributes = {**sliding(conv), "relu": "relu" in kinds}
    index = {"index": build.mask(last)} if "maxpool2d" in kinds else {}
    build.step("conv2d_forward", group, {"x": x, "weight": weight, "bias": bias}, {"y": y, **index}, flop=2 * conv.macs,
               **attributes)
    return lambda: _conv_backward(build, group, "conv2d_backward", {"x": x, "weight": weight, "y": y, **index}, 2 * conv.macs,
                                  attributes)


def upsample_conv_block(build, group):
    """Nearest upsampling by 2, then conv2d 3x3, then ReLU where there is one, as one 4x4 transposed convolution of stride 2.

    A pixel repeated 2x2 meets several taps of the 3x3 filter; adding up those taps once ('collapsed') leaves 16 products
    per input pixel, channel and filter where the plain form has 36.
    """
    upsample, conv, last = group[0], group[1], group[-1]
    x, weight, bias = build.source(upsample), build.parameter(f"{conv.name}.weight"), build.parameter(f"{conv.name}.bias")
    y = build.activation(last)
    collapsed = build.derived(f"{conv.name}.collapsed", (upsample.output_shape[2], 4, 4, conv.attributes["filters"]))
    flop = 2 * conv.macs * 16 // 36
    attributes = {"relu": last.kind == "relu"}
    build.step("collapse_weight", group, {"weight": weight}, {"collapsed": collapsed})
    build.step("upsample_conv2d_forward", group, {"x": x, "collapsed": collapsed, "bias": bias}, {"y": y}, flop=flop,
               **attributes)
    return lambda: _conv_backward(build, group, "upsample_conv2d_backward", {"x": x, "collapsed": collapsed, "y": y}, flop,
                                  attributes)


def _conv_backward(build, group, operation, reads, flop, attributes):
    """The weight gradient costs what the forward pass costs, and so does the input gradient, which the images do not need."""
    conv = next(layer for layer in group if layer.parameters)
    writes = weight_gradients(build, conv)
    reads = {**reads, "dy": build.gradient(reads["y"])}
    if build.wants_gradient(reads["x"]):
        writes, flop = {**writes, "dx": build.gradient_part(reads["x"])}, 2 * flop
    build.step(operation, group, reads, writes, flop=flop, **attributes)


def _is_same_3x3(group):
    conv = group[1].attributes
    return (conv["kernel"], conv["padding"], conv["stride"], conv["bias"]) == (3, 1, 1, True)


# Longest first: the plan takes the first that fits.
PATTERNS = (
    Pattern(("conv2d", "relu", "maxpool2d"), conv_block, lambda group: is_2x2(group[2])),
    Pattern(("upsample2d", "conv2d", "relu"), upsample_conv_block, _is_same_3x3),
    Pattern(("upsample2d", "conv2d"), upsample_conv_block, _is_same_3x3),
    Pattern(("conv2d", "relu"), conv_block),
    Pattern(("conv2d",), conv_block),
    Pattern(("dense", "relu"), conv_block),
    Pattern(("dense",), conv_block),
    *LAYERS,
)
