"""What the curves of trainings are made of: means over several steps, and the epochs and seconds
that a step is at.

train: the artifact of a training; images: number of its training images.
"""

import numpy as np

from ladder.executors.create import COPIES
from ladder.training import parameters

BY = ("step", "epoch", "seconds")  # what a curve can be drawn over


def history(train, name):
    """A quantity at each step (history.safetensors)."""
    return train.tensors("history.safetensors")[name]


def means(values, count):
    """([(middle step, mean)] of at most `count` pieces of nearly equal length, steps in the first
    and longest).
    """
    pieces = np.array_split(np.arange(len(values)), min(count, len(values)))
    return [(float(piece.mean()) + 0.5, float(values[piece].mean())) for piece in pieces], len(
        pieces[0]
    )


def paces(train, images, points):
    """How BY is counted at points [(step, value)], as charts.lines takes it: steps, epochs, and
    measured seconds.
    """
    return [
        1,
        1 / steps_per_epoch(train, images),
        np.interp([step for step, _ in points], *_clock(train, images)).tolist(),
    ]


def _clock(train, images):
    """(steps, seconds): the number of steps made and the seconds of training, at the beginning and
    after each epoch.

    An epoch's share of all seconds is that of its measured passes; where none was measured, that of
    its steps.
    """
    per_epoch, steps = steps_per_epoch(train, images), [0]
    for part in train.metrics["parts"]:  # each begins with an epoch of its own
        begun = steps[-1]
        steps += [
            begun + min(end, part["steps"])
            for end in range(per_epoch, part["steps"] + per_epoch, per_epoch)
        ]
    epochs = train.metrics["seconds_by_pass"]
    spent = [sum(seconds for name, seconds in epoch.items() if name != COPIES) for epoch in epochs]
    shares = np.cumsum([0, *(spent if sum(spent) else np.diff(steps))], dtype=np.float64)
    return steps, shares / shares[-1] * batch_sizes(train, images).sum() / train.metrics[
        "images_per_second"
    ]


def batch_size(train):
    return parameters.read(parameters.StepParameters, train.manifest["spec"]["params"]).batch_size


def steps_per_epoch(train, images):
    return -(-images // batch_size(train))


def batch_sizes(train, images):
    """The number of images in each step's batch; the last batch of an epoch may be smaller."""
    batch = batch_size(train)
    sizes = np.full(train.metrics["steps"], batch)
    last = steps_per_epoch(train, images)
    sizes[last - 1 :: last] = images - (last - 1) * batch
    return sizes
