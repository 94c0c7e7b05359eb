"""Loops between the cpu rung's matrix products, compiled by Numba where NumPy would pass over the
data several times.

Each is one thread's work on C-contiguous arrays of one float type, and releases the interpreter
lock. Inner loops run along channels, which are contiguous, and index the arrays directly: a slice
costs more than it saves. Unsigned bounds avoid the check for negative indices, which would prevent
vectorization. No sum may be reordered and no product fused into it, so that the results' bytes
depend on the data only. ReLU keeps NaN.
"""

import numba
import numpy as np

loop = numba.njit(cache=True, nogil=True, error_model="numpy")
Unsigned = np.uint64

LINE = 16  # float32 numbers of a cache line
ROWS = 64  # rows summed in the data's own precision before they are added to the float64 total


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
def soft_threshold(x, threshold, y):
    """y (rows, 2 C) = max(x - threshold, 0), then max(-x - threshold, 0), of x (rows, C)."""
    channels, zero = Unsigned(x.shape[1]), x.dtype.type(0)
    for n in range(x.shape[0]):
        for c in range(channels):
            above, below = x[n, c] - threshold, -x[n, c] - threshold
            y[n, c] = zero if above < zero else above
            y[n, channels + c] = zero if below < zero else below


@loop
def soft_threshold_avgpool(x, inverse, threshold, first, y, window, stride, padding):
    """y = the mean over windows of the soft threshold of x (H, W, C) * inverse (H, W); zeros around
    it.

    x may be a part of all channels, those from `first` (Unsigned) on: of y (rows, columns, twice
    all channels), whose second half is of the negative values, only their places are written.
    """
    height, width, _ = x.shape
    channels, zero, share = (
        Unsigned(x.shape[2]),
        x.dtype.type(0),
        x.dtype.type(1 / (window * window)),
    )
    second = Unsigned(y.shape[2] // 2) + first  # of the negative values
    for r in range(y.shape[0]):
        for q in range(y.shape[1]):
            top, left = r * stride - padding, q * stride - padding
            for c in range(channels):
                y[r, q, first + c] = zero
                y[r, q, second + c] = zero
            for i in range(max(0, top), min(height, top + window)):
                for j in range(max(0, left), min(width, left + window)):
                    factor = inverse[i, j]
                    for c in range(channels):
                        value = x[i, j, c] * factor
                        above, below = value - threshold, -value - threshold
                        y[r, q, first + c] += zero if above < zero else above
                        y[r, q, second + c] += zero if below < zero else below
            for c in range(channels):
                y[r, q, first + c] *= share
                y[r, q, second + c] *= share


@loop
def inverse_deviations(image, kernel, epsilon, pixels, columns, out):
    """out = 1 / sqrt(variance + epsilon) of every window of kernel x kernel pixels in an image (H,
    W, C).

    pixels, columns: work space, float64 (2, H, W) and (2, W): sums of the values and of their
    squares.
    """
    height, width, channels = image.shape
    middle, numbers = 0.0, kernel * kernel * channels
    for value in image.flat:
        middle += value
    # subtracted, as of a large common value the variance would have few digits
    middle /= image.size
    pixels[:] = 0
    for row in range(height):
        for column in range(width):
            for c in range(channels):
                value = np.float64(image[row, column, c]) - middle
                pixels[0, row, column] += value
                pixels[1, row, column] += value * value
    for i in range(out.shape[0]):
        columns[:] = 0
        for row in range(i, i + kernel):
            for column in range(width):
                columns[0, column] += pixels[0, row, column]
                columns[1, column] += pixels[1, row, column]
        for j in range(out.shape[1]):
            total = squares = 0.0
            for column in range(j, j + kernel):
                total += columns[0, column]
                squares += columns[1, column]
            variance = squares / numbers - (total / numbers) * (total / numbers)
            # NaN stays NaN
            out[i, j] = 1 / np.sqrt((0.0 if variance < 0.0 else variance) + epsilon)


@loop
def column_sums(x, first, last, sums):
    """sums of columns first to last (Unsigned) of x (rows, columns)."""
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
def add_up(parts, first, last):
    """Add columns first to last (Unsigned) of all rows of parts to the first row, in order."""
    for n in range(1, parts.shape[0]):
        for i in range(first, last):
            parts[0, i] += parts[n, i]


@loop
def transpose(x, start, stop, y):
    """y (n, columns, rows) = the matrices start to stop of x (n, rows, columns), transposed in
    blocks that fit cache lines.
    """
    for n in range(start, stop):
        for top in range(0, x.shape[1], LINE):
            for left in range(0, x.shape[2], LINE):
                for c in range(left, min(x.shape[2], left + LINE)):
                    for r in range(top, min(x.shape[1], top + LINE)):
                        y[n, c, r] = x[n, r, c]


@loop
def add_taps(taps, y):
    """y (N, 2 H, 2 W, filters) = for each pixel, the sum of the contributions taps (N, H, W, 4, 4,
    filters) of the up to four input pixels around it.

    An even row takes tap 1 of its own input row and tap 3 of the one above, an odd one tap 2 and
    tap 0 of the one below; columns likewise.
    """
    images, height, width, _, _, filters = taps.shape
    for n in range(images):
        for r in range(2 * height):
            row, row_tap = r // 2, 1 + r % 2
            next_row, next_row_tap = (row - 1, 3) if r % 2 == 0 else (row + 1, 0)
            has_row = (next_row >= 0) & (next_row < height)
            for q in range(2 * width):
                column, column_tap = q // 2, 1 + q % 2
                next_column, next_column_tap = (column - 1, 3) if q % 2 == 0 else (column + 1, 0)
                has_column = (next_column >= 0) & (next_column < width)
                for c in range(filters):
                    y[n, r, q, c] = taps[n, row, column, row_tap, column_tap, c]
                if has_column:
                    for c in range(filters):
                        y[n, r, q, c] += taps[n, row, next_column, row_tap, next_column_tap, c]
                if has_row:
                    for c in range(filters):
                        y[n, r, q, c] += taps[n, next_row, column, next_row_tap, column_tap, c]
                if has_row & has_column:
                    for c in range(filters):
                        y[n, r, q, c] += taps[
                            n, next_row, next_column, next_row_tap, next_column_tap, c
                        ]


@loop
def col2im(columns, dx, channels, top, left, stride):
    """dx (N, H, W * C) = for each pixel, the sum of its entries in `columns` (N, rows, columns,
    window, window * C).

    top, left: position of the first window.
    """
    images, height, width = dx.shape
    zero = dx.dtype.type(0)
    for n in range(images):
        for r in range(height):
            for k in range(width):
                dx[n, r, k] = zero
        for r in range(columns.shape[1]):
            for q in range(columns.shape[2]):
                start = (q * stride + left) * channels
                begin = max(0, -start)
                count = min(columns.shape[4], width - start) - begin
                if count <= 0:
                    continue
                skipped, to, run = Unsigned(begin), Unsigned(start + begin), Unsigned(count)
                for i in range(
                    max(0, -(r * stride + top)), min(columns.shape[3], height - (r * stride + top))
                ):
                    for k in range(run):
                        dx[n, r * stride + top + i, to + k] += columns[n, r, q, i, skipped + k]


@loop
def turned_windows(frame, columns):
    """columns (window, window, C, N, rows, columns) = the windows of frame (N, H, W, C) with stride
    1.
    """
    for n in range(columns.shape[3]):
        for i in range(columns.shape[0]):
            for j in range(columns.shape[1]):
                for c in range(columns.shape[2]):
                    for r in range(columns.shape[4]):
                        for q in range(columns.shape[5]):
                            columns[i, j, c, n, r, q] = frame[n, r + i, q + j, c]


@loop
def maxpool(x, y, index, window, stride, padding):
    """y = the first maximum of each window's pixels in the image, index = its position in row-major
    order; NaN wins.
    """
    images, height, width, channels = x.shape
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


@loop
def maxpool_gradient(dy, index, dx, window, stride, padding):
    """dx = each window's dy at its maximum, added up in window order."""
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
                            dx[n, top + i, left + j, c] += (
                                dy[n, r, q, c] if index[n, r, q, c] == here else zero
                            )


@loop
def _largest_of_four(a, b, c, d):
    """(the first maximum, its number from 0 on), NaN wins; without branches, which would be
    mispredicted.
    """
    above = not ((b <= a) | (a != a))  # true if the second is larger
    upper = b if above else a
    below = not ((d <= c) | (c != c))
    lower = d if below else c
    low = not ((lower <= upper) | (upper != upper))
    down = np.uint8(low)
    return lower if low else upper, 2 * down + (down & np.uint8(below)) + (
        (np.uint8(1) - down) & np.uint8(above)
    )


@loop
def maxpool_2x2(x, bias, y, index, relu):
    """As `maxpool` of x + bias with 2x2 windows and stride 2, then ReLU."""
    zero = x.dtype.type(0)
    for n in range(y.shape[0]):
        for r in range(y.shape[1]):
            for q in range(y.shape[2]):
                for c in range(y.shape[3]):
                    best, place = _largest_of_four(
                        x[n, 2 * r, 2 * q, c] + bias[c],
                        x[n, 2 * r, 2 * q + 1, c] + bias[c],
                        x[n, 2 * r + 1, 2 * q, c] + bias[c],
                        x[n, 2 * r + 1, 2 * q + 1, c] + bias[c],
                    )
                    y[n, r, q, c] = zero if relu & (best < zero) else best
                    index[n, r, q, c] = place


@loop
def maxpool_2x2_gradient(dy, y, index, dx, relu):
    """As `maxpool_gradient` with 2x2 windows and stride 2; with `relu`, only where y > 0."""
    _, height, width, channels = dx.shape
    zero = dx.dtype.type(0)
    for n in range(dy.shape[0]):
        for r in range(2 * dy.shape[1], height):
            for q in range(width):
                for c in range(channels):
                    dx[n, r, q, c] = zero
        for r in range(dy.shape[1]):
            for q in range(2 * dy.shape[2], width):
                for c in range(channels):
                    dx[n, 2 * r, q, c] = zero
                    dx[n, 2 * r + 1, q, c] = zero
            if channels < 16:  # too few for a vector
                for q in range(dy.shape[2]):
                    for c in range(channels):
                        place, value = (
                            index[n, r, q, c],
                            dy[n, r, q, c] if (not relu) | (y[n, r, q, c] > zero) else zero,
                        )
                        dx[n, 2 * r, 2 * q, c] = value if place == 0 else zero
                        dx[n, 2 * r, 2 * q + 1, c] = value if place == 1 else zero
                        dx[n, 2 * r + 1, 2 * q, c] = value if place == 2 else zero
                        dx[n, 2 * r + 1, 2 * q + 1, c] = value if place == 3 else zero
                continue
            for i in range(2):
                for q in range(dy.shape[2]):
                    for j in range(2):
                        here = np.uint8(2 * i + j)
                        for c in range(channels):
                            value = dy[n, r, q, c] if (not relu) | (y[n, r, q, c] > zero) else zero
                            dx[n, 2 * r + i, 2 * q + j, c] = (
                                value if index[n, r, q, c] == here else zero
                            )


@loop
def maxpool_rows(first, second, third, fourth, bias, y, index, relu):
    """As `maxpool_2x2` for one row of windows, given the rows of their four pixels in row-major
    order; all flat.
    """
    zero = y.dtype.type(0)
    for k in range(y.size):
        best, place = _largest_of_four(
            first[k] + bias[k], second[k] + bias[k], third[k] + bias[k], fourth[k] + bias[k]
        )
        y[k] = zero if relu & (best < zero) else best
        index[k] = place


@loop
def maxpool_rows_gradient(dy, y, index, first, second, third, fourth, sums, relu):
    """As `maxpool_2x2_gradient` for one row of windows, into the rows of their four pixels; adds
    what passes to sums.
    """
    zero = dy.dtype.type(0)
    for k in range(dy.size):
        value, place = dy[k] if (not relu) | (y[k] > zero) else zero, index[k]
        first[k] = value if place == 0 else zero
        second[k] = value if place == 1 else zero
        third[k] = value if place == 2 else zero
        fourth[k] = value if place == 3 else zero
        sums[k] += value


@loop
def pass_and_sum(dy, y, dx, sums, relu):
    """dx = dy, with relu only where y > 0, else 0; added to sums; all flat."""
    zero = dy.dtype.type(0)
    for k in range(dy.size):
        value = dy[k] if (not relu) | (y[k] > zero) else zero
        dx[k] = value
        sums[k] += value


@loop
def moments(x, first, last, total, squares):
    """total = mean, squares = sum of squared deviations, float64, of channels first to last
    (Unsigned) of x (rows, C).

    ROWS rows at a time are summed as deviations from the mean of the rows before, which are small
    numbers. They are merged in float64: the squared deviations of two sets of n and m values with
    means d apart are the sum of both sets' squared deviations and d^2 n m / (n + m) (Chan, Golub
    and LeVeque, 1983).
    """
    rows, channels = x.shape
    zero = x.dtype.type(0)
    near, part, square = (
        np.empty(channels, x.dtype),
        np.empty(channels, x.dtype),
        np.empty(channels, x.dtype),
    )
    for c in range(first, last):
        near[c] = x[0, c]
        total[c] = 0.0
        squares[c] = 0.0
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


@loop
def merge_moments(counts, parts):
    """Merge the `moments` parts (n, 2, C) of counts (n,) rows each into the first, in order, as
    `moments` does.
    """
    count = np.float64(counts[0])
    for n in range(1, parts.shape[0]):
        more = np.float64(counts[n])
        count += more
        for c in range(parts.shape[2]):
            apart = parts[n, 0, c] - parts[0, 0, c]
            parts[0, 0, c] += apart * more / count
            parts[0, 1, c] += parts[n, 1, c] + apart * apart * ((count - more) * more / count)


@loop
def global_avgpool(x, y):
    """y (N, C) = means over the pixels of x (N, pixels, C)."""
    images, pixels, channels = x.shape
    share = x.dtype.type(1) / x.dtype.type(pixels)
    for n in range(images):
        for c in range(channels):
            y[n, c] = x[n, 0, c]
        for p in range(1, pixels):
            for c in range(channels):
                y[n, c] += x[n, p, c]
        for c in range(channels):
            y[n, c] *= share


@loop
def batch_statistics(
    rows,
    total,
    squares,
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
):
    """Statistics and scale factor of batch normalization from the `moments` of all rows, channels
    first to last (Unsigned).
    """
    for c in range(first, last):
        mean[c] = total[c]
        inverse[c] = 1 / np.sqrt(squares[c] / rows + epsilon)
        factor[c] = weight[c] * inverse[c]
        running_mean[c] = decay * running_mean[c] + (1 - decay) * total[c]
        running_var[c] = decay * running_var[c] + (1 - decay) * (squares[c] / max(1, rows - 1))


@loop
def normalize(x, first, last, mean, factor, bias, y, relu):
    """y = (x - mean) factor + bias for channels first to last (Unsigned) of x (rows, channels),
    then ReLU.
    """
    zero = x.dtype.type(0)
    for n in range(x.shape[0]):
        for c in range(first, last):
            value = (x[n, c] - mean[c]) * factor[c] + bias[c]
            y[n, c] = zero if relu & (value < zero) else value


@loop
def gradient_sums(x, dy, first, last, mean, factor, bias, sums, products, relu):
    """sums of dy and products = sums of dy (x - mean), float64, for channels first to last
    (Unsigned) of x (rows, C).

    With `relu`, of the dy that the ReLU passes; its input is recomputed as in `normalize`.
    """
    rows, channels = x.shape
    zero = x.dtype.type(0)
    part, product = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    for c in range(first, last):
        sums[c] = 0.0
        products[c] = 0.0
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


@loop
def parameter_gradients(rows, sums, products, first, last, inverse, dweight, dbias, offset, slope):
    """dweight and dbias of channels first to last from their `gradient_sums`, and offset and slope
    for `input_gradient`.
    """
    for c in range(first, last):
        dbias[c] = sums[c]
        dweight[c] = products[c] * inverse[c]
        offset[c] = sums[c] / rows
        slope[c] = products[c] * inverse[c] * inverse[c] / rows


@loop
def input_gradient(x, dy, first, last, mean, factor, bias, offset, slope, dx, relu):
    """dx = (dy - offset - (x - mean) slope) factor for channels first to last (Unsigned) of x
    (rows, C).

    relu: as in gradient_sums.
    """
    zero = x.dtype.type(0)
    for n in range(x.shape[0]):
        for c in range(first, last):
            apart = x[n, c] - mean[c]
            value = dy[n, c] if (not relu) | (apart * factor[c] + bias[c] > zero) else zero
            dx[n, c] = (value - offset[c] - apart * slope[c]) * factor[c]


@loop
def cross_entropy(scores, labels, gradient):
    """(sum of -log softmax at the label, number of rows whose first largest score is at the label)
    of scores (rows, classes).

    gradient = (softmax - one-hot label) / rows. A row with NaN is not a hit.
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
    """The update rules of optimizers.py, for flat arrays and numbers of the arrays' type."""
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
def load(images, rows, scale, offset, batch):
    """batch (N, H, W * C) = these rows of `images` times scale plus offset, each (W * C)."""
    width = Unsigned(batch.shape[2])
    for n in range(batch.shape[0]):
        row = rows[n]
        for r in range(batch.shape[1]):
            for k in range(width):
                batch[n, r, k] = np.float32(images[row, r, k]) * scale[k] + offset[k]


@loop
def adam(
    parameter,
    gradient,
    mean,
    square,
    rate,
    weight_decay,
    clip,
    keep,
    add,
    keep_square,
    add_square,
    debias,
    epsilon,
):
    for i in range(parameter.size):
        g = _decayed(gradient[i], parameter[i], weight_decay, clip)
        mean[i] = keep * mean[i] + add * g
        square[i] = keep_square * square[i] + add_square * g * g
        parameter[i] -= rate * mean[i] / (np.sqrt(debias * square[i]) + epsilon)


@loop
def _decayed(gradient, parameter, weight_decay, clip):
    if clip > 0:  # keeps NaN
        gradient = -clip if gradient < -clip else clip if gradient > clip else gradient
    return gradient + weight_decay * parameter


@loop
def winners(x, count, mask, largest):
    """mask (pixels, C) uint8 = 1 at the `count` largest values of each column of x (pixels, C),
    else 0.

    largest (C,): the largest of each column. Of equal values the first wins; NaN wins over all
    numbers.
    """
    pixels, channels = x.shape
    place = np.empty(channels, np.int64)
    best = np.empty(channels, x.dtype)
    for p in range(pixels):
        for c in range(channels):
            mask[p, c] = 0
    for rank in range(count):
        for c in range(channels):
            place[c] = -1
        for p in range(pixels):
            for c in range(channels):
                value = x[p, c]
                if mask[p, c] == 0 and (
                    place[c] < 0 or value > best[c] or (value != value and best[c] == best[c])
                ):
                    place[c], best[c] = p, value
        for c in range(channels):
            mask[place[c], c] = 1
            if rank == 0:
                largest[c] = best[c]


@loop
def first_maximum(x, bias, value, place):
    """value (C,) = relu of the largest of each column of x (pixels, C) + its bias; place (C,)
    int32: the first such pixel.
    """
    pixels, channels, zero = Unsigned(x.shape[0]), Unsigned(x.shape[1]), x.dtype.type(0)
    for c in range(channels):
        value[c], place[c] = x[0, c], 0
    for p in range(Unsigned(1), pixels):
        for c in range(channels):
            wins = (x[p, c] > value[c]) | ((x[p, c] != x[p, c]) & (value[c] == value[c]))
            value[c] = x[p, c] if wins else value[c]
            place[c] = np.int32(p) if wins else place[c]
    for c in range(channels):
        largest = value[c] + bias[c]
        value[c] = zero if largest < zero else largest


@loop
def lasting(largest, images, lasts):
    """lasts (N, C) uint8 = 1 where fewer than `images` of the column of `largest` (N, C) are
    larger, or equal and before.
    """
    count, channels = largest.shape
    rank = np.empty(channels, np.int64)
    for n in range(count):
        for c in range(channels):
            rank[c] = 0
        for m in range(count):
            for c in range(channels):
                own, other = largest[n, c], largest[m, c]
                ahead = (other > own) | ((other != other) & (own == own))
                alike = (other == own) | ((other != other) & (own != own))
                rank[c] += ahead | (alike & (m < n))
        for c in range(channels):
            lasts[n, c] = rank[c] < images


@loop
def add_patches(value, rows, columns, patches, y):
    """y (H, W, C) += value[i] times a patch, for every i in order; rows, columns: where a patch's
    first pixel is.

    patches (F, K, K, C): those of values 0, 1, ..., F - 1, of F, F + 1, ... and so on.
    """
    height, width, channels = y.shape
    kernel, zero = patches.shape[1], y.dtype.type(0)
    for i in range(value.size):
        f, factor, top, left = i % len(patches), value[i], rows[i], columns[i]
        if factor == zero:
            continue
        for v in range(max(0, -top), min(kernel, height - top)):
            for u in range(max(0, -left), min(kernel, width - left)):
                for c in range(channels):
                    y[top + v, left + u, c] += factor * patches[f, v, u, c]


@loop
def winner_dots(value, rows, columns, patches, dy, dvalue):
    """dvalue[i] = the product of a patch, as of add_patches, and the window of dy at rows, columns;
    0 where value is 0.
    """
    height, width, channels = dy.shape
    kernel, zero = patches.shape[1], dy.dtype.type(0)
    for i in range(value.size):
        total = zero
        if value[i] != zero:
            f, top, left = i % len(patches), rows[i], columns[i]
            for v in range(max(0, -top), min(kernel, height - top)):
                for u in range(max(0, -left), min(kernel, width - left)):
                    for c in range(channels):
                        total += dy[top + v, left + u, c] * patches[f, v, u, c]
        dvalue[i] = total


@loop
def add_windows(value, rows, columns, x, first, last, gradient):
    """gradient[f] (K, K, C) += its values, as of add_patches, times their windows of x (H, W, C); f
    from first to last.
    """
    height, width, channels = x.shape
    kernel, zero = gradient.shape[1], x.dtype.type(0)
    for start in range(0, value.size, len(gradient)):
        for f in range(first, last):
            factor, top, left = value[start + f], rows[start + f], columns[start + f]
            if factor == zero:
                continue
            for v in range(max(0, -top), min(kernel, height - top)):
                for u in range(max(0, -left), min(kernel, width - left)):
                    for c in range(channels):
                        gradient[f, v, u, c] += factor * x[top + v, left + u, c]
