"""The cpu rung's convolutions: matrix products over the windows of images.

A dense layer is computed as a 1x1 convolution over (batch, 1, 1, inputs).
"""

import functools
import math

import numpy as np

from ladder.executors.cpu import blocks, layers, loops, products
from ladder.executors.cpu.loops import Unsigned

# Least output pixels per block, and least size of its im2col matrix: large enough for BLAS to run
# at full speed, small enough for the cache.
BLOCK_PIXELS, BLOCK_NUMBERS = 1024, 2**17
# of an upsampled convolution with few filters: Python takes as long as a smaller product
UPSAMPLED_PIXELS = 4096
# Up to this many windows, threads split the filters instead of the images: each reads all windows
# but only its own weights, of which there are more, and no sums over threads are needed.
FEW_WINDOWS = 512
FEW_ROWS = 64  # up to this many, BLAS is faster with the transposed product
FEW_CHANNELS = 4  # with fewer, a row of a window is too short to be copied by itself
MANY_WEIGHTS, CHUNK_NUMBERS = 2**13, 2**22
# per product of a code: its output stays in the cache until it is thresholded and pooled
CODE_FILTERS = 400


def conv2d_forward(
    executor, x, weight, y, stride, padding, relu, bias=None, index=None, image=None, contrast=None
):
    """y = convolution + bias, then a 2x2 max-pool if `index` (the position of each maximum) is
    given, then ReLU.

    With `image` and contrast, {kernel, epsilon}, y is divided by the image's local contrast while
    it is in the cache.
    """
    windows = windows_of(x.shape, weight.shape, stride, padding)
    matrix = windows.taken(executor, weight)
    if windows.count <= FEW_WINDOWS and index is None and image is None:
        seen = windows.of_all(executor, x, "convolution forward")
        return _forward_by_filter(executor, seen, matrix, y.reshape(windows.count, -1), bias, relu)

    cut, turned = windows.cut(len(weight)), np.ascontiguousarray(matrix.T)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            shape = block.stop - block.start, *windows.out, len(weight)
            out = y[block] if index is None else worker.workspace("convolved", shape, y.dtype)
            blocks.multiply(windows.gather(worker, x[block]), turned, out.reshape(-1, len(weight)))
            worker.lap("convolution forward")
            blocks.finish(
                worker, out, y[block], bias, relu, None if index is None else index[block]
            )
            if image is not None:
                for values, picture in zip(y[block], image[block], strict=True):
                    layers.divide_by_contrast(values, picture, values, **contrast)
                worker.lap(layers.NORMS)

    executor.parallel(len(x), work, cut.cost, piece=cut.size)


def conv2d_code_forward(
    executor, x, weight, y, stride, padding, threshold, pool, bias=None, image=None, contrast=None
):
    """y = convolution, divided by the local contrast of `image` if given, then soft threshold and
    average pooling.

    contrast: {kernel, epsilon}; pool: {window, stride, padding}.
    """
    windows = windows_of(x.shape, weight.shape, stride, padding)
    matrix, threshold, cut = (
        windows.taken(executor, weight),
        x.dtype.type(threshold),
        windows.cut(len(weight)),
    )
    even = np.ones(windows.out, x.dtype)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            seen = windows.gather(worker, x[block])
            factors = (
                [even] * (block.stop - block.start)
                if image is None
                else [layers.inverse_deviations(picture, **contrast) for picture in image[block]]
            )
            for part in blocks.slices(0, len(weight), CODE_FILTERS):
                out = worker.workspace(
                    "convolved", (len(factors), *windows.out, part.stop - part.start), y.dtype
                )
                flat = out.reshape(-1, out.shape[3])
                np.matmul(seen, matrix[part].T, out=flat)
                if bias is not None:
                    loops.add_bias(flat, Unsigned(0), Unsigned(out.shape[3]), bias[part], False)
                worker.lap("convolution forward")
                for convolved, factor, coded in zip(out, factors, y[block], strict=True):
                    loops.soft_threshold_avgpool(
                        convolved, factor, threshold, Unsigned(part.start), coded, **pool
                    )
                worker.lap("thresholds")

    executor.parallel(len(x), work, cut.cost, piece=cut.size)


