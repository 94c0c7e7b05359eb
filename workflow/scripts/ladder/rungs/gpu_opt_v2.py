"""Fused layers: conv+bias+ReLU+maxpool and upsample+conv as one operation each, and one launch that
adds the parts of all weight gradients and updates the weights.

ReLU, pooling and upsampling next to a convolution need no launch in either direction, and their
outputs stay in registers. Strided convolutions use gpu_opt_v1's kernels.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Unpack

from ladder.network.layers import Layer
from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_opt_v1, patterns, tiles
from ladder.rungs.gpu_basic import blocks, elements, integers
from ladder.rungs.gpu_opt_v1 import is_small_pool, resize_block
from ladder.rungs.interface import Backward, Pattern, PlanBuilder
from ladder.rungs.launches import Argument, Gradient, Group, Launch, Launches, Step, StepAttributes
from ladder.rungs.patterns import LAYERS
from ladder.rungs.tiles import LARGE, SQUARE, TIMES, Tile
from ladder.rungs.values import LaunchFunction, Values

ALL_TAPS = Tile(128, 48, 4, 12)  # 4 x 4 taps of 3 filters
FEW_COLUMNS, FEW_ROWS = Tile(128, 32, 8, 4), Tile(48, 64, 4, 4)
FEW_FILTERS = 16  # fewer filters behind an upsampling: all taps as one product
# Split-K of the weight gradients: blocks of 256 threads, one per multiprocessor of an H200, and the
# least pixels per split. The number of splits changes the results' bytes, so it must not depend on
# the GPU's size.
SPLIT_BLOCKS, SPLIT_PIXELS = 132, 64


def conv_block(build: PlanBuilder, group: Group) -> Backward:
    """conv2d, then optionally ReLU and 2x2 max-pool."""
    conv, last = group[0], group[-1]
    kinds = [layer.kind for layer in group]
    x, weight, bias = patterns.convolution(build, conv)
    y = build.values.activation(last)
    index = {"index": build.values.mask(last)} if "maxpool2d" in kinds else {}
    padding, flop = conv.attributes["padding"], 2 * conv.macs
    build.steps.add(
        "conv2d_forward",
        group,
        {"x": x, "weight": weight, "bias": bias},
        {"y": y, **index},
        flop=flop,
        padding=padding,
        relu="relu" in kinds,
    )
    saved = index or ({"y": y} if "relu" in kinds else {})
    return lambda: gradients(
        build, "conv2d", group, weight, {"dy": build.gradients.total(y), **saved}, padding=padding
    )


def strided_block(build: PlanBuilder, group: Group) -> Backward:
    """gpu_opt_v1's operations; the ReLU's gradient is a separate step, because a fused upsampling
    does not apply it.
    """
    return gpu_opt_v1.conv_block(build, group, applied_by_reader=lambda network, name: False)


def upsample_conv_block(build: PlanBuilder, group: Group) -> Backward:
    """Nearest upsampling by 2, conv2d 3x3, then optionally ReLU."""
    upsample, conv, last = group[0], group[1], group[-1]
    x, weight, bias = (
        build.values.source(upsample),
        build.values.parameter(f"{conv.name}.weight"),
        build.values.parameter(f"{conv.name}.bias"),
    )
    y, relu = build.values.activation(last), last.kind == "relu"
    phase_weights = build.values.derived(
        f"{conv.name}.phase_weights", (conv.attributes["filters"], 4, 4, upsample.output_shape[2])
    )
    flop = patterns.flop_of_phases(conv)
    build.steps.add("decompose_weight", group, {"weight": weight}, {"phase_weights": phase_weights})
    build.steps.add(
        "upsample_conv2d_forward",
        group,
        {"x": x, "phase_weights": phase_weights, "bias": bias},
        {"y": y},
        flop=flop,
        relu=relu,
    )
    saved = {"y": y} if relu else {}
    return lambda: gradients(
        build, "upsample_conv2d", group, phase_weights, {"dy": build.gradients.total(y), **saved}
    )


def gradients(
    build: PlanBuilder,
    operation: str,
    group: Group,
    weight: str,
    received: Mapping[str, str],
    **attributes: Unpack[StepAttributes],
) -> None:
    """Append the backward steps of a group.

    weight: buffer that the input gradient reads; received: {role: buffer} of dy and of the fused
    layers' outputs or indices.
    """
    x, conv = build.values.source(group[0]), next(layer for layer in group if layer.parameters)
    phases = operation.startswith("upsample")
    flop = patterns.flop_of_phases(conv) if phases else 2 * conv.macs
    if build.gradients.is_wanted(x):
        build.steps.add(
            f"{operation}_input_grad",
            group,
            {**received, "weight": weight},
            {"dx": build.gradients.part(x)},
            flop=flop,
            **attributes,
        )
    if build.in_parts:
        writes = {"parts": gradient_in_parts(build, conv, x, received, phases)}
    else:
        writes = patterns.weight_gradients(build, conv)
    attributes["kernel"] = conv.attributes.get("kernel", 1)
    build.steps.add(
        f"{operation}_weight_grad",
        group,
        {"x": x, **received},
        writes,
        flop=flop,
        **attributes,
    )


def gradient_in_parts(
    build: PlanBuilder, conv: Layer, x: str, received: Mapping[str, str], phases: bool
) -> str:
    """The buffer with the parts of a layer's weight and bias gradient, which the update adds."""
    weight, bias = f"{conv.name}.weight", f"{conv.name}.bias"
    filters, kernel = build.network.parameters[weight][:2]
    rows, columns, pixels = gradient_matrix(build.values, x, received, filters, kernel, phases)
    splits, _ = split(weight_tile(rows, columns), rows, columns, pixels)
    parts = build.values.workspace(f"{conv.name}.parts", parts_shape(splits, rows, columns))
    build.gradients.leave_in_parts({weight: Gradient(parts, True, 0, phases)})
    if conv.attributes["bias"]:
        build.gradients.leave_in_parts({bias: Gradient(parts, True, rows * columns, phases)})
    return parts


