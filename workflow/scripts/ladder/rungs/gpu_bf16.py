"""gpu_tf32 with bfloat16 operands, where the plan asks for them: twice the products an instruction, from half the bytes.

The operands of a convolution are rounded once, to copies in memory, whose parts are copied to shared memory in stages while
others are multiplied; behind an upsampling they are of the smaller image, and of sums of taps. Where the taps of a window share
many pixels, a block keeps these in shared memory for all taps. The launch that updates a weight writes its copies,
and those of an image or a gradient that nothing else reads by the convolution that makes it, pooled and masked. Convolutions
whose channels fit no copies (`form_of`), and dense layers, round operands when they load them, as gpu_tf32 does. Weights, other
activations and gradients, and sums stay float32.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ladder.network.layers import Layer
from ladder.network.optimizers import AVERAGES
from ladder.rungs import bfloat16_tiles as tiles
from ladder.rungs import gpu_3xtf32, gpu_opt_v1, patterns
from ladder.rungs.gpu_3xtf32 import UPDATES_TOGETHER, TensorTile
from ladder.rungs.gpu_basic import blocks, elements, integers
from ladder.rungs.patterns import Gradient, Launch, Pattern, convolution, is_2x2, sliding, weight_gradients

__all__ = ["LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

GRADIENTS_IN_PARTS = True   # see plan.training_plan
CHUNK, FEWEST = 8, 33         # numbers in 16 bytes; channels from which on half of a tile's columns have work
PIXELS_OF_TOTAL = 128         # of a gradient's image that a block rounds and sums
SIDE = 16                     # filters, and channels, of a block that updates a weight with copies
NOT_COLLAPSED, PHASES_APART, PHASES_IN_COLUMNS = range(3)   # forms of a weight's copy: kernels/gpu_bf16/collapsed_weights.cuh


def conv_block(build: Any, group: tuple[Layer, ...]) -> Callable[[], None] | None:
    """conv2d, then optionally ReLU and 2x2 max-pool; as gpu_opt_v1.conv_block where there are no copies."""
    if not _form(build, group[0]):
        return gpu_opt_v1.conv_block(build, group)
    return _convolution_of_copies(build, group, group, 2 * group[0].macs)


def collapsed_block(build: Any, group: tuple[Layer, ...]) -> Callable[[], None]:
    """upsample2d, conv2d, then optionally ReLU, as patterns.collapsed_block: the copies are of the smaller image."""
    build.unchanged(group[0])
    return _convolution_of_copies(build, group, group[1:], patterns.flop_of_collapsed(group[1]), times=2)


def _convolution_of_copies(build: Any, group: tuple[Layer, ...], layers: tuple[Layer, ...], flop: int,
                           times: int = 1) -> Callable[[], None]:
    """layers: those of the group from the convolution on; times: so much larger is its image than x."""
    conv, form, slide, kernel = layers[0], _form(build, layers[0]), sliding(layers[0]), layers[0].attributes["kernel"]
    x, weight, bias = convolution(build, conv)
    flips = _flips(build, conv, x)
    copies = build.copies(weight, form.of_weight(build.shape(weight), flips))
    copy = _rounded_input(build, group, conv, x)
    y, writes, more = _result(build, layers, x)
    build.step(f"{form.made}_conv2d_forward", group, {"x": copy, "weight": copies["bfloat16"], "bias": bias}, writes,
               flop=flop, stride=slide["stride"], relu=group[-1] is not conv, **more)

    def backward() -> None:
        dy = build.receivers.get(y) or _rounded_gradient(build, layers, y, x)
        if flips:
            _input_gradient(build, group, x, dy, {"copy": copy, "flipped": copies["flipped"]}, flop, stride=times)
        elif build.wants_gradient(x):
            build.step("conv2d_input_grad", group, {"dy": dy.whole, "weight": weight}, {"dx": build.gradient_part(x)},
                       flop=flop, **slide)
        build.step(f"{form.made}_conv2d_weight_grad", group, {"x": copy, "dy": dy.without_border, "totals": dy.totals},
                   _weight_gradients(build, conv, copy, dy), flop=flop, stride=slide["stride"], padding=dy.padding,
                   kernel=kernel)

    return backward


def _rounded_input(build: Any, group: tuple[Layer, ...], conv: Layer, x: str) -> str:
    """The buffer of the copy of x, made here unless the convolution before has written it."""
    written, copy = _copy_of_input(conv) in build.buffers, _buffer_of_copy(build, conv, build.shape(x))
    if not written:
        build.step(f"conv2d_{_form(build, conv).makes}_input", group, {"x": x}, {"rounded": copy},
                   padding=conv.attributes["padding"])
    return copy


def _weight_gradients(build: Any, conv: Layer, copy: str, dy: "OutputGradient") -> dict[str, str]:
    """{role: buffer} of what a weight gradient's step writes: parts that the update adds, or sums."""
    if not build.in_parts:
        return weight_gradients(build, conv)
    parts = build.workspace(f"{conv.name}.parts",
                            _form(build, conv).of_parts(build.shape(copy), build.shape(dy.without_border), conv))
    build.leave_in_parts({f"{conv.name}.weight": Gradient(parts, in_parts=True)})
    if conv.attributes["bias"]:
        build.leave_in_parts({f"{conv.name}.bias": Gradient(dy.totals, in_parts=True)})
    return {"parts": parts}


