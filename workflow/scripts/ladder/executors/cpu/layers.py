"""The cpu rung's elementwise and per-channel layers: no convolutions, no pooling."""

import numpy as np

from ladder.arithmetic import randomness
from ladder.arithmetic.multipliers import quantised
from ladder.executors.cpu import blocks, loops
from ladder.executors.cpu.loops import Unsigned


def relu_forward(executor, x, y):
    executor.share("ReLU", x.size, lambda x, y: np.maximum(x, 0, out=y), x, y)


def scale(executor, x, y, factor):
    factor = x.dtype.type(factor)
    executor.share(
        "update", x.size, lambda x, y: np.multiply(x, factor, out=y), x.reshape(-1), y.reshape(-1)
    )


def quantise(executor, x, y, scale, most):
    """y = integers, and the number that they are multiples of (multipliers.quantised)."""
    ends = []
    executor.share(INTEGERS, x.size, lambda x: ends.extend((x.max(), x.min())), x)
    scale[0] = quantised(np.array(ends), most)[1]

    def round_(x, y):
        np.divide(x, scale[0], out=y)
        np.rint(y, out=y)
        np.clip(y, -most, most, out=y)

    if np.isfinite(scale[0]):
        executor.share(INTEGERS, 3 * x.size, round_, x, y)
    else:
        y[...] = 0


def rescale(executor, x, first, second, bias, y):
    """y = sums of products of integers, times the scale of each factor, plus a bias of the last
    axis.
    """

    def multiply(x, y):
        np.multiply(x, first[0], out=y)
        y *= second[0]
        y += bias

    executor.share(INTEGERS, 3 * x.size, multiply, x, y)


def conv2d_bias_grad(executor, dy, dbias):
    dbias[...] = dy.reshape(-1, len(dbias)).sum(axis=0, dtype=np.float64)


def pad_backward(executor, dy, dx, amount):
    executor.share(SHAPES, dx.size, np.copyto, dx, dy[:, amount:-amount, amount:-amount])


def batchnorm_forward(
    executor,
    x,
    weight,
    bias,
    y,
    mean,
    inverse,
    running_mean,
    running_var,
    decay,
    epsilon,
    relu=False,
):
    """With `relu`, followed by ReLU."""
    x, y = (array.reshape(-1, x.shape[3]) for array in (x, y))
    factor = np.empty_like(mean)

    def settle(sums, first, last):
        loops.batch_statistics(
            len(x),
            *sums,
            first,
            last,
            weight,
            mean,
            inverse,
            factor,
            running_mean,
            running_var,
            decay,
            epsilon,
        )

    def normalize(rows, first, last):
        loops.normalize(x[rows], first, last, mean, factor, bias, y[rows], relu)

    _by_channel(
        executor,
        x,
        lambda rows, *rest: loops.moments(x[rows], *rest),
        loops.merge_moments,
        settle,
        normalize,
    )


def batchnorm_backward(
    executor, x, weight, mean, inverse, dy, dx, dweight, dbias, bias=None, relu=False
):
    """With `relu`, through the ReLU that follows, which is recomputed from the bias."""
    x, dy, dx = (array.reshape(-1, x.shape[3]) for array in (x, dy, dx))
    factor, (offset, slope), bias = (
        weight * inverse,
        np.empty((2, len(mean)), x.dtype),
        bias if relu else mean,
    )

    def add_up(rows, first, last, sums, products):
        loops.gradient_sums(
            x[rows], dy[rows], first, last, mean, factor, bias, sums, products, relu
        )

    def settle(sums, first, last):
        loops.parameter_gradients(
            len(x), *sums, first, last, inverse, dweight, dbias, offset, slope
        )

    def spread(rows, first, last):
        loops.input_gradient(
            x[rows], dy[rows], first, last, mean, factor, bias, offset, slope, dx[rows], relu
        )

    _by_channel(
        executor, x, add_up, lambda counts, sums: blocks.add_up(executor, sums), settle, spread
    )


