"""A plan: what one batch takes, step by step, over buffers that are allocated once.

A step is data: an operation, the buffers it reads and writes, its attributes and its work. The plan does not know which
device runs it; the executor does not know which network it runs.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

import numpy as np

from . import optimizers
from .errors import UserError
from .networks import INPUT, Network
from .variants import rung

# Kind of work, by what is found in an operation's name; the first that fits.
WORK = (
    (r"conv2d.*(grad|backward)", "convolution backward"),
    (r"conv2d|collapse", "convolution forward"),
    (r"relu", "ReLU"),
    (r"maxpool", "pooling"),
    (r"upsample", "upsampling"),
    (r"mse", "loss"),
    (r"update|advance", "update"),
    (r"load_batch", "input"),
    (r"", "other"),
)


@dataclasses.dataclass(frozen=True)
class Buffer:
    """kind: dataset, control, parameter, gradient, optimizer, activation, mask, derived or workspace. Activations are NHWC."""

    name: str
    shape: tuple
    dtype: str
    kind: str

    @property
    def bytes(self):
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation. `reads` and `writes` map the operation's argument names to buffer names; flop counts a whole batch.

    launches: the kernels that compute it, in order, on a GPU rung.
    """

    operation: str
    layer: str
    reads: Mapping
    writes: Mapping
    attributes: Mapping
    flop: int = 0
    launches: tuple = ()

    @property
    def work(self):
        """What it counts as where times are summed up: 'convolution forward', for example."""
        return next(work for pattern, work in WORK if re.search(pattern, self.operation))


