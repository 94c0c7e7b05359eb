"""The cpu rung's convolutions: a matrix product over the windows of a block of images that fits the cache.

A dense layer is the 1x1 convolution over (batch, 1, 1, inputs) that it is.
"""

import numpy as np

from .numpy_pooling import maxpool_2x2, scatter_2x2

# Output pixels per block: large enough for BLAS to run at full speed, small enough for the level-2 cache.
BLOCK_PIXELS = 1024


def conv2d_forward(executor, x, weight, bias, y, stride, padding, relu, index=None):
    """With `index` (the place of each maximum) a 2x2 max-pool follows the convolution."""
    pooled = index is not None
    filters, kernel = weight.shape[:2]
    matrix = weight.reshape(filters, -1).T

    def work(worker, start, stop):
        for block in _blocks(start, stop, _output_pixels(x, kernel, stride, padding)):
            columns, shape = _im2col(worker, x[block], kernel, stride, padding)
            out = worker.workspace("convolved", (*shape, filters), y.dtype) if pooled else y[block]
            np.matmul(columns, matrix, out=out.reshape(-1, filters))
            out += bias
            worker.lap("convolution forward")
            if pooled:
                maxpool_2x2(worker, out, y[block], index[block])
                worker.lap("pooling")
            if relu:   # after the pooling, on a quarter of the values: the maximum of ReLUs is the ReLU of the maximum
                np.maximum(y[block], 0, out=y[block])
                worker.lap("ReLU")

    executor.parallel(len(x), work)


def conv2d_backward(executor, x, weight, y, dy, dweight, dbias, stride, padding, relu, index=None, dx=None):
    filters, kernel, _, channels = weight.shape
    gathers = stride == 1 and padding < kernel
    # Then the input gradient is a convolution of dy with the filters turned by 180 degrees.
    turned = np.ascontiguousarray(weight[:, ::-1, ::-1].transpose(1, 2, 0, 3)).reshape(-1, channels)

    def work(worker, start, stop):
        sums = _Sums(worker, dweight.reshape(filters, -1).shape, dbias.shape, weight.dtype)
        for block in _blocks(start, stop, _output_pixels(x, kernel, stride, padding)):
            gradient = _through_relu(worker, y[block], dy[block]) if relu else dy[block]
            if index is not None:
                shape = _output_shape(x[block], kernel, stride, padding)
                gradient = _unpool(worker, gradient, index[block], (*shape, filters))
            columns, _ = _im2col(worker, x[block], kernel, stride, padding)
            sums.add(gradient.reshape(-1, filters), columns, gradient.reshape(-1, filters))
            if dx is not None and gathers:
                columns, _ = _im2col(worker, gradient, kernel, 1, kernel - 1 - padding)
                np.matmul(columns, turned, out=dx[block].reshape(-1, channels))
            elif dx is not None:
                _col2im(worker, gradient, weight, dx[block], stride, padding)
            worker.lap("convolution backward")
        return sums.totals()

    _add_in_order(executor.parallel(len(x), work), dweight, dbias)


def collapse_weight(executor, weight, collapsed):
    """collapsed[c, t, s, o] = the sum of the 3x3 taps of filter o that tap (t, s) of the 4x4 transposed form stands for."""
    collapsed[...] = np.einsum("tk,sl,oklc->ctso", *_taps(weight.dtype), weight, optimize=True)


def upsample_conv2d_forward(executor, x, collapsed, bias, y, relu):
    channels, filters = len(collapsed), collapsed.shape[3]
    height, width = x.shape[1:3]
    matrix = collapsed.reshape(channels, -1)
    narrow = filters < 16   # then keep each tap's plane together: rows of 3 numbers are too short to add one by one

    def work(worker, start, stop):
        for block in _blocks(start, stop, 4 * height * width):
            pixels, images = x[block].reshape(-1, channels), len(x[block])
            if narrow:
                taps = worker.workspace("taps", (matrix.shape[1], len(pixels)), y.dtype)
                np.matmul(matrix.T, pixels.T, out=taps)
                taps = taps.reshape(4, 4, filters, images, height, width).transpose(3, 4, 5, 0, 1, 2)
                out = worker.workspace("phases", (2, 2, filters, images, height, width), y.dtype).transpose(3, 4, 0, 5, 1, 2)
            else:
                taps = worker.workspace("taps", (len(pixels), matrix.shape[1]), y.dtype)
                np.matmul(pixels, matrix, out=taps)
                taps = taps.reshape(images, height, width, 4, 4, filters)
                out = y[block].reshape(images, height, 2, width, 2, filters)
            _add_taps(taps, out)
            out += bias
            if narrow:
                y[block].reshape(out.shape)[...] = out
            worker.lap("convolution forward")
            if relu:
                np.maximum(y[block], 0, out=y[block])
                worker.lap("ReLU")

    executor.parallel(len(x), work)


def upsample_conv2d_backward(executor, x, collapsed, y, dy, dweight, dbias, relu, dx=None):
    channels, filters = len(collapsed), collapsed.shape[3]
    matrix = collapsed.reshape(channels, -1)

    def work(worker, start, stop):
        sums = _Sums(worker, matrix.shape, dbias.shape, x.dtype)
        for block in _blocks(start, stop, dy.shape[1] * dy.shape[2]):
            gradient = _through_relu(worker, y[block], dy[block]) if relu else dy[block]
            windows = _im2col(worker, gradient, 4, 2, 1)[0]
            pixels = x[block].reshape(-1, channels)
            sums.add(pixels, windows, gradient.reshape(-1, filters))
            if dx is not None:
                np.matmul(windows, matrix.T, out=dx[block].reshape(-1, channels))
            worker.lap("convolution backward")
        return sums.totals()

    dcollapsed = np.empty_like(collapsed)
    _add_in_order(executor.parallel(len(x), work), dcollapsed, dbias)
    dweight[...] = np.einsum("tk,sl,ctso->oklc", *_taps(x.dtype), dcollapsed, optimize=True)


