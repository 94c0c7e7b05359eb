"""The cpu rung's winner-take-all layers: by themselves, and as the code of an autoencoder whose
zeros are never stored.

An image's code is the values and the places of the winners of each channel. The convolution before
it is computed image by image and only the winners are kept; of the convolution after it and of all
gradients only the terms of winners are formed, which are exact: the others are products with zero.
"""

import numpy as np

from ladder.executors.cpu import blocks, loops
from ladder.executors.cpu.convolution import windows_of
from ladder.executors.cpu.loops import Unsigned

FILTERS = 256  # columns of a product: its result stays in the cache until its winners are found
PIECE = 16  # filters of a share of the weight gradient
LABEL = "sparsity"


def winner_take_all_forward(executor, x, y, mask, winners, images):
    largest = executor.workspace("largest", (len(x), x.shape[3]), x.dtype)
    lasting = executor.workspace("lasting", largest.shape, np.uint8)

    def mark(x, mask, largest):
        loops.winners(x.reshape(-1, x.shape[2]), winners, mask.reshape(-1, x.shape[2]), largest)

    def keep(x, y, mask, lasting):
        mask *= lasting
        np.multiply(x, mask, out=y)

    executor.each(LABEL, winners * x.size, mark, x, mask, largest)
    loops.lasting(largest, images, lasting)
    executor.each(LABEL, 2 * x.size, keep, x, y, mask, lasting)


def winner_take_all_backward(executor, dy, mask, dx):
    executor.share(
        LABEL, 2 * dx.size, lambda dy, mask, dx: np.multiply(dy, mask, out=dx), dy, mask, dx
    )


def l1_penalty_backward(executor, x, dx, factor):
    def gradient(x, dx):
        np.sign(x, out=dx)
        dx *= x.dtype.type(factor)

    executor.share(LABEL, 2 * x.size, gradient, x, dx)


def winner_conv2d_forward(executor, x, weight, bias, value, place, padding, images):
    """value, place (N, winners, 1, filters): the largest values of each map of relu(convolution +
    bias), and their pixels' numbers, in order.

    A value is 0 where the image is not one of the `images` with the largest values of this map.
    """
    windows = windows_of(x.shape, weight.shape, 1, padding)
    turned = np.ascontiguousarray(windows.taken(executor, weight).T)
    parts = list(blocks.slices(0, len(weight), FILTERS))
    turned = [np.ascontiguousarray(turned[:, part]) for part in parts]
    value, place = value[:, :, 0], place[:, :, 0]

    def work(worker, start, stop):
        for n in range(start, stop):
            seen = windows.gather(worker, x[n : n + 1])
            for part, matrix in zip(parts, turned, strict=True):
                out = worker.workspace("convolved", (len(seen), matrix.shape[1]), x.dtype)
                np.matmul(seen, matrix, out=out)
                _take_winners(out, bias[part], value[n, :, part], place[n, :, part])
            worker.lap("convolution forward")

    executor.parallel(len(x), work, blocks.cost(windows.work * len(weight)))
    lasting = executor.workspace("lasting", (len(x), len(weight)), np.uint8)
    loops.lasting(value[:, 0], images, lasting)
    value *= lasting[:, None]


def winner_conv2d_backward(
    executor, x, place, dvalue, dweight, dbias, padding, weight=None, dx=None
):
    """Gradients of winner_conv2d_forward; dx only where it is asked for, with the weight.

    dvalue: as of winner_decode_backward, 0 where the ReLU or the choice of images made the value 0.
    """
    passed = dvalue.reshape(len(x), -1)
    corner = _corner(place, x.shape[2] + 2 * padding - dweight.shape[1] + 1, -padding)
    _filter_gradient(executor, passed, corner, x, dweight)
    dbias[...] = passed.reshape(-1, len(dweight)).sum(axis=0)
    if dx is not None:
        _scatter(executor, passed, corner, weight, dx, np.zeros(x.shape[3], x.dtype))


def winner_decode_forward(executor, value, place, weight, bias, y, padding, width):
    """The convolution of maps that are 0 but for the values at `place`; width: of the maps."""
    corner = _corner(place, width, padding - weight.shape[1] + 1)
    _scatter(executor, value.reshape(len(y), -1), corner, _patches(weight), y, bias)


def winner_decode_backward(
    executor, value, place, weight, dy, dvalue, dweight, dbias, padding, width
) -> None:
    """Gradients of winner_decode_forward; dvalue is 0 where the value is."""
    patches = _patches(weight)
    corner = _corner(place, width, padding - weight.shape[1] + 1)
    flat = value.reshape(len(dy), -1)

    def gather(value, rows, columns, dy, dvalue):
        loops.winner_dots(value, rows, columns, patches, dy, dvalue)

    executor.each(
        "convolution backward",
        4 * value.size * patches[0].size,
        gather,
        flat,
        *corner,
        dy,
        dvalue.reshape(flat.shape),
    )
    dpatches = executor.workspace("patch gradient", patches.shape, patches.dtype)
    _filter_gradient(executor, flat, corner, dy, dpatches)
    dweight[...] = dpatches[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    loops.column_sums(dy.reshape(-1, dy.shape[3]), Unsigned(0), Unsigned(dy.shape[3]), dbias)


OPERATIONS = (
    winner_take_all_forward,
    winner_take_all_backward,
    l1_penalty_backward,
    winner_conv2d_forward,
    winner_conv2d_backward,
    winner_decode_forward,
    winner_decode_backward,
)


def _take_winners(maps, bias, value, place):
    """value, place (winners, C): of each column of `maps` (pixels, C), which is overwritten, the
    largest, see first_maximum.
    """
    columns = np.arange(maps.shape[1])
    for number in range(len(value)):
        if number:
            maps[place[number - 1], columns] = -np.inf
        loops.first_maximum(maps, bias, value[number], place[number])


def _patches(weight):
    """(channels, kernel, kernel, filters): what a 1 in each input channel of a convolution adds to
    its output.
    """
    return np.ascontiguousarray(weight[:, ::-1, ::-1].transpose(3, 1, 2, 0))


def _corner(place, width, offset) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) int64 (N, winners filters) of the first pixel of a winner's window, which may
    lie outside the image.
    """
    rows, columns = np.divmod(place.reshape(len(place), -1).astype(np.int64), width)
    return rows + offset, columns + offset


def _scatter(executor, value, corner, patches, y, bias):
    """y = bias + the sum of each image's patches, each times its value, in order."""

    def add_up(value, rows, columns, y):
        y[...] = bias
        loops.add_patches(value, rows, columns, patches, y)

    executor.each(
        "convolution forward", 4 * value.size * patches[0].size, add_up, value, *corner, y
    )


def _filter_gradient(executor, value, corner, x, gradient):
    """gradient of each filter = the sum over images of its values times the windows of x at its
    winners; zeros outside.
    """
    rows, columns = corner

    def work(worker, start, stop):
        gradient[start:stop] = 0
        for n in range(len(x)):
            loops.add_windows(value[n], rows[n], columns[n], x[n], start, stop, gradient)
        worker.lap("convolution backward")

    executor.parallel(len(gradient), work, 4 * value.size * gradient[0].size, piece=PIECE)
