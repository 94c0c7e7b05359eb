"""The cpu rung's input and losses, as far as they are not tasks (small.py)."""

import numpy as np

from ladder.arithmetic import randomness

AUGMENTATION = 3   # random-number stream of image shifts and flips


def load_batch(executor, images, permutation, counters, scale, offset, batch, flip):
    rows = permutation[counters[1]:counters[1] + len(batch)]

    def work(worker, start, stop):
        for i in range(start, stop):
            np.multiply(images[rows[i]][:, ::-1 if flip else 1], scale, out=batch[i])
            batch[i] += offset
        worker.lap("input")

    executor.parallel(len(batch), work, batch.size)


def draw_augmentation(executor, counters, augmentation, crop, flip, seed):
    """(shift down, shift right, mirrored) for every image, from four random numbers each."""
    numbers = np.random.Philox(key=(seed, AUGMENTATION), counter=(0, 0, 0, int(counters[0]))).random_raw(
        4 * len(augmentation)).reshape(-1, 4)
    augmentation[:, :2] = (numbers[:, :2] % np.uint64(2 * crop + 1)).astype(np.int64) - crop
    augmentation[:, 2] = numbers[:, 2] >> np.uint64(63) if flip else 0


def load_augmented_batch(executor, images, permutation, counters, scale, offset, augmentation, batch):
    rows = permutation[counters[1]:counters[1] + len(batch)]
    height, width = batch.shape[1:3]

    def work(worker, start, stop):
        for i in range(start, stop):
            down, right, mirrored = augmentation[i]
            image = images[rows[i]]
            to_rows, of_rows = _moved(height, int(down))
            to_columns, of_columns = _moved(width, int(right))
            batch[i] = 0
            batch[i][to_rows, to_columns] = (image[:, ::-1] if mirrored else image)[of_rows, of_columns]
            batch[i] *= scale
            batch[i] += offset
        worker.lap("input")

    executor.parallel(len(batch), work, 4 * batch.size)


def draw_jitter(executor, counters, jitter, tangent, colour, seed):
    jitter[...] = randomness.jitter(seed, int(counters[0]), len(jitter), jitter.shape[1] - 2, tangent, colour)


def load_jittered_batch(executor, images, permutation, counters, scale, offset, augmentation, jitter, batch):
    """As load_augmented_batch, rotated about the centre of the image between its four nearest pixels, and coloured."""
    rows = permutation[counters[1]:counters[1] + len(batch)]

    def work(worker, start, stop):
        for i in range(start, stop):
            down, right, mirrored = augmentation[i]
            image = images[rows[i]].astype(np.float32)
            values = _turned(image[:, ::-1] if mirrored else image, int(down), int(right), *jitter[i, :2])
            batch[i] = values * jitter[i, 2:] * scale + offset
        worker.lap("input")

    executor.parallel(len(batch), work, 40 * batch.size)


def _turned(image, down, right, cosine, sine):
    """The image (H, W, C), float32, shifted and rotated, with zeros outside; every operation in float32."""
    height, width, _ = image.shape
    middle_row, middle_column = np.float32((height - 1) / 2), np.float32((width - 1) / 2)
    below = (np.arange(height, dtype=np.float32) + np.float32(down) - middle_row)[:, None]
    beside = (np.arange(width, dtype=np.float32) + np.float32(right) - middle_column)[None]
    row, column = cosine * below - sine * beside + middle_row, sine * below + cosine * beside + middle_column
    top, left = np.floor(row), np.floor(column)
    in_row, in_column = (row - top)[..., None], (column - left)[..., None]
    framed = np.zeros((height + 2, width + 2, image.shape[2]), np.float32)   # zeros on all sides
    framed[1:-1, 1:-1] = image
    tops, lefts = (np.clip(first.astype(np.int64) + 1, 0, size + 1) for first, size in ((top, height), (left, width)))
    bottoms, rights = (np.clip(first.astype(np.int64) + 2, 0, size + 1) for first, size in ((top, height), (left, width)))
    above = framed[tops, lefts] + in_column * (framed[tops, rights] - framed[tops, lefts])
    under = framed[bottoms, lefts] + in_column * (framed[bottoms, rights] - framed[bottoms, lefts])
    return above + in_row * (under - above)


def mse(executor, prediction, target, counters, gradient, losses, divisor):
    """losses[this step] = mean squared error over all elements; gradient = 2 (prediction - target) / divisor."""
    totals = np.empty(len(prediction))

    def work(worker, start, stop):
        difference = gradient[start:stop]
        np.subtract(prediction[start:stop], target[start:stop], out=difference)
        for n, row in enumerate(difference.reshape(len(difference), -1), start):
            totals[n] = np.dot(row, row)
        difference *= 2 / divisor
        worker.lap("loss")

    executor.parallel(len(prediction), work, 3 * prediction.size)
    losses[counters[2]] = totals.sum() / prediction.size


OPERATIONS = (load_batch, draw_augmentation, load_augmented_batch, draw_jitter, load_jittered_batch, mse)


def _moved(length, shift):
    """Slices (to, of) of positions i and i + shift that both lie in range(length)."""
    return slice(max(0, -shift), max(0, length - max(0, shift))), slice(max(0, shift), max(0, length + min(0, shift)))
