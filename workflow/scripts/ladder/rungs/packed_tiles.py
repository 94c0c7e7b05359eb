"""Tiles of products of packed operands, and which of them takes the fewest cycles.

The shape alone chooses a tile, the same on every GPU, for the bytes of a result depend on it: on
the pixels over which a gradient's bias partials are summed, and on the number of parts of a weight
gradient.
"""

import dataclasses
import math

import numpy as np

from ladder.rungs.gpu_3xtf32 import FEW_COLUMNS, FEW_ROWS, LARGE, SQUARE, TALL, TensorTile
from ladder.rungs.gpu_basic import blocks
from ladder.rungs.launches import Shape
from ladder.rungs.tiles import Sides


@dataclasses.dataclass(frozen=True)
class NumberFormat:
    """Packed numbers, and the shared memory in which their products have to do.

    name            of the multiplier
    most_shared     bytes that a block may have on every GPU with such tensor cores
    stages          steps there, of kernels/packed/staged_tile.cuh
    stages_of_halo  the same of weight_grad_halo.cu
    dtype           of a copy
    defines         of all kernels
    products        of tensor cores for one of these numbers
    halves          elements of a copy for one of these
    chunk, step     elements in CHUNK_BYTES and in ROW
    squares         in a step of weight_grad_halo.cu
    """

    name: str
    most_shared: int
    stages: int
    stages_of_halo: int
    dtype: str = "uint16"
    defines: tuple[str, ...] = ()
    products: int = 1
    halves: int = 1

    @property
    def chunk(self) -> int:
        return CHUNK_BYTES // np.dtype(self.dtype).itemsize

    @property
    def step(self) -> int:
        return ROW // np.dtype(self.dtype).itemsize

    @property
    def squares(self) -> int:
        return 2 * self.chunk // SIDE


