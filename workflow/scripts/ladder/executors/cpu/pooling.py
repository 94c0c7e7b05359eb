"""The cpu rung's pooling and upsampling. `index` holds the position of each maximum in its window,
in row-major order.
"""

import itertools

import numpy as np

from ladder.executors.cpu import loops


def maxpool2d_forward(executor, x, y, index, window, stride, padding):
    def pool(x, y, index):
        if (window, stride, padding) == (2, 2, 0):
            loops.maxpool_2x2(x, np.zeros(x.shape[3], x.dtype), y, index, False)
        else:
            loops.maxpool(x, y, index, window, stride, padding)

    executor.share(LABEL, window * window * y.size, pool, x, y, index)


def maxpool2d_backward(executor, dy, index, dx, window, stride, padding):
    def pass_back(dy, index, dx):
        if (window, stride, padding) == (2, 2, 0):
            loops.maxpool_2x2_gradient(dy, dy, index, dx, False)
        else:
            loops.maxpool_gradient(dy, index, dx, window, stride, padding)

    executor.share(LABEL, window * window * dy.size, pass_back, dy, index, dx)


def avgpool2d_forward(executor, x, y, window, stride, padding):
    def pool(x, y):
        y[...] = 0
        for pixels, places in _windows(x.shape, y.shape, window, stride, padding):
            y[places] += x[pixels]
        y *= 1 / window**2

    executor.share(LABEL, window * window * y.size, pool, x, y)


def avgpool2d_backward(executor, dy, dx, window, stride, padding):
    def spread(dy, dx):
        dx[...] = 0
        for pixels, places in _windows(dx.shape, dy.shape, window, stride, padding):
            dx[pixels] += dy[places]
        dx *= 1 / window**2

    executor.share(LABEL, window * window * dy.size, spread, dy, dx)


def global_avgpool_forward(executor, x, y):
    executor.share(
        LABEL,
        x.size,
        loops.global_avgpool,
        x.reshape(len(x), -1, x.shape[3]),
        y.reshape(len(y), -1),
    )


def global_avgpool_backward(executor, dy, dx):
    pixels = dx.shape[1] * dx.shape[2]
    executor.share(LABEL, dx.size, lambda dy, dx: np.copyto(dx, dy / pixels), dy, dx)


def upsample2d_forward(executor, x, y):
    def repeat(x, y):
        for corner in _corners(y):
            corner[...] = x

    executor.share("upsampling", y.size, repeat, x, y)


def upsample2d_backward(executor, dy, dx):
    def add_up(dy, dx):
        first, *others = _corners(dy)
        dx[...] = first
        for corner in others:
            dx += corner

    executor.share("upsampling", dy.size, add_up, dy, dx)


OPERATIONS = (
    maxpool2d_forward,
    maxpool2d_backward,
    avgpool2d_forward,
    avgpool2d_backward,
    global_avgpool_forward,
    global_avgpool_backward,
    upsample2d_forward,
    upsample2d_backward,
)

LABEL = "pooling"


def _corners(x):
    """The four (N, H//2, W//2, C) views of x, one per position in the 2x2 window, in row-major
    order.
    """
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return [x[:, row:height:2, column:width:2] for row in (0, 1) for column in (0, 1)]


def _windows(image, out, window, stride, padding):
    """For each position in the window, in row-major order: indices of the pixels at this position,
    and of their windows.
    """
    rows, columns = (
        [_range(image[axis], out[axis], offset - padding, stride) for offset in range(window)]
        for axis in (1, 2)
    )
    for (from_rows, to_rows), (from_columns, to_columns) in itertools.product(rows, columns):
        yield (slice(None), from_rows, from_columns), (slice(None), to_rows, to_columns)


def _range(size, windows, offset, stride):
    """Slices of the pixels offset + stride * window that lie in range(size), and of their
    windows.
    """
    first = max(0, -(offset // stride))  # rounded up
    last = max(first, min(windows, (size - 1 - offset) // stride + 1))
    start = offset + stride * first
    return slice(start, start + stride * (last - first), stride), slice(first, last)
