"""Charts of accuracy against what a product costs with a multiplier, as somebody published it.

Each source has a chart of its own: other circuits, technologies and units have no common axis.
"""

import pathlib

from ladder.pages import charts, templates
from ladder.pages.multiplier_runs import PUBLISHED, costs_of, named


def drawn(title, arms, exact, given):
    """For each source of two costs a chart of charts.scatter with "source", "legend" and "near":
    whether a mark is near chance.

    arms: [{"label", "use": (how it was trained, its number among all of the page), "tested": the
    multiplier, "accuracy", "near"}]; exact: the accuracy without approximation, or None; given: the
    setting multiplier_costs. A mark is at the cost of the multiplier of the test.
    """
    charts_of = []
    for source in {**PUBLISHED, **given}:
        rows = [
            {**arm, "cost": cost}
            for arm in arms
            if (cost := costs_of(arm["tested"], given).get(source))
        ]
        if len({row["cost"] for row in rows}) > 1:
            charts_of.append(
                _chart(
                    title,
                    source,
                    sorted(rows, key=lambda row: (row["cost"], -row["accuracy"])),
                    exact,
                )
            )
    return charts_of


def _chart(title, source, rows, exact):
    """rows: the cheapest first. Exact has a name, and so have those on the front, which no cheaper
    one is as accurate as.
    """
    uses = sorted({row["use"] for row in rows}, key=lambda use: use[1])
    series = [
        {
            "name": use,
            "key": use,
            "colour": number,
            "points": [_point(row) for row in rows if row["use"][0] == use],
        }
        for use, number in uses
    ]
    labelled = [
        row
        for at, row in enumerate(rows)
        if row["tested"] == "exact"
        or all(row["accuracy"] > other["accuracy"] for other in rows[:at])
    ]
    names = [
        {"name": pathlib.Path(row["tested"]).stem, "x": row["cost"], "y": row["accuracy"]}
        for row in labelled
    ]
    if exact is not None:
        level = [{"x": end, "y": exact} for end in (0, 1.08 * rows[-1]["cost"])]
        series.append(
            {"name": "exact", "key": "level", "colour": "level", "mark": "line", "points": level}
        )
        if "exact" not in {row["tested"] for row in rows}:
            names.append({"name": "exact", "x": 0.09 * rows[-1]["cost"], "y": exact})
    x, y = charts.number_axis(source), charts.share_axis("test accuracy")
    return {
        "source": source,
        "near": any(row["near"] for row in rows),
        "chart": charts.scatter(f"{title}: accuracy by {source}", series, x, y, names=names),
    }


def _point(row):
    near = ", near chance" if row["near"] else ""
    return {
        "x": row["cost"],
        "y": row["accuracy"],
        "id": row["label"],
        "look": "ring" if row["near"] else "",
        "text": f"{row['label']}: {templates.percent(row['accuracy'], 1)}{near}, at {row['cost']:g}",
    }


def unknown(arms, given):
    """The names of the multipliers of the tests that no source has a cost of."""
    tested = {arm["tested"] for arm in arms}
    return sorted(named(multiplier) for multiplier in tested if not costs_of(multiplier, given))
