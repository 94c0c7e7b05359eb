"""Datasets: uint8 images, labels and class names, complete or as a class-balanced subset.

Images are NHWC; their shapes are in facts.py.
"""

import dataclasses

import numpy as np

from ladder.arithmetic import randomness
from ladder.errors import UserError


class Rows:
    """Rows of an array, by their numbers; only those that are asked for are in memory."""

    def __init__(self, array, numbers):
        self.array, self.numbers = array, numbers
        self.shape, self.dtype = (len(numbers), *array.shape[1:]), array.dtype

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, part):
        return self.array[self.numbers[part]]


@dataclasses.dataclass(frozen=True)
class Splits:
    """The training and the test images of a dataset, with their labels.

    Images are uint8 (N, height, width, channels), labels uint8 (N,), each an index into
    `classes`. Of pictures of one's own some or all may have no label: the first L of N have one.

    names: part -> the names of its pictures in the order of its rows, of pictures of one's own.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple
    names: dict | None = None


def digits(with_test=True):
    """The 1,797 handwritten digits of scikit-learn; every fifth of each class is a test image. With
    with_test=False the test images are left out.

    8x8 pixels of 0..16 become 32x32 pixels of 0..255 by bilinear interpolation between pixel
    centres in exact integer arithmetic; the three channels are equal.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = _enlarge(raw.images.astype(np.int64))
    images = np.repeat(images[..., None], 3, axis=3)
    labels = raw.target.astype(np.uint8)
    test = _rank_in_class(labels) % 5 == 0
    tested = test & with_test
    return Splits(images[~test], labels[~test], images[tested], labels[tested], tuple("0123456789"))


def _enlarge(images):
    """(N, 8, 8) integers 0..16 -> (N, 32, 32) uint8 0..255, bilinear with clamped edges, rounded
    half up.
    """
    # centre of each new pixel relative to the old ones, in 1/8
    eighths = 2 * np.arange(32) - 3
    left, share = eighths // 8, eighths % 8
    weights = np.zeros((32, 8), np.int64)  # each row sums to 8
    np.add.at(weights, (np.arange(32), np.clip(left, 0, 7)), 8 - share)
    np.add.at(weights, (np.arange(32), np.clip(left + 1, 0, 7)), share)
    scaled = weights @ images @ weights.T  # 0 .. 16 * 64
    return ((255 * scaled + 512) // 1024).astype(np.uint8)


def limited(dataset, train_limit, test_limit):
    """A class-balanced subset with `train_limit` training and `test_limit` test rows; "all" keeps
    every row.

    Smaller subsets are contained in larger ones, and rows keep their order. Raises UserError for a
    limit above the number of rows or below the number of classes.
    """
    train = _limited_rows(dataset.train_labels, train_limit, "train_limit", len(dataset.classes))
    test = _limited_rows(dataset.test_labels, test_limit, "test_limit", len(dataset.classes))
    return Splits(
        dataset.train_images[train],
        dataset.train_labels[train],
        dataset.test_images[test],
        dataset.test_labels[test],
        dataset.classes,
    )


def _limited_rows(labels, limit, key, classes):
    if limit == "all":
        return slice(None)
    if not classes <= limit <= len(labels):
        raise UserError(
            f"{key} {limit} does not fit: it may be {classes} (one row of each class) to {len(labels)} "
            "(the rows there are), or all"
        )
    # The first row of each class, then the second of each, ...: as balanced as possible.
    return np.sort(np.lexsort((labels, _rank_in_class(labels)))[:limit])


def with_validation(dataset, count, first=None):
    """The dataset with a validation set of `count` training rows, which replaces the test set; of
    those with a label, if any has one.

    The validation set is stratified by class and does not depend on a run's seed, so runs can be
    compared; smaller validation sets are contained in larger ones, and rows keep their order.
    first: of each row the first one with an equal image, int64 (N,). Equal ones are on one side,
    but for those at its edge, and unless a class would then have none on one side. Raises UserError
    if a class would have no row on either side.
    """
    total = len(dataset.train_images)
    labels = dataset.train_labels if dataset.classes else np.zeros(total, np.uint8)
    order = randomness.generator(0, randomness.VALIDATION, 0).permutation(len(labels))
    places = np.empty(len(labels))
    places[order] = _rank_in_class(labels[order])
    sizes = np.bincount(labels, minlength=len(dataset.classes))
    shares = (places + 0.5) / sizes[labels]  # random position of a row within its class, 0 to 1
    classes = max(1, len(dataset.classes))
    for together in (shares if first is None else shares[first[: len(labels)]], shares):
        chosen = np.zeros(len(labels), bool)
        chosen[np.lexsort((labels, together))[:count]] = True
        lacking = any(len(np.unique(labels[rows])) < classes for rows in (chosen, ~chosen))
        if not lacking:
            break
    if lacking:
        raise UserError(
            f"validation {count} does not fit: of {len(labels)} training images it leaves a class without "
            "any for one of the two; choose another number"
        )
    labels = labels if dataset.classes else labels[:0]
    in_validation = np.pad(chosen, (0, total - len(chosen)))
    return Splits(
        dataset.train_images[~in_validation],
        labels[~chosen[: len(labels)]],
        dataset.train_images[in_validation],
        labels[chosen[: len(labels)]],
        dataset.classes,
    )


def _rank_in_class(labels):
    """For each row, the number of earlier rows with the same label."""
    ranks = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        ranks[rows] = np.arange(len(rows))
    return ranks
