"""Feature vectors from an encoder: pool, average over the mirror image, standardise."""

import numpy as np

from . import progress

ROWS = 2000   # rows per pass of the standardisation
STANDARDIZATION = "standardization.safetensors"   # mean and scale, where features are standardised


def dimensions(shape, pool):
    """Length of the feature vector of activations (H, W, C) after pooling to a pool x pool grid (0: no pooling)."""
    height, width, channels = shape
    return channels * (pool * pool if pool else height * width)


def extract(encoder, images, out, pool, flip, label):
    """Fill out (N, D) float32 with the features of images, flattened channel by channel (CHW).

    encoder: inference.Inference; pool: average over a pool x pool grid, 0 for none; flip: average with the features of the
    mirror image.
    """
    with progress.bar(total=len(images) * (2 if flip else 1), label=label, unit=" images") as bar:
        for mirrored in ((False, True) if flip else (False,)):
            for start, values in encoder.batches(images, mirrored):
                rows = slice(start, start + len(values))
                features = _flatten(average_pool(values, pool) if pool else values)
                if mirrored:
                    out[rows] += features
                    out[rows] *= np.float32(0.5)
                else:
                    out[rows] = features
                bar.update(len(values))


def pixels(images, statistics, out):
    """Fill out (N, H*W*C) float32 with the normalised pixels of images, flattened channel by channel."""
    for start in range(0, len(images), ROWS):
        out[start:start + ROWS] = _flatten(statistics.apply(images[start:start + ROWS]))


def average_pool(values, grid):
    """Means over a grid x grid partition of activations (N, H, W, C); raises ValueError where H or W is not divisible."""
    count, height, width, channels = values.shape
    if height % grid or width % grid:
        raise ValueError(f"{height}x{width} activations cannot be pooled to {grid}x{grid}")
    return values.reshape(count, grid, height // grid, grid, width // grid, channels).mean(axis=(2, 4))


def standardize(train, test):
    """Scale every feature, in place, to mean 0 and standard deviation 1 over the training rows; constant ones become 0.

    Returns {"mean", "scale"}: float32 (D,), what apply_standardization needs to do the same to other rows.
    """
    total, squares = np.zeros(train.shape[1]), np.zeros(train.shape[1])
    for start in range(0, len(train), ROWS):
        total += train[start:start + ROWS].sum(axis=0, dtype=np.float64)
    mean = total / len(train)
    for start in range(0, len(train), ROWS):
        squares += np.square(train[start:start + ROWS] - mean).sum(axis=0)
    deviation = np.sqrt(squares / len(train))
    scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 1e-6 * (np.abs(mean) + 1e-6))
    found = {"mean": mean.astype(np.float32), "scale": scale.astype(np.float32)}
    for rows in (train, test):
        apply_standardization(rows, **found)
    return found


def apply_standardization(rows, mean, scale):
    """(rows - mean) * scale, in place, of rows (N, D) float32."""
    for start in range(0, len(rows), ROWS):
        rows[start:start + ROWS] = (rows[start:start + ROWS] - mean) * scale


def _flatten(values):
    return values.transpose(0, 3, 1, 2).reshape(len(values), -1)