def batchnorm_inference(
    executor, x, weight, bias, running_mean, running_var, y, epsilon, relu=False
):
    channels, factor = x.shape[3], weight / np.sqrt(running_var + x.dtype.type(epsilon))

    def normalize(x, y):
        loops.normalize(x, Unsigned(0), Unsigned(channels), running_mean, factor, bias, y, relu)

    executor.share(BATCHNORM, x.size, normalize, x.reshape(-1, channels), y.reshape(-1, channels))


def dropout_forward(executor, x, counters, y, mask, rate, seed, stream):
    factor = x.dtype.type(1 / (1 - rate))
    flat_x, flat_y, flat_mask = (array.reshape(-1) for array in (x, y, mask))

    def work(worker, start, stop):
        share = slice(8 * start, min(8 * stop, x.size))  # a block has eight random numbers
        flat_mask[share] = randomness.dropout_mask(
            seed, stream, int(counters[0]), share.start, len(flat_x[share]), rate
        )
        np.multiply(flat_x[share], factor, out=flat_y[share])
        flat_y[share] *= flat_mask[share]
        worker.lap(DROPOUT)

    executor.parallel(-(-x.size // 8), work, 4 * x.size)


def dropout_backward(executor, dy, mask, dx, rate):
    factor = dx.dtype.type(1 / (1 - rate))

    def scale(dy, mask, dx):
        np.multiply(dy, factor, out=dx)
        dx *= mask

    executor.share(DROPOUT, 3 * dx.size, scale, dy, mask, dx)


def sample_forward(executor, mean, log_variance, counters, y, noise, seed, stream):
    flat_mean, flat_log_variance, flat_y, flat_noise = (
        array.reshape(-1) for array in (mean, log_variance, y, noise)
    )

    def work(worker, start, stop):
        share = slice(8 * start, min(8 * stop, y.size))
        drawn, added = flat_noise[share], flat_log_variance[share] * y.dtype.type(0.5)
        drawn[...] = randomness.normal(
            seed, randomness.LAYER + stream, int(counters[0]), share.start, len(drawn)
        )
        np.exp(added, out=added)
        drawn *= added
        np.add(flat_mean[share], drawn, out=flat_y[share])
        worker.lap(SAMPLING)

    executor.parallel(-(-y.size // 8), work, 20 * y.size)


def sample_backward(
    executor, mean, log_variance, noise, dy, counters, dmean, dlog_variance, divergences, factor
):
    """The gradient of the draw and of the divergence; divergences[this step] = the images' mean
    divergence in nats.
    """
    factor, half, totals = mean.dtype.type(factor), mean.dtype.type(0.5), np.empty(len(mean))

    def work(worker, start, stop):
        for n in range(start, stop):
            excess = np.expm1(log_variance[n])  # of the variance
            totals[n] = 0.5 * (np.square(mean[n]) + (excess - log_variance[n])).sum(
                dtype=np.float64
            )
            np.add(dy[n], factor * mean[n], out=dmean[n])
            np.multiply(half, dy[n] * noise[n] + factor * excess, out=dlog_variance[n])
        worker.lap(SAMPLING)

    executor.parallel(len(mean), work, 10 * mean.size)
    divergences[counters[2]] = totals.sum() / len(mean)


def lrn_forward(executor, x, y, sums, size, alpha, beta, k):
    def normalize(x, y, sums):
        _around(np.square(x), sums, size // 2, (size - 1) // 2)
        sums *= alpha / size
        sums += k
        np.multiply(x, sums**-beta, out=y)

    executor.each(DROPOUT, 2 * size * x.size, normalize, x, y, sums)


def lrn_backward(executor, x, sums, dy, dx, size, alpha, beta, k):
    def gradient(x, sums, dy, dx):
        scaled = dy * sums**-beta
        _around(scaled * x / sums, dx, (size - 1) // 2, size // 2)
        dx *= x
        dx *= -2 * alpha * beta / size
        dx += scaled

    executor.each(DROPOUT, 2 * size * x.size, gradient, x, sums, dy, dx)


def position_norm_forward(executor, x, y, norms, epsilon):
    def normalize(x, y, norms):
        np.einsum("hwc,hwc->hw", x, x, out=norms)
        norms += x.dtype.type(epsilon)
        np.sqrt(norms, out=norms)
        np.divide(x, norms[..., None], out=y)

    executor.each(NORMS, 2 * x.size, normalize, x, y, norms)


def position_norm_backward(executor, y, norms, dy, dx):
    """dx = (dy - y (y . dy)) / norm: the component of dy orthogonal to y."""

    def gradient(y, norms, dy, dx):
        np.multiply(y, np.einsum("hwc,hwc->hw", y, dy)[..., None], out=dx)
        np.subtract(dy, dx, out=dx)
        dx /= norms[..., None]

    executor.each(NORMS, 3 * y.size, gradient, y, norms, dy, dx)


def local_contrast_forward(executor, x, image, y, kernel, epsilon):
    def divide(x, image, y):
        divide_by_contrast(x, image, y, kernel, epsilon)

    executor.each(NORMS, 2 * x.size, divide, x, image, y)


def divide_by_contrast(x, image, y, kernel, epsilon):
    """y = x (H, W, C), divided by the deviations of the windows of an image (inverse_deviations); y
    may be x.
    """
    np.multiply(x, inverse_deviations(image, kernel, epsilon)[..., None], out=y)


def inverse_deviations(image, kernel, epsilon):
    """1 / sqrt(variance + epsilon) of every window of kernel x kernel pixels in an image (H, W, C),
    in the image's dtype.
    """
    height, width, _ = image.shape
    out = np.empty((height - kernel + 1, width - kernel + 1), image.dtype)
    loops.inverse_deviations(
        image, kernel, epsilon, np.empty((2, height, width)), np.empty((2, width)), out
    )
    return out


def soft_threshold_forward(executor, x, y, threshold):
    threshold = x.dtype.type(threshold)
    executor.share(
        "thresholds",
        3 * x.size,
        lambda x, y: loops.soft_threshold(x, threshold, y),
        x.reshape(-1, x.shape[3]),
        y.reshape(-1, y.shape[3]),
    )


OPERATIONS = (
    relu_forward,
    scale,
    quantise,
    rescale,
    conv2d_bias_grad,
    pad_backward,
    batchnorm_forward,
    batchnorm_backward,
    batchnorm_inference,
    dropout_forward,
    dropout_backward,
    sample_forward,
    sample_backward,
    lrn_forward,
    lrn_backward,
    position_norm_forward,
    position_norm_backward,
    local_contrast_forward,
    soft_threshold_forward,
)

MANY_ROWS = 64  # rows per channel, from which on threads split the rows of a batch normalization
ROWS = 1024  # least rows of a piece then; a multiple of loops.ROWS
SHAPES, BATCHNORM, DROPOUT, NORMS = (
    "shortcuts and shapes",
    "batch normalisation",
    "dropout and LRN",
    "norms and contrast",
)
SAMPLING, INTEGERS = "sampling", "quantisation"


def _by_channel(executor, x, add_up, join, settle, spread):
    """The frame of batch normalization in both directions: sums over the rows of x (rows,
    channels), then a pass over the rows.

    add_up(rows, first, last, *sums) forms two float64 sums over the rows, per channel from `first`
    to `last` (Unsigned); join(counts, sums) combines the sums of several pieces of `counts` rows
    each in the first; settle(sums, first, last) receives the sums over all rows, then spread(rows,
    first, last) is called. Threads split the rows, many of which there are for each channel; with
    fewer, batch normalization is a task, in which they split the channels and need no join.
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


def _around(values, sums, before, after):
    """sums[..., c] = values[..., c - before] + ... + values[..., c + after], over the channels that
    exist.
    """
    channels = values.shape[-1]
    sums[...] = 0
    for shift in range(-before, after + 1):
        to, source = blocks.overlap(channels, shift)
        sums[..., to] += values[..., source]
