"""The interface between a plan and its rung: what a rung is, what its functions read of a step and
ask of the plan under construction, and the launches that they return.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ladder.arithmetic.multipliers import ByDirection
from ladder.network.layers import Attributes, Layer
from ladder.network.networks import Network

Shape = tuple[int, ...]
Group = tuple[Layer, ...]
Word = int | str  # of a Table


@dataclasses.dataclass(frozen=True)
class Table:
    """An argument of a launch over many buffers: an int64 array on the GPU.

    words: numbers, and names of buffers, in whose place the array has addresses; written: buffers
    that the kernel may write.
    """

    words: tuple[Word, ...]
    written: frozenset[str]

    @property
    def buffers(self) -> set[str]:
        return {word for word in self.words if isinstance(word, str)}

    def array(self, address: Callable[[str], int]) -> NDArray[np.int64]:
        """The int64 array; address(name): a buffer's address."""
        return np.array(
            [address(word) if isinstance(word, str) else word for word in self.words], np.int64
        )


Argument = str | np.generic | Table


@dataclasses.dataclass(frozen=True)
class Launch:
    """How a GPU runs a step: kernel `entry` of the file `source` (below kernels/), compiled with
    `defines` (NAME=VALUE).

    grid, block: up to three sizes; arguments: in the kernel's order, each a buffer name, a NumPy
    scalar or a Table.
    """

    source: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    defines: tuple[str, ...] = ()
    stream: int = 0

    @property
    def buffers(self) -> set[str]:
        """The names of all buffers that the kernel may read or write."""
        named = {argument for argument in self.arguments if isinstance(argument, str)}
        return named.union(
            *(argument.buffers for argument in self.arguments if isinstance(argument, Table))
        )


@dataclasses.dataclass(frozen=True)
class LoweredStep:
    """One operation of a layer ("" of none); reads, writes: role of an operand -> buffer."""

    operation: str
    layer: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    attributes: Attributes


class HasAttributes(Protocol):
    """A layer or a step."""

    @property
    def attributes(self) -> Attributes: ...


class HasType(Protocol):
    """A buffer, of which kernels depend on the dtype."""

    @property
    def dtype(self) -> str: ...


class LaunchPlan(Protocol):
    """What a launch function asks of the plan: shapes, scratch memory, and the size of the GPU."""

    @property
    def buffers(self) -> Mapping[str, HasType]: ...

    @property
    def launches(self) -> "Mapping[str, LaunchFunction]": ...

    @property
    def multiprocessors(self) -> int: ...

    def shape(self, name: str) -> Shape: ...

    def workspace(self, name: str, shape: Shape, dtype: str = "float32") -> str: ...


LaunchFunction = Callable[[LoweredStep, LaunchPlan], tuple[Launch, ...]]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """Where a parameter's gradient is: whole in `buffer`, or the sum of its rows (parts), from
    `start` in each one on.

    phases: the parts are those of phase weights (kernels/gpu_opt_v2/weight_update.cu).
    """

    buffer: str
    in_parts: bool = False
    start: int = 0
    phases: bool = False


@dataclasses.dataclass(frozen=True)
class PackedGradient:
    """The packed gradient of a convolution's output, behind those of the ReLU and, but for
    packing.Columns, the pooling after it.

    writes  {role: buffer} of the step that makes it: as Packing.gradient, and "bias_partials", its
            sums over pixels, not rounded
    padding width of its border
    relu    whether that step applies the gradient of a ReLU
    index   buffer of the pooling's indices, which that step reads; "" without a pooling
    whole   buffer of the gradient in float32; "" where there is none
    """

    writes: dict[str, str]
    padding: int
    relu: bool
    index: str = ""
    whole: str = ""


