"""Descriptions of charts, which assets/charts.js draws: it is the one place where scales, ranges,
ticks, colours and marks are. The head of that file says what a description is, a JSON object:

{"title", "x": axis, "y": axis, "series": [{"mark": "dots" or "line", "name", "key",
"colour", "label", "x", "y", "low", "high", "by", "id", "text", "look", "size", "picture",
"floor"}], "by", "names", "square", "sheet", "nearest"}

Lists have an item for each point. What a description leaves out has a default there.

>>> x, y = charts.number_axis("batch size", "log"), charts.share_axis("accuracy")
>>> one = {"name": "runs", "colour": 1, "points": [{"x": 32, "y": 0.98, "id": "a1"}]}
>>> {{ pieces.chart(charts.scatter("Accuracy by batch size", [one], x, y), "A chart") }}
"""

import math

COLOURS = 10  # series that colour and mark tell apart; further ones are "rest", grey
PLAIN = 1000  # units of the drawing that a page shows without its script


# Axes.


def loss_axis(label, scale="auto"):
    """For values >= 0: linear from zero, or logarithmic where they span more than a factor of
    20.
    """
    return {"label": label, "scale": scale, "zero": True}


def share_axis(label, from_zero=False):
    """For accuracies as fractions: logarithmic in the error rate, so that it expands towards
    100 %.
    """
    return {"label": label, "scale": "error", "percent": True, "zero": from_zero}


def number_axis(label, scale="linear", ends=None):
    """scale: "linear", "log", "auto" or "time"; ends: (low, high) in place of those of the
    values.
    """
    return {"label": label, "scale": scale, **({"range": ends} if ends else {})}


# Charts.


def lines(title, series, y, by=("step",), x=None):
    """Curves over steps, or over what the axis x has.

    series: [{"name", "label", "key", "colour", "points": [(step, value)]}] with `by`: for each name
    of `by` a factor of the step, such as epochs per step, or the values at the points; label: short
    name at the end of the line; colour: 1 to COLOURS, "rest" for grey, "level" for a reference
    line.
    """
    return {
        "title": title,
        "x": x or {"label": by[0], "scale": "linear", "zero": True},
        "y": y,
        "by": list(by),
        "series": [
            {
                **{key: value for key, value in curve.items() if key not in ("points", "by")},
                "mark": "line",
                "x": [_short(step) for step, _ in curve["points"]],
                "y": [_short(value) for _, value in curve["points"]],
                "by": [
                    [_short(value) for value in factor] if isinstance(factor, list) else factor
                    for factor in curve.get("by", [1] * len(by))
                ],
            }
            for curve in series
        ],
    }


def scatter(title, series, x, y, **more):
    """A chart of points.

    series: [{"name", "key", "colour", "points": [{"x", "y", "low", "high", "id", "text", "look",
    "size", "picture"}]}]; more: further keys of the description.
    """
    return {
        "title": title,
        "x": x,
        "y": y,
        "series": [
            {
                **{key: value for key, value in group.items() if key != "points"},
                **{
                    part: [_short(point.get(part)) for point in group["points"]]
                    for part in ("x", "y", "low", "high", "id", "text", "look", "size", "picture")
                    if part in "xy" or any(point.get(part) is not None for point in group["points"])
                },
            }
            for group in series
        ],
        **more,
    }


def _short(value):
    """A number with six digits; None for one that cannot be drawn, which JSON does not have."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def plain(chart):
    """What a page shows of a chart without its script: [{"name", "colour", "line", "path", "first",
    "last"}], its curves between their own ends in a square of PLAIN, or its points.
    """
    drawn = [(series, own) for series in chart["series"] if (own := _finite(series))]
    if not drawn:
        return []
    (left, wide), (low, high) = (
        (min(values), max(values) - min(values) or 1)
        for values in zip(*(place for _, own in drawn for place in own), strict=True)
    )
    return [
        {
            "name": series["name"],
            "colour": series["colour"],
            "line": is_line,
            "path": "".join(
                f"{'L' if at and is_line else 'M'}{PLAIN * (x - left) / wide:.0f} "
                f"{PLAIN - PLAIN * (y - low) / high:.0f}{'' if is_line else 'h0'}"
                for at, (x, y) in enumerate(own)
            ),
            "first": own[0][1],
            "last": own[-1][1],
        }
        for series, own in drawn
        for is_line in [series.get("mark") == "line"]
    ]


def _finite(series):
    """[(x, y)] of the points that are numbers."""
    places = zip(series["x"], series["y"], strict=True)
    return [place for place in places if all(isinstance(value, int | float) for value in place)]
