"""Changed copies of pictures: a crop scaled back, other brightness, other contrast, all drawn by a
seed. How often such a copy is still nearest to its original says what features are indifferent to.
"""

import numpy as np
from PIL import Image

from ladder.arithmetic import randomness

MOST = 1000  # pictures that are changed
# least and largest side of the crop, in parts of the picture's: 24 to 30 of 32 pixels
SIDES = 24 / 32, 30 / 32
FACTORS = 0.7, 1.3  # of the brightness, and of the contrast


def changed(images, seed):
    """A changed copy of each of N images, uint8 (N, H, W, 1 or 3): of the same shape.

    Each is cropped to a part of its height and width at a place that is drawn evenly, scaled back
    (bilinear), its values multiplied by a factor, and their distances from their mean by another.
    """
    draws = randomness.generator(seed, randomness.CHANGES, 0).random((len(images), 5))
    return np.stack([_changed(image, *draw) for image, draw in zip(images, draws, strict=True)])


def _changed(image, side, down, right, brightness, contrast):
    """The copy of one image by five numbers from 0 to 1."""
    share = SIDES[0] + side * (SIDES[1] - SIDES[0])
    height, width = (max(1, round(share * length)) for length in image.shape[:2])
    top = int(down * (image.shape[0] - height + 1))
    left = int(right * (image.shape[1] - width + 1))
    crop = image[top : top + height, left : left + width]
    picture = Image.fromarray(crop[..., 0] if crop.shape[2] == 1 else crop)
    scaled = picture.resize(image.shape[1::-1], Image.Resampling.BILINEAR)
    values = np.asarray(scaled, np.float64).reshape(image.shape) * _factor(brightness)
    values = values.mean() + (values - values.mean()) * _factor(contrast)
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _factor(draw):
    return FACTORS[0] + draw * (FACTORS[1] - FACTORS[0])
