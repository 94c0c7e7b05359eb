"""What a rung is made of: patterns turn groups of layers into operations, launches give operations kernels."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Consecutive layer kinds that become a rung's operations together, each read by the next one alone.

    emit(build, group) appends the forward steps to the plan under construction (plan.Builder) and returns a function that
    appends the backward steps, or None where there are none; accepts: whether it covers layers with these attributes;
    exact_only: it cannot be told which multiplier to use, or forms other products than the layers' definition has.
    """

    kinds: tuple
    emit: Callable
    accepts: Callable = lambda group: True
    exact_only: bool = False


@dataclasses.dataclass(frozen=True)
class Launch:
    """How a GPU runs a step: kernel `entry` of the file `source` (below kernels/), compiled with `defines` (NAME=VALUE).

    grid, block: up to three sizes; arguments: in the kernel's order, each a buffer's name or a NumPy scalar.
    """

    source: str
    entry: str
    grid: tuple
    block: tuple
    arguments: tuple
    shared_bytes: int = 0
    defines: tuple = ()
    stream: int = 0


# What the backward step of a layer without parameters reads beside the gradient: role -> of what the forward step wrote.
KEPT = {"relu": ("y",), "maxpool2d": ("index",)}


def alone(build, group):
    """A layer without parameters, as its own operation."""
    (layer,) = group
    x, y = build.source(layer), build.activation(layer)
    writes = {"y": y, **({"index": build.mask(layer)} if layer.kind == "maxpool2d" else {})}
    build.step(f"{layer.kind}_forward", group, {"x": x}, writes, **layer.attributes)

    def backward():
        kept = {role: writes[role] for role in KEPT.get(layer.kind, ())}
        build.step(f"{layer.kind}_backward", group, {"dy": build.gradient(y), **kept}, {"dx": build.gradient_part(x)},
                   **layer.attributes)

    return backward if build.wants_gradient(x) else None


def flatten(build, group):
    """A vector is flat as it is."""
    (layer,) = group
    if layer.input_shapes[0][:2] == (1, 1):
        return build.unchanged(layer)
    return alone(build, group)


def add(build, group):
    """The gradient of a sum is that of each of its terms."""
    (layer,) = group
    (a, b), y = build.sources(layer), build.activation(layer)
    build.step("add_forward", group, {"a": a, "b": b}, {"y": y})

    def backward():
        for value in (a, b):
            build.pass_gradient(value, build.gradient(y))

    return backward


def batchnorm(build, group):
    """In training with the batch's own statistics, which it keeps for the backward pass and adds to the running ones."""
    (layer,) = group
    x, y = build.source(layer), build.activation(layer)
    reads, written, backward_reads = batchnorm_operands(build, layer)
    if not build.training:
        build.step("batchnorm_inference", group, {"x": x, **reads}, {"y": y}, epsilon=layer.attributes["epsilon"])
        return None
    build.step("batchnorm_forward", group, {"x": x, **reads}, {"y": y, **written}, **layer.attributes)

    def backward():
        build.step("batchnorm_backward", group, {"x": x, **backward_reads, "dy": build.gradient(y)},
                   {"dx": build.gradient_part(x), **batchnorm_gradients(build, layer)})

    return backward


def batchnorm_operands(build, layer):
    """(what the forward step reads, what it writes in training, what the backward step reads), by role, beside x and y."""
    parameters = {role: build.parameter(f"{layer.name}.{role}") for role in ("weight", "bias")}
    running = {role: build.state(f"{layer.name}.{role}") for role in ("running_mean", "running_var")}
    if not build.training:
        return {**parameters, **running}, {}, {}
    kept = {role: build.kept(f"{layer.name}.{role}", layer.output_shape[2:]) for role in ("mean", "inverse")}
    return parameters, {**kept, **running}, {"weight": parameters["weight"], **kept}


def batchnorm_gradients(build, layer):
    return {f"d{role}": build.parameter_gradient(f"{layer.name}.{role}") for role in ("weight", "bias")}


def dropout(build, group):
    """Drawn for each value of the batch by seed, layer, step and place."""
    (layer,) = group
    if not build.training:
        return build.unchanged(layer)
    x, y, mask = build.source(layer), build.activation(layer), build.mask(layer, "mask")
    rate, stream = layer.attributes["rate"], build.network.layers.index(layer)
    build.step("dropout_forward", group, {"x": x, "counters": "counters"}, {"y": y, "mask": mask}, rate=rate, seed=build.seed,
               stream=stream)

    def backward():
        build.step("dropout_backward", group, {"dy": build.gradient(y), "mask": mask}, {"dx": build.gradient_part(x)},
                   rate=rate)

    return backward if build.wants_gradient(x) else None


