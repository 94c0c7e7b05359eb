"""Shapes and sizes of the datasets, known without reading them. Standard library only."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Facts:
    """shape: (height, width, channels) of an image; classes: their number; train, test: number of images without limits."""

    shape: tuple
    classes: int
    train: int
    test: int


FACTS = {
    "digits": Facts((32, 32, 3), 10, 1433, 364),
    "cifar10": Facts((32, 32, 3), 10, 50_000, 10_000),
    "mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
    "fashion_mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
    "cifar100": Facts((32, 32, 3), 100, 50_000, 10_000),
    "svhn": Facts((32, 32, 3), 10, 73_257, 26_032),
}
