"""gpu_bf16 for Hopper alone: a thread starts copies of whole tiles (TMA), warpgroups multiply from shared memory (wgmma).

The copies of a convolution's operands are arranged as shared memory will hold them: rows of 64 channels, swizzled. What a block
needs of an image for all taps is then one run of memory. Convolutions whose tiles would be mostly empty, or that need more
shared memory than a block has, are gpu_bf16's.
"""

import dataclasses
import math

import numpy as np

from ladder.rungs import gpu_bf16, gpu_opt_v1, gpu_tf32
from ladder.rungs.gpu_basic import blocks, elements, integers
from ladder.rungs.gpu_bf16 import UPDATES_TOGETHER
from ladder.rungs.patterns import Launch, Pattern, convolution, sliding, weight_gradients

__all__ = ["LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

SLAB, ROW, CHUNKS = 64, 128, 8   # channels in a row, its bytes, chunks of 16 bytes: kernels/gpu_bf16_sm90/rows.cuh
FEWEST = 33                      # channels and filters from which on half of a row has work
MOST_KERNEL = 4                  # the weight gradient has a warpgroup for each column of taps
SHARED = 227 << 10               # bytes that a block may have
LARGE_TILES = 96                 # from this many on, with a block a multiprocessor, they keep a GPU of about as many busy
STEP, STAGES = 64, 4             # pixels of a step of a weight gradient, steps in shared memory: its weight_grad.cu
PIXELS_OF_TOTAL = gpu_bf16.PIXELS_OF_TOTAL
BLOCKS, SPLITS = 132, 128        # of a weight gradient: the multiprocessors of an H200; most splits


@dataclasses.dataclass(frozen=True)
class Tile:
    """A block computes m x n elements: 64 or 128 pixels, and 64, 128 or 256 filters."""

    m: int
    n: int

    @property
    def threads(self):
        return 2 * self.m + 128

    @property
    def defines(self):
        return f"TILE_M={self.m}", f"TILE_N={self.n}"

    def shared_bytes(self, rows):
        """STAGES of filters, SLABS of so many rows of pixels, two barriers for each: kernels/gpu_bf16_sm90/conv2d.cu."""
        return 4 * self.n * ROW + 2 * rows * ROW + 96


LARGE, MEDIUM, SMALL = Tile(128, 256), Tile(128, 128), Tile(64, 64)
TILES = (LARGE, MEDIUM, SMALL)


def pixel_tile(pixels, filters):
    """The largest tile that is filled and of which there are enough, else the smallest."""
    for tile in (LARGE, MEDIUM):
        if filters > tile.n // 2 and blocks(pixels, tile.m) * blocks(filters, tile.n) >= LARGE_TILES:
            return tile
    return SMALL


def rows_of_tiles(filters):
    """Filters that are stored: any tile for so many filters divides them."""
    most = next(size for size in (64, 128, 256) if filters <= size or size == 256)
    return most * blocks(filters, most)


def conv_block(build, group):
    """conv2d, then optionally ReLU; as gpu_bf16.conv_block where there are no slabs."""
    if not has_slabs(build, group[0]):
        return gpu_bf16.conv_block(build, group)
    return _convolution_of_slabs(build, group, build.source(group[0]))


def upsample_block(build, group):
    """upsample2d, conv2d, then optionally ReLU: the slabs are of the larger image, of which there is no other."""
    upsample, *others = group
    if not has_slabs(build, others[0]):
        return gpu_bf16.upsample_block(build, group)
    x = build.source(upsample)
    build.unchanged(upsample)
    return _convolution_of_slabs(build, others, x, upsample)


def _convolution_of_slabs(build, group, x, upsample=None):
    """x: buffer of the input, or of that of the upsampling before it."""
    conv, last = group[0], group[-1]
    _, weight, bias = convolution(build, conv)
    y = build.activation(last)
    slide, flop, times = sliding(conv), 2 * conv.macs, 2 if upsample else 1
    batch, height, width, channels = build.shape(x)
    image, (filters, kernel) = (batch, times * height, times * width, channels), build.shape(weight)[:2]
    # A strided convolution's input gradient is no convolution of dy, but one with zeros in between.
    reverses = build.training and build.wants_gradient(x) and slide["stride"] == 1

    def kept(role, shape):
        return build.kept(f"{conv.name}.{role}.bfloat16", shape, "uint16")

    slabs = kept("x", _slabs(image, slide["padding"]))
    tiles = {"tiles": kept("weight", (blocks(channels, SLAB), kernel, kernel, rows_of_tiles(filters), SLAB))}
    if reverses:
        tiles["reversed"] = kept("reversed", (blocks(filters, SLAB), kernel, kernel, rows_of_tiles(channels), SLAB))
    build.step("conv2d_arrange_input", group, {"x": x}, {"slabs": slabs}, padding=slide["padding"], times=times)
    build.step("conv2d_arrange_weight", group, {"weight": weight}, tiles)
    build.step("arranged_conv2d_forward", group, {"x": slabs, "weight": tiles["tiles"], "bias": bias}, {"y": y}, flop=flop,
               stride=slide["stride"], relu=last is not conv)

    def backward():
        dy = gpu_opt_v1.gradient_before_relu(build, group, y)
        padding = kernel - 1 - slide["padding"] if reverses else 0
        arranged = _arranged_gradient(build, group, dy, padding)
        if build.wants_gradient(x):
            dx = build.workspace(f"{upsample.name}.gradient", image) if upsample else build.gradient_part(x)
            if reverses:
                zeros = build.zeros(f"{conv.name}.no_shift", image[3:])
                build.step("arranged_conv2d_input_grad", group,
                           {"dy": arranged["slabs" if padding else "steps"], "reversed": tiles["reversed"], "zeros": zeros},
                           {"dx": dx}, flop=flop, image=_slabs(build.shape(y), padding)[1:4])
            else:
                build.step("conv2d_input_grad", group, {"dy": dy, "weight": weight}, {"dx": dx}, flop=flop, **slide)
            gpu_bf16.lead_back(build, upsample, dx, x)
        build.step("arranged_conv2d_weight_grad", group, {"x": slabs, "dy": arranged["steps"], "totals": arranged["totals"]},
                   weight_gradients(build, conv), flop=flop, stride=slide["stride"])

    return backward


def _arranged_gradient(build, group, dy, padding):
    """{role: buffer} of a gradient's copies for both directions, and of its sums over pixels."""
    name, shape = f"{group[0].name}.dy", build.shape(dy)
    bordered = _slabs(shape, padding)
    steps = bordered[0], STEP * blocks(_pixels(shape), STEP), SLAB
    arranged = {"steps": build.kept(f"{name}.steps.bfloat16", steps, "uint16"),
                "totals": build.kept(f"{name}.totals", (blocks(_pixels(bordered[1:]), PIXELS_OF_TOTAL), shape[3]))}
    if padding:
        arranged["slabs"] = build.kept(f"{name}.slabs.bfloat16", bordered, "uint16")
    build.step("conv2d_arrange_gradient", group, {"dy": dy}, arranged, padding=padding)
    return arranged


def has_copies(build, conv):
    """Whether a convolution reads copies as gpu_bf16 makes them: its convolutions before this one ask."""
    return gpu_bf16.has_copies(build, conv) and not has_slabs(build, conv)


def has_slabs(build, conv):
    """Whether a convolution is this rung's: rows are filled, and its tiles fit shared memory."""
    if not gpu_bf16.has_copies(build, conv):
        return False
    filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    if min(filters, channels) < FEWEST or kernel > MOST_KERNEL:
        return False
    image = build.batch, *conv.input_shapes[0]
    stride, padding = conv.attributes["stride"], conv.attributes["padding"]
    needed = [_forward_bytes(_slabs(image, padding)[1:4], filters, kernel, stride)]
    if build.training:
        needed.append(weight_grad_bytes(filters_together(filters, kernel),
                                        span_of_taps(_slabs(image, padding)[1:4], kernel, stride)))
        if stride == 1:
            dy = image[0], *(size + kernel - 1 for size in image[1:3])
            needed.append(_forward_bytes(dy, channels, kernel, 1))
    return max(needed) <= SHARED


def _forward_bytes(image, filters, kernel, stride):
    pixels = image[0] * ((image[1] - kernel) // stride + 1) * ((image[2] - kernel) // stride + 1)
    tile = pixel_tile(pixels, filters)
    return tile.shared_bytes(span(tile.m, image, kernel, stride))


def _slabs(image, padding):
    batch, height, width, channels = image
    return blocks(channels, SLAB), batch, height + 2 * padding, width + 2 * padding, SLAB


def _pixels(image):
    return image[0] * image[1] * image[2]


def span(together, image, kernel, stride):
    """Rows of image pixels, a multiple of 8, that windows of so many neighbouring pixels of y span at most.

    image: padded, (batch, height, width). The rows are counted from a multiple of 8 on.
    """
    first, last = _windows(together, image, kernel, stride)
    return _rows(first, last + (kernel - 1) * (image[2] + 1))


def span_of_taps(image, kernel, stride):
    """The same for a weight gradient's step, under one row of taps, whichever it is."""
    first, last = _windows(STEP, image, kernel, stride)
    return max(_rows(first + row * image[2], last + row * image[2] + kernel - 1) for row in range(kernel))


def _windows(together, image, kernel, stride):
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


def _rows(first, last):
    return int(CHUNKS * blocks((last - first // CHUNKS * CHUNKS).max() + 1, CHUNKS))


def forward(step, build, tile=None):
    """tile: replaces the one that the shape asks for; likewise in the input gradient."""
    reads = step.reads
    return _convolution(build, (reads["x"], reads["weight"], reads["bias"], step.writes["y"]), build.shape(reads["x"])[1:4],
                        step.attributes["stride"], step.attributes["relu"], tile)


def input_grad(step, build, tile=None):
    reads = step.reads
    return _convolution(build, (reads["dy"], reads["reversed"], reads["zeros"], step.writes["dx"]),
                        step.attributes["image"], tile=tile)


def _convolution(build, arrays, image, stride=1, relu=False, tile=None):
    """image: the padded one's (batch, height, width)."""
    _, weight, _, y = arrays
    (slabs, kernel, _, stored, _), filters = build.shape(weight), build.shape(y)[3]
    pixels = elements(build, y) // filters
    tile = tile or pixel_tile(pixels, filters)
    rows, x_pixels = span(tile.m, image, kernel, stride), elements(build, arrays[0]) // slabs // SLAB
    return (Launch("gpu_bf16_sm90/conv2d.cu", "conv2d", (blocks(pixels, tile.m) * (stored // tile.n),), (tile.threads,),
                   (*arrays, *integers(image[1], image[2], slabs, filters, stored, kernel, stride, pixels, x_pixels, rows,
                                       relu)), tile.shared_bytes(rows), tile.defines),)


def arrange_image(step, build):
    x, slabs = step.reads["x"], step.writes["slabs"]
    _, height, width, channels = build.shape(x)
    chunks = elements(build, slabs) // (SLAB // CHUNKS)
    return (Launch("gpu_bf16_sm90/arrange.cu", "arrange_image", (blocks(chunks, 256),), (256,),
                   (x, slabs, *integers(chunks // CHUNKS // build.shape(slabs)[0], height, width, channels,
                                        step.attributes["padding"], step.attributes["times"]))),)


def arrange_weight(step, build):
    weight = step.reads["weight"]
    filters, kernel, _, channels = build.shape(weight)
    entries = {"tiles": "arrange_weight", "reversed": "arrange_reversed_weight"}
    return tuple(
        Launch("gpu_bf16_sm90/arrange.cu", entries[role], (blocks(elements(build, tiles) // (SLAB // CHUNKS), 256),), (256,),
               (weight, tiles, *integers(filters, kernel * kernel, channels, build.shape(tiles)[3])))
        for role, tiles in step.writes.items())


def arrange_gradient(step, build):
    dy, steps, totals = step.reads["dy"], step.writes["steps"], step.writes["totals"]
    slabs, padding = step.writes.get("slabs", steps), step.attributes["padding"]   # without padding there are none
    batch, height, width, channels = build.shape(dy)
    pixels = batch * (height + 2 * padding) * (width + 2 * padding)
    return (Launch("gpu_bf16_sm90/arrange.cu", "arrange_gradient", (build.shape(totals)[0], blocks(channels, SLAB)), (256,),
                   (dy, slabs, steps, totals, *integers(pixels, height, width, channels, padding, PIXELS_OF_TOTAL,
                                                        build.shape(steps)[1]))),)


def weight_grad(step, build):
    x, dy, totals, stride = (*(step.reads[role] for role in ("x", "dy", "totals")), step.attributes["stride"])
    dweight, dbias = step.writes["dweight"], step.writes["dbias"]
    (slabs, *image, _), (filters, kernel, _, channels) = build.shape(x), build.shape(dweight)
    batch, height, width = image
    across, stored = (width - kernel) // stride + 1, build.shape(dy)[1]
    pixels, image_pixels = batch * across * ((height - kernel) // stride + 1), batch * height * width
    tile = filters_together(filters, kernel)
    splits, per_split = _split(kernel * slabs * blocks(filters, tile), stored // STEP)
    partials = build.workspace(f"{step.layer}.partials", (splits, elements(build, dweight)))
    rows = span_of_taps(image, kernel, stride)
    sizes = integers(height, width, channels, filters, stride, pixels, image_pixels, stored, per_split, rows)
    return (
        Launch("gpu_bf16_sm90/weight_grad.cu", "conv2d_weight_grad", (kernel * slabs, blocks(filters, tile), splits),
               (128 * kernel + 128,), (x, dy, partials, *sizes), weight_grad_bytes(tile, rows),
               (f"TILE_N={tile}", f"KERNEL={kernel}", f"WHOLE_ROWS={int(STEP % across == 0)}")),
        Launch("gpu_bf16_sm90/add_parts.cu", "conv2d_add_parts",
               (blocks(elements(build, dweight), 512) + blocks(filters, 4),), (128,),
               (partials, totals, dweight, dbias, *integers(elements(build, dweight), filters, splits,
                                                            build.shape(totals)[0]))),
    )


def filters_together(filters, kernel):
    """Filters of a block of a weight gradient: slabs of 64 that are there, and registers for their sums."""
    return 2 * SLAB if blocks(filters, SLAB) % 2 == 0 and kernel < MOST_KERNEL else SLAB


def weight_grad_bytes(tile, rows):
    return STAGES * (tile // SLAB * STEP * ROW + rows * ROW + 16)


def _split(parallel, steps):
    """(number of splits, steps of each), by the shape alone, as the bytes are; parallel: blocks of a split."""
    size = blocks(steps, max(1, min(BLOCKS // parallel, SPLITS)))
    return blocks(steps, size), size


PATTERNS = (
    Pattern(("upsample2d", "conv2d", "relu"), upsample_block),
    Pattern(("upsample2d", "conv2d"), upsample_block),
    Pattern(("conv2d", "relu"), conv_block),
    Pattern(("conv2d",), conv_block),
    *gpu_tf32.PATTERNS,
)
LAUNCHES = {
    **gpu_bf16.LAUNCHES,
    "conv2d_arrange_input": arrange_image,
    "conv2d_arrange_weight": arrange_weight,
    "conv2d_arrange_gradient": arrange_gradient,
    "arranged_conv2d_forward": forward,
    "arranged_conv2d_input_grad": input_grad,
    "arranged_conv2d_weight_grad": weight_grad,
}
