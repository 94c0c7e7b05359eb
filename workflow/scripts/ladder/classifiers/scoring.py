"""The common part of all stages that classify: loading the features, and scoring the
predictions.
"""

import time

import numpy as np

from ladder.arithmetic.lazy_rows import Joined
from ladder.classifiers import metrics
from ladder.features import mirrored
from ladder.progress import duration, log
from ladder.store import scores

MARGINS = "margins.npy"  # of the classifiers that answer for a run


def classified(data, params):
    """Number of training images that a classifier with these parameters is fitted to, the first of
    those that have a label.
    """
    count = len(data.array("train_labels.npy"))
    return min(count, params.get("classify_rows", count))


def load(inputs, params):
    """(training features (N, D) memory-mapped, training labels (N,), features to classify (M, D)
    memory-mapped), N as `classified` says.
    """
    features, data = inputs["features"], inputs["data"]
    labels = np.asarray(data.array("train_labels.npy"))[: classified(data, params)]
    return features.array("train.npy")[: len(labels)], labels, features.array("test.npy")


def load_with_odd_part(inputs, params):
    """As `load`, with the columns of the features' odd part appended where they have one, as
    Joined rows, and the number of these columns.
    """
    train, labels, test = load(inputs, params)
    odd = [mirrored.odd_part(inputs["features"], name) for name in ("train", "test")]
    train, test = (
        Joined([(1, even), (1, rows[: len(even)])])
        for even, rows in zip((train, test), odd, strict=True)
    )
    return train, labels, test, odd[0].shape[1]


def decisions(score):
    """How sure the predictions of an artifact are that answers for a run, float (M,).

    The probability of the class that a network names, or the margin of an SVM's or of kernel ridge
    regression's.
    """
    if "probabilities.npy" in score.manifest["files"]:
        return score.array("probabilities.npy").max(axis=1)
    return score.array(MARGINS)


def score(work, inputs, predictions, name, started, **facts):
    """Write predictions.npy, uint8 (M,), and the stage's metrics; add a line to the record of
    scores; log the accuracy.

    predictions: labels (M,) of the test images or the validation set; name: of the classifier with
    its hyperparameters, for the log; started: time.perf_counter() when the work began; facts:
    further metrics.
    """
    data, predictions = inputs["data"], predictions.astype(np.uint8)
    work.write_array("predictions.npy", predictions)
    work.metrics = {
        **metrics.classification(
            data.array("test_labels.npy"), predictions, data.metrics["classes"]
        ),
        **facts,
    }
    scores.record(work, inputs)
    log.info(
        "%s: %s accuracy %.2f %%, in %s",
        name,
        metrics.scored_on(data.manifest["spec"]["params"]),
        100 * work.metrics["accuracy"],
        duration(time.perf_counter() - started),
    )
