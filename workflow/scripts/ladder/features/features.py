"""Feature vectors: optional operations on a layer's output, in this order, for every image.

two polarities  relu(z - a), then relu(-z - a), of the output z, which doubles the channels; scaled:
                of (z - mean) / deviation, by channel (soft threshold, Coates and Ng, 2011)
max-pool        the largest value in each window
pool            the mean over each cell of a grid
flatten         in CHW order
flip            the mean of the vectors of the image and its mirror image
standardise     (value - mean) / deviation, by feature
PCA             the projection on the principal directions

With `features_flip: apart`, half the difference of the two vectors follows the mean as further
features, the odd part: mirroring the image changes its sign and leaves the mean, the even part, as
it is. The odd part is divided by the deviations of the even one and has principal directions of its
own; its mean over images and their mirror images is 0.

Means, standard deviations and principal directions are fitted to training images. PCA and the
scaled polarities are fitted to a sample, so the full vectors of all images, which PCA shortens,
need neither fit in memory nor on disk.
"""

import dataclasses

import numpy as np

from ladder import progress
from ladder.arithmetic import randomness
from ladder.arithmetic.arrays import NumPy
from ladder.arithmetic.lazy_rows import forget
from ladder.features import pca
from ladder.machine import compiling
from ladder.store import artifacts

FILE = "features.safetensors"  # the fitted arrays in a features artifact
BATCH = 64  # images of inference.Inference
ROWS = 32 * BATCH  # per block, so all batches but the last are full
ON_CPU = NumPy()
MOMENTS_NUMBERS = 2**24  # in float64 at once
CONSTANT = 1e-6  # a standard deviation below this share of the mean is a rounding error


