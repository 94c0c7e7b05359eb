"""The first rung on a GPU: one kernel per operation, one thread per output element, global memory only."""

import math

import numpy as np

from ..networks import INPUT
from ..patterns import Launch, Pattern, alone

BLOCK = 256
LOSS_PARTS = 1024   # partial sums of the loss; the number is part of the result's bytes


def conv2d(build, group):
    """A convolution alone, its three gradients as operations of their own."""
    (conv,) = group
    x, weight, bias = conv.inputs[0], build.parameter(f"{conv.name}.weight"), build.parameter(f"{conv.name}.bias")
    y = build.activation(conv)
    padding, flop = conv.attributes["padding"], 2 * conv.macs
    build.forward("conv2d_forward", group, {"x": x, "weight": weight, "bias": bias}, {"y": y}, flop=flop, padding=padding)
    if build.training:
        dy = build.gradient(y)
        # The plan runs backward steps in reverse.
        build.backward("conv2d_weight_grad", group, {"x": x, "dy": dy}, {"dweight": build.gradient(weight)}, flop=flop,
                       padding=padding)
        build.backward("conv2d_bias_grad", group, {"dy": dy}, {"dbias": build.gradient(bias)})
        if x != INPUT:
            build.backward("conv2d_input_grad", group, {"dy": dy, "weight": weight}, {"dx": build.gradient(x)}, flop=flop,
                           padding=padding)


PATTERNS = (
    Pattern(("conv2d",), conv2d),
    Pattern(("relu",), alone),
    Pattern(("maxpool2d",), alone),
    Pattern(("upsample2d",), alone),
)


def integers(*values):
    return tuple(np.int32(value) for value in values)


def blocks(count, size=BLOCK):
    return -(-count // size)


def elements(build, name):
    return math.prod(build.shape(name))


def load_batch(step, build):
    reads, batch = step.reads, step.writes["batch"]
    entry = f"load_batch_{build.buffers[reads['images']].dtype}"
    arguments = (*(reads[role] for role in ("images", "permutation", "counters", "scale", "offset")), batch,
                 *integers(*build.shape(batch), step.attributes["flip"]))
    return _one("load_batch.cu", entry, elements(build, batch), arguments)


def conv2d_forward(step, build):
    reads, y = step.reads, step.writes["y"]
    _, height, width, filters = build.shape(y)
    grid = blocks(build.batch * height * width, 32), blocks(filters, 8)
    arguments = (reads["x"], reads["weight"], reads["bias"], y,
                 *_convolution(step, build, reads["x"], build.shape(reads["weight"])))
    return (Launch("gpu_basic/conv2d.cu", "conv2d_forward", grid, (8, 32), arguments),)


def conv2d_input_grad(step, build):
    dy, weight, dx = step.reads["dy"], step.reads["weight"], step.writes["dx"]
    return _one("conv2d.cu", "conv2d_input_grad", elements(build, dx),
                (dy, weight, dx, *_convolution(step, build, dx, build.shape(weight))))


def conv2d_weight_grad(step, build):
    x, dy, dweight = step.reads["x"], step.reads["dy"], step.writes["dweight"]
    return _one("conv2d.cu", "conv2d_weight_grad", elements(build, dweight),
                (x, dy, dweight, *_convolution(step, build, x, build.shape(dweight))))


def conv2d_bias_grad(step, build):
    dy, dbias = step.reads["dy"], step.writes["dbias"]
    (filters,) = build.shape(dbias)
    arguments = (dy, dbias, *integers(elements(build, dy) // filters, filters))
    return (Launch("gpu_basic/conv2d.cu", "conv2d_bias_grad", (blocks(filters, 32),), (32,), arguments),)


def relu_forward(step, build):
    x, y = step.reads["x"], step.writes["y"]
    return _one("relu.cu", "relu_forward", elements(build, y), (x, y, *integers(elements(build, y))))


def relu_backward(step, build):
    y, dy, dx = step.reads["y"], step.reads["dy"], step.writes["dx"]
    return _one("relu.cu", "relu_backward", elements(build, dx), (y, dy, dx, *integers(elements(build, dx))))


def maxpool2d_forward(step, build):
    x, y, index = step.reads["x"], step.writes["y"], step.writes["index"]
    return _one("maxpool2d.cu", "maxpool2d_forward", elements(build, y), (x, y, index, *integers(*build.shape(x))))


def maxpool2d_backward(step, build):
    dy, index, dx = step.reads["dy"], step.reads["index"], step.writes["dx"]
    return _one("maxpool2d.cu", "maxpool2d_backward", elements(build, dx), (dy, index, dx, *integers(*build.shape(dx))))


def upsample2d_forward(step, build):
    x, y = step.reads["x"], step.writes["y"]
    return _one("upsample2d.cu", "upsample2d_forward", elements(build, y), (x, y, *integers(*build.shape(x))))


def upsample2d_backward(step, build):
    dy, dx = step.reads["dy"], step.writes["dx"]
    return _one("upsample2d.cu", "upsample2d_backward", elements(build, dx), (dy, dx, *integers(*build.shape(dx))))


def mse(step, build):
    prediction, target, counters = (step.reads[role] for role in ("prediction", "target", "counters"))
    count = elements(build, prediction)
    partials = build.workspace("loss.partials", (LOSS_PARTS,))
    return (
        *_one("mse.cu", "mse_gradient", count, (prediction, target, step.writes["gradient"], *integers(count),
                                                np.float32(2 / step.attributes["divisor"]))),
        *_one("mse.cu", "mse_partials", LOSS_PARTS, (prediction, target, partials, *integers(count, LOSS_PARTS))),
        Launch("gpu_basic/mse.cu", "mse_total", (1,), (1,),
               (partials, counters, step.writes["losses"], *integers(count, LOSS_PARTS))),
    )


def update(*averages):
    """Launch function of an optimizer's update; averages: its running averages in the kernel's order."""
    def launches(step, build):
        parameter = step.writes["parameter"]
        count = elements(build, parameter)
        arguments = (parameter, *(step.writes[average] for average in averages), step.reads["gradient"],
                     step.reads["learning_rates"], step.reads["counters"], *integers(count),
                     *(np.float32(step.attributes[name]) for name in ("weight_decay", "clip", "momentum")
                       if name in step.attributes))
        return _one("update.cu", step.operation, count, arguments)

    return launches


def advance(step, build):
    return (Launch("gpu_basic/update.cu", "advance", (1,), (1,),
                   (step.writes["counters"], *integers(step.attributes["batch"]))),)


LAUNCHES = {
    **{function.__name__: function for function in (
        load_batch, conv2d_forward, conv2d_input_grad, conv2d_weight_grad, conv2d_bias_grad, relu_forward, relu_backward,
        maxpool2d_forward, maxpool2d_backward, upsample2d_forward, upsample2d_backward, mse, advance)},
    "sgd_update": update(),
    "momentum_update": update("velocity"),
    "rmsprop_update": update("square"),
    "adam_update": update("mean", "square"),
}


def _convolution(step, build, x, weight_shape):
    """batch, height, width, channels, filters, kernel, padding."""
    return integers(*build.shape(x), *weight_shape[:2], step.attributes["padding"])


def _one(file, entry, count, arguments):
    """One thread for each of `count` elements."""
    return (Launch(f"gpu_basic/{file}", entry, (blocks(count),), (BLOCK,), arguments),)