def _has_stride_1(group: Group) -> bool:
    return bool(group[0].attributes["stride"] == 1)


def _pools_2x2(group: Group) -> bool:
    return _has_stride_1(group) and patterns.is_2x2(group[2])


PATTERNS = (
    Pattern(("conv2d", "relu", "maxpool2d"), conv_block, _pools_2x2),
    Pattern(
        ("upsample2d", "conv2d", "relu"), upsample_conv_block, patterns.is_same_3x3, exact_only=True
    ),
    Pattern(("upsample2d", "conv2d"), upsample_conv_block, patterns.is_same_3x3, exact_only=True),
    Pattern(("conv2d", "relu"), conv_block, _has_stride_1),
    Pattern(("conv2d",), conv_block, _has_stride_1),
    Pattern(("conv2d", "relu"), strided_block),
    Pattern(("conv2d",), strided_block),
    Pattern(("dense", "relu"), conv_block),
    Pattern(("dense",), conv_block),
    # Behind a ReLU these also apply its gradient; applying it twice gives the same result.
    Pattern(("maxpool2d",), resize_block, is_small_pool),
    Pattern(("upsample2d",), resize_block),
    *LAYERS,
)


def pixel_tile(values: Values, pixels: int, columns: int, phases: int = 1) -> Tile:
    """Tile of forward and input gradient, where rows are pixels; phases: number of such products in
    one launch.
    """
    return tiles.quickest(TIMES, pixels, columns, values.multiprocessors, phases)


def weight_tile(rows: int, columns: int) -> Tile:
    """Tile of a weight gradient."""
    if rows <= FEW_ROWS.m:
        return FEW_ROWS
    return FEW_COLUMNS if columns <= FEW_COLUMNS.n else LARGE


