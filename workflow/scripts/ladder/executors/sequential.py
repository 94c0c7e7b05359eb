"""The cpu_sequential rung: one thread, one loop nest per operation, compiled by Numba as written.

No blocking, no BLAS, no fusion, no reordering of sums: the C program of a textbook. Arrays are
NHWC, weights (filters, kernel, kernel, channels); `index` holds the position of each maximum in its
window, in row-major order. Sums over a whole batch for one number, such as the loss or a channel's
mean, are in double precision.
"""

import functools
import time

import numba
import numpy as np

from ladder.arithmetic import randomness
from ladder.arithmetic.approximate_matmul import coded, single
from ladder.arithmetic.multipliers import quantised
from ladder.executors.host import HostExecutor
from ladder.machine import runtime


class Executor(HostExecutor):
    """Runs plans on one thread, for any `threads` (interface: see create.py)."""

    def run(self, plan, arrays):
        for step in plan.steps:
            operands = {
                role: arrays[name] for role, name in (*step.reads.items(), *step.writes.items())
            }
            operation, attributes = OPERATIONS[step.operation], dict(step.attributes)
            if "multiplier" in attributes:
                attributes["multiplier"] = coded(attributes["multiplier"])
            started = time.perf_counter()
            operation(**operands, **attributes)
            spent = time.perf_counter() - started
            self.seconds[step.work] = self.seconds.get(step.work, 0.0) + spent
            self.passes[step.pass_] = self.passes.get(step.pass_, 0.0) + spent

    def device(self):
        return f"cpu: {runtime.machine()['processor']}, 1 thread, Numba {numba.__version__}"

    def workspace_bytes(self):
        return 0


compiled = numba.njit(cache=True, error_model="numpy")


@compiled
def load_batch(images, permutation, counters, scale, offset, batch, flip):
    for n, row, column, channel in np.ndindex(batch.shape):
        value = _pixel(images, permutation[counters[1] + n], row, column, channel, flip)
        batch[n, row, column, channel] = value * scale[channel] + offset[channel]


def draw_augmentation(counters, augmentation, crop, flip, seed):
    augmentation[...] = randomness.augmentation(
        seed, int(counters[0]), len(augmentation), crop, flip
    )


@compiled
def load_augmented_batch(images, permutation, counters, scale, offset, augmentation, batch):
    for n, row, column, channel in np.ndindex(batch.shape):
        from_row, from_column = row + augmentation[n, 0], column + augmentation[n, 1]
        value = _pixel(
            images, permutation[counters[1] + n], from_row, from_column, channel, augmentation[n, 2]
        )
        batch[n, row, column, channel] = value * scale[channel] + offset[channel]


def draw_jitter(counters, jitter, tangent, colour, seed):
    jitter[...] = randomness.jitter(
        seed, int(counters[0]), len(jitter), jitter.shape[1] - 2, tangent, colour
    )


@compiled
def load_jittered_batch(images, permutation, counters, scale, offset, augmentation, jitter, batch):
    count, height, width, channels = batch.shape
    middle_row, middle_column = np.float32((height - 1) / 2), np.float32((width - 1) / 2)
    for n, row, column in np.ndindex(count, height, width):
        source, mirrored = permutation[counters[1] + n], augmentation[n, 2]
        cosine, sine = jitter[n, 0], jitter[n, 1]
        below = np.float32(row + augmentation[n, 0]) - middle_row
        beside = np.float32(column + augmentation[n, 1]) - middle_column
        from_row = cosine * below - sine * beside + middle_row
        from_column = sine * below + cosine * beside + middle_column
        top, left = int(np.floor(from_row)), int(np.floor(from_column))
        in_row, in_column = from_row - np.float32(top), from_column - np.float32(left)
        for channel in range(channels):
            upper_left = _pixel(images, source, top, left, channel, mirrored)
            upper_right = _pixel(images, source, top, left + 1, channel, mirrored)
            lower_left = _pixel(images, source, top + 1, left, channel, mirrored)
            lower_right = _pixel(images, source, top + 1, left + 1, channel, mirrored)
            above = upper_left + in_column * (upper_right - upper_left)
            under = lower_left + in_column * (lower_right - lower_left)
            value = above + in_row * (under - above)
            batch[n, row, column, channel] = (
                value * jitter[n, 2 + channel] * scale[channel] + offset[channel]
            )


