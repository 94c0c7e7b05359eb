"""Charts that a reader can ask for values: curves, scatters and maps.

A chart is described once. charts.js draws the description with uPlot; `still` has the places of its
marks in an SVG, which is what a page shows without its script and on paper, and what a reader
saves.
"""

import dataclasses
import math

from ladder.pages.templates import NARROW_SPACE

LOG_RATIO = 20  # curves that span more than this factor get a logarithmic axis
COLOURED = 6  # series in colour at once; the others are grey until the reader asks for one
# Number of a series -> the outline of its marks, about 2 wide around (0, 0), as the path of an SVG.
# Those after COLOURED have the colours of the first ones again.
MARKS = {
    1: "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
    2: "M-.88 -.88H.88V.88H-.88Z",
    3: "M0 -1.2L1.1 .8H-1.1Z",
    4: "M0 -1.3L1.3 0L0 1.3L-1.3 0Z",
    5: "M0 1.2L1.1 -.8H-1.1Z",
    6: "M0 -1.2L1.14 -.37L.71 .97H-.71L-1.14 -.37Z",
    7: "M-.42 -1.3H.42V-.42H1.3V.42H.42V1.3H-.42V.42H-1.3V-.42H-.42Z",
    8: "M-.6 -1.2L0 -.6L.6 -1.2L1.2 -.6L.6 0L1.2 .6L.6 1.2L0 .6L-.6 1.2L-1.2 .6L-.6 0L-1.2 -.6Z",
    9: "M0 -1.5L.4 -.4L1.5 0L.4 .4L0 1.5L-.4 .4L-1.5 0L-.4 -.4Z",
    10: "M1.2 0L-.8 1.1V-1.1Z",
}
WIDTH, HEIGHT = 760, 300
# above the plot the label of the y axis, below it ticks and the label of the x axis
TOP, BOTTOM = 30, 46
CHARACTER, LINE = 6.6, 15  # width and height of the text, for the room that it needs
SQUARE = 600  # side of a map
LONGEST = 12  # characters of a tick's number, above which it is written with an exponent
ALIKE = 1e-9  # relative difference of the ends of a range below which they count as equal
# Kind of axis -> function of (value, least) that is linear along the axis; least: what 0, or the
# error rate 0, is drawn at.
SCALES = {
    "linear": lambda value, least: value,
    "log": lambda value, least: math.log(max(value, least)),
    "error": lambda value, least: -math.log(max(1 - value, least)),  # expands towards 100 %
}


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis. ranges: kind -> (first value, last value) of each kind it can be switched to;
    ticks: [(value, text)].

    least: see SCALES; percent: values are shares; named: the ticks are names, which stay where they
    are.
    """

    label: str
    kind: str
    ranges: dict
    ticks: list
    least: float = 1e-12
    percent: bool = False
    named: bool = False

    def place(self, value):
        """Where a value lies: 0 at the beginning, 1 at the end."""
        low, high, at = (
            SCALES[self.kind](number, self.least) for number in (*self.ranges[self.kind], value)
        )
        return (at - low) / (high - low)


def _ends(low, high, kind="linear"):
    """The ends of a range, with room on either side where they are equal."""
    if high - low > ALIKE * max(abs(low), abs(high)):
        return low, high
    if kind == "log":
        return low / 2, 2 * high
    room = abs(low) / 2 or 1.0
    return low - room, high + room


def _finite(values):
    """Those that can be drawn, [0.0] where there are none."""
    return [value for value in values if math.isfinite(value)] or [0.0]


# Ticks.


def ticks(low, high, count=5):
    """About `count` round numbers (1, 2 or 5 times a power of ten) from low to high, as [(value,
    text)].
    """
    if high <= low:
        return [(low, f"{low:g}")]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [
        (index * step, _number(index * step, decimals) if index else "0")
        for index in range(first, last + 1)
    ]


def _number(value, decimals):
    text = f"{value:,.{decimals}f}"
    return text if len(text) <= LONGEST else f"{value:g}"


def log_ticks(low, high):
    """Powers of ten from low to high, for less than three decades also 2 and 5 times them, as
    [(value, text)].
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high < 1000 * low else (1,)
    return [
        (value, f"{value:g}")
        for value in (factor * 10.0**power for power in powers for factor in factors)
        if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
    ]


def log_or_even_ticks(low, high, count=8):
    """Ticks of a logarithmic axis; evenly spaced ones where fewer than three round values lie on
    it.
    """
    logarithmic = log_ticks(low, high)
    return logarithmic if len(logarithmic) > 2 else ticks(low, high, count)


# Axes.


