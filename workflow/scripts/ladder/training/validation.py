"""Early stopping: the loss of a training on images that it does not train on, after every epoch,
and when it stops for want of a smaller one.

Measuring computes nothing that the training reads: with an executor of its own, the rung's forward
pass of tests, and no random number. Where the training stops and which weights it keeps follow from
the measured losses alone.
"""

import time

import numpy as np

from ladder.arithmetic import multipliers
from ladder.classifiers import metrics
from ladder.errors import RunFailed
from ladder.training.inference import Inference

# Tensors of a checkpoint: numbers by epoch, and before a parameter's name BEST.
STEPS, LOSSES, HITS, BEST = "validation.steps", "validation.losses", "validation.hits", "best."


class Validation:
    """What one training is measured on.

    settings    its plan.TrainingSettings
    images      uint8 or float32 (N, H, W, C), as a normalized artifact stores them
    statistics  their normalization.Statistics
    labels      uint8 (N,), for a network that classifies
    patience    number of epochs in a row without a smaller loss after which the training stops, 0
                for never

    What is measured:
    steps       number of steps that the training has made after each epoch
    losses      mean loss per image then
    hits        correct predictions, empty if the network does not classify
    best        name -> float32 array after the epoch with the smallest loss, the first of equals;
                only with patience
    seconds     of measuring
    """

    def __init__(
        self, settings, images, statistics, threads, data_residency="auto", labels=None, patience=0
    ):
        forward = multipliers.ByDirection(forward=settings.multipliers.forward)
        self._inference = Inference(
            settings.network,
            settings.rung,
            {},
            statistics,
            threads,
            None,
            data_residency,
            forward,
        )
        self._prepared = False  # until the first measurement
        self.images, self.statistics, self.labels, self.patience = (
            images,
            statistics,
            labels,
            patience,
        )
        self.steps, self.losses, self.hits, self.best, self.seconds = [], [], [], {}, 0.0

    @property
    def best_epoch(self):
        """Number of the epoch with the smallest loss, the first of equals; 0 before the first
        epoch.
        """
        return int(np.argmin(self.losses)) + 1 if self.losses else 0

    @property
    def stops(self):
        return 0 < self.patience <= len(self.losses) - self.best_epoch

    @property
    def accuracies(self):
        """Share of correct predictions after each epoch; None if the network does not classify."""
        return None if self.labels is None else [hits / len(self.images) for hits in self.hits]

    def end_epoch(self, step, values):
        """Measure the weights after an epoch: values, name -> float32 array, after `step` steps.

        Raises RunFailed if the loss is not finite.
        """
        loss, hits = self.measure(values)
        if not np.isfinite(loss):
            raise RunFailed(
                f"the loss on the validation images is {loss} after epoch {len(self.losses) + 1}; try a smaller "
                "learning_rate, or a gradient_clip"
            )
        self.steps.append(step)
        self.losses.append(loss)
        self.hits += [] if hits is None else [hits]
        if self.patience and self.best_epoch == len(self.losses):
            self.best = {name: np.array(value) for name, value in values.items()}

    def measure(self, values):
        """(mean loss per image, number of correct predictions or None) with these values; the loss
        is that of the training.
        """
        self._inference.use(values)
        if not self._prepared:
            self._inference.prepare(self.images)
            self._prepared = True
        started, total, hits = time.monotonic(), 0.0, None if self.labels is None else 0
        for start, outputs in self._inference.batches(self.images):
            rows = slice(start, start + len(outputs))
            if self.labels is None:
                total += float(self._squared_errors(rows, outputs).sum())
            else:
                scores, true = outputs.reshape(len(outputs), -1), self.labels[rows]
                total -= float(
                    metrics.log_softmax(scores)[np.arange(len(true)), true].sum(dtype=np.float64)
                )
                hits += int((scores.argmax(axis=1) == true).sum())
        self.seconds += time.monotonic() - started
        return total / len(self.images), hits

    def _squared_errors(self, rows, outputs):
        """Mean squared error of each of the images `rows`, float64."""
        differences = outputs - self.statistics.apply(self.images[rows])
        return np.square(differences.reshape(len(differences), -1), dtype=np.float64).mean(axis=1)

    # Checkpoints.

    def tensors(self):
        """What a checkpoint has to hold, by name."""
        return {
            STEPS: np.array(self.steps, np.int64),
            LOSSES: np.array(self.losses, np.float64),
            HITS: np.array(self.hits, np.int64),
            **{BEST + name: value for name, value in self.best.items()},
        }

    def go_on(self, steps, losses, hits, best, steps_per_epoch):
        """Continue after a shorter training, from its measurements and the values that it kept.

        What it measured after a last partial epoch is left out: a longer training does not measure
        there.
        """
        whole = [number for number, step in enumerate(steps) if step % steps_per_epoch == 0]
        self.steps, self.losses = (
            [int(steps[number]) for number in whole],
            [float(losses[number]) for number in whole],
        )
        self.hits = [int(hits[number]) for number in whole if len(hits)]
        self.best = {name: np.array(value) for name, value in best.items()} if self.patience else {}

    def restore(self, tensors):
        """Continue from the tensors of a checkpoint."""
        self.steps, self.losses, self.hits = (
            tensors[name].tolist() for name in (STEPS, LOSSES, HITS)
        )
        self.best = {
            name.removeprefix(BEST): value.copy()
            for name, value in tensors.items()
            if name.startswith(BEST)
        }