@dataclasses.dataclass(frozen=True)
class FeatureTransform:
    """The options of the features and the fitted arrays. D: values per image before PCA, C:
    channels.

    threshold  a, None for one polarity
    max_pool   side of the window, 1 for none
    grid       cells per side, 0 for none
    flip       False, True, or 'apart' for the odd part too

    Fitted, float32, None if not used: channel_mean, channel_scale (C,); mean, scale (D,);
    components, odd_components (D, n).
    """

    threshold: float | None = None
    max_pool: int = 1
    grid: int = 0
    flip: bool | str = False
    channel_mean: np.ndarray | None = None
    channel_scale: np.ndarray | None = None
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None
    components: np.ndarray | None = None
    odd_components: np.ndarray | None = None

    @classmethod
    def from_params(cls, params, fitted=None):
        """The transform of a features stage's params; fitted: the tensors of its FILE, {} or None
        before the fit.
        """
        threshold, grid = (
            params.get(key, "none") for key in ("features_two_polarity", "features_pool")
        )
        return cls(
            threshold=None if threshold == "none" else threshold,
            max_pool=params.get("features_max_pool", 1),
            grid=0 if grid == "none" else grid,
            flip=params.get("features_flip", False),
            **(fitted or {}),
        )

    def tensors(self):
        """The fitted arrays by name, as saved."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def pooled_shape(self, shape):
        """(H, W, C) after polarities and pooling of activations of this shape."""
        height, width, channels = shape
        height, width = (
            (self.grid, self.grid)
            if self.grid
            else (height // self.max_pool, width // self.max_pool)
        )
        return height, width, channels * (1 if self.threshold is None else 2)

    def flat(self, values, library=ON_CPU):
        """float32 (N, D) of activations (N, H, W, C): all operations before the flip."""
        if self.threshold is not None and self.grid:
            from ladder.features import polarities  # here, because of Numba

            scaled = None if self.channel_mean is None else (self.channel_mean, self.channel_scale)
            return polarities.average(
                values, scaled, self.threshold, self.max_pool, self.grid, library
            )
        if self.channel_mean is not None:
            values = (values - self.channel_mean) * self.channel_scale
        if self.threshold is None:
            values = max_pool(values, self.max_pool)
        else:
            values = two_polarities(values, np.float32(self.threshold), self.max_pool)
        return _flatten(average_pool(values, self.grid) if self.grid else values)

    def finish(self, rows, project=None):
        """float32 features of rows (N, D), with the odd part (N, 2D), which may be overwritten: all
        operations after the flip.

        project: of the transform's components, needed if it has some (projection).
        """
        if self.mean is not None:
            width = len(self.mean)
            rows[:, :width] -= self.mean
            rows[:, :width] *= self.scale
            if rows.shape[1] > width:
                rows[:, width:] *= self.scale
        return rows if self.components is None else project(rows)

    def projection(self, library):
        """A function: float32 rows (N, D) or (N, 2D) -> (N, n) or (N, 2n) by the components,
        computed by the library.
        """
        if self.components is None:
            return None
        even = library.multiplier(self.components)
        if self.odd_components is None:
            return even
        odd, width = library.multiplier(self.odd_components), len(self.components)
        return lambda rows: np.concatenate([even(rows[:, :width]), odd(rows[:, width:])], axis=1)


def blocks(encoder, images, transform, library=ON_CPU):
    """Yield (start, float32 rows (n, D) or (n, components)): the features of images (N, H, W, C),
    block by block.

    With `flip` apart, rows have twice the columns, the even part's and then the odd one's.

    encoder: batches(images, mirrored) yields (start, activations), like inference.Inference. The
    array is reused for the next block. The demo's predictor uses this too, with the transform in a
    features artifact (FeatureTransform.from_params).
    """
    rows, project, parts = (
        None,
        transform.projection(library),
        2 if transform.flip == "apart" else 1,
    )
    for start in range(0, len(images), ROWS):
        block = images[start : start + ROWS]
        for at, values in encoder.batches(block, False):
            flat = transform.flat(values, library)
            if rows is None:
                rows = np.empty((min(ROWS, len(images)), parts, flat.shape[1]), np.float32)
            rows[at : at + len(flat)] = flat[:, None]
        if transform.flip:
            for at, values in encoder.batches(block, True):
                mirrored, here = transform.flat(values, library), rows[at : at + len(values)]
                here[:, 0] += mirrored
                if parts == 2:
                    here[:, 1] -= mirrored
            rows[: len(block)] *= 0.5
        yield start, transform.finish(rows[: len(block)].reshape(len(block), -1), project)


def extract(encoder, images, transform, outs, label, library=ON_CPU):
    """Fill outs, one array (N, D or components) float32 or one and one for the odd part, with the
    features of images.
    """
    with progress.bar(total=len(images), label=label, unit=" images") as bar:
        for start, rows in blocks(encoder, images, transform, library):
            put(outs, slice(start, start + len(rows)), rows)
            bar.update(len(rows))


def put(outs, at, rows):
    """Write rows, whose last columns are the odd part's, to these places (a slice or indices) of
    `outs`, the arrays that `extract` fills.
    """
    for out, part in zip(outs, np.split(rows, len(outs), axis=1), strict=True):
        out[at] = part
        forget(out)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The images at `indices` (n,) as an array whose slices are read from `images` (N, H, W, C), or
    the rows there, written.
    """

    images: np.ndarray
    indices: np.ndarray

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, rows):
        return self.images[self.indices[rows]]

    def __setitem__(self, rows, values):
        self.images[self.indices[rows]] = values
        forget(self.images)