def loss_axis(values, label, always_log=False):
    """For values >= 0: linear from zero, or logarithmic if they span more than LOG_RATIO or
    `always_log`.
    """
    values = _finite(values)
    low, top = min(values), max(values) or 1.0
    ranges = {"linear": (0.0, 1.04 * top)}
    if low <= 0:
        return Axis(label, "linear", ranges, ticks(0, 1.04 * top, 4))
    ranges["log"] = (0.8 * low, 1.1 * top)
    kind = "log" if always_log or LOG_RATIO * low < top else "linear"
    marks = log_or_even_ticks(*ranges["log"]) if kind == "log" else ticks(0, 1.04 * top, 4)
    return Axis(label, kind, ranges, marks, least=0.8 * low)


def share_axis(values, label, from_zero=False):
    """For accuracies: logarithmic in the error rate, so that the axis expands towards 100 %.

    100 % itself lies where an error rate of half the smallest other one would.
    """
    values = _finite(values)
    missing = [1 - value for value in values if value < 1]
    least = max(min([0.5, *missing]) / 2, 1e-6)
    low, high = 0.0 if from_zero else max(0.0, 1 - 1.05 * max([2 * least, *missing])), max(values)
    high = 1.0 if high == 1 else min(1 - least, 1 - 0.8 * (1 - high))
    levels = [1 - rest for rest, _ in log_ticks(max(1 - high, 2 * least), 1 - low)]
    if len(levels) < 3:
        levels = [value / 100 for value, _ in ticks(100 * low, 100 * high, 4)]
    marks = [
        (level, f"{100 * level:.6g}{NARROW_SPACE}%") for level in levels if level < 1 - 1.2 * least
    ]
    marks += [(1.0, f"100{NARROW_SPACE}%")] if high == 1 else []
    return Axis(
        label, "error", {"error": (low, high), "linear": (low, high)}, marks, least, percent=True
    )


def number_axis(low, high, label, kind="linear"):
    """From low to high, linear or logarithmic; around them where they are equal."""
    low, high = _ends(low, high, kind)
    if kind == "log":
        return Axis(label, kind, {kind: (low, high)}, log_or_even_ticks(low, high), least=low)
    return Axis(label, kind, {kind: (low, high)}, ticks(low, high, 5))


def named_axis(names, label):
    """Slots of width 1 around 0.5, 1.5, ..., each with a name."""
    return Axis(
        label,
        "linear",
        {"linear": (0, len(names))},
        [(at + 0.5, name) for at, name in enumerate(names)],
        named=True,
    )


# Charts.


def lines(title, series, y, by=("step",), x=None):
    """A chart of curves over steps, or over what the Axis x has.

    series: [{"name", "label", "key", "series", "points": [(step, value)]}] with `by`: for each name
    of `by` a factor of the step, such as epochs per step, or the values at the points; label: its
    direct label; series: 1 to COLOURED, "rest" for grey or "level" for a reference line; y: Axis.
    Returns {"data", "still"}, for charts.js and for the SVG.
    """
    series = [_drawable(curve, len(by)) for curve in series]
    last = max((step for curve in series for step, _ in curve["points"]), default=0) or 1
    whole = [(value, text) for value, text in ticks(0, last) if value == round(value)]
    x = x or Axis(by[0], "linear", {"linear": (0, last)}, whole)
    curves = [
        {
            "name": curve["name"],
            "label": curve.get("label", curve["name"]),
            "key": str(curve.get("key", curve["name"])),
            "series": curve["series"],
            "by": curve["by"],
            "x": [_short(step) for step, _ in curve["points"]],
            "y": [_short(value) for _, value in curve["points"]],
        }
        for curve in series
    ]
    data = {
        "title": title,
        "drawn": "lines",
        "marks": MARKS,
        "x": _told(x),
        "by": list(by),
        "y": _told(y),
        "series": curves,
    }
    return {"data": data, "still": _still(title, x, y, curves, "lines")}


def _drawable(curve, count):
    """A curve of `lines` without the points that are not finite, with its `count` factors."""
    finite = [at for at, point in enumerate(curve["points"]) if all(map(math.isfinite, point))]
    by = [
        [_short(factor[at]) for at in finite] if isinstance(factor, list) else factor
        for factor in curve.get("by", [1] * count)
    ]
    return {**curve, "points": [curve["points"][at] for at in finite], "by": by}


def scatter(title, series, x, y, names=(), square=False):
    """A chart of points.

    series: [{"name", "key", "series", "points": [{"x", "y", "text", "run", "look", "size",
    "picture"}]}]; series: a key of MARKS, "rest", or "level" for a reference line; run: of a page
    that lists runs; look: "" for a filled mark, "ring", "best" or "failed"; size: of the mark,
    relative to others'; picture: a number on the sheet that the caller adds to the data
    (figures.sheet); names: [{"name", "x", "y"}] written into the plot. Returns {"data", "still"}.
    """
    series = [
        {
            **group,
            "points": [
                point for point in group["points"] if math.isfinite(point["x"] + point["y"])
            ],
        }
        for group in series
    ]
    groups = [
        {
            "name": group["name"],
            "key": str(group["key"]),
            "series": group["series"],
            "x": [_short(point["x"]) for point in group["points"]],
            "y": [_short(point["y"]) for point in group["points"]],
            **{
                part: [point.get(part, "") for point in group["points"]]
                for part in ("text", "look", "run", "size", "picture")
                if any(point.get(part) for point in group["points"])
            },
        }
        for group in series
    ]
    data = {
        "title": title,
        "drawn": "points",
        "marks": MARKS,
        "x": _told(x),
        "by": [x.label],
        "y": _told(y),
        "series": groups,
        "names": list(names),
        "square": square,
    }
    return {"data": data, "still": _still(title, x, y, groups, "points", names, square)}


