"""Shapes and sizes of the datasets, known without reading an image. Standard library only."""

import dataclasses
from typing import Any

from ladder.data import listing
from ladder.errors import UserError, excerpt


@dataclasses.dataclass(frozen=True)
class Facts:
    """shape: (height, width, channels) of an image; classes: their number; train, test: number of images without limits."""

    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int


FACTS = {
    "mnist_small": Facts((28, 28, 1), 10, 6000, 6000),
    "digits": Facts((32, 32, 3), 10, 1433, 364),
    "cifar10": Facts((32, 32, 3), 10, 50_000, 10_000),
    "mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
    "fashion_mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
    "cifar100": Facts((32, 32, 3), 100, 50_000, 10_000),
    "svhn": Facts((32, 32, 3), 10, 73_257, 26_032),
}
FOLDER = "folder"   # the dataset of pictures of one's own


def of(settings: Any) -> Facts:
    """The Facts of the data set of `settings` (workflow.settings.Settings).

    Of pictures of one's own train and test count files that may turn out unreadable.
    Raises UserError where there are no pictures, or too few of a class to test on.
    """
    if settings.dataset != FOLDER:
        return FACTS[settings.dataset]
    source = listing.of(settings.folder)
    train = source.counts("train")
    tests = source.counts("test") if source.has_test else [listing.test_count(count, settings.test_share) for count in train]
    if 0 in tests:
        raise UserError(f"config: folder: class {excerpt(source.classes[tests.index(0)])} has a single picture; it needs one "
                        "to train on and one to test on")
    train_count = sum(train) if source.has_test else sum(train) - sum(tests)
    return Facts((*settings.image_size, settings.image_channels), len(source.classes), train_count, sum(tests))