def prepare(encoder, images, transform, library=ON_CPU, batch=BATCH):
    """Compile what `extract` of these images needs, before a clock starts; batch: images that the
    encoder takes at once.
    """
    with compiling.shown():
        for start in {0, len(images) // batch * batch} - {len(images)}:
            next(blocks(encoder, images[start : start + batch], transform, library))


class Pixels:
    """The encoder of the raw-pixel baseline: its output is the normalized images. statistics:
    normalization.Statistics.
    """

    def __init__(self, statistics):
        self._statistics = statistics

    def batches(self, images, mirrored=False):
        yield (
            0,
            self._statistics.apply(
                np.ascontiguousarray(images[:, :, ::-1]) if mirrored else images
            ),
        )


# Pooling and polarities.


def max_pool(values, window):
    """Max-pooling of activations (N, H, W, C) with stride `window`; ValueError if H or W is not
    divisible.
    """
    return values if window == 1 else _pool(values, window, np.maximum)


def two_polarities(values, threshold, window=1):
    """relu(z - threshold), then relu(-z - threshold), of activations z (N, H, W, C), max-pooled:
    twice the channels.
    """
    # The largest relu(z - a) of a window is that of its largest z, the largest relu(-z - a) that of
    # its smallest z: pooling first leaves fewer values to threshold.
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
    """Means over a grid x grid partition of activations (N, H, W, C); ValueError if H or W is not
    divisible.
    """
    count, height, width, channels = values.shape
    if height % grid or width % grid:
        raise ValueError(f"{height}x{width} activations cannot be pooled to {grid}x{grid}")
    return values.reshape(count, grid, height // grid, grid, width // grid, channels).mean(
        axis=(2, 4)
    )


def _flatten(values):
    return values.transpose(0, 3, 1, 2).reshape(len(values), -1)


# Fitting.


def sample(count, most, seed):
    """Ascending indices of at most `most` of `count` training images, sampled by the seed."""
    drawn = randomness.generator(seed, randomness.FEATURE_ROWS, 0).permutation(count)[:most]
    return np.sort(drawn)


def fit_channels(encoder, images, transform):
    """The transform with mean and scale of every channel, fitted to the activations of these
    images.
    """
    from ladder.features import polarities  # here, because of Numba

    moments = count = 0
    with progress.bar(total=len(images), label="statistics of the channels", unit=" images") as bar:
        for start in range(0, len(images), ROWS):
            for _, values in encoder.batches(images[start : start + ROWS], False):
                rows = values.reshape(-1, values.shape[3])
                moments, count = moments + polarities.moments(rows), count + len(rows)
                bar.update(len(values))
    mean, squares = moments / count
    deviation = np.sqrt(np.maximum(squares - np.square(mean), 0))
    return dataclasses.replace(
        transform, channel_mean=mean.astype(np.float32), channel_scale=_inverse(deviation, mean)
    )


def rows_for_pca(encoder, images, transform, library, folder):
    """float32 features of images, with the odd part's columns last, that PCA is fitted to:
    memory-mapped, of a file without a name in `folder`.
    """
    rows = None
    with progress.bar(total=len(images), label="features to fit PCA", unit=" images") as bar:
        for start, block in blocks(encoder, images, transform, library):
            if rows is None:
                rows = artifacts.unnamed_array(folder, (len(images), block.shape[1]), np.float32)
            rows[start : start + len(block)] = block
            forget(rows)
            bar.update(len(block))
    return rows


def fit_components(rows, transform, count, standardize, library=ON_CPU):
    """(transform with mean, scale and `count` PCA components fitted to the rows of rows_for_pca,
    explained share of the variance in [0, 1], float32 features of the rows' images, with the odd
    part's columns last).

    The library (arrays.py) computes the components.
    """
    parts = 2 if transform.flip == "apart" else 1
    width = rows.shape[1] // parts
    mean, scale = moments(rows[:, :width])
    scale = scale if standardize else np.ones_like(scale)
    progress.log.info(
        "PCA by %s: %d components of %d values of %d images", library.name, count, width, len(rows)
    )
    means = (mean, np.zeros_like(mean))[:parts]  # the odd part has none
    (components, share, known), *odd = pca.principal_components(
        [pca.Part(rows, place * width, mean, scale) for place, mean in enumerate(means)],
        count,
        library,
    )
    transform = dataclasses.replace(
        transform,
        mean=mean,
        scale=scale,
        components=components,
        odd_components=odd[0][0] if odd else None,
    )
    return transform, share, np.concatenate([known, *(values for *_, values in odd)], axis=1)


def moments(rows):
    """(mean, scale) float32 (D,) of the columns of rows (N, D), which may be memory-mapped.

    scale: 1 / standard deviation, 0 for a constant column.
    """
    size = max(1, min(ROWS, MOMENTS_NUMBERS // rows.shape[1]))
    blocks = [slice(start, start + size) for start in range(0, len(rows), size)]
    total, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for block in blocks:
        total += rows[block].sum(axis=0, dtype=np.float64)
        forget(rows)
    mean = total / len(rows)
    for block in blocks:
        apart = rows[block] - mean
        squares += np.square(apart, out=apart).sum(axis=0)
        forget(rows)
    return mean.astype(np.float32), _inverse(np.sqrt(squares / len(rows)), mean)


def _inverse(deviation, mean):
    """float32 1 / deviation, 0 if the deviation is a rounding error."""
    varies = deviation > CONSTANT * (np.abs(mean) + CONSTANT)
    return np.divide(1, deviation, out=np.zeros_like(deviation), where=varies).astype(np.float32)


def standardize(transform, *sets):
    """Standardise the rows of each set, arrays as `outs` of extract, in place with the transform's
    mean and scale.
    """
    for outs in sets:
        for start in range(0, len(outs[0]), ROWS):
            block = slice(start, start + ROWS)
            put(outs, block, transform.finish(np.concatenate([out[block] for out in outs], axis=1)))
