"""How good predictions are. Labels are integers 0 .. classes-1, as in the data artifact."""

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
