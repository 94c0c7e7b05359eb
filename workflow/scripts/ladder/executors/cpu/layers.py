"""The cpu rung's elementwise and per-channel layers: no convolutions, no pooling."""

import numpy as np

from ladder.arithmetic import randomness
from ladder.executors.cpu import blocks, loops
from ladder.executors.cpu.loops import Unsigned


def relu_forward(executor, x, y):
    def work(worker, start, stop):
        np.maximum(x[start:stop], 0, out=y[start:stop])
        worker.lap("ReLU")

    executor.parallel(len(x), work, x.size)


def scale(executor, x, y, factor):
    x, y = x.reshape(-1), y.reshape(-1)

    def work(worker, start, stop):
        np.multiply(x[start:stop], x.dtype.type(factor), out=y[start:stop])
        worker.lap("update")

    executor.parallel(x.size, work, x.size)


def pad_backward(executor, dy, dx, amount):
    def work(worker, start, stop):
        dx[start:stop] = dy[start:stop, amount:-amount, amount:-amount]
        worker.lap(SHAPES)

    executor.parallel(len(dx), work, dx.size)


def batchnorm_forward(executor, x, weight, bias, y, mean, inverse, running_mean, running_var, decay, epsilon, relu=False):
    """With `relu`, followed by ReLU."""
    x, y = (array.reshape(-1, x.shape[3]) for array in (x, y))
    factor = np.empty_like(mean)

    def settle(sums, first, last):
        loops.batch_statistics(len(x), *sums, first, last, weight, mean, inverse, factor, running_mean, running_var, decay,
                               epsilon)

    def normalize(rows, first, last):
        loops.normalize(x[rows], first, last, mean, factor, bias, y[rows], relu)

    _by_channel(executor, x, lambda rows, *rest: loops.moments(x[rows], *rest), loops.merge_moments, settle, normalize)


def batchnorm_backward(executor, x, weight, mean, inverse, dy, dx, dweight, dbias, bias=None, relu=False):
    """With `relu`, through the ReLU that follows, which is recomputed from the bias."""
    x, dy, dx = (array.reshape(-1, x.shape[3]) for array in (x, dy, dx))
    factor, (offset, slope), bias = weight * inverse, np.empty((2, len(mean)), x.dtype), bias if relu else mean

    def add_up(rows, first, last, sums, products):
        loops.gradient_sums(x[rows], dy[rows], first, last, mean, factor, bias, sums, products, relu)

    def settle(sums, first, last):
        loops.parameter_gradients(len(x), *sums, first, last, inverse, dweight, dbias, offset, slope)

    def spread(rows, first, last):
        loops.input_gradient(x[rows], dy[rows], first, last, mean, factor, bias, offset, slope, dx[rows], relu)

    _by_channel(executor, x, add_up, lambda counts, sums: blocks.add_up(executor, sums), settle, spread)


def batchnorm_inference(executor, x, weight, bias, running_mean, running_var, y, epsilon, relu=False):
    x, y = (array.reshape(-1, x.shape[3]) for array in (x, y))
    factor = weight / np.sqrt(running_var + x.dtype.type(epsilon))

    def work(worker, start, stop):
        loops.normalize(x[start:stop], Unsigned(0), Unsigned(x.shape[1]), running_mean, factor, bias, y[start:stop], relu)
        worker.lap(BATCHNORM)

    executor.parallel(len(x), work, x.size)


