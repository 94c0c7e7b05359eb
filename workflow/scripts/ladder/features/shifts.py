"""Shifted images and their features: classifiers can decide by the mean over an image and its
copies shifted by some pixels.

A copy is the normalised image, moved along one of the two diagonals; the values at its edges are
repeated. Only images that are classified are shifted, not those that a classifier or the features'
transform is fitted to.
"""

import copy
import dataclasses
import math

import numpy as np

from ladder.arithmetic.lazy_rows import Joined
from ladder.network import networks

DIAGONALS = ((1, 1), (-1, -1), (1, -1), (-1, 1))  # (down, to the right)
TOGETHER = 4  # images whose copies are put together at once: of a batch they could take a gigabyte
# the even and the odd part of the features, (len(DIAGONALS), N, D)
NAMES = ("shifted.npy", "shifted_odd.npy")


def offsets(distance):
    """[(pixels down, pixels to the right)] of the copies at this distance, the value of
    `classify_shifts`; [] for none.
    """
    return (
        []
        if distance == "none"
        else [(down * distance, right * distance) for down, right in DIAGONALS]
    )


@dataclasses.dataclass(frozen=True)
class Shifted:
    """Images (N, H, W, C), which may be memory-mapped, shifted by offset (down, to the right) when
    a slice of them is read.
    """

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
class Copies:
    """The copies of images (N, H, W, C), each image's one after another in the order of DIAGONALS;
    slices are whole images'.
    """

    images: np.ndarray

    def __len__(self):
        return len(DIAGONALS) * len(self.images)

    def __getitem__(self, rows):
        return Copies(self.images[rows.start // len(DIAGONALS) : -(-rows.stop // len(DIAGONALS))])


@dataclasses.dataclass(frozen=True)
class CopiesEncoder:
    """The encoder of all copies of an image at once: they are parts of one image, a little larger,
    which repeats its edges.

    Where no layer pads its input, the copies' values are parts of the larger image's, if the copies
    lie whole strides apart. An average pooling at the end has a smaller stride there, to have the
    values of every copy. encoder: of the larger images; pixels: of the image to a place; every:
    places between two values of a copy, whose shape is (height, width).
    """

    encoder: object
    distance: int
    pixels: int
    every: int
    shape: tuple

    @classmethod
    def from_encoder(cls, encoder, distance):
        """That of an Inference; None where the copies have to be computed one by one."""
        network = getattr(encoder, "network", None)
        if network is None:
            return None
        *before, last = layers = network.needed_for(encoder.until)
        every = last.attributes["stride"] if last.kind == "avgpool2d" else 1
        stride = math.prod(layer.attributes.get("stride", 1) for layer in layers) // every
        if 2 * distance % stride or any(map(_pads, layers)) or not _is_chain(layers):
            return None
        step = math.gcd(every, 2 * distance // stride)
        if every > step:
            last = dataclasses.replace(last, attributes={**last.attributes, "stride": step})
        height, width, channels = network.input_shape
        larger = copy.copy(encoder)
        larger.network = networks.resolve(
            network.name,
            (height + 2 * distance, width + 2 * distance, channels),
            (*before, last),
            last.name,
            None,
        )
        return cls(larger, distance, stride * step, every // step, last.output_shape[:2])

    def batches(self, copies, mirrored=False):
        """As Inference.batches, for Copies."""
        images = copies.images
        for axis in (1, 2):
            places = np.arange(-self.distance, images.shape[axis] + self.distance)
            images = np.take(images, np.clip(places, 0, images.shape[axis] - 1), axis=axis)
        for start, values in self.encoder.batches(images, mirrored):
            parts = [
                self._part(values, down, -right if mirrored else right)
                for down, right in offsets(self.distance)
            ]
            for at in range(0, len(values), TOGETHER):
                stacked = np.stack([part[at : at + TOGETHER] for part in parts], axis=1)
                yield len(parts) * (start + at), stacked.reshape(-1, *stacked.shape[2:])

    def _part(self, values, down, right):
        """The values of the copies moved so far, of those of the larger images."""
        top, left = ((self.distance - moved) // self.pixels for moved in (down, right))
        height, width = self.shape
        return values[:, top :: self.every, left :: self.every][:, :height, :width]


# Kinds of layers whose value at a place follows from the pixels around it, wherever the image ends.
LOCAL = {
    "conv2d",
    "relu",
    "maxpool2d",
    "avgpool2d",
    "position_norm",
    "local_contrast",
    "soft_threshold",
}


def _pads(layer):
    return layer.kind not in LOCAL or layer.attributes.get("padding", 0) > 0


def _is_chain(layers):
    """True if each layer reads the one before it, beside what else it reads."""
    names = [networks.INPUT, *(layer.name for layer in layers)]
    return all(layer.inputs[0] == name for layer, name in zip(layers, names, strict=False))


@dataclasses.dataclass(frozen=True)
class ByCopy:
    """An array (len(DIAGONALS), N, D), written in rows of Copies."""

    out: np.ndarray

    def __setitem__(self, rows, values):
        images = slice(rows.start // len(DIAGONALS), rows.stop // len(DIAGONALS))
        self.out[:, images] = values.reshape(-1, len(DIAGONALS), values.shape[1]).swapaxes(0, 1)


def of_test(inputs, with_odd=False):
    """Features of the shifted copies of the test images, a Joined for each of DIAGONALS; [] for a
    stage without copies.

    inputs: a classifier's, with shifted1, shifted2, ... of the parts of its features, in their
    order. with_odd: the columns of their odd parts follow.
    """
    weights = inputs["features"].manifest["spec"]["params"].get("weights", [1])
    shifted = [
        (weight, inputs[f"shifted{number}"])
        for number, weight in enumerate(weights, 1)
        if f"shifted{number}" in inputs
    ]
    parts = [
        (weight, artifact.array(name))
        for name in NAMES[: 1 + with_odd]
        for weight, artifact in shifted
        if name in artifact.manifest["files"]
    ]
    return (
        [
            Joined([(weight, rows[number]) for weight, rows in parts])
            for number in range(len(DIAGONALS))
        ]
        if parts
        else []
    )
