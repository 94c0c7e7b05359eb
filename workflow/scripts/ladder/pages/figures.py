"""Pictures for the pages: PNGs as data URIs, and the geometry of the interval chart that the templates draw.

Places are in percent of the width, so that a page can draw the chart at any width and in the colours of its theme.
"""

import base64
import io
import math

import numpy as np
from PIL import Image

from ladder.pages import charts

GAINS = (1, 2, 4, 8)   # possible amplifications of differences between pictures


def png_uri(pixels):
    """A `data:` URI of a PNG; pixels uint8 (H, W, 3), grey (H, W, 1) or, with an alpha channel, (H, W, 4)."""
    file = io.BytesIO()
    pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def tiles(images, columns, gap=0):
    """Images uint8 (N, h, w, 1 or 3) as one picture uint8 (H, W, 4), row by row, with transparent gaps of `gap` pixels."""
    count, height, width, _ = images.shape
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4), np.uint8)
    for index, image in enumerate(images):
        y, x = index // columns * (height + gap), index % columns * (width + gap)
        sheet[y:y + height, x:x + width, :3] = image
        sheet[y:y + height, x:x + width, 3] = 255
    return sheet


def differences(originals, others):
    """Signed differences of uint8 pictures as pictures: (pictures uint8, gain).

    Mid-grey is no difference, brighter means that `others` is too bright. The gain is the largest of GAINS that clips at most
    1 % of the values.
    """
    signed = others.astype(np.int16) - originals.astype(np.int16)
    reach = max(np.percentile(np.abs(signed), 99), 1)
    gain = max((gain for gain in GAINS if gain * reach <= 127), default=1)
    return np.clip(128 + gain * signed, 0, 255).astype(np.uint8), gain


def filters(weights):
    """First-layer filters as pictures uint8 (O, kH, kW, 1 or 3), strongest (largest L2 norm) first.

    weights: float (O, 1 or 3, kH, kW). Each filter is scaled by its own largest weight; mid-grey is zero.
    """
    order = np.argsort(-np.sqrt(np.square(weights).sum(axis=(1, 2, 3))), kind="stable")
    pictures = weights[order].transpose(0, 2, 3, 1)
    largest = np.abs(pictures).max(axis=(1, 2, 3), keepdims=True)
    scaled = pictures / np.where(largest > 0, largest, 1)
    return np.rint(128 + 127 * scaled).astype(np.uint8)


def interval_chart(rows):
    """Values with their standard errors on one axis that covers their range.

    rows: [{"value", "error", ...}] as fractions; error may be None. Returns {"rows": the same with "at", "left" and
    "right" in percent of the scale, "ticks": [{"at", "text"}]}, tick texts in percent.
    """
    spread = [(row["value"] - 2 * (row["error"] or 0), row["value"] + 2 * (row["error"] or 0)) for row in rows]
    low, high = min(left for left, _ in spread), max(right for _, right in spread)
    margin = max(0.1 * (high - low), 0.005)
    low, high = max(0.0, low - margin), min(1.0, high + margin)

    def at(value):
        return round((min(max(value, low), high) - low) / (high - low) * 100, 2)

    return {
        "rows": [{**row, "at": at(row["value"]), "left": at(row["value"] - (row["error"] or 0)),
                  "right": at(row["value"] + (row["error"] or 0))} for row in rows],
        "ticks": [{"at": at(value / 100), "text": f"{text} %"} for value, text in charts.ticks(low * 100, high * 100, 4)],
    }
