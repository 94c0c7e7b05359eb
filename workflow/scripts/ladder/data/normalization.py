"""Normalization of pixels 0..255 to the network's input, and its inverse.

unit         value = pixel / 255
standardize  value = (pixel - mean) / standard deviation, per channel
zca          value = W (pixel / 255 - mean), W = V diag(1 / sqrt(eigenvalue + ZCA_EPSILON)) V', the
             columns of V being the eigenvectors of the covariance of the flattened images:
             decorrelates all values and, of all such maps, changes the image least (Bell and
             Sejnowski 1997; Krizhevsky 2009, appendix A). The epsilon prevents the amplification of
             noise in directions of small variance.

Statistics are measured on training rows only. Sums over rows are exact sums of integers, so they do
not depend on the order of additions, and no result depends on the number of threads.
"""

import dataclasses
import math

import numpy as np

from ladder.arithmetic import matmul
from ladder.errors import UserError

# values of an image that is whitened: a float64 matrix of their covariances has 2.1 GB
MOST_WHITENED = 16_384
ZCA_EPSILON = 1e-2  # added to the variances along the eigenvectors, for pixels in [0, 1]
# Rows per product of centred pixels: 1000 * 128**2 < 2**24, so float32 holds every partial sum
# exactly.
ROWS = 1000
FILE = "statistics.safetensors"


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Statistics of the training rows; D = height * width * channels.

    scale, offset: float32 (channels,), value = stored * scale + offset for every row stored in a
    normalized artifact. zca only (with scale = 1 and offset = 0, because rows are stored whitened):
    mean float32 (D,) of pixel / 255; whitening and its inverse unwhitening float32 (D, D), both
    symmetric.
    """

    scale: np.ndarray
    offset: np.ndarray
    mean: np.ndarray | None = None
    whitening: np.ndarray | None = None
    unwhitening: np.ndarray | None = None

    @classmethod
    def load(cls, artifact):
        """Statistics of a normalized artifact (artifacts.Artifact); raises UserError if they are
        damaged.
        """
        tensors = artifact.tensors(FILE)
        if (
            not {"scale", "offset"}
            <= set(tensors)
            <= {field.name for field in dataclasses.fields(cls)}
        ):
            raise UserError(
                f"{artifact.folder / FILE} does not hold statistics; remove {artifact.folder} and run "
                "again"
            )
        return cls(**tensors)

    def tensors(self):
        """The arrays by name, as saved."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def apply(self, images, out=None):
        """float32 network input for stored rows (N, H, W, C) uint8 or float32.

        out: C-contiguous float32 array of that shape to write to; by default a new one.
        """
        if out is None:
            out = np.empty(images.shape, np.float32)
        if out.shape != images.shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise ValueError(f"out must be C-contiguous float32 {images.shape}")
        # Whole images as rows: NumPy is seven times slower if its inner loop has only three
        # channels.
        values = math.prod(images.shape[1:])
        flat = out.reshape(-1, values)
        np.multiply(
            images.reshape(-1, values), np.tile(self.scale, values // len(self.scale)), out=flat
        )
        flat += np.tile(self.offset, values // len(self.scale))
        return out

    def to_pixels(self, values):
        """uint8 images from values (N, H, W, C): the inverse of `apply`, rounded and clipped."""
        if self.unwhitening is None:
            pixels = (values - self.offset) / self.scale
        else:
            pixels = 255 * (values.reshape(len(values), -1) @ self.unwhitening + self.mean).reshape(
                values.shape
            )
        return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)

    def whiten(self, images, out, threads=1):
        """zca: write the whitened uint8 pixels `images` to `out`, float32, both (N, H, W, C)."""
        centred = images.reshape(len(images), -1) * np.float32(1 / 255) - self.mean
        out[...] = matmul.product(centred, self.whitening, threads).reshape(images.shape)


def measure(normalization, images, threads=1):
    """Statistics of uint8 training images (N, H, W, C), read in chunks.

    normalization: unit, standardize or zca. Raises UserError if a channel is constant and
    normalization is standardize.
    """
    if normalization == "zca":
        return _zca(images, threads)
    return {"unit": _unit, "standardize": _standardize}[normalization](images)


def chunks(images):
    """Consecutive slices of ROWS images; the last one may be shorter."""
    for start in range(0, len(images), ROWS):
        yield images[start : start + ROWS]


def _unit(images):
    channels = images.shape[-1]
    return Statistics(np.full(channels, 1 / 255, np.float32), np.zeros(channels, np.float32))


def _standardize(images):
    channels = images.shape[-1]
    total = np.zeros(channels, np.int64)
    squares = np.zeros(channels, np.int64)
    for chunk in chunks(images):
        pixels = chunk.reshape(-1, channels).astype(np.int64)
        total += pixels.sum(axis=0)
        squares += (pixels * pixels).sum(axis=0)
    count = images.size // channels
    # Python integers, because the products exceed 64 bits.
    variance = np.array(
        [
            (count * square - pixel * pixel) / count**2
            for pixel, square in zip(total.tolist(), squares.tolist(), strict=True)
        ]
    )
    if not variance.all():
        raise UserError(
            "normalization standardize cannot scale a channel that has one value in all training rows; "
            "use unit"
        )
    deviation = np.sqrt(variance)
    return Statistics(
        (1 / deviation).astype(np.float32), (-total / count / deviation).astype(np.float32)
    )


def _zca(images, threads):
    mean, covariance = mean_and_covariance(images, threads)
    eigenvalues, vectors = np.linalg.eigh(covariance)
    deviations = np.sqrt(np.maximum(eigenvalues, 0) + ZCA_EPSILON)
    channels = images.shape[-1]
    return Statistics(
        np.ones(channels, np.float32),
        np.zeros(channels, np.float32),
        mean=mean.astype(np.float32),
        whitening=((vectors / deviations) @ vectors.T).astype(np.float32),
        unwhitening=((vectors * deviations) @ vectors.T).astype(np.float32),
    )


def mean_and_covariance(images, threads=1):
    """float64 mean (D,) and population covariance (D, D) of uint8 images / 255, each flattened to D
    values.
    """
    values = math.prod(images.shape[1:])
    total = np.zeros(values)
    products = np.zeros((values, values))
    for chunk in chunks(images):
        centred = chunk.reshape(len(chunk), values).astype(np.float32) - np.float32(128)
        total += centred.sum(axis=0, dtype=np.float64)
        products += matmul.gram(centred, threads)
    products = np.triu(products) + np.triu(products, 1).T
    count = len(images)
    products *= count
    products -= np.outer(total, total)
    products /= (255 * count) ** 2
    return (total / count + 128) / 255, products
