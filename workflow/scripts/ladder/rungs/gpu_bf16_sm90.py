"""gpu_bf16 for Hopper alone: a thread starts copies of whole tiles (TMA), warpgroups multiply from shared memory (wgmma).

The copies of a convolution's operands are arranged as shared memory will hold them: rows of 64 channels, swizzled. What a block
needs of an image for all taps is then one run of memory. Who writes the copies is as in gpu_bf16: the convolution before, the
one behind, or the update. Convolutions whose tiles would be mostly empty, or that need more shared memory than a block has, are
gpu_bf16's.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.network.layers import Layer
from ladder.rungs import gpu_bf16
from ladder.rungs.bfloat16_tiles import LINES_OF_TOTAL
from ladder.rungs.gpu_basic import blocks, elements, integers
from ladder.rungs.gpu_bf16 import GRADIENTS_IN_PARTS, PATTERNS, UPDATES_TOGETHER
from ladder.rungs.patterns import Launch

__all__ = ["GRADIENTS_IN_PARTS", "LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

SLAB, ROW, CHUNKS = 64, 128, 8   # channels in a row, its bytes, chunks of 16 bytes: kernels/gpu_bf16/rows.cuh
FEWEST = 33                      # channels and filters from which on half of a row has work
MOST_KERNEL = 4                  # the weight gradient has a warpgroup for each column of taps
SHARED = 227 << 10               # bytes that a block may have
LARGE_TILES = 96                 # from this many on, with a block a multiprocessor, they keep a GPU of about as many busy
STEP, STAGES = 64, 4             # pixels of a step of a weight gradient, steps in shared memory: its weight_grad.cu
BLOCKS, SPLITS = 132, 128        # of a weight gradient: the multiprocessors of an H200; most splits


@dataclasses.dataclass(frozen=True)
class Tile:
    """A block computes m x n elements: 64 or 128 pixels, and 64, 128 or 256 filters."""

    m: int
    n: int

    @property
    def threads(self) -> int:
        return 2 * self.m + 128

    @property
    def defines(self) -> tuple[str, ...]:
        return f"TILE_M={self.m}", f"TILE_N={self.n}"

    def shared_bytes(self, rows: int) -> int:
        """STAGES of filters, SLABS of so many rows of pixels, two barriers for each: kernels/gpu_bf16_sm90/conv2d.cu."""
        return 4 * self.n * ROW + 2 * rows * ROW + 96


LARGE, MEDIUM, SMALL = Tile(128, 256), Tile(128, 128), Tile(64, 64)
TILES = (LARGE, MEDIUM, SMALL)


def pixel_tile(pixels: int, filters: int) -> Tile:
    """The largest tile that is filled and of which there are enough, else the smallest."""
    return next((tile for tile in TILES if filters > tile.n // 2
                 and blocks(pixels, tile.m) * blocks(filters, tile.n) >= LARGE_TILES), SMALL)


def rows_of_tiles(filters: int) -> int:
    """Filters that are stored: any tile for so many filters divides them."""
    most = min((tile.n for tile in TILES if filters <= tile.n), default=LARGE.n)
    return most * blocks(filters, most)


def form_of(build: Any, conv: Layer) -> gpu_bf16.Form | None:
    """SLABS where a convolution is this rung's, else as gpu_bf16 has it."""
    return SLABS if has_slabs(build, conv) else gpu_bf16.form_of(build, conv)


