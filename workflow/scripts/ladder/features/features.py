"""Feature vectors: what is made of a layer's output, in this order, for every image.

two polarities  relu(z - a) and relu(-z - a) of the output z, the channels of the first before those of the second;
                scaled: of (z - mean) / deviation, by channel (Coates and Ng 2011, soft threshold)
max-pool        the largest value in each window
pool            the mean over each cell of a grid
flatten         channel by channel (CHW)
flip            the mean of the image's vector and its mirror image's
standardise     (value - mean) / deviation, by feature
PCA             the projection on the directions of largest variance

Means, deviations and directions are fitted on training images. What is fitted by PCA and by the scaled polarities needs a
sample of them alone, so that the whole vectors of all images, which PCA shortens, lie neither in memory nor on the disk.
"""

import dataclasses

import numpy as np
import scipy.linalg
import threadpoolctl

from ladder import progress
from ladder.arithmetic import matmul as products
from ladder.arithmetic import randomness
from ladder.errors import UserError

FILE = "features.safetensors"   # the fitted numbers, in a features artifact
ROWS = 2048      # rows at a time; a multiple of inference.BATCH, so that full batches stay full
CONSTANT = 1e-6  # a deviation below this share of the mean is rounding


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The options of the features, and what was fitted for them. D values by image before the PCA, C channels.

    threshold: a, None for one polarity; max_pool: side of the window, 1 for none; grid: cells a side, 0 for none.
    Fitted, float32, None where not asked for: channel_mean, channel_scale (C,); mean, scale (D,); components (D, n).
    """

    threshold: float | None = None
    max_pool: int = 1
    grid: int = 0
    flip: bool = False
    channel_mean: np.ndarray | None = None
    channel_scale: np.ndarray | None = None
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None
    components: np.ndarray | None = None

    @classmethod
    def of(cls, params, fitted=None):
        """The recipe of a features stage's params; fitted: the tensors of its FILE, {} or None before they are there."""
        threshold, grid = (params.get(key, "none") for key in ("features_two_polarity", "features_pool"))
        return cls(threshold=None if threshold == "none" else threshold, max_pool=params.get("features_max_pool", 1),
                   grid=0 if grid == "none" else grid, flip=params.get("features_flip", False), **(fitted or {}))

    def tensors(self):
        """What was fitted, by name, as it is saved."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def pooled_shape(self, shape):
        """(H, W, C) of activations of this shape once they are pooled."""
        height, width, channels = shape
        height, width = (self.grid, self.grid) if self.grid else (height // self.max_pool, width // self.max_pool)
        return height, width, channels * (1 if self.threshold is None else 2)

    def flat(self, values):
        """float32 (N, D) of activations (N, H, W, C) of one view of the images: everything before the flip."""
        if self.channel_mean is not None:
            values = (values - self.channel_mean) * self.channel_scale
        if self.threshold is None:
            values = max_pool(values, self.max_pool)
        else:
            values = two_polarities(values, np.float32(self.threshold), self.max_pool)
        return _flatten(average_pool(values, self.grid) if self.grid else values)

    def finish(self, rows, threads=1):
        """float32 rows of the features of rows (N, D), which it may overwrite: everything after the flip."""
        if self.mean is not None:
            rows -= self.mean
            rows *= self.scale
        return rows if self.components is None else products.product(rows, self.components, threads)


def blocks(encoder, images, recipe, threads=1):
    """Yield (start, float32 rows (n, D) or (n, components)): the features of images (N, H, W, C), block by block.

    encoder: batches(images, mirrored) yields (start, activations), as inference.Inference's does. The array is used again for
    the next block. These are a predictor's features too: of a recipe with what the features artifact holds (Recipe.of).
    """
    rows = None
    for start in range(0, len(images), ROWS):
        some = images[start:start + ROWS]
        for at, values in encoder.batches(some, False):
            flat = recipe.flat(values)
            rows = np.empty((min(ROWS, len(images)), flat.shape[1]), np.float32) if rows is None else rows
            rows[at:at + len(flat)] = flat
        if recipe.flip:
            for at, values in encoder.batches(some, True):
                rows[at:at + len(values)] += recipe.flat(values)
            rows[:len(some)] *= np.float32(0.5)
        yield start, recipe.finish(rows[:len(some)], threads)


def extract(encoder, images, recipe, out, label, threads=1):
    """Fill out (N, D or components) float32 with the features of images."""
    with progress.bar(total=len(images), label=label, unit=" images") as bar:
        for start, rows in blocks(encoder, images, recipe, threads):
            out[start:start + len(rows)] = rows
            bar.update(len(rows))


class Pixels:
    """An encoder that puts out the normalised images themselves, for the control. statistics: normalization.Statistics."""

    def __init__(self, statistics):
        self._statistics = statistics

    def batches(self, images, mirrored=False):
        yield 0, self._statistics.apply(np.ascontiguousarray(images[:, :, ::-1]) if mirrored else images)


# Pooling and polarities.

def max_pool(values, window):
    """The largest of each window x window values of activations (N, H, W, C); ValueError where H or W is not divisible."""
    return values if window == 1 else _pool(values, window, np.maximum)


def two_polarities(values, threshold, window=1):
    """relu(z - threshold), then relu(-z - threshold), of activations z (N, H, W, C), max-pooled: twice the channels."""
    # A window's largest relu(z - a) is that of its largest z, and its largest relu(-z - a) that of its smallest: pooled first,
    # there is less to threshold.
    largest = max_pool(values, window)
    smallest = values if window == 1 else _pool(values, window, np.minimum)
    both = np.concatenate([largest, -smallest], axis=3)
    both -= threshold
    return np.maximum(both, 0, out=both)


def _pool(values, window, better):
    _, height, width, _ = values.shape
    if height % window or width % window:
        raise ValueError(f"{height}x{width} activations have no windows of {window}x{window}")
    best = None
    for row in range(window):
        for column in range(window):
            part = values[:, row::window, column::window]
            best = np.array(part) if best is None else better(best, part, out=best)
    return best


def average_pool(values, grid):
    """Means over a grid x grid partition of activations (N, H, W, C); ValueError where H or W is not divisible."""
    count, height, width, channels = values.shape
    if height % grid or width % grid:
        raise ValueError(f"{height}x{width} activations cannot be pooled to {grid}x{grid}")
    return values.reshape(count, grid, height // grid, grid, width // grid, channels).mean(axis=(2, 4))


def _flatten(values):
    return values.transpose(0, 3, 1, 2).reshape(len(values), -1)


# Fitting.

def sample(count, most, seed):
    """Ascending rows of a seeded sample of `most` of `count` training images, all of them where there are no more."""
    drawn = randomness.generator(seed, randomness.FEATURE_ROWS, 0).permutation(count)[:most]
    return np.sort(drawn)


def fit_channels(encoder, images, recipe):
    """The recipe with mean and scale of every channel of the activations of these images."""
    total = squares = count = 0
    with progress.bar(total=len(images), label="statistics of the channels", unit=" images") as bar:
        for start in range(0, len(images), ROWS):
            for _, values in encoder.batches(images[start:start + ROWS], False):
                wide = values.reshape(-1, values.shape[3]).astype(np.float64)
                total, squares, count = total + wide.sum(axis=0), squares + np.square(wide).sum(axis=0), count + len(wide)
                bar.update(len(values))
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - np.square(mean), 0))
    return dataclasses.replace(recipe, channel_mean=mean.astype(np.float32), channel_scale=_inverse(deviation, mean))


def fit_components(encoder, images, recipe, count, standardize, threads=1):
    """The recipe with mean, scale and `count` principal components of the features of these images.

    Returns it with the share of the variance that the components hold, in [0, 1]. Raises UserError for too few images.
    """
    if count >= len(images):
        raise UserError(f"features_pca is {count}, but there are {len(images)} training images to fit it to; at most "
                        f"{len(images) - 1}")
    rows = None
    with progress.bar(total=len(images), label="features to fit PCA to", unit=" images") as bar:
        for start, block in blocks(encoder, images, recipe, threads):
            rows = np.empty((len(images), block.shape[1]), np.float32) if rows is None else rows
            rows[start:start + len(block)] = block
            bar.update(len(block))
    mean, scale = moments(rows)
    scale = scale if standardize else np.ones_like(scale)
    rows -= mean
    rows *= scale
    progress.log.info("PCA: %d components of %d values of %d images", count, rows.shape[1], len(rows))
    components, share = principal_components(rows, count, threads)
    return dataclasses.replace(recipe, mean=mean, scale=scale, components=components), share


def moments(rows):
    """(mean, scale) float32 (D,) of the columns of rows (N, D), which may be memory-mapped.

    scale: 1 / deviation, 0 of a column that is constant.
    """
    total, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for start in range(0, len(rows), ROWS):
        total += rows[start:start + ROWS].sum(axis=0, dtype=np.float64)
    mean = total / len(rows)
    for start in range(0, len(rows), ROWS):
        squares += np.square(rows[start:start + ROWS] - mean).sum(axis=0)
    return mean.astype(np.float32), _inverse(np.sqrt(squares / len(rows)), mean)


def _inverse(deviation, mean):
    """float32 1 / deviation, 0 where the deviation is no more than rounding."""
    varies = deviation > CONSTANT * (np.abs(mean) + CONSTANT)
    return np.divide(1, deviation, out=np.zeros_like(deviation), where=varies).astype(np.float32)


def standardize(recipe, *parts):
    """Scale the rows of each part, in place, as the recipe's mean and scale say."""
    for rows in parts:
        for start in range(0, len(rows), ROWS):
            rows[start:start + ROWS] = recipe.finish(rows[start:start + ROWS])


