"""Weights of convolutions found from patches, layer by layer, without labels and without gradients.

A patch p is what one window of the layer reads, as a vector of D = kernel * kernel * channels numbers; m and S are the mean and
the covariance of many of them, V and l the eigenvectors and eigenvalues of S, e = `whitening` * the mean of l.
    whitening   zca: M = V diag(1 / sqrt(l + e)) V'   pca: M = diag(1 / sqrt(l + e)) V', the largest l alone
                rotation: M = V', the largest l alone  none: M = 1, m = 0
    atoms       unit vectors d_j among the whitened patches M (p - m): random ones of them, or spherical k-means (Coates and
                Ng, 2012) over them, that is the d_j for which the mean of max_j |d_j . x| is large
All that is linear, so the layer is the convolution it was before, with
    weight_j = d_j M C / s_j    bias_j = b - weight_j . m    s_j: the deviation of d_j M (p - m)
and without atoms weight = M C, bias = -M m. C takes off each patch's own mean, or is 1. Where patches are also divided by their
own deviation, which is not linear, the network has a layer for it behind the convolution; then m = 0 and there is no bias.

Sums over patches are formed piece by piece, each piece by one thread, and added up in their order, so that the bytes do not
depend on the number of threads.
"""

import dataclasses
import time

import numpy as np

from ladder import progress
from ladder.arithmetic import matmul as products
from ladder.arithmetic import randomness
from ladder.errors import UserError
from ladder.progress import log

ROWS = 8192    # patches of a piece
PLACES = 10    # patches of an image, where there are images enough


@dataclasses.dataclass(frozen=True)
class Settings:
    """How layers are fitted; samples and whitening: for the first layer, for the second, ..., the last for all after it.

    atoms: 'kmeans' or 'random'; samples: patches; iterations: of k-means; whitening: what is added to variances, in units of
    their mean.
    """

    atoms: str
    samples: tuple
    iterations: int
    whitening: tuple
    seed: int

    def of_layer(self, number):
        """(patches, whitening) of the layer with this number among those fitted, from 0 on."""
        return tuple(values[min(number, len(values) - 1)] for values in (self.samples, self.whitening))


@dataclasses.dataclass(frozen=True)
class Fitted:
    """One layer's result. weight: float32 (filters, kernel, kernel, channels); bias: float32 (filters,), None without one.

    pictures: float32 as weight, each atom as the patch it stands for, before whitening; None without atoms.
    facts: JSON-able.
    """

    weight: np.ndarray
    bias: np.ndarray | None
    pictures: np.ndarray | None
    facts: dict


class Pieces:
    """Work on many rows, piece by piece: on CPU threads, or with `xp` CuPy on a GPU."""

    def __init__(self, threads, xp=np):
        self.threads, self.xp = threads, xp

    def each(self, rows, work):
        """What work(piece of `rows`, as an array of xp) returns of each piece, a list of NumPy arrays, in order."""
        pieces = [rows[start:start + ROWS] for start in range(0, len(rows), ROWS)]
        if self.xp is np:
            return products.for_each(work, pieces, self.threads)
        return [[self.xp.asnumpy(result) for result in work(self.xp.asarray(piece))] for piece in pieces]

    def place(self, array):
        return self.xp.asarray(array)


