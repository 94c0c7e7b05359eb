"""The launches of gpu_tf32's kernels: packing, convolutions of packed operands, their weight
gradients, and the update.

All functions take number_format, the format of the packed numbers.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import cast

from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_basic, gpu_opt_v1
from ladder.rungs import packed_tiles as tiles
from ladder.rungs.gpu_3xtf32 import TensorTile
from ladder.rungs.gpu_basic import blocks, elements, floats, integers
from ladder.rungs.launches import Gradient, Launch, Launches, Step, Word
from ladder.rungs.packed_tiles import BFLOAT16, NumberFormat
from ladder.rungs.packing import PHASE_TAPS, PIXELS_OF_LOSS, PIXELS_OF_PARTIAL, both_gradients
from ladder.rungs.values import LaunchFunction, Values

# filters, and channels, of a block that updates a packed weight: kernels/packed/weight_update.cu
SIDE = 16
# How a packed weight holds the phases of an upsampled image; also the values of PHASES:
# kernels/packed/weight_update.cu
NO_PHASES, PHASES_APART, PHASES_IN_COLUMNS = range(3)
# the macro for results that gpu_bf16_sm90 reads: kernels/packed/copies.cuh
IN_CHANNEL_BLOCKS = {"IN_CHANNEL_BLOCKS": True}


# ---- packing


def round_input(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    x, rounded = step.operands("x", "rounded")
    _, height, width, channels = values.shape(x)
    chunks = elements(values, rounded) // number_format.chunk
    pixels = chunks // blocks(channels, number_format.chunk)
    return (
        Launch(
            "packed/round.cu",
            "round_image",
            (blocks(chunks, 256),),
            (256,),
            (x, rounded, *integers(pixels, height, width, channels, step.attributes["padding"])),
            defines=number_format.defines,
        ),
    )


def gather_columns(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    return _gather("gather_columns", step, values, (step.reads["x"],), number_format)


def load_batch(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    """The batch, and where a first layer reads columns these too."""
    if "columns" not in step.writes:
        return gpu_basic.load_batch(step, values)
    arrays = step.operands(*gpu_basic.GATHERED, "batch")
    entry = f"load_columns_{values.buffers[arrays[0]].dtype}"
    return _gather(entry, step, values, arrays, number_format, step.attributes["flip"])


def _gather(
    entry: str,
    step: Step,
    values: Values,
    arrays: tuple[str, ...],
    number_format: NumberFormat,
    *more: int,
) -> Launches:
    """arrays: the last one is the batch; more: numbers behind the others."""
    image = values.shape(arrays[-1])
    columns = step.writes["columns"]
    kernel, stride = cast(tuple[int, int], step.attributes["window"])
    threads = max(math.prod(values.shape(columns)[:3]), math.prod(image[:3]))
    defines = f"KERNEL={kernel}", f"CHANNELS={image[3]}", *number_format.defines
    return (
        Launch(
            "packed/gather.cu",
            entry,
            (blocks(threads, 256),),
            (256,),
            (*arrays, columns, *integers(*image[:3], stride, step.attributes["padding"], *more)),
            defines=defines,
        ),
    )


def round_gradient(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    dy, rounded, bias_partials = step.operands("dy", "rounded", "bias_partials")
    _, height, width, channels = values.shape(dy)
    pixels = elements(values, rounded) // values.shape(rounded)[3]
    grid = values.shape(bias_partials)[0], blocks(channels, number_format.step)
    return (
        Launch(
            "packed/round.cu",
            "round_gradient",
            grid,
            (256,),
            (
                dy,
                rounded,
                bias_partials,
                *integers(
                    pixels, height, width, channels, step.attributes["padding"], PIXELS_OF_PARTIAL
                ),
            ),
            defines=number_format.defines,
        ),
    )


# ---- convolutions


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """What a convolution's kernel makes of its accumulators.

    entry            of the kernel, and its file
    arrays, numbers  the kernel's arguments before and behind the sizes
    defines          {macro: value}
    """

    entry: str
    arrays: tuple[str, ...]
    numbers: tuple[int, ...]
    defines: Mapping[str, int]


def forward_epilogue(step: Step, values: Values) -> Epilogue:
    """y in float32, or the packed input of the next convolution, pooled or not."""
    reads, writes, attributes = step.reads, step.writes, step.attributes
    operands, relu = (reads["x"], reads["weight"], reads["bias"]), attributes["relu"]
    if "y" in writes:
        return Epilogue("conv2d", (*operands, writes["y"]), (relu,), {})
    numbers, layout = (
        (relu, attributes["padding"]),
        IN_CHANNEL_BLOCKS if len(values.shape(writes["copy"])) == 5 else {},
    )
    if "index" in writes:
        return Epilogue(
            "conv2d_pool",
            (*operands, writes["copy"], writes["index"]),
            numbers,
            {**layout, "WINDOWS": True},
        )
    return Epilogue("conv2d_copy", (*operands, writes["copy"]), numbers, layout)


def gradient_epilogue(step: Step, values: Values) -> Epilogue:
    """dx in float32, or the packed gradient of what made x, behind its pooling and ReLU."""
    reads, writes, attributes = step.reads, step.writes, step.attributes
    if "dx" in writes:
        return Epilogue(
            "conv2d", (reads["dy"], reads["flipped"], reads["zeros"], writes["dx"]), (False,), {}
        )
    arrays = (
        reads["dy"],
        reads["flipped"],
        reads["kept"],
        *both_gradients(writes),
        writes["bias_partials"],
    )
    layout: dict[str, int] = {}
    step_rows = 0
    if "steps" in writes:
        _, *phases, step_rows, _ = values.shape(writes["steps"])
        layout = {**IN_CHANNEL_BLOCKS, **({"STEPS_BY_PHASE": True} if phases else {})}
    numbers = attributes["relu"], attributes["kept_padding"], attributes["padding"], step_rows
    if "index" in reads:
        return Epilogue("conv2d_gradient_pool", (*arrays, reads["index"]), numbers, layout)
    return Epilogue("conv2d_gradient", arrays, numbers, layout)


def forward(
    step: Step,
    values: Values,
    tile: TensorTile | None = None,
    number_format: NumberFormat = BFLOAT16,
) -> Launches:
    """tile: replaces the one that the shape asks for; likewise in the gradients."""
    return _convolution(
        values, forward_epilogue(step, values), step.attributes["stride"], tile, number_format
    )


def phase_forward(
    step: Step,
    values: Values,
    tile: TensorTile | None = None,
    number_format: NumberFormat = BFLOAT16,
) -> Launches:
    phases = PHASES_APART if values.shape(step.reads["weight"])[1] == 2 else PHASES_IN_COLUMNS
    return _convolution(values, forward_epilogue(step, values), 1, tile, number_format, phases)


def input_grad(
    step: Step,
    values: Values,
    tile: TensorTile | None = None,
    number_format: NumberFormat = BFLOAT16,
) -> Launches:
    return _convolution(
        values, gradient_epilogue(step, values), step.attributes["stride"], tile, number_format
    )


def _convolution(
    values: Values,
    epilogue: Epilogue,
    stride: int,
    tile: TensorTile | None,
    number_format: NumberFormat,
    phases: int = NO_PHASES,
) -> Launches:
    x, weight, *_ = epilogue.arrays
    (_, height, width, channels), (filters, kernel) = values.shape(x), values.shape(weight)[:2]
    shape = tiles.Sums.from_input(values.shape(x), filters, kernel, stride, number_format)
    if phases == PHASES_APART:  # each has the filters, and its windows begin in two pixels
        shape = dataclasses.replace(
            shape, height=shape.height - 1, width=shape.width - 1, filters=filters // 4, phases=4
        )
    stored = epilogue.entry == "conv2d"  # y in float32
    tile = tile or tiles.pixel_tile(shape, stored)
    defines = {**epilogue.defines, **({"PHASES": phases} if phases else {})}
    if isinstance(tile, tiles.Rectangle):
        entry = "conv2d_halo" if stored else epilogue.entry
        defines |= {"WHOLE": True, "KERNEL": kernel, "TILE_COLUMNS": tile.columns}
    else:
        entry = epilogue.entry
        defines |= {"WHOLE": channels % number_format.step == 0}
        mma_k, sliced_k = 2 * number_format.chunk, (tile.m, tile.n) == (64, 64)
        mma_steps = blocks(kernel**2 * channels, mma_k)
        if mma_steps < number_format.step // mma_k and not sliced_k:
            defines["MMA_STEPS"] = mma_steps
    pixels = shape.batch * shape.height * shape.width * shape.phases
    sizes = integers(
        height, width, channels, shape.filters, kernel, stride, pixels, *epilogue.numbers
    )
    return (
        Launch(
            f"packed/{entry}.cu",
            entry,
            (tiles.blocks_of(tile, shape),),
            (tile.threads,),
            (*epilogue.arrays, *sizes),
            tiles.pixel_bytes(tile, shape, stored),
            (*tile.defines(**defines), *number_format.defines),
        ),
    )


# ---- weight gradients


def weight_grad(
    step: Step,
    values: Values,
    tile: TensorTile | None = None,
    number_format: NumberFormat = BFLOAT16,
) -> Launches:
    """The parts of a weight gradient, and their sums unless the update adds them."""
    x, filters, attributes = (
        step.reads["x"],
        values.shape(step.reads["bias_partials"])[1],
        step.attributes,
    )
    split = tiles.weight_split(
        values.shape(x), filters, attributes["kernel"], attributes["stride"], number_format, tile
    )
    product, parts = _parts_of_weight(
        step, values, (x, step.reads["dy"]), split, attributes["padding"]
    )
    if "parts" in step.writes:
        return (product,)
    # channels, or numbers of a column
    there = math.prod(values.shape(step.writes["dweight"])[1:]) // attributes["kernel"] ** 2
    return product, add_parts(step, values, parts, values.shape(x)[3], there)


def phase_weight_grad(
    step: Step,
    values: Values,
    tile: TensorTile | None = None,
    number_format: NumberFormat = BFLOAT16,
) -> Launches:
    """The same for the 4x4 phase weights, of a convolution from y to x, and from these for the 3x3
    taps.
    """
    x, dy, writes = step.reads["x"], step.reads["dy"], step.writes
    split = tiles.weight_split(
        values.shape(dy), values.shape(x)[3], *PHASE_TAPS, number_format, tile
    )
    product, parts = _parts_of_weight(step, values, (dy, x), split, padding=1)
    return (
        (product,)
        if "parts" in writes
        else (product, *add_phase_parts(step, values, parts, values.shape(dy)[3]))
    )


def add_phase_parts(step: Step, values: Values, parts: str, stored: int) -> Launches:
    """The launches that add parts of phase weights, with so many filters, to dweight, and bias
    partials to dbias.
    """
    filters, _, _, channels = values.shape(step.writes["dweight"])
    packed_channels = values.shape(parts)[1] // 16 // stored
    dphase_weights = values.workspace(
        f"{step.layer}.dphase_weights", (packed_channels, 4, 4, filters)
    )
    return (
        add_parts(step, values, parts, stored, filters, dphase_weights),
        Launch(
            "gpu_basic/phase_conv2d.cu",
            "add_tap_gradients",
            (blocks(filters * 9 * channels, 256),),
            (256,),
            (dphase_weights, step.writes["dweight"], *integers(filters, channels)),
        ),
    )


def _parts_of_weight(
    step: Step,
    values: Values,
    operands: tuple[str, str],
    split: tuple[TensorTile, tiles.Sums, tuple[int, int], int],
    padding: int,
) -> tuple[Launch, str]:
    """(the launch that leaves a weight gradient in parts, their buffer).

    split: tiles.weight_split of the first operand; padding: the border of the second.
    """
    arrays: tuple[str, ...] = operands
    (x, dy), (tile, shape, sizes, steps) = operands, split
    (batch, height, width, channels), dy_channels = values.shape(x), values.shape(dy)[3]
    parts = step.writes.get("parts") or values.workspace(f"{step.layer}.parts", sizes)
    shared = tiles.shared_bytes(tile, shape.number_format, rows_of_k=True)
    whole = batch * shape.height * shape.width % shape.number_format.step == 0
    if "index" in step.reads:  # dy is pooled
        entry, arrays = "weight_grad_pooled", (x, dy, step.reads["index"])
        numbers: tuple[int, ...] = (
            batch,
            height,
            width,
            channels,
            shape.filters,
            shape.number_format.step * steps,
        )
        defines = tile.defines(
            WHOLE=whole, WHOLE_ROWS=shape.number_format.step // 4 % (width // 2) == 0
        )
    elif isinstance(tile, tiles.Window):
        entry, shared = "weight_grad_halo", tiles.window_bytes(tile, shape.number_format)
        numbers = (
            height,
            width,
            channels,
            shape.filters,
            dy_channels,
            padding,
            tiles.squares(shape),
            shape.number_format.squares * steps,
        )
        defines = tile.defines(KERNEL=shape.kernel, WHOLE=tiles.are_whole(shape))
    else:
        entry = "weight_grad"
        numbers = (
            batch,
            height,
            width,
            channels,
            shape.filters,
            dy_channels,
            shape.kernel,
            shape.stride,
            padding,
            shape.number_format.step * steps,
        )
        defines = tile.defines(WHOLE=whole, WHOLE_ROWS=shape.number_format.step % shape.width == 0)
    return Launch(
        f"packed/{entry}.cu",
        f"conv2d_{entry}",
        (*tiles.weight_blocks(tile, shape), sizes[0]),
        (tile.threads,),
        (*arrays, parts, *integers(*numbers)),
        shared,
        (*defines, *shape.number_format.defines),
    ), parts


def add_parts(
    step: Step,
    values: Values,
    parts: str,
    channels: int,
    there: int,
    dweight: str | None = None,
) -> Launch:
    """The launch that adds parts, with so many channels, to dweight, which has `there` of them, and
    bias partials to dbias.
    """
    bias_partials, dweight = step.reads["bias_partials"], dweight or step.writes["dweight"]
    (splits, weights), (rows, filters) = values.shape(parts), values.shape(bias_partials)
    return Launch(
        "packed/add_parts.cu",
        "conv2d_add_parts",
        (blocks(weights, 512) + blocks(filters, 8),),
        (128,),
        (
            parts,
            bias_partials,
            dweight,
            step.writes["dbias"],
            *integers(weights, filters, splits, rows, channels, there),
        ),
    )


# ---- the update


def copy_weights(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    """All packed weights in one launch."""
    rows = [
        gpu_opt_v1.Row((name, 0, 0, 0), *_row_of(values, name, packed))
        for name, packed in step.attributes["copies"].items()
    ]
    table, grid = gpu_opt_v1.update_table(step, values, rows)
    return (
        Launch(
            "packed/weight_update.cu",
            "copy_weights",
            grid,
            (256,),
            (table,),
            defines=number_format.defines,
        ),
    )


def update(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    """All parameters, sums of parts, packed weights in one launch; phase weights, whose blocks take
    longest, come first.
    """
    copies = step.attributes.get("copies")
    if not copies:
        return gpu_opt_v1.update(step, values)
    (launch,) = gpu_opt_v1.update(
        step,
        values,
        "packed/weight_update.cu",
        lambda values, name, gradient: _row_of(values, name, copies.get(name), gradient),
        later=lambda row: row.more[-1] == NO_PHASES,
    )
    return (dataclasses.replace(launch, defines=(*launch.defines, *number_format.defines)),)


@dataclasses.dataclass(frozen=True)
class PackedRow:
    """The further words of a parameter's row, in the order of kernels/packed/weight_update.cu.

    packed, flipped     copies of a packed weight, 0 where there is none
    filters, channels   of a tap
    taps                of a filter
    rows, flipped_rows  of a tap in each copy, or of one of its four phases, where the copies are in
                        channel blocks (blocks, kernel, kernel, rows, 64); else 0
    parts, apart        number of the gradient's parts, and of numbers from one to the next; 0, 0
                        where it is whole
    phases              NO_PHASES, PHASES_APART or PHASES_IN_COLUMNS
    """

    packed: Word = 0
    flipped: Word = 0
    filters: int = 0
    taps: int = 0
    channels: int = 0
    rows: int = 0
    flipped_rows: int = 0
    parts: int = 0
    apart: int = 0
    phases: int = NO_PHASES


def _row_of(
    values: Values,
    name: str,
    packed: Mapping[str, str] | None,
    gradient: Gradient | None = None,
) -> tuple[int, tuple[Word, ...]]:
    """(blocks, words of a PackedRow) of a parameter; packed: {role: buffer} of its copies."""
    in_parts = gradient is not None and gradient.in_parts
    parts, apart = values.shape(gradient.buffer) if gradient and in_parts else (0, 0)
    if not packed:
        row = PackedRow(parts=parts, apart=apart)
        return blocks(elements(values, name), SIDE if in_parts else 256), dataclasses.astuple(row)
    filters, kernel, _, channels = values.shape(name)
    shape, flipped = values.shape(packed["packed"]), packed.get("flipped")
    if shape[1] == 1:  # of columns
        kernel, channels = 1, kernel**2 * channels
    phases, rows, flipped_rows = NO_PHASES, 0, 0
    if len(shape) == 5:
        rows, flipped_rows = (
            shape[3],
            values.shape(flipped)[3] if flipped else shape[4] * blocks(channels, shape[4]),
        )
        if shape[1] != kernel:
            phases, rows = PHASES_APART, rows // 4
    elif shape[0] != filters:
        phases = PHASES_APART if shape[1] == 2 else PHASES_IN_COLUMNS
    tap_blocks = blocks(max(filters, rows), SIDE) * blocks(max(channels, flipped_rows), SIDE)
    row = PackedRow(
        packed["packed"],
        flipped or 0,
        filters,
        kernel * kernel,
        channels,
        rows,
        flipped_rows,
        parts,
        apart,
        phases,
    )
    return tap_blocks * (1 if phases else kernel * kernel), dataclasses.astuple(row)


# ---- all of them


def on_stream(stream: int, function: LaunchFunction) -> LaunchFunction:
    """The launches of an operation on this stream; 1: beside stream 0, for what only the update
    waits for.
    """
    return lambda step, values: tuple(
        dataclasses.replace(launch, stream=stream) for launch in function(step, values)
    )


def in_format(function: LaunchFunction, number_format: NumberFormat) -> LaunchFunction:
    """The launches of an operation, compiled for such operands."""
    return lambda step, values: tuple(
        dataclasses.replace(launch, defines=(*launch.defines, *number_format.defines))
        for launch in function(step, values)
    )


def loss(step: Step, values: Values, number_format: NumberFormat = BFLOAT16) -> Launches:
    """The gradient of the output, packed where it is read so, and beside the backward pass the loss
    of the batch.
    """
    if "gradient" in step.writes:
        gradient, total = gpu_opt_v1.mse(step, values)
        return gradient, dataclasses.replace(total, stream=1)
    prediction, writes, attributes = step.reads["prediction"], step.writes, step.attributes
    (batch, height, width, channels), padding = values.shape(prediction), attributes["padding"]
    (rows, _), pixels = (
        values.shape(writes["bias_partials"]),
        batch * (height + 2 * padding) * (width + 2 * padding),
    )
    sums = values.workspace("loss.partials", (rows,), "float64")
    return (
        Launch(
            "packed/loss.cu",
            "mse_rounded",
            (rows,),
            (PIXELS_OF_LOSS,),
            (
                prediction,
                step.reads["target"],
                writes["rounded"],
                writes["bias_partials"],
                sums,
                *integers(pixels, height, width, channels, padding),
                *floats(2 / attributes["divisor"], attributes.get("factor", 1)),
            ),
            defines=number_format.defines,
        ),
        dataclasses.replace(gpu_opt_v1.mse_total(step, values, sums), stream=1),
    )


def of_format(number_format: NumberFormat) -> dict[str, LaunchFunction]:
    """Operation -> its launches with such operands."""
    functions: dict[str, Callable[..., Launches]] = {
        "load_batch": load_batch,
        "gather_columns": gather_columns,
        "mse": loss,
        "copy_weights": copy_weights,
        "conv2d_round_input": round_input,
        "conv2d_round_gradient": round_gradient,
        **{f"{rule}_update": update for rule in AVERAGES},
        "rounded_conv2d_forward": forward,
        "rounded_conv2d_input_grad": input_grad,
        "rounded_conv2d_weight_grad": weight_grad,
        "rounded_phase_conv2d_forward": phase_forward,
        "rounded_phase_conv2d_input_grad": input_grad,
        "rounded_phase_conv2d_weight_grad": phase_weight_grad,
    }
    launches = {
        operation: functools.partial(function, number_format=number_format)
        for operation, function in functions.items()
    }
    return {
        **launches,
        **{
            operation: on_stream(1, function)
            for operation, function in launches.items()
            if operation.endswith("weight_grad")
        },
    }