def principal_components(rows, count, threads=1):
    """(components float32 (D, count), share of the variance they hold) of rows (N, D) float32 whose columns have mean 0.

    Unit vectors, that of the largest variance first, each with its largest element positive. From the eigenvectors of the
    smaller of rows' rows (D, D) and rows rows' (N, N), in float32 (LAPACK's ssyevr on one thread): the bits do not depend on
    the number of threads. Directions without variance are zeros. Raises UserError for values that are not finite.
    """
    tall = len(rows) >= rows.shape[1]
    gram = products.gram(rows if tall else rows.T, threads)
    total, size = float(np.trace(gram, dtype=np.float64)), len(gram)
    if not np.isfinite(total):
        raise UserError("the features hold NaN or Inf: the encoder diverged; train it with a lower learning_rate")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        values, vectors = scipy.linalg.eigh(gram, lower=False, overwrite_a=True, check_finite=False, driver="evr",
                                            subset_by_index=[size - count, size - 1])
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    found = values > 1e-6 * values[0]
    if not tall:
        vectors = products.product(rows.T, np.ascontiguousarray(vectors), threads)
        vectors /= np.where(found, np.sqrt(values), 1)
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(count)]
    components = vectors * np.where(found, np.sign(largest), 0).astype(np.float32)
    return np.ascontiguousarray(components, np.float32), float(values[found].sum() / total) if total else 0.0
