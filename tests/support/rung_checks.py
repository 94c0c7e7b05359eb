"""Runs single steps of a GPU rung in the emulator, through the rung's own launch functions, every access watched."""

import dataclasses

import numpy as np

import cuda_emulator
import references
from emulated import KERNELS, load
from kernel_checks import gamma, integers, normal, poisoned
from ladder.arithmetic.multipliers import kernel_defines
from ladder.rungs import tiles
from ladder.rungs.patterns import Table
from ladder.training import plan
from ladder.training.plan import Step
from references import conv2d_input_grad, conv2d_weight_grad

ORDERS = ("forward", "reverse", "random")
# Largest deviation of small networks, where no rounding error changes the sign of a ReLU's input, by precision. Another order
# of a sum can round an operand to its neighbour, which is 1e-3 of it in TF32 and 8e-3 in bfloat16.
SMALL = {"float32": 5e-5, "tf32": 2e-3, "bfloat16": 5e-3}


class Shapes:
    """The part of plan.Builder that launch functions use."""

    multiprocessors = tiles.H200

    def __init__(self, arrays):
        self.arrays, self.batch = arrays, next((len(array) for array in arrays.values()), 0)
        self.buffers = arrays   # of which a dtype is asked

    def shape(self, name):
        return self.arrays[name].shape

    def workspace(self, name, shape, dtype="float32"):
        self.arrays[name] = poisoned(shape, dtype)
        return name


def run_step(launches, reads, writes, orders=ORDERS, operation="step", **attributes):
    """Run a step with arrays given by role; launches: the launch function. Returns its launches."""
    arrays = {**reads, **writes}
    found = made(launches, arrays, reads, writes, operation, **attributes)
    run_launches(found, arrays, orders)
    return found


def made(launches, arrays, reads, writes, operation="step", **attributes):
    """The launches of a step, as a plan completes them; its workspace joins the arrays."""
    step = Step(operation, "layer", {role: role for role in reads}, {role: role for role in writes}, attributes)
    defines = kernel_defines(attributes["multiplier"]) if "multiplier" in attributes else ()
    return tuple(dataclasses.replace(launch, defines=(*launch.defines, *defines)) for launch in launches(step, Shapes(arrays)))


def run_launches(launches, arrays, orders=ORDERS):
    for launch in launches:
        defines = tuple(f"-D{define}" for define in launch.defines)
        kernel = load(KERNELS / launch.source, defines).get_function(launch.entry)
        arguments = [passed(argument, arrays) for argument in launch.arguments]
        cuda_emulator.check(kernel, launch.grid, launch.block, arguments, launch.shared_bytes, orders)


def passed(argument, arrays):
    """What the emulator is given for a launch's argument."""
    if isinstance(argument, Table):
        return cuda_emulator.Table([arrays.get(word, word) for word in argument.words],
                                   [arrays[name] for name in argument.written])
    return arrays[argument] if isinstance(argument, str) else argument


def training_plan(variant, network, batch=64, multiprocessors=tiles.H200):
    settings = plan.Settings(network=network, variant=variant, batch_size=batch,
                             multipliers=plan.made_for(variant), multiprocessors=multiprocessors)
    return plan.training_plan(settings, plan.Dataset(batch, "uint8"), plan.Length(1, 1))


def kernel_folder(rung):
    """The folder below kernels/ of a rung's kernels; some rungs compile those of gpu_opt_v1 for other tiles."""
    return rung if (KERNELS / rung).is_dir() else "gpu_opt_v1"


def launches_of(made, rung):
    """(source, defines) of the rung's own launches in a plan."""
    return {(launch.source, launch.defines) for step in made.steps for launch in step.launches
            if launch.source.startswith(f"{kernel_folder(rung)}/")}


def convolution_launches(rung, shape, stride=1):
    """(source, defines) of a convolution's launches in all directions, without running them."""
    conv = Convolution(shape, integers, stride)
    arrays = {"x": conv.x, "dx": conv.x, "weight": conv.weight, "dweight": conv.weight, "bias": conv.bias, "dbias": conv.bias,
              "y": conv.dy, "dy": conv.dy}
    roles = {role: role for role in arrays}
    step = Step("step", "layer", roles, roles, {"padding": conv.padding, "stride": stride, "relu": False,
                                                 "kernel": conv.kernel})
    return {(launch.source, launch.defines)
            for operation in ("conv2d_forward", "conv2d_input_grad", "conv2d_weight_grad")
            for launch in rung.LAUNCHES[operation](step, Shapes(dict(arrays)))}


