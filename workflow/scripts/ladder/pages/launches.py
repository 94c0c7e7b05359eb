"""Where a rung's training step spends its time: its launches one after another, and each below the
roofs of a GPU.

The variables of launches.html, for any page that includes it.
"""

import math

from ladder.pages import charts, templates
from ladder.pages.templates import NARROW_SPACE
from ladder.rungs.counted import CASE, span

# What bounds a launch (benchmarks/counting.py) -> the series of its marks, and what that is.
BOUNDS = {
    "memory": (1, "the bytes that pass between the GPU’s memory and its chip"),
    "level 2": (2, "the cache that all multiprocessors share"),
    "level 1": (
        3,
        "the cache and shared memory of a multiprocessor, which serve one request a cycle",
    ),
    "issue": (4, "the instructions that a multiprocessor begins in a cycle"),
    "tensor cores": (5, "their products of matrices"),
    "latency": (
        6,
        "the time that warps wait for their loads, with too few others to work meanwhile",
    ),
    "launch": ("rest", "what any launch takes to begin, where its work takes less"),
}
# Of an H200 (benchmarks/roofline.py): bytes, and FLOP by what products are made of; both in 10**12
# a second.
MEMORY, ROOFS = 4.3, {"float32": 67, "TF32": 494, "bfloat16": 989}
# sizes of marks: their areas are shares of the step's time, but none is too small to see
LARGEST, SMALLEST = 7, 0.5


def context(predictions, measured):
    """predictions: of rungs/counted.py; measured: {rung: milliseconds of the same step}, of those
    that ran here.
    """
    steps = {rung["name"]: _launches(rung) for rung in predictions}
    axes = (
        _axes([launch for launches in steps.values() for launch in launches if launch["flop"]])
        if predictions
        else ()
    )
    rows = [
        {
            **_row(rung, steps),
            "measured": milliseconds(measured[rung["name"]]) if rung["name"] in measured else "",
            "launches": steps[rung["name"]],
            "chart": _roofline(rung, steps, axes),
        }
        for rung in predictions
    ]
    used = {launch["bound"] for row in rows for launch in row["launches"]} | {
        row["bound"] for row in rows
    }
    bounds = [
        {"name": bound, "series": series, "text": text}
        for bound, (series, text) in BOUNDS.items()
        if bound in used
    ]
    return {
        "case": CASE,
        "rungs": rows,
        "ladder": _ladder(rows, measured),
        "bounds": bounds,
        "any_measured": any(row["measured"] for row in rows),
    }


def _launches(rung):
    """Of the step, in order; x: FLOP per byte, y: TFLOP/s, both without FLOP 0."""
    total = sum(row[4] for row in rung["launches"])
    return [
        {
            "name": f"{rung['name']} {number}: {place}",
            "place": place,
            "kernel": kernel,
            "flop": flop,
            "bytes": moved,
            "time": time,
            "bound": bound,
            "series": BOUNDS[bound][0],
            "length": round(100 * time / total, 3),
            "x": flop and flop / moved,
            "y": flop / time / 1e6,
            "size": round(max(SMALLEST, LARGEST * math.sqrt(time / total)), 2),
            "text": f"{place}, {kernel}: {microseconds(time)}, {templates.percent(time / total)} of {rung['name']}, "
            f"bound by {bound}",
        }
        for number, (place, kernel, flop, moved, time, bound) in enumerate(rung["launches"], 1)
    ]


def _row(rung, steps):
    """Of the timeline: as wide as the step of the rung below, of which a slower rung takes all."""
    time = sum(launch["time"] for launch in steps[rung["name"]])
    before = sum(launch["time"] for launch in steps.get(rung["below"], ())) or time
    width, (least, most) = max(time, before), (end / 1000 for end in rung["predicted"])
    return {
        "name": rung["name"],
        "bound": rung["bound"],
        "series": BOUNDS[rung["bound"]][0],
        "value": time / 1000,
        "ends": (least, most),
        "text": f"{span(least, most)}{NARROW_SPACE}ms",
        "length": round(100 * time / width, 2),
        "floor": round(100 * rung["floor"] / width, 2),
        "floor_text": microseconds(rung["floor"]),
        "gain": f"{before / time:.1f}× {rung['below']}" if rung["below"] in steps else "",
    }