OPERATIONS = (conv2d_forward, conv2d_backward, collapse_weight, upsample_conv2d_forward, upsample_conv2d_backward)


class _Sums:
    """A thread's share of a weight and a bias gradient, added up block by block."""

    def __init__(self, worker, weight_shape, bias_shape, dtype):
        self.weight = worker.workspace("weight sum", weight_shape, dtype)
        self.bias = worker.workspace("bias sum", bias_shape, dtype)
        self._product = worker.workspace("weight product", weight_shape, dtype)
        self._empty = True

    def add(self, left, right, gradient):
        """Add left^T right to the weight's sum and the column sums of `gradient` to the bias's."""
        if self._empty:
            np.matmul(left.T, right, out=self.weight)
            np.sum(gradient, axis=0, out=self.bias)
            self._empty = False
        else:
            self.weight += np.matmul(left.T, right, out=self._product)
            self.bias += gradient.sum(axis=0)

    def totals(self):
        return self.weight, self.bias


def _add_in_order(totals, dweight, dbias):
    dweight.reshape(totals[0][0].shape)[...] = totals[0][0]
    dbias[...] = totals[0][1]
    for weight, bias in totals[1:]:
        dweight.reshape(weight.shape)[...] += weight
        dbias += bias


def _blocks(start, stop, pixels):
    size = max(1, BLOCK_PIXELS // pixels)
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def _output_shape(x, kernel, stride, padding):
    return len(x), *((size + 2 * padding - kernel) // stride + 1 for size in x.shape[1:3])


def _output_pixels(x, kernel, stride, padding):
    _, height, width = _output_shape(x, kernel, stride, padding)
    return height * width


def _im2col(worker, x, kernel, stride, padding):
    """The windows of x as a matrix, a row per window in NHW order, columns (row, column, channel); and (N, H, W)."""
    images, height, width, channels = x.shape
    padded = worker.workspace("padded", (images, height + 2 * padding, width + 2 * padding, channels), x.dtype)
    if padding:
        padded[:, :padding] = padded[:, -padding:] = 0
        padded[:, :, :padding] = padded[:, :, -padding:] = 0
    padded[:, padding:padding + height, padding:padding + width] = x
    shape = _output_shape(x, kernel, stride, padding)
    columns = worker.workspace("columns", (*shape, kernel, kernel * channels), x.dtype)
    along_n, along_h, along_w, along_c = padded.strides
    columns[...] = np.lib.stride_tricks.as_strided(   # a window's row is one run of kernel * channels numbers
        padded, columns.shape, (along_n, stride * along_h, stride * along_w, along_h, along_c), writeable=False)
    return columns.reshape(-1, kernel * kernel * channels), shape


def _col2im(worker, dy, weight, dx, stride, padding):
    """dx = the input gradient, each product of dy and the filters added where its window's pixel lies."""
    filters, kernel, _, channels = weight.shape
    images, height, width, _ = dy.shape
    columns = worker.workspace("columns", (images, height, width, kernel, kernel, channels), dy.dtype)
    np.matmul(dy.reshape(-1, filters), weight.reshape(filters, -1), out=columns.reshape(-1, kernel * kernel * channels))
    padded = worker.workspace("padded", (images, dx.shape[1] + 2 * padding, dx.shape[2] + 2 * padding, channels), dy.dtype)
    padded[...] = 0
    for i in range(kernel):
        for j in range(kernel):
            padded[:, i:i + stride * height:stride, j:j + stride * width:stride][:, :height, :width] += columns[..., i, j, :]
    dx[...] = padded[:, padding:padding + dx.shape[1], padding:padding + dx.shape[2]]


def _through_relu(worker, y, dy):
    out = worker.workspace("through relu", dy.shape, dy.dtype)
    np.multiply(dy, y > 0, out=out)
    worker.lap("ReLU")
    return out


def _unpool(worker, dy, index, shape):
    out = worker.workspace("unpooled", shape, dy.dtype)
    scatter_2x2(dy, index, out)
    worker.lap("pooling")
    return out


def _taps(dtype):
    """Which 3x3 taps (columns) each of the four taps of the transposed form (rows) adds up; for both directions."""
    taps = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], dtype)
    return taps, taps


# Output pixel 2i + phase takes tap t of input pixel i + shift: phase -> ((t, shift), ...).
_PHASES = (((1, 0), (3, -1)), ((2, 0), (0, 1)))


def _add_taps(taps, out):
    """Sum the contributions taps (N, H, W, 4, 4, O) of input pixels into the pixels out (N, H, 2, W, 2, O) around them."""
    height, width = taps.shape[1:3]
    for row_phase in (0, 1):
        for column_phase in (0, 1):
            target = out[:, :, row_phase, :, column_phase]
            for row_tap, row_shift in _PHASES[row_phase]:
                for column_tap, column_shift in _PHASES[column_phase]:
                    to_rows, from_rows = _overlap(height, row_shift)
                    to_columns, from_columns = _overlap(width, column_shift)
                    source = taps[:, from_rows, from_columns, row_tap, column_tap]
                    if row_shift == column_shift == 0:
                        target[...] = source
                    else:
                        target[:, to_rows, to_columns] += source


def _overlap(length, shift):
    """Slices (to, from) of positions i and i + shift that both lie in range(length)."""
    return slice(max(0, -shift), length - max(0, shift)), slice(max(0, shift), length + min(0, shift))