@dataclasses.dataclass(frozen=True)
class Form:
    """How the copies of a convolution's operands lie in memory, and which operations are on them.

    makes, made: in the operations' names, conv2d_{makes}_input and {made}_conv2d_forward
    of_image(shape, padding): shape of a copy
    of_weight(shape, flips): {role: shape}
    of_gradient(shape, padding): {role: shape}; "rounded" with borders of `padding` and, where the weight gradient reads another
        one without them, "steps", alone if there is no border
    of_parts(shape of the copy, shape of the gradient's, convolution): shape of the parts of its weight gradient
    totals(shape of x, filters, kernel): rows of totals that an input gradient leaves
    has_windows(width): whether its results can be of 2x2 windows of an image so wide
    """

    makes: str
    made: str
    of_image: Callable[[tuple[int, ...], int], tuple[int, ...]]
    of_weight: Callable[[tuple[int, ...], bool], dict[str, tuple[int, ...]]]
    of_gradient: Callable[[tuple[int, ...], int], dict[str, tuple[int, ...]]]
    of_parts: Callable[[tuple[int, ...], tuple[int, ...], Layer], tuple[int, int]]
    totals: Callable[[tuple[int, ...], int, int], int]
    has_windows: Callable[[int], bool] = lambda width: True


@dataclasses.dataclass(frozen=True)
class OutputGradient:
    """Where the gradient of a convolution's output is, that of its ReLU and pooling applied.

    copies: {role: buffer} as Form.of_gradient, with borders of `padding`; totals: sums over pixels, not rounded; relu, index:
    of the layers behind the convolution, for the one that writes it; whole: in float32, where there is that too.
    """

    copies: dict[str, str]
    totals: str
    padding: int
    relu: bool
    index: str | None = None
    whole: str | None = None

    @property
    def bordered(self) -> str:
        """What the input gradient reads."""
        return self.copies.get("rounded") or self.copies["steps"]

    @property
    def without_border(self) -> str:
        """What the weight gradient reads, if there is one without."""
        return self.copies.get("steps") or self.copies["rounded"]


def _flips(build: Any, conv: Layer, x: str) -> bool:
    """Whether the input gradient is a convolution with a flipped weight; a strided one's has zeros between the pixels of dy."""
    return build.training and build.wants_gradient(x) and conv.attributes["stride"] == 1


def _result(build: Any, group: tuple[Layer, ...], x: str) -> tuple[str, dict[str, str], dict[str, int]]:
    """(value, writes, attributes) of the forward pass: a convolution that alone reads the value has it as its copy."""
    last, index = group[-1], {}
    reader = copying_reader(build, group, x)
    if not reader:
        y = build.activation(last)
        return y, {"y": y}, {}
    build.unstored(last)
    image = build.batch, *last.output_shape
    if last.kind == "maxpool2d":
        index = {"index": build.mask(last)}
    if build.training and build.wants_gradient(last.name):
        build.receivers[last.name] = _received(build, group, x, reader, image, **index)
    return last.name, {"copy": _buffer_of_copy(build, reader, image), **index}, {"padding": reader.attributes["padding"]}


