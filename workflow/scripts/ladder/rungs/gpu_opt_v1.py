"""Tiles in shared memory and registers, 16-byte accesses, ReLU fused into the convolution and its gradient into what follows.

Where a ReLU is read by one pooling or upsampling layer, that layer's gradient applies the ReLU's too; otherwise the ReLU's
gradient is a step of its own.
"""

import dataclasses

from ..networks import INPUT
from ..patterns import Launch, Pattern, alone
from . import gpu_basic
from .gpu_basic import blocks, elements, integers


@dataclasses.dataclass(frozen=True)
class Tile:
    """m x n elements of a matrix product by a block, thread_m x thread_n by a thread."""

    m: int
    n: int
    thread_m: int
    thread_n: int

    @property
    def threads(self):
        return self.m // self.thread_m * (self.n // self.thread_n)

    def defines(self, **wide):
        """wide: which operands are read 16 bytes at a time."""
        sizes = {"TILE_M": self.m, "TILE_N": self.n, "THREAD_M": self.thread_m, "THREAD_N": self.thread_n}
        return tuple(f"{name}={int(value)}" for name, value in {**sizes, **wide}.items())


SQUARE = Tile(64, 64, 8, 4)
FEW_COLUMNS = Tile(256, 4, 4, 4)
NARROW = Tile(64, 32, 8, 4)
FEW_ROWS = Tile(4, 256, 4, 4)

# How far the pixels of a weight gradient are split; part of the result's bytes, so a constant and not the GPU's size.
SPLIT_WARPS = 2112         # in all blocks together: 16 for each of 132 multiprocessors
SPLIT_PIXELS, SPLITS = 64, 128   # at least, at most


def conv_block(build, group):
    """conv2d, with the ReLU that follows where there is one."""
    conv, last = group[0], group[-1]
    x, weight, bias = conv.inputs[0], build.parameter(f"{conv.name}.weight"), build.parameter(f"{conv.name}.bias")
    y = build.activation(last)
    padding, flop, relu = conv.attributes["padding"], 2 * conv.macs, last.kind == "relu"
    build.forward("conv2d_forward", group, {"x": x, "weight": weight, "bias": bias}, {"y": y}, flop=flop, padding=padding,
                  relu=relu)
    if not build.training:
        return
    dy = received = build.gradient(y)
    if relu and not reader_applies_relu(build.network, last.name):
        dy = build.workspace(f"{conv.name}.gradient", build.shape(y))
    # The plan runs backward steps in reverse.
    build.backward("conv2d_weight_grad", group, {"x": x, "dy": dy},
                   {"dweight": build.gradient(weight), "dbias": build.gradient(bias)}, flop=flop, padding=padding)
    if x != INPUT:
        build.backward("conv2d_input_grad", group, {"dy": dy, "weight": weight}, {"dx": build.gradient(x)}, flop=flop,
                       padding=padding)
    if dy != received:
        build.backward("relu_backward", group, {"y": y, "dy": received}, {"dx": dy})


def resize_block(build, group):
    """maxpool2d or upsample2d; after a ReLU the gradient is that of what went into the ReLU."""
    (layer,) = group
    x, y = layer.inputs[0], build.activation(layer)
    index = {"index": build.mask(layer)} if layer.kind == "maxpool2d" else {}
    build.forward(f"{layer.kind}_forward", group, {"x": x}, {"y": y, **index})
    if build.training and x != INPUT:
        relu = reader_applies_relu(build.network, x)
        kept = {"y": y} if layer.kind == "maxpool2d" else {"x": x}
        build.backward(f"{layer.kind}_backward", group, {"dy": build.gradient(y), **index, **kept}, {"dx": build.gradient(x)},
                       relu=relu)


def reader_applies_relu(network, name):
    """Whether layer `name` is a ReLU whose gradient the one layer that reads it applies."""
    readers = [layer.kind for layer in network.layers if name in layer.inputs]
    return network.layer(name).kind == "relu" and readers in (["maxpool2d"], ["upsample2d"])


PATTERNS = (
    Pattern(("conv2d", "relu"), conv_block),
    Pattern(("conv2d",), conv_block),
    Pattern(("relu",), alone),
    Pattern(("maxpool2d",), resize_block),
    Pattern(("upsample2d",), resize_block),
)


def pixel_tile(pixels, columns, wide):
    """Tile of a product whose rows are pixels: forward and input gradient. wide: all of it is read 16 bytes at a time."""
    return FEW_COLUMNS if columns <= 4 else SQUARE


def weight_tile(filters, columns, wide):
    """Tile of a weight gradient, whose rows are filters."""
    if filters <= 4:
        return FEW_ROWS
    return NARROW if columns <= 32 else SQUARE


