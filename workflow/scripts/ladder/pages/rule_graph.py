"""The rule graph of a run, drawn: a row for each stage, a dot for it, and lines from what it was
made from.

A dot lies in a lane; a line goes down its lane to the last row that needs it, and from there aside
to each of these rows.
"""

ROW, LANE, MARGIN, RADIUS = 40, 18, 10, 5  # of the drawing, in 1/16 rem
# height above a dot at which a line from another lane turns to it
BEND = 12


def graph(stages):
    """{"rows": the stages, "dots": [{"x", "y"}], "lines": SVG paths, "radius", "width", "height"}.

    stages: [{"stage", "version", "from": versions}], each after those that it was made from;
    versions that are not among them are left out, and so are edges that follow from others: labels
    come from the data, but also by way of the features.
    """
    rows = {stage["version"]: at for at, stage in enumerate(stages)}
    parents = _reduced(
        {
            stage["version"]: [version for version in stage["from"] if version in rows]
            for stage in stages
        }
    )
    needed = {
        version: max((rows[child] for child in parents if version in parents[child]), default=row)
        for version, row in rows.items()
    }
    lanes = _lanes([(row, needed[version]) for version, row in rows.items()])
    at = {
        version: (MARGIN + LANE * lanes[row], ROW * row + ROW // 2) for version, row in rows.items()
    }
    return {
        "rows": stages,
        "radius": RADIUS,
        "dots": [{"x": x, "y": y} for x, y in at.values()],
        "lines": [
            _line(*at[version], *at[child]) for child, from_ in parents.items() for version in from_
        ],
        "width": 2 * MARGIN + LANE * max(lanes, default=0),
        "height": ROW * len(stages),
    }


def _reduced(parents):
    """The parents that are not ancestors of another parent. parents: version -> versions, each
    before those that need it.
    """
    above = {}
    for version, direct in parents.items():
        above[version] = set(direct).union(*(above[parent] for parent in direct))
    return {
        version: [
            parent for parent in direct if not any(parent in above[other] for other in direct)
        ]
        for version, direct in parents.items()
    }


def _lanes(spans):
    """The lowest lane that is free for each span (first row, last row); in the last row the lane is
    free again.
    """
    ends, lanes = [], []
    for first, last in spans:
        lane = next((lane for lane, end in enumerate(ends) if end <= first), len(ends))
        ends[lane : lane + 1] = [max(last, first + 1)]
        lanes.append(lane)
    return lanes


def _line(x, y, to_x, to_y):
    """Down from a dot and, in the row of the other one, aside to it."""
    if x == to_x:
        return f"M{x} {y}V{to_y}"
    return f"M{x} {y}V{to_y - 2 * BEND}C{x} {to_y - BEND} {to_x} {to_y - 2 * BEND} {to_x} {to_y - BEND}V{to_y}"