@compiled
def _pixel(images, source, row, column, channel, mirrored):
    """A value of an image, or of its mirror image; 0 outside it."""
    height, width = images.shape[1:3]
    if row < 0 or row >= height or column < 0 or column >= width:
        return np.float32(0)
    return np.float32(images[source, row, width - 1 - column if mirrored else column, channel])


@compiled
def conv2d_forward(x, weight, bias, y, stride, padding, multiplier=None):
    _, height, width, channels = x.shape
    filters, kernel = weight.shape[:2]
    for n, row, column in np.ndindex(y.shape[:3]):
        for o in range(filters):
            total = bias[o]
            for i in range(kernel):
                from_row = stride * row + i - padding
                if 0 <= from_row < height:
                    for j in range(kernel):
                        from_column = stride * column + j - padding
                        if 0 <= from_column < width:
                            for c in range(channels):
                                total += single(
                                    x[n, from_row, from_column, c], weight[o, i, j, c], multiplier
                                )
            y[n, row, column, o] = total


@compiled
def conv2d_input_grad(dy, weight, dx, stride, padding, multiplier=None):
    _, height, width, channels = dx.shape
    filters, kernel = weight.shape[:2]
    dx[...] = 0
    for n, row, column in np.ndindex(dy.shape[:3]):
        for o in range(filters):
            gradient = dy[n, row, column, o]
            for i in range(kernel):
                to_row = stride * row + i - padding
                if 0 <= to_row < height:
                    for j in range(kernel):
                        to_column = stride * column + j - padding
                        if 0 <= to_column < width:
                            for c in range(channels):
                                dx[n, to_row, to_column, c] += single(
                                    gradient, weight[o, i, j, c], multiplier
                                )


@compiled
def conv2d_weight_grad(x, dy, dweight, stride, padding, multiplier=None):
    _, height, width, channels = x.shape
    filters, kernel = dweight.shape[:2]
    dweight[...] = 0
    for n, row, column in np.ndindex(dy.shape[:3]):
        for o in range(filters):
            gradient = dy[n, row, column, o]
            for i in range(kernel):
                from_row = stride * row + i - padding
                if 0 <= from_row < height:
                    for j in range(kernel):
                        from_column = stride * column + j - padding
                        if 0 <= from_column < width:
                            for c in range(channels):
                                dweight[o, i, j, c] += single(
                                    gradient, x[n, from_row, from_column, c], multiplier
                                )


@compiled
def conv2d_bias_grad(dy, dbias):
    dbias[...] = 0
    for n, row, column, o in np.ndindex(dy.shape):
        dbias[o] += dy[n, row, column, o]


@compiled
def decompose_taps(weight, phase_weights):
    """phase_weights[c, t, s, o] = the sum of the 3x3 taps that (t, s) of the transposed convolution
    with stride 2 replaces.
    """
    for c, t, s, o in np.ndindex(phase_weights.shape):
        total = weight.dtype.type(0)
        for j in range(max(0, 2 - s), min(2, 3 - s) + 1):
            column = weight.dtype.type(0)
            for i in range(max(0, 2 - t), min(2, 3 - t) + 1):
                column += weight[o, i, j, c]
            total += column
        phase_weights[c, t, s, o] = total


@compiled
def phase_conv2d_forward(x, phase_weights, bias, y, multiplier=None):
    conv2d_input_grad(x, phase_weights, y, 2, 1, multiplier)
    for n, row, column, o in np.ndindex(y.shape):
        y[n, row, column, o] += bias[o]


@compiled
def phase_conv2d_input_grad(dy, phase_weights, zeros, dx, multiplier=None):
    conv2d_forward(dy, phase_weights, zeros, dx, 2, 1, multiplier)


@compiled
def phase_conv2d_weight_grad(x, dy, dweight, dbias, multiplier=None):
    filters, _, _, channels = dweight.shape
    dphase_weights = np.empty((channels, 4, 4, filters), dweight.dtype)
    conv2d_weight_grad(dy, x, dphase_weights, 2, 1, multiplier)
    for o, i, j, c in np.ndindex(dweight.shape):
        total = dweight.dtype.type(0)
        for t in range(2 - i, 4 - i):
            for s in range(2 - j, 4 - j):
                total += dphase_weights[c, t, s, o]
        dweight[o, i, j, c] = total
    conv2d_bias_grad(dy, dbias)


