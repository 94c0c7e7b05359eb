"""The cpu_sequential rung: one thread, one loop nest per operation, compiled by Numba as written.

No blocking, no BLAS, no fusing, and no licence to reorder sums: what a textbook's C program does. Arrays are NHWC, weights
(filters, kernel, kernel, channels); `index` holds the place of each maximum in its 2x2 window, row by row, 0 to 3.
"""

import time

import numba
import numpy as np

from . import runtime


class Executor:
    """Runs plans on one thread (see executors.py), however many it is given."""

    measures_every_step = True

    def __init__(self, threads):
        self.seconds = {}

    def place(self, arrays):
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}   # Numba compiles for one layout

    def allocate(self, plan, placed):
        return {name: placed[name] if name in placed else np.zeros(buffer.shape, buffer.dtype)
                for name, buffer in plan.buffers.items()}

    def fill(self, array, values):
        array[...] = values

    def fetch(self, array):
        return array

    def run(self, plan, arrays):
        for step in plan.steps:
            operands = {role: arrays[name] for role, name in (*step.reads.items(), *step.writes.items())}
            operation = OPERATIONS[step.operation]
            known, started = len(operation.signatures), time.perf_counter()
            operation(**operands, **step.attributes)
            if len(operation.signatures) == known:   # else the time is Numba's, which compiled it
                self.seconds[step.work] = self.seconds.get(step.work, 0.0) + time.perf_counter() - started

    def device(self):
        return f"cpu: {runtime.machine()['processor']}, 1 thread, Numba {numba.__version__}"

    def workspace_bytes(self):
        return 0

    def device_bytes(self):
        return None

    def synchronize(self):
        pass


compiled = numba.njit(cache=True, error_model="numpy")


@compiled
def load_batch(images, permutation, counters, scale, offset, batch, flip):
    count, height, width, channels = batch.shape
    for n in range(count):
        source = permutation[counters[1] + n]
        for row in range(height):
            for column in range(width):
                from_column = width - 1 - column if flip else column
                for channel in range(channels):
                    value = np.float32(images[source, row, from_column, channel]) * scale[channel]
                    batch[n, row, column, channel] = value + offset[channel]


@compiled
def conv2d_forward(x, weight, bias, y, padding):
    count, height, width, channels = x.shape
    filters, kernel = weight.shape[:2]
    for n in range(count):
        for row in range(y.shape[1]):
            for column in range(y.shape[2]):
                for o in range(filters):
                    total = bias[o]
                    for i in range(kernel):
                        from_row = row + i - padding
                        if from_row < 0 or from_row >= height:
                            continue
                        for j in range(kernel):
                            from_column = column + j - padding
                            if from_column < 0 or from_column >= width:
                                continue
                            for c in range(channels):
                                total += x[n, from_row, from_column, c] * weight[o, i, j, c]
                    y[n, row, column, o] = total


@compiled
def conv2d_input_grad(dy, weight, dx, padding):
    count, height, width, channels = dx.shape
    filters, kernel = weight.shape[:2]
    dx[...] = 0
    for n in range(count):
        for row in range(dy.shape[1]):
            for column in range(dy.shape[2]):
                for o in range(filters):
                    gradient = dy[n, row, column, o]
                    for i in range(kernel):
                        to_row = row + i - padding
                        if to_row < 0 or to_row >= height:
                            continue
                        for j in range(kernel):
                            to_column = column + j - padding
                            if to_column < 0 or to_column >= width:
                                continue
                            for c in range(channels):
                                dx[n, to_row, to_column, c] += gradient * weight[o, i, j, c]


@compiled
def conv2d_weight_grad(x, dy, dweight, padding):
    count, height, width, channels = x.shape
    filters, kernel = dweight.shape[:2]
    dweight[...] = 0
    for n in range(count):
        for row in range(dy.shape[1]):
            for column in range(dy.shape[2]):
                for o in range(filters):
                    gradient = dy[n, row, column, o]
                    for i in range(kernel):
                        from_row = row + i - padding
                        if from_row < 0 or from_row >= height:
                            continue
                        for j in range(kernel):
                            from_column = column + j - padding
                            if from_column < 0 or from_column >= width:
                                continue
                            for c in range(channels):
                                dweight[o, i, j, c] += gradient * x[n, from_row, from_column, c]


@compiled
def conv2d_bias_grad(dy, dbias):
    count, height, width, filters = dy.shape
    dbias[...] = 0
    for n in range(count):
        for row in range(height):
            for column in range(width):
                for o in range(filters):
                    dbias[o] += dy[n, row, column, o]


@compiled
def relu_forward(x, y):
    for at in np.ndindex(x.shape):
        value = x[at]
        y[at] = x.dtype.type(0) if value < 0 else value   # a NaN stays one


@compiled
def relu_backward(y, dy, dx):
    for at in np.ndindex(y.shape):
        dx[at] = dy[at] if y[at] > 0 else dy.dtype.type(0)


@compiled
def maxpool2d_forward(x, y, index):
    for n, row, column, channel in np.ndindex(y.shape):
        best, place = x[n, 2 * row, 2 * column, channel], 0
        for other in range(1, 4):
            value = x[n, 2 * row + other // 2, 2 * column + other % 2, channel]
            if value > best or (value != value and best == best):   # a NaN stays one
                best, place = value, other
        y[n, row, column, channel] = best
        index[n, row, column, channel] = place


@compiled
def maxpool2d_backward(dy, index, dx):
    dx[...] = 0
    for n, row, column, channel in np.ndindex(dy.shape):
        place = index[n, row, column, channel]
        dx[n, 2 * row + place // 2, 2 * column + place % 2, channel] = dy[n, row, column, channel]


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
def mse(prediction, target, counters, gradient, losses, divisor):
    total, factor = 0.0, prediction.dtype.type(2 / divisor)
    for at in np.ndindex(prediction.shape):
        difference = prediction[at] - target[at]
        total += np.float64(difference) * difference
        gradient[at] = factor * difference
    losses[counters[2]] = total / prediction.size


@compiled
def _clipped(gradient, parameter, weight_decay, clip):
    if clip > 0 and abs(gradient) > clip:   # a NaN stays one
        gradient = np.copysign(clip, gradient)
    return gradient + weight_decay * parameter


@compiled
def sgd_update(parameter, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]
    for at in np.ndindex(parameter.shape):
        parameter[at] -= rate * _clipped(gradient[at], parameter[at], weight_decay, clip)


@compiled
def momentum_update(parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum):
    rate = learning_rates[counters[0]]
    for at in np.ndindex(parameter.shape):
        velocity[at] = momentum * velocity[at] + _clipped(gradient[at], parameter[at], weight_decay, clip)
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
    rate = learning_rates[counters[0]] / (1 - 0.9 ** step)
    debias = 1 / (1 - 0.999 ** step)
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


OPERATIONS = {function.__name__: function for function in (
    load_batch, conv2d_forward, conv2d_input_grad, conv2d_weight_grad, conv2d_bias_grad, relu_forward, relu_backward,
    maxpool2d_forward, maxpool2d_backward, upsample2d_forward, upsample2d_backward, mse, sgd_update, momentum_update,
    rmsprop_update, adam_update, advance)}