def split(tile: Tile, rows: int, columns: int, pixels: int) -> tuple[int, int]:
    """(number of splits, pixels per split) of a weight gradient."""
    tiles = blocks(rows, tile.m) * blocks(columns, tile.n)
    splits = max(1, min(SPLIT_BLOCKS * 256 // tile.threads // tiles, pixels // SPLIT_PIXELS))
    size = 8 * blocks(blocks(pixels, splits), 8)  # whole steps of the kernel
    return blocks(pixels, size), size


def of_stride_1(launch: LaunchFunction) -> LaunchFunction:
    """The launch function with a fallback to gpu_opt_v1's for strided convolutions."""

    @functools.wraps(launch)
    def launches(step: Step, values: Values) -> Launches:
        strided = step.attributes.get("stride", 1) != 1
        return (gpu_opt_v1.RUNG.launches[launch.__name__] if strided else launch)(step, values)

    return launches


@of_stride_1
def conv2d_forward(step: Step, values: Values) -> Launches:
    x, weight, _, y = operands = step.operands("x", "weight", "bias", "y")
    index, (filters, kernel) = step.writes.get("index"), values.shape(weight)[:2]
    pixels = elements(values, y) // filters * (4 if index else 1)
    shape = integers(*values.shape(x), filters, kernel, step.attributes["padding"])
    if index:
        return _product(
            "conv2d.cu",
            "conv2d_pool_forward",
            pixel_tile(values, pixels, filters),
            (pixels, filters),
            (*operands, index, *shape),
            _wide(values, step),
        )
    return _product(
        "conv2d.cu",
        "conv2d_forward",
        pixel_tile(values, pixels, filters),
        (pixels, filters),
        (*operands, *shape, *integers(step.attributes["relu"])),
        _wide(values, step),
    )


@of_stride_1
def conv2d_input_grad(step: Step, values: Values) -> Launches:
    weight, dx = step.operands("weight", "dx")
    channels, pixels = values.shape(dx)[3], elements(values, dx) // values.shape(dx)[3]
    entry, received = _received("conv2d_input_grad", step)
    shape = integers(*values.shape(dx), *values.shape(weight)[:2], step.attributes["padding"])
    return _product(
        "conv2d.cu",
        entry,
        pixel_tile(values, pixels, channels),
        (pixels, channels),
        (*received, weight, dx, *shape),
        _wide(values, step),
    )


@of_stride_1
def conv2d_weight_grad(step: Step, values: Values) -> Launches:
    filters, kernel = values.shape(step.reads["dy"])[3], step.attributes["kernel"]
    return _weight_grad(
        step,
        values,
        "conv2d_weight_grad",
        (*values.shape(step.reads["x"]), filters, kernel, step.attributes["padding"]),
    )


def decompose_weight(step: Step, values: Values) -> Launches:
    weight, phase_weights = step.operands("weight", "phase_weights")
    filters, _, _, channels = values.shape(weight)
    return (
        Launch(
            "gpu_opt_v2/upsample_conv2d.cu",
            "decompose_weight",
            (blocks(elements(values, phase_weights), 256),),
            (256,),
            (weight, phase_weights, *integers(filters, channels)),
            defines=(*_tile(SQUARE), *_wide_macros(True, True)),
        ),
    )


def upsample_conv2d_forward(step: Step, values: Values) -> Launches:
    x, phase_weights, bias, y = step.operands("x", "phase_weights", "bias", "y")
    batch, height, width, channels = values.shape(x)
    filters, pixels, relu = values.shape(y)[3], batch * height * width, step.attributes["relu"]
    if filters < FEW_FILTERS:
        taps = values.workspace(f"{step.layer}.taps", (batch, height, width, filters, 4, 4))
        (product,) = _product(
            "upsample_conv2d_taps.cu",
            "upsample_conv2d_taps",
            ALL_TAPS,
            (pixels, 16 * filters),
            (x, phase_weights, taps, *integers(batch, height, width, channels, filters)),
            _wide(values, step),
        )
        return product, Launch(
            product.source,
            "upsample_conv2d_add_taps",
            (blocks(elements(values, y), 256),),
            (256,),
            (taps, bias, y, *integers(batch, height, width, filters, relu)),
            defines=product.defines,
        )
    tile = pixel_tile(values, pixels, filters, phases=4)
    return (
        Launch(
            "gpu_opt_v2/upsample_conv2d.cu",
            "upsample_conv2d_forward",
            (blocks(pixels, tile.m), 2 * blocks(filters, tile.n), 2),
            (tile.threads,),
            (x, phase_weights, bias, y, *integers(batch, height, width, channels, filters, relu)),
            defines=(*_tile(tile), *_wide(values, step)),
        ),
    )


def upsample_conv2d_input_grad(step: Step, values: Values) -> Launches:
    dy, phase_weights, dx = step.operands("dy", "weight", "dx")
    batch, height, width, channels = values.shape(dx)
    entry, received = _received("upsample_conv2d_input_grad", step)
    pixels = batch * height * width
    return _product(
        "upsample_conv2d.cu",
        entry,
        pixel_tile(values, pixels, channels),
        (pixels, channels),
        (
            *received,
            phase_weights,
            dx,
            *integers(batch, height, width, channels, values.shape(dy)[3]),
        ),
        _wide(values, step),
    )


def upsample_conv2d_weight_grad(step: Step, values: Values) -> Launches:
    return _weight_grad(
        step,
        values,
        "upsample_conv2d_weight_grad",
        (*values.shape(step.reads["x"]), values.shape(step.reads["dy"])[3]),
    )


def update(step: Step, values: Values) -> Launches:
    """Adds the parts of each gradient, see weight_update.cu; a whole gradient is one part."""
    return gpu_opt_v1.update(step, values, "gpu_opt_v2/weight_update.cu", _row_of)


RUNG = dataclasses.replace(
    gpu_opt_v1.RUNG.with_launches(
        {
            **{
                function.__name__: function
                for function in (
                    conv2d_forward,
                    conv2d_input_grad,
                    conv2d_weight_grad,
                    decompose_weight,
                    upsample_conv2d_forward,
                    upsample_conv2d_input_grad,
                    upsample_conv2d_weight_grad,
                )
            },
            **{f"{rule}_update": update for rule in AVERAGES},
        }
    ),
    patterns=PATTERNS,
    gradients_in_parts=True,
)


def _received(entry: str, step: Step) -> tuple[str, tuple[str, ...]]:
    """(kernel name, its first arguments): the kernel that leads dy back through the fused max-pool
    or ReLU.
    """
    if "index" in step.reads:
        return f"{entry}_behind_pool", (step.reads["dy"], step.reads["index"])
    if "y" in step.reads:
        return f"{entry}_behind_relu", (step.reads["dy"], step.reads["y"])
    return entry, (step.reads["dy"],)


def gradient_matrix(
    values: Values, x: str, received: Mapping[str, str], filters: int, kernel: int, phases: bool
) -> tuple[int, int, int]:
    """(rows, columns, pixels that are summed over) of a weight gradient."""
    channels = values.shape(x)[3]
    if phases:
        return 16 * filters, channels, elements(values, x) // channels
    pixels = elements(values, received["dy"]) // filters * (4 if "index" in received else 1)
    return filters, kernel * kernel * channels, pixels


def parts_shape(splits: int, rows: int, columns: int) -> tuple[int, int]:
    """A split's matrix, and behind it its rows' sums of dy."""
    return splits, 4 * blocks(rows * columns + rows, 4)


def _weight_grad(step: Step, values: Values, entry: str, shape: tuple[int, ...]) -> Launches:
    """The splits of a weight gradient, and their sums unless the update adds them."""
    phases, filters = entry.startswith("upsample"), values.shape(step.reads["dy"])[3]
    rows, columns, pixels = gradient_matrix(
        values, step.reads["x"], step.reads, filters, step.attributes["kernel"], phases
    )
    tile = weight_tile(rows, columns)
    splits, pixels_per_split = split(tile, rows, columns, pixels)
    parts = step.writes.get("parts") or values.workspace(
        f"{step.layer}.parts", parts_shape(splits, rows, columns)
    )
    entry, received = _received(entry, step)
    product = Launch(
        "gpu_opt_v2/weight_grad.cu",
        entry,
        (blocks(columns, tile.n), blocks(rows, tile.m), splits),
        (tile.threads,),
        (step.reads["x"], *received, parts, *integers(*shape, pixels_per_split)),
        defines=(*_tile(tile), *_wide(values, step)),
    )
    return (product,) if "parts" in step.writes else (product, _sum(step, values, parts, phases))


def _sum(step: Step, values: Values, parts: str, phases: bool) -> Launch:
    dweight, dbias = step.operands("dweight", "dbias")
    weights, (filters, _, _, channels) = elements(values, dweight), values.shape(dweight)
    return Launch(
        "gpu_opt_v2/weight_update.cu",
        "add_parts",
        (blocks(weights + filters, 256),),
        (256,),
        (
            parts,
            dweight,
            dbias,
            *integers(*values.shape(parts), weights, filters, channels, phases),
        ),
    )


def _row_of(
    values: Values, name: str, gradient: Gradient
) -> tuple[int, tuple[int, int, int, int, int]]:
    """As gpu_opt_v1.update asks; the words are parts, elements apart, start, filters, channels."""
    parts, apart = values.shape(gradient.buffer) if gradient.in_parts else (1, 0)
    shape = values.shape(name)
    filters, channels = shape[0] if gradient.phases else 0, shape[3] if len(shape) == 4 else 0
    return blocks(elements(values, name)), (parts, apart, gradient.start, filters, channels)


def _product(
    file: str,
    entry: str,
    tile: Tile,
    shape: tuple[int, int],
    arguments: tuple[Argument, ...],
    wide: tuple[str, ...],
) -> Launches:
    """shape: rows and columns of the product."""
    return (
        Launch(
            f"gpu_opt_v2/{file}",
            entry,
            (blocks(shape[0], tile.m), blocks(shape[1], tile.n)),
            (tile.threads,),
            arguments,
            defines=(*_tile(tile), *wide),
        ),
    )


def _tile(tile: Tile) -> tuple[str]:
    return (f"TILE={tile.m},{tile.n},{tile.thread_m},{tile.thread_n}",)


def _wide(values: Values, step: Step) -> tuple[str, str]:
    """Whether the channels and the filters of a convolution are read 16 bytes at a time."""
    x = step.reads.get("x") or step.writes["dx"]
    y = step.reads.get("dy") or step.writes["y"]
    return _wide_macros(values.shape(x)[3] % 4 == 0, values.shape(y)[3] % 4 == 0)


def _wide_macros(channels: bool, filters: bool) -> tuple[str, str]:
    return f"WIDE_CHANNELS={int(channels)}", f"WIDE_FILTERS={int(filters)}"
