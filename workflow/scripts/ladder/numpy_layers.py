"""The cpu rung's layers that work value by value or channel by channel: no convolutions, no windows."""

import numpy as np

from . import numpy_loops as loops
from .numpy_loops import Unsigned


def relu_forward(executor, x, y):
    def work(worker, start, stop):
        np.maximum(x[start:stop], 0, out=y[start:stop])
        worker.lap("ReLU")

    executor.parallel(len(x), work, x.size)


def relu_backward(executor, y, dy, dx):
    y, dy, dx = (array.reshape(-1) for array in (y, dy, dx))

    def work(worker, start, stop):
        loops.relu_gradient(y[start:stop], dy[start:stop], dx[start:stop])
        worker.lap("ReLU")

    executor.parallel(y.size, work, y.size)


def add_forward(executor, a, b, y, relu=False):
    a, b, y = (array.reshape(-1) for array in (a, b, y))

    def work(worker, start, stop):
        loops.add(a[start:stop], b[start:stop], y[start:stop], relu)
        worker.lap(SHAPES)

    executor.parallel(y.size, work, y.size)


def pad_forward(executor, x, y, amount):
    def work(worker, start, stop):
        y[start:stop] = 0
        y[start:stop, amount:-amount, amount:-amount] = x[start:stop]
        worker.lap(SHAPES)

    executor.parallel(len(x), work)


def pad_backward(executor, dy, dx, amount):
    def work(worker, start, stop):
        dx[start:stop] = dy[start:stop, amount:-amount, amount:-amount]
        worker.lap(SHAPES)

    executor.parallel(len(dx), work)


def flatten_forward(executor, x, y):
    images, height, width, channels = x.shape

    def work(worker, start, stop):
        y.reshape(images, channels, height, width)[start:stop] = x[start:stop].transpose(0, 3, 1, 2)
        worker.lap(SHAPES)

    executor.parallel(images, work)


def flatten_backward(executor, dy, dx):
    images, height, width, channels = dx.shape

    def work(worker, start, stop):
        dx[start:stop] = dy.reshape(images, channels, height, width)[start:stop].transpose(0, 2, 3, 1)
        worker.lap(SHAPES)

    executor.parallel(images, work)


def batchnorm_forward(executor, x, weight, bias, y, mean, inverse, running_mean, running_var, decay, epsilon, relu=False):
    """With `relu` the ReLU after it too."""
    x, y = (array.reshape(-1, x.shape[3]) for array in (x, y))

    def work(worker, first, last):
        loops.batch_statistics(x, first, last, mean, inverse, running_mean, running_var, decay, epsilon)
        loops.normalize(x, first, last, mean, weight * inverse, bias, y, relu)
        worker.lap(BATCHNORM)

    _by_channel(executor, x, work)


def batchnorm_backward(executor, x, weight, mean, inverse, dy, dx, dweight, dbias, bias=None, relu=False):
    """With `relu` that of the ReLU after it too, which takes the bias."""
    x, dy, dx = (array.reshape(-1, x.shape[3]) for array in (x, dy, dx))

    def work(worker, first, last):
        loops.normalize_gradients(x, dy, first, last, mean, inverse, weight, bias if relu else weight, dx, dweight, dbias, relu)
        worker.lap(BATCHNORM)

    _by_channel(executor, x, work)


def batchnorm_inference(executor, x, weight, bias, running_mean, running_var, y, epsilon, relu=False):
    x, y = (array.reshape(-1, x.shape[3]) for array in (x, y))
    factor = weight / np.sqrt(running_var + x.dtype.type(epsilon))

    def work(worker, first, last):
        loops.normalize(x, first, last, running_mean, factor, bias, y, relu)
        worker.lap(BATCHNORM)

    _by_channel(executor, x, work)


def dropout_forward(executor, x, counters, y, mask, rate, seed, stream):
    """Which values are kept is decided by seed, stream, step and place alone; see _random."""
    least = min(int(rate * 2 ** 32), 2 ** 32 - 1)
    factor = x.dtype.type(1 / (1 - rate))
    flat_x, flat_y, flat_mask = (array.reshape(-1) for array in (x, y, mask))
    blocks = -(-x.size // 8)

    def work(worker, start, stop):
        share = slice(8 * start, min(8 * stop, x.size))
        random = _random(seed, 16 + stream, counters[0], start, stop - start).view(np.uint32)[:share.stop - share.start]
        np.greater_equal(random, least, out=flat_mask[share].view(np.bool_))
        np.multiply(flat_x[share], factor, out=flat_y[share])
        flat_y[share] *= flat_mask[share]
        worker.lap(DROPOUT)

    executor.parallel(blocks, work)


def dropout_backward(executor, dy, mask, dx, rate):
    factor = dx.dtype.type(1 / (1 - rate))

    def work(worker, start, stop):
        np.multiply(dy[start:stop], factor, out=dx[start:stop])
        dx[start:stop] *= mask[start:stop]
        worker.lap(DROPOUT)

    executor.parallel(len(dx), work)


def lrn_forward(executor, x, y, sums, size, alpha, beta, k):
    def work(worker, start, stop):
        for n in range(start, stop):
            _around(np.square(x[n]), sums[n], size // 2, (size - 1) // 2)
            sums[n] *= alpha / size
            sums[n] += k
            np.multiply(x[n], sums[n] ** -beta, out=y[n])
        worker.lap(DROPOUT)

    executor.parallel(len(x), work)


def lrn_backward(executor, x, sums, dy, dx, size, alpha, beta, k):
    def work(worker, start, stop):
        for n in range(start, stop):
            scaled = dy[n] * sums[n] ** -beta
            _around(scaled * x[n] / sums[n], dx[n], (size - 1) // 2, size // 2)
            dx[n] *= x[n]
            dx[n] *= -2 * alpha * beta / size
            dx[n] += scaled
        worker.lap(DROPOUT)

    executor.parallel(len(x), work)


OPERATIONS = (relu_forward, relu_backward, add_forward, pad_forward, pad_backward, flatten_forward, flatten_backward,
              batchnorm_forward, batchnorm_backward, batchnorm_inference, dropout_forward, dropout_backward, lrn_forward,
              lrn_backward)

SHAPES, BATCHNORM, DROPOUT = "shortcuts and shapes", "batch normalisation", "dropout and LRN"


def _by_channel(executor, x, work):
    """Call work(worker, first, last) for shares of the channels of x (rows, channels): lines of the cache, so 16 at least."""
    channels = x.shape[1]

    def shares(worker, start, stop):
        work(worker, Unsigned(16 * start), Unsigned(min(16 * stop, channels)))

    executor.parallel(-(-channels // 16), shares, 4 * x.size)


def _random(seed, stream, step, start, blocks):
    """`blocks` blocks of four 64-bit random numbers each, from block `start` on, of one step's stream (Philox)."""
    # NumPy counts up before it draws, so that its first block has the counter start + 1.
    return np.random.Philox(key=(seed, stream), counter=(start, 0, 0, int(step))).random_raw(4 * blocks)


def _around(values, sums, before, after):
    """sums[..., c] = values[..., c - before] + ... + values[..., c + after], of those channels that there are."""
    channels = values.shape[-1]
    sums[...] = 0
    for shift in range(-before, after + 1):
        first, last = max(0, -shift), min(channels, channels - shift)
        if first < last:
            sums[..., first:last] += values[..., first + shift:last + shift]
