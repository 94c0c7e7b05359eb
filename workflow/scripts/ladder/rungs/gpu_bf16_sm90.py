"""gpu_bf16 for Hopper alone: a thread starts copies of whole tiles (TMA), warpgroups multiply from
shared memory (wgmma). gpu_f16_sm90 has the same launches in float16.

The packed operands of a convolution are arranged as shared memory will hold them: rows of 64
channels, swizzled. What a block needs of an image for all taps is then one run of memory. Who packs
them is as in gpu_bf16: the convolution before, the one behind, or the update. Convolutions whose
tiles would be mostly empty, or that need more shared memory than a block has, are gpu_bf16's.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from ladder.network.layers import Layer
from ladder.rungs import gpu_bf16, packing
from ladder.rungs.gpu_basic import blocks, elements, integers
from ladder.rungs.interface import Implementation, PlanBuilder
from ladder.rungs.launches import Launch, Launches, Shape, Step
from ladder.rungs.packed import (
    Epilogue,
    add_parts,
    add_phase_parts,
    forward_epilogue,
    gradient_epilogue,
    in_format,
    on_stream,
)
from ladder.rungs.packed_lowering import Lowering
from ladder.rungs.packed_tiles import (
    BFLOAT16,
    HALVES,
    LINES_OF_PARTIAL,
    NumberFormat,
    quickest_split,
    sums_bytes,
)
from ladder.rungs.packing import (
    FEWEST,
    PHASE_TAPS,
    PIXELS_OF_PARTIAL,
    Packing,
    PhaseWeights,
    both_gradients,
)
from ladder.rungs.values import LaunchFunction, Values

# channels of a block of a weight gradient, bytes of a row, chunks of 16: kernels/common/packed.cuh
CHANNEL_BLOCK, ROW, CHUNKS = 64, 128, 8
MOST_KERNEL = 4  # the weight gradient has a warpgroup for each column of taps
SHARED = 227 << 10  # bytes that a block may have
# from this many on, with a block a multiprocessor, they keep a GPU of about as many busy
LARGE_TILES = 96
# pixels of a step of a weight gradient, steps in shared memory: its weight_grad.cu
STEP, STAGES = 64, 4
PHASE_KERNEL = 2  # side of the windows of a phase, behind an upsampling


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
        """Of STAGES of filters, PIXEL_STAGES of so many rows of pixels, two barriers for each: its
        loop.cuh.
        """
        return 4 * self.n * ROW + 2 * rows * ROW + 96


LARGE, MEDIUM, SMALL = Tile(128, 256), Tile(128, 128), Tile(64, 64)
TILES = (LARGE, MEDIUM, SMALL)


def pixel_tile(pixels: int, filters: int) -> Tile:
    """The largest tile that is filled and of which there are enough, else the smallest."""
    return next(
        (
            tile
            for tile in TILES
            if filters > tile.n // 2
            and blocks(pixels, tile.m) * blocks(filters, tile.n) >= LARGE_TILES
        ),
        SMALL,
    )


def rows_of_tiles(filters: int) -> int:
    """Filters that are stored: any tile for so many filters divides them."""
    most = min((tile.n for tile in TILES if filters <= tile.n), default=LARGE.n)
    return most * blocks(filters, most)


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a convolution: each has `together` of the `pixels` of y; rows: of shared memory
    that it needs for them.
    """

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


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of a convolution over a padded image, (batch, height, width).

    spread: 2 where y has four phases, to each of which a block belongs.
    """

    image: Sequence[int]
    kernel: int
    stride: int = 1
    spread: int = 1

    @property
    def output(self) -> tuple[int, int, int]:
        """(batch, height, width) of y, or of a phase."""
        batch, *sizes = self.image
        down, across = ((size - self.kernel) // self.stride + 2 - self.spread for size in sizes)
        return batch, down, across


def _blocks(
    windows: Windows, filters: int, pools: bool = False, tile: Tile | None = None
) -> Blocks:
    """pools: whether results are of 2x2 windows of y."""
    *_, across = output = windows.output
    pixels = math.prod(output)
    tile = tile or pixel_tile(pixels * windows.spread**2, filters)
    together = tile.m // (2 * across) * 2 * across if pools else tile.m
    return Blocks(tile, pixels, together, span(together, windows))


def _most_bytes(windows: Windows, filters: int) -> int:
    """Of shared memory, whatever the results are."""
    kinds = {False, ChannelBlocks().holds_windows(windows.output[2])}
    return max(_blocks(windows, filters, pools).shared_bytes for pools in kinds)


def _image_of_gradient(image: Sequence[int], kernel: int) -> tuple[int, int, int]:
    """(batch, height, width), borders included, of the gradient whose convolution is that of the
    image.
    """
    batch, height, width = image
    return batch, height + kernel - 1, width + kernel - 1


def span(together: int, windows: Windows) -> int:
    """Rows of image pixels, a multiple of 8, that windows of so many neighbouring pixels of y span
    at most.

    The rows are counted from a multiple of 8 on.
    """
    first, last = _ends(together, windows)
    last += (windows.kernel - 1) * (windows.image[2] + 1)
    return max(_rows(first + to_phase, last + to_phase) for to_phase in _to_phases(windows))


def span_of_taps(windows: Windows, number_format: NumberFormat = BFLOAT16) -> int:
    """The same for a weight gradient's step, under one row of taps, whichever it is."""
    (first, last), width = _ends(STEP // number_format.halves, windows), windows.image[2]
    return max(
        _rows(first + below, last + below + windows.kernel - 1)
        for to_phase in _to_phases(windows)
        for below in range(to_phase, to_phase + windows.kernel * width, width)
    )


def _to_phases(windows: Windows) -> list[int]:
    """By how many pixels of the image a phase's windows begin further than the first phase's."""
    phases = range(windows.spread)
    return [row * windows.image[2] + column for row in phases for column in phases]


def _ends(together: int, windows: Windows) -> list[np.ndarray]:
    """Where the windows of the first and the last of every `together` pixels begin.

    Not of all in a large batch: where a block begins in an image, and the image after a multiple of
    8 pixels, repeats.
    """
    (_, height, width), stride = windows.image, windows.stride
    batch, down, across = windows.output
    repeats = CHUNKS * together // math.gcd(together, down * across)
    pixels = down * across * min(batch, repeats + blocks(together, down * across))
    first = np.arange(0, pixels, together)
    return [
        (pixel // across // down * height + pixel // across % down * stride) * width
        + pixel % across * stride
        for pixel in (first, np.minimum(first + together, pixels) - 1)
    ]


def _rows(first: np.ndarray, last: np.ndarray) -> int:
    return int(CHUNKS * blocks((last - first // CHUNKS * CHUNKS).max() + 1, CHUNKS))


def _split_of(
    x: Shape,
    filters: int,
    kernel: int,
    stride: int,
    spread: int,
    number_format: NumberFormat,
) -> tuple[int, int]:
    """(number of splits, steps of each) of a weight gradient, by the shape alone, as the bytes are;
    x: the packed shape.
    """
    (stored_blocks, *image, _), halves = x, number_format.halves
    steps, tile, channel_blocks = (
        blocks(math.prod(Windows(image, kernel, stride, spread).output), STEP // halves),
        filters_together(filters, kernel),
        stored_blocks // halves,
    )
    of_split, weights = (
        spread**2 * kernel * channel_blocks * blocks(filters, tile),
        filters * (spread * kernel) ** 2,
    )
    # products' cycles
    return quickest_split(
        steps,
        of_split,
        2 * tile * kernel * number_format.products / halves,
        weights * channel_blocks * CHANNEL_BLOCK,
    )


def filters_together(filters: int, kernel: int) -> int:
    """Filters of a block of a weight gradient: two channel blocks, if their number is even and
    registers hold their sums.
    """
    return (
        2 * CHANNEL_BLOCK
        if blocks(filters, CHANNEL_BLOCK) % 2 == 0 and kernel < MOST_KERNEL
        else CHANNEL_BLOCK
    )


def weight_grad_bytes(tile: int, rows: int, number_format: NumberFormat = BFLOAT16) -> int:
    """A step of halves has half as many pixels."""
    of_dy, of_x = tile // CHANNEL_BLOCK * STEP * ROW, number_format.halves * rows * ROW
    return STAGES * (of_dy + of_x + 16)


# ---- packing


class ChannelBlocks(Packing):
    """Blocks of 64 channels, each of all pixels, as NCHWc has them: (blocks, batch, height, width,
    64). Of pairs of halves blocks of 32, always an even number.
    """

    pack_op, conv_op = "conv2d_arrange", "arranged_conv2d"

    def channel_blocks(self, channels: int) -> int:
        return blocks(channels, CHANNEL_BLOCK) * self.number_format.halves

    def image(self, shape: Shape, padding: int) -> Shape:
        batch, height, width, channels = shape
        return (
            self.channel_blocks(channels),
            batch,
            height + 2 * padding,
            width + 2 * padding,
            CHANNEL_BLOCK,
        )

    def weight(self, shape: Shape) -> dict[str, Shape]:
        """Rows are filters, or channels of the flipped one, up to whole tiles."""
        filters, kernel, _, channels = shape
        of_channels, of_filters = self.channel_blocks(channels), self.channel_blocks(filters)
        return {
            "packed": (of_channels, kernel, kernel, rows_of_tiles(filters), CHANNEL_BLOCK),
            "flipped": (of_filters, kernel, kernel, rows_of_tiles(channels), CHANNEL_BLOCK),
        }

    def gradient(self, shape: Shape, padding: int) -> dict[str, Shape]:
        """Both, or without a border and pairs of halves "steps" alone; that has whole steps of
        pixels.
        """
        batch, height, width, channels = shape
        pixels = STEP * blocks(batch * height * width, STEP)
        steps: dict[str, Shape] = {"steps": (self.channel_blocks(channels), pixels, CHANNEL_BLOCK)}
        both = padding or self.number_format.halves > 1
        return {"rounded": self.image(shape, padding), **steps} if both else steps

    def weight_parts(self, x: Shape, dy: Shape, conv: Layer) -> tuple[int, int]:
        filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
        splits, _ = _split_of(x, filters, kernel, conv.attributes["stride"], 1, self.number_format)
        return splits, filters * kernel * kernel * channels

    def bias_partials(self, x: Shape, filters: int, kernel: int) -> int:
        *image, channels = x
        grid = _blocks(Windows(_image_of_gradient(image, kernel), kernel), channels)
        return grid.down * (grid.tile.m // LINES_OF_PARTIAL)

    def holds_windows(self, width: int) -> bool:
        """Whether any tile holds two rows of an image so wide."""
        return 2 * width <= SMALL.m


class PhaseBlocks(ChannelBlocks):
    """Channel blocks behind an upsampling, as PhaseWeights: a tap has the filters of the four
    phases one after the other.

    A gradient's "steps" have the pixels of the phases likewise; the flipped weight has the 4x4
    phase weights.
    """

    conv_op = "arranged_phase_conv2d"

    def weight(self, shape: Shape) -> dict[str, Shape]:
        filters, _, _, channels = shape
        of_channels, of_filters = self.channel_blocks(channels), self.channel_blocks(filters)
        return {
            "packed": (of_channels, 2, 2, 4 * rows_of_tiles(filters), CHANNEL_BLOCK),
            "flipped": (of_filters, 4, 4, rows_of_tiles(channels), CHANNEL_BLOCK),
        }

    def gradient(self, shape: Shape, padding: int) -> dict[str, Shape]:
        batch, height, width, channels = shape
        pixels = STEP * blocks(batch * height * width // 4, STEP)
        return {
            "rounded": self.image(shape, padding),
            "steps": (self.channel_blocks(channels), 4, pixels, CHANNEL_BLOCK),
        }

    def weight_parts(self, x: Shape, dy: Shape, conv: Layer) -> tuple[int, int]:
        filters, _, _, channels = conv.parameters[f"{conv.name}.weight"]
        splits, _ = _split_of(x, filters, PHASE_KERNEL, 1, 2, self.number_format)
        return splits, 16 * filters * channels

    def bias_partials(self, x: Shape, filters: int, kernel: int) -> int:
        *image, channels = x
        grid = _blocks(Windows(_upsampled(image), *PHASE_TAPS), channels)
        return grid.down * (grid.tile.m // LINES_OF_PARTIAL)


def _upsampled(image: Sequence[int]) -> tuple[int, int, int]:
    """(batch, height, width) of the gradient behind an upsampling, its border included."""
    batch, height, width = image
    return batch, 2 * height + 2, 2 * width + 2


def packing_of(
    build: PlanBuilder, conv: Layer, below: NumberFormat, in_blocks: NumberFormat
) -> Packing | None:
    """ChannelBlocks or PhaseBlocks, of numbers `in_blocks`, where a convolution is this rung's,
    else as the rung below has it.
    """
    packed = packing.packing_of(build, conv, below)
    if packed == Packing(below) and fills_and_fits(build, conv, in_blocks):
        return ChannelBlocks(in_blocks)
    if packed == PhaseWeights(below) and phases_fit(build, conv, in_blocks):
        return PhaseBlocks(in_blocks)
    return packed


def phases_fit(build: PlanBuilder, conv: Layer, number_format: NumberFormat = BFLOAT16) -> bool:
    """As fills_and_fits, of one behind an upsampling; the parts of its gradient have whole chunks
    of filters too.
    """
    filters, _, _, channels = conv.parameters[f"{conv.name}.weight"]
    if min(filters, channels) < FEWEST or filters % CHUNKS:
        return False
    image = build.values.batch, *(size // 2 for size in conv.input_shapes[0][:2])
    padded = build.values.batch, *(size + 2 for size in image[1:])
    windows = Windows(padded, PHASE_KERNEL, spread=2)
    needed = [_blocks(windows, filters).shared_bytes]
    if build.training:
        needed += [
            weight_grad_bytes(
                filters_together(filters, PHASE_KERNEL),
                span_of_taps(windows, number_format),
                number_format,
            ),
            _blocks(Windows(_upsampled(image), *PHASE_TAPS), channels).shared_bytes,
        ]
    return max(needed) <= SHARED


def fills_and_fits(build: PlanBuilder, conv: Layer, number_format: NumberFormat = BFLOAT16) -> bool:
    """Whether a packed convolution fills rows, and its tiles fit shared memory."""
    filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    if min(filters, channels) < FEWEST or kernel > MOST_KERNEL:
        return False
    batch, (height, width, _) = build.values.batch, conv.input_shapes[0]
    stride, padding = conv.attributes["stride"], conv.attributes["padding"]
    windows = Windows((batch, height + 2 * padding, width + 2 * padding), kernel, stride)
    needed = [_most_bytes(windows, filters)]
    if build.training:
        rows = span_of_taps(windows, number_format)
        needed.append(weight_grad_bytes(filters_together(filters, kernel), rows, number_format))
        if stride == 1:
            needed.append(
                _most_bytes(
                    Windows(_image_of_gradient((batch, height, width), kernel), kernel), channels
                )
            )
    return max(needed) <= SHARED


# ---- launches


def forward(step: Step, values: Values, tile: Tile | None = None) -> Launches:
    """tile: replaces the one that the shape asks for; likewise in the input gradient."""
    filters, image = values.shape(step.reads["bias"])[0], values.shape(step.reads["x"])[1:4]
    kernel = values.shape(step.reads["weight"])[1]
    windows = Windows(image, kernel, step.attributes["stride"])
    return _convolution(values, forward_epilogue(step, values), filters, windows, tile)


def phase_forward(step: Step, values: Values, tile: Tile | None = None) -> Launches:
    filters, image = values.shape(step.reads["bias"])[0], values.shape(step.reads["x"])[1:4]
    windows = Windows(image, PHASE_KERNEL, spread=2)
    return _convolution(values, forward_epilogue(step, values), filters, windows, tile)


def phase_input_grad(step: Step, values: Values, tile: Tile | None = None) -> Launches:
    channels = values.shape(step.writes.get("dx") or step.writes["bias_partials"])[-1]
    windows = Windows(values.shape(step.reads["dy"])[1:4], *PHASE_TAPS)
    return _convolution(values, gradient_epilogue(step, values), channels, windows, tile)


def input_grad(step: Step, values: Values, tile: Tile | None = None) -> Launches:
    reads, writes, kernel = step.reads, step.writes, values.shape(step.reads["flipped"])[1]
    if "dx" in writes:
        *image, channels = values.shape(writes["dx"])
    else:
        (batch, *padded), channels = (
            values.shape(reads["kept"])[1:4],
            values.shape(writes["bias_partials"])[1],
        )
        image = [batch, *(size - 2 * step.attributes["kept_padding"] for size in padded)]
    windows = Windows(_image_of_gradient(image, kernel), kernel)
    return _convolution(values, gradient_epilogue(step, values), channels, windows, tile)


def _convolution(
    values: Values,
    epilogue: Epilogue,
    filters: int,
    windows: Windows,
    tile: Tile | None,
) -> Launches:
    x, weight, *_ = epilogue.arrays
    channel_blocks, _, _, stored, _ = values.shape(weight)
    grid = _blocks(windows, filters, "WINDOWS" in epilogue.defines, tile)
    phases = windows.spread**2
    image_pixels, padded_filters = (
        elements(values, x) // channel_blocks // CHANNEL_BLOCK,
        stored // phases,
    )
    tile, sizes = grid.tile, (grid.pixels * phases, image_pixels, grid.rows, grid.together)
    shared = (
        grid.shared_bytes
        if epilogue.entry == "conv2d"
        else max(grid.shared_bytes, sums_bytes(tile))
    )
    macros = {**epilogue.defines, **({"PHASES": 1} if phases > 1 else {})}
    defines = *tile.defines, *(f"{name}={int(value)}" for name, value in macros.items())
    return (
        Launch(
            f"gpu_bf16_sm90/{epilogue.entry}.cu",
            epilogue.entry,
            (grid.down * (stored // tile.n),),
            (tile.threads,),
            (
                *epilogue.arrays,
                *integers(
                    *windows.image[1:],
                    channel_blocks,
                    filters,
                    padded_filters,
                    windows.kernel,
                    windows.stride,
                    *sizes,
                    *epilogue.numbers,
                ),
            ),
            shared,
            defines,
        ),
    )


def arrange_image(step: Step, values: Values) -> Launches:
    x, channel_blocks = step.operands("x", "rounded")
    _, height, width, channels = values.shape(x)
    chunks = elements(values, channel_blocks) // (CHANNEL_BLOCK // CHUNKS)
    return (
        Launch(
            "gpu_bf16_sm90/arrange.cu",
            "arrange_image",
            (blocks(chunks, 256),),
            (256,),
            (
                x,
                channel_blocks,
                *integers(
                    chunks // CHUNKS // values.shape(channel_blocks)[0],
                    height,
                    width,
                    channels,
                    step.attributes["padding"],
                ),
            ),
        ),
    )


def arrange_gradient(step: Step, values: Values) -> Launches:
    dy, bias_partials = step.operands("dy", "bias_partials")
    channel_blocks, steps = both_gradients(step.writes)
    batch, height, width, channels = values.shape(dy)
    padding, (count, *phases, step_pixels, _) = step.attributes["padding"], values.shape(steps)
    pixels = batch * (height + 2 * padding) * (width + 2 * padding)
    sizes = integers(pixels, height, width, channels, padding, PIXELS_OF_PARTIAL, step_pixels)
    grid = values.shape(bias_partials)[0], count
    return (
        Launch(
            "gpu_bf16_sm90/arrange.cu",
            "arrange_gradient",
            grid,
            (256,),
            (dy, channel_blocks, steps, bias_partials, *sizes),
            defines=("STEPS_BY_PHASE=1",) if phases else (),
        ),
    )


def weight_grad(step: Step, values: Values) -> Launches:
    """The parts of a weight gradient, and their sums unless the update adds them."""
    product, parts, channels = _parts_of_weight(
        step, values, step.attributes["kernel"], step.attributes["stride"]
    )
    return (
        (product,)
        if "parts" in step.writes
        else (product, add_parts(step, values, parts, channels, channels))
    )


def phase_weight_grad(step: Step, values: Values) -> Launches:
    """The same for phase weights, and from these for the 3x3 taps."""
    product, parts, _ = _parts_of_weight(step, values, PHASE_KERNEL, 1, spread=2)
    if "parts" in step.writes:
        return (product,)
    return product, *add_phase_parts(
        step, values, parts, values.shape(step.reads["bias_partials"])[1]
    )


def _parts_of_weight(
    step: Step, values: Values, kernel: int, stride: int, spread: int = 1
) -> tuple[Launch, str, int]:
    """(the launch that leaves a weight gradient in parts, their buffer, channels of x)."""
    x, dy, filters = step.reads["x"], step.reads["dy"], values.shape(step.reads["bias_partials"])[1]
    stored_blocks, *image, _ = values.shape(x)
    tile, weights = filters_together(filters, kernel), filters * kernel**2
    windows, parts = Windows(image, kernel, stride, spread), step.writes.get("parts")
    channels = (
        values.shape(parts)[1] // weights // spread**2
        if parts
        else values.shape(step.writes["dweight"])[3]
    )
    channel_blocks = blocks(channels, CHANNEL_BLOCK)
    number_format = HALVES if stored_blocks > channel_blocks else BFLOAT16
    splits, per_split = _split_of(values.shape(x), filters, kernel, stride, spread, number_format)
    rows = span_of_taps(windows, number_format)
    parts = parts or values.workspace(
        f"{step.layer}.parts", (splits, spread**2 * weights * channels)
    )
    sizes = integers(
        *image[1:],
        channels,
        filters,
        stride,
        math.prod(windows.output),
        math.prod(image),
        values.shape(dy)[-2],
        per_split,
        rows,
    )
    macros = {
        "TILE_N": tile,
        "KERNEL": kernel,
        "WHOLE_ROWS": STEP // number_format.halves % windows.output[2] == 0,
        **({"PHASES": 1} if spread > 1 else {}),
    }
    defines = tuple(f"{name}={int(value)}" for name, value in macros.items())
    grid = kernel * channel_blocks, blocks(filters, tile), splits * spread**2
    return (
        Launch(
            "gpu_bf16_sm90/weight_grad.cu",
            "conv2d_weight_grad",
            grid,
            (128 * kernel + 128,),
            (x, dy, parts, *sizes),
            weight_grad_bytes(tile, rows, number_format),
            defines,
        ),
        parts,
        channels,
    )


LAUNCHES = {
    "conv2d_arrange_input": arrange_image,
    "conv2d_arrange_gradient": arrange_gradient,
    "arranged_conv2d_forward": forward,
    "arranged_conv2d_input_grad": input_grad,
    "arranged_conv2d_weight_grad": on_stream(1, weight_grad),
    "arranged_phase_conv2d_forward": phase_forward,
    "arranged_phase_conv2d_input_grad": phase_input_grad,
    "arranged_phase_conv2d_weight_grad": on_stream(1, phase_weight_grad),
}


def rung(
    below: Implementation, of_below: NumberFormat, in_blocks: NumberFormat | None = None
) -> Implementation:
    """The rung `below`, whose packed operands are such numbers, with these launches; in_blocks: of
    operands in channel blocks, if not the same.
    """
    number_format = in_blocks or of_below
    takes = functools.partial(packing_of, below=of_below, in_blocks=number_format)
    return dataclasses.replace(
        below.with_launches(
            {
                name: launched(function, number_format, name.endswith("input_grad"))
                for name, function in LAUNCHES.items()
            }
        ),
        patterns=Lowering(takes, rounds=not in_blocks).patterns,
        in_halves=number_format.halves > 1,
    )


def launched(
    function: LaunchFunction, number_format: NumberFormat, of_gradient: bool
) -> LaunchFunction:
    """The launches with such operands; of_gradient: the first is one, which halves are scaled
    by.
    """
    if of_gradient and number_format.halves > 1:
        defines = *number_format.defines, "OF_GRADIENT=1"
        number_format = dataclasses.replace(number_format, defines=defines)
    return in_format(function, number_format)


RUNG = rung(gpu_bf16.RUNG, BFLOAT16)
