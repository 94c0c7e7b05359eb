"""The cpu rung's input, losses and optimizers."""

import numpy as np

AUGMENTATION = 3   # the stream of random numbers that shifts and mirrors images


def load_batch(executor, images, permutation, counters, scale, offset, batch, flip):
    rows = permutation[counters[1]:counters[1] + len(batch)]

    def work(worker, start, stop):
        for i in range(start, stop):
            image = images[rows[i]]
            np.multiply(image[:, ::-1] if flip else image, scale, out=batch[i])
            batch[i] += offset
        worker.lap("input")

    executor.parallel(len(batch), work)


def draw_augmentation(executor, counters, augmentation, crop, flip, seed):
    """(down, right, mirrored) of every image, from four random numbers each."""
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

    executor.parallel(len(batch), work)


def mse(executor, prediction, target, counters, gradient, losses, divisor):
    """losses[this step] = mean squared error over all elements; gradient = 2 (prediction - target) / divisor."""
    def work(worker, start, stop):
        difference = gradient[start:stop]
        np.subtract(prediction[start:stop], target[start:stop], out=difference)
        flat = difference.reshape(len(difference), -1)
        total = sum(float(np.dot(row, row)) for row in flat)
        difference *= 2 / divisor
        worker.lap("loss")
        return total

    losses[counters[2]] = sum(executor.parallel(len(prediction), work)) / prediction.size


def cross_entropy(executor, prediction, labels, permutation, counters, gradient, losses, hits):
    """losses[this step] = mean of -log softmax at the label; hits[this step] = rows whose largest score, of equals the first,
    is at their label, rows with a NaN left out; gradient = (softmax - one at the label) / batch.
    """
    def work(worker, start, stop):
        at = np.arange(stop), labels[permutation[counters[1]:counters[1] + stop]]   # so few numbers that one thread is quicker
        scores = prediction.reshape(stop, -1).astype(np.float64)
        found = np.sum((scores.argmax(axis=1) == at[1]) & ~np.isnan(scores).any(axis=1))
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        totals = exponentials.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(totals[:, 0]) - scores[at])
        exponentials /= totals
        exponentials[at] -= 1
        gradient.reshape(stop, -1)[...] = exponentials / stop
        worker.lap("loss")
        return loss, found

    ((losses[counters[2]], hits[counters[2]]),) = executor.alone(len(prediction), work)


def sgd_update(executor, parameter, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]
    _update(executor, gradient, parameter, weight_decay, clip, lambda g, w: np.subtract(w, rate * g, out=w))


def momentum_update(executor, parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum):
    rate = learning_rates[counters[0]]

    def rule(g, w, v):
        v *= momentum
        v += g
        w -= rate * v

    _update(executor, gradient, parameter, weight_decay, clip, rule, velocity)


def rmsprop_update(executor, parameter, square, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]

    def rule(g, w, s):
        s *= 0.99
        s += 0.01 * g * g
        w -= rate * g / (np.sqrt(s) + 1e-8)

    _update(executor, gradient, parameter, weight_decay, clip, rule, square)


def adam_update(executor, parameter, mean, square, gradient, learning_rates, counters, weight_decay, clip):
    step = int(counters[0]) + 1
    rate = learning_rates[counters[0]] / (1 - 0.9 ** step)
    debias = 1 / (1 - 0.999 ** step)

    def rule(g, w, m, s):
        m *= 0.9
        m += 0.1 * g
        s *= 0.999
        s += 0.001 * g * g
        w -= rate * m / (np.sqrt(debias * s) + 1e-8)

    _update(executor, gradient, parameter, weight_decay, clip, rule, mean, square)


def advance(executor, counters, batch):
    counters += (1, batch, 1)


OPERATIONS = (load_batch, draw_augmentation, load_augmented_batch, mse, cross_entropy, sgd_update, momentum_update,
              rmsprop_update, adam_update, advance)


def _update(executor, gradient, parameter, weight_decay, clip, rule, *averages):
    """Call rule(gradient, parameter, *averages) on every thread's flat share, the gradient clipped and decayed."""
    flat = [array.reshape(-1) for array in (gradient, parameter, *averages)]

    def work(worker, start, stop):
        g, w, *state = (array[start:stop] for array in flat)
        if clip:
            np.clip(g, -clip, clip, out=g)
        if weight_decay:
            g += weight_decay * w
        rule(g, w, *state)
        worker.lap("update")

    executor.parallel(parameter.size, work)


def _moved(length, shift):
    """Slices (to, of) of positions i and i + shift that both lie in range(length)."""
    return slice(max(0, -shift), max(0, length - max(0, shift))), slice(max(0, shift), max(0, length + min(0, shift)))