@compiled
def add_forward(a, b, y):
    for at in np.ndindex(y.shape):
        y[at] = a[at] + b[at]


def quantise(x, y, scale, most):
    """y = integers, and the number that they are multiples of (multipliers.quantised)."""
    y[...], scale[0] = quantised(x, most)


@compiled
def rescale(x, first, second, bias, y):
    """y = sums of products of integers, times the scale of each factor, plus a bias of the last
    axis.
    """
    for at in np.ndindex(x.shape):
        y[at] = x[at] * first[0] * second[0] + bias[at[-1]]


@compiled
def scale(x, y, factor):
    for at in np.ndindex(x.shape):
        y[at] = x[at] * x.dtype.type(factor)


@compiled
def pad_forward(x, y, amount):
    _, height, width, _ = x.shape
    for n, row, column, channel in np.ndindex(y.shape):
        from_row, from_column = row - amount, column - amount
        inside = 0 <= from_row < height and 0 <= from_column < width
        y[n, row, column, channel] = (
            x[n, from_row, from_column, channel] if inside else x.dtype.type(0)
        )


@compiled
def pad_backward(dy, dx, amount):
    for n, row, column, channel in np.ndindex(dx.shape):
        dx[n, row, column, channel] = dy[n, row + amount, column + amount, channel]


@compiled
def flatten_forward(x, y):
    _, height, width, _ = x.shape
    for n, row, column, channel in np.ndindex(x.shape):
        y[n, 0, 0, (channel * height + row) * width + column] = x[n, row, column, channel]


@compiled
def flatten_backward(dy, dx):
    _, height, width, _ = dx.shape
    for n, row, column, channel in np.ndindex(dx.shape):
        dx[n, row, column, channel] = dy[n, 0, 0, (channel * height + row) * width + column]


@compiled
def relu_forward(x, y):
    for at in np.ndindex(x.shape):
        value = x[at]
        y[at] = x.dtype.type(0) if value < 0 else value  # keeps NaN


@compiled
def relu_backward(y, dy, dx):
    for at in np.ndindex(y.shape):
        dx[at] = dy[at] if y[at] > 0 else dy.dtype.type(0)


@compiled
def maxpool2d_forward(x, y, index, window, stride, padding):
    _, height, width, _ = x.shape
    for n, row, column, channel in np.ndindex(y.shape):
        best, place = x.dtype.type(0), -1
        for i in range(window):
            from_row = stride * row + i - padding
            if 0 <= from_row < height:
                for j in range(window):
                    from_column = stride * column + j - padding
                    if 0 <= from_column < width:
                        value = x[n, from_row, from_column, channel]
                        if place < 0 or _exceeds(value, best):
                            best, place = value, window * i + j
        y[n, row, column, channel] = best
        index[n, row, column, channel] = place


@compiled
def maxpool2d_backward(dy, index, dx, window, stride, padding):
    dx[...] = 0
    for n, row, column, channel in np.ndindex(dy.shape):
        place = np.int64(index[n, row, column, channel])
        to_row = stride * row + place // window - padding
        to_column = stride * column + place % window - padding
        dx[n, to_row, to_column, channel] += dy[n, row, column, channel]


@compiled
def avgpool2d_forward(x, y, window, stride, padding):
    _, height, width, _ = x.shape
    for n, row, column, channel in np.ndindex(y.shape):
        total = x.dtype.type(0)
        for i in range(window):
            from_row = stride * row + i - padding
            if 0 <= from_row < height:
                for j in range(window):
                    from_column = stride * column + j - padding
                    if 0 <= from_column < width:
                        total += x[n, from_row, from_column, channel]
        y[n, row, column, channel] = total / x.dtype.type(window * window)


@compiled
def avgpool2d_backward(dy, dx, window, stride, padding):
    _, height, width, _ = dx.shape
    dx[...] = 0
    for n, row, column, channel in np.ndindex(dy.shape):
        share = dy[n, row, column, channel] / dy.dtype.type(window * window)
        for i in range(window):
            to_row = stride * row + i - padding
            if 0 <= to_row < height:
                for j in range(window):
                    to_column = stride * column + j - padding
                    if 0 <= to_column < width:
                        dx[n, to_row, to_column, channel] += share