def _received(build: Any, group: tuple[Layer, ...], x: str, reader: Layer, image: tuple[int, ...],
              index: str | None = None) -> OutputGradient:
    """The OutputGradient that the reader of a group writes; image: the shape of its copy, without a border."""
    filters_read, kernel, _, channels = reader.parameters[f"{reader.name}.weight"]
    conv, padding = group[0], _gradient_padding(build, group[0], x)
    totals = build.kept(f"{conv.name}.dy.totals", (_form(build, reader).totals(image, filters_read, kernel), channels))
    return OutputGradient(_copies_of_gradient(build, conv, padding), totals, padding, relu=group[-1] is not conv, index=index)


def copying_reader(build: Any, group: tuple[Layer, ...], x: str) -> Layer | None:
    """The convolution on copies that alone reads the output of a group, or what is upsampled of it if that collapses; or None.

    Where gradients are wanted, both it and the group's must be convolutions on copies; x: the group's input.
    """
    reader = build.sole_reader(group[-1].name)
    if reader and reader.kind == "upsample2d":
        reader = build.sole_reader(reader.name)
        if not reader or not is_collapsed(build, reader):
            return None
    takes = getattr(build.rung, "form_of", None)   # a rung over this one may read other layers in other forms
    if not reader or not takes or not takes(build, reader) or group[0].attributes["filters"] % CHUNK:
        return None
    if build.training and build.wants_gradient(group[-1].name):
        strided = group[0].attributes["stride"] != 1 and build.wants_gradient(x)
        if strided or reader.attributes["stride"] != 1:
            return None
    return reader


def is_collapsed(build: Any, conv: Layer) -> bool:
    """Whether a convolution multiplies sums of taps: with the upsampling that is the layer before it, it has a pattern."""
    return any(after is conv and build.collapses((before, after)) for before, after in itertools.pairwise(build.layers))


def pools_in_place(build: Any, group: tuple[Layer, ...]) -> bool:
    """Whether conv2d, relu and maxpool2d are one operation."""
    conv, _, pool = group
    height, width, _ = conv.output_shape
    form = _form(build, conv)
    if not form or not form.has_windows(width) or not is_2x2(pool) or height % 2 or width % 2:
        return False
    return copying_reader(build, group, build.source(conv)) is not None


def _gradient_padding(build: Any, conv: Layer, x: str) -> int:
    """Of the copy of the gradient of a convolution's output; x: the input. Where taps are collapsed, both gradients need it."""
    reached = is_collapsed(build, conv) or _flips(build, conv, x)
    return conv.attributes["kernel"] - 1 - conv.attributes["padding"] if reached else 0


def _rounded_gradient(build: Any, group: tuple[Layer, ...], y: str, x: str) -> OutputGradient:
    """The OutputGradient of a value in float32, which is made by steps of its own."""
    conv, dy = group[0], gpu_opt_v1.gradient_before_relu(build, group, y)
    padding = _gradient_padding(build, conv, x)
    copies = _copies_of_gradient(build, conv, padding)
    totals = build.kept(f"{conv.name}.dy.totals", (_total_splits(build.shape(y), padding), build.shape(y)[3]))
    build.step(f"conv2d_{_form(build, conv).makes}_gradient", group, {"dy": dy}, {**copies, "totals": totals}, padding=padding)
    return OutputGradient(copies, totals, padding, relu=group[-1] is not conv, whole=dy)


def _copies_of_gradient(build: Any, conv: Layer, padding: int) -> dict[str, str]:
    """{role: buffer} of the copies of the gradient of a convolution's output."""
    shapes = _form(build, conv).of_gradient((build.batch, *conv.output_shape), padding)
    return {role: build.kept(f"{conv.name}.dy.{role}", shape, "uint16") for role, shape in shapes.items()}


