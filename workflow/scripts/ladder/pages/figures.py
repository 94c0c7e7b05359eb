"""Pictures for the pages: PNGs as data URIs."""

import base64
import io
import math

import numpy as np
from PIL import Image

SMALL = 32  # largest side of a picture on a sheet
GAINS = (1, 2, 4, 8)  # possible amplifications of differences between pictures


def png(pixels):
    """The bytes of a PNG; pixels uint8 (H, W, 3), grey (H, W, 1) or, with an alpha channel, (H, W,
    4).
    """
    file = io.BytesIO()
    pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", optimize=True)
    return file.getvalue()


def png_uri(pixels):
    """As `png`, a `data:` URI."""
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def sheet(images):
    """Small images as one picture: {"image": a `data:` URI, "columns", "rows", "width", "height"},
    in pixels of one of them.

    images: uint8 (N, h, w, 1 or 3). Of larger ones than SMALL every second, third, ... pixel is
    shown; WebP with losses, a third of a PNG of photographs.
    """
    step, columns = -(-max(images.shape[1:3]) // SMALL), math.ceil(math.sqrt(len(images)))
    small, file = images[:, ::step, ::step], io.BytesIO()
    Image.fromarray(tiles(small, columns)[..., :3]).save(file, "WEBP", quality=70)
    return {
        "image": f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}",
        "columns": columns,
        "rows": -(-len(images) // columns),
        "width": small.shape[2],
        "height": small.shape[1],
    }


def tiles(images, columns, gap=0):
    """Images uint8 (N, h, w, 1 or 3) as one picture uint8 (H, W, 4), row by row, with transparent
    gaps of `gap` pixels.
    """
    count, height, width, _ = images.shape
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4), np.uint8)
    for index, image in enumerate(images):
        y, x = index // columns * (height + gap), index % columns * (width + gap)
        sheet[y : y + height, x : x + width, :3] = image
        sheet[y : y + height, x : x + width, 3] = 255
    return sheet


def differences(originals, others):
    """Signed differences of uint8 pictures as pictures: (pictures uint8, gain).

    Mid-grey is no difference, brighter means that `others` is too bright. The gain is the largest
    of GAINS that clips at most 1 % of the values.
    """
    signed = others.astype(np.int16) - originals.astype(np.int16)
    reach = max(np.percentile(np.abs(signed), 99), 1)
    gain = max((gain for gain in GAINS if gain * reach <= 127), default=1)
    return np.clip(128 + gain * signed, 0, 255).astype(np.uint8), gain


def filters(weights):
    """First-layer filters as pictures uint8 (O, kH, kW, 1 or 3), strongest (largest L2 norm) first.

    weights: float (O, 1 or 3, kH, kW). Each filter is scaled by its own largest weight; mid-grey is
    zero.
    """
    return scaled(
        weights[np.argsort(-np.sqrt(np.square(weights).sum(axis=(1, 2, 3))), kind="stable")]
    )


def scaled(weights):
    """As `filters`, in the order that they have."""
    pictures = weights.transpose(0, 2, 3, 1)
    largest = np.abs(pictures).max(axis=(1, 2, 3), keepdims=True)
    return np.rint(128 + 127 * pictures / np.where(largest > 0, largest, 1)).astype(np.uint8)
