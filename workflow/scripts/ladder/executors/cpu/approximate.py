"""The cpu rung's convolutions with an approximate multiplier: as convolution.py, with
approximate_matmul instead of BLAS.

A dense layer is computed as a 1x1 convolution over (batch, 1, 1, inputs). Operands keep the order
of the definition: x times weight, dy times weight, dy times x. A direction with exact
multiplication has no `multiplier` attribute and uses BLAS. So do the formats of `precision`, of
which float32 holds every product of two rounded operands exactly.
"""

import functools
import itertools

import numpy as np

from ladder.arithmetic import approximate_matmul as approximate
from ladder.executors.cpu import blocks, loops
from ladder.executors.cpu.convolution import BLOCK_PIXELS, windows_of

NARROW = 17  # columns
# rows, or columns, of 3x3 taps in each of the four of the phase weights
SUMMED_TAPS = (2,), (1, 2), (0, 1), (0,)
# of both operands, by multiplier
ROUNDING = {
    "tf32": approximate.round_to_tf32,
    "bfloat16": approximate.round_to_bfloat16,
    "float16": approximate.round_to_float16,
}


def approximate_conv2d_forward(executor, x, weight, bias, y, stride, padding, multiplier=None):
    windows = windows_of(x.shape, weight.shape, stride, padding)
    matrix = _taken(executor, "weight", windows.taken(executor, weight), multiplier)
    factor, cut = _factor(matrix.T, multiplier), windows.cut(len(weight))

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            out = y[block].reshape(-1, len(weight))
            _product(
                windows.gather(worker, _taken(worker, "x", x[block], multiplier)),
                factor,
                multiplier,
                out,
            )
            out += bias
            worker.lap("convolution forward")

    executor.parallel(len(x), work, windows.work * len(weight), piece=cut.size)


def approximate_conv2d_input_grad(executor, dy, weight, dx, stride, padding, multiplier=None):
    windows = windows_of(dx.shape, weight.shape, stride, padding)
    matrix = _taken(executor, "weight", windows.taken(executor, weight), multiplier)
    factor, channels, cut = _factor(matrix, multiplier), dx.shape[3], windows.cut(len(weight))

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            gradient = _taken(worker, "dy", dy[block], multiplier)
            columns = worker.workspace(
                "windows",
                (*gradient.shape[:3], windows.size[0], windows.size[1] * channels),
                dx.dtype,
            )
            _product(
                gradient.reshape(-1, len(weight)),
                factor,
                multiplier,
                columns.reshape(-1, windows.width),
            )
            images = dx[block]
            loops.col2im(
                columns,
                images.reshape(*images.shape[:2], -1),
                channels,
                *windows.begin,
                windows.stride,
            )
            worker.lap("convolution backward")

    executor.parallel(len(dx), work, windows.work * len(weight), piece=cut.size)


def approximate_conv2d_weight_grad(
    executor, x, dy, dweight, dbias, stride, padding, multiplier=None
):
    windows = windows_of(x.shape, dweight.shape, stride, padding)
    filters = len(dweight)
    cut = windows.cut(filters)
    sums = blocks.Sums(executor, cut, (filters, windows.width), dbias, x.dtype)

    def multiply(left, right, out):
        return _product(left, right, multiplier, out)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            gradient = dy[block]
            left, seen = (
                _taken(worker, name, part, multiplier)
                for name, part in (("dy", gradient), ("x", x[block]))
            )
            sums.add(
                worker, block, left.reshape(-1, filters).T, windows.gather(worker, seen), multiply
            )
            sums.add_bias(block, gradient)
            worker.lap("convolution backward")

    executor.parallel(len(x), work, windows.work * filters, piece=cut.group)
    windows.gradient(executor, dweight, sums.total())


def decompose_taps(executor, weight, phase_weights):
    """phase_weights[c, t, s, o] = the sum of the 3x3 taps that (t, s) of the transposed convolution
    with stride 2 replaces.

    The first column's taps are added first, as on every rung: the sums are rounded.
    """
    for (t, rows), (s, columns) in itertools.product(
        enumerate(SUMMED_TAPS), enumerate(SUMMED_TAPS)
    ):
        of_columns = [
            functools.reduce(np.add, (weight[:, row, column] for row in rows)) for column in columns
        ]
        phase_weights[:, t, s] = functools.reduce(np.add, of_columns).T


