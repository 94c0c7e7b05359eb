"""Operands of gpu_bf16_sm90 and the rungs on its kernels, in channel blocks as its launches arrange
them, and what its convolutions make of them.
"""

import functools

import numpy as np

import references
import rounded_copies
from kernel_checks import poisoned
from ladder.rungs import gpu_bf16_sm90 as rung
from ladder.rungs import packed as launches
from ladder.rungs.gpu_basic import blocks
from ladder.rungs.packed_tiles import BFLOAT16
from ladder.rungs.packing import PIXELS_OF_PARTIAL
from rounded_copies import ROUNDS
from rung_checks import ONE_ORDER, run_step

CHANNEL_BLOCKS, PHASE_BLOCKS = rung.ChannelBlocks(), rung.PhaseBlocks()


def launched(function, number_format, tile=None):
    """The launch function with such operands and, if any, this tile."""
    with_tile = functools.partial(function, tile=tile) if tile else function
    return launches.in_format(with_tile, number_format)


def numbers(channel_blocks, number_format=BFLOAT16):
    """float32 of the numbers in rows of 64, whose chunks are in their places again: (..., rows,
    64) of (..., rows, 64).
    """
    row, chunk = np.arange(channel_blocks.shape[-2])[:, None], np.arange(8)
    chunks = channel_blocks.reshape(*channel_blocks.shape[:-1], 8, 8)[..., row, chunk ^ row % 8, :]
    return rounded_copies.numbers(chunks.reshape(channel_blocks.shape), number_format)


def rows_of(image):
    """The rows that channel blocks of an image (batch, height, width, channels) hold: (channel
    blocks, pixels, 64).
    """
    filled = np.pad(image, ((0, 0), (0, 0), (0, 0), (0, -image.shape[3] % 64)))
    return filled.reshape(-1, filled.shape[3] // 64, 64).swapaxes(0, 1)


def bordered(image, padding):
    return np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))


def channel_blocks_of(x, padding, orders=ONE_ORDER, number_format=BFLOAT16):
    channel_blocks = poisoned(rung.ChannelBlocks(number_format).image(x.shape, padding), np.uint16)
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
    return copies_in(rung.ChannelBlocks(number_format), weight, orders)


def copies_in(packing, weight, orders):
    copies = {
        f"w.{role}": poisoned(shape, np.uint16)
        for role, shape in packing.weight(weight.shape).items()
    }
    run_step(
        functools.partial(launches.copy_weights, number_format=packing.number_format),
        {"w": weight},
        copies,
        orders,
        copies={"w": {name[2:]: name for name in copies}},
    )
    return list(copies.values())


def gradient_of(dy, padding, orders=ONE_ORDER, packing=CHANNEL_BLOCKS):
    """{role: array}: steps, partials and, with a border, rounded."""
    batch, height, width, filters = dy.shape
    made = {
        role: poisoned(shape, np.uint16)
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
    return {
        "dy": gradient_of(conv.dy, padding, packing=rung.ChannelBlocks(number_format))[
            "rounded" if padding else "steps"
        ],
        "flipped": tiles_of(conv.weight, number_format=number_format)[1],
    }


def forward(conv, relu, tile=None, number_format=BFLOAT16):
    y = poisoned(conv.output)
    run_step(
        launched(rung.forward, number_format, tile),
        operands(conv, number_format),
        {"y": y},
        stride=conv.stride,
        relu=relu,
    )
    return y


def input_grad(conv, tile=None, number_format=BFLOAT16):
    dx = poisoned(conv.x.shape)
    run_step(
        launched(rung.input_grad, number_format, tile),
        {**given_back(conv, number_format), "zeros": np.zeros(conv.x.shape[3:], np.float32)},
        {"dx": dx},
    )
    return dx


def weight_grad(conv, number_format=BFLOAT16):
    dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
    padding = conv.kernel - 1 - conv.padding if conv.stride == 1 else 0
    gradient = gradient_of(conv.dy, padding, packing=rung.ChannelBlocks(number_format))
    reads = {
        "x": channel_blocks_of(conv.x, conv.padding, number_format=number_format),
        "dy": gradient["steps"],
        "bias_partials": gradient["bias_partials"],
    }
    run_step(
        launched(rung.weight_grad, number_format),
        reads,
        {"dweight": dweight, "dbias": dbias},
        stride=conv.stride,
        kernel=conv.kernel,
    )
    return dweight, dbias


class Behind:
    """A convolution behind an upsampling, in phases."""

    def __init__(self, shape, values, number_format=BFLOAT16):
        self.packing = rung.PhaseBlocks(number_format)
        batch, self.height, self.width, self.channels, self.filters = shape
        self.x = values(batch, self.height, self.width, self.channels)
        self.weight, self.bias = (
            values(self.filters, 3, 3, self.channels, seed=1),
            values(self.filters, seed=2),
        )
        self.dy = values(batch, 2 * self.height, 2 * self.width, self.filters, seed=3)
        self.phase_weights = ROUNDS[number_format](references.decompose_taps(self.weight))

    def launched(self, function, tile=None):
        return launched(function, self.packing.number_format, tile)

    def channel_blocks(self):
        return channel_blocks_of(self.x, 1, number_format=self.packing.number_format)

    def copies(self, orders=ONE_ORDER):
        return copies_in(self.packing, self.weight, orders)

    def gradient(self, orders=ONE_ORDER):
        return gradient_of(self.dy, 1, orders, self.packing)

    def forward(self, tile=None, writes=None, **more):
        writes = writes or {"y": poisoned(self.dy.shape)}
        reads = {"x": self.channel_blocks(), "weight": self.copies()[0], "bias": self.bias}
        run_step(self.launched(rung.phase_forward, tile), reads, writes, **{"relu": False, **more})
        return next(iter(writes.values()))

    def given_back(self):
        return {"dy": self.gradient()["rounded"], "flipped": self.copies()[1]}

    def input_grad(self):
        dx = poisoned(self.x.shape)
        run_step(
            self.launched(rung.phase_input_grad),
            {**self.given_back(), "zeros": np.zeros(self.channels, np.float32)},
            {"dx": dx},
        )
        return dx

    def weight_grad(self):
        dweight, dbias, made = (
            poisoned(self.weight.shape),
            poisoned(self.bias.shape),
            self.gradient(),
        )
        run_step(
            self.launched(rung.phase_weight_grad),
            {
                "x": self.channel_blocks(),
                "dy": made["steps"],
                "bias_partials": made["bias_partials"],
            },
            {"dweight": dweight, "dbias": dbias},
        )
        return dweight, dbias
