"""Loops between the cpu rung's matrix products, compiled by Numba where NumPy would walk the data several times.

Each is one thread's work on C-contiguous arrays of one float type, and runs without the interpreter's lock. Inner loops go
along channels, which lie together, and index the arrays themselves: a slice costs more than the few values it saves. Bounds
given as Unsigned need no check for indices from the end, which would keep a loop from using vectors. Nothing may reorder a
sum or fuse a product into it, so that the bytes depend on the data alone. A ReLU leaves NaN as it is.
"""

import numba
import numpy as np

loop = numba.njit(cache=True, nogil=True, error_model="numpy")
Unsigned = np.uint64

ROWS = 64   # whose sums are formed in the data's own precision before they join those of all rows, in float64


@loop
def add_bias(y, first, last, bias, relu):
    """Columns first to last (Unsigned) of y (rows, filters) += bias, then ReLU."""
    zero = y.dtype.type(0)
    for n in range(y.shape[0]):
        for c in range(first, last):
            value = y[n, c] + bias[c]
            y[n, c] = zero if relu & (value < zero) else value


@loop
def add(a, b, y, relu):
    """y = a + b, then ReLU; flat arrays."""
    zero = y.dtype.type(0)
    for i in range(y.size):
        value = a[i] + b[i]
        y[i] = zero if relu & (value < zero) else value


@loop
def relu_gradient(y, dy, dx):
    """dx = dy where y > 0, else 0; flat arrays."""
    zero = y.dtype.type(0)
    for i in range(dx.size):
        dx[i] = dy[i] if y[i] > zero else zero


@loop
def column_sums(x, first, last, sums):
    """sums = those of columns first to last (Unsigned) of x (rows, columns)."""
    rows, zero = x.shape[0], x.dtype.type(0)
    for c in range(first, last):
        sums[c] = zero
    for n in range(0, rows - 3, 4):
        for c in range(first, last):
            sums[c] += (x[n, c] + x[n + 1, c]) + (x[n + 2, c] + x[n + 3, c])
    for n in range(rows - rows % 4, rows):
        for c in range(first, last):
            sums[c] += x[n, c]


@loop
def col2im(columns, dx, top, left, stride):
    """dx (N, H, W, C) = for each pixel the sum of what `columns` (N, rows, columns, window, window, C) has in its place.

    top, left: where the first window begins.
    """
    images, height, width, channels = dx.shape
    zero = dx.dtype.type(0)
    for n in range(images):
        for r in range(height):
            for q in range(width):
                for c in range(channels):
                    dx[n, r, q, c] = zero
        for r in range(columns.shape[1]):
            for q in range(columns.shape[2]):
                for i in range(columns.shape[3]):
                    row = r * stride + i + top
                    if row < 0 or row >= height:
                        continue
                    for j in range(columns.shape[4]):
                        column = q * stride + j + left
                        if column < 0 or column >= width:
                            continue
                        for c in range(channels):
                            dx[n, row, column, c] += columns[n, r, q, i, j, c]


@loop
def maxpool(x, y, index, window, stride, padding, relu):
    """y = the first maximum of each window's pixels in the image, index = its place, row by row; a NaN wins. Then ReLU."""
    images, height, width, channels = x.shape
    zero = x.dtype.type(0)
    for n in range(images):
        for r in range(y.shape[1]):
            for q in range(y.shape[2]):
                top, left = r * stride - padding, q * stride - padding
                first_row, first_column = max(0, -top), max(0, -left)
                here = np.uint8(window * first_row + first_column)
                for c in range(channels):
                    y[n, r, q, c] = x[n, top + first_row, left + first_column, c]
                    index[n, r, q, c] = here
                for i in range(first_row, min(window, height - top)):
                    for j in range(first_column, min(window, width - left)):
                        here = np.uint8(window * i + j)
                        for c in range(channels):
                            value, best = x[n, top + i, left + j, c], y[n, r, q, c]
                            wins = (value > best) | ((value != value) & (best == best))
                            y[n, r, q, c] = value if wins else best
                            index[n, r, q, c] = here if wins else index[n, r, q, c]
                if relu:
                    for c in range(channels):
                        value = y[n, r, q, c]
                        y[n, r, q, c] = zero if value < zero else value


@loop
def maxpool_gradient(dy, y, index, dx, window, stride, padding, relu):
    """dx = each window's dy at its maximum, added up in the windows' order; with `relu` only where y > 0."""
    images, height, width, channels = dx.shape
    zero = dx.dtype.type(0)
    for n in range(images):
        for r in range(height):
            for q in range(width):
                for c in range(channels):
                    dx[n, r, q, c] = zero
        for r in range(dy.shape[1]):
            for q in range(dy.shape[2]):
                top, left = r * stride - padding, q * stride - padding
                for i in range(max(0, -top), min(window, height - top)):
                    for j in range(max(0, -left), min(window, width - left)):
                        here = np.uint8(window * i + j)
                        for c in range(channels):
                            takes = (index[n, r, q, c] == here) & ((not relu) | (y[n, r, q, c] > zero))
                            dx[n, top + i, left + j, c] += dy[n, r, q, c] if takes else zero


