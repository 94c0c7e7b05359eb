"""What a rung is made of: patterns turn groups of layers into operations, launches give operations kernels."""

import dataclasses
from collections.abc import Callable

from .networks import INPUT


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Consecutive layer kinds that become a rung's operations together.

    emit(build, group) appends the forward steps to the plan under construction (plan.Builder) and, in training, the backward
    steps, which the plan runs in reverse order of the groups; accepts: whether it covers layers with these attributes.
    """

    kinds: tuple
    emit: Callable
    accepts: Callable = lambda group: True


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


def alone(build, group):
    """A layer without parameters, as its own operation."""
    (layer,) = group
    x, y = layer.inputs[0], build.activation(layer)
    index = {"index": build.mask(layer)} if layer.kind == "maxpool2d" else {}
    build.forward(f"{layer.kind}_forward", group, {"x": x}, {"y": y, **index})
    if build.training and x != INPUT:
        kept = {"y": y} if layer.kind == "relu" else index
        build.backward(f"{layer.kind}_backward", group, {"dy": build.gradient(y), **kept}, {"dx": build.gradient(x)})


def conv_gradients(build, weight, bias, x):
    """What a convolution's backward pass writes, by role; the images need no gradient."""
    gradients = {"dweight": build.gradient(weight), "dbias": build.gradient(bias)}
    return gradients if x == INPUT else {**gradients, "dx": build.gradient(x)}