def conv2d_backward(
    executor, x, weight, y, dy, dweight, stride, padding, relu, dbias=None, index=None, dx=None
):
    """dweight, and dbias and dx if given; y and `index` are outputs of the forward pass."""
    windows = windows_of(x.shape, weight.shape, stride, padding)
    gradient = blocks.Gradient(y, dy, relu, index, (*windows.out, len(weight)))
    to_pixels = None if dx is None else _ToPixels(executor, windows, weight, dx)
    by_filter = weight.size >= MANY_WEIGHTS and windows.work <= CHUNK_NUMBERS
    (_backward_by_filter if by_filter else _backward_by_image)(
        executor, windows, x, gradient, dweight, dbias, to_pixels
    )


def decompose_weight(executor, weight, phase_weights):
    """phase_weights[c, t, s, o] = sum of the 3x3 taps of filter o that (t, s) of the 4x4 transposed
    convolution replaces.
    """
    phase_weights[...] = np.einsum("tk,sl,oklc->ctso", *_taps(weight.dtype), weight, optimize=True)


def upsample_conv2d_forward(executor, x, phase_weights, bias, y, relu):
    """Nearest upsampling by 2, then a 3x3 convolution and optionally ReLU."""
    channels, filters = len(phase_weights), phase_weights.shape[3]
    height, width = x.shape[1:3]
    matrix = phase_weights.reshape(channels, -1)
    cut = blocks.cut(len(x), 4 * height * width, UPSAMPLED_PIXELS, x.size * matrix.shape[1])

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            pixels = x[block].reshape(1, -1, channels)
            taps = worker.workspace("taps", (1, pixels.shape[1], matrix.shape[1]), y.dtype)
            products.multiply(pixels, matrix[None], taps)
            loops.add_taps(taps.reshape(-1, height, width, 4, 4, filters), y[block])
            worker.lap("convolution forward")
            blocks.finish(worker, y[block], y[block], bias, relu, None)

    executor.parallel(len(x), work, cut.cost, piece=cut.size)


def upsample_conv2d_backward(executor, x, phase_weights, y, dy, dweight, dbias, relu, dx=None):
    channels, filters = len(phase_weights), phase_weights.shape[3]
    matrix = phase_weights.reshape(channels, -1)
    gradients = blocks.Gradient(y, dy, relu, None, dy.shape[1:])
    windows = windows_of(dy.shape, (channels, 4, 4, filters), 2, 1, every_tap=True)
    cut = blocks.cut(len(x), dy.shape[1] * dy.shape[2], UPSAMPLED_PIXELS, x.size * matrix.shape[1])
    sums = blocks.Sums(executor, cut, matrix.shape, dbias, x.dtype)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            gradient = gradients.of_block(worker, block)
            seen, pixels = windows.gather(worker, gradient), x[block].reshape(-1, channels)
            sums.add(worker, block, pixels.T, seen)
            sums.add_bias(block, gradient)
            if dx is not None:
                np.matmul(seen, matrix.T, out=dx[block].reshape(-1, channels))
            worker.lap("convolution backward")

    executor.parallel(len(x), work, cut.cost, piece=cut.group)
    dphase_weights = sums.total().reshape(phase_weights.shape)
    dweight[...] = np.einsum("tk,sl,ctso->oklc", *_taps(x.dtype), dphase_weights, optimize=True)


OPERATIONS = (
    conv2d_forward,
    conv2d_code_forward,
    conv2d_backward,
    decompose_weight,
    upsample_conv2d_forward,
    upsample_conv2d_backward,
)


