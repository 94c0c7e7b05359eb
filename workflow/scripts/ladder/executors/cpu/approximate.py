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
    factor = _factor(windows.taken(weight).T, multiplier)

    def work(worker, start, stop):
        for block in windows.blocks(start, stop):
            out = y[block].reshape(-1, len(weight))
            _product(windows.of(worker, x[block]), factor, multiplier, out)
            out += bias
            worker.lap("convolution forward")

    executor.parallel(len(x), work, windows.work * len(weight))


def approximate_conv2d_input_grad(executor, dy, weight, dx, stride, padding, multiplier=None):
    windows = windows_of(dx.shape, weight.shape, stride, padding)
    factor, channels = _factor(windows.taken(weight), multiplier), dx.shape[3]

    def work(worker, start, stop):
        for block in windows.blocks(start, stop):
            gradient = dy[block]
            columns = worker.workspace("windows", (*gradient.shape[:3], windows.size[0], windows.size[1] * channels), dx.dtype)
            _product(gradient.reshape(-1, len(weight)), factor, multiplier, columns.reshape(-1, windows.width))
            images = dx[block]
            loops.col2im(columns, images.reshape(*images.shape[:2], -1), channels, *windows.begin, windows.stride)
            worker.lap("convolution backward")

    executor.parallel(len(dx), work, windows.work * len(weight))


def approximate_conv2d_weight_grad(executor, x, dy, dweight, dbias, stride, padding, multiplier=None):
    windows = windows_of(x.shape, dweight.shape, stride, padding)
    filters = len(dweight)

    def work(worker, start, stop):
        total = np.zeros((filters, windows.width), x.dtype), np.zeros_like(dbias)
        for block in windows.blocks(start, stop):
            gradient = dy[block]
            total[0][...] += _product(gradient.reshape(-1, filters).T, windows.of(worker, x[block]), multiplier)
            total[1][...] += blocks.bias_gradient(gradient)
            worker.lap("convolution backward")
        return total

    shares = executor.parallel(len(x), work, windows.work * filters)
    windows.gradient(dweight, sum(weights for weights, _ in shares))
    dbias[...] = sum(biases for _, biases in shares)


OPERATIONS = (approximate_conv2d_forward, approximate_conv2d_input_grad, approximate_conv2d_weight_grad)


def _factor(matrix, multiplier):
    """The right factor, packed once for all threads; with few columns approximate.product transposes the product instead."""
    return matrix if multiplier is None or matrix.shape[1] < NARROW else approximate.pack(matrix, multiplier)


def _product(a, b, multiplier, out=None):
    return np.matmul(a, b, out=out) if multiplier is None else approximate.product(a, b, multiplier, out)