def dropout_forward(executor, x, counters, y, mask, rate, seed, stream):
    """The mask depends on seed, stream, step and position only; see _random."""
    least = min(int(rate * 2 ** 32), 2 ** 32 - 1)
    factor = x.dtype.type(1 / (1 - rate))
    flat_x, flat_y, flat_mask = (array.reshape(-1) for array in (x, y, mask))
    numbers = -(-x.size // 8)   # blocks of random numbers

    def work(worker, start, stop):
        share = slice(8 * start, min(8 * stop, x.size))
        random = _random(seed, 16 + stream, counters[0], start, stop - start).view(np.uint32)[:share.stop - share.start]
        np.greater_equal(random, least, out=flat_mask[share].view(np.bool_))
        np.multiply(flat_x[share], factor, out=flat_y[share])
        flat_y[share] *= flat_mask[share]
        worker.lap(DROPOUT)

    executor.parallel(numbers, work, 4 * x.size)


def dropout_backward(executor, dy, mask, dx, rate):
    factor = dx.dtype.type(1 / (1 - rate))

    def work(worker, start, stop):
        np.multiply(dy[start:stop], factor, out=dx[start:stop])
        dx[start:stop] *= mask[start:stop]
        worker.lap(DROPOUT)

    executor.parallel(len(dx), work, 3 * dx.size)


def sample_forward(executor, mean, log_variance, counters, y, noise, seed, stream):
    flat_mean, flat_log_variance, flat_y, flat_noise = (array.reshape(-1) for array in (mean, log_variance, y, noise))

    def work(worker, start, stop):
        share = slice(8 * start, min(8 * stop, y.size))   # a block has eight random numbers
        drawn, added = flat_noise[share], flat_log_variance[share] * y.dtype.type(0.5)
        drawn[...] = randomness.normal(seed, randomness.LAYER + stream, int(counters[0]), share.start, len(drawn))
        np.exp(added, out=added)
        drawn *= added
        np.add(flat_mean[share], drawn, out=flat_y[share])
        worker.lap(SAMPLING)

    executor.parallel(-(-y.size // 8), work, 20 * y.size)


def sample_backward(executor, mean, log_variance, noise, dy, counters, dmean, dlog_variance, divergences, factor):
    """The gradient of the draw and of the divergence; divergences[this step] = the images' mean divergence in nats."""
    factor, half, totals = mean.dtype.type(factor), mean.dtype.type(0.5), np.empty(len(mean))

    def work(worker, start, stop):
        for n in range(start, stop):
            excess = np.expm1(log_variance[n])   # of the variance
            totals[n] = 0.5 * (np.square(mean[n]) + (excess - log_variance[n])).sum(dtype=np.float64)
            np.add(dy[n], factor * mean[n], out=dmean[n])
            np.multiply(half, dy[n] * noise[n] + factor * excess, out=dlog_variance[n])
        worker.lap(SAMPLING)

    executor.parallel(len(mean), work, 10 * mean.size)
    divergences[counters[2]] = totals.sum() / len(mean)


def lrn_forward(executor, x, y, sums, size, alpha, beta, k):
    def work(worker, start, stop):
        for n in range(start, stop):
            _around(np.square(x[n]), sums[n], size // 2, (size - 1) // 2)
            sums[n] *= alpha / size
            sums[n] += k
            np.multiply(x[n], sums[n] ** -beta, out=y[n])
        worker.lap(DROPOUT)

    executor.parallel(len(x), work, 2 * size * x.size)


def lrn_backward(executor, x, sums, dy, dx, size, alpha, beta, k):
    def work(worker, start, stop):
        for n in range(start, stop):
            scaled = dy[n] * sums[n] ** -beta
            _around(scaled * x[n] / sums[n], dx[n], (size - 1) // 2, size // 2)
            dx[n] *= x[n]
            dx[n] *= -2 * alpha * beta / size
            dx[n] += scaled
        worker.lap(DROPOUT)

    executor.parallel(len(x), work, 2 * size * x.size)


def position_norm_forward(executor, x, y, norms, epsilon):
    def work(worker, start, stop):
        for n in range(start, stop):
            np.einsum("hwc,hwc->hw", x[n], x[n], out=norms[n])
            norms[n] += x.dtype.type(epsilon)
            np.sqrt(norms[n], out=norms[n])
            np.divide(x[n], norms[n][..., None], out=y[n])
        worker.lap(NORMS)

    executor.parallel(len(x), work, 2 * x.size)


def position_norm_backward(executor, y, norms, dy, dx):
    """dx = (dy - y (y . dy)) / norm: the component of dy orthogonal to y."""
    def work(worker, start, stop):
        for n in range(start, stop):
            along = np.einsum("hwc,hwc->hw", y[n], dy[n])[..., None]
            np.multiply(y[n], along, out=dx[n])
            np.subtract(dy[n], dx[n], out=dx[n])
            dx[n] /= norms[n][..., None]
        worker.lap(NORMS)

    executor.parallel(len(y), work, 3 * y.size)


def local_contrast_forward(executor, x, image, y, kernel, epsilon):
    def work(worker, start, stop):
        for n in range(start, stop):
            np.multiply(x[n], inverse_deviations(image[n], kernel, epsilon)[..., None], out=y[n])
        worker.lap(NORMS)

    executor.parallel(len(x), work, 2 * x.size)


def inverse_deviations(image, kernel, epsilon):
    """1 / sqrt(variance + epsilon) of every window of kernel x kernel pixels in an image (H, W, C), in the image's dtype."""
    seen = np.lib.stride_tricks.sliding_window_view(image, (kernel, kernel), axis=(0, 1))
    return (1 / np.sqrt(seen.var(axis=(2, 3, 4), dtype=np.float64) + epsilon)).astype(image.dtype)


def soft_threshold_forward(executor, x, y, threshold):
    threshold = x.dtype.type(threshold)

    def work(worker, start, stop):
        loops.soft_threshold(x[start:stop].reshape(-1, x.shape[3]), threshold, y[start:stop].reshape(-1, y.shape[3]))
        worker.lap("thresholds")

    executor.parallel(len(x), work, 3 * x.size)


OPERATIONS = (relu_forward, scale, pad_backward, batchnorm_forward, batchnorm_backward, batchnorm_inference, dropout_forward,
              dropout_backward, sample_forward, sample_backward, lrn_forward, lrn_backward, position_norm_forward,
              position_norm_backward, local_contrast_forward, soft_threshold_forward)

MANY_ROWS = 64   # rows per channel, from which on threads split the rows of a batch normalization
ROWS = 1024      # least rows of a piece then; a multiple of loops.ROWS
SHAPES, BATCHNORM, DROPOUT, NORMS = "shortcuts and shapes", "batch normalisation", "dropout and LRN", "norms and contrast"
SAMPLING = "sampling"


def _by_channel(executor, x, add_up, join, settle, spread):
    """The frame of batch normalization in both directions: sums over the rows of x (rows, channels), then a pass over the rows.

    add_up(rows, first, last, *sums) forms two float64 sums over the rows, per channel from `first` to `last` (Unsigned);
    join(counts, sums) combines the sums of several pieces of `counts` rows each in the first; settle(sums, first, last)
    receives the sums over all rows, then spread(rows, first, last) is called. Threads split the rows, many of which there are
    for each channel; with fewer, batch normalization is a task, in which they split the channels and need no join.
    """
    rows, channels = x.shape
    every = Unsigned(0), Unsigned(channels)
    size = ROWS * -(-rows // (ROWS * blocks.MOST_PIECES))
    parts = list(blocks.slices(0, rows, size))
    sums = np.empty((len(parts), 2, channels))

    def part(worker, start, stop):
        for number in range(start, stop):
            add_up(parts[number], *every, *sums[number])
        worker.lap(BATCHNORM)

    def rest(worker, start, stop):
        spread(slice(start, stop), *every)
        worker.lap(BATCHNORM)

    executor.parallel(len(parts), part, 2 * x.size)
    join(np.array([part.stop - part.start for part in parts]), sums)
    settle(sums[0], *every)
    executor.parallel(rows, rest, 2 * x.size)


def _random(seed, stream, step, start, blocks):
    """`blocks` blocks of four 64-bit random numbers, from block `start` on, of one step's stream (Philox)."""
    # NumPy increments the counter before it draws: its first block has the counter start + 1.
    return np.random.Philox(key=(seed, stream), counter=(start, 0, 0, int(step))).random_raw(4 * blocks)


def _around(values, sums, before, after):
    """sums[..., c] = values[..., c - before] + ... + values[..., c + after], over the channels that exist."""
    channels = values.shape[-1]
    sums[...] = 0
    for shift in range(-before, after + 1):
        first, last = max(0, -shift), min(channels, channels - shift)
        if first < last:
            sums[..., first:last] += values[..., first + shift:last + shift]
