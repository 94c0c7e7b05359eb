"""The parity protocols' reference in NumPy alone, for a machine without Numba, which compiles both
CPU rungs.

It performs the plan of cpu_sequential, one operation per layer, for the layers of the networks in
cases.py. Arrays are NHWC, weights (filters, kernel, kernel, channels); sums are BLAS's and NumPy's,
in the arrays' own precision.
"""

import functools

import timing  # noqa: F401 (finds the library)
from ladder.arithmetic import multipliers
from ladder.executors.host import HostExecutor

import numpy as np  # isort: skip (after ladder)
from numpy.lib.stride_tricks import sliding_window_view  # isort: skip

ROUNDED = {"tf32": multipliers.to_tf32, "bfloat16": multipliers.to_bfloat16}


class Executor(HostExecutor):
    """Runs plans by the functions of OPERATIONS (interface: see ladder/executors/create.py)."""

    def run(self, plan, arrays):
        with np.errstate(all="ignore"):
            for step in plan.steps:
                operands = {
                    role: arrays[name] for role, name in (*step.reads.items(), *step.writes.items())
                }
                OPERATIONS[step.operation](**operands, **step.attributes)


def load_batch(images, permutation, counters, scale, offset, batch, flip):
    rows = images[permutation[counters[1] : counters[1] + len(batch)]].astype(np.float32)
    batch[...] = (rows[:, :, ::-1] if flip else rows) * scale + offset


# ---- products


def conv2d_forward(x, weight, bias, y, stride, padding, multiplier=None):
    x, weight = _rounded(multiplier, x, weight)
    y[...] = (
        np.tensordot(_windows(x, weight.shape[1], stride, padding), weight, ((4, 5, 3), (1, 2, 3)))
        + bias
    )


def conv2d_input_grad(dy, weight, dx, stride, padding, multiplier=None):
    dy, weight = _rounded(multiplier, dy, weight)
    (count, height, width, channels), (_, rows, columns, _), kernel = (
        dx.shape,
        dy.shape,
        weight.shape[1],
    )
    padded = np.zeros((count, height + 2 * padding, width + 2 * padding, channels), dx.dtype)
    for i, j in np.ndindex(kernel, kernel):
        padded[:, i : i + stride * rows : stride, j : j + stride * columns : stride] += (
            dy @ weight[:, i, j]
        )
    dx[...] = padded[:, padding : padding + height, padding : padding + width]


def conv2d_weight_grad(x, dy, dweight, stride, padding, multiplier=None):
    x, dy = _rounded(multiplier, x, dy)
    windows = _windows(x, dweight.shape[1], stride, padding)[:, : dy.shape[1], : dy.shape[2]]
    dweight[...] = np.tensordot(dy, windows, ((0, 1, 2), (0, 1, 2))).transpose(0, 2, 3, 1)


def conv2d_bias_grad(dy, dbias):
    dbias[...] = dy.sum(axis=(0, 1, 2))


def decompose_taps(weight, phase_weights):
    for t, s in np.ndindex(4, 4):
        taps = weight[:, max(0, 2 - t) : min(2, 3 - t) + 1, max(0, 2 - s) : min(2, 3 - s) + 1]
        phase_weights[:, t, s] = taps.sum(axis=(1, 2)).T


def phase_conv2d_forward(x, phase_weights, bias, y, multiplier=None):
    conv2d_input_grad(x, phase_weights, y, 2, 1, multiplier)
    y += bias


def phase_conv2d_input_grad(dy, phase_weights, zeros, dx, multiplier=None):
    conv2d_forward(dy, phase_weights, zeros, dx, 2, 1, multiplier)


def phase_conv2d_weight_grad(x, dy, dweight, dbias, multiplier=None):
    filters, _, _, channels = dweight.shape
    phases = np.empty((channels, 4, 4, filters), dweight.dtype)
    conv2d_weight_grad(dy, x, phases, 2, 1, multiplier)
    for i, j in np.ndindex(3, 3):
        dweight[:, i, j] = phases[:, 2 - i : 4 - i, 2 - j : 4 - j].sum(axis=(1, 2)).T
    conv2d_bias_grad(dy, dbias)


def _rounded(multiplier, *operands):
    function = ROUNDED.get(getattr(multiplier, "name", None))
    return (
        [function(values.astype(np.float32)).astype(values.dtype) for values in operands]
        if function
        else operands
    )


