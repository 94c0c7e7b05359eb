"""The cpu rung's pooling and upsampling. `index` holds the position of each maximum in its window, in row-major order."""

import numpy as np

from ladder.executors.cpu import loops


def maxpool2d_forward(executor, x, y, index, window, stride, padding):
    def work(worker, start, stop):
        own = x[start:stop], y[start:stop], index[start:stop]
        if (window, stride, padding) == (2, 2, 0):
            loops.maxpool_2x2(own[0], np.zeros(x.shape[3], x.dtype), *own[1:], False)
        else:
            loops.maxpool(*own, window, stride, padding)
        worker.lap("pooling")

    executor.parallel(len(x), work, window * window * y.size)


def maxpool2d_backward(executor, dy, index, dx, window, stride, padding):
    def work(worker, start, stop):
        own = dy[start:stop], index[start:stop], dx[start:stop]
        if (window, stride, padding) == (2, 2, 0):
            loops.maxpool_2x2_gradient(own[0], *own, False)
        else:
            loops.maxpool_gradient(*own, window, stride, padding)
        worker.lap("pooling")

    executor.parallel(len(dy), work, window * window * dy.size)


def avgpool2d_forward(executor, x, y, window, stride, padding):
    def work(worker, start, stop):
        share = slice(start, stop)
        y[share] = 0
        for of, to in _windows(x.shape, y.shape, window, stride, padding):
            y[share][to] += x[share][of]
        y[share] *= 1 / window ** 2
        worker.lap("pooling")

    executor.parallel(len(x), work, window * window * y.size)


def avgpool2d_backward(executor, dy, dx, window, stride, padding):
    def work(worker, start, stop):
        share = slice(start, stop)
        dx[share] = 0
        for to, of in _windows(dx.shape, dy.shape, window, stride, padding):
            dx[share][to] += dy[share][of]
        dx[share] *= 1 / window ** 2
        worker.lap("pooling")

    executor.parallel(len(dy), work, window * window * dy.size)


def global_avgpool_forward(executor, x, y):
    x, y = x.reshape(len(x), -1, x.shape[3]), y.reshape(len(y), -1)

    def work(worker, start, stop):
        loops.global_avgpool(x[start:stop], y[start:stop])
        worker.lap("pooling")

    executor.parallel(len(x), work, x.size)


def global_avgpool_backward(executor, dy, dx):
    def work(worker, start, stop):
        dx[start:stop] = dy[start:stop] / (dx.shape[1] * dx.shape[2])
        worker.lap("pooling")

    executor.parallel(len(dx), work, dx.size)


def upsample2d_forward(executor, x, y):
    def work(worker, start, stop):
        for corner in _corners(y[start:stop]):
            corner[...] = x[start:stop]
        worker.lap("upsampling")

    executor.parallel(len(x), work, y.size)


def upsample2d_backward(executor, dy, dx):
    def work(worker, start, stop):
        first, *others = _corners(dy[start:stop])
        dx[start:stop] = first
        for corner in others:
            dx[start:stop] += corner
        worker.lap("upsampling")

    executor.parallel(len(dx), work, dy.size)


OPERATIONS = (maxpool2d_forward, maxpool2d_backward, avgpool2d_forward, avgpool2d_backward, global_avgpool_forward,
              global_avgpool_backward, upsample2d_forward, upsample2d_backward)


def _corners(x):
    """The four (N, H//2, W//2, C) views of x, one per position in the 2x2 window, in row-major order."""
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return [x[:, row:height:2, column:width:2] for row in (0, 1) for column in (0, 1)]


def _windows(image, out, window, stride, padding):
    """For each position in the window, in row-major order: indices of the pixels at this position, and of their windows."""
    rows, columns = ([_range(image[axis], out[axis], offset - padding, stride) for offset in range(window)] for axis in (1, 2))
    for row_of, row_to in rows:
        for column_of, column_to in columns:
            yield (slice(None), row_of, column_of), (slice(None), row_to, column_to)


def _range(size, windows, offset, stride):
    """Slices of the pixels offset + stride * window that lie in range(size), and of their windows."""
    first = max(0, -(offset // stride))   # rounded up
    last = max(first, min(windows, (size - 1 - offset) // stride + 1))
    start = offset + stride * first
    return slice(start, start + stride * (last - first), stride), slice(first, last)