class PlanBuilder(LaunchPlan, Protocol):
    """What a pattern asks of the plan: buffers of layers and gradients, to which it appends
    steps.
    """

    @property
    def network(self) -> Network: ...

    @property
    def layers(self) -> Group: ...

    @property
    def batch(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def multipliers(self) -> ByDirection: ...

    @property
    def training(self) -> bool: ...

    @property
    def with_loss(self) -> bool: ...

    @property
    def in_parts(self) -> bool: ...

    @property
    def loss_scale(self) -> float: ...

    @property
    def divisor(self) -> int: ...

    @property
    def packed_inputs(self) -> dict[str, str]: ...  # value -> buffer of it packed

    @property
    def packed_gradients(self) -> dict[str, PackedGradient]: ...  # of values

    @property
    def steps(self) -> Sequence[LoweredStep]: ...

    # Outputs of layers.

    def value(self, name: str) -> str: ...

    def source(self, layer: Layer) -> str: ...

    def sources(self, layer: Layer) -> list[str]: ...

    def activation(self, layer: Layer) -> str: ...

    def unstored(self, layer: Layer) -> None: ...

    def unchanged(self, layer: Layer) -> None: ...

    def sole_reader(self, name: str) -> Layer | None: ...

    def has_phases(self, group: Group) -> bool: ...

    # Buffers by kind.

    def parameter(self, name: str) -> str: ...

    def parameter_gradient(self, name: str) -> str: ...

    def copies(self, name: str, shapes: Mapping[str, Shape], dtype: str) -> dict[str, str]: ...

    def state(self, name: str) -> str: ...

    def mask(self, layer: Layer, name: str = "index") -> str: ...

    def kept(self, name: str, shape: Shape, dtype: str | None = None) -> str: ...

    def derived(self, name: str, shape: Shape) -> str: ...

    def zeros(self, name: str, shape: Shape) -> str: ...

    def by_step(self, name: str) -> str: ...

    # Steps and gradients.

    def step(
        self,
        operation: str,
        group: Group,
        reads: Mapping[str, str],
        writes: Mapping[str, str],
        flop: int = 0,
        **attributes: object,
    ) -> None: ...

    def extend_step(self, writes: Mapping[str, str], **attributes: object) -> None: ...

    def wants_gradient(self, value: str) -> bool: ...

    def gradient(self, value: str) -> str: ...

    def gradient_part(self, value: str) -> str: ...

    def pass_gradient(self, value: str, buffer: str) -> None: ...

    def leave_in_parts(self, gradients: Mapping[str, Gradient]) -> None: ...


Backward = Callable[[], None]
Emit = Callable[[PlanBuilder, Group], Backward | None]


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Consecutive layer kinds that a rung lowers together; each layer's output is read by the next
    one alone.

    emit        appends the forward steps of a group to the plan under construction; returns what
                appends the backward steps, or None if there are none
    accepts     whether it covers layers with these attributes
    fits        whether it covers them among these other layers and with this arithmetic
    exact_only  valid for exact multiplication only: the operation takes no multiplier, or
                multiplies other numbers (Winograd)
    decomposes  for an upsampling and the convolution behind it where the plan asks for phase
                weights (Builder.decomposes), and nowhere else
    """

    kinds: tuple[str, ...]
    emit: Emit
    accepts: Callable[[Group], bool] = lambda group: True
    fits: Callable[[PlanBuilder, Group], bool] = lambda build, group: True
    exact_only: bool = False
    decomposes: bool = False


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A rung: how it computes a network. RUNG of its module, beside its row in catalog.RUNGS.

    patterns            in the order in which they are tried, the longest first
    launches            operation -> its launches; none on the CPU, whose executor has operations
    updates_together    whether one step updates all parameters (planning.frame.update)
    gradients_in_parts  whether weight gradients stay in parts, which that step adds
    """

    patterns: tuple[Pattern, ...]
    launches: Mapping[str, LaunchFunction] = dataclasses.field(default_factory=dict)
    updates_together: bool = False
    gradients_in_parts: bool = False

    def with_launches(self, launches: Mapping[str, LaunchFunction]) -> "Implementation":
        """This rung with other launches of these operations."""
        return dataclasses.replace(self, launches={**self.launches, **launches})

    def with_files(self, files: Mapping[str, str]) -> "Implementation":
        """This rung with kernels of other files; files: {file below kernels/: the file that takes
        its place}.
        """

        def from_files(function: LaunchFunction) -> LaunchFunction:
            return lambda step, build: tuple(
                dataclasses.replace(launch, source=files.get(launch.source, launch.source))
                for launch in function(step, build)
            )

        return self.with_launches(
            {operation: from_files(function) for operation, function in self.launches.items()}
        )


def implementation(rung: str) -> Implementation:
    """RUNG of the module rungs/<rung>.py, imported by name so that a version depends on the module
    of its own rung only.
    """
    opened: Implementation = importlib.import_module(f"ladder.rungs.{rung}").RUNG
    return opened
