"""What is known of every dataset before any of it is read. Standard library only."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Facts:
    """shape: of an image, (height, width, channels).  classes: how many.  train, test: images of either part, unlimited."""

    shape: tuple
    classes: int
    train: int
    test: int


FACTS = {
    "digits": Facts((32, 32, 3), 10, 1433, 364),
    "cifar10": Facts((32, 32, 3), 10, 50_000, 10_000),
    "mnist": Facts((28, 28, 1), 10, 60_000, 10_000),
}
