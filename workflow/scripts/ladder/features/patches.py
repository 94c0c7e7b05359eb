"""Unsupervised fitting of convolutions to patches, layer by layer, without labels and without
gradients.

A patch p is one window of the layer's input as a vector of D = kernel * kernel * channels values; m
and S are the mean and the covariance of the sampled patches, V and l the eigenvectors and
eigenvalues of S, e = `whitening` * mean(l).
    whitening   zca: M = V diag(1 / sqrt(l + e)) V'   pca: M = diag(1 / sqrt(l + e)) V', largest l
                only rotation: M = V', largest l only      none: M = 1, m = 0
    filters     unit vectors d_j from the whitened patches x = M (p - m): a random sample of them,
                or spherical k-means (Coates and Ng, 2012), which increases the mean of max_j |d_j .
                x|
These maps are linear, so the layer stays a convolution, with
    weight_j = d_j M C / s_j    bias_j = b - weight_j . m    s_j: the standard deviation of d_j M (p
                                - m)
or, if the filters are the PCA components, weight = M C, bias = -M m. C subtracts each patch's mean,
or is 1. Dividing patches by their standard deviation is not linear: the network then has a layer
for it after the convolution, m = 0 and no bias.

Sums over patches are computed in fixed-size pieces, one thread each, and added in order, so results
are bit-identical for any number of threads.
"""

import dataclasses
import math
import time

import numpy as np

from ladder import progress
from ladder.arithmetic import randomness
from ladder.errors import UserError
from ladder.progress import log

ROWS = 8192  # patches per piece
# Patches per image of up to PLACES_OF pixels, if there are enough images. A larger image gives
# more, so that the layers before the sampled one are computed for no more pixels.
PLACES, PLACES_OF = 10, 32 * 32


@dataclasses.dataclass(frozen=True)
class PatchSettings:
    """Hyperparameters of the fits. samples, whitening: one value per layer; the last one applies to
    all further layers.

    atoms       how filters are found, 'kmeans' or 'random'
    samples     number of patches
    iterations  of k-means
    whitening   regularisation added to variances, in units of their mean
    """

    atoms: str
    samples: tuple
    iterations: int
    whitening: tuple
    seed: int

    def of_layer(self, number):
        """(patches, whitening) of the fitted layer with this index, from 0."""
        return tuple(
            values[min(number, len(values) - 1)] for values in (self.samples, self.whitening)
        )


@dataclasses.dataclass(frozen=True)
class Fitted:
    """One layer's result. weight: float32 (filters, kernel, kernel, channels); bias: float32
    (filters,), None without one.

    pictures: float32 as weight, each filter as a patch before whitening; None if the filters are
    the PCA components. facts: JSON-able.
    """

    weight: np.ndarray
    bias: np.ndarray | None
    pictures: np.ndarray | None
    facts: dict


class PatchFitter:
    """Work on many rows in fixed-size pieces by a library (arrays.py)."""

    def __init__(self, library):
        self.library, self.xp, self.upload = library, library.xp, library.upload

    def each(self, rows, work):
        """The results of work(piece of `rows` as an array of xp), a list of NumPy arrays for each
        piece, in order.
        """
        library, pieces = (
            self.library,
            [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)],
        )
        return library.each(
            lambda piece: [library.download(result) for result in work(library.upload(piece))],
            pieces,
        )