def _input_gradient(build: Any, group: tuple[Layer, ...], x: str, dy: OutputGradient, copies: Mapping[str, str], flop: int,
                    stride: int) -> None:
    """copies: of the convolution's input and of its flipped weight; stride: of the convolution that makes the gradient.

    The value x has an OutputGradient where its writer awaits one.
    """
    received, reads = build.receivers.get(x), {"dy": dy.bordered, "flipped": copies["flipped"]}
    conv = next(layer for layer in group if layer.parameters)
    operation = f"{_form(build, conv).made}_conv2d_input_grad"
    if received:
        index = {"index": received.index} if received.index else {}
        build.step(operation, group, {**reads, "kept": copies["copy"], **index},
                   {**received.copies, "totals": received.totals}, flop=flop, stride=stride, relu=received.relu,
                   kept_padding=conv.attributes["padding"], padding=received.padding)
        return
    dx, masks = build.gradient_part(x), gpu_opt_v1.reader_applies_relu(build.network, x)
    whole = build.workspace(f"{conv.name}.whole_gradient", build.shape(x)) if masks else dx
    build.step(operation, group, {**reads, "zeros": build.zeros(f"{conv.name}.no_shift", build.shape(x)[3:])}, {"dx": whole},
               flop=flop, stride=stride)
    if masks:
        build.step("relu_backward", group, {"y": x, "dy": whole}, {"dx": dx})


def form_of(build: Any, conv: Layer) -> Form | None:
    """The Form of a convolution's copies; None if it has none."""
    if not has_copies(build, conv):
        return None
    return COLLAPSED_COPIES if is_collapsed(build, conv) else COPIES


def _form(build: Any, conv: Layer) -> Form | Any:   # Any stands for None, of one without copies
    """As the rung has it that is built, which may be one over this."""
    return getattr(build.rung, "form_of", form_of)(build, conv)


def has_copies(build: Any, conv: Layer) -> bool:
    """Whether a layer's operands are copied: a convolution in bfloat16 whose channels fill tiles and 16 bytes.

    Where no input gradient is wanted, its filters must fill tiles, and channels are few: zeros fill the 16 bytes.
    """
    if conv.kind != "conv2d" or any(getattr(build.multipliers, direction).name != "bfloat16"
                                    for direction in ("forward", "input_grad", "weight_grad")):
        return False
    filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    if not build.wants_gradient(conv.inputs[0]) and channels < FEWEST:
        return filters >= FEWEST
    return channels >= FEWEST and channels % CHUNK == 0 and conv.attributes["padding"] < kernel


def collapses_copies(build: Any, group: tuple[Layer, ...]) -> bool:
    return _form(build, group[1]) is not None


def _copy_of_input(conv: Layer) -> str:
    return f"{conv.name}.x.bfloat16"


def _buffer_of_copy(build: Any, conv: Layer, image: tuple[int, ...]) -> str:
    """The buffer of the copy of a convolution's input, which has the shape `image`."""
    return build.kept(_copy_of_input(conv), _form(build, conv).of_image(image, conv.attributes["padding"]), "uint16")


def _copies_of_weight(shape: tuple[int, ...], flips: bool) -> dict[str, tuple[int, ...]]:
    """{role: shape}; flips: whether there is one for the input gradient."""
    filters, kernel, _, channels = shape
    copies: dict[str, tuple[int, ...]] = {"bfloat16": (filters, kernel, kernel, _whole_chunks(channels))}
    return {**copies, "flipped": (channels, kernel, kernel, _whole_chunks(filters))} if flips else copies


def _copies_of_collapsed(shape: tuple[int, ...], wanted: bool) -> dict[str, tuple[int, ...]]:
    """As _copies_of_weight, of a weight behind an upsampling; wanted: whether there is an input gradient.

    The filters of the four phases follow one another; of few ones a tile has all, and their taps are those of a larger window.
    """
    filters, _, _, channels = shape
    kernel = 3 if 4 * filters <= gpu_3xtf32.FEW_COLUMNS.n else 2
    copies: dict[str, tuple[int, ...]] = {"bfloat16": (4 * filters, kernel, kernel, _whole_chunks(channels))}
    return {**copies, "flipped": (channels, 4, 4, _whole_chunks(filters))} if wanted else copies


def _padded(shape: tuple[int, ...], padding: int) -> tuple[int, ...]:
    batch, height, width, channels = shape
    return batch, height + 2 * padding, width + 2 * padding, _whole_chunks(channels)


def _rounded(shape: tuple[int, ...], padding: int) -> dict[str, tuple[int, ...]]:
    return {"rounded": _padded(shape, padding)}


def _whole_chunks(channels: int) -> int:
    return CHUNK * blocks(channels, CHUNK)


def _total_splits(shape: tuple[int, ...], padding: int) -> int:
    """Rows of totals of a gradient that a launch of its own rounds."""
    batch, height, width, _ = shape
    return blocks(batch * (height + 2 * padding) * (width + 2 * padding), PIXELS_OF_TOTAL)


