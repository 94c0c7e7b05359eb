"""Operands of gpu_bf16_sm90 and the rungs on its kernels, in channel blocks as its launches arrange
them, and what its convolutions make of them.
"""

import functools

import numpy as np

import rounded_copies
from kernel_checks import poisoned
from ladder.rungs import gpu_bf16_sm90 as rung
from ladder.rungs.gpu_basic import blocks
from ladder.rungs.packed_tiles import BFLOAT16, EXPONENTS, FLOAT16
from ladder.rungs.packing import PIXELS_OF_PARTIAL
from rung_checks import ONE_ORDER, run_forward, run_input_grad, run_step, run_weight_grad

CHANNEL_BLOCKS, PHASE_BLOCKS = rung.ChannelBlocks(), rung.PhaseBlocks()


def launched(function, number_format, tile=None):
    """The launch function with such operands and, if any, this tile."""
    with_tile = functools.partial(function, tile=tile) if tile else function
    return rung.launched(with_tile, number_format, function.__name__.endswith("input_grad"))


def numbers(channel_blocks, number_format=BFLOAT16, kind="ACTIVATION"):
    """float32 of the numbers in rows of 64, whose chunks are in their places again: (blocks, ...,
    rows, 64) of (blocks, ..., rows, 64). Of pairs of halves two blocks become one, of sums that are
    divided by the scale of this kind; "steps" are for `pairs_of_steps`.
    """
    shape = channel_blocks.shape
    row, chunk = np.arange(shape[-2])[:, None], np.arange(8)
    chunks = channel_blocks.reshape(*shape[:-1], 8, 8)[..., row, chunk ^ row % 8, :]
    if number_format.halves == 1:
        return rounded_copies.numbers(chunks.reshape(shape), number_format)
    both = chunks.reshape(*shape[:-1], 2, 32).view(np.float16).astype(np.float32).sum(axis=-2)
    return np.concatenate([both[0::2], both[1::2]], axis=-1) * scale(kind)


def pairs_of_steps(steps, number_format):
    """The same of "steps", where the high and the low halves are blocks of their own."""
    if number_format.halves == 1:
        return numbers(steps, number_format)
    halves = numbers(steps, FLOAT16)
    return (halves[0::2] + halves[1::2]) * scale("GRADIENT")


def scale(kind):
    return np.float32(2.0 ** -EXPONENTS[kind])


def rows_of(image):
    """The rows that channel blocks of an image (batch, height, width, channels) hold: (channel
    blocks, pixels, 64).
    """
    filled = np.pad(image, ((0, 0), (0, 0), (0, 0), (0, -image.shape[3] % 64)))
    return filled.reshape(-1, filled.shape[3] // 64, 64).swapaxes(0, 1)


def bordered(image, padding):
    return np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))


def channel_blocks_of(x, padding, orders=ONE_ORDER, number_format=BFLOAT16):
    shape = rung.ChannelBlocks(number_format).image(x.shape, padding)
    channel_blocks = poisoned(shape, number_format.dtype)
    run_step(
        launched(rung.arrange_image, number_format),
        {"x": x},
        {"rounded": channel_blocks},
        orders,
        padding=padding,
    )
    return channel_blocks


def tiles_of(weight, orders=ONE_ORDER, number_format=BFLOAT16):
    """[copy, flipped]."""
    return rounded_copies.rounded_weight(
        weight, True, number_format, orders, rung.ChannelBlocks(number_format)
    )


def gradient_of(dy, padding, orders=ONE_ORDER, packing=CHANNEL_BLOCKS):
    """{role: array}: steps, partials and, with a border, rounded."""
    batch, height, width, filters = dy.shape
    made = {
        role: poisoned(shape, packing.number_format.dtype)
        for role, shape in packing.gradient(dy.shape, padding).items()
    }
    pixels = batch * (height + 2 * padding) * (width + 2 * padding)
    made["bias_partials"] = poisoned((blocks(pixels, PIXELS_OF_PARTIAL), filters))
    run_step(
        launched(rung.arrange_gradient, packing.number_format),
        {"dy": dy},
        made,
        orders,
        padding=padding,
    )
    return made


def operands(conv, number_format=BFLOAT16):
    return {
        "x": channel_blocks_of(conv.x, conv.padding, number_format=number_format),
        "weight": tiles_of(conv.weight, number_format=number_format)[0],
        "bias": conv.bias,
    }


def given_back(conv, number_format=BFLOAT16):
    """What an input gradient reads of dy and of the weight."""
    padding = conv.kernel - 1 - conv.padding
    dy = gradient_of(conv.dy, padding, packing=rung.ChannelBlocks(number_format))
    return {
        "dy": dy.get("rounded", dy["steps"]),
        "flipped": tiles_of(conv.weight, number_format=number_format)[1],
    }


def forward(conv, relu, tile=None, number_format=BFLOAT16):
    function = launched(rung.forward, number_format, tile)
    return run_forward(function, operands(conv, number_format), conv, stride=conv.stride, relu=relu)


def input_grad(conv, tile=None, number_format=BFLOAT16):
    function = launched(rung.input_grad, number_format, tile)
    return run_input_grad(function, given_back(conv, number_format), conv)


def weight_grad(conv, number_format=BFLOAT16):
    padding = conv.kernel - 1 - conv.padding if conv.stride == 1 else 0
    gradient = gradient_of(conv.dy, padding, packing=rung.ChannelBlocks(number_format))
    reads = {
        "x": channel_blocks_of(conv.x, conv.padding, number_format=number_format),
        "dy": gradient["steps"],
        "bias_partials": gradient["bias_partials"],
    }
    function = launched(rung.weight_grad, number_format)
    return run_weight_grad(function, reads, conv, stride=conv.stride, kernel=conv.kernel)


class Upsampled(rounded_copies.Upsampled):
    """As that, in channel blocks."""

    packed_as = rung.PhaseBlocks

    def launched(self, function, tile=None):
        return launched(function, self.number_format, tile)

    def channel_blocks(self):
        return channel_blocks_of(self.x, 1, number_format=self.number_format)

    def gradient(self, orders=ONE_ORDER):
        return gradient_of(self.dy, 1, orders, self.packing)

    def forward(self, tile=None, writes=None, **more):
        writes = writes or {"y": poisoned(self.output)}
        reads = {"x": self.channel_blocks(), "weight": self.copies()[0], "bias": self.bias}
        run_step(self.launched(rung.phase_forward, tile), reads, writes, **{"relu": False, **more})
        return next(iter(writes.values()))

    def given_back(self):
        return {"dy": self.gradient()["rounded"], "flipped": self.copies()[1]}

    def input_grad(self):
        return run_input_grad(self.launched(rung.phase_input_grad), self.given_back(), self)

    def weight_grad(self):
        made = self.gradient()
        reads = {
            "x": self.channel_blocks(),
            "dy": made["steps"],
            "bias_partials": made["bias_partials"],
        }
        return run_weight_grad(self.launched(rung.phase_weight_grad), reads, self)
