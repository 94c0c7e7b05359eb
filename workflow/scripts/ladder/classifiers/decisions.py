"""A classifier decides by the mean of its decision values for an image and for the shifted copies
of the image, if there are any.

Several classifiers of one kind that know the same classes decide together on the mean of theirs.
"""

import itertools

import numpy as np

# of an SVM or kernel ridge regression; those of a network are its probabilities
FILE = "decisions.npy"


def mean(values):
    """The mean of a list of arrays of decision values, added in the list's order; of one array the
    same values.
    """
    first, *others = values
    return sum(others, first) / len(values)


def named(values, classes, by_pairs):
    """The labels (rows,), from classes (k,), that decision values name: those with the highest
    score, the lowest of equal ones.

    by_pairs: whether the values (rows, pairs) are those of an SVM, whose pairs of classes vote, or
    are scores (rows, k).
    """
    scores = votes(values, len(classes)) if by_pairs else values
    return classes[np.argmax(scores, axis=1)]


def votes(values, count):
    """Votes for each of `count` classes, 0 to count - 1, (rows, count) int64, from decision values
    (rows, pairs).
    """
    counts = np.zeros((len(values), count), np.int64)
    for decision, (i, j) in zip(values.T, pairs(count), strict=True):
        counts[:, i] += decision > 0
        counts[:, j] += decision <= 0
    return counts


def pairs(count):
    """The pairs of `count` classes, in the order of an SVM's decision values: (0, 1), (0, 2) ..
    (count - 2, count - 1).
    """
    return list(itertools.combinations(range(count), 2))