def _ladder(rows, measured):
    """A chart of all rungs on one logarithmic axis: the intervals of the predictions, and marks for
    what was measured.
    """
    bounds = {row["bound"]: row["series"] for row in rows}
    texts = [
        {
            "name": row["name"],
            "note": f"measured {row['measured']}" if row["measured"] else "",
            "text": row["text"],
            "small": row["gain"],
        }
        for row in rows
    ]
    groups = [
        {
            "name": bound,
            "key": bound,
            "colour": colour,
            "points": [
                {"x": row["value"], "y": at, "low": row["ends"][0], "high": row["ends"][1]}
                for at, row in enumerate(rows)
                if row["bound"] == bound
            ],
        }
        for bound, colour in bounds.items()
    ]
    ticks = [
        {"x": measured[row["name"]], "y": at, "look": "tick", "text": f"measured {row['measured']}"}
        for at, row in enumerate(rows)
        if row["name"] in measured
    ]
    groups += [{"name": "measured", "key": "", "colour": "rest", "points": ticks}] if ticks else []
    x = charts.number_axis("milliseconds a step", "log")
    return charts.scatter("Predicted time", groups, x, {"label": "", "rows": texts})


def _axes(launches):
    """The axes of FLOP per byte and TFLOP/s of the launches of all rungs, which hold the roofs."""
    across, up = [launch["x"] for launch in launches], [launch["y"] for launch in launches]
    most = max(ROOFS.values())
    right = max(1.5 * max(across), 3 * most / MEMORY)
    return (
        charts.number_axis("FLOP per byte of memory", "log", (min(across) / 1.5, right)),
        charts.number_axis("TFLOP/s", "log", (min(up) / 1.5, 3 * most)),
    )


def _roofline(rung, steps, axes):
    """The chart of a rung, with the launches of the rung below in grey."""
    low, high = axes[0]["range"]
    ridges = {name: roof / MEMORY for name, roof in ROOFS.items()}
    levels = [
        (f"memory {MEMORY} TB/s", [{"x": x, "y": MEMORY * x} for x in (low, max(ridges.values()))])
    ]
    levels += [
        (f"{name} {roof}", [{"x": x, "y": float(roof)} for x in (ridges[name], high)])
        for name, roof in ROOFS.items()
    ]
    # Where no launch can be: left of where a roof begins. The two highest are close to each other.
    names = [{"name": levels[0][0], "x": 8 * low, "y": 2 * low * MEMORY}]
    names += [
        {
            "name": text,
            "x": points[0]["x"] / 3,
            "y": points[0]["y"] * (1.4 if text == levels[-1][0] else 1),
        }
        for text, points in levels[1:]
    ]
    below = [{**launch, "look": "ring"} for launch in steps.get(rung["below"], ())]
    largest_first = sorted(steps[rung["name"]], key=lambda launch: -launch["time"])
    groups = [(text, "level", points) for text, points in levels] + [
        (rung["below"], "rest", _with_flop(below))
    ]
    groups += [
        (bound, colour, _with_flop(launch for launch in largest_first if launch["bound"] == bound))
        for bound, (colour, _) in BOUNDS.items()
    ]
    return charts.scatter(
        f"{rung['name']} under the roofs of an H200",
        [
            {
                "name": name,
                "key": name,
                "colour": colour,
                "mark": "line" if colour == "level" else "dots",
                "points": points,
            }
            for name, colour, points in groups
            if points
        ],
        *axes,
        names=names,
    )


def _with_flop(launches):
    """As the points of a chart, which is logarithmic."""
    return [{**launch, "id": launch["name"]} for launch in launches if launch["flop"]]


def milliseconds(value):
    """0.01234 -> '0.012 ms'."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.3f}"
    return f"{text}{NARROW_SPACE}ms"


def microseconds(value):
    return f"{value:,.0f}{NARROW_SPACE}µs" if value >= 10 else f"{value:.1f}{NARROW_SPACE}µs"
