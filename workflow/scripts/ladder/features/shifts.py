"""Shifted images and their features: classifiers can decide by the mean over an image and its copies shifted by some pixels.

A copy is the normalised image, moved along one of the two diagonals; the values at its edges are repeated. Only images that are
classified are shifted, not those that a classifier or the features' transform is fitted to.
"""

import dataclasses

import numpy as np

DIAGONALS = ((1, 1), (-1, -1), (1, -1), (-1, 1))   # (down, to the right)
NAMES = ("shifted.npy", "shifted_odd.npy")         # the even and the odd part of the features, (len(DIAGONALS), N, D)


def offsets(distance):
    """[(pixels down, pixels to the right)] of the copies at this distance, the value of `classify_shifts`; [] for none."""
    return [] if distance == "none" else [(down * distance, right * distance) for down, right in DIAGONALS]


@dataclasses.dataclass(frozen=True)
class Shifted:
    """Images (N, H, W, C), which may be memory-mapped, shifted by offset (down, to the right) when a slice of them is read."""

    images: np.ndarray
    offset: tuple

    def __len__(self):
        return len(self.images)

    def __getitem__(self, rows):
        images = self.images[rows]
        for axis, offset in enumerate(self.offset, 1):
            size = images.shape[axis]
            images = np.take(images, np.clip(np.arange(size) - offset, 0, size - 1), axis=axis)
        return images


@dataclasses.dataclass(frozen=True)
class Joined:
    """float32 rows (N, D1 + D2 + ...), made when a slice of them is read.

    parts: [(weight, rows (N, D1) float32, which may be memory-mapped)]; as the stage `joined` writes them.
    """

    parts: list

    @property
    def shape(self):
        return len(self), sum(rows.shape[1] for _, rows in self.parts)

    def __len__(self):
        return len(self.parts[0][1])

    def __getitem__(self, rows):
        return np.concatenate([np.multiply(part[rows], np.float32(weight)) for weight, part in self.parts], axis=1)


def of_test(inputs, with_odd=False):
    """Features of the shifted copies of the test images, a Joined for each of DIAGONALS; [] for a stage without copies.

    inputs: a classifier's, with shifted1, shifted2, ... of the parts of its features, in their order. with_odd: the columns of
    their odd parts follow.
    """
    weights = inputs["features"].manifest["spec"]["params"].get("weights", [1])
    shifted = [(weight, inputs[f"shifted{number}"]) for number, weight in enumerate(weights, 1) if f"shifted{number}" in inputs]
    parts = [(weight, artifact.array(name)) for name in NAMES[:1 + with_odd] for weight, artifact in shifted
             if name in artifact.manifest["files"]]
    return [Joined([(weight, rows[number]) for weight, rows in parts]) for number in range(len(DIAGONALS))] if parts else []