def has_slabs(build: Any, conv: Layer) -> bool:
    """Whether a convolution is this rung's: its taps are not collapsed, rows are filled, and its tiles fit shared memory."""
    if not gpu_bf16.has_copies(build, conv) or gpu_bf16.is_collapsed(build, conv):
        return False
    filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    if min(filters, channels) < FEWEST or kernel > MOST_KERNEL:
        return False
    batch, (height, width, _) = build.batch, conv.input_shapes[0]
    stride, padding = conv.attributes["stride"], conv.attributes["padding"]
    image = batch, height + 2 * padding, width + 2 * padding
    needed = [_most_bytes(image, filters, kernel, stride)]
    if build.training:
        needed.append(weight_grad_bytes(filters_together(filters, kernel), span_of_taps(image, kernel, stride)))
        if stride == 1:
            needed.append(_most_bytes(_image_of_gradient((batch, height, width), kernel), channels, kernel, 1))
    return max(needed) <= SHARED


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a convolution: `together` pixels of y each of `pixels`, in tiles; rows: of shared memory that they need."""

    tile: Tile
    pixels: int
    together: int
    rows: int

    @property
    def down(self) -> int:
        return blocks(self.pixels, self.together)

    @property
    def shared_bytes(self) -> int:
        return self.tile.shared_bytes(self.rows)


def _blocks(image: Sequence[int], filters: int, kernel: int, stride: int, windows: bool = False,
            tile: Tile | None = None) -> Blocks:
    """image: the padded one's (batch, height, width); windows: whether results are of 2x2 windows of y."""
    batch, down, across = image[0], *((size - kernel) // stride + 1 for size in image[1:])
    tile = tile or pixel_tile(batch * down * across, filters)
    together = tile.m // (2 * across) * 2 * across if windows else tile.m
    return Blocks(tile, batch * down * across, together, span(together, image, kernel, stride))


def _most_bytes(image: Sequence[int], filters: int, kernel: int, stride: int) -> int:
    """Of shared memory, whatever the results are."""
    across = (image[2] - kernel) // stride + 1
    return max(_blocks(image, filters, kernel, stride, windows).shared_bytes for windows in {False, _has_windows(across)})


def _has_windows(width: int) -> bool:
    """Whether any tile holds two rows of an image so wide."""
    return 2 * width <= SMALL.m


def _image_of_gradient(image: Sequence[int], kernel: int) -> tuple[int, int, int]:
    """(batch, height, width), borders included, of the gradient whose convolution is that of the image."""
    batch, height, width = image
    return batch, height + kernel - 1, width + kernel - 1


def _slabs(image: tuple[int, ...], padding: int) -> tuple[int, ...]:
    batch, height, width, channels = image
    return blocks(channels, SLAB), batch, height + 2 * padding, width + 2 * padding, SLAB


def _tiles(shape: tuple[int, ...], flips: bool) -> dict[str, tuple[int, ...]]:
    """{role: shape} of the copies of a weight; flips: whether there is one for the input gradient."""
    filters, kernel, _, channels = shape
    copies: dict[str, tuple[int, ...]] = {"bfloat16": (blocks(channels, SLAB), kernel, kernel, rows_of_tiles(filters), SLAB)}
    return {**copies, "flipped": (blocks(filters, SLAB), kernel, kernel, rows_of_tiles(channels), SLAB)} if flips else copies


def _gradient(shape: tuple[int, ...], padding: int) -> dict[str, tuple[int, ...]]:
    """{role: shape}: with borders, if they are not empty, and without, whole steps of pixels."""
    batch, height, width, channels = shape
    steps: dict[str, tuple[int, ...]] = {
        "steps": (blocks(channels, SLAB), STEP * blocks(batch * height * width, STEP), SLAB)}
    return {"rounded": _slabs(shape, padding), **steps} if padding else steps


def _totals(image: tuple[int, ...], _: Any, kernel: int) -> int:
    """image: shape of x, in whose channels the products are."""
    *of_x, channels = image
    made = _blocks(_image_of_gradient(of_x, kernel), channels, kernel, 1)
    return made.down * (made.tile.m // LINES_OF_TOTAL)


def _parts(copy: tuple[int, ...], _: Any, conv: Layer) -> tuple[int, int]:
    filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    splits, _ = _split_of(copy, filters, kernel, conv.attributes["stride"])
    return splits, filters * kernel * kernel * channels


def span(together: int, image: Sequence[int], kernel: int, stride: int) -> int:
    """Rows of image pixels, a multiple of 8, that windows of so many neighbouring pixels of y span at most.

    image: padded, (batch, height, width). The rows are counted from a multiple of 8 on.
    """
    first, last = _windows(together, image, kernel, stride)
    return _rows(first, last + (kernel - 1) * (image[2] + 1))


def span_of_taps(image: Sequence[int], kernel: int, stride: int) -> int:
    """The same for a weight gradient's step, under one row of taps, whichever it is."""
    first, last = _windows(STEP, image, kernel, stride)
    return max(_rows(first + row * image[2], last + row * image[2] + kernel - 1) for row in range(kernel))


def _windows(together: int, image: Sequence[int], kernel: int, stride: int) -> list[np.ndarray]:
    """Where the windows of the first and the last of each so many pixels begin.

    Not of all in a large batch: where a block begins in an image, and the image after a multiple of 8 pixels, repeats.
    """
    batch, height, width = image
    down, across = ((size - kernel) // stride + 1 for size in (height, width))
    repeats = CHUNKS * together // math.gcd(together, down * across)
    pixels = down * across * min(batch, repeats + blocks(together, down * across))
    first = np.arange(0, pixels, together)
    return [(pixel // across // down * height + pixel // across % down * stride) * width + pixel % across * stride
            for pixel in (first, np.minimum(first + together, pixels) - 1)]


def _rows(first: np.ndarray, last: np.ndarray) -> int:
    return int(CHUNKS * blocks((last - first // CHUNKS * CHUNKS).max() + 1, CHUNKS))


def forward(step: Any, build: Any, tile: Tile | None = None) -> tuple[Launch, ...]:
    """tile: replaces the one that the shape asks for; likewise in the input gradient."""
    reads, writes, attributes = step.reads, step.writes, step.attributes
    arrays = reads["x"], reads["weight"], reads["bias"]
    sizes: dict[str, Any] = {"image": build.shape(reads["x"])[1:4], "stride": attributes["stride"], "tile": tile}
    if "y" in writes:
        return _convolution(build, "conv2d", (*arrays, writes["y"]), (attributes["relu"],),
                            filters=build.shape(writes["y"])[3], **sizes)
    sizes |= {"filters": build.shape(reads["bias"])[0], "in_slabs": gpu_bf16.in_slabs(build, writes)}
    if "index" in writes:
        return _convolution(build, "conv2d_pool", (*arrays, writes["copy"], writes["index"]),
                            (attributes["relu"], attributes["padding"]), windows=True, **sizes)
    return _convolution(build, "conv2d_copy", (*arrays, writes["copy"]), (attributes["relu"], attributes["padding"]), **sizes)


def input_grad(step: Any, build: Any, tile: Tile | None = None) -> tuple[Launch, ...]:
    reads, writes = step.reads, step.writes
    arrays: tuple[str, ...]
    arrays, kernel = (reads["dy"], reads["flipped"]), build.shape(reads["flipped"])[1]
    if "dx" in writes:
        *of_x, channels = build.shape(writes["dx"])
        return _convolution(build, "conv2d", (*arrays, reads["zeros"], writes["dx"]), (False,), channels,
                            _image_of_gradient(of_x, kernel), tile=tile)
    batch, *padded = build.shape(reads["kept"])[1:4]
    of_x = batch, *(size - 2 * step.attributes["kept_padding"] for size in padded)
    arrays = *arrays, reads["kept"], *gpu_bf16.gradients_written(writes)
    sizes: dict[str, Any] = {
        "filters": build.shape(writes["totals"])[1], "image": _image_of_gradient(of_x, kernel), "tile": tile,
        "in_slabs": gpu_bf16.in_slabs(build, writes)}
    numbers = gpu_bf16.gradient_numbers(step, build)
    if "index" in reads:
        return _convolution(build, "conv2d_gradient_pool", (*arrays, reads["index"]), numbers, **sizes)
    return _convolution(build, "conv2d_gradient", arrays, numbers, **sizes)


def _convolution(build: Any, entry: str, arrays: tuple[str, ...], numbers: tuple[int, ...], filters: int,
                 image: Sequence[int], stride: int = 1, tile: Tile | None = None, windows: bool = False,
                 in_slabs: bool = False) -> tuple[Launch, ...]:
    """numbers: the kernel's, behind those of the shape; image: the padded one's (batch, height, width)."""
    x, weight, *_ = arrays
    slabs, kernel, _, stored, _ = build.shape(weight)
    made, x_pixels = _blocks(image, filters, kernel, stride, windows, tile), elements(build, x) // slabs // SLAB
    tile, held = made.tile, 0 if entry == "conv2d" else 4 * made.tile.m * (made.tile.n + 8)   # copies.cuh
    defines = *tile.defines, *(("WINDOWS=1",) if windows else ()), *(("IN_SLABS=1",) if in_slabs else ())
    return (Launch(f"gpu_bf16_sm90/{entry}.cu", entry, (made.down * (stored // tile.n),), (tile.threads,),
                   (*arrays, *integers(image[1], image[2], slabs, filters, stored, kernel, stride, made.pixels, x_pixels,
                                       made.rows, made.together, *numbers)), max(made.shared_bytes, held), defines),)


def arrange_image(step: Any, build: Any) -> tuple[Launch, ...]:
    x, slabs = step.reads["x"], step.writes["rounded"]
    _, height, width, channels = build.shape(x)
    chunks = elements(build, slabs) // (SLAB // CHUNKS)
    return (Launch("gpu_bf16_sm90/arrange.cu", "arrange_image", (blocks(chunks, 256),), (256,),
                   (x, slabs, *integers(chunks // CHUNKS // build.shape(slabs)[0], height, width, channels,
                                        step.attributes["padding"]))),)


def arrange_gradient(step: Any, build: Any) -> tuple[Launch, ...]:
    dy, (slabs, steps, totals) = step.reads["dy"], gpu_bf16.gradients_written(step.writes)
    batch, height, width, channels = build.shape(dy)
    padding = step.attributes["padding"]
    pixels = batch * (height + 2 * padding) * (width + 2 * padding)
    return (Launch("gpu_bf16_sm90/arrange.cu", "arrange_gradient", (build.shape(totals)[0], blocks(channels, SLAB)), (256,),
                   (dy, slabs, steps, totals, *integers(pixels, height, width, channels, padding, gpu_bf16.PIXELS_OF_TOTAL,
                                                        build.shape(steps)[1]))),)


def weight_grad(step: Any, build: Any) -> tuple[Launch, ...]:
    """The parts of a weight gradient, and their sums unless the update adds them."""
    x, dy, totals, stride = (*(step.reads[role] for role in ("x", "dy", "totals")), step.attributes["stride"])
    (slabs, *image, _), filters, kernel = build.shape(x), build.shape(totals)[1], step.attributes["kernel"]
    batch, height, width = image
    across, stored, tile = (width - kernel) // stride + 1, build.shape(dy)[1], filters_together(filters, kernel)
    splits, per_split = _split_of(build.shape(x), filters, kernel, stride)
    in_parts = step.writes.get("parts")
    weights = math.prod(build.shape(in_parts)[1:]) if in_parts else elements(build, step.writes["dweight"])
    parts = in_parts or build.workspace(f"{step.layer}.parts", (splits, weights))
    rows, channels = span_of_taps(image, kernel, stride), weights // filters // kernel ** 2
    product = Launch(
        "gpu_bf16_sm90/weight_grad.cu", "conv2d_weight_grad", (kernel * slabs, blocks(filters, tile), splits),
        (128 * kernel + 128,), (x, dy, parts, *integers(
            height, width, channels, filters, stride, _pixels(image, kernel, stride), batch * height * width, stored, per_split,
            rows)), weight_grad_bytes(tile, rows),
        (f"TILE_N={tile}", f"KERNEL={kernel}", f"WHOLE_ROWS={int(STEP % across == 0)}"))
    if in_parts:
        return (product,)
    return product, gpu_bf16.sum_of_parts(build, (parts, totals, step.writes["dweight"], step.writes["dbias"]), channels)


def _pixels(image: Sequence[int], kernel: int, stride: int) -> int:
    """Of y; image: the padded one's (batch, height, width)."""
    batch, height, width = image
    return batch * ((height - kernel) // stride + 1) * ((width - kernel) // stride + 1)


def _split_of(copy: tuple[int, ...], filters: int, kernel: int, stride: int) -> tuple[int, int]:
    """(number of splits, steps of each) of a weight gradient, by the shape alone, as the bytes are; copy: shape of x's."""
    slabs, *image, _ = copy
    steps = blocks(_pixels(image, kernel, stride), STEP)
    parallel = kernel * slabs * blocks(filters, filters_together(filters, kernel))   # blocks of a split
    size = blocks(steps, max(1, min(BLOCKS // parallel, SPLITS)))
    return blocks(steps, size), size


def filters_together(filters: int, kernel: int) -> int:
    """Filters of a block of a weight gradient: slabs of 64 that are there, and registers for their sums."""
    return 2 * SLAB if blocks(filters, SLAB) % 2 == 0 and kernel < MOST_KERNEL else SLAB


def weight_grad_bytes(tile: int, rows: int) -> int:
    return STAGES * (tile // SLAB * STEP * ROW + rows * ROW + 16)


SLABS = gpu_bf16.Form(
    makes="arrange", made="arranged", of_image=_slabs, of_weight=_tiles, of_gradient=_gradient, of_parts=_parts, totals=_totals,
    has_windows=_has_windows)
LAUNCHES = {
    **gpu_bf16.LAUNCHES,
    "conv2d_arrange_input": arrange_image,
    "conv2d_arrange_gradient": arrange_gradient,
    "arranged_conv2d_forward": forward,
    "arranged_conv2d_input_grad": input_grad,
    "arranged_conv2d_weight_grad": weight_grad,
}
