"""The cpu rung's input and losses, as far as they are not tasks (small.py)."""

import numpy as np

from ladder.arithmetic import randomness
from ladder.executors.cpu import blocks


def load_batch(executor, images, permutation, counters, scale, offset, batch, flip):
    def load(row, image):
        np.multiply(images[row][:, :: -1 if flip else 1], scale, out=image)
        image += offset

    executor.each("input", batch.size, load, _rows(permutation, counters, batch), batch)


def draw_augmentation(executor, counters, augmentation, crop, flip, seed):
    augmentation[...] = randomness.augmentation(
        seed, int(counters[0]), len(augmentation), crop, flip
    )


def load_augmented_batch(
    executor, images, permutation, counters, scale, offset, augmentation, batch
):
    height, width = batch.shape[1:3]

    def load(row, drawn, image):
        down, right, mirrored = drawn
        to_rows, from_rows = blocks.overlap(height, int(down))
        to_columns, from_columns = blocks.overlap(width, int(right))
        image[...] = 0
        image[to_rows, to_columns] = (images[row][:, ::-1] if mirrored else images[row])[
            from_rows, from_columns
        ]
        image *= scale
        image += offset

    executor.each(
        "input", 4 * batch.size, load, _rows(permutation, counters, batch), augmentation, batch
    )


def draw_jitter(executor, counters, jitter, tangent, colour, seed):
    jitter[...] = randomness.jitter(
        seed, int(counters[0]), len(jitter), jitter.shape[1] - 2, tangent, colour
    )


def load_jittered_batch(
    executor, images, permutation, counters, scale, offset, augmentation, jitter, batch
):
    """As load_augmented_batch, rotated about the centre of the image between its four nearest
    pixels, and coloured.
    """

    def load(row, drawn, turn, image):
        down, right, mirrored = drawn
        source = images[row].astype(np.float32)
        values = _turned(source[:, ::-1] if mirrored else source, int(down), int(right), *turn[:2])
        image[...] = values * turn[2:] * scale + offset

    executor.each(
        "input",
        40 * batch.size,
        load,
        _rows(permutation, counters, batch),
        augmentation,
        jitter,
        batch,
    )


def _rows(permutation, counters, batch):
    """The images' numbers of the batch that comes next."""
    return permutation[counters[1] : counters[1] + len(batch)]


def _turned(image, down, right, cosine, sine):
    """The image (H, W, C), float32, shifted and rotated, with zeros outside; every operation in
    float32.
    """
    height, width, _ = image.shape
    middle_row, middle_column = np.float32((height - 1) / 2), np.float32((width - 1) / 2)
    below = (np.arange(height, dtype=np.float32) + np.float32(down) - middle_row)[:, None]
    beside = (np.arange(width, dtype=np.float32) + np.float32(right) - middle_column)[None]
    row, column = (
        cosine * below - sine * beside + middle_row,
        sine * below + cosine * beside + middle_column,
    )
    top, left = np.floor(row), np.floor(column)
    in_row, in_column = (row - top)[..., None], (column - left)[..., None]
    framed = np.zeros((height + 2, width + 2, image.shape[2]), np.float32)  # zeros on all sides
    framed[1:-1, 1:-1] = image
    tops, lefts = (
        np.clip(first.astype(np.int64) + 1, 0, size + 1)
        for first, size in ((top, height), (left, width))
    )
    bottoms, rights = (
        np.clip(first.astype(np.int64) + 2, 0, size + 1)
        for first, size in ((top, height), (left, width))
    )
    above = framed[tops, lefts] + in_column * (framed[tops, rights] - framed[tops, lefts])
    under = framed[bottoms, lefts] + in_column * (framed[bottoms, rights] - framed[bottoms, lefts])
    return above + in_row * (under - above)


def mse(executor, prediction, target, counters, gradient, losses, divisor):
    """losses[this step] = mean squared error over all elements; gradient = 2 (prediction - target)
    / divisor.
    """
    totals = np.empty(len(prediction))

    def difference(prediction, target, gradient, totals):
        np.subtract(prediction, target, out=gradient)
        for n, row in enumerate(gradient.reshape(len(gradient), -1)):
            totals[n] = np.dot(row, row)
        gradient *= 2 / divisor

    executor.share("loss", 3 * prediction.size, difference, prediction, target, gradient, totals)
    losses[counters[2]] = totals.sum() / prediction.size


OPERATIONS = (
    load_batch,
    draw_augmentation,
    load_augmented_batch,
    draw_jitter,
    load_jittered_batch,
    mse,
)
