"""Shapes and sizes of the datasets, known without reading an image. Standard library only."""

import dataclasses
import functools
from typing import Any

from ladder.data import listing
from ladder.errors import UserError


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a dataset.

    shape        (height, width, channels) of an image
    classes      their number, 0 of images without labels
    train, test  number of images without limits
    unlabelled   training images without a label
    """

    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int
    unlabelled: int = 0


FACTS = {
    "mnist_small": Facts((28, 28, 1), 10, 6000, 6000),
    "digits": Facts((32, 32, 3), 10, 1433, 364),
    "cifar10": Facts((32, 32, 3), 10, 50_000, 10_000),
    "mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
    "fashion_mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
    "cifar100": Facts((32, 32, 3), 100, 50_000, 10_000),
    "svhn": Facts((32, 32, 3), 10, 73_257, 26_032),
}
FOLDER = "folder"  # the dataset of pictures of one's own


def find(settings: Any) -> Facts:
    """The Facts of the data set of `settings` (workflow.settings.Settings).

    Of pictures of one's own train and test count files that may turn out unreadable.
    Raises UserError where there are no pictures, or classes without one to test on.
    """
    if settings.dataset != FOLDER:
        return FACTS[settings.dataset]
    source = pictures(settings)
    train_count, test_count = _counts(source, settings.test_share)
    if source.classes and not test_count:
        raise UserError(
            "config: folder: no class has a second picture with a label to test on; label two of a class, or "
            "labels=none takes the pictures without labels"
        )
    return Facts(
        (*settings.image_size, settings.image_channels),
        len(source.classes),
        train_count,
        test_count,
        len(source.unlabelled) if source.classes else train_count,
    )


def pictures(settings: Any) -> Any:
    """The listing of the pictures of one's own that `settings` name."""
    return listing.source(settings.folder, settings.labels, settings.leave_out)


@functools.lru_cache(maxsize=8)
def _counts(source: Any, test_share: float) -> tuple[int, int]:
    """Number of training and of test pictures."""
    parts = listing.split(source, test_share)
    return len(parts["train"]), len(parts["test"])