def _windows(x, kernel, stride, padding, outside=0):
    """(N, rows, columns, C, kernel, kernel): the pixels of each position of a window."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)), constant_values=outside)
    return sliding_window_view(x, (kernel, kernel), (1, 2))[:, ::stride, ::stride]


# ---- other layers


def relu_forward(x, y):
    y[...] = np.where(x < 0, 0, x)


def relu_backward(y, dy, dx):
    dx[...] = np.where(y > 0, dy, 0)


def maxpool2d_forward(x, y, index, window, stride, padding):
    def flat(windows):
        return windows[:, : y.shape[1], : y.shape[2]].reshape(
            len(windows), *y.shape[1:], window * window
        )

    values = flat(_windows(x, window, stride, padding, -np.inf))
    inside = flat(_windows(np.ones_like(x[:1]), window, stride, padding))
    y[...] = values.max(axis=4)  # of NumPy, which takes NaN for the largest
    index[...] = np.where(y == -np.inf, inside.argmax(axis=4), values.argmax(axis=4))


def maxpool2d_backward(dy, index, dx, window, stride, padding):
    n, row, column, channel = np.indices(dy.shape, sparse=True)
    dx[...] = 0
    np.add.at(
        dx,
        (
            n,
            stride * row + index // window - padding,
            stride * column + index % window - padding,
            channel,
        ),
        dy,
    )


def upsample2d_forward(x, y):
    y[...] = x.repeat(2, axis=1).repeat(2, axis=2)


def upsample2d_backward(dy, dx):
    count, height, width, channels = dx.shape
    dx[...] = dy.reshape(count, height, 2, width, 2, channels).sum(axis=(2, 4))


def global_avgpool_forward(x, y):
    y[...] = x.mean(axis=(1, 2), keepdims=True)


def global_avgpool_backward(dy, dx):
    dx[...] = dy / dx.dtype.type(dx.shape[1] * dx.shape[2])


def add_forward(a, b, y):
    np.add(a, b, y)


def pad_forward(x, y, amount):
    y[...] = 0
    y[:, amount : amount + x.shape[1], amount : amount + x.shape[2]] = x


def flatten_forward(x, y):
    y[...] = x.transpose(0, 3, 1, 2).reshape(y.shape)


def flatten_backward(dy, dx):
    count, height, width, channels = dx.shape
    dx[...] = dy.reshape(count, channels, height, width).transpose(0, 2, 3, 1)


def batchnorm_forward(x, weight, bias, y, mean, inverse, running_mean, running_var, decay, epsilon):
    values = x.reshape(-1, x.shape[3]).astype(np.float64)
    means, variances = values.mean(axis=0), values.var(axis=0)
    mean[...], inverse[...] = means, 1 / np.sqrt(variances + epsilon)
    running_mean[...] = decay * running_mean + (1 - decay) * means
    running_var[...] = decay * running_var + (1 - decay) * variances * len(values) / max(
        1, len(values) - 1
    )
    y[...] = weight * ((x - mean) * inverse) + bias


def batchnorm_backward(x, weight, mean, inverse, dy, dx, dweight, dbias):
    normalized, values = (x - mean) * inverse, x.dtype.type(x.size // x.shape[3])
    dweight[...] = (dy.astype(np.float64) * normalized).sum(axis=(0, 1, 2))
    dbias[...] = dy.sum(axis=(0, 1, 2), dtype=np.float64)
    dx[...] = weight * inverse * (dy - (dbias / values + normalized * (dweight / values)))


# ---- losses and updates


def mse(prediction, target, counters, gradient, losses, divisor):
    difference = prediction - target
    losses[counters[2]] = np.square(difference, dtype=np.float64).mean()
    gradient[...] = prediction.dtype.type(2 / divisor) * difference


def cross_entropy(prediction, labels, permutation, counters, gradient, losses, hits):
    scores, rows = prediction[:, 0, 0].astype(np.float64), np.arange(len(prediction))
    right = labels[permutation[counters[1] + rows]]
    scores -= scores.max(axis=1, keepdims=True)
    sums = np.exp(scores).sum(axis=1)
    shares = np.exp(scores) / sums[:, None]
    shares[rows, right] -= 1
    gradient[:, 0, 0] = shares / len(rows)
    losses[counters[2]] = (np.log(sums) - scores[rows, right]).mean()
    hits[counters[2]] = ((scores.argmax(axis=1) == right) & ~np.isnan(scores).any(axis=1)).sum()


def sgd_update(parameter, gradient, learning_rates, counters, weight_decay, clip):
    parameter[...] = parameter - learning_rates[counters[0]] * _clipped(
        gradient, parameter, weight_decay, clip
    )


def momentum_update(
    parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum
):
    velocity[...] = momentum * velocity + _clipped(gradient, parameter, weight_decay, clip)
    parameter[...] = parameter - learning_rates[counters[0]] * velocity


def _clipped(gradient, parameter, weight_decay, clip):
    return (np.clip(gradient, -clip, clip) if clip > 0 else gradient) + weight_decay * parameter


def advance(counters, batch):
    counters += (1, batch, 1)


OPERATIONS = {
    function.__name__: function
    for function in (
        load_batch,
        conv2d_forward,
        conv2d_input_grad,
        conv2d_weight_grad,
        conv2d_bias_grad,
        decompose_taps,
        phase_conv2d_forward,
        phase_conv2d_input_grad,
        phase_conv2d_weight_grad,
        relu_forward,
        relu_backward,
        maxpool2d_forward,
        maxpool2d_backward,
        upsample2d_forward,
        upsample2d_backward,
        global_avgpool_forward,
        global_avgpool_backward,
        add_forward,
        pad_forward,
        flatten_forward,
        flatten_backward,
        batchnorm_forward,
        batchnorm_backward,
        mse,
        cross_entropy,
        sgd_update,
        momentum_update,
        advance,
    )
}
OPERATIONS |= {  # a dense layer is a convolution of images of one pixel
    "dense_forward": functools.partial(conv2d_forward, stride=1, padding=0),
    "dense_input_grad": functools.partial(conv2d_input_grad, stride=1, padding=0),
    "dense_weight_grad": functools.partial(conv2d_weight_grad, stride=1, padding=0),
    "dense_bias_grad": conv2d_bias_grad,
}
