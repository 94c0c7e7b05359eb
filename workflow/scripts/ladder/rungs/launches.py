"""Steps of a plan and, on a GPU, the launches of kernels that compute them."""

import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ladder.arithmetic.multipliers import Chosen
from ladder.network.layers import KINDS, Attributes, Layer

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


Launches = tuple[Launch, ...]


# (pattern of an operation's name, category that its time is reported under), in the order of
# reports; the first match counts.
WORK = (
    (r"(conv2d|decompose)(?!.*(grad|backward))", "convolution forward"),
    (r"conv2d", "convolution backward"),
    *((f"^{name}_", kind.work) for name, kind in KINDS.items() if name != "conv2d"),
    (r"^winner_decode", "sparsity"),
    (r"mse|cross_entropy", "loss"),
    (r"quantise|rescale", "quantisation"),
    (r"update|advance|scale", "update"),
    (r"load|augmentation|jitter", "input"),
    (r"", "other"),
)


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


class StepAttributes(Attributes, total=False):
    """The attributes of steps, beside those of layers; each operation has some of them.
    docs/math.md defines them.

    multiplier  of products, where it is not exact
    gradients   parameter -> its Gradient, of one update of all parameters
    copies      parameter -> {role: buffer} of its copies
    pool, contrast
                attributes of layers that the step computes too
    """

    relu: bool
    flip: bool
    crop: int
    tangent: float
    colour: float
    seed: int
    stream: int
    batch: int
    images: int
    most: int
    width: int
    kept_padding: int
    divisor: int
    factor: float
    gradient_factor: float
    weight_decay: float
    clip: float
    momentum: float
    multiplier: Chosen
    gradients: Mapping[str, Gradient]
    copies: Mapping[str, Mapping[str, str]]
    pool: Attributes
    contrast: Attributes


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation of a layer ("" of none); reads, writes: role of an operand -> buffer; flop: for
    the whole batch.

    launches: on a GPU rung, the kernel launches that compute it, in order; pass_: 'load',
    'forward', 'backward' (from the loss on) or 'update', which its time is reported under too.
    """

    operation: str
    layer: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    attributes: StepAttributes
    flop: int = 0
    launches: Launches = ()
    pass_: str = ""

    def operands(self, *roles: str) -> tuple[str, ...]:
        """The buffers of these operands, read or written."""
        buffers = {**self.reads, **self.writes}
        return tuple(buffers[role] for role in roles)

    @property
    def work(self) -> str:
        """The category its time is reported under, e.g. 'convolution forward'."""
        return next(work for pattern, work in WORK if re.search(pattern, self.operation))
