"""Both polarities of activations, averaged over a grid, image by image: the maps before the average
are never stored.
"""

import numba
import numpy as np

IMAGES = 8  # of a piece of work


def average(values, mean, scale, threshold, grid, library):
    """float32 (N, 2 C grid grid) in CHW order: the means over each cell of relu(z - threshold),
    then of relu(-z - threshold).

    z = (values - mean) * scale; values: float32 (N, H, W, C), mean, scale: float32 (C,). ValueError
    if the grid does not divide H and W. library: arrays.NumPy or CuPy, whose threads share the
    images; the bytes do not depend on it.
    """
    count, height, width, channels = values.shape
    if height % grid or width % grid:
        raise ValueError(f"{height}x{width} activations cannot be pooled to {grid}x{grid}")
    out = np.empty((count, 2 * channels, grid, grid), np.float32)

    def work(start):
        block = slice(start, start + IMAGES)
        _average(values[block], mean, scale, np.float32(threshold), out[block])

    library.each(work, range(0, count, IMAGES))
    return out.reshape(count, -1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _average(values, mean, scale, threshold, out):
    """As `average`, out (N, 2 C, grid, grid). NaN stays NaN."""
    count, height, width, _ = values.shape
    grid, zero = out.shape[2], np.float32(0)
    # unsigned: no negative indices
    rows, columns, channels = height // grid, width // grid, np.uint64(values.shape[3])
    above, below = np.empty(values.shape[3], np.float32), np.empty(values.shape[3], np.float32)
    share = np.float32(1 / (rows * columns))
    for n in range(count):
        for i in range(grid):
            for j in range(grid):
                above[:], below[:] = 0, 0
                for row in range(i * rows, (i + 1) * rows):
                    for column in range(j * columns, (j + 1) * columns):
                        for c in range(channels):
                            z = (values[n, row, column, c] - mean[c]) * scale[c]
                            over, under = z - threshold, -z - threshold
                            above[c] += zero if over < zero else over
                            below[c] += zero if under < zero else under
                for c in range(channels):
                    out[n, c, i, j] = above[c] * share
                    out[n, channels + c, i, j] = below[c] * share
