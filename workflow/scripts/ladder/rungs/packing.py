"""Packed operands: copies of a convolution's operands as its kernels read them, and which
convolutions have them.

Packing is gpu_tf32's layout, PhaseWeights that of a convolution behind an upsampling, Columns that
of a first layer of few channels; gpu_bf16_sm90 has a fourth.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping

from ladder.arithmetic.multipliers import DIRECTIONS
from ladder.network.layers import Layer
from ladder.network.networks import INPUT
from ladder.rungs import packed_tiles as tiles
from ladder.rungs.gpu_3xtf32 import FEW_COLUMNS
from ladder.rungs.gpu_basic import blocks
from ladder.rungs.interface import PlanBuilder
from ladder.rungs.launches import Shape
from ladder.rungs.packed_tiles import BFLOAT16, NumberFormat, Sums

FEWEST = 33  # channels from which on half of a tile's columns have work
# of a gradient with its border: a block packs them and sums them to a row of bias partials
PIXELS_OF_PARTIAL = 128
PIXELS_OF_LOSS = 256  # likewise, where a block has the loss of them: kernels/packed/loss.cu
# kernel and stride of the input gradient of a convolution behind an upsampling
PHASE_TAPS = 4, 2


@dataclasses.dataclass(frozen=True)
class Packing:
    """NHWC with a border of zeros, and zeros for channels up to a whole chunk of 16 bytes.

    Steps that round and pack an operand are called {pack_op}_input and {pack_op}_gradient, those
    that multiply packed ones {conv_op}_forward, {conv_op}_input_grad and {conv_op}_weight_grad.
    number_format: of what is packed; float32 is not rounded.
    """

    number_format: NumberFormat = BFLOAT16

    pack_op, conv_op = "conv2d_round", "rounded_conv2d"

    def slides(self, conv: Layer) -> tuple[int, int]:
        """(kernel, stride) of the convolution that packed operands are multiplied by."""
        return conv.attributes["kernel"], conv.attributes["stride"]

    def image(self, shape: Shape, padding: int) -> Shape:
        """Shape of a packed image; padding: width of its border."""
        batch, height, width, channels = shape
        return batch, height + 2 * padding, width + 2 * padding, self._whole(channels)

    def weight(self, shape: Shape) -> dict[str, Shape]:
        """{role: shape} of a packed weight: "packed", and "flipped" for the input gradient."""
        filters, kernel, _, channels = shape
        return {
            "packed": (filters, kernel, kernel, self._whole(channels)),
            "flipped": (channels, kernel, kernel, self._whole(filters)),
        }

    def gradient(self, shape: Shape, padding: int) -> dict[str, Shape]:
        """{role: shape} of a packed output gradient: "rounded", and "steps" if the weight gradient
        reads another layout.
        """
        return {"rounded": Packing.image(self, shape, padding)}

    def weight_parts(self, x: Shape, dy: Shape, conv: Layer) -> tuple[int, int]:
        """(splits, numbers of one) of a weight gradient in parts; x, dy: shapes of the packed
        operands.
        """
        return tiles.weight_split(
            x, conv.attributes["filters"], *self.slides(conv), self.number_format
        )[2]

    def bias_partials(self, x: Shape, filters: int, kernel: int) -> int:
        """Rows of partial sums over pixels that an input gradient leaves of the gradient of x, an
        image without a border.
        """
        return self._rows_of_partials(x, filters, kernel, 1)

    def _rows_of_partials(self, x: Shape, filters: int, kernel: int, stride: int) -> int:
        batch, height, width, channels = x
        return tiles.rows_of_partials(
            Sums(
                batch,
                height,
                width,
                self._whole(filters),
                channels,
                kernel,
                stride,
                self.number_format,
            )
        )

    def _whole(self, channels: int) -> int:
        return self.number_format.chunk * blocks(channels, self.number_format.chunk)

    def holds_windows(self, width: int) -> bool:
        """Whether a block has whole 2x2 windows of an output so wide, which it can pool."""
        return True


class PhaseWeights(Packing):
    """Behind an upsampling: as Packing, with the weights of the four phases (weight_update.cu).

    A pixel of the upsampled image is of one of four sub-pixel phases, each a convolution of the
    small image whose taps are sums of the 3x3 ones; together they are a transposed convolution
    (PHASE_TAPS).
    """

    conv_op = "rounded_phase_conv2d"

    def weight(self, shape: Shape) -> dict[str, Shape]:
        """The phases' filters follow one another. A tile has all of few filters, whose taps are
        then in one window of 3x3.
        """
        filters, _, _, channels = shape
        kernel = 3 if 4 * filters <= FEW_COLUMNS.n else 2
        return {
            "packed": (4 * filters, kernel, kernel, self._whole(channels)),
            "flipped": (channels, 4, 4, self._whole(filters)),
        }

    def weight_parts(self, x: Shape, dy: Shape, conv: Layer) -> tuple[int, int]:
        # of the convolution from y to x
        return tiles.weight_split(dy, x[3], *PHASE_TAPS, self.number_format)[2]

    def bias_partials(self, x: Shape, filters: int, kernel: int) -> int:
        return self._rows_of_partials(x, filters, *PHASE_TAPS)


@dataclasses.dataclass(frozen=True)
class Columns(Packing):
    """Of images with few channels: a pixel has all numbers of the window of y's pixel there
    (im2col), in the weight's order.

    So the convolution that reads them has windows of 1x1, whose channels are those numbers. window:
    (kernel, stride).
    """

    window: tuple[int, int] = (1, 1)

    def slides(self, conv: Layer) -> tuple[int, int]:
        return 1, 1

    def image(self, shape: Shape, padding: int) -> Shape:
        (batch, *sizes, channels), (kernel, stride) = shape, self.window
        down, across = ((size + 2 * padding - kernel) // stride + 1 for size in sizes)
        return batch, down, across, self._whole(kernel**2 * channels)

    def weight(self, shape: Shape) -> dict[str, Shape]:
        """Without a flipped one: there is no input gradient."""
        return {"packed": (shape[0], 1, 1, self._whole(math.prod(shape[1:])))}


def rows_of_packing(shape: Shape, padding: int, pixels: int = PIXELS_OF_PARTIAL) -> int:
    """Rows of bias partials of a gradient that a step of its own packs, or the loss."""
    batch, height, width, _ = shape
    return blocks(batch * (height + 2 * padding) * (width + 2 * padding), pixels)


def both_gradients(packed: Mapping[str, str]) -> tuple[str, str]:
    """(the one with a border, the one without): where a gradient is packed once, that stands for
    both.
    """
    return packed.get("rounded") or packed["steps"], packed.get("steps") or packed["rounded"]


def packing_of(
    build: PlanBuilder, conv: Layer, number_format: NumberFormat = BFLOAT16
) -> Packing | None:
    """The Packing of a layer's operands on gpu_tf32 and the rungs with its kernels.

    A convolution of such numbers has one if its channels fill tiles and whole chunks of 16 bytes.
    Where no input gradient is wanted and the channels do not fill tiles, the filters have to; a
    window of the network's images that fits a step is then a column. None: they are not packed.
    """
    if conv.kind != "conv2d" or any(
        getattr(build.multipliers, direction).name != number_format.name for direction in DIRECTIONS
    ):
        return None
    filters, kernel, _, channels = conv.parameters[f"{conv.name}.weight"]
    if not build.gradients.is_wanted(conv.inputs[0]) and channels < FEWEST:
        fills = filters >= FEWEST
        if (
            fills
            and build.values.source(conv) == INPUT
            and kernel**2 * channels <= number_format.step
        ):
            return Columns(number_format, (kernel, conv.attributes["stride"]))
    else:
        fills = (
            channels >= FEWEST
            and channels % number_format.chunk == 0
            and conv.attributes["padding"] < kernel
        )
    return (PhaseWeights if has_phases(build, conv) else Packing)(number_format) if fills else None


def has_phases(build: PlanBuilder, conv: Layer) -> bool:
    """Whether a convolution multiplies phase weights, those of the upsampling that is the layer
    before it.
    """
    return any(
        after is conv and build.has_phases((before, after))
        for before, after in itertools.pairwise(build.values.layers)
    )