def _totals(image: tuple[int, ...], filters: int, kernel: int, stride: int = 1) -> int:
    batch, height, width, channels = image
    shape = tiles.Sums(batch, height, width, _whole_chunks(filters), channels, kernel, stride)
    return tiles.totals_of(tiles.pixel_tile(shape, stored=False), shape)


def round_input(step: Any, build: Any) -> tuple[Launch, ...]:
    x, rounded = step.reads["x"], step.writes["rounded"]
    _, height, width, channels = build.shape(x)
    chunks = elements(build, rounded) // CHUNK
    pixels = chunks // blocks(channels, CHUNK)
    return (Launch("gpu_bf16/round.cu", "round_image", (blocks(chunks, 256),), (256,),
                   (x, rounded, *integers(pixels, height, width, channels, step.attributes["padding"]))),)


def round_gradient(step: Any, build: Any) -> tuple[Launch, ...]:
    dy, rounded, totals = step.reads["dy"], step.writes["rounded"], step.writes["totals"]
    _, height, width, channels = build.shape(dy)
    pixels = elements(build, rounded) // build.shape(rounded)[3]
    return (Launch("gpu_bf16/round.cu", "round_gradient", (build.shape(totals)[0], blocks(channels, 64)), (256,),
                   (dy, rounded, totals, *integers(pixels, height, width, channels, step.attributes["padding"],
                                                   PIXELS_OF_TOTAL))),)


def copy_weights(step: Any, build: Any) -> tuple[Launch, ...]:
    """All copies in one launch."""
    copies = step.attributes["copies"]
    rows = [((name, 0, 0, 0), _blocks_of(copies, build, name), _more_words(copies, build, name)) for name in copies]
    table, grid = gpu_opt_v1.update_table(step, build, rows)
    return (Launch("gpu_bf16/weight_update.cu", "copy_weights", grid, (256,), (table,)),)


def update(step: Any, build: Any) -> tuple[Launch, ...]:
    """All parameters, the sums of the parts of gradients and the copies of weights in one launch."""
    copies, gradients = step.attributes.get("copies"), step.attributes["gradients"]
    if not copies:
        return gpu_opt_v1.update(step, build)
    return gpu_opt_v1.update(step, build, "gpu_bf16/weight_update.cu", functools.partial(_more_words, copies),
                             lambda build, name: _blocks_of(copies, build, name, gradients[name]))


def _more_words(copies: Mapping[str, dict[str, str]], build: Any, name: str,
                gradient: Gradient | None = None) -> tuple[str | int, ...]:
    """The further words of a parameter's row of the table: kernels/gpu_bf16/weight_update.cu."""
    parts = build.shape(gradient.buffer) if gradient and gradient.in_parts else (0, 0)
    if name not in copies:
        return 0, 0, 0, 0, 0, 0, 0, *parts, NOT_COLLAPSED
    filters, kernel, _, channels = build.shape(name)
    return (copies[name]["bfloat16"], copies[name].get("flipped", 0), filters, kernel * kernel, channels,
            *_rows_of_copies(copies, build, name), *parts, collapsed_form(build, copies[name]["bfloat16"], filters))


def _rows_of_copies(copies: Mapping[str, dict[str, str]], build: Any, name: str) -> tuple[int, int]:
    """Rows of a tap, of filters and of channels, where the copies are in slabs: (slabs, kernel, kernel, rows, 64); else 0."""
    shape = build.shape(copies[name]["bfloat16"])
    if len(shape) == 4:
        return 0, 0
    flipped = copies[name].get("flipped")
    return shape[3], build.shape(flipped)[3] if flipped else shape[0] * shape[4]


def collapsed_form(build: Any, copy: str, filters: int) -> int:
    """Of the copy of a weight with so many filters; the numbers are those of kernels/gpu_bf16/collapsed_weights.cuh."""
    lines, kernel, *in_slabs = build.shape(copy)
    if len(in_slabs) == 3 or lines == filters:
        return NOT_COLLAPSED
    return PHASES_APART if kernel == 2 else PHASES_IN_COLUMNS