def phase_conv2d_forward(executor, x, phase_weights, bias, y, multiplier=None):
    matrix = _taken(executor, "weight", phase_weights, multiplier).reshape(len(phase_weights), -1)
    (_, height, width, channels), filters = x.shape, len(bias)
    cut = _cut_of_phases(x, filters)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            pixels = _taken(worker, "x", x[block], multiplier).reshape(-1, channels)
            taps = worker.workspace("taps", (len(pixels), matrix.shape[1]), y.dtype)
            np.matmul(pixels, matrix, out=taps)
            loops.add_taps(taps.reshape(-1, height, width, 4, 4, filters), y[block])
            y[block] += bias
            worker.lap("convolution forward")

    executor.parallel(len(x), work, cut.cost, piece=cut.size)


def phase_conv2d_input_grad(executor, dy, phase_weights, zeros, dx, multiplier=None):
    """zeros: no use here; a GPU adds them as the bias of a convolution."""
    windows = windows_of(dy.shape, phase_weights.shape, 2, 1, every_tap=True)
    matrix = _taken(executor, "weight", phase_weights, multiplier).reshape(len(phase_weights), -1)
    cut = _cut_of_phases(dx, phase_weights.shape[3])

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            seen = windows.gather(worker, _taken(worker, "dy", dy[block], multiplier))
            np.matmul(seen, matrix.T, out=dx[block].reshape(-1, len(phase_weights)))
            worker.lap("convolution backward")

    executor.parallel(len(dx), work, cut.cost, piece=cut.size)


def phase_conv2d_weight_grad(executor, x, dy, dweight, dbias, multiplier=None):
    channels, filters = x.shape[3], len(dbias)
    shape = channels, 4, 4, filters
    windows = windows_of(dy.shape, shape, 2, 1, every_tap=True)
    cut = _cut_of_phases(x, filters)
    sums = blocks.Sums(executor, cut, (channels, 16 * filters), dbias, x.dtype)

    def work(worker, start, stop):
        for block in cut.blocks(start, stop):
            pixels = _taken(worker, "x", x[block], multiplier).reshape(-1, channels)
            sums.add(
                worker,
                block,
                pixels.T,
                windows.gather(worker, _taken(worker, "dy", dy[block], multiplier)),
            )
            sums.add_bias(block, dy[block])
            worker.lap("convolution backward")

    executor.parallel(len(x), work, cut.cost, piece=cut.group)
    dphase_weights = sums.total().reshape(shape)
    dweight[...] = 0
    for (t, rows), (s, columns) in itertools.product(
        enumerate(SUMMED_TAPS), enumerate(SUMMED_TAPS)
    ):
        for row, column in itertools.product(rows, columns):
            dweight[:, row, column] += dphase_weights[:, t, s].T


def _cut_of_phases(small, filters):
    """The blocks.Cut of the images before the upsampling."""
    _, height, width, _ = small.shape
    return blocks.cut(len(small), 4 * height * width, BLOCK_PIXELS, 16 * filters * small.size)


OPERATIONS = (
    approximate_conv2d_forward,
    approximate_conv2d_input_grad,
    approximate_conv2d_weight_grad,
    decompose_taps,
    phase_conv2d_forward,
    phase_conv2d_input_grad,
    phase_conv2d_weight_grad,
)


def _taken(worker, name, values, multiplier):
    """`values` as the products take them: under a multiplier that only rounds its operands, their
    rounded copy in a workspace of this name.
    """
    rounding = multiplier and ROUNDING.get(multiplier.name)
    if not rounding:
        return values
    rounded = worker.workspace(f"rounded {name}", values.shape, values.dtype)
    rounding(values.reshape(-1), rounded.reshape(-1))
    return rounded


def _by_blas(multiplier):
    return multiplier is None or multiplier.name in ROUNDING


def _factor(matrix, multiplier):
    """The right factor, packed once for all threads; with few columns approximate.product
    transposes the product instead.
    """
    return (
        matrix
        if _by_blas(multiplier) or matrix.shape[1] < NARROW
        else approximate.pack(matrix, multiplier)
    )


def _product(a, b, multiplier, out=None):
    return (
        np.matmul(a, b, out=out)
        if _by_blas(multiplier)
        else approximate.product(a, b, multiplier, out)
    )