class _Windows:
    """The geometry of a convolution's windows.

    Unless `every_tap`, taps that lie in the padding of every window are left out: eight of nine for
    a 3x3 filter over a pixel. begin: (row, column) of the first window; taps: slice of the
    remaining taps, per axis; count: number of windows; work: multiplications per filter.
    """

    def __init__(self, shape, weight_shape, stride, padding, every_tap):
        kernel = weight_shape[1]
        self.stride, self.images, self.pixels = stride, shape[0], shape[1:3]
        self.out = tuple((size + 2 * padding - kernel) // stride + 1 for size in self.pixels)
        self.taps = tuple(
            slice(0, kernel) if every_tap else _taps_over(size, windows, kernel, stride, padding)
            for size, windows in zip(self.pixels, self.out, strict=True)
        )
        self.size = tuple(taps.stop - taps.start for taps in self.taps)
        self.begin = tuple(taps.start - padding for taps in self.taps)
        self.complete = self.size == (kernel, kernel)
        self.count = shape[0] * math.prod(self.out)
        self.width = math.prod(self.size) * shape[3]
        self.work = self.count * self.width
        self.are_pixels = (self.size, self.begin, stride, self.out) == (
            (1, 1),
            (0, 0),
            1,
            self.pixels,
        )
        # column by column in memory
        self.are_turned = not self.are_pixels and stride == 1 and shape[3] < FEW_CHANNELS

    def cut(self, filters):
        """The blocks.Cut of the images for a product with this many filters."""
        pixels = max(BLOCK_PIXELS, BLOCK_NUMBERS // self.width)
        return blocks.cut(self.images, math.prod(self.out), pixels, self.work * filters)

    def taken(self, executor, weight):
        """The weights of the remaining taps as a matrix, one row per filter; valid until the next
        call.
        """
        if self.complete and weight.flags.c_contiguous:
            return weight.reshape(len(weight), -1)
        matrix = executor.workspace("taken", (len(weight), self.width), weight.dtype)
        taps = matrix.reshape(len(weight), *self.size, -1)

        def work(worker, start, stop):
            taps[start:stop] = weight[start:stop, *self.taps]

        executor.parallel(len(weight), work, matrix.size)
        return matrix

    def gather(self, worker, x, out=None):
        """The windows of x as a matrix (im2col): one row per window in NHW order, columns (row,
        column, channel).
        """
        images, _, _, channels = x.shape
        if self.are_pixels:
            return x.reshape(-1, channels)
        span = tuple(
            (windows - 1) * self.stride + size
            for windows, size in zip(self.out, self.size, strict=True)
        )
        frame = blocks.framed(worker, x, self.begin, span)
        if out is None and self.are_turned:
            turned = worker.workspace("windows", (*self.size, channels, images, *self.out), x.dtype)
            loops.turned_windows(frame, turned)
            return turned.reshape(self.width, -1).T
        # a window's row is contiguous
        shape = images, *self.out, self.size[0], self.size[1] * channels
        out = worker.workspace("windows", shape, x.dtype) if out is None else out.reshape(shape)
        along_n, along_h, along_w, along_c = frame.strides
        out[...] = np.lib.stride_tricks.as_strided(
            frame,
            shape,
            (along_n, self.stride * along_h, self.stride * along_w, along_h, along_c),
            writeable=False,
        )
        return out.reshape(-1, self.width)

    def of_all(self, executor, x, label):
        """As `gather`, of all images, on all threads; label: category of the time spent."""
        if self.are_pixels:
            return x.reshape(self.count, -1)
        seen, each = (
            executor.workspace("windows", (self.count, self.width), x.dtype),
            math.prod(self.out),
        )

        def work(worker, start, stop):
            self.gather(worker, x[start:stop], seen[start * each : stop * each])
            worker.lap(label)

        executor.parallel(len(x), work, self.work)
        return seen

    def gradient(self, executor, dweight, sums):
        """dweight = the matrix `sums` for the remaining taps, zero for the others."""
        taps = sums.reshape(len(dweight), *self.size, -1)

        def work(worker, start, stop):
            if not self.complete:
                dweight[start:stop] = 0
            dweight[start:stop, *self.taps] = taps[start:stop]

        executor.parallel(len(dweight), work, dweight.size)


class _ToPixels:
    """Input gradient of a convolution from the gradient of its output."""

    def __init__(self, executor, windows, weight, dx):
        self.windows, self.dx = windows, dx
        filters, channels = len(weight), weight.shape[3]
        kernel, padding = weight.shape[1], windows.taps[0].start - windows.begin[0]
        per_image, out = math.prod(windows.pixels), math.prod(windows.out)
        # For few windows, the turned weights would take longer to copy than the product takes.
        self.gathers = (
            not windows.are_pixels
            and windows.stride == 1
            and padding < kernel
            and per_image * filters <= 2 * out * channels
            and windows.count > FEW_WINDOWS
        )
        if self.gathers:  # a convolution of dy with the filters rotated by 180 degrees
            turned = weight[:, ::-1, ::-1].transpose(3, 1, 2, 0)
            self.seen = windows_of(
                (len(dx), *windows.out, filters), turned.shape, 1, kernel - 1 - padding
            )
            self.matrix = self.seen.taken(executor, turned)
        else:
            self.matrix = windows.taken(executor, weight)

    def compute(self, worker, gradient, block):
        """dx of a block of images."""
        dx, filters = self.dx[block], gradient.shape[-1]
        pixels = dx.reshape(-1, dx.shape[3])
        if self.gathers:
            np.matmul(self.seen.gather(worker, gradient), self.matrix.T, out=pixels)
        elif self.windows.are_pixels:
            np.matmul(gradient.reshape(-1, filters), self.matrix, out=pixels)
        else:
            columns = worker.workspace(
                "windows", (len(dx), *self.windows.out, self.windows.width), dx.dtype
            )
            blocks.multiply(
                gradient.reshape(-1, filters), self.matrix, columns.reshape(-1, self.windows.width)
            )
            self._add_up(columns, dx)

    def of_all(self, executor, gradient):
        """dx of all images, without the other convolution; the threads share the weights."""
        windows, dx = self.windows, self.dx
        flat = gradient.reshape(windows.count, -1)
        if windows.are_pixels:
            return _multiply(executor, flat, self.matrix, dx.reshape(windows.count, -1))
        columns = executor.workspace("columns", (len(dx), *windows.out, windows.width), dx.dtype)
        _multiply(executor, flat, self.matrix, columns.reshape(windows.count, -1))

        def work(worker, start, stop):
            self._add_up(columns[start:stop], dx[start:stop])
            worker.lap("convolution backward")

        executor.parallel(len(dx), work, columns.size)

    def _add_up(self, columns, dx):
        windows, channels = self.windows, dx.shape[3]
        loops.col2im(
            columns.reshape(*columns.shape[:3], windows.size[0], -1),
            dx.reshape(*dx.shape[:2], -1),
            channels,
            *windows.begin,
            windows.stride,
        )


@functools.cache
def windows_of(shape, weight_shape, stride, padding, every_tap=False):
    return _Windows(shape, weight_shape, stride, padding, every_tap)


def _taps_over(size, windows, kernel, stride, padding):
    """Slice from the first to the last tap, along one axis, that lies inside the image in any
    window.
    """
    over = [
        tap
        for tap in range(kernel)
        if any(0 <= window * stride + tap - padding < size for window in range(windows))
    ]
    return slice(over[0], over[-1] + 1) if over else slice(0, kernel)


def _forward_by_filter(executor, x, matrix, y, bias, relu):
    """y = x matrix^T, then bias and ReLU, for few rows: each thread computes some of the
    columns.
    """
    size = blocks.columns_per_piece(len(matrix), x.size * len(matrix))

    def work(worker, start, stop):
        for part in blocks.slices(start, stop, size):
            if len(x) <= FEW_ROWS:
                turned = worker.workspace("turned", (part.stop - part.start, len(x)), y.dtype)
                y[:, part] = np.matmul(matrix[part], x.T, out=turned).T
            else:
                np.matmul(x, matrix[part].T, out=y[:, part])
        if bias is not None or relu:
            loops.add_bias(y, Unsigned(start), Unsigned(stop), blocks.or_zeros(bias, y), relu)
        worker.lap("convolution forward")

    executor.parallel(len(matrix), work, blocks.cost(x.size * len(matrix)), piece=size)


def _backward_by_image(executor, windows, x, gradient, dweight, dbias, to_pixels):
    """Each thread sums the weight gradient over groups of images."""
    filters = len(dweight)
    cut = windows.cut(filters)
    # BLAS is twice as fast if the many pixels of turned windows, which it sums over, are contiguous
    # in the left factor.
    shape = (windows.width, filters) if windows.are_turned else (filters, windows.width)
    sums = blocks.Sums(executor, cut, shape, dbias, x.dtype)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            dy = gradient.of_block(worker, block)
            flat, seen = dy.reshape(-1, filters), windows.gather(worker, x[block])
            sums.add(worker, block, *((seen.T, flat) if windows.are_turned else (flat.T, seen)))
            sums.add_bias(block, gradient.for_bias(worker, block, dy))
            if to_pixels is not None:
                to_pixels.compute(worker, dy, block)
            worker.lap("convolution backward")

    executor.parallel(len(x), work, cut.cost, piece=cut.group)
    total = sums.total()
    windows.gradient(executor, dweight, total.T if windows.are_turned else total)


def _backward_by_filter(executor, windows, x, gradient, dweight, dbias, to_pixels):
    """Each thread computes a part of the gradient, over all images."""
    filters = len(dweight)
    dy, seen = gradient.whole(executor), windows.of_all(executor, x, "convolution backward")
    flat = dy.reshape(-1, filters)
    sums = dweight.reshape(filters, -1)
    if not windows.complete:
        sums = executor.workspace("weight gradient", (filters, windows.width), x.dtype)

    def prepare(worker, start, stop):
        gradient.of_block(worker, slice(start, stop), dy[start:stop])

    def add_bias(worker, start, stop):
        loops.column_sums(flat, Unsigned(start), Unsigned(stop), dbias)
        worker.lap("convolution backward")

    if not gradient.given:
        executor.parallel(len(x), prepare, dy.size)
    _multiply(executor, flat.T, seen, sums)
    if dbias is not None:
        executor.parallel(filters, add_bias, flat.size, piece=16)
    if not windows.complete:
        windows.gradient(executor, dweight, sums)
    if to_pixels is not None:
        _to_pixels(executor, windows, dy, to_pixels)


def _to_pixels(executor, windows, dy, to_pixels):
    if windows.count <= FEW_WINDOWS:
        return to_pixels.of_all(executor, dy)
    cut = windows.cut(dy.shape[3])

    def images(worker, start, stop):
        for block in cut.blocks(start, stop):
            to_pixels.compute(worker, dy[block], block)
        worker.lap("convolution backward")

    executor.parallel(len(dy), images, cut.cost, piece=cut.size)


def _multiply(executor, left, right, out):
    """out = left right, in the backward pass; each thread computes some of the rows or columns,
    whichever are more.
    """
    if len(out) > out.shape[1]:
        return _multiply(executor, right.T, left.T, out.T)
    work = left.size * out.shape[1]
    size = blocks.columns_per_piece(out.shape[1], work)

    def multiply(worker, start, stop):
        for part in blocks.slices(start, stop, size):
            np.matmul(left, right[:, part], out=out[:, part])
        worker.lap("convolution backward")

    executor.parallel(out.shape[1], multiply, blocks.cost(work), piece=size)


def _taps(dtype):
    """0/1 matrix: which 3x3 taps (columns) each of the four taps of the transposed form (rows)
    sums; the same for both axes.
    """
    taps = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], dtype)
    return taps, taps
