"""Pictures for the pages: PNGs as data URIs, and the geometry of charts that the templates draw.

Charts are described in percent of the plot (0..100, y from the top), so that a page can draw them at any width and in
the colours of its theme.
"""

import base64
import io
import math

import numpy as np
from PIL import Image

GAINS = (1, 2, 4, 8)   # possible amplifications of differences between pictures
LABEL = 40             # percent of a chart's width reserved for the name of a reference line
LOG_RATIO = 20         # curves that span more than this factor get a logarithmic axis


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
    """Powers of ten from low to high, for less than three decades also 2 and 5 times them, as [(value, text)]."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high < 1000 * low else (1,)
    return [(value, f"{value:g}") for value in (factor * 10.0 ** power for power in powers for factor in factors)
            if low <= value <= high]


def line_chart(lines, last, scale, references=(), marks=()):
    """Curves over the steps 0 .. last.

    lines: [{"name", "points": [(step, value, text)]}]; scale: of the y axis, such as loss_scale; references: horizontal and
    marks: vertical lines, [{"name", "value"}] each. Returns {"lines": [{"name", "path", "points": [{"x", "y", "text"}]}],
    "references": [{"y", "name", "left", "above"}], "marks": [{"x", "name"}], "x_ticks", "y_ticks": [{"at", "text"}], "widest",
    "stretched"}.
    """
    values = [value for line in lines for _, value, _ in line["points"]] + [level["value"] for level in references]
    height, y_ticks, stretched = scale(values)

    def x(step):
        return round(100 * step / last, 3)

    def y(value):
        return round(100 - 100 * height(value), 3)

    def line(one):
        points = [{"x": x(step), "y": y(value), "text": text} for step, value, text in one["points"]]
        return {"name": one["name"], "points": points,
                "path": "M" + " L".join(f"{point['x']:g} {point['y']:g}" for point in points)}

    y_ticks = [{"at": y(value), "text": text} for value, text in y_ticks]
    drawn = [line(one) for one in lines]
    points = [(point["x"], point["y"]) for one in drawn for point in one["points"]]
    return {
        "lines": drawn,
        "references": [{"y": y(level["value"]), "name": level["name"], **_label_place(y(level["value"]), points)}
                       for level in references],
        "marks": [{"x": x(mark["value"]), "name": mark["name"]} for mark in marks],
        "x_ticks": [{"at": x(step), "text": f"{step:,}"} for step in sorted({round(value) for value, _ in ticks(0, last)})],
        "y_ticks": y_ticks,
        "widest": max((tick["text"] for tick in y_ticks), key=len),   # reserves the width of the axis
        "stretched": stretched,
    }


def _label_place(level, points):
    """The place of a reference line's name away from the curves: at its left or right end, above or below it."""
    ends = {True: [y - level for x, y in points if x < LABEL], False: [y - level for x, y in points if x > 100 - LABEL]}
    left = min(map(abs, ends[True]), default=100) > min(map(abs, ends[False]), default=100)
    curve_below = sum(ends[left]) > 0
    return {"left": left, "above": level > 85 or (curve_below and level > 15)}


def loss_scale(values):
    """(height of a value as a share of the plot, ticks, whether the axis is not linear) for finite values >= 0.

    Linear from zero, or logarithmic if the values span more than LOG_RATIO.
    """
    low, top = min(values), max(values) or 1.0
    if not 0 < LOG_RATIO * low < top:
        return lambda value: value / top, ticks(0, top, 4), False
    return log_scale(values)


def log_scale(values):
    """As loss_scale, but logarithmic unless a value is 0."""
    low, top = 0.8 * min(values), max(values)
    if low <= 0:
        return loss_scale(values)
    found = log_ticks(low, top)
    return (lambda value: math.log(value / low) / math.log(top / low),
            found if len(found) > 1 else [tick for tick in ticks(low, top, 4) if low <= tick[0]], True)


def share_scale(values):
    """As loss_scale, for accuracies from 0 %: logarithmic in the error rate, so that the axis expands towards 100 %."""
    missing = [1 - value for value in values if value < 1]
    nearest = 0.8 * min([*missing, 0.5])
    if max(values) == 1:
        nearest = min(nearest, 0.01)   # 100 % is drawn at this error rate, as its logarithm is infinite
    return (lambda value: math.log(max(1 - value, nearest)) / math.log(nearest),
            [(1 - rest, f"{100 * (1 - rest):.6g} %") for rest, _ in log_ticks(nearest, 1.0)], True)


def score_scale(values):
    """(height of a value as a share of the plot, ticks [(share, text)]) for accuracies, from the smallest to the largest.

    Logarithmic in the error rate, so that good values can be distinguished next to bad ones.
    """
    least = max(1 - min(values), 0.002)
    most = max(0.8 * min([1 - value for value in values if value < 1] or [0.001]), 0.0005)
    least *= 1.05

    def height(value):
        return min(1.0, math.log(least / max(1 - value, most)) / math.log(least / most))

    levels = [1 - rest for rest, _ in log_ticks(most, min(least, 1))]
    if len(levels) < 3:
        levels = [value / 100 for value, _ in ticks(100 * max(0, 1 - least), 100 * (1 - most), 5)]
    return height, [(height(level), f"{100 * level:.6g} %") for level in levels]


def scatter(points, x_ticks, y_ticks):
    """Points and ticks for a plot; places are shares of the plot (0 to 1, from the left and the bottom), results are percent.

    points: [{"x", "y", ...}]; ticks: [(place, text)]. Returns {"points", "x_ticks", "y_ticks": [{"at", "text"}], "widest"}.
    """
    def at(place):
        return round(100 * place, 3)

    return {
        "points": [{**point, "x": at(point["x"]), "y": at(1 - point["y"])} for point in points],
        "x_ticks": [{"at": at(place), "text": text} for place, text in x_ticks],
        "y_ticks": [{"at": at(1 - place), "text": text} for place, text in y_ticks],
        "widest": max((text for _, text in y_ticks), key=len),
    }


def epoch_marks(steps_per_epoch, last):
    """The ends of the epochs before step `last`, for many epochs only of round ones: [{"name", "value"}]."""
    epochs = (last - 1) // steps_per_epoch
    shown = range(1, epochs + 1) if epochs < 8 else [round(value) for value, _ in ticks(0, epochs, 6) if value]
    return [{"name": f"epoch {epoch}" if epoch == shown[0] else str(epoch), "value": epoch * steps_per_epoch}
            for epoch in shown]
