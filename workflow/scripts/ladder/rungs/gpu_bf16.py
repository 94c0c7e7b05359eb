"""gpu_tf32 with bfloat16 operands, where the plan asks for them: twice the products an instruction, from half the bytes.

The operands of a convolution are rounded once, to copies in memory, whose parts are copied to shared memory in stages while
others are multiplied; an upsampled image has no other form than its copy. The copies of a weight are written by the launch that
updates it. Convolutions whose channels fit no copies (`has_copies`), and dense layers, round operands when they load them, as
gpu_tf32 does. Weights, activations, gradients and sums stay float32.
"""

import functools

from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_3xtf32, gpu_opt_v1
from ladder.rungs.gpu_3xtf32 import UPDATES_TOGETHER, TensorTile
from ladder.rungs.gpu_basic import blocks, elements, integers
from ladder.rungs.patterns import Launch, Pattern, convolution, sliding, weight_gradients

__all__ = ["LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

LARGE, SQUARE = TensorTile(128, 128, 64, 64), TensorTile(64, 64, 32, 32)
FEW_COLUMNS, FEW_ROWS = gpu_3xtf32.FEW_COLUMNS, gpu_3xtf32.FEW_ROWS
LARGE_TILES = 96    # from this many on, with a block a multiprocessor, they keep a GPU of about as many busy
STEP, STAGES = 64, 3          # k of a step, steps in shared memory: kernels/gpu_bf16/stages.cuh
CHUNK, FEWEST = 8, 33         # numbers in 16 bytes; channels from which on half of a tile's columns have work
# Split-K of the weight gradients: warps of all blocks, two large blocks on each multiprocessor of an H200; most splits.
SPLIT_WARPS, SPLITS = 8 * 132, 128
PIXELS_OF_TOTAL = 128         # of a gradient's image that a block rounds and sums
SIDE = 16                     # filters, and channels, of a block that updates a weight with copies


def conv_block(build, group):
    """conv2d, then optionally ReLU; as gpu_opt_v1.conv_block where there are no copies."""
    if not has_copies(build, group[0]):
        return gpu_opt_v1.conv_block(build, group)
    return _convolution_of_copies(build, group, build.source(group[0]))


def upsample_block(build, group):
    """upsample2d, conv2d, then optionally ReLU: the copy is of the larger image, of which there is no other."""
    upsample, *others = group
    if not has_copies(build, others[0]):
        parts = gpu_opt_v1.resize_block(build, (upsample,)), conv_block(build, others)
        return lambda: [part() for part in reversed(parts) if part]
    x = build.source(upsample)
    build.unchanged(upsample)
    return _convolution_of_copies(build, others, x, upsample)


def _convolution_of_copies(build, group, x, upsample=None):
    """x: buffer of the input, or of that of the upsampling before it."""
    conv, last = group[0], group[-1]
    _, weight, bias = convolution(build, conv)
    y = build.activation(last)
    slide, flop, relu, times = sliding(conv), 2 * conv.macs, last.kind == "relu", 2 if upsample else 1
    batch, height, width, channels = build.shape(x)
    image = batch, times * height, times * width, channels
    # A strided convolution's input gradient is no convolution of dy, but one with zeros in between.
    flips = build.training and build.wants_gradient(x) and slide["stride"] == 1
    copies = build.copies(weight, _copies_of_weight(build.shape(weight), flips))
    copy = build.kept(f"{conv.name}.x.bfloat16", _padded(image, slide["padding"]), "uint16")
    build.step("conv2d_round_input", group, {"x": x}, {"rounded": copy}, padding=slide["padding"], times=times)
    build.step("rounded_conv2d_forward", group, {"x": copy, "weight": copies["bfloat16"], "bias": bias}, {"y": y},
               flop=flop, stride=slide["stride"], relu=relu)

    def backward():
        dy = build.gradient(y)
        if relu and not gpu_opt_v1.reader_applies_relu(build.network, last.name):
            received, dy = dy, build.workspace(f"{conv.name}.gradient", build.shape(y))
            build.step("relu_backward", group, {"y": y, "dy": received}, {"dx": dy})
        padding = build.shape(weight)[1] - 1 - slide["padding"] if flips else 0
        rounded = build.kept(f"{conv.name}.dy.bfloat16", _padded(build.shape(y), padding), "uint16")
        totals = build.kept(f"{conv.name}.dy.totals", (_total_splits(build.shape(rounded)), build.shape(y)[3]))
        build.step("conv2d_round_gradient", group, {"dy": dy}, {"rounded": rounded, "totals": totals}, padding=padding)
        if build.wants_gradient(x):
            dx = build.workspace(f"{upsample.name}.gradient", image) if upsample else build.gradient_part(x)
            if flips:
                zeros = build.zeros(f"{conv.name}.no_shift", image[3:])
                build.step("rounded_conv2d_input_grad", group, {"dy": rounded, "flipped": copies["flipped"], "zeros": zeros},
                           {"dx": dx}, flop=flop)
            else:
                build.step("conv2d_input_grad", group, {"dy": dy, "weight": weight}, {"dx": dx}, flop=flop, **slide)
            if upsample:
                build.step("upsample2d_backward", (upsample,), {"dy": dx, "x": x}, {"dx": build.gradient_part(x)},
                           relu=gpu_opt_v1.reader_applies_relu(build.network, x))
        build.step("rounded_conv2d_weight_grad", group, {"x": copy, "dy": rounded, "totals": totals},
                   weight_gradients(build, conv), flop=flop, stride=slide["stride"], padding=padding)

    return backward


def has_copies(build, conv):
    """Whether a layer's operands are copied: a convolution in bfloat16 whose channels fill tiles and 16 bytes."""
    if conv.kind != "conv2d" or any(getattr(build.multipliers, direction).name != "bfloat16"
                                    for direction in ("forward", "input_grad", "weight_grad")):
        return False
    _, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    return channels >= FEWEST and channels % CHUNK == 0 and conv.attributes["padding"] < kernel


def _copies_of_weight(shape, flips):
    """{role: shape}; flips: whether there is one for the input gradient."""
    filters, kernel, _, channels = shape
    return {"bfloat16": shape, **({"flipped": (channels, kernel, kernel, _whole_chunks(filters))} if flips else {})}


def _padded(shape, padding):
    batch, height, width, channels = shape
    return batch, height + 2 * padding, width + 2 * padding, _whole_chunks(channels)


def _whole_chunks(channels):
    return CHUNK * blocks(channels, CHUNK)


def _total_splits(padded):
    return blocks(padded[0] * padded[1] * padded[2], PIXELS_OF_TOTAL)


def round_input(step, build):
    x, rounded = step.reads["x"], step.writes["rounded"]
    _, height, width, channels = build.shape(x)
    pixels = elements(build, rounded) // channels
    return (Launch("gpu_bf16/round.cu", "round_image", (blocks(pixels * channels // CHUNK, 256),), (256,),
                   (x, rounded, *integers(pixels, height, width, channels, step.attributes["padding"],
                                          step.attributes["times"]))),)


def round_gradient(step, build):
    dy, rounded, totals = step.reads["dy"], step.writes["rounded"], step.writes["totals"]
    _, height, width, channels = build.shape(dy)
    pixels = elements(build, rounded) // build.shape(rounded)[3]
    return (Launch("gpu_bf16/round.cu", "round_gradient", (build.shape(totals)[0], blocks(channels, 64)), (256,),
                   (dy, rounded, totals, *integers(pixels, height, width, channels, step.attributes["padding"],
                                                   PIXELS_OF_TOTAL))),)


def copy_weights(step, build):
    """All copies in one launch."""
    copies = step.attributes["copies"]
    rows = [((name, 0, 0, 0), _blocks_of(copies, build, name), _words_of_copies(copies, build, name)) for name in copies]
    table, grid = gpu_opt_v1.update_table(step, build, rows)
    return (Launch("gpu_bf16/weight_update.cu", "copy_weights", grid, (256,), (table,)),)


def update(step, build):
    """All parameters and the copies of weights in one launch."""
    copies = step.attributes.get("copies")
    if not copies:
        return gpu_opt_v1.update(step, build)
    return gpu_opt_v1.update(step, build, "gpu_bf16/weight_update.cu", functools.partial(_words_of_copies, copies),
                             functools.partial(_blocks_of, copies))


def _words_of_copies(copies, build, name, gradient=None):
    """The further words of a parameter's row of the table: addresses of its copies (0: none), filters, taps, channels."""
    if name not in copies:
        return 0, 0, 0, 0, 0
    filters, kernel, _, channels = build.shape(name)
    return copies[name]["bfloat16"], copies[name].get("flipped", 0), filters, kernel * kernel, channels


def _blocks_of(copies, build, name):
    if name not in copies:
        return blocks(elements(build, name))
    filters, kernel, _, channels = build.shape(name)
    return blocks(filters, SIDE) * kernel * kernel * blocks(channels, SIDE)


def forward(step, build, tile=None):
    """tile: replaces the one that the shape asks for; likewise in the gradients."""
    reads = step.reads
    return _convolution(build, (reads["x"], reads["weight"], reads["bias"], step.writes["y"]), step.attributes["stride"],
                        step.attributes["relu"], tile)


def input_grad(step, build, tile=None):
    reads = step.reads
    return _convolution(build, (reads["dy"], reads["flipped"], reads["zeros"], step.writes["dx"]), tile=tile)


def _convolution(build, arrays, stride=1, relu=False, tile=None):
    x, weight, _, y = arrays
    (_, height, width, channels), (filters, kernel) = build.shape(x), build.shape(weight)[:2]
    pixels = elements(build, y) // filters
    tile = tile or pixel_tile(pixels, filters)
    return (Launch("gpu_bf16/conv2d.cu", "conv2d", (blocks(pixels, tile.m) * blocks(filters, tile.n),), (tile.threads,),
                   (*arrays, *integers(height, width, channels, filters, kernel, stride, pixels, relu)), _shared_bytes(tile),
                   tile.defines(WHOLE=kernel * channels % STEP == 0)),)


def pixel_tile(pixels, columns):
    if columns <= FEW_COLUMNS.n:
        return FEW_COLUMNS
    return LARGE if blocks(pixels, LARGE.m) * blocks(columns, LARGE.n) >= LARGE_TILES else SQUARE


def weight_tile(filters, columns):
    if filters <= FEW_ROWS.m:
        return FEW_ROWS
    return LARGE if filters >= LARGE.m and columns >= LARGE.n else SQUARE


def weight_grad(step, build, tile=None):
    x, dy, totals, stride = (*(step.reads[role] for role in ("x", "dy", "totals")), step.attributes["stride"])
    dweight, dbias = step.writes["dweight"], step.writes["dbias"]
    (batch, height, width, channels), (filters, kernel) = build.shape(x), build.shape(dweight)[:2]
    columns, across = kernel * kernel * channels, (width - kernel) // stride + 1
    pixels = batch * across * ((height - kernel) // stride + 1)
    tile = tile or weight_tile(filters, columns)
    splits, per_split = _split(tile, filters, columns, pixels)
    partials = build.workspace(f"{step.layer}.partials", (splits, filters * columns))
    defines = tile.defines(WHOLE=pixels % STEP == 0, WHOLE_ROWS=STEP % across == 0)
    return (
        Launch("gpu_bf16/weight_grad.cu", "conv2d_weight_grad", (blocks(columns, tile.n), blocks(filters, tile.m), splits),
               (tile.threads,), (x, dy, partials, *integers(batch, height, width, channels, filters, build.shape(dy)[3],
                                                            kernel, stride, step.attributes["padding"], per_split)),
               _shared_bytes(tile, rows_of_k=True), defines),
        Launch("gpu_bf16/weight_grad.cu", "conv2d_add_parts", (blocks(filters * columns // 4 + filters, 128),), (128,),
               (partials, totals, dweight, dbias, *integers(filters * columns, filters, splits, build.shape(totals)[0])),
               defines=defines),
    )


def _split(tile, filters, columns, pixels):
    """(number of splits, pixels per split) of a weight gradient: whole steps, by the shape alone, as the bytes are."""
    warps = blocks(filters, tile.m) * blocks(columns, tile.n) * tile.threads // 32
    splits = max(1, min(SPLIT_WARPS // warps, pixels // STEP, SPLITS))
    size = STEP * blocks(blocks(pixels, splits), STEP)
    return blocks(pixels, size), size


def _shared_bytes(tile, rows_of_k=False):
    """rows_of_k: the lines lie side by side, always 64 of them."""
    m, n = (64 * blocks(lines, 64) if rows_of_k else lines for lines in (tile.m, tile.n))
    return STAGES * 2 * STEP * (m + n)


PATTERNS = (
    Pattern(("upsample2d", "conv2d", "relu"), upsample_block),
    Pattern(("upsample2d", "conv2d"), upsample_block),
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
}
