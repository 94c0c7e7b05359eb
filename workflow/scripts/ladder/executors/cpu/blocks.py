"""Helpers of the cpu rung's convolutions that work on one thread's block of images."""

import numpy as np

from ladder.executors.cpu import loops
from ladder.executors.cpu.loops import Unsigned


def framed(worker, x, begin, size):
    """`size` (height, width) pixels of x (N, H, W, C) starting at `begin` (row, column), with zeros outside the image."""
    height, width = x.shape[1:3]
    if begin == (0, 0) and size == (height, width):
        return x
    out = worker.workspace("framed", (len(x), *size, x.shape[3]), x.dtype)
    (top, bottom), (left, right) = (_seen(*axis) for axis in zip(begin, size, (height, width), strict=True))
    out[:, :top] = 0
    out[:, bottom:] = 0
    out[:, top:bottom, :left] = 0
    out[:, top:bottom, right:] = 0
    row, column = begin
    out[:, top:bottom, left:right] = x[:, row + top:row + bottom, column + left:column + right]
    return out


def _seen(begin, size, pixels):
    """(first, end) of the positions of a frame of this size that lie in the image."""
    first = min(size, max(0, -begin))
    return first, max(first, min(size, pixels - begin))


def finish(worker, out, y, bias, relu, index):
    """Apply bias, 2x2 max-pool (if there is an index) and ReLU to a convolution's product `out`; without pooling, out is y."""
    filters = y.shape[-1]
    if index is not None:
        loops.maxpool_2x2(out, or_zeros(bias, y), y, index, relu)
        worker.lap("pooling")
    elif bias is not None or relu:
        loops.add_bias(out.reshape(-1, filters), Unsigned(0), Unsigned(filters), or_zeros(bias, y), relu)
        worker.lap("convolution forward")


def or_zeros(bias, y):
    return np.zeros(y.shape[-1], y.dtype) if bias is None else bias


class Gradient:
    """The gradient of a convolution's output (height, width, filters) before the fused ReLU and pooling."""

    def __init__(self, y, dy, relu, index, shape):
        self.y, self.dy, self.relu, self.index, self.shape = y, dy, relu, index, shape

    @property
    def given(self):
        """True if no ReLU or pooling follows, so the gradient is dy unchanged."""
        return not self.relu and self.index is None

    def whole(self, executor):
        """An array for the gradient of all images; dy itself if `given`."""
        return self.dy if self.given else executor.workspace("gradient", (len(self.dy), *self.shape), self.dy.dtype)

    def of(self, worker, block, out=None):
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


def bias_gradient(gradient):
    """Sums of a gradient (..., filters) over all axes but the last."""
    filters = gradient.shape[-1]
    sums = np.empty(filters, gradient.dtype)
    loops.column_sums(gradient.reshape(-1, filters), Unsigned(0), Unsigned(filters), sums)
    return sums


class Sums:
    """A thread's partial weight and bias gradient, accumulated block by block."""

    def __init__(self, worker, shape, dbias, dtype):
        self.weight = worker.workspace("weight sum", shape, dtype)
        self._product = worker.workspace("weight product", shape, dtype)
        self.bias = None if dbias is None else np.zeros_like(dbias)
        self._empty = True

    def add(self, left, right):
        """Add left @ right to the weight gradient."""
        if self._empty:
            np.matmul(left, right, out=self.weight)
            self._empty = False
        else:
            self.weight += np.matmul(left, right, out=self._product)

    def add_bias(self, gradient):
        if self.bias is not None:
            self.bias += bias_gradient(gradient)


def total(threads, dbias):
    """Add up the threads' Sums in thread order: returns the weight gradient, in the first thread's array, and fills dbias."""
    first, *others = threads
    for other in others:
        first.weight += other.weight
        if dbias is not None:
            first.bias += other.bias
    if dbias is not None:
        dbias[...] = first.bias
    return first.weight