def split(tile, filters, columns, pixels):
    """(splits, pixels of each) of a weight gradient."""
    warps = blocks(filters, tile.m) * blocks(columns, tile.n) * tile.threads // 32
    splits = max(1, min(SPLIT_WARPS // warps, pixels // SPLIT_PIXELS, SPLITS))
    size = 8 * blocks(blocks(pixels, splits), 8)   # whole steps of the kernel
    return blocks(pixels, size), size


def conv2d_forward(step, build, folder="gpu_opt_v1", tile_for=pixel_tile, stride=()):
    """folder, tile_for, stride: a rung with other tiles, whose kernels take the stride as the last of the shape."""
    reads, y = step.reads, step.writes["y"]
    channels, filters = build.shape(reads["weight"])[3], build.shape(y)[3]
    pixels = elements(build, y) // filters
    wide = channels % 4 == 0
    tile = tile_for(pixels, filters, wide)
    arguments = (reads["x"], reads["weight"], reads["bias"], y, *_shape(step, build, reads["x"], reads["weight"]),
                 *integers(*stride, step.attributes["relu"]))
    return (Launch(f"{folder}/conv2d_forward.cu", "conv2d_forward", (blocks(pixels, tile.m) * blocks(filters, tile.n),),
                   (tile.threads,), arguments, defines=tile.defines(WIDE=wide)),)


def conv2d_input_grad(step, build, folder="gpu_opt_v1", tile_for=pixel_tile, stride=()):
    dy, weight, dx = step.reads["dy"], step.reads["weight"], step.writes["dx"]
    channels, filters = build.shape(dx)[3], build.shape(dy)[3]
    pixels = elements(build, dx) // channels
    wide_dy, wide_weight = filters % 4 == 0, channels % 4 == 0
    tile = tile_for(pixels, channels, wide_dy and wide_weight)
    arguments = (dy, weight, dx, *_shape(step, build, dx, weight), *integers(*stride))
    return (Launch(f"{folder}/conv2d_input_grad.cu", "conv2d_input_grad",
                   (blocks(pixels, tile.m) * blocks(channels, tile.n),), (tile.threads,), arguments,
                   defines=tile.defines(WIDE_DY=wide_dy, WIDE_WEIGHT=wide_weight)),)


def conv2d_weight_grad(step, build, folder="gpu_opt_v1", tile_for=weight_tile, stride=()):
    x, dy, dweight, dbias = step.reads["x"], step.reads["dy"], step.writes["dweight"], step.writes["dbias"]
    channels, filters = build.shape(x)[3], build.shape(dy)[3]
    weights, pixels = elements(build, dweight), elements(build, dy) // filters
    columns = weights // filters
    wide_dy, wide_x = filters % 4 == 0, channels % 4 == 0
    tile = tile_for(filters, columns, wide_dy and wide_x)
    splits, pixels_per_split = split(tile, filters, columns, pixels)
    per_split = 4 * blocks(weights + filters, 4)
    partials = build.workspace(f"{step.layer}.partials", (splits, per_split))
    defines = tile.defines(WIDE_DY=wide_dy, WIDE_X=wide_x)
    source = f"{folder}/conv2d_weight_grad.cu"
    return (
        Launch(source, "conv2d_weight_grad", (blocks(columns, tile.n), blocks(filters, tile.m), splits), (tile.threads,),
               (x, dy, partials, *_shape(step, build, x, dweight), *integers(*stride, pixels_per_split)), defines=defines),
        Launch(source, "conv2d_add_splits", (blocks(per_split // 4, 128),), (128,),
               (partials, dweight, dbias, *integers(weights, filters, splits)), defines=defines),
    )


def maxpool2d_forward(step, build):
    x, y, index = step.reads["x"], step.writes["y"], step.writes["index"]
    return _one("maxpool2d.cu", "maxpool2d_forward", elements(build, y), (x, y, index), build.shape(x))


def maxpool2d_backward(step, build):
    reads, dx = step.reads, step.writes["dx"]
    batch, height, width, channels = build.shape(dx)
    return _one("maxpool2d.cu", "maxpool2d_backward", batch * blocks(height, 2) * blocks(width, 2) * channels,
                (reads["dy"], reads["index"], reads["y"], dx), build.shape(dx), step.attributes["relu"])


def upsample2d_forward(step, build):
    x, y = step.reads["x"], step.writes["y"]
    return _one("upsample2d.cu", "upsample2d_forward", elements(build, x), (x, y), build.shape(x))


def upsample2d_backward(step, build):
    dy, x, dx = step.reads["dy"], step.reads["x"], step.writes["dx"]
    return _one("upsample2d.cu", "upsample2d_backward", elements(build, dx), (dy, x, dx), build.shape(dx),
                step.attributes["relu"])


LAUNCHES = {
    **gpu_basic.LAUNCHES,
    **{function.__name__: function for function in (
        conv2d_forward, conv2d_input_grad, conv2d_weight_grad, maxpool2d_forward, maxpool2d_backward, upsample2d_forward,
        upsample2d_backward)},
}


def _shape(step, build, x, weight):
    """batch, height, width, channels, filters, kernel, padding."""
    return integers(*build.shape(x), *build.shape(weight)[:2], step.attributes["padding"])


def _one(file, entry, count, arrays, shape, *more):
    """A thread for 4 neighbouring channels of `count` elements, or for one where the channels do not divide."""
    width = 4 if shape[3] % 4 == 0 else 1
    return (Launch(f"gpu_opt_v1/{file}", entry, (blocks(count // width, 256),), (256,), (*arrays, *integers(*shape, *more)),
                   defines=(f"WIDTH={width}",)),)