def lrn(build, group):
    """Keeps the sums that it divides by."""
    (layer,) = group
    x, y = build.source(layer), build.activation(layer)
    sums = build.kept(f"{layer.name}.sums", build.shape(x))
    build.step("lrn_forward", group, {"x": x}, {"y": y, "sums": sums}, **layer.attributes)

    def backward():
        build.step("lrn_backward", group, {"x": x, "sums": sums, "dy": build.gradient(y)}, {"dx": build.gradient_part(x)},
                   **layer.attributes)

    return backward if build.wants_gradient(x) else None


def position_norm(build, group):
    """Keeps the length that it divides each pixel's vector by."""
    (layer,) = group
    x, y = build.source(layer), build.activation(layer)
    norms = build.kept(f"{layer.name}.norms", build.shape(x)[:3])
    build.step("position_norm_forward", group, {"x": x}, {"y": y, "norms": norms}, **layer.attributes)

    def backward():
        build.step("position_norm_backward", group, {"y": y, "norms": norms, "dy": build.gradient(y)},
                   {"dx": build.gradient_part(x)})

    return backward if build.wants_gradient(x) else None


def local_contrast(build, group):
    """The image whose windows are measured is its second input."""
    (layer,) = group
    (x, image), y = build.sources(layer), build.activation(layer)
    build.step("local_contrast_forward", group, {"x": x, "image": image}, {"y": y}, **layer.attributes)


# A layer each, for any attributes: the end of every rung's table.
LAYERS = (
    *(Pattern((kind,), alone) for kind in ("relu", "maxpool2d", "avgpool2d", "global_avgpool", "upsample2d", "pad")),
    Pattern(("flatten",), flatten),
    Pattern(("add",), add),
    Pattern(("batchnorm",), batchnorm),
    Pattern(("dropout",), dropout),
    Pattern(("lrn",), lrn),
    Pattern(("position_norm",), position_norm),
    Pattern(("local_contrast",), local_contrast),
    Pattern(("soft_threshold",), alone),
)


def convolution(build, conv):
    """(x, weight, bias) of a convolution or dense layer: buffers; where it has no bias, one that holds zeros."""
    bias = f"{conv.name}.bias"
    bias = build.parameter(bias) if conv.attributes["bias"] else build.zeros(f"{conv.name}.no_bias", conv.output_shape[2:])
    return build.source(conv), build.parameter(f"{conv.name}.weight"), bias


def weight_gradients(build, conv):
    """What a convolution's or dense layer's weight gradient writes, by role; without a bias its gradient is for nobody."""
    dbias = (build.parameter_gradient(f"{conv.name}.bias") if conv.attributes["bias"]
             else build.workspace(f"{conv.name}.no_bias.gradient", conv.output_shape[2:]))
    return {"dweight": build.parameter_gradient(f"{conv.name}.weight"), "dbias": dbias}


def is_2x2(pool):
    """Whether a pooling layer is of windows of 2x2 that lie side by side."""
    return (pool.attributes["window"], pool.attributes["stride"], pool.attributes["padding"]) == (2, 2, 0)


def sliding(conv):
    """How a convolution's windows lie, as its operations' attributes."""
    return {"stride": conv.attributes["stride"], "padding": conv.attributes["padding"]}


# Every layer as operations of its own: the plainest program there is.

def conv2d(build, group):
    """A convolution alone, its three gradients as operations of their own."""
    (conv,) = group
    return _product(build, conv, sliding(conv))


def dense(build, group):
    """As conv2d."""
    (layer,) = group
    return _product(build, layer, {})


def _product(build, layer, attributes):
    group, kind, flop = (layer,), layer.kind, 2 * layer.macs
    x, weight, bias = convolution(build, layer)
    y = build.activation(layer)
    build.step(f"{kind}_forward", group, {"x": x, "weight": weight, "bias": bias}, {"y": y}, flop=flop, **attributes)

    def backward():
        dy, writes = build.gradient(y), weight_gradients(build, layer)
        if build.wants_gradient(x):
            build.step(f"{kind}_input_grad", group, {"dy": dy, "weight": weight}, {"dx": build.gradient_part(x)}, flop=flop,
                       **attributes)
        if layer.attributes["bias"]:
            build.step(f"{kind}_bias_grad", group, {"dy": dy}, {"dbias": writes["dbias"]})
        build.step(f"{kind}_weight_grad", group, {"x": x, "dy": dy}, {"dweight": writes["dweight"]}, flop=flop, **attributes)

    return backward


LAYER_PATTERNS = (Pattern(("conv2d",), conv2d), Pattern(("dense",), dense), *LAYERS)