def fit(layer, spec, patches, settings, number, pieces):
    """The Fitted of convolution `layer` (layers.Layer) as `spec` (networks.Fit) says.

    patches: float32 (n, D), overwritten; number: of the layer among those fitted. Raises UserError where there are too few
    patches.
    """
    started, filters = time.monotonic(), layer.attributes["filters"]
    if len(patches) < filters:
        raise UserError(f"layer {layer.name} has {filters} filters and {len(patches)} patches to find them in; raise "
                        "patches_samples, or train_limit")
    generator = randomness.generator(settings.seed, randomness.ATOMS, number)
    if spec.centred:
        even_out(patches, spec.contrast)
    components = (spec.components or filters) if spec.whitening in ("pca", "rotation") else None
    whitening = Whitening.measure(patches, spec.whitening, components, settings.of_layer(number)[1], pieces,
                                  about_zero=spec.contrast is not None)
    facts = {"layer": layer.name, "patches": len(patches), "numbers": patches.shape[1], "whitening": spec.whitening,
             "components": len(whitening.matrix), "explained": whitening.explained, "atoms": None, "objective": []}
    matrix, offset, pictures = whitening.matrix, 0.0, None
    if spec.atoms:
        points = whitening.apply(patches, pieces)
        atoms = unit_rows(points[generator.choice(len(points), filters, replace=False)].astype(np.float64))
        if settings.atoms == "kmeans":
            atoms, facts["objective"] = kmeans(points, atoms, settings.iterations, pieces)
        facts["atoms"] = settings.atoms
        pictures = (atoms @ whitening.inverse).reshape(layer.parameters[f"{layer.name}.weight"]).astype(np.float32)
        matrix = atoms / deviations(points, atoms, pieces)[:, None] @ matrix
        offset = spec.bias
    if spec.centred:
        matrix = matrix - matrix.mean(axis=1, keepdims=True)
    bias = (offset - matrix @ whitening.mean).astype(np.float32) if layer.attributes["bias"] else None
    weight = matrix.reshape(layer.parameters[f"{layer.name}.weight"]).astype(np.float32)
    facts["seconds"] = time.monotonic() - started
    return Fitted(weight, bias, pictures, facts)


# Patches.