def _short(value):
    return float(f"{value:.6g}")


def _told(axis):
    return {
        "label": axis.label,
        "kind": axis.kind,
        "ranges": axis.ranges,
        "least": axis.least,
        "percent": axis.percent,
        "ticks": axis.ticks if axis.named else None,
    }


# The still.


def _still(title, x, y, series, drawn, names=(), square=False):
    """The chart's places in an SVG of {"width", "height"}: ticks, curves, marks, and labels that do
    not overlap.
    """
    labelled = [
        curve for curve in series if drawn == "lines" and curve["series"] != "rest" and curve["x"]
    ]
    width, height = (SQUARE, SQUARE) if square else (WIDTH, HEIGHT)
    left = 0 if square else 14 + CHARACTER * max(len(text) for _, text in y.ticks)
    # half of it lies right of its tick
    last = max((len(text) for _, text in x.ticks[-1:]), default=0)
    right = width - max(
        [12 + CHARACTER * len(curve["label"]) for curve in labelled] or [6, CHARACTER * last / 2]
    )
    top, bottom = (0, height) if square else (TOP, height - BOTTOM)

    def at_x(value):
        return round(left + x.place(value) * (right - left), 2)

    def at_y(value):
        return round(bottom - y.place(value) * (bottom - top), 2)

    marks = [
        {**group, "at": [(at_x(a), at_y(b)) for a, b in zip(group["x"], group["y"], strict=True)]}
        for group in series
    ]
    ends = spread([at_y(curve["y"][-1]) for curve in labelled], LINE, top + 4, bottom)
    return {
        "title": title,
        "width": width,
        "height": height,
        "left": round(left, 2),
        "right": round(right, 2),
        "top": top,
        "bottom": bottom,
        "square": square,
        "drawn": drawn,
        "x_label": x.label,
        "y_label": y.label,
        "x_ticks": [{"at": at_x(value), "text": text} for value, text in x.ticks],
        "y_ticks": [{"at": at_y(value), "text": text} for value, text in y.ticks],
        "series": [
            {**group, "path": "M" + "L".join(f"{a:g} {b:g}" for a, b in group["at"])}
            for group in marks
            if group["at"]
        ],
        "labels": [
            {
                "text": curve["label"],
                "series": curve["series"],
                "y": end,
                "from": at_y(curve["y"][-1]),
            }
            for curve, end in zip(labelled, ends, strict=True)
        ],
        "names": apart(
            [(at_x(name["x"]), at_y(name["y"]), name["name"]) for name in names],
            (0, 0, width, height),
        ),
    }


def spread(places, gap, low, high):
    """The places, moved only as far as needed to be at least `gap` apart in low .. high, in the
    order that they have.

    Where they do not all fit, they are evenly spaced and overlap evenly.
    """
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=places.__getitem__)
    moved, free = list(places), low
    for index in order:
        moved[index] = max(places[index], free)
        free = moved[index] + gap
    free = high
    for index in reversed(order):
        moved[index] = min(moved[index], free)
        free = moved[index] - gap
    return [round(place, 2) for place in moved]


def apart(names, within):
    """Names at their places, each moved to the nearest free place where others are in its way:
    [{"text", "x", "y", "of"}].

    names: [(x, y, text)], the middle of each; within: (left, top, right, bottom); of: the place it
    was meant for.
    """
    left, top, right, bottom = within
    taken, placed = [], []
    for x, y, text in names:
        wide, high = CHARACTER * len(text) / 2 + 5, LINE / 2 + 1
        moves = sorted(
            ((dx * wide, dy * high) for dx in range(-4, 5) for dy in range(-16, 17)),
            key=lambda move: math.hypot(*move),
        )
        places = [
            (
                min(max(x + dx, left + wide), right - wide),
                min(max(y + dy, top + high), bottom - high),
            )
            for dx, dy in moves
        ]
        free = next(
            (
                place
                for place in places
                if all(
                    abs(place[0] - a) >= wide + b or abs(place[1] - c) >= high + d
                    for a, b, c, d in taken
                )
            ),
            places[0],
        )
        taken.append((free[0], wide, free[1], high))
        placed.append(
            {
                "text": text,
                "x": round(free[0], 1),
                "y": round(free[1], 1),
                "wide": round(2 * wide, 1),
                "of": [x, y],
            }
        )
    return placed