class Convolution:
    """One convolution by definition, in float64. shape: batch, height, width, channels, filters, kernel, padding."""

    def __init__(self, shape, values, stride=1):
        batch, self.height, self.width, channels, filters, self.kernel, self.padding = shape
        self.stride = stride
        self.x = values(batch, self.height, self.width, channels)
        self.weight = values(filters, self.kernel, self.kernel, channels, seed=1)
        self.bias = values(filters, seed=2)
        out = [(size + 2 * self.padding - self.kernel) // stride + 1 for size in (self.height, self.width)]
        self.output = (batch, *out, filters)
        self.dy = values(*self.output, seed=3)

    def forward(self, x, weight, bias):
        return references.conv2d(x, weight, bias, self.padding)[:, ::self.stride, ::self.stride]

    def input_grad(self, dy, weight):
        return conv2d_input_grad(self._stride_1(dy), weight, self.padding, self.height, self.width)

    def weight_grad(self, x, dy):
        return conv2d_weight_grad(x, self._stride_1(dy), self.padding, self.kernel)

    def _stride_1(self, dy):
        """dy of the same convolution with stride 1, zero for the additional outputs."""
        grow = 2 * self.padding - self.kernel + 1
        full = np.zeros((len(dy), self.height + grow, self.width + grow, dy.shape[3]), dy.dtype)
        full[:, ::self.stride, ::self.stride] = dy
        return full


def check_forward(launches, shape, stride=1, roundings=1):
    """Exact on small integers, within the bound of its longest sum otherwise; a NaN is kept and does not spread.

    roundings: errors of a float32 rounding that a product and its addition may make together; likewise in the gradients.
    """
    conv = Convolution(shape, integers, stride)
    for relu in (False, True):
        y = _forward(launches, conv, relu)
        expected = conv.forward(conv.x, conv.weight, conv.bias)
        assert np.array_equal(y, references.relu(expected) if relu else expected)

    conv = Convolution(shape, normal, stride)
    error = np.abs(_forward(launches, conv, True, ("random",)) - references.relu(conv.forward(conv.x, conv.weight, conv.bias)))
    terms = conv.weight[0].size + 1
    assert (error <= gamma(roundings * terms) * conv.forward(*map(np.abs, (conv.x, conv.weight, conv.bias)))).all()

    conv.x[0, -1, conv.width // 2] = np.nan   # reaches only the windows that hold it
    assert np.array_equal(np.isnan(_forward(launches, conv, True, ("forward",))),
                          np.isnan(conv.forward(conv.x, conv.weight, conv.bias)))


def check_input_grad(launches, shape, stride=1, roundings=1):
    conv = Convolution(shape, integers, stride)
    assert np.array_equal(_input_grad(launches, conv), conv.input_grad(conv.dy, conv.weight))

    conv = Convolution(shape, normal, stride)
    error = np.abs(_input_grad(launches, conv, ("random",)) - conv.input_grad(conv.dy, conv.weight))
    terms = conv.kernel ** 2 * len(conv.weight)
    assert (error <= gamma(roundings * terms) * conv.input_grad(np.abs(conv.dy), np.abs(conv.weight))).all()


def check_weight_grad(launches, shape, stride=1, roundings=1):
    """Of weight and bias."""
    conv = Convolution(shape, integers, stride)
    dweight, dbias = _weight_grad(launches, conv)
    assert np.array_equal(dweight, conv.weight_grad(conv.x, conv.dy))
    assert np.array_equal(dbias, conv.dy.sum(axis=(0, 1, 2)))

    conv = Convolution(shape, normal, stride)
    dweight, dbias = _weight_grad(launches, conv, ("random",))
    bound = gamma(roundings * conv.dy[..., 0].size)
    assert (np.abs(dweight - conv.weight_grad(conv.x, conv.dy))
            <= bound * conv.weight_grad(np.abs(conv.x), np.abs(conv.dy))).all()
    assert (np.abs(dbias - conv.dy.astype(float).sum(axis=(0, 1, 2)))
            <= bound * np.abs(conv.dy).astype(float).sum(axis=(0, 1, 2))).all()


def check_infinities(rung, channels):
    """Infinities are kept: beyond the last product both operands are zero, because 0 times infinity would be NaN."""
    conv = Convolution((1, 3, 4, channels, 12, 1, 0), lambda *shape, seed=0: np.ones(shape, np.float32))
    conv.x[..., 4] = conv.dy[..., 4] = conv.weight[4, ..., 4] = np.inf
    assert np.isposinf(_forward(rung.conv2d_forward, conv, False)).all()
    assert np.isposinf(_input_grad(rung.conv2d_input_grad, conv)).all()
    dweight, dbias = _weight_grad(rung.conv2d_weight_grad, conv)
    infinite = np.add.outer(np.arange(12) == 4, np.arange(channels) == 4)
    assert np.array_equal(dweight[:, 0, 0], np.where(infinite, np.inf, 12))
    assert np.array_equal(dbias, np.where(np.arange(12) == 4, np.inf, 12))


def _forward(launches, conv, relu, orders=ORDERS):
    y = poisoned(conv.output)
    run_step(launches, {"x": conv.x, "weight": conv.weight, "bias": conv.bias}, {"y": y}, orders,
             padding=conv.padding, stride=conv.stride, relu=relu)
    return y


def _input_grad(launches, conv, orders=ORDERS):
    dx = poisoned(conv.x.shape)
    run_step(launches, {"dy": conv.dy, "weight": conv.weight}, {"dx": dx}, orders, padding=conv.padding, stride=conv.stride)
    return dx


def _weight_grad(launches, conv, orders=ORDERS):
    dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
    run_step(launches, {"x": conv.x, "dy": conv.dy}, {"dweight": dweight, "dbias": dbias}, orders, padding=conv.padding,
             stride=conv.stride, kernel=conv.kernel)
    return dweight, dbias