def sample(layer, images, count, read, seed, number):
    """float32 (n, D) patches of what convolution `layer` reads, n = count or a few more, each inside its image.

    images: (N, H, W, C), of which PLACES patches each are taken, or more where there are too few images; read(images): yields
    (start, what the layer reads of a batch of them). The choice depends on seed, number and count alone.
    """
    kernel, (height, width, channels) = layer.attributes["kernel"], layer.input_shapes[0]
    generator = randomness.generator(seed, randomness.PATCHES, number)
    chosen = np.sort(generator.choice(len(images), min(len(images), -(-count // PLACES)), replace=False))
    places = -(-count // len(chosen))
    tops = generator.integers(0, height - kernel + 1, (len(chosen), places))
    lefts = generator.integers(0, width - kernel + 1, (len(chosen), places))
    patches = np.empty((len(chosen), places, kernel, kernel, channels), np.float32)
    with progress.bar(total=len(chosen), label=f"patches for {layer.name}", unit=" images") as bar:
        for start, values in read(images[chosen]):
            windows = np.lib.stride_tricks.sliding_window_view(values, (kernel, kernel), axis=(1, 2))
            of = np.arange(len(values))[:, None]
            rows = slice(start, start + len(values))
            patches[rows] = windows[of, tops[rows], lefts[rows]].transpose(0, 1, 3, 4, 2)
            bar.update(len(values))
    return patches.reshape(len(chosen) * places, -1)


def even_out(patches, contrast=None):
    """Take off each patch's own mean and, where `contrast` is given, divide it by sqrt(its variance + contrast); in place."""
    patches -= patches.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    if contrast is not None:
        variance = np.einsum("nd,nd->n", patches, patches) / patches.shape[1]
        patches /= np.sqrt(variance + np.float32(contrast))[:, None]


# Whitening.

@dataclasses.dataclass(frozen=True)
class Whitening:
    """x = matrix (p - mean), float64: matrix (components, D), mean (D,); inverse (components, D): p - mean of x, x @ inverse.

    explained: the share of the patches' variance that lies in the directions kept.
    """

    matrix: np.ndarray
    mean: np.ndarray
    inverse: np.ndarray
    explained: float

    @classmethod
    def measure(cls, patches, kind, components, regularisation, pieces, about_zero=False):
        """Of patches (n, D). kind: see networks.Fit; about_zero: take the mean for 0."""
        numbers = patches.shape[1]
        if kind == "none":
            return cls(np.eye(numbers), np.zeros(numbers), np.eye(numbers), 1.0)
        mean, covariance = mean_and_covariance(patches, pieces, about_zero)
        values, vectors = np.linalg.eigh(covariance)
        values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        kept = slice(0, components)
        deviations = np.sqrt(values + regularisation * values.mean()) if kind != "rotation" else np.ones(numbers)
        if kind != "rotation" and not deviations[kept].all():
            raise UserError("a direction in which patches do not differ cannot be whitened; set patches_whitening above 0")
        matrix = (vectors[:, kept] / deviations[kept]).T
        inverse = (vectors[:, kept] * deviations[kept]).T
        if kind == "zca":
            matrix, inverse = vectors @ matrix, vectors @ inverse
        return cls(matrix, mean, inverse, float(values[kept].sum() / values.sum()))

    def apply(self, patches, pieces):
        """float32 (n, components) of patches (n, D)."""
        matrix = pieces.place(self.matrix.T.astype(np.float32))
        mean = pieces.place(self.mean.astype(np.float32))
        return np.concatenate([piece for piece, in pieces.each(patches, lambda rows: [(rows - mean) @ matrix])])


def mean_and_covariance(patches, pieces, about_zero=False):
    """float64 mean (D,) and population covariance (D, D) of patches (n, D); about_zero: the mean is taken for 0."""
    numbers = patches.shape[1]
    if about_zero:
        mean = np.zeros(numbers)
    else:
        mean = sum(total for total, in pieces.each(patches, lambda rows: [rows.sum(axis=0, dtype=np.float64)])) / len(patches)
    shift, covariance = pieces.place(mean.astype(np.float32)), np.zeros((numbers, numbers))

    def squares(rows):
        centred = rows - shift
        return [centred.T @ centred]

    for product, in pieces.each(patches, squares):
        covariance += product
    return mean, covariance / len(patches)


# Atoms.

def kmeans(points, atoms, iterations, pieces):
    """(unit rows float64 (K, d), the mean of max |atom . point| before each iteration) from `atoms` on.

    Each point belongs to the atom with the largest |atom . point|; each atom becomes the unit vector along the sum of its
    points, those with a negative product turned round, for which their sum of |atom . point| is largest. Both raise the mean.
    An atom without points stays.
    """
    xp, objective = pieces.xp, []
    for _ in progress.bar(range(iterations), "k-means"):
        placed = pieces.place(atoms.T.astype(np.float32))

        def assign(rows, placed=placed):
            dots = rows @ placed
            at = xp.arange(len(rows)), xp.abs(dots).argmax(axis=1)
            best = dots[at]
            dots[...] = 0
            dots[at] = xp.sign(best)
            return [dots.T @ rows, xp.abs(best).sum(dtype=np.float64)]

        sums, total = np.zeros(atoms.shape), 0.0
        for part, gained in pieces.each(points, assign):
            sums += part
            total += float(gained)
        objective.append(total / len(points))
        alive = sums.any(axis=1)
        atoms = np.where(alive[:, None], unit_rows(sums), atoms)
    return atoms, objective


def unit_rows(rows):
    """Rows divided by their length; zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def deviations(points, atoms, pieces):
    """float64 (K,): the deviation of atom . point over all points; 1 where it is 0."""
    placed = pieces.place(atoms.T.astype(np.float32))

    def moments(rows):
        answers = rows @ placed
        return [answers.sum(axis=0, dtype=np.float64), pieces.xp.square(answers).sum(axis=0, dtype=np.float64)]

    total, squares = (sum(parts) for parts in zip(*pieces.each(points, moments), strict=True))
    found = np.sqrt(np.maximum(squares / len(points) - np.square(total / len(points)), 0))
    return np.where(found > 0, found, 1)


def log_facts(facts):
    """One line on a layer that is fitted."""
    kept = f", {facts['components']} directions with {facts['explained']:.1%} of the variance" if facts["explained"] < 1 else ""
    gained = (f", objective {facts['objective'][0]:.4f} to {facts['objective'][-1]:.4f} in {len(facts['objective'])} iterations"
              if facts["objective"] else "")
    log.info("%s: %d patches of %d numbers, whitening %s%s%s: %s", facts["layer"], facts["patches"], facts["numbers"],
             facts["whitening"], kept, gained, progress.duration(facts["seconds"]))