@loop
def batch_statistics(x, first, last, mean, inverse, running_mean, running_var, decay, epsilon):
    """mean and 1 / sqrt(variance + epsilon) of channels first to last (Unsigned) of x (rows, channels), and the running ones.

    ROWS rows at a time, as distances from the mean of the rows before, whose sums and sums of squares are small numbers; then
    in float64: two sets of n and m values whose means lie d apart have together the sum of their own squared distances from
    their means and d^2 n m / (n + m) (Chan, Golub and LeVeque, 1983).
    """
    rows, channels = x.shape
    zero = x.dtype.type(0)
    near, part, square = np.empty(channels, x.dtype), np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    total, squares = np.zeros(channels), np.zeros(channels)
    for c in range(first, last):
        near[c] = x[0, c]
    for begin in range(0, rows, ROWS):
        end = min(begin + ROWS, rows)
        count = end - begin
        for c in range(first, last):
            part[c] = zero
            square[c] = zero
        for n in range(begin, end):
            for c in range(first, last):
                apart = x[n, c] - near[c]
                part[c] += apart
                square[c] += apart * apart
        for c in range(first, last):
            shift = part[c] / np.float64(count)
            apart = near[c] + shift - total[c]
            total[c] += apart * count / end
            squares[c] += square[c] - shift * part[c] + apart * apart * begin * count / end
            near[c] = total[c]
    for c in range(first, last):
        mean[c] = total[c]
        inverse[c] = 1 / np.sqrt(squares[c] / rows + epsilon)
        running_mean[c] = decay * running_mean[c] + (1 - decay) * total[c]
        running_var[c] = decay * running_var[c] + (1 - decay) * (squares[c] / max(1, rows - 1))


@loop
def normalize(x, first, last, mean, factor, bias, y, relu):
    """y = (x - mean) factor + bias for channels first to last (Unsigned) of x (rows, channels), then ReLU."""
    zero = x.dtype.type(0)
    for n in range(x.shape[0]):
        for c in range(first, last):
            value = (x[n, c] - mean[c]) * factor[c] + bias[c]
            y[n, c] = zero if relu & (value < zero) else value


@loop
def normalize_gradients(x, dy, first, last, mean, inverse, weight, bias, dx, dweight, dbias, relu):
    """Gradients of batch normalisation for channels first to last (Unsigned) of x (rows, channels).

    With `relu` of a ReLU after it too, whose input is computed again as `normalize` does it.
    """
    rows, channels = x.shape
    zero, factor = x.dtype.type(0), weight * inverse
    part, product = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    sums, products = np.zeros(channels), np.zeros(channels)
    for begin in range(0, rows, ROWS):
        for c in range(first, last):
            part[c] = zero
            product[c] = zero
        for n in range(begin, min(begin + ROWS, rows)):
            for c in range(first, last):
                apart = x[n, c] - mean[c]
                value = dy[n, c] if (not relu) | (apart * factor[c] + bias[c] > zero) else zero
                part[c] += value
                product[c] += value * apart
        for c in range(first, last):
            sums[c] += part[c]
            products[c] += product[c]
    for c in range(first, last):
        dbias[c] = sums[c]
        dweight[c] = products[c] * inverse[c]
        part[c] = sums[c] / rows
        product[c] = products[c] * inverse[c] * inverse[c] / rows
    for n in range(rows):
        for c in range(first, last):
            apart = x[n, c] - mean[c]
            value = dy[n, c] if (not relu) | (apart * factor[c] + bias[c] > zero) else zero
            dx[n, c] = (value - part[c] - apart * product[c]) * factor[c]


@loop
def cross_entropy(scores, labels, gradient):
    """(sum of -log softmax at the label, rows whose first largest score is there) of scores (rows, classes).

    gradient = (softmax - one at the label) / rows. A row with a NaN is no hit.
    """
    rows, classes = scores.shape
    exponentials = np.empty(classes)
    loss, hits = 0.0, 0.0
    for n in range(rows):
        best, label = 0, np.int64(labels[n])
        for c in range(classes):
            if scores[n, c] > scores[n, best]:
                best = c
        total, top = 0.0, np.float64(scores[n, best])
        for c in range(classes):
            exponentials[c] = np.exp(np.float64(scores[n, c]) - top)
            total += exponentials[c]
        loss += np.log(total) - (np.float64(scores[n, label]) - top)
        if best == label and total == total:
            hits += 1
        for c in range(classes):
            gradient[n, c] = (exponentials[c] / total - (1.0 if c == label else 0.0)) / rows
    return loss, hits


@loop
def sgd(parameter, gradient, rate, weight_decay, clip):
    """The rules of optimizers.py, each for flat arrays and numbers of the arrays' type."""
    for i in range(parameter.size):
        parameter[i] -= rate * _decayed(gradient[i], parameter[i], weight_decay, clip)


@loop
def momentum(parameter, gradient, velocity, rate, weight_decay, clip, keep):
    for i in range(parameter.size):
        velocity[i] = keep * velocity[i] + _decayed(gradient[i], parameter[i], weight_decay, clip)
        parameter[i] -= rate * velocity[i]


@loop
def rmsprop(parameter, gradient, square, rate, weight_decay, clip, keep, add, epsilon):
    for i in range(parameter.size):
        g = _decayed(gradient[i], parameter[i], weight_decay, clip)
        square[i] = keep * square[i] + add * g * g
        parameter[i] -= rate * g / (np.sqrt(square[i]) + epsilon)


@loop
def adam(parameter, gradient, mean, square, rate, weight_decay, clip, keep, add, keep_square, add_square, debias, epsilon):
    for i in range(parameter.size):
        g = _decayed(gradient[i], parameter[i], weight_decay, clip)
        mean[i] = keep * mean[i] + add * g
        square[i] = keep_square * square[i] + add_square * g * g
        parameter[i] -= rate * mean[i] / (np.sqrt(debias * square[i]) + epsilon)


@loop
def _decayed(gradient, parameter, weight_decay, clip):
    if clip > 0:   # a NaN stays one
        gradient = -clip if gradient < -clip else clip if gradient > clip else gradient
    return gradient + weight_decay * parameter
