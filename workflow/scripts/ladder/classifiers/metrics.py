"""How good predictions are, and how sure. Labels are integers 0 .. classes-1, as in the data artifact."""

import math

import numpy as np


def scored_on(facts):
    """What accuracies are of: 'test' images, or a 'hold-out' of the training images; facts: the data's params or a summary."""
    return "hold-out" if facts.get("holdout") else "test"


def confusion(labels, predictions, classes):
    """Counts (classes, classes) int64: entry [t, p] is how many rows of true class t were predicted as p."""
    labels, predictions = np.asarray(labels, np.int64), np.asarray(predictions, np.int64)
    counts = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return counts.reshape(classes, classes)


def classification(labels, predictions, names):
    """{"accuracy", "per_class", "confusion"} of predictions, JSON-able; names: of the classes."""
    counts = confusion(labels, predictions, len(names))
    return {"accuracy": accuracy(counts), "per_class": per_class(counts, names), "confusion": counts.tolist()}


def accuracy(counts):
    """Share of rows predicted right, in [0, 1], from a confusion matrix with at least one row counted."""
    return float(np.trace(counts) / counts.sum())


def per_class(counts, names):
    """{class name: share of its rows predicted right}; None for a class that has no rows."""
    return {name: float(row[k] / row.sum()) if row.sum() else None
            for k, (name, row) in enumerate(zip(names, counts, strict=True))}


def log_softmax(scores):
    """float64 logarithms of the probabilities that scores (N, classes) stand for."""
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def softmax(scores):
    """float64 probabilities (N, classes), each row's sum 1, of scores (N, classes)."""
    return np.exp(log_softmax(scores))


def won_and_lost(labels, predictions, others):
    """How many rows `predictions` alone name right, and how many `others` alone, all (N,)."""
    right, theirs = (np.asarray(named) == labels for named in (predictions, others))
    return int((right & ~theirs).sum()), int((theirs & ~right).sum())


def beyond_chance(won, lost):
    """Whether two predictions differ by more than luck would give.

    By chance alone won - lost is 0 with standard deviation sqrt(won + lost) (McNemar's test); this asks for more than two.
    """
    return abs(won - lost) > 2 * math.sqrt(won + lost)
