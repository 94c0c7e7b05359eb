"""Helpers of the cpu rung's convolutions: how their work is cut into blocks, and what is done with
a block of images.

The cut depends on the shapes of an operation and on nothing else: BLAS may round a row of a product
differently in a product of another shape, and sums over images are formed block by block.
"""

import functools
import math

import numpy as np

from ladder.executors.cpu import loops
from ladder.executors.cpu.loops import Unsigned

MOST_PIECES = 16  # of an operation with much work: as many threads can share it
# least multiplications of a piece, half for two: with less, cutting costs more than threads save
PIECE_WORK = 2**23
# Least columns and rows of a piece: BLAS copies both factors into its own order, the other one anew
# for each piece.
PIECE_COLUMNS, PIECE_ROWS = 64, 256
# most multiplications of a product of contiguous matrices that OpenBLAS forms without copying them
SMALL_PRODUCT = 10**6
# least rows of such a part of a product: with fewer, the calls cost more than the copies
SMALL_ROWS = 64
# up to this many columns, BLAS adds them up faster than a loop whose vectors they do not fill
NARROW = 16


def pieces(work, most=MOST_PIECES):
    """Number of pieces, a power of two, into which `work` multiplications are cut; at most `most`
    and MOST_PIECES.
    """
    number = max(work // PIECE_WORK, 2 if work >= PIECE_WORK else 1)
    return 1 << max(0, min(MOST_PIECES, number, most).bit_length() - 1)


def cost(work):
    """Cost of `work` multiplications, in numbers moved (see Executor.parallel)."""
    return work // 16


def columns_per_piece(columns, work):
    """Columns per piece of a product of `work` multiplications: whole cache lines, so that no two
    threads write to the same.
    """
    return 16 * -(-columns // (16 * pieces(work, columns // PIECE_COLUMNS)))


def multiply(left, right, out):
    """out = left right, in equal parts of the rows that BLAS multiplies without copies; `right`
    must be contiguous.
    """
    rows, width = left.shape
    parts = _parts(rows, SMALL_PRODUCT // right.size)
    np.matmul(left.reshape(parts, -1, width), right, out=out.reshape(parts, -1, right.shape[1]))


@functools.cache
def _parts(rows, most):
    """Least number of equal parts of at most `most` rows, one if these would have fewer than
    SMALL_ROWS.
    """
    enough = range(-(-rows // max(1, most)), rows // SMALL_ROWS + 1)
    return next((number for number in enough if rows % number == 0), 1)


def transposed(executor, planes):
    """Each of planes (n, rows, columns) transposed and contiguous; valid until the next call."""
    count, rows, columns = planes.shape
    out = executor.workspace("transposed", (count, columns, rows), planes.dtype)

    def work(worker, start, stop):
        loops.transpose(planes, start, stop, out)
        worker.lap("convolution forward")

    executor.parallel(count, work, planes.size)
    return out


def slices(start, stop, size):
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


@functools.cache
def cut(images, rows, most, work):
    """The Cut with these arguments."""
    return Cut(images, rows, most, work)


class Cut:
    """Images cut into blocks of `size` images, and these into at most MOST_PIECES groups of `group`
    images.

    Each image is `rows` rows of a product with `work` multiplications in all; most: rows per block,
    unless an image has more.
    """

    def __init__(self, images, rows, most, work):
        number = max(pieces(work, images * rows // PIECE_ROWS), -(-images // max(1, most // rows)))
        if number < MOST_PIECES:
            # most numbers of threads then have equal shares
            number = 2 ** round(math.log2(number))
        whole = -(-number // MOST_PIECES)
        self.size = -(-images // (number if number < MOST_PIECES else whole * MOST_PIECES))
        self.group = self.size * whole
        self.groups = -(-images // self.group)
        self.cost = cost(work)  # of all images, see Executor.parallel

    def blocks(self, start, stop):
        """The blocks of images start to stop; start must be the first image of a block."""
        return slices(start, stop, self.size)


def overlap(length, shift):
    """Slices (to, from) of positions i and i + shift that both lie in range(length)."""
    return slice(max(0, -shift), max(0, length - max(0, shift))), slice(
        max(0, shift), max(0, length + min(0, shift))
    )


def framed(worker, x, begin, size):
    """`size` (height, width) pixels of x (N, H, W, C) starting at `begin` (row, column), with zeros
    outside the image.
    """
    height, width = x.shape[1:3]
    if begin == (0, 0) and size == (height, width):
        return x
    out = worker.workspace("framed", (len(x), *size, x.shape[3]), x.dtype)
    (top, bottom), (left, right) = (
        _seen(*axis) for axis in zip(begin, size, (height, width), strict=True)
    )
    out[:, :top] = 0
    out[:, bottom:] = 0
    out[:, top:bottom, :left] = 0
    out[:, top:bottom, right:] = 0
    row, column = begin
    out[:, top:bottom, left:right] = x[:, row + top : row + bottom, column + left : column + right]
    return out


def _seen(begin, size, pixels):
    """(first, end) of the positions of a frame of this size that lie in the image."""
    first = min(size, max(0, -begin))
    return first, max(first, min(size, pixels - begin))


def finish(worker, out, y, bias, relu, index):
    """Apply bias, 2x2 max-pool (if there is an index) and ReLU to a convolution's product `out`;
    without pooling, out is y.
    """
    filters = y.shape[-1]
    if index is not None:
        loops.maxpool_2x2(out, or_zeros(bias, y), y, index, relu)
        worker.lap("pooling")
    elif bias is not None or relu:
        loops.add_bias(
            out.reshape(-1, filters), Unsigned(0), Unsigned(filters), or_zeros(bias, y), relu
        )
        worker.lap("convolution forward")


def or_zeros(bias, y):
    return np.zeros(y.shape[-1], y.dtype) if bias is None else bias


class Gradient:
    """The gradient of a convolution's output (height, width, filters) before the fused ReLU and
    pooling.
    """

    def __init__(self, y, dy, relu, index, shape):
        self.y, self.dy, self.relu, self.index, self.shape = y, dy, relu, index, shape

    @property
    def given(self):
        """True if no ReLU or pooling follows, so the gradient is dy unchanged."""
        return not self.relu and self.index is None

    def whole(self, executor):
        """An array for the gradient of all images; dy itself if `given`."""
        return (
            self.dy
            if self.given
            else executor.workspace("gradient", (len(self.dy), *self.shape), self.dy.dtype)
        )

    def of_block(self, worker, block, out=None):
        """The gradient of a block of images, in `out` if given."""
        y, dy = self.y[block], self.dy[block]
        if self.given:
            return dy
        out = worker.workspace("gradient", (len(dy), *self.shape), dy.dtype) if out is None else out
        if self.index is None:
            loops.relu_gradient(y.reshape(-1), dy.reshape(-1), out.reshape(-1))
            worker.lap("ReLU")
        else:
            loops.maxpool_2x2_gradient(dy, y, self.index[block], out, self.relu)
            worker.lap("pooling")
        return out

    def for_bias(self, worker, block, whole):
        """Numbers with the same sums per filter as `whole`, the gradient of a block; with pooling a
        quarter as many.
        """
        if self.index is None:
            return whole
        y, dy = self.y[block], self.dy[block]
        if not self.relu:
            return dy
        passed = worker.workspace("passed", dy.shape, dy.dtype)
        loops.relu_gradient(y.reshape(-1), dy.reshape(-1), passed.reshape(-1))
        return passed


def bias_gradient(gradient):
    """Sums of a gradient (..., filters) over all axes but the last."""
    flat = gradient.reshape(-1, gradient.shape[-1])
    rows, filters = flat.shape
    if filters <= NARROW:
        return np.matmul(np.ones(rows, flat.dtype), flat)
    sums = np.empty(filters, flat.dtype)
    loops.column_sums(flat, Unsigned(0), Unsigned(filters), sums)
    return sums


class Sums:
    """Weight and bias gradients of the groups of a Cut, each accumulated block by block, by one
    thread.

    shape: of the weight gradient; dbias: the array of the whole bias gradient, None without one.
    """

    def __init__(self, executor, cut, shape, dbias, dtype):
        self._executor, self._cut, self._dbias = executor, cut, dbias
        self._weight = executor.workspace("weight sums", (cut.groups, *shape), dtype)
        self._bias = (
            None
            if dbias is None
            else executor.workspace("bias sums", (cut.groups, len(dbias)), dtype)
        )

    def add(self, worker, block, left, right, multiply=np.matmul):
        """Add left @ right to the weight gradient of the block's group."""
        group, place = divmod(block.start, self._cut.group)
        if place:
            self._weight[group] += multiply(
                left,
                right,
                out=worker.workspace("weight product", self._weight.shape[1:], self._weight.dtype),
            )
        else:
            multiply(left, right, out=self._weight[group])

    def add_bias(self, block, gradient):
        if self._bias is not None:
            group, place = divmod(block.start, self._cut.group)
            sums = bias_gradient(gradient)
            self._bias[group] = self._bias[group] + sums if place else sums

    def total(self):
        """Add up the groups in order: returns the weight gradient and fills dbias."""
        if self._dbias is not None:
            self._dbias[...] = add_up(self._executor, self._bias)
        return add_up(self._executor, self._weight)


def add_up(executor, parts):
    """The sum of parts (n, ...) in order, in the place of the first."""
    flat = parts.reshape(len(parts), -1)

    def work(worker, start, stop):
        loops.add_up(flat, Unsigned(start), Unsigned(stop))
        worker.lap("convolution backward")

    if len(parts) > 1:
        executor.parallel(flat.shape[1], work, flat.size, piece=16)
    return parts[0]
