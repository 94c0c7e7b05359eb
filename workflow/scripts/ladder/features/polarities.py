"""Both polarities of activations, max-pooled and averaged over a grid, image by image: the maps
before the average are never stored.
"""

import numba
import numpy as np

IMAGES = 8  # of a piece of work
loop = numba.njit(cache=True, nogil=True, error_model="numpy")


def average(values, scaled, threshold, window, grid, library):
    """float32 (N, 2 C grid grid) in CHW order: the means over each cell of relu(z - threshold),
    then of relu(-z - threshold), each the largest of windows of window x window pixels.

    z = (values - mean) * scale; values: float32 (N, H, W, C); scaled: (mean, scale), float32 (C,),
    or None for z = values. ValueError if windows and grid do not divide H and W. library:
    arrays.NumPy or CuPy, whose threads share the images; the bytes do not depend on it.
    """
    count, height, width, channels = values.shape
    if height % (window * grid) or width % (window * grid):
        of_windows = f", in windows of {window}x{window}" if window > 1 else ""
        raise ValueError(
            f"{height}x{width} activations cannot be pooled to {grid}x{grid}{of_windows}"
        )
    mean, scale = scaled or (np.zeros(channels, np.float32), np.ones(channels, np.float32))
    out = np.empty((count, 2 * channels, grid, grid), np.float32)

    def work(start):
        block = slice(start, start + IMAGES)
        _average(values[block], mean, scale, (np.float32(threshold), window), out[block])

    library.each(work, range(0, count, IMAGES))
    return out.reshape(count, -1)


@loop
def moments(rows):
    """float64 (2, C): the sums of rows float32 (N, C) and of their squares, row after row."""
    channels = np.uint64(rows.shape[1])  # unsigned: no negative indices
    sums = np.zeros((2, rows.shape[1]))
    for n in range(rows.shape[0]):
        for c in range(channels):
            value = np.float64(rows[n, c])
            sums[0, c] += value
            sums[1, c] += value * value
    return sums


@loop
def _average(values, mean, scale, options, out):
    """As `average`, out (N, 2 C, grid, grid); options: (threshold, window). NaN stays NaN."""
    threshold, window = options
    grid, zero, channels = out.shape[2], np.float32(0), np.uint64(values.shape[3])
    rows, columns = values.shape[1] // (window * grid), values.shape[2] // (window * grid)
    sums = np.empty((2, values.shape[3]), np.float32)
    ends = np.empty((2, values.shape[3]), np.float32)
    share = np.float32(1 / (rows * columns))
    for n in range(values.shape[0]):
        for i in range(grid):
            for j in range(grid):
                sums[:] = 0
                for row in range(i * rows, (i + 1) * rows):
                    for column in range(j * columns, (j + 1) * columns):
                        _ends(values[n], (row * window, column * window, window), mean, scale, ends)
                        for c in range(channels):
                            over, under = ends[0, c] - threshold, -ends[1, c] - threshold
                            sums[0, c] += zero if over < zero else over
                            sums[1, c] += zero if under < zero else under
                for c in range(channels):
                    out[n, c, i, j] = sums[0, c] * share
                    out[n, channels + c, i, j] = sums[1, c] * share


@loop
def _ends(values, place, mean, scale, ends):
    """ends (2, C) = the largest and the smallest z of a window of values (H, W, C); place: (top,
    left, side).
    """
    top, left, side = place
    channels = np.uint64(values.shape[2])
    for c in range(channels):
        z = (values[top, left, c] - mean[c]) * scale[c]
        ends[0, c] = z
        ends[1, c] = z
    for at in range(1, side * side):
        row, column = top + at // side, left + at % side
        for c in range(channels):
            z = (values[row, column, c] - mean[c]) * scale[c]
            largest, smallest = ends[0, c], ends[1, c]
            ends[0, c] = z if (z > largest) | (z != z) else largest
            ends[1, c] = z if (z < smallest) | (z != z) else smallest