def _blocks_of(copies: Mapping[str, dict[str, str]], build: Any, name: str,
               gradient: Gradient | Any = None) -> int:   # Any stands for None, of a name in copies
    if name not in copies:
        return blocks(elements(build, name), SIDE if gradient.in_parts else 256)
    filters, kernel, _, channels = build.shape(name)
    taps = 1 if collapsed_form(build, copies[name]["bfloat16"], filters) else kernel * kernel
    of_filters, of_channels = _rows_of_copies(copies, build, name)
    return blocks(max(filters, of_filters), SIDE) * taps * blocks(max(channels, of_channels), SIDE)


def forward(step: Any, build: Any, tile: TensorTile | None = None) -> tuple[Launch, ...]:
    """tile: replaces the one that the shape asks for; likewise in the gradients."""
    reads, writes, attributes = step.reads, step.writes, step.attributes
    arrays, numbers = (reads["x"], reads["weight"], reads["bias"]), (attributes["relu"],)
    if "index" in writes:
        return _convolution(build, "conv2d_pool", (*arrays, writes["copy"], writes["index"]), (*numbers, attributes["padding"]),
                            attributes["stride"], tile, in_slabs(build, writes), WINDOWS=True)
    return _forward(build, arrays, writes, numbers, attributes, attributes["stride"], tile)


def collapsed_forward(step: Any, build: Any, tile: TensorTile | None = None) -> tuple[Launch, ...]:
    reads, attributes = step.reads, step.attributes
    form = PHASES_APART if build.shape(reads["weight"])[1] == 2 else PHASES_IN_COLUMNS
    arrays = reads["x"], reads["weight"], reads["bias"]
    return _forward(build, arrays, step.writes, (attributes["relu"],), attributes, 1, tile, PHASES=form)


def _forward(build: Any, arrays: tuple[str, ...], writes: Mapping[str, str], numbers: tuple[int, ...],
             attributes: Mapping[str, Any], stride: int, tile: TensorTile | None, **flags: Any) -> tuple[Launch, ...]:
    if "copy" in writes:
        return _convolution(build, "conv2d_copy", (*arrays, writes["copy"]), (*numbers, attributes["padding"]), stride, tile,
                            in_slabs(build, writes), **flags)
    return _convolution(build, "conv2d", (*arrays, writes["y"]), numbers, stride, tile, **flags)


def input_grad(step: Any, build: Any, tile: TensorTile | None = None) -> tuple[Launch, ...]:
    reads, writes, stride = step.reads, step.writes, step.attributes["stride"]
    arrays: tuple[str, ...] = reads["dy"], reads["flipped"]
    if "dx" in writes:
        return _convolution(build, "conv2d", (*arrays, reads["zeros"], writes["dx"]), (False,), stride, tile)
    arrays = *arrays, reads["kept"], *gradients_written(writes)
    numbers, slabs = gradient_numbers(step, build), in_slabs(build, writes)
    if "index" in reads:
        return _convolution(build, "conv2d_gradient_pool", (*arrays, reads["index"]), numbers, stride, tile, slabs)
    return _convolution(build, "conv2d_gradient", arrays, numbers, stride, tile, slabs)


def in_slabs(build: Any, writes: Mapping[str, str]) -> bool:
    """Whether copies are written in gpu_bf16_sm90's layout: kernels/gpu_bf16/layouts.cuh."""
    return "steps" in writes or "copy" in writes and len(build.shape(writes["copy"])) == 5


def gradients_written(writes: Mapping[str, str]) -> tuple[str, str, str]:
    """(rounded, steps, totals): where there is but one copy, it stands for both."""
    return writes.get("rounded") or writes["steps"], writes.get("steps") or writes["rounded"], writes["totals"]


def gradient_numbers(step: Any, build: Any) -> tuple[int, ...]:
    """The last arguments of a launch that writes the gradient of what made a convolution's input."""
    step_rows = build.shape(step.writes["steps"])[1] if "steps" in step.writes else 0
    return *(step.attributes[name] for name in ("relu", "kept_padding", "padding")), step_rows