@dataclasses.dataclass(frozen=True)
class Plan:
    """steps in order over buffers (name -> Buffer); output: the buffer that holds what the network computes.

    kernels: (layers of a group, operation that computes them forward), in order.
    """

    network: Network
    variant: str
    batch: int
    buffers: Mapping
    steps: tuple
    kernels: tuple
    output: str

    @property
    def flop(self):
        """Floating-point operations of one run."""
        return sum(step.flop for step in self.steps)

    def bytes_by_kind(self):
        """Bytes of the plan's buffers by kind of buffer."""
        total = {}
        for buffer in self.buffers.values():
            total[buffer.kind] = total.get(buffer.kind, 0) + buffer.bytes
        return total


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The images a plan draws batches from: how many, and the dtype they are kept in."""

    rows: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Length:
    """How long a training run is, in steps."""

    steps: int
    steps_per_epoch: int


def training_plan(network, variant, batch, dataset, optimizer, length, gradient_scale="mean", dtype="float32",
                  fuse_update=True):
    """One training step: load a batch, forward, loss, backward, update.

    gradient_scale: 'mean' divides the gradient of the summed squared error by all elements of the batch, 'batch' by its
    images only. fuse_update: let a rung whose FUSES_UPDATE is set update weights where their gradient is computed; without
    it every gradient is there before the first update. Raises ValueError where the variant has no operation for a layer.
    """
    build = Builder(network, variant, batch, dtype, training=True)
    if fuse_update and getattr(build.rung, "FUSES_UPDATE", False):
        build.fused = optimizer, length
    build.load_batch(dataset)
    build.lower(network.layers)
    build.loss(gradient_scale, length)
    build.steps.extend(reversed(build.backward_steps))
    for name in network.parameters:
        if name not in build.updated:
            build.update(name, optimizer, length)
    build.advance()
    return build.plan()


def inference_plan(network, variant, batch, dataset, until=None, flip=False, dtype="float32"):
    """Load a batch (mirrored left to right with `flip`) and run forward to the layer `until`, by default the last."""
    build = Builder(network, variant, batch, dtype, training=False)
    build.load_batch(dataset, flip)
    names = [layer.name for layer in network.layers]
    build.lower(network.layers[:names.index(until or names[-1]) + 1])
    build.advance()
    return build.plan()


class Builder:
    """A plan under construction; the rung's patterns append to it."""

    def __init__(self, network, variant, batch, dtype, training):
        self.network, self.variant, self.batch, self.dtype, self.training = network, variant, batch, dtype, training
        self.rung = rung(variant)
        self.launches = getattr(self.rung, "LAUNCHES", None)   # on a GPU
        if self.launches is not None:
            self._refuse_what_32_bits_do_not_index()
        self.buffers, self.steps, self.backward_steps, self.kernels = {}, [], [], []
        self.fused = None      # (optimizer, length) for steps that update the weights whose gradient they compute
        self.updated = set()   # the parameters that such steps update
        self.output = INPUT

    def _refuse_what_32_bits_do_not_index(self):
        """Kernels index with int; they may also count elements of a layer that a fused group never writes."""
        largest = max(self.network.layers, key=lambda layer: math.prod(layer.output_shape))
        most = (2**31 - 1) // math.prod(largest.output_shape)
        if self.batch > most:
            raise UserError(f"batch_size {self.batch} gives layer {largest.name} more numbers than {self.variant} can index; "
                            f"set batch_size to {most} or less")

    def plan(self):
        steps = self.steps if self.launches is None else [
            dataclasses.replace(step, launches=self.launches[step.operation](step, self)) for step in self.steps]
        return Plan(self.network, self.variant, self.batch, self.buffers, tuple(steps), tuple(self.kernels), self.output)

    def lower(self, layers):
        """Cover the layers with the variant's patterns, at each place the first (longest) that fits."""
        while layers:
            pattern = self._pattern(layers)
            group, layers = layers[:len(pattern.kinds)], layers[len(pattern.kinds):]
            pattern.emit(self, group)
            self.kernels.append((tuple(layer.name for layer in group), self.steps[-1].operation))

    def _pattern(self, layers):
        for pattern in self.rung.PATTERNS:
            group = layers[:len(pattern.kinds)]
            if tuple(layer.kind for layer in group) == pattern.kinds and pattern.accepts(group):
                return pattern
        raise ValueError(f"variant {self.variant} has no operation for layer {layers[0].name} ({layers[0].kind})")

    def load_batch(self, dataset, flip=False):
        image = self.network.input_shape
        self.buffers[INPUT] = Buffer(INPUT, (self.batch, *image), self.dtype, "activation")
        reads = {"images": self._buffer("images", (dataset.rows, *image), dataset.dtype, "dataset"),
                 "permutation": self._control("permutation", (dataset.rows,), "int64"),
                 "counters": self._counters(),
                 "scale": self._control("scale", image[2:], "float32"),
                 "offset": self._control("offset", image[2:], "float32")}
        self._append(self.steps, "load_batch", "", reads, {"batch": INPUT}, flip=flip)

    def loss(self, gradient_scale, length):
        elements = math.prod(self.network.input_shape)
        divisor = {"mean": self.batch * elements, "batch": self.batch}[gradient_scale]
        losses = self._control("losses", (length.steps_per_epoch,), "float64")
        self._append(self.steps, "mse", "",
                     {"prediction": self.output, "target": INPUT, "counters": self._counters()},
                     {"gradient": self.gradient(self.output), "losses": losses},
                     flop=4 * elements * self.batch, divisor=divisor)

    def update(self, name, optimizer, length):
        reads = {"gradient": self.gradient(name), **self._schedule(length)}
        self._append(self.steps, f"{optimizer.name}_update", name.rpartition(".")[0], reads,
                     {"parameter": name, **self._averages(name, optimizer)}, **optimizers.attributes(optimizer))

    def fused_update(self, **parameters):
        """What a step needs to update `parameters` (role -> name) itself: (reads, writes, attributes); None where it must not.

        The step must come after every other that reads them. Writes have the roles given and '<role>.<running average>'.
        """
        if self.fused is None:
            return None
        optimizer, length = self.fused
        self.updated.update(parameters.values())
        writes = {}
        for role, name in parameters.items():
            averages = self._averages(name, optimizer)
            writes |= {role: name, **{f"{role}.{average}": buffer for average, buffer in averages.items()}}
        return self._schedule(length), writes, {"update": optimizer.name, **optimizers.attributes(optimizer)}

    def _averages(self, name, optimizer):
        return {average: self._buffer(f"{name}.{average}", self.network.parameters[name], self.dtype, "optimizer")
                for average in optimizers.AVERAGES[optimizer.name]}

    def _schedule(self, length):
        return {"counters": self._counters(),
                "learning_rates": self._control("learning_rates", (length.steps,), "float64")}

    def advance(self):
        self._append(self.steps, "advance", "", {}, {"counters": self._counters()}, batch=self.batch)

    def forward(self, operation, group, reads, writes, flop=0, **attributes):
        self._append(self.steps, operation, group[0].name, reads, writes, flop * self.batch, **attributes)

    def backward(self, operation, group, reads, writes, flop=0, **attributes):
        self._append(self.backward_steps, operation, group[0].name, reads, writes, flop * self.batch, **attributes)

    def activation(self, layer):
        self.output = layer.name
        return self._buffer(layer.name, (self.batch, *layer.output_shape), self.dtype, "activation")

    def mask(self, layer):
        return self._buffer(f"{layer.name}.index", (self.batch, *layer.output_shape), "uint8", "mask")

    def parameter(self, name):
        return self._buffer(name, self.network.parameters[name], self.dtype, "parameter")

    def derived(self, name, shape):
        return self._buffer(name, shape, self.dtype, "derived")

    def workspace(self, name, shape, dtype="float32"):
        """A buffer between the launches of one step."""
        return self._buffer(name, shape, dtype, "workspace")

    def shape(self, name):
        return self.buffers[name].shape

    def gradient(self, name):
        return self._buffer(f"{name}.gradient", self.buffers[name].shape, self.dtype, "gradient")

    def _counters(self):
        """What the host sets and the last step advances: [step, offset into the permutation, step of this epoch]."""
        return self._control("counters", (3,), "int64")

    def _control(self, name, shape, dtype):
        return self._buffer(name, shape, dtype, "control")

    def _buffer(self, name, shape, dtype, kind):
        self.buffers[name] = Buffer(name, tuple(shape), dtype, kind)
        return name

    @staticmethod
    def _append(steps, operation, layer, reads, writes, flop=0, **attributes):
        steps.append(Step(operation, layer, reads, writes, attributes, flop))