def fit(layer, spec, patches, settings, number, fitter):
    """The Fitted of convolution `layer` (layers.Layer) by `spec` (networks.Fit).

    patches: float32 (n, D), overwritten; number: index of the layer among those fitted. Raises
    UserError for too few patches.
    """
    started, count = time.monotonic(), layer.attributes["filters"]
    if len(patches) < count:
        raise UserError(
            f"layer {layer.name} has {count} filters and {len(patches)} patches to fit them to; raise "
            "patches_samples, or train_limit"
        )
    generator = randomness.generator(settings.seed, randomness.ATOMS, number)
    if spec.centred:
        even_out(patches, spec.contrast)
    components = (spec.components or count) if spec.whitening in ("pca", "rotation") else None
    whitening = Whitening.measure(
        patches,
        spec.whitening,
        components,
        settings.of_layer(number)[1],
        fitter,
        about_zero=spec.contrast is not None,
    )
    facts = {
        "layer": layer.name,
        "patches": len(patches),
        "numbers": patches.shape[1],
        "whitening": spec.whitening,
        "components": len(whitening.matrix),
        "explained": whitening.explained,
        "atoms": None,
        "objective": [],
    }
    matrix, offset, pictures = whitening.matrix, 0.0, None
    if spec.atoms:
        points = whitening.apply(patches, fitter)
        filters = unit_rows(
            points[generator.choice(len(points), count, replace=False)].astype(np.float64)
        )
        if settings.atoms == "kmeans":
            filters, facts["objective"] = kmeans(points, filters, settings.iterations, fitter)
        facts["atoms"] = settings.atoms
        pictures = (
            (filters @ whitening.inverse)
            .reshape(layer.parameters[f"{layer.name}.weight"])
            .astype(np.float32)
        )
        matrix = filters / deviations(points, filters, fitter)[:, None] @ matrix
        offset = spec.bias
    if spec.centred:
        matrix = matrix - matrix.mean(axis=1, keepdims=True)
    bias = (
        (offset - matrix @ whitening.mean).astype(np.float32) if layer.attributes["bias"] else None
    )
    weight = matrix.reshape(layer.parameters[f"{layer.name}.weight"]).astype(np.float32)
    facts["seconds"] = time.monotonic() - started
    return Fitted(weight, bias, pictures, facts)


# Patches.


