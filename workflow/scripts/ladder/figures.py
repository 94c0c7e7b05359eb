"""Pictures for the pages: PNG strips as data URIs, and the geometry of charts that the templates draw.

Charts are described in percent of the plot (0..100, y from the top), so that the page can draw them at any width and in
the colours of its theme.
"""

import base64
import io
import math

import numpy as np
from PIL import Image

GAINS = (1, 2, 4, 8)   # how far differences between pictures may be amplified
LOG_RATIO = 20         # curves that span more than this factor are drawn on a logarithmic scale


def png_uri(pixels):
    """A `data:` URI of a PNG; pixels uint8 (H, W, 3) or, with opacity, (H, W, 4)."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def tiles(images, columns, gap=0):
    """Images uint8 (N, h, w, 3) as one picture uint8 (H, W, 4), row by row, with transparent gaps of `gap` pixels."""
    count, height, width, _ = images.shape
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4), np.uint8)
    for index, image in enumerate(images):
        y, x = index // columns * (height + gap), index % columns * (width + gap)
        sheet[y:y + height, x:x + width, :3] = image
        sheet[y:y + height, x:x + width, 3] = 255
    return sheet


def differences(originals, others):
    """Signed differences of uint8 pictures, made visible: (pictures uint8, gain).

    Mid-grey is no difference, brighter means `others` is too bright. The gain is the largest of GAINS at which no more
    than one value in a hundred is clipped.
    """
    signed = others.astype(np.int16) - originals.astype(np.int16)
    reach = max(np.percentile(np.abs(signed), 99), 1)
    gain = max((gain for gain in GAINS if gain * reach <= 127), default=1)
    return np.clip(128 + gain * signed, 0, 255).astype(np.uint8), gain


def filters(weights):
    """First-layer filters as pictures uint8 (O, kH, kW, 3), strongest (largest L2 norm) first.

    weights: float (O, 1 or 3, kH, kW). Each filter is scaled by its own largest weight; mid-grey is zero.
    """
    order = np.argsort(-np.sqrt(np.square(weights).sum(axis=(1, 2, 3))), kind="stable")
    pictures = weights[order].transpose(0, 2, 3, 1)
    largest = np.abs(pictures).max(axis=(1, 2, 3), keepdims=True)
    scaled = pictures / np.where(largest > 0, largest, 1)
    return np.broadcast_to(np.rint(128 + 127 * scaled), (*scaled.shape[:3], 3)).astype(np.uint8)


def ticks(low, high, count=5):
    """About `count` round numbers (1, 2 or 5 times a power of ten) from low to high, as [(value, text)]."""
    if high <= low:
        return [(low, f"{low:g}")]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(index * step, f"{index * step:.{decimals}f}" if index else "0") for index in range(first, last + 1)]


def log_ticks(low, high):
    """Powers of ten from low to high, where those are few also twice and five times them, as [(value, text)]."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high < 1000 * low else (1,)
    return [(value, f"{value:g}") for value in (factor * 10.0 ** power for power in powers for factor in factors)
            if low <= value <= high]


def line_chart(series, references=()):
    """Curves over epochs 1, 2, ..., on a y axis from zero, or a logarithmic one where a linear one would hide the end.

    series: [{"name", "values"}], finite numbers >= 0, of any lengths; references: [{"name", "value"}], level lines.
    Returns {"lines": [{"name", "path", "points": [{"x", "y", "epoch", "text"}]}],
    "references": [{"y", "name", "text"}], "x_ticks", "y_ticks": [{"at", "text"}], "widest", "logarithmic"}.
    """
    epochs = max(len(one["values"]) for one in series)
    values = [value for one in series for value in one["values"]] + [line["value"] for line in references]
    low, top = min(values), max(values) or 1.0
    logarithmic = 0 < LOG_RATIO * low < top
    low = 0.8 * low if logarithmic else 0.0

    def x(epoch):
        return 50.0 if epochs == 1 else round((epoch - 1) / (epochs - 1) * 100, 3)

    def y(value):
        share = math.log(value / low) / math.log(top / low) if logarithmic else value / top
        return round((1 - share) * 100, 3)

    def line(one):
        points = [{"x": x(epoch), "y": y(value), "epoch": epoch, "text": f"{value:.4g}"}
                  for epoch, value in enumerate(one["values"], 1)]
        return {"name": one["name"], "points": points,
                "path": "M" + " L".join(f"{point['x']:g} {point['y']:g}" for point in points)}

    marks = log_ticks(low, top) if logarithmic else ticks(0, top, 4)
    y_ticks = [{"at": y(value), "text": text} for value, text in marks]
    return {
        "lines": [line(one) for one in series],
        "references": [{"y": y(level["value"]), "name": level["name"], "text": f"{level['value']:.4g}"}
                       for level in references],
        "x_ticks": [{"at": x(epoch), "text": str(epoch)} for epoch in _epoch_ticks(epochs)],
        "y_ticks": y_ticks,
        "widest": max((tick["text"] for tick in y_ticks), key=len),   # makes room for the axis
        "logarithmic": logarithmic,
    }


def interval_chart(rows):
    """Values with their standard errors on one scale cut to where they lie.

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
        "ticks": [{"at": at(value / 100), "text": f"{text} %"} for value, text in ticks(low * 100, high * 100, 4)],
    }


def _epoch_ticks(epochs):
    """The first and last epoch and round ones between, at most about seven."""
    if epochs <= 7:
        return list(range(1, epochs + 1))
    between = [int(value) for value, _ in ticks(1, epochs, 5)]
    return [1, *(value for value in between if 1 + epochs / 12 <= value <= epochs - epochs / 12), epochs]
