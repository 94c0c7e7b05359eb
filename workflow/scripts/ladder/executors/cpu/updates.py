"""The cpu rung's input, losses and optimizers."""

import numpy as np

from ladder.executors.cpu import loops

AUGMENTATION = 3   # random-number stream of image shifts and flips


def load_batch(executor, images, permutation, counters, scale, offset, batch, flip):
    rows = permutation[counters[1]:counters[1] + len(batch)]
    _, height, width, channels = batch.shape

    def work(worker, start, stop):
        if flip:
            for i in range(start, stop):
                np.multiply(images[rows[i]][:, ::-1], scale, out=batch[i])
                batch[i] += offset
        else:
            loops.load(images.reshape(-1, height, width * channels), rows[start:stop], np.tile(scale, width),
                       np.tile(offset, width), batch[start:stop].reshape(-1, height, width * channels))
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


def cross_entropy(executor, prediction, labels, permutation, counters, gradient, losses, hits):
    """losses[this step] = mean of -log softmax at the label; hits[this step] = number of rows whose first largest score is at
    the label, rows with NaN excluded; gradient = (softmax - one-hot label) / batch.
    """
    rows = len(prediction)

    def work(worker, start, stop):
        own = labels[permutation[counters[1]:counters[1] + rows]]
        loss, hits[counters[2]] = loops.cross_entropy(prediction.reshape(rows, -1), own, gradient.reshape(rows, -1))
        losses[counters[2]] = loss / rows
        worker.lap("loss")

    executor.parallel(1, work, rows)


def sgd_update(executor, **operands):
    update(executor, _sgd, [operands])


def momentum_update(executor, **operands):
    update(executor, _momentum, [operands])


def rmsprop_update(executor, **operands):
    update(executor, _rmsprop, [operands])


def adam_update(executor, **operands):
    update(executor, _adam, [operands])


def update(executor, rule, parameters):
    """Update several parameters; parameters: the operands of each update operation."""
    rules = [_flat(*rule(**operands)) for operands in parameters]

    def work(worker, start, stop):
        for loop, arrays, numbers in rules:
            first, last = (arrays[0].size * place // executor.threads for place in (start, stop))
            if first < last:
                loop(*(array[first:last] for array in arrays), *numbers)
        worker.lap("update")

    executor.parallel(executor.threads, work, 4 * sum(arrays[0].size for _, arrays, _ in rules))


def advance(executor, counters, batch):
    counters += (1, batch, 1)


OPERATIONS = (load_batch, draw_augmentation, load_augmented_batch, mse, cross_entropy, sgd_update, momentum_update,
              rmsprop_update, adam_update, advance)


def _sgd(parameter, gradient, learning_rates, counters, weight_decay, clip):
    return loops.sgd, (parameter, gradient), (learning_rates[counters[0]], weight_decay, clip)


def _momentum(parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum):
    return loops.momentum, (parameter, gradient, velocity), (learning_rates[counters[0]], weight_decay, clip, momentum)


def _rmsprop(parameter, square, gradient, learning_rates, counters, weight_decay, clip):
    return loops.rmsprop, (parameter, gradient, square), (learning_rates[counters[0]], weight_decay, clip, 0.99, 0.01, 1e-8)


def _adam(parameter, mean, square, gradient, learning_rates, counters, weight_decay, clip):
    step = int(counters[0]) + 1
    rate = learning_rates[counters[0]] / (1 - 0.9 ** step)
    return loops.adam, (parameter, gradient, mean, square), (
        rate, weight_decay, clip, 0.9, 0.1, 0.999, 0.001, 1 / (1 - 0.999 ** step), 1e-8)


# Operation -> function from its operands to (compiled loop, arrays, numbers).
RULES = {"sgd_update": _sgd, "momentum_update": _momentum, "rmsprop_update": _rmsprop, "adam_update": _adam}


def _flat(loop, arrays, numbers):
    return loop, [array.reshape(-1) for array in arrays], [arrays[0].dtype.type(number) for number in numbers]


def _moved(length, shift):
    """Slices (to, of) of positions i and i + shift that both lie in range(length)."""
    return slice(max(0, -shift), max(0, length - max(0, shift))), slice(max(0, shift), max(0, length + min(0, shift)))
