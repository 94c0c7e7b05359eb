"""Where a rung's training step spends its time: its launches one after another, and each below the
roofs of a GPU.

The variables of launches.html, for any page that includes it.
"""

import math

from ladder.pages import bounds, charts, ladder, templates
from ladder.pages.bounds import BOUNDS
from ladder.pages.templates import NARROW_SPACE
from ladder.rungs import catalog
from ladder.rungs.counted import CASE

# Of an H200 (benchmarks/roofline.py): bytes, and FLOP by what products are made of; both in 10**12
# a second.
MEMORY, ROOFS = 4.3, {"float32": 67, "TF32": 494, "bfloat16": 989}
# The ends of the axes, which hold the roofs: FLOP per byte, and TFLOP/s.
ACROSS, UP = (0.1, 2000), (0.01, 3000)
# sizes of marks: their areas are shares of the step's time, but none is too small to see
LARGEST, SMALLEST = 7, 0.5


def context(predictions):
    """predictions: of rungs/counted.py."""
    steps = {rung["name"]: _launches(rung) for rung in predictions}
    rows = [
        {
            **_row(rung, steps),
            "launches": steps[rung["name"]],
            "chart": _roofline(rung, steps),
        }
        for rung in predictions
    ]
    return {"case": CASE, "rungs": rows, "bounds": BOUNDS}


def _launches(rung):
    """Of the step, in order; x: FLOP per byte, y: TFLOP/s, both without FLOP 0."""
    total = sum(row[4] for row in rung["timeline"])
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
            "text": f"{place}, {kernel}: {ladder.text(time)}{NARROW_SPACE}µs, {templates.percent(time / total)} of {rung['name']}, "
            f"bound by {bound}",
        }
        for number, (place, kernel, flop, moved, time, bound) in enumerate(rung["timeline"], 1)
    ]


def _row(rung, steps):
    """Of the timeline, whose tracks are all as long as a step."""
    time = sum(launch["time"] for launch in steps[rung["name"]])
    return {
        "name": rung["name"],
        "technique": catalog.RUNGS[rung["name"]].technique,
        "below": rung["below"] if rung["below"] in steps else "",
        "bound": rung["bound_by"],
        "why": bounds.sentences(rung["bound_by"], rung["limiting"], rung["middle"]),
        "floor": round(100 * rung["floor"] / time, 2),
        "floor_text": f"{ladder.text(rung['floor'])}{NARROW_SPACE}µs",
    }


def _roofline(rung, steps):
    """The chart of a rung, with the launches of the rung below in grey."""
    (low, high), ridge = ACROSS, max(ROOFS.values()) / MEMORY
    levels = [("", [{"x": x, "y": MEMORY * x} for x in (low, ridge)])]
    levels += [
        (f"{name} {roof}", [{"x": x, "y": float(roof)} for x in (roof / MEMORY, high)])
        for name, roof in ROOFS.items()
    ]
    below = [{**launch, "look": "ring"} for launch in steps.get(rung["below"], ())]
    largest_first = sorted(steps[rung["name"]], key=lambda launch: -launch["time"])
    groups = [(rung["below"], "rest", _with_flop(below))]
    groups += [
        (bound, colour, _with_flop(launch for launch in largest_first if launch["bound"] == bound))
        for bound, (colour, _) in BOUNDS.items()
    ]
    return charts.scatter(
        f"{rung['name']} under the roofs of an H200",
        [
            {"name": name, "label": name, "colour": "level", "mark": "line", "points": points}
            for name, points in levels
        ]
        + [
            {"name": name, "key": name, "colour": colour, "points": points}
            for name, colour, points in groups
            if points
        ],
        charts.number_axis("FLOP per byte of memory", "log", ACROSS),
        charts.number_axis("TFLOP/s", "log", UP),
        # where no launch can be
        names=[{"name": f"memory {MEMORY} TB/s", "x": 8 * low, "y": 2 * low * MEMORY}],
    )


def _with_flop(launches):
    """As the points of a chart, which is logarithmic."""
    return [{**launch, "id": launch["name"]} for launch in launches if launch["flop"]]
