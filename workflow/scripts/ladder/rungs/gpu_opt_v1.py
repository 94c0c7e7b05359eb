"""Tiles in shared memory and registers, 16-byte accesses, ReLU fused into the convolution, split-K
weight gradients, losses added by trees, and one launch that updates all parameters.

The gradient of a ReLU is fused into the layer that reads it if that is a single pooling or
upsampling layer; otherwise it is a separate step.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from ladder.network.networks import Network
from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_basic, patterns
from ladder.rungs.gpu_basic import blocks, convolution_sizes, elements, floats, integers, numbers
from ladder.rungs.interface import Backward, Pattern, PlanBuilder
from ladder.rungs.launches import Gradient, Group, Launch, Launches, Step, Table, Word
from ladder.rungs.patterns import LAYERS, AppliesRelu
from ladder.rungs.tiles import SQUARE, Tile
from ladder.rungs.values import Values

FEW_COLUMNS = Tile(256, 4, 4, 4)
NARROW = Tile(64, 32, 8, 4)
FEW_ROWS = Tile(4, 256, 4, 4)

# Split-K of the weight gradients. The number of splits changes the results' bytes, so it must not
# depend on the GPU's size.
SPLIT_WARPS = 2112  # in all blocks together: 16 per multiprocessor of an H200, which has 132
SPLIT_PIXELS, SPLITS = 64, 128  # least pixels per split, most splits


class ProductTile(Protocol):
    """What the launches of a product read of its tile: a tiles.Tile, or another rung's."""

    @property
    def m(self) -> int: ...

    @property
    def n(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def shares(self) -> int: ...

    @property
    def shared_bytes(self) -> int: ...

    def defines(self, **wide: bool) -> tuple[str, ...]: ...


PixelTile = Callable[[int, int, bool, int], ProductTile]  # pixel_tile, or another rung's
WeightTile = Callable[[int, int, bool], ProductTile]  # weight_tile, or another rung's


@dataclasses.dataclass(frozen=True)
class Row:
    """Of an update's table: what it does to a parameter.

    buffers  the parameter, up to two running averages, and the gradient; 0 where there is none
    blocks   of threads that do it
    more     further words, which the rung's kernel reads
    """

    buffers: tuple[Word, ...]
    blocks: int
    more: tuple[Word, ...] = ()


def reader_applies_relu(network: Network, name: str) -> bool:
    """True if layer `name` is a ReLU whose only reader applies the ReLU's gradient with its own."""
    readers = network.readers(name)
    return (
        network.layer(name).kind == "relu"
        and len(readers) == 1
        and (
            readers[0].kind == "upsample2d"
            or (readers[0].kind == "maxpool2d" and patterns.is_2x2(readers[0]))
        )
    )


def conv_block(
    build: PlanBuilder, group: Group, applied_by_reader: AppliesRelu = reader_applies_relu
) -> Backward:
    """conv2d or dense, then optionally ReLU.

    applied_by_reader(network, name): replaces reader_applies_relu, for a rung with other fusions.
    """
    conv, last = group[0], group[-1]
    x, weight, bias = patterns.convolution(build, conv)
    y = build.values.activation(last)
    attributes = patterns.sliding(conv)
    build.steps.add(
        "conv2d_forward",
        group,
        {"x": x, "weight": weight, "bias": bias},
        {"y": y},
        flop=2 * conv.macs,
        **attributes,
        relu=last.kind == "relu",
    )

    def backward() -> None:
        dy = gradient_before_relu(build, group, y, applied_by_reader)
        operands = {"x": x, "weight": weight, "dy": dy}
        patterns.product_gradients(build, "conv2d", conv, operands, attributes)

    return backward


def resize_block(build: PlanBuilder, group: Group) -> Backward | None:
    """2x2 maxpool2d or upsample2d; after a ReLU, the step's gradient is that of the ReLU's
    input.
    """
    (layer,) = group
    x, y = build.values.source(layer), build.values.activation(layer)
    index = {"index": build.values.mask(layer)} if layer.kind == "maxpool2d" else {}
    build.steps.add(f"{layer.kind}_forward", group, {"x": x}, {"y": y, **index}, **layer.attributes)

    def backward() -> None:
        relu = reader_applies_relu(build.network, x)
        saved = {"y": y} if layer.kind == "maxpool2d" else {"x": x}
        build.steps.add(
            f"{layer.kind}_backward",
            group,
            {"dy": build.gradients.total(y), **index, **saved},
            {"dx": build.gradients.part(x)},
            **layer.attributes,
            relu=relu,
        )

    return backward if build.gradients.is_wanted(x) else None


def gradient_before_relu(
    build: PlanBuilder, group: Group, y: str, applied_by_reader: AppliesRelu = reader_applies_relu
) -> str:
    """The gradient of a convolution's output; a ReLU behind it has a step of its own, unless y's
    reader applies it.
    """
    conv, last, dy = group[0], group[-1], build.gradients.total(y)
    if last.kind != "relu" or applied_by_reader(build.network, last.name):
        return dy
    masked = build.values.workspace(f"{conv.name}.gradient", build.values.shape(y))
    build.steps.add("relu_backward", group, {"y": y, "dy": dy}, {"dx": masked})
    return masked


def is_small_pool(group: Group) -> bool:
    """True if the last layer is a 2x2 pooling."""
    return patterns.is_2x2(group[-1])


def phase_block(build: PlanBuilder, group: Group) -> Backward:
    return patterns.phase_block(build, group, reader_applies_relu)


PATTERNS = (
    Pattern(("upsample2d", "conv2d"), phase_block, decomposes=True),
    Pattern(("conv2d", "relu"), conv_block),
    Pattern(("conv2d",), conv_block),
    Pattern(("dense", "relu"), conv_block),
    Pattern(("dense",), conv_block),
    Pattern(("maxpool2d",), resize_block, is_small_pool),
    Pattern(("upsample2d",), resize_block),
    *LAYERS,
)


def pixel_tile(pixels: int, columns: int, wide: bool, multiprocessors: int) -> Tile:
    """Tile of forward and input gradient, where rows are pixels. wide: both operands are read 16
    bytes at a time.
    """
    return FEW_COLUMNS if columns <= 4 else SQUARE


def weight_tile(filters: int, columns: int, wide: bool) -> Tile:
    """Tile of a weight gradient, where rows are filters."""
    if filters <= 4:
        return FEW_ROWS
    return NARROW if columns <= 32 else SQUARE


def split(tile: ProductTile, filters: int, columns: int, pixels: int) -> tuple[int, int]:
    """(number of splits, pixels per split) of a weight gradient."""
    warps = blocks(filters, tile.m) * blocks(columns, tile.n) * tile.shares
    splits = max(1, min(SPLIT_WARPS // warps, pixels // SPLIT_PIXELS, SPLITS))
    size = 8 * blocks(blocks(pixels, splits), 8)  # whole steps of the kernel
    return blocks(pixels, size), size


def conv2d_forward(step: Step, values: Values, tile_for: PixelTile = pixel_tile) -> Launches:
    """tile_for: replaces pixel_tile, for a rung with other tiles; likewise in the gradients."""
    x, weight, bias, y = step.operands("x", "weight", "bias", "y")
    channels, filters = values.shape(weight)[3], values.shape(y)[3]
    pixels = elements(values, y) // filters
    wide = channels % 4 == 0
    tile = tile_for(pixels, filters, wide, values.multiprocessors)
    arguments = (
        x,
        weight,
        bias,
        y,
        *convolution_sizes(step, values, x, weight),
        *integers(step.attributes["relu"]),
    )
    return (
        Launch(
            "gpu_opt_v1/conv2d_forward.cu",
            "conv2d_forward",
            (blocks(pixels, tile.m) * blocks(filters, tile.n),),
            (tile.threads,),
            arguments,
            tile.shared_bytes,
            tile.defines(WIDE=wide),
        ),
    )


def conv2d_input_grad(step: Step, values: Values, tile_for: PixelTile = pixel_tile) -> Launches:
    dy, weight, dx = step.operands("dy", "weight", "dx")
    channels, filters = values.shape(dx)[3], values.shape(dy)[3]
    pixels = elements(values, dx) // channels
    wide_dy, wide_weight = filters % 4 == 0, channels % 4 == 0
    tile = tile_for(pixels, channels, wide_dy and wide_weight, values.multiprocessors)
    arguments = (dy, weight, dx, *convolution_sizes(step, values, dx, weight))
    return (
        Launch(
            "gpu_opt_v1/conv2d_input_grad.cu",
            "conv2d_input_grad",
            (blocks(pixels, tile.m) * blocks(channels, tile.n),),
            (tile.threads,),
            arguments,
            tile.shared_bytes,
            tile.defines(
                WIDE_DY=wide_dy, WIDE_WEIGHT=wide_weight, STRIDED=step.attributes["stride"] != 1
            ),
        ),
    )


def conv2d_weight_grad(step: Step, values: Values, tile_for: WeightTile = weight_tile) -> Launches:
    x, dy, dweight, dbias = step.operands("x", "dy", "dweight", "dbias")
    channels, filters = values.shape(x)[3], values.shape(dy)[3]
    weights, pixels = elements(values, dweight), elements(values, dy) // filters
    columns = weights // filters
    wide_dy, wide_x = filters % 4 == 0, channels % 4 == 0
    tile = tile_for(filters, columns, wide_dy and wide_x)
    splits, pixels_per_split = split(tile, filters, columns, pixels)
    per_split = 4 * blocks(weights + filters, 4)
    partials = values.workspace(f"{step.layer}.partials", (splits, per_split))
    defines = tile.defines(WIDE_DY=wide_dy, WIDE_X=wide_x)
    source = "gpu_opt_v1/conv2d_weight_grad.cu"
    return (
        Launch(
            source,
            "conv2d_weight_grad",
            (blocks(columns, tile.n), blocks(filters, tile.m), splits),
            (tile.threads,),
            (
                x,
                dy,
                partials,
                *convolution_sizes(step, values, x, dweight),
                *integers(pixels_per_split),
            ),
            tile.shared_bytes,
            defines,
        ),
        Launch(
            source,
            "conv2d_add_splits",
            (blocks(per_split // 4, 128),),
            (128,),
            (partials, dweight, dbias, *integers(weights, filters, splits)),
            defines=defines,
        ),
    )


def maxpool2d_forward(step: Step, values: Values) -> Launches:
    if not patterns.is_2x2(step):
        return gpu_basic.RUNG.launches[step.operation](step, values)
    x, y, index = step.operands("x", "y", "index")
    return _one(
        "maxpool2d.cu", "maxpool2d_forward", elements(values, y), (x, y, index), values.shape(x)
    )


def maxpool2d_backward(step: Step, values: Values) -> Launches:
    if not patterns.is_2x2(step):
        return gpu_basic.RUNG.launches[step.operation](step, values)
    arrays = step.operands("dy", "index", "y", "dx")
    batch, height, width, channels = shape = values.shape(arrays[-1])
    return _one(
        "maxpool2d.cu",
        "maxpool2d_backward",
        batch * blocks(height, 2) * blocks(width, 2) * channels,
        arrays,
        shape,
        step.attributes["relu"],
    )


def upsample2d_forward(step: Step, values: Values) -> Launches:
    x, y = step.operands("x", "y")
    return _one("upsample2d.cu", "upsample2d_forward", elements(values, x), (x, y), values.shape(x))


def upsample2d_backward(step: Step, values: Values) -> Launches:
    dy, x, dx = step.operands("dy", "x", "dx")
    return _one(
        "upsample2d.cu",
        "upsample2d_backward",
        elements(values, dx),
        (dy, x, dx),
        values.shape(dx),
        step.attributes["relu"],
    )


def mse(step: Step, values: Values) -> Launches:
    prediction, target = step.operands("prediction", "target")
    count = elements(values, prediction)
    sums = values.workspace("loss.partials", (blocks(count, 1024),), "float64")
    return (
        Launch(
            "gpu_opt_v1/mse.cu",
            "mse",
            (blocks(count, 1024),),
            (256,),
            (
                prediction,
                target,
                step.writes["gradient"],
                sums,
                *integers(count),
                *floats(2 / step.attributes["divisor"]),
            ),
        ),
        mse_total(step, values, sums),
    )


def mse_total(step: Step, values: Values, sums: str) -> Launch:
    """The launch that adds the blocks' sums of squares."""
    count = elements(values, step.reads["prediction"])
    return Launch(
        "gpu_opt_v1/mse.cu",
        "mse_total",
        (1,),
        (256,),
        (
            sums,
            step.reads["counters"],
            step.writes["losses"],
            *integers(count, *values.shape(sums)),
        ),
    )


def update(
    step: Step,
    values: Values,
    source: str = "gpu_opt_v1/update.cu",
    row_of: Callable[
        [Values, str, Gradient], tuple[int, tuple[Word, ...]]
    ] = lambda values, name, gradient: (blocks(elements(values, name)), ()),
    later: Callable[[Row], bool] = lambda row: False,
) -> Launches:
    """row_of(values, name, gradient): (blocks, further words) of a parameter's row; later: whether
    its blocks come last.
    """
    rule, rows = step.operation.removesuffix("_update"), []
    for name, gradient in step.attributes["gradients"].items():
        averages: list[Word] = [step.writes[f"{name}.{average}"] for average in AVERAGES[rule]]
        buffers = name, *averages, *(2 - len(averages)) * [0], gradient.buffer
        rows.append(Row(buffers, *row_of(values, name, gradient)))
    table, grid = update_table(step, values, sorted(rows, key=later))
    settings = floats(*numbers(step, "weight_decay", "clip", "momentum"))
    factor = step.attributes.get("gradient_factor")
    return (
        Launch(
            source,
            step.operation,
            grid,
            (256,),
            (table, step.reads["learning_rates"], step.reads["counters"], *settings),
            defines=(f"GRADIENT_FACTOR={factor!r}",) if factor else (),
        ),
    )


def update_table(step: Step, values: Values, rows: Sequence[Row]) -> tuple[Table, tuple[int]]:
    """(the Table of kernels/common/update.cuh, the grid)."""
    words: list[tuple[Word, ...]] = []
    of_blocks: list[int] = []
    for number, row in enumerate(rows):
        size = elements(values, str(row.buffers[0]))
        words.append((*row.buffers, size, len(of_blocks), *row.more))
        of_blocks += row.blocks * [number]
    starts = (len(of_blocks) + len(words[0]) * row for row in of_blocks)
    return Table((*starts, *itertools.chain(*words)), frozenset(step.writes.values())), (
        len(of_blocks),
    )


RUNG = dataclasses.replace(
    gpu_basic.RUNG.with_launches(
        {
            **{
                function.__name__: function
                for function in (
                    conv2d_forward,
                    conv2d_input_grad,
                    conv2d_weight_grad,
                    maxpool2d_forward,
                    maxpool2d_backward,
                    upsample2d_forward,
                    upsample2d_backward,
                    mse,
                )
            },
            "cross_entropy": functools.partial(
                gpu_basic.cross_entropy,
                source="gpu_opt_v1/cross_entropy.cu",
                rows=8,
                threads=(256, 256),
            ),
            **{f"{rule}_update": update for rule in AVERAGES},
        }
    ),
    patterns=PATTERNS,
    updates_together=True,
)


def _one(
    file: str, entry: str, count: int, arrays: tuple[str, ...], shape: tuple[int, ...], *more: int
) -> Launches:
    """One launch over `count` elements, 4 neighbouring channels per thread if 4 divides the
    channels, else one.
    """
    width = 4 if shape[3] % 4 == 0 else 1
    return (
        Launch(
            f"gpu_opt_v1/{file}",
            entry,
            (blocks(count // width, 256),),
            (256,),
            (*arrays, *integers(*shape, *more)),
            defines=(f"WIDTH={width}",),
        ),
    )
