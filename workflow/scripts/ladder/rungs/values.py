"""The buffers of a plan under construction, and which of them holds what."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ladder.network.layers import Layer
from ladder.network.networks import INPUT, Network
from ladder.rungs.launches import Launches, Shape, Step

# Kernels index with 32 bits. A launch's last block, and a loop whose threads take every n-th
# number, count up to some thousand numbers beyond the end.
MOST_INDEXED = 2**31 - 2**12
INDEXED_WITH_64_BITS = "dataset", "control"  # kinds of buffers


class TooLarge(Exception):
    """A buffer has more numbers than a kernel can index. most: the largest batch that a kernel can
    index, 0 if there is none.
    """

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name)
        self.name, self.most = name, most


@dataclasses.dataclass(frozen=True)
class Buffer:
    """kind: dataset, control, parameter, copy, state, gradient, optimizer, activation, mask,
    derived or workspace.

    Activations are NHWC. A copy is one of a parameter, in another form, that lasts from step to
    step.
    """

    name: str
    shape: Shape
    dtype: str
    kind: str

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Values:
    """Makes the buffers by their kinds, and knows the buffer of each layer's output.

    layers    those that are computed, in execution order
    output    the value of the last one so far
    buffers   name -> Buffer
    copied    parameter -> {role: buffer} of its copies
    launches  of the rung, none on the CPU; GPU kernels index with 32 bits, so where there are
              launches a buffer has at most MOST_INDEXED numbers
    multiprocessors
              of the GPU, for which tiles are chosen
    """

    def __init__(
        self,
        network: Network,
        layers: tuple[Layer, ...],
        batch: int,
        dtype: str,
        launches: "Mapping[str, LaunchFunction]",
        multiprocessors: int,
    ) -> None:
        self.network, self.layers, self.batch, self.dtype = network, layers, batch, dtype
        self.launches, self.multiprocessors = launches, multiprocessors
        for layer in layers:  # also one that a fused group never writes: kernels count its pixels
            self._check_indices(layer.name, (batch, *layer.output_shape))
        self.buffers: dict[str, Buffer] = {}
        self.output = INPUT
        self._buffer_of = {INPUT: INPUT}  # layer -> buffer of its output
        self._unstored: dict[str, Shape] = {}  # value that no buffer holds as it is -> its shape
        self.copied: dict[str, dict[str, str]] = {}
        self._readers = collections.Counter(name for layer in layers for name in layer.inputs)

    # Outputs of layers.

    def value(self, name: str) -> str:
        """The buffer with the output of layer `name`, or with the images."""
        return self._buffer_of[name]

    def source(self, layer: Layer) -> str:
        """The buffer with the layer's only input."""
        (name,) = layer.inputs
        return self.value(name)

    def sources(self, layer: Layer) -> list[str]:
        """The buffers with the layer's inputs."""
        return [self.value(name) for name in layer.inputs]

    def activation(self, layer: Layer) -> str:
        """A new buffer for the layer's output."""
        self.output = self._buffer_of[layer.name] = layer.name
        return self.buffer(layer.name, (self.batch, *layer.output_shape), self.dtype, "activation")

    def unstored(self, layer: Layer) -> None:
        """The layer's output gets no buffer: the kernel that computes it writes it in the form that
        its only reader needs.

        Such a form is a copy in bfloat16 with a border of zeros, for which the rung makes a buffer
        of its own.
        """
        self.output = self._buffer_of[layer.name] = layer.name
        self._unstored[layer.name] = (self.batch, *layer.output_shape)

    def unchanged(self, layer: Layer) -> None:
        """The layer's output is its first input, without a step."""
        self.output = self._buffer_of[layer.name] = self.value(layer.inputs[0])

    def is_chain(self, group: tuple[Layer, ...]) -> bool:
        """Whether each layer's first input is the previous layer, and no other layer reads that
        one.
        """
        return all(
            after.inputs[0] == layer.name and self._readers[layer.name] == 1
            for layer, after in itertools.pairwise(group)
        )

    def sole_reader(self, name: str) -> Layer | None:
        """The layer that follows layer `name`, if it alone reads it; else None."""
        names = [layer.name for layer in self.layers]
        following = self.layers[names.index(name) + 1 :][:1]
        return (
            following[0]
            if following and self._readers[name] == 1 and following[0].inputs == (name,)
            else None
        )

    # Buffers by kind.

    def parameter(self, name: str) -> str:
        return self.buffer(name, self.network.parameters[name], self.dtype, "parameter")

    def parameter_gradient(self, name: str) -> str:
        return self.buffer(
            f"{name}.gradient", self.network.parameters[name], self.dtype, "gradient"
        )

    def copies(self, name: str, shapes: Mapping[str, Shape], dtype: str) -> dict[str, str]:
        """{role: buffer} of copies of a parameter, rounded, which the rung's update keeps up to
        date (Plan.prologue).
        """
        self.copied[name] = {
            role: self.buffer(f"{name}.{role}", shape, dtype, "copy")
            for role, shape in shapes.items()
        }
        return self.copied[name]

    def copies_of(self, names: Iterable[str]) -> dict[str, str]:
        """{role of an operand: buffer} of the copies of these parameters."""
        return {
            f"{name}.{role}": buffer
            for name in names
            for role, buffer in self.copied.get(name, {}).items()
        }

    def state(self, name: str) -> str:
        return self.buffer(name, self.network.state[name], self.dtype, "state")

    def mask(self, layer: Layer, name: str = "index") -> str:
        return self.buffer(
            f"{layer.name}.{name}", (self.batch, *layer.output_shape), "uint8", "mask"
        )

    def kept(self, name: str, shape: Shape, dtype: str | None = None) -> str:
        """A buffer for values that the forward pass saves for the backward pass, by default of the
        plan's type.
        """
        return self.buffer(name, shape, dtype or self.dtype, "activation")

    def derived(self, name: str, shape: Shape) -> str:
        return self.buffer(name, shape, self.dtype, "derived")

    def workspace(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        """A scratch buffer between the launches of one step."""
        return self.buffer(name, shape, dtype, "workspace")

    def zeros(self, name: str, shape: Shape) -> str:
        """A buffer that holds zeros."""
        return self.buffer(name, shape, self.dtype, "control")

    def by_step(self, name: str) -> str:
        """A number for each step of an epoch, as the loss."""
        return self.buffer(name, self.shape("losses"), "float64", "control")

    def counters(self) -> str:
        """[step, offset into the permutation, step of this epoch]; set by the host, advanced by the
        last step.
        """
        return self.buffer("counters", (3,), "int64", "control")

    def shape(self, name: str) -> Shape:
        """Of a buffer, or of a value that is not stored."""
        return self.buffers[name].shape if name in self.buffers else self._unstored[name]

    def buffer(self, name: str, shape: Shape, dtype: str, kind: str) -> str:
        """The name of the Buffer, which is made where it is not there; ValueError if there is
        another one of this name.
        """
        buffer = Buffer(name, tuple(shape), dtype, kind)
        if self.buffers.setdefault(name, buffer) != buffer:
            raise ValueError(f"two buffers are called {name}: {self.buffers[name]} and {buffer}")
        if kind not in INDEXED_WITH_64_BITS:
            self._check_indices(name, shape)
        return name

    def _check_indices(self, name: str, shape: Shape) -> None:
        count = math.prod(shape)
        if self.launches and count > MOST_INDEXED:
            most = MOST_INDEXED // (count // self.batch) if self.batch in shape else 0
            raise TooLarge(name, most)


LaunchFunction = Callable[[Step, Values], Launches]
