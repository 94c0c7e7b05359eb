"""Accuracy, confusion matrix and probabilities. Labels are integers 0 .. classes-1, as in the data
artifact.
"""

import numpy as np

UNBALANCED = 1.5


def scored_on(facts):
    """'test' or 'validation', the set that accuracies are measured on; facts: the data stage's
    params or a summary.
    """
    return "validation" if facts.get("validation") else "test"


def confusion(labels, predictions, classes):
    """The confusion matrix (classes, classes) int64: entry [t, p] counts rows of true class t
    predicted as p.
    """
    labels, predictions = np.asarray(labels, np.int64), np.asarray(predictions, np.int64)
    counts = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return counts.reshape(classes, classes)


def classification(labels, predictions, names):
    """{"accuracy", "per_class", "confusion"} of predictions, JSON-able; names: class names."""
    counts = confusion(labels, predictions, len(names))
    return {
        "accuracy": accuracy(counts),
        "per_class": per_class(counts, names),
        "confusion": counts.tolist(),
    }


def accuracy(counts):
    """Accuracy in [0, 1] from a confusion matrix with at least one count."""
    return float(np.trace(counts) / counts.sum())


def balanced_accuracy(counts):
    """The mean accuracy over the classes that have rows, from a confusion matrix with at least one
    count.
    """
    counts = np.asarray(counts)
    rows = counts.sum(axis=1)
    return float(np.mean(np.diag(counts)[rows > 0] / rows[rows > 0]))


def unbalanced(counts):
    """Whether the largest class has at least UNBALANCED times its even share of the rows, over the
    classes that have rows. A class that has all rows is compared with a share of one half.
    """
    rows = np.asarray(counts).sum(axis=1)
    return bool(rows.max() * max(2, np.count_nonzero(rows)) >= UNBALANCED * rows.sum())


def per_class(counts, names):
    """{class name: accuracy on its rows (recall)}; None for a class without rows."""
    return {
        name: float(row[k] / row.sum()) if row.sum() else None
        for k, (name, row) in enumerate(zip(names, counts, strict=True))
    }


def log_softmax(scores):
    """float64 log-softmax of scores (N, classes)."""
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def softmax(scores):
    """float64 softmax of scores (N, classes)."""
    return np.exp(log_softmax(scores))


def won_and_lost(labels, predictions, others):
    """(rows that only `predictions` classify correctly, rows that only `others` do); all arrays
    (N,).
    """
    right, theirs = (np.asarray(named) == labels for named in (predictions, others))
    return int((right & ~theirs).sum()), int((theirs & ~right).sum())