def sample(layer, images, count, read, seed, number):
    """float32 (n, D) patches of the input of convolution `layer`, n = count or a few more, without
    padding.

    images: (N, H, W, C), with PLACES patches per image, more for large or too few images;
    read(images): yields (start, input of the layer for a batch). The choice depends only on seed,
    number and count.
    """
    kernel, (height, width, channels) = layer.attributes["kernel"], layer.input_shapes[0]
    each = PLACES * max(1, math.prod(images.shape[1:3]) // PLACES_OF)
    generator = randomness.generator(seed, randomness.PATCHES, number)
    chosen = np.sort(
        generator.choice(len(images), min(len(images), -(-count // each)), replace=False)
    )
    places = -(-count // len(chosen))
    tops = generator.integers(0, height - kernel + 1, (len(chosen), places))
    lefts = generator.integers(0, width - kernel + 1, (len(chosen), places))
    patches = np.empty((len(chosen), places, kernel, kernel, channels), np.float32)
    with progress.bar(total=len(chosen), label=f"patches for {layer.name}", unit=" images") as bar:
        for start, values in read(images[chosen]):
            windows = np.lib.stride_tricks.sliding_window_view(
                values, (kernel, kernel), axis=(1, 2)
            )
            image = np.arange(len(values))[:, None]
            rows = slice(start, start + len(values))
            patches[rows] = windows[image, tops[rows], lefts[rows]].transpose(0, 1, 3, 4, 2)
            bar.update(len(values))
    return patches.reshape(len(chosen) * places, -1)


def even_out(patches, contrast=None):
    """Subtract each patch's mean and, if `contrast` is given, divide by sqrt(its variance +
    contrast), in place.
    """
    patches -= patches.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    if contrast is not None:
        variance = np.einsum("nd,nd->n", patches, patches) / patches.shape[1]
        patches /= np.sqrt(variance + np.float32(contrast))[:, None]


# Whitening.


@dataclasses.dataclass(frozen=True)
class Whitening:
    """x = matrix (p - mean), float64: matrix (components, D), mean (D,); inverse (components, D): p
    - mean = x @ inverse.

    explained: share of the patches' variance in the PCA components.
    """

    matrix: np.ndarray
    mean: np.ndarray
    inverse: np.ndarray
    explained: float

    @classmethod
    def measure(cls, patches, kind, components, regularisation, fitter, about_zero=False):
        """The Whitening fitted to patches (n, D). kind: as networks.Fit.whitening; about_zero:
        assume a mean of 0.
        """
        numbers = patches.shape[1]
        if kind == "none":
            return cls(np.eye(numbers), np.zeros(numbers), np.eye(numbers), 1.0)
        mean, covariance = mean_and_covariance(patches, fitter, about_zero)
        values, vectors = np.linalg.eigh(covariance)
        values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        leading = slice(0, components)
        deviations = (
            np.sqrt(values + regularisation * values.mean())
            if kind != "rotation"
            else np.ones(numbers)
        )
        if kind != "rotation" and not deviations[leading].all():
            raise UserError(
                "a direction without variance among the patches cannot be whitened; set patches_whitening above 0"
            )
        matrix = (vectors[:, leading] / deviations[leading]).T
        inverse = (vectors[:, leading] * deviations[leading]).T
        if kind == "zca":
            matrix, inverse = vectors @ matrix, vectors @ inverse
        return cls(matrix, mean, inverse, float(values[leading].sum() / values.sum()))

    def apply(self, patches, fitter):
        """float32 (n, components) of patches (n, D)."""
        matrix = fitter.upload(self.matrix.T.astype(np.float32))
        mean = fitter.upload(self.mean.astype(np.float32))
        return np.concatenate(
            [piece for (piece,) in fitter.each(patches, lambda rows: [(rows - mean) @ matrix])]
        )


def mean_and_covariance(patches, fitter, about_zero=False):
    """float64 mean (D,) and population covariance (D, D) of patches (n, D); about_zero: the mean is
    0.
    """
    numbers = patches.shape[1]
    if about_zero:
        mean = np.zeros(numbers)
    else:
        mean = sum(
            total
            for (total,) in fitter.each(patches, lambda rows: [rows.sum(axis=0, dtype=np.float64)])
        ) / len(patches)
    shift, covariance = fitter.upload(mean.astype(np.float32)), np.zeros((numbers, numbers))

    def squares(rows):
        centred = rows - shift
        return [centred.T @ centred]

    for (product,) in fitter.each(patches, squares):
        covariance += product
    return mean, covariance / len(patches)


# Filters.


def kmeans(points, centroids, iterations, fitter):
    """Spherical k-means from `centroids` on: (unit rows float64 (K, d), mean of max |centroid .
    point| before each iteration).

    Each point is assigned to the centroid with the largest |centroid . point|; each centroid
    becomes the unit vector along the sum of its points, negated if their product with it is
    negative. Both steps increase the mean. A centroid without points stays.
    """
    xp, objective = fitter.xp, []
    for _ in progress.bar(range(iterations), "k-means"):
        uploaded = fitter.upload(centroids.T.astype(np.float32))

        def assign(rows, uploaded=uploaded):
            dots = rows @ uploaded
            at = xp.arange(len(rows)), xp.abs(dots).argmax(axis=1)
            best = dots[at]
            dots[...] = 0
            dots[at] = xp.sign(best)
            return [dots.T @ rows, xp.abs(best).sum(dtype=np.float64)]

        sums, total = np.zeros(centroids.shape), 0.0
        for part, gained in fitter.each(points, assign):
            sums += part
            total += float(gained)
        objective.append(total / len(points))
        alive = sums.any(axis=1)
        centroids = np.where(alive[:, None], unit_rows(sums), centroids)
    return centroids, objective


def unit_rows(rows):
    """Rows divided by their length; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def deviations(points, filters, fitter):
    """float64 (K,): the standard deviation of filter . point over all points; 1 instead of 0."""
    uploaded = fitter.upload(filters.T.astype(np.float32))

    def moments(rows):
        answers = rows @ uploaded
        return [
            answers.sum(axis=0, dtype=np.float64),
            fitter.xp.square(answers).sum(axis=0, dtype=np.float64),
        ]

    total, squares = (sum(parts) for parts in zip(*fitter.each(points, moments), strict=True))
    spread = np.sqrt(np.maximum(squares / len(points) - np.square(total / len(points)), 0))
    return np.where(spread > 0, spread, 1)


def log_facts(facts):
    """Log one line on a fitted layer."""
    reduction = (
        f", {facts['components']} PCA components with {facts['explained']:.1%} of the variance"
        if facts["explained"] < 1
        else ""
    )
    gained = (
        f", objective {facts['objective'][0]:.4f} to {facts['objective'][-1]:.4f} in {len(facts['objective'])} iterations"
        if facts["objective"]
        else ""
    )
    log.info(
        "%s: %d patches of %d values, whitening %s%s%s: %s",
        facts["layer"],
        facts["patches"],
        facts["numbers"],
        facts["whitening"],
        reduction,
        gained,
        progress.duration(facts["seconds"]),
    )
