"""The cpu rung's convolutions with an approximate multiplier: as convolution.py, with approximate_matmul instead of BLAS.

A dense layer is computed as a 1x1 convolution over (batch, 1, 1, inputs). Operands keep the order of the definition: x times
weight, dy times weight, dy times x. A direction with exact multiplication has no `multiplier` attribute and uses BLAS.
"""

import numpy as np

from ladder.arithmetic import approximate_matmul as approximate
from ladder.executors.cpu import blocks, loops
from ladder.executors.cpu.convolution import windows_of

NARROW = 17   # columns


def approximate_conv2d_forward(executor, x, weight, bias, y, stride, padding, multiplier=None):
    windows = windows_of(x.shape, weight.shape, stride, padding)
    factor, cut = _factor(windows.taken(executor, weight).T, multiplier), windows.cut(len(weight))

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            out = y[block].reshape(-1, len(weight))
            _product(windows.of(worker, x[block]), factor, multiplier, out)
            out += bias
            worker.lap("convolution forward")

    executor.parallel(len(x), work, windows.work * len(weight), piece=cut.size)


def approximate_conv2d_input_grad(executor, dy, weight, dx, stride, padding, multiplier=None):
    windows = windows_of(dx.shape, weight.shape, stride, padding)
    factor, channels, cut = _factor(windows.taken(executor, weight), multiplier), dx.shape[3], windows.cut(len(weight))

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            gradient = dy[block]
            columns = worker.workspace("windows", (*gradient.shape[:3], windows.size[0], windows.size[1] * channels), dx.dtype)
            _product(gradient.reshape(-1, len(weight)), factor, multiplier, columns.reshape(-1, windows.width))
            images = dx[block]
            loops.col2im(columns, images.reshape(*images.shape[:2], -1), channels, *windows.begin, windows.stride)
            worker.lap("convolution backward")

    executor.parallel(len(dx), work, windows.work * len(weight), piece=cut.size)


def approximate_conv2d_weight_grad(executor, x, dy, dweight, dbias, stride, padding, multiplier=None):
    windows = windows_of(x.shape, dweight.shape, stride, padding)
    filters = len(dweight)
    cut = windows.cut(filters)
    sums = blocks.Sums(executor, cut, (filters, windows.width), dbias, x.dtype)

    def multiply(left, right, out):
        return _product(left, right, multiplier, out)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            gradient = dy[block]
            sums.add(worker, block, gradient.reshape(-1, filters).T, windows.of(worker, x[block]), multiply)
            sums.add_bias(block, gradient)
            worker.lap("convolution backward")

    executor.parallel(len(x), work, windows.work * filters, piece=cut.group)
    windows.gradient(executor, dweight, sums.total())


OPERATIONS = (approximate_conv2d_forward, approximate_conv2d_input_grad, approximate_conv2d_weight_grad)


def _factor(matrix, multiplier):
    """The right factor, packed once for all threads; with few columns approximate.product transposes the product instead."""
    return matrix if multiplier is None or matrix.shape[1] < NARROW else approximate.pack(matrix, multiplier)


def _product(a, b, multiplier, out=None):
    return np.matmul(a, b, out=out) if multiplier is None else approximate.product(a, b, multiplier, out)
