"""The cpu rung's layers that work value by value or channel by channel: no convolutions, no windows."""

import numpy as np


def relu_forward(executor, x, y):
    def work(worker, start, stop):
        np.maximum(x[start:stop], 0, out=y[start:stop])
        worker.lap("ReLU")

    executor.parallel(len(x), work)


def relu_backward(executor, y, dy, dx):
    def work(worker, start, stop):
        np.multiply(dy[start:stop], y[start:stop] > 0, out=dx[start:stop])
        worker.lap("ReLU")

    executor.parallel(len(y), work)


def add_forward(executor, a, b, y):
    def work(worker, start, stop):
        np.add(a[start:stop], b[start:stop], out=y[start:stop])
        worker.lap(SHAPES)

    executor.parallel(len(y), work)


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


def batchnorm_forward(executor, x, weight, bias, y, mean, inverse, running_mean, running_var, decay, epsilon):
    count = x.size // len(mean)
    mean[...], squares = _moments(executor, x)
    inverse[...] = 1 / np.sqrt(squares / count + epsilon)
    running_mean *= decay
    running_mean += (1 - decay) * mean
    running_var *= decay
    running_var += (1 - decay) * (squares / max(1, count - 1))
    _normalize(executor, x, mean, weight * inverse, bias, y)


def batchnorm_backward(executor, x, weight, mean, inverse, dy, dx, dweight, dbias):
    count = x.size // len(mean)

    def reduce(worker, start, stop):
        total = np.zeros((2, len(mean)))
        for n in range(start, stop):
            normalized = (x[n] - mean) * inverse
            total += dy[n].sum(axis=(0, 1)), (dy[n] * normalized).sum(axis=(0, 1))
        worker.lap(BATCHNORM)
        return total

    dbias[...], dweight[...] = sum(executor.parallel(len(x), reduce))

    def work(worker, start, stop):
        for n in range(start, stop):
            normalized = (x[n] - mean) * inverse
            dx[n] = weight * inverse * (dy[n] - dbias / count - normalized * (dweight / count))
        worker.lap(BATCHNORM)

    executor.parallel(len(x), work)


def batchnorm_inference(executor, x, weight, bias, running_mean, running_var, y, epsilon):
    _normalize(executor, x, running_mean, weight / np.sqrt(running_var + epsilon), bias, y)


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


def _moments(executor, x):
    """Mean by channel, and the sum of squared distances from it, both float64: by image in two passes, then merged.

    Two sets of n and m values whose means lie d apart have together the sum of their own sums and d^2 n m / (n + m) (Chan,
    Golub and LeVeque, 1983).
    """
    pixels = x.shape[1] * x.shape[2]

    def work(worker, start, stop):
        found = _Moments()
        for n in range(start, stop):
            mean = x[n].mean(axis=(0, 1), dtype=np.float64)
            found.add(pixels, mean, np.square(x[n] - mean).sum(axis=(0, 1)))
        worker.lap(BATCHNORM)
        return found

    first, *others = executor.parallel(len(x), work)
    for other in others:
        first.add(other.count, other.mean, other.squares)
    return first.mean, first.squares


class _Moments:
    """Mean and sum of squared distances from it, of sets that are added one by one."""

    def __init__(self):
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, count, mean, squares):
        apart, total = mean - self.mean, self.count + count
        self.mean = self.mean + apart * (count / total)
        self.squares = self.squares + squares + apart * apart * (self.count * count / total)
        self.count = total


def _normalize(executor, x, mean, factor, bias, y):
    def work(worker, start, stop):
        for n in range(start, stop):
            np.subtract(x[n], mean, out=y[n])
            y[n] *= factor
            y[n] += bias
        worker.lap(BATCHNORM)

    executor.parallel(len(x), work)


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