def _convolution(build: Any, entry: str, arrays: tuple[str, ...], numbers: tuple[int, ...], stride: int,
                 tile: TensorTile | None, slabs: bool = False, **flags: int) -> tuple[Launch, ...]:
    """arrays, numbers: the kernel's, the latter behind those of the shape; slabs: `in_slabs`; flags: further definitions."""
    x, weight, *_ = arrays
    (batch, height, width, channels), (filters, kernel) = build.shape(x), build.shape(weight)[:2]
    down, across = ((size - kernel) // stride + 1 for size in (height, width))
    phases = 4 if flags.get("PHASES") == PHASES_APART else 1
    if phases == 4:   # each has the filters, and its windows begin in two pixels
        filters, down, across = filters // 4, down - 1, across - 1
    shape = tiles.Sums(batch, down, across, channels, filters, kernel, stride, phases)
    stored = entry == "conv2d"
    tile = tile or tiles.pixel_tile(shape, stored)
    halo, flags = tile if isinstance(tile, tiles.Rectangle) else None, {**({"IN_SLABS": True} if slabs else {}), **flags}
    entry = "conv2d_halo" if halo and stored else entry
    in_loop = tiles.halo_bytes(halo, shape) if halo else tiles.shared_bytes(tile)
    held = 0 if stored else 4 * tile.m * (tile.n + 8)
    form = {"WHOLE": True, "KERNEL": kernel, "TILE_COLUMNS": halo.columns} if halo else {"WHOLE": channels % tiles.STEP == 0}
    pixels = batch * down * across * phases
    return (Launch(f"gpu_bf16/{entry}.cu", entry, (tiles.blocks_of(tile, shape),), (tile.threads,),
                   (*arrays, *integers(height, width, channels, filters, kernel, stride, pixels, *numbers)),
                   max(in_loop, held), tile.defines(**flags, **form)),)


def weight_grad(step: Any, build: Any, tile: TensorTile | None = None) -> tuple[Launch, ...]:
    """The parts of a weight gradient, and their sums unless the update adds them."""
    x, dy, totals, stride = (*(step.reads[role] for role in ("x", "dy", "totals")), step.attributes["stride"])
    filters, kernel = build.shape(totals)[1], step.attributes["kernel"]
    product = _product_of_weights(build, step, (x, dy), (filters, kernel, stride), step.attributes["padding"], tile)
    if "parts" in step.writes:
        return (product,)
    return product, _sum_of_product(build, product, totals, step.writes["dweight"], step.writes["dbias"])


def collapsed_weight_grad(step: Any, build: Any, tile: TensorTile | None = None) -> tuple[Launch, ...]:
    """The same of a convolution from y to x with stride 2, whose taps are the collapsed ones."""
    x, dy, totals = (step.reads[role] for role in ("x", "dy", "totals"))
    product = _product_of_weights(build, step, (dy, x), _swapped(build.shape(x)), 1, tile)
    if "parts" in step.writes:
        return (product,)
    dweight, filters = step.writes["dweight"], build.shape(totals)[1]
    collapsed = build.workspace(f"{step.layer}.dcollapsed", (build.shape(x)[3], 4, 4, filters))
    return (product, _sum_of_product(build, product, totals, collapsed, step.writes["dbias"]),
            Launch("gpu_basic/collapsed_conv2d.cu", "expand_taps", (blocks(elements(build, dweight), 256),), (256,),
                   (collapsed, dweight, *integers(filters, build.shape(dweight)[3]))))


def _swapped(copy: tuple[int, ...]) -> tuple[int, int, int]:
    """(filters, kernel, stride) of the convolution from y to x; copy: shape of x's."""
    return copy[3], 4, 2


def _parts(copy: tuple[int, ...], _: Any, conv: Layer) -> tuple[int, int]:
    _, _, shape, _ = parts_of(copy, *(conv.attributes[name] for name in ("filters", "kernel", "stride")))
    return shape


def _collapsed_parts(copy: tuple[int, ...], dy: tuple[int, ...], _: Any) -> tuple[int, int]:
    _, _, shape, _ = parts_of(dy, *_swapped(copy))
    return shape


def _product_of_weights(build: Any, step: Any, copies: tuple[str, str], form: tuple[int, int, int], padding: int,
                        tile: TensorTile | None) -> Launch:
    """The launch that leaves a weight gradient in parts; form: (filters, kernel, stride); padding: of the second copy."""
    (x, dy), (filters, kernel, stride) = copies, form
    batch, height, width, channels = build.shape(x)
    tile, shape, (splits, weights), steps = parts_of(build.shape(x), *form, tile)
    parts = step.writes.get("parts") or build.workspace(f"{step.layer}.parts", (splits, weights))
    dy_channels = build.shape(dy)[3]
    if isinstance(tile, tiles.Window):
        numbers: tuple[int, ...] = (
            height, width, channels, filters, dy_channels, padding, tiles.squares(shape), tiles.SQUARES * steps)
        whole = tiles.are_whole(shape)
        entry, shared, defines = "weight_grad_halo", tiles.window_bytes(tile), tile.defines(KERNEL=kernel, WHOLE=whole)
    else:
        numbers = batch, height, width, channels, filters, dy_channels, kernel, stride, padding, tiles.STEP * steps
        whole = batch * shape.height * shape.width % tiles.STEP == 0
        defines = tile.defines(WHOLE=whole, WHOLE_ROWS=tiles.STEP % shape.width == 0)
        entry, shared = "weight_grad", tiles.shared_bytes(tile, rows_of_k=True)
    return Launch(f"gpu_bf16/{entry}.cu", f"conv2d_{entry}", (*tiles.weight_blocks(tile, shape), splits), (tile.threads,),
                  (x, dy, parts, *integers(*numbers)), shared, defines)


def _sum_of_product(build: Any, product: Launch, totals: str, dweight: str, dbias: str) -> Launch:
    """The launch that adds what `product` leaves."""
    parts: Any   # a name: _product_of_weights
    x, _, parts, *_ = product.arguments
    return sum_of_parts(build, (parts, totals, dweight, dbias), build.shape(x)[3])


def sum_of_parts(build: Any, arrays: tuple[str, str, str, str], channels: int) -> Launch:
    """The launch that adds parts, with so many channels, to dweight, which may have fewer, and totals to dbias."""
    parts, totals, dweight, _ = arrays
    (splits, weights), (rows, filters) = build.shape(parts), build.shape(totals)
    return Launch("gpu_bf16/add_parts.cu", "conv2d_add_parts", (blocks(weights, 512) + blocks(filters, 8),), (128,),
                  (*arrays, *integers(weights, filters, splits, rows, channels, build.shape(dweight)[3])))


def parts_of(x: tuple[int, ...], filters: int, kernel: int, stride: int,
             tile: TensorTile | None = None) -> tuple[TensorTile, tiles.Sums, tuple[int, int], int]:
    """(tile, Sums, shape of the parts, steps of one) of a weight gradient; x: shape of the copy of the input."""
    batch, height, width, channels = x
    down, across = ((size - kernel) // stride + 1 for size in (height, width))
    shape = tiles.Sums(batch, down, across, channels, filters, kernel, stride)
    tile = tile or tiles.weight_tile(shape)
    splits, steps = tiles.split(tile, shape)
    return tile, shape, (splits, filters * kernel ** 2 * channels), steps


COLLAPSED = tuple(Pattern(kinds, collapsed_block, fits=collapses_copies, collapses=True)
                  for kinds in (("upsample2d", "conv2d", "relu"), ("upsample2d", "conv2d")))
COPIES = Form(
    makes="round", made="rounded", of_image=_padded, of_weight=_copies_of_weight, of_gradient=_rounded, of_parts=_parts,
    totals=_totals)
COLLAPSED_COPIES = dataclasses.replace(
    COPIES, made="rounded_collapsed", of_weight=_copies_of_collapsed, of_parts=_collapsed_parts,
    totals=lambda image, filters, kernel: _totals(image, filters, 4, 2))
PATTERNS = (
    Pattern(("conv2d", "relu", "maxpool2d"), conv_block, fits=pools_in_place),
    *COLLAPSED,
    Pattern(("conv2d", "relu"), conv_block),
    Pattern(("conv2d",), conv_block),
    *gpu_3xtf32.PATTERNS,
)
LAUNCHES = {
    **gpu_3xtf32.launches("bfloat16"),
    "conv2d_round_input": round_input,
    "copy_weights": copy_weights,
    **{f"{rule}_update": update for rule in AVERAGES},
    "conv2d_round_gradient": round_gradient,
    "rounded_conv2d_forward": forward,
    "rounded_conv2d_input_grad": input_grad,
    "rounded_conv2d_weight_grad": weight_grad,
    "rounded_collapsed_conv2d_forward": collapsed_forward,
    "rounded_collapsed_conv2d_input_grad": input_grad,
    "rounded_collapsed_conv2d_weight_grad": collapsed_weight_grad,
}