# which a thread copies at once; of a row of shared memory: kernels/common/packed.cuh
CHUNK_BYTES, ROW = 16, 128
SIDE = 8  # of a square of pixels: kernels/packed/weight_grad_halo.cu
BFLOAT16 = NumberFormat("bfloat16", 99 << 10, 3, 2)  # of sm_86 and sm_89, the least from sm_80 on
FLOAT16 = NumberFormat("float16", 64 << 10, 2, 1, defines=("MULTIPLIER=float16",))  # of sm_75
TF32 = NumberFormat("tf32", 99 << 10, 3, 2, "uint32", ("MULTIPLIER=tf32",))
FLOAT32 = NumberFormat("exact", 99 << 10, 3, 2, "uint32", ("MULTIPLIER=float32",), products=3)
# float32 as the sum of two float16, each multiplied by a power of two: kernels/common/packed.cuh.
# Activations up to 4,093, weights up to 255 and gradients of the loss up to 255, before the loss
# divides them (plan.exponents), do not exceed a half, and a 2^-19 of that has its last bits.
EXPONENTS = {"ACTIVATION": 4, "WEIGHT": 8, "GRADIENT": 8}
SCALES = tuple(f"{kind}_EXPONENT={exponent}" for kind, exponent in EXPONENTS.items())
HALVES = dataclasses.replace(
    FLOAT32, dtype="uint16", defines=("MULTIPLIER=halves", *SCALES), halves=2
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rectangle(TensorTile):
    """m pixels are a rectangle of one image, so many columns wide
    (kernels/packed/conv2d_halo.cu).
    """

    columns: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window(TensorTile):
    """m filters and n channels of all taps of a window of that side
    (kernels/packed/weight_grad_halo.cu).
    """

    kernel: int


PIXEL_TILES = FEW_COLUMNS, TALL, SQUARE, LARGE  # of those that take as long, the first
RECTANGLES = (
    Rectangle(128, 16, 32, 16, columns=16),
    Rectangle(256, 16, 64, 16, columns=16),
    Rectangle(128, 64, 64, 32, columns=16),
    Rectangle(64, 64, 32, 32, columns=8),
    Rectangle(128, 128, 64, 64, columns=16),
)
WINDOWS = tuple(
    Window(*sizes, kernel=kernel)
    for sizes in ((16, 64, 16, 16), (64, 64, 32, 16))
    for kernel in (2, 3)
)
HALO_KERNELS = 2, 3, 5  # sides of windows that conv2d_halo.cu has
MULTIPROCESSORS = 80, 108, 132, 148  # of GPUs that a tile is to keep busy
# Split-K of the weight gradients: multiprocessors of an H200 and the bytes that its memory gives
# them in a cycle; most splits.
SPLIT_MULTIPROCESSORS, MEMORY_BYTES, SPLITS = 132, 2172, 128
LINES_OF_PARTIAL = 64  # of a tile of a gradient, in a row of bias partials: copies.cuh


@dataclasses.dataclass(frozen=True)
class Sums:
    """The products of a convolution: height and width are the output's, channels those of the copy
    that is read.

    number_format: of the operands; phases: convolutions to the pixels of an upsampled image, each
    with filters of its own.
    """

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    kernel: int
    stride: int
    number_format: NumberFormat = BFLOAT16
    phases: int = 1

    @classmethod
    def from_input(
        cls, x: Shape, filters: int, kernel: int, stride: int, number_format: NumberFormat
    ) -> "Sums":
        """x: shape of the packed input, its border included."""
        batch, height, width, channels = x
        down, across = ((size - kernel) // stride + 1 for size in (height, width))
        return cls(batch, down, across, channels, filters, kernel, stride, number_format)


def pixel_tiles(shape: Sums, stored: bool = True) -> tuple[TensorTile, ...]:
    """Those that a convolution can have; stored: y is in float32 (copies.cuh)."""
    tiles = *PIXEL_TILES, *(tile for tile in RECTANGLES if slides_over(tile, shape))
    return tuple(
        tile
        for tile in tiles
        if (stored or tile.n % 64 == 0)
        and pixel_bytes(tile, shape, stored) <= shape.number_format.most_shared
    )


def pixel_tile(shape: Sums, stored: bool = True) -> TensorTile:
    """The tile that multiplies in the fewest cycles, on average over GPUs."""

    def cycles(tile: TensorTile) -> float:
        return _cycles(tile, shape) * sum(
            blocks(blocks_of(tile, shape), count) for count in MULTIPROCESSORS
        )

    return min(pixel_tiles(shape, stored), key=cycles)


def slides_over(tile: Rectangle, shape: Sums) -> bool:
    """Whether a halo in shared memory serves all taps."""
    return (
        shape.kernel in HALO_KERNELS
        and shape.stride == 1
        and shape.channels % shape.number_format.step == 0
    )


def pixel_bytes(tile: TensorTile, shape: Sums, stored: bool) -> int:
    """Shared memory of a block; stored: y is in float32."""
    steps = (
        halo_bytes(tile, shape)
        if isinstance(tile, Rectangle)
        else shared_bytes(tile, shape.number_format)
    )
    return steps if stored else max(steps, sums_bytes(tile))


def sums_bytes(tile: Sides) -> int:
    """Shared memory that a block's sums take on the way to packed results:
    kernels/packed/copies.cuh.
    """
    return int(4 * tile.m * (tile.n + 8))


def blocks_of(tile: TensorTile, shape: Sums) -> int:
    return _pixel_tiles(tile, shape) * blocks(shape.filters, tile.n) * shape.phases


def _pixel_tiles(tile: TensorTile, shape: Sums) -> int:
    if isinstance(tile, Rectangle):
        return (
            shape.batch
            * blocks(shape.height, tile.m // tile.columns)
            * blocks(shape.width, tile.columns)
        )
    return blocks(shape.batch * shape.height * shape.width, tile.m)


def rows_of_partials(shape: Sums, tile: TensorTile | None = None) -> int:
    """Rows of bias partials that a convolution leaves whose results are a gradient; tile: replaces
    the one of the shape.
    """
    tile = tile or pixel_tile(shape, stored=False)
    return _pixel_tiles(tile, shape) * tile.m // LINES_OF_PARTIAL


def _cycles(tile: TensorTile, shape: Sums) -> float:
    """Cycles of a step of a block."""
    of_a_step = (
        _halo_pixels(tile, shape) / shape.kernel**2 if isinstance(tile, Rectangle) else tile.m
    )
    return _cycles_of_lines(tile, shape.number_format, of_a_step, tile.n)


def _cycles_of_lines(tile: TensorTile, number_format: NumberFormat, m: float, n: float) -> float:
    """Cycles of a step that copies m + n lines of 128 bytes: memory's or the tensor cores',
    whichever are more.
    """
    # every warp reads a quarter of all lines: kernels/packed/staged_tile.cuh
    sliced_k = tile.m == tile.n == 64
    read = tile.m + tile.n if sliced_k else tile.threads // 32 * (tile.warp_m + tile.warp_n)
    return max(2 * (m + n) + read, number_format.products * tile.m * tile.n / 32)


def _halo_pixels(tile: Rectangle, shape: Sums) -> int:
    return (tile.m // tile.columns + shape.kernel - 1) * (tile.columns + shape.kernel - 1)


def halo_bytes(tile: Rectangle, shape: Sums) -> int:
    """Stages of weights, and the pixels of a block of channels, twice if there are several
    blocks.
    """
    blocks_held = min(2, shape.channels // shape.number_format.step)
    return ROW * (
        stages_of(shape.kernel, shape.number_format) * tile.n
        + blocks_held * _halo_pixels(tile, shape)
    )


def stages_of(kernel: int, number_format: NumberFormat) -> int:
    """Stages of weights in conv2d_halo.cu: their number divides that of the taps."""
    return 2 * number_format.stages_of_halo if kernel == 2 else kernel


def weight_tile(shape: Sums) -> TensorTile:
    """The tile of a weight gradient that multiplies in the fewest cycles; the split fills a GPU
    with any.
    """

    def cycles(tile: TensorTile) -> float:
        return (
            math.prod(weight_blocks(tile, shape))
            * weight_steps(tile, shape)
            * _cycles_of_weights(tile, shape.number_format)
        )

    return min(
        (
            tile
            for tile in weight_tiles(shape.number_format)
            if not isinstance(tile, Window) or slides(tile, shape)
        ),
        key=cycles,
    )


def weight_tiles(number_format: NumberFormat) -> tuple[TensorTile, ...]:
    """Those whose stages fit; the small parts of fragments leave too few registers for the sums of
    the largest.
    """
    largest = WINDOWS[-1], LARGE
    return tuple(
        tile
        for tile in (*WINDOWS, FEW_ROWS, SQUARE, LARGE)
        if number_format.products == 1 or tile not in largest
    )


def slides(tile: Window, shape: Sums) -> bool:
    """Whether one copy of squares of x serves all taps."""
    return shape.kernel == tile.kernel and shape.stride == 1 and shape.channels % tile.n == 0


def weight_blocks(tile: TensorTile, shape: Sums) -> tuple[int, int]:
    """(across, down) of a split of a weight gradient."""
    columns = shape.channels if isinstance(tile, Window) else shape.kernel**2 * shape.channels
    return blocks(columns, tile.n), blocks(shape.filters, tile.m)


def squares(shape: Sums) -> int:
    """How many squares cover the pixels."""
    return shape.batch * blocks(shape.height, SIDE) * blocks(shape.width, SIDE)


def are_whole(shape: Sums) -> bool:
    """Whether squares end with the images and fill steps."""
    return (
        shape.height % SIDE == 0
        and shape.width % SIDE == 0
        and squares(shape) % shape.number_format.squares == 0
    )


def weight_steps(tile: TensorTile, shape: Sums) -> int:
    if isinstance(tile, Window):
        return blocks(squares(shape), shape.number_format.squares)
    return blocks(shape.batch * shape.height * shape.width, shape.number_format.step)


def _cycles_of_weights(tile: TensorTile, number_format: NumberFormat) -> float:
    """Cycles of a step of a block of a weight gradient. A step of any numbers has as many bytes."""
    if not isinstance(tile, Window):
        return _cycles_of_lines(
            tile, number_format, *(_whole_rows(lines, number_format) for lines in (tile.m, tile.n))
        )
    reach = SIDE + tile.kernel - 1
    fragments = tile.warps * 2 * (SIDE * tile.warp_m + reach * tile.kernel * tile.warp_n) // 8
    products = number_format.products * 2 * SIDE**2 * tile.m * tile.n * tile.kernel**2 // 2048
    return max(4 * (reach**2 + SIDE**2) + fragments, products)


def split(tile: TensorTile, shape: Sums) -> tuple[int, int]:
    """(number of splits, steps of one) of a weight gradient."""
    of_split, numbers = (
        math.prod(weight_blocks(tile, shape)),
        shape.filters * shape.kernel**2 * shape.channels,
    )
    return quickest_split(
        weight_steps(tile, shape), of_split, _cycles_of_weights(tile, shape.number_format), numbers
    )


def quickest_split(steps: int, of_split: int, cycles: float, numbers: int) -> tuple[int, int]:
    """(number of splits, steps of one) for which a weight gradient and the update's sum of its
    parts take least time.

    of_split: blocks of a split; cycles: of a step of one; numbers: of a part. The time is an H200's
    on every GPU: the bytes depend on the splits.
    """

    def time(splits: int) -> float:
        multiplied = blocks(splits * of_split, SPLIT_MULTIPROCESSORS) * blocks(steps, splits)
        return multiplied * cycles + splits * 2 * 4 * numbers / MEMORY_BYTES

    each = blocks(steps, min(range(1, min(steps, SPLITS) + 1), key=time))
    return blocks(steps, each), each


def weight_split(
    x: Shape,
    filters: int,
    kernel: int,
    stride: int,
    number_format: NumberFormat,
    tile: TensorTile | None = None,
) -> tuple[TensorTile, Sums, tuple[int, int], int]:
    """(tile, Sums, (splits, numbers of one), steps of one) of a weight gradient in parts; x: as in
    Sums.from_input.

    tile: replaces the one that the shape asks for.
    """
    shape = Sums.from_input(x, filters, kernel, stride, number_format)
    tile = tile or weight_tile(shape)
    splits, steps = split(tile, shape)
    return tile, shape, (splits, filters * kernel**2 * shape.channels), steps


def window_bytes(tile: Window, number_format: NumberFormat) -> int:
    """Steps of squares of both operands, 64 channels each or fewer filters, which have whole
    rows.
    """
    rows = (SIDE + tile.kernel - 1) ** 2 * blocks(tile.n, number_format.step) + SIDE**2 * blocks(
        tile.m, number_format.step
    )
    return number_format.stages_of_halo * number_format.squares * ROW * rows


def shared_bytes(tile: TensorTile, number_format: NumberFormat, rows_of_k: bool = False) -> int:
    """Of the stages of steps; rows_of_k: a row of shared memory is one k of many lines, not one
    line.
    """
    m, n = (_whole_rows(lines, number_format) if rows_of_k else lines for lines in (tile.m, tile.n))
    return number_format.stages * ROW * (m + n)


def _whole_rows(lines: int, number_format: NumberFormat) -> int:
    return number_format.step * blocks(lines, number_format.step)