@compiled
def global_avgpool_forward(x, y):
    count, height, width, channels = x.shape
    for n, channel in np.ndindex(count, channels):
        total = x.dtype.type(0)
        for row in range(height):
            for column in range(width):
                total += x[n, row, column, channel]
        y[n, 0, 0, channel] = total / x.dtype.type(height * width)


@compiled
def global_avgpool_backward(dy, dx):
    _, height, width, _ = dx.shape
    for n, row, column, channel in np.ndindex(dx.shape):
        dx[n, row, column, channel] = dy[n, 0, 0, channel] / dy.dtype.type(height * width)


@compiled
def upsample2d_forward(x, y):
    for n, row, column, channel in np.ndindex(y.shape):
        y[n, row, column, channel] = x[n, row // 2, column // 2, channel]


@compiled
def upsample2d_backward(dy, dx):
    for n, row, column, channel in np.ndindex(dx.shape):
        total = dx.dtype.type(0)
        for i in range(2):
            for j in range(2):
                total += dy[n, 2 * row + i, 2 * column + j, channel]
        dx[n, row, column, channel] = total


@compiled
def batchnorm_forward(x, weight, bias, y, mean, inverse, running_mean, running_var, decay, epsilon):
    count, height, width, channels = x.shape
    values = count * height * width
    means = _channel_sums(x) / values
    variances = np.zeros(channels)
    for n, row, column, channel in np.ndindex(x.shape):
        difference = x[n, row, column, channel] - means[channel]
        variances[channel] += difference * difference
    variances /= values
    unbiased = values / (values - 1) if values > 1 else 1.0
    for channel in range(channels):
        mean[channel] = means[channel]
        inverse[channel] = 1 / np.sqrt(variances[channel] + epsilon)
        running_mean[channel] = decay * running_mean[channel] + (1 - decay) * means[channel]
        running_var[channel] = (
            decay * running_var[channel] + (1 - decay) * unbiased * variances[channel]
        )
    for n, row, column, channel in np.ndindex(x.shape):
        normalized = (x[n, row, column, channel] - mean[channel]) * inverse[channel]
        y[n, row, column, channel] = weight[channel] * normalized + bias[channel]


@compiled
def batchnorm_backward(x, weight, mean, inverse, dy, dx, dweight, dbias):
    count, height, width, channels = x.shape
    values = x.dtype.type(count * height * width)
    products = np.zeros(channels)
    for n, row, column, channel in np.ndindex(x.shape):
        normalized = (x[n, row, column, channel] - mean[channel]) * inverse[channel]
        products[channel] += np.float64(dy[n, row, column, channel]) * normalized
    dweight[...] = products
    dbias[...] = _channel_sums(dy)
    for n, row, column, channel in np.ndindex(x.shape):
        normalized = (x[n, row, column, channel] - mean[channel]) * inverse[channel]
        # through the batch's mean and variance
        moved = dbias[channel] / values + normalized * (dweight[channel] / values)
        dx[n, row, column, channel] = (
            weight[channel] * inverse[channel] * (dy[n, row, column, channel] - moved)
        )


@compiled
def _channel_sums(x):
    totals = np.zeros(x.shape[3])
    for n, row, column, channel in np.ndindex(x.shape):
        totals[channel] += x[n, row, column, channel]
    return totals


@compiled
def batchnorm_inference(x, weight, bias, running_mean, running_var, y, epsilon):
    for n, row, column, channel in np.ndindex(x.shape):
        normalized = (x[n, row, column, channel] - running_mean[channel]) / np.sqrt(
            running_var[channel] + epsilon
        )
        y[n, row, column, channel] = weight[channel] * normalized + bias[channel]


def dropout_forward(x, counters, y, mask, rate, seed, stream):
    mask.reshape(-1)[...] = randomness.dropout_mask(
        seed, stream, int(counters[0]), 0, mask.size, rate
    )
    dropout_backward(x, mask, y, rate)  # values and gradients are scaled alike


@compiled
def dropout_backward(dy, mask, dx, rate):
    share = dy.dtype.type(1 - rate)
    for at in np.ndindex(dy.shape):
        dx[at] = dy[at] * dy.dtype.type(mask[at]) / share  # keeps NaN


@compiled
def winner_take_all_forward(x, y, mask, winners, images):
    batch, height, width, channels = x.shape
    largest = np.zeros((batch, channels), x.dtype)
    mask[...] = 0
    for n, channel in np.ndindex(largest.shape):
        for rank in range(winners):
            best_row, best_column = -1, -1
            for row in range(height):
                for column in range(width):
                    if mask[n, row, column, channel]:
                        continue
                    if best_row < 0 or _exceeds(
                        x[n, row, column, channel], x[n, best_row, best_column, channel]
                    ):
                        best_row, best_column = row, column
            mask[n, best_row, best_column, channel] = 1
            if rank == 0:
                largest[n, channel] = x[n, best_row, best_column, channel]
    for n, channel in np.ndindex(largest.shape):
        ahead = 0
        for other in range(batch):
            if other < n:  # of equal ones the first image goes ahead
                ahead += not _exceeds(largest[n, channel], largest[other, channel])
            else:
                ahead += _exceeds(largest[other, channel], largest[n, channel])
        if ahead >= images:
            mask[n, :, :, channel] = 0
    winner_take_all_backward(x, mask, y)  # values and gradients pass alike


@compiled
def _exceeds(a, b):
    """Whether a is larger; NaN is larger than all numbers."""
    return a > b or (a != a and b == b)


@compiled
def winner_take_all_backward(dy, mask, dx):
    for at in np.ndindex(dy.shape):
        dx[at] = dy[at] * dy.dtype.type(mask[at])


@compiled
def l1_penalty_backward(x, dx, factor):
    for at in np.ndindex(x.shape):
        dx[at] = x.dtype.type(factor) * np.sign(x[at])


def sample_forward(mean, log_variance, counters, y, noise, seed, stream):
    noise.reshape(-1)[...] = randomness.normal(
        seed, randomness.LAYER + stream, int(counters[0]), 0, noise.size
    )
    _spread(mean, log_variance, y, noise)


@compiled
def _spread(mean, log_variance, y, noise):
    half = mean.dtype.type(0.5)
    for at in np.ndindex(mean.shape):
        noise[at] *= np.exp(half * log_variance[at])
        y[at] = mean[at] + noise[at]


@compiled
def sample_backward(
    mean, log_variance, noise, dy, counters, dmean, dlog_variance, divergences, factor
):
    total, factor = 0.0, mean.dtype.type(factor)
    for at in np.ndindex(mean.shape):
        excess = np.expm1(log_variance[at])
        total += 0.5 * (np.float64(mean[at]) * mean[at] + (excess - log_variance[at]))
        dmean[at] = dy[at] + factor * mean[at]
        dlog_variance[at] = (dy[at] * noise[at] + factor * excess) / 2
    divergences[counters[2]] = total / len(mean)


@compiled
def lrn_forward(x, y, sums, size, alpha, beta, k):
    channels = x.shape[3]
    for n, row, column, channel in np.ndindex(x.shape):
        total = x.dtype.type(0)
        for other in range(
            max(channel - size // 2, 0), min(channel + (size - 1) // 2 + 1, channels)
        ):
            total += x[n, row, column, other] * x[n, row, column, other]
        sums[n, row, column, channel] = k + alpha / size * total
        y[n, row, column, channel] = (
            x[n, row, column, channel] * sums[n, row, column, channel] ** -beta
        )


@compiled
def lrn_backward(x, sums, dy, dx, size, alpha, beta, k):
    channels = x.shape[3]
    for n, row, column, channel in np.ndindex(x.shape):
        total = x.dtype.type(0)  # over the channels whose windows include this one
        for other in range(
            max(channel - (size - 1) // 2, 0), min(channel + size // 2 + 1, channels)
        ):
            total += (
                dy[n, row, column, other]
                * x[n, row, column, other]
                * sums[n, row, column, other] ** (-beta - 1)
            )
        direct = dy[n, row, column, channel] * sums[n, row, column, channel] ** -beta
        dx[n, row, column, channel] = (
            direct - 2 * alpha * beta / size * x[n, row, column, channel] * total
        )


@compiled
def position_norm_forward(x, y, norms, epsilon):
    for n, row, column in np.ndindex(norms.shape):
        total = x.dtype.type(0)
        for channel in range(x.shape[3]):
            total += x[n, row, column, channel] * x[n, row, column, channel]
        norms[n, row, column] = np.sqrt(total + x.dtype.type(epsilon))
        for channel in range(x.shape[3]):
            y[n, row, column, channel] = x[n, row, column, channel] / norms[n, row, column]


@compiled
def position_norm_backward(y, norms, dy, dx):
    for n, row, column in np.ndindex(norms.shape):
        along = y.dtype.type(0)
        for channel in range(y.shape[3]):
            along += y[n, row, column, channel] * dy[n, row, column, channel]
        for channel in range(y.shape[3]):
            across = dy[n, row, column, channel] - y[n, row, column, channel] * along
            dx[n, row, column, channel] = across / norms[n, row, column]


@compiled
def attention_forward(x, y, weights):
    count, height, width, channels = y.shape
    pixels = height * width
    parts, out = x.reshape(count, pixels, 3, channels), y.reshape(count, pixels, channels)
    root = np.sqrt(x.dtype.type(channels))
    for n, at in np.ndindex(count, pixels):
        shares = weights[n, at]
        for other in range(pixels):
            score = x.dtype.type(0)
            for channel in range(channels):
                score += parts[n, at, 0, channel] * parts[n, other, 1, channel]
            shares[other] = score / root
        largest, total = shares.max(), x.dtype.type(0)
        for other in range(pixels):
            # the argument is at most 0: no overflow
            shares[other] = np.exp(shares[other] - largest)
            total += shares[other]
        for other in range(pixels):
            shares[other] /= total
        for channel in range(channels):
            value = x.dtype.type(0)
            for other in range(pixels):
                value += shares[other] * parts[n, other, 2, channel]
            out[n, at, channel] = value


@compiled
def attention_backward(x, weights, dy, dx):
    count, height, width, channels = dy.shape
    pixels = height * width
    parts, gradients = x.reshape(count, pixels, 3, channels), dx.reshape(count, pixels, 3, channels)
    passed, dscores = dy.reshape(count, pixels, channels), np.zeros(pixels, x.dtype)
    root = np.sqrt(x.dtype.type(channels))
    dx[...] = 0
    for n, at in np.ndindex(count, pixels):
        along = x.dtype.type(0)  # the weights' gradients add up to this share of every score's
        for other in range(pixels):
            dweight = x.dtype.type(0)
            for channel in range(channels):
                dweight += passed[n, at, channel] * parts[n, other, 2, channel]
            dscores[other] = dweight
            along += weights[n, at, other] * dweight
        for other in range(pixels):
            dscore = weights[n, at, other] * (dscores[other] - along) / root
            for channel in range(channels):
                gradients[n, at, 0, channel] += dscore * parts[n, other, 1, channel]
                gradients[n, other, 1, channel] += dscore * parts[n, at, 0, channel]
                gradients[n, other, 2, channel] += weights[n, at, other] * passed[n, at, channel]


@compiled
def local_contrast_forward(x, image, y, kernel, epsilon):
    channels = image.shape[3]
    window = kernel, kernel, channels
    numbers = kernel * kernel * channels
    for n, row, column in np.ndindex(x.shape[:3]):
        total, squares = 0.0, 0.0
        for i, j, channel in np.ndindex(window):
            total += image[n, row + i, column + j, channel]
        mean = total / numbers
        for i, j, channel in np.ndindex(window):
            squares += (image[n, row + i, column + j, channel] - mean) ** 2
        contrast = x.dtype.type(np.sqrt(squares / numbers + epsilon))
        for value in range(x.shape[3]):
            y[n, row, column, value] = x[n, row, column, value] / contrast


@compiled
def soft_threshold_forward(x, y, threshold):
    channels, zero, least = x.shape[3], x.dtype.type(0), x.dtype.type(threshold)
    for n, row, column, channel in np.ndindex(x.shape):
        above, below = x[n, row, column, channel] - least, -x[n, row, column, channel] - least
        y[n, row, column, channel] = zero if above < 0 else above  # keeps NaN
        y[n, row, column, channels + channel] = zero if below < 0 else below


@compiled
def mse(prediction, target, counters, gradient, losses, divisor):
    total, factor = 0.0, prediction.dtype.type(2 / divisor)
    for at in np.ndindex(prediction.shape):
        difference = prediction[at] - target[at]
        total += np.float64(difference) * difference
        gradient[at] = factor * difference
    losses[counters[2]] = total / prediction.size


@compiled
def cross_entropy(prediction, labels, permutation, counters, gradient, losses, hits):
    count, _, _, classes = prediction.shape
    loss, right = 0.0, 0
    exponentials = np.zeros(classes)
    for n in range(count):
        scores, label = prediction[n, 0, 0], labels[permutation[counters[1] + n]]
        best, has_nan = 0, False
        for c in range(classes):
            has_nan |= np.isnan(scores[c])
            if scores[c] > scores[best]:
                best = c
        total = 0.0
        for c in range(classes):
            # the argument is at most 0: no overflow
            exponentials[c] = np.exp(np.float64(scores[c]) - scores[best])
            total += exponentials[c]
        for c in range(classes):
            gradient[n, 0, 0, c] = (exponentials[c] / total - (c == label)) / count
        loss += np.log(total) - (np.float64(scores[label]) - scores[best])
        right += best == label and not has_nan
    losses[counters[2]] = loss / count
    hits[counters[2]] = right


@compiled
def _clipped(gradient, parameter, weight_decay, clip):
    if clip > 0 and abs(gradient) > clip:  # keeps NaN
        gradient = np.copysign(clip, gradient)
    return gradient + weight_decay * parameter


@compiled
def sgd_update(parameter, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]
    for at in np.ndindex(parameter.shape):
        parameter[at] -= rate * _clipped(gradient[at], parameter[at], weight_decay, clip)


@compiled
def momentum_update(
    parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum
):
    rate = learning_rates[counters[0]]
    for at in np.ndindex(parameter.shape):
        velocity[at] = momentum * velocity[at] + _clipped(
            gradient[at], parameter[at], weight_decay, clip
        )
        parameter[at] -= rate * velocity[at]


@compiled
def rmsprop_update(parameter, square, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]
    for at in np.ndindex(parameter.shape):
        g = _clipped(gradient[at], parameter[at], weight_decay, clip)
        square[at] = 0.99 * square[at] + 0.01 * g * g
        parameter[at] -= rate * g / (np.sqrt(square[at]) + 1e-8)


@compiled
def adam_update(parameter, mean, square, gradient, learning_rates, counters, weight_decay, clip):
    step = counters[0] + 1
    rate = learning_rates[counters[0]] / (1 - 0.9**step)
    debias = 1 / (1 - 0.999**step)
    for at in np.ndindex(parameter.shape):
        g = _clipped(gradient[at], parameter[at], weight_decay, clip)
        mean[at] = 0.9 * mean[at] + 0.1 * g
        square[at] = 0.999 * square[at] + 0.001 * g * g
        parameter[at] -= rate * mean[at] / (np.sqrt(debias * square[at]) + 1e-8)


@compiled
def advance(counters, batch):
    counters[0] += 1
    counters[1] += batch
    counters[2] += 1


OPERATIONS = {
    function.__name__: function
    for function in (
        load_batch,
        draw_augmentation,
        load_augmented_batch,
        draw_jitter,
        load_jittered_batch,
        conv2d_forward,
        conv2d_input_grad,
        conv2d_weight_grad,
        conv2d_bias_grad,
        decompose_taps,
        phase_conv2d_forward,
        phase_conv2d_input_grad,
        phase_conv2d_weight_grad,
        add_forward,
        quantise,
        rescale,
        scale,
        pad_forward,
        pad_backward,
        flatten_forward,
        flatten_backward,
        relu_forward,
        relu_backward,
        maxpool2d_forward,
        maxpool2d_backward,
        avgpool2d_forward,
        avgpool2d_backward,
        global_avgpool_forward,
        global_avgpool_backward,
        upsample2d_forward,
        upsample2d_backward,
        batchnorm_forward,
        batchnorm_backward,
        batchnorm_inference,
        dropout_forward,
        dropout_backward,
        winner_take_all_forward,
        winner_take_all_backward,
        l1_penalty_backward,
        sample_forward,
        sample_backward,
        lrn_forward,
        lrn_backward,
        position_norm_forward,
        position_norm_backward,
        attention_forward,
        attention_backward,
        local_contrast_forward,
        soft_threshold_forward,
        mse,
        cross_entropy,
        sgd_update,
        momentum_update,
        rmsprop_update,
        adam_update,
        advance,
    )
}
OPERATIONS |= {  # a dense layer is a convolution of images of one pixel
    "dense_forward": functools.partial(conv2d_forward, stride=1, padding=0),
    "dense_input_grad": functools.partial(conv2d_input_grad, stride=1, padding=0),
    "dense_weight_grad": functools.partial(conv2d_weight_grad, stride=1, padding=0),
    "dense_bias_grad": conv2d_bias_grad,
}
