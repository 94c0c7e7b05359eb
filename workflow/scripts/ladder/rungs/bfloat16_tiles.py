"""Tiles of products of bfloat16 copies, and which of them takes the fewest clocks.

A tile is chosen by the shape alone, on every GPU: it decides how a gradient's pixels are summed to totals, and how many parts a
weight gradient has, which are part of the bytes.
"""

import dataclasses

from ladder.rungs.gpu_3xtf32 import FEW_COLUMNS, FEW_ROWS, LARGE, SQUARE, TALL, TensorTile
from ladder.rungs.gpu_basic import blocks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rectangle(TensorTile):
    """m pixels are a rectangle of one image, so many columns wide (kernels/gpu_bf16/conv2d_halo.cu)."""

    columns: int


PIXEL_TILES = FEW_COLUMNS, SQUARE, TALL, LARGE   # of equal time the one of most blocks
RECTANGLES = (Rectangle(256, 16, 64, 16, columns=16), Rectangle(64, 64, 32, 32, columns=8),
              Rectangle(128, 64, 64, 32, columns=16), Rectangle(128, 128, 64, 64, columns=16))
HALO_KERNELS = 2, 3, 5   # sides of windows that conv2d_halo.cu has
MULTIPROCESSORS = 80, 108, 132, 148   # of GPUs that a tile is to keep busy
MOST_SHARED = 99 << 10   # bytes of shared memory that a block may have on sm_86 and sm_89, the least from sm_80 on
STEP, STAGES = 64, 3          # k of a step, steps in shared memory: kernels/gpu_bf16/stages.cuh
# Split-K of the weight gradients: warps of all blocks, two large blocks on each multiprocessor of an H200; most splits.
SPLIT_WARPS, SPLITS = 8 * 132, 128
LINES_OF_TOTAL = 64           # of a tile that makes a gradient, in a total: copies.cuh


@dataclasses.dataclass(frozen=True)
class Sums:
    """The products of a convolution: height and width are the output's, channels those of the copy that is read.

    phases: convolutions to the pixels of an upsampled image, each with filters of its own.
    """

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    kernel: int
    stride: int
    phases: int = 1


def pixel_tile(shape, stored=True):
    """The tile that multiplies in the fewest clocks, on average over GPUs; stored: y is in float32 (copies.cuh)."""
    def clocks(tile):
        return _clocks(tile, shape) * sum(blocks(blocks_of(tile, shape), number) for number in MULTIPROCESSORS)

    tiles = *PIXEL_TILES, *(tile for tile in RECTANGLES if fits(tile, shape))
    return min((tile for tile in tiles if stored or tile.n % 64 == 0), key=clocks)


def fits(tile, shape):
    """Whether a halo in shared memory serves all taps."""
    return (shape.kernel in HALO_KERNELS and shape.stride == 1 and shape.channels % STEP == 0
            and halo_bytes(tile, shape) <= MOST_SHARED)


def blocks_of(tile, shape):
    return _pixel_tiles(tile, shape) * blocks(shape.filters, tile.n) * shape.phases


def _pixel_tiles(tile, shape):
    if isinstance(tile, Rectangle):
        return shape.batch * blocks(shape.height, tile.m // tile.columns) * blocks(shape.width, tile.columns)
    return blocks(shape.batch * shape.height * shape.width, tile.m)


def totals_of(tile, shape):
    """Rows of totals that a gradient leaves: of its tiles' lines."""
    return _pixel_tiles(tile, shape) * tile.m // LINES_OF_TOTAL


def _clocks(tile, shape):
    """Of a step of a block."""
    of_a_step = _halo_pixels(tile, shape) / shape.kernel ** 2 if isinstance(tile, Rectangle) else tile.m
    return _clocks_of_lines(tile, of_a_step, tile.n)


def _clocks_of_lines(tile, m, n):
    """Of a step that copies m + n lines: of shared and global memory, 128 bytes of a line each, or of tensor cores."""
    return max(2 * (m + n) + tile.threads // 32 * (tile.warp_m + tile.warp_n), tile.m * tile.n / 32)


def _halo_pixels(tile, shape):
    return (tile.m // tile.columns + shape.kernel - 1) * (tile.columns + shape.kernel - 1)


def halo_bytes(tile, shape):
    """Stages of weights, and the pixels of a slab of 64 channels, twice if there are several."""
    return 2 * STEP * (stages_of(shape.kernel) * tile.n + min(2, shape.channels // STEP) * _halo_pixels(tile, shape))


def stages_of(kernel):
    """Of weights in conv2d_halo.cu, which divide the taps."""
    return 4 if kernel == 2 else kernel


def weight_tile(filters, columns):
    """The tile of the fewest clocks; the split fills a GPU with any."""
    def clocks(tile):
        return blocks(filters, tile.m) * blocks(columns, tile.n) * _clocks_of_lines(tile, *map(_whole_rows, (tile.m, tile.n)))

    return min((FEW_ROWS, SQUARE, LARGE), key=clocks)


def split(tile, filters, columns, pixels):
    """(number of splits, pixels per split) of a weight gradient: whole steps, by the shape alone, as the bytes are."""
    warps = blocks(filters, tile.m) * blocks(columns, tile.n) * tile.threads // 32
    splits = max(1, min(SPLIT_WARPS // warps, pixels // STEP, SPLITS))
    size = STEP * blocks(blocks(pixels, splits), STEP)
    return blocks(pixels, size), size


def shared_bytes(tile, rows_of_k=False):
    """rows_of_k: the lines lie side by side, always 64 of them."""
    m, n = map(_whole_rows, (tile.m, tile.n)) if rows_of_k else (tile.m, tile.n)
    return STAGES * 2 * STEP * (m + n)


def _whole_rows(lines):
    return 64 * blocks(lines, 64)
