"""Runs single steps of a GPU rung in the emulator, through the rung's own launch functions, every
access watched.
"""

import contextlib
import dataclasses

import numpy as np

import cuda_emulator
import references
from emulated import KERNELS, load
from kernel_checks import integers, poisoned
from ladder.arithmetic.multipliers import kernel_defines
from ladder.plan import plan
from ladder.rungs import catalog, tiles
from ladder.rungs.launches import Step, Table

ORDERS = ("forward", "reverse", "random")
ONE_ORDER = ("random",)  # enough for what other tests run in all of them
_orders = [ORDERS]
# Largest deviation of small networks, where no rounding error changes the sign of a ReLU's input,
# by precision. Another order of a sum can round an operand to its neighbour, which is 1e-3 of it in
# TF32 and float16 and 8e-3 in bfloat16.
SMALL = {"float32": 5e-5, "tf32": 2e-3, "bfloat16": 5e-3, "float16": 3e-3}


class Shapes:
    """The part of a Builder that launch functions use."""

    multiprocessors = tiles.H200

    def __init__(self, arrays):
        self.arrays, self.batch = arrays, next((len(array) for array in arrays.values()), 0)
        self.buffers = arrays  # of which a dtype is asked

    def shape(self, name):
        return self.arrays[name].shape

    def workspace(self, name, shape, dtype="float32"):
        self.arrays[name] = poisoned(shape, dtype)
        return name


@contextlib.contextmanager
def in_one_order():
    """Context manager: steps run in ONE_ORDER, if nothing else is said."""
    _orders.append(ONE_ORDER)
    try:
        yield
    finally:
        _orders.pop()


def run_step(launches, reads, writes, orders=None, operation="step", **attributes):
    """Run a step with arrays given by role; launches: the launch function. Returns its launches."""
    arrays = {**reads, **writes}
    found = completed_launches(launches, arrays, reads, writes, operation, **attributes)
    run_launches(found, arrays, orders)
    return found


def run_forward(launches, reads, conv, **attributes):
    """y of a Convolution whose operands the launch function reads so; attributes: "relu" and what
    else the function reads.
    """
    y = poisoned(conv.output)
    run_step(launches, reads, {"y": y}, **attributes)
    return y


def run_input_grad(launches, reads, conv, stride=1):
    """dx, from packed operands; stride: of the convolution of dy that it is."""
    dx = poisoned(conv.x.shape)
    zeros = np.zeros(dx.shape[3], np.float32)
    run_step(launches, {**reads, "zeros": zeros}, {"dx": dx}, stride=stride)
    return dx


def run_weight_grad(launches, reads, conv, **attributes):
    """(dweight, dbias)."""
    made = {"dweight": poisoned(conv.weight.shape), "dbias": poisoned(conv.bias.shape)}
    run_step(launches, reads, made, **attributes)
    return tuple(made.values())


def completed_launches(launches, arrays, reads, writes, operation="step", **attributes):
    """The launches of a step, as a plan completes them; its workspace joins the arrays."""
    step = Step(
        operation,
        "layer",
        {role: role for role in reads},
        {role: role for role in writes},
        attributes,
    )
    defines = kernel_defines(attributes["multiplier"]) if "multiplier" in attributes else ()
    return tuple(
        dataclasses.replace(launch, defines=(*launch.defines, *defines))
        for launch in launches(step, Shapes(arrays))
    )


def run_launches(launches, arrays, orders=None):
    for launch in launches:
        defines = tuple(f"-D{define}" for define in launch.defines)
        kernel = load(KERNELS / launch.source, defines).get_function(launch.entry)
        arguments = [passed(argument, arrays) for argument in launch.arguments]
        cuda_emulator.check(
            kernel, launch.grid, launch.block, arguments, launch.shared_bytes, orders or _orders[-1]
        )


def passed(argument, arrays):
    """What the emulator is given for a launch's argument."""
    if isinstance(argument, Table):
        return cuda_emulator.Table(
            [arrays.get(word, word) for word in argument.words],
            [arrays[name] for name in argument.written],
        )
    return arrays[argument] if isinstance(argument, str) else argument


def training_plan(rung, network, batch=64, multiprocessors=tiles.H200):
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=batch,
        multipliers=plan.made_for(rung),
        multiprocessors=multiprocessors,
    )
    return plan.training_plan(settings, plan.Dataset(batch, "uint8"), plan.Length(1, 1))


def kernel_folder(rung):
    """The folder below kernels/ of a rung's kernels; some rungs compile those of a rung below for
    other tiles or numbers.
    """
    folder = "packed" if rung == "gpu_tf32" else rung
    return folder if (KERNELS / folder).is_dir() else kernel_folder(catalog.RUNGS[rung].below)


def launches_of(made, rung):
    """(source, defines) of the rung's own launches in a plan."""
    return {
        (launch.source, launch.defines)
        for step in made.steps
        for launch in step.launches
        if launch.source.startswith(f"{kernel_folder(rung)}/")
    }


def convolution_launches(rung, shape, stride=1):
    """(source, defines) of a convolution's launches in all directions, without running them."""
    conv = Convolution(shape, integers, stride)
    arrays = {
        "x": conv.x,
        "dx": conv.x,
        "weight": conv.weight,
        "dweight": conv.weight,
        "bias": conv.bias,
        "dbias": conv.bias,
        "y": conv.dy,
        "dy": conv.dy,
    }
    attributes = {"padding": conv.padding, "stride": stride, "relu": False, "kernel": conv.kernel}
    return {
        (launch.source, launch.defines)
        for operation in ("conv2d_forward", "conv2d_input_grad", "conv2d_weight_grad")
        for launch in completed_launches(
            rung.RUNG.launches[operation], dict(arrays), arrays, arrays, **attributes
        )
    }


class Convolution:
    """One convolution by definition, in float64. shape: batch, height, width, channels, filters,
    kernel, padding.
    """

    def __init__(self, shape, values, stride=1):
        batch, self.height, self.width, channels, filters, self.kernel, self.padding = shape
        self.stride = stride
        self.x = values(batch, self.height, self.width, channels)
        self.weight = values(filters, self.kernel, self.kernel, channels, seed=1)
        self.bias = values(filters, seed=2)
        self.output = (
            batch,
            *references.slid(self.height, self.width, self.kernel, stride, self.padding),
            filters,
        )
        self.dy = values(*self.output, seed=3)

    def forward(self, x, weight, bias):
        return references.conv2d(x, weight, bias, self.padding, self.stride)

    def input_grad(self, dy, weight):
        return references.conv2d_input_grad(
            dy, weight, self.padding, self.height, self.width, self.stride
        )

    def weight_grad(self, x, dy):
        return references.conv2d_weight_grad(x, dy, self.padding, self.kernel, self.stride)


class Upsampled(Convolution):
    """A 3x3 convolution of an image that is upsampled; shape: batch, height, width, channels of the
    small image, filters.
    """

    def __init__(self, shape, values):
        batch, height, width, channels, filters = shape
        super().__init__((batch, 2 * height, 2 * width, channels, filters, 3, 1), values)
        self.x = values(batch, height, width, channels, seed=6)

    def forward(self, x, weight, bias):
        return super().forward(references.upsample2d(x), weight, bias)

    def input_grad(self, dy, weight):
        return references.upsample2d_backward(super().input_grad(dy, weight))

    def weight_grad(self, x, dy):
        return super().weight_grad(references.upsample2d(x), dy)
