"""The ladder: the training steps of the rungs on one logarithmic axis and in one table, predicted,
measured and PyTorch's side by side. The variables of ladder.html, for any page that includes it.
"""

import dataclasses

from ladder.pages import charts
from ladder.pages.templates import NARROW_SPACE
from ladder.rungs import catalog
from ladder.rungs.counted import span

# [a time of a Step, what a chart calls it, colour and look of its marks]
SERIES = (
    ("predicted", "predicted without a GPU", "step-2", "span"),
    ("torch", "PyTorch, same precision", 2, "tick"),
    ("measured", "measured on {}", 1, ""),
    ("here", "measured here", 4, ""),
)


@dataclasses.dataclass(frozen=True)
class Step:
    """A rung's training step by the same kernels. Times are in milliseconds, None where nobody
    knows.

    kernels    the digest of its kernels; earlier: whether they are not today's
    predicted  (least, most) of these kernels, `dated` a day
    measured   on a card, and by PyTorch in the same precision there, on the day `measured_on`
    here       measured on this machine
    """

    name: str
    kernels: str = ""
    earlier: bool = False
    predicted: tuple[float, float] | None = None
    dated: str = ""
    measured: float | None = None
    torch: float | None = None
    measured_on: str = ""
    here: float | None = None


def steps(predictions, measured, here):
    """The Steps of a page, from the lowest rung on; a measurement of earlier kernels is one of its
    own, beside what was predicted of them.

    predictions, measured: of rungs/counted.py; here: {rung: milliseconds}.
    """
    predicted_rungs = {row["name"] for row in predictions}
    listed = [Step(name, here=time) for name, time in here.items() if name not in predicted_rungs]
    for row in predictions:
        name, own = row["name"], measured.get("rungs", {}).get(row["name"], {})
        ends = _milliseconds(row["predicted"])
        today = Step(name, row["kernels"], False, ends, row["dated"], here=here.get(name))
        beside = {
            "measured": _milliseconds(own.get("us")),
            "torch": _milliseconds(own.get("torch")),
            "measured_on": measured.get("made", ""),
        }
        if own.get("today") or not own.get("us"):
            listed.append(dataclasses.replace(today, **beside))
        else:
            ends = _milliseconds(own["predicted"])
            earlier = Step(name, own["kernels"] or "", True, ends, own["dated"], **beside)
            listed += [today, earlier]
    return listed


def _milliseconds(microseconds):
    """Of one time or of both ends of an interval."""
    if isinstance(microseconds, list):
        return tuple(end / 1000 for end in microseconds)
    return microseconds and microseconds / 1000


def context(listed, title, measured):
    """listed: Steps; title: of their chart; measured: {"card", "made", "pytorch"} of what was
    measured on a card, {} without.
    """
    rows = [_row(step) for step in listed]
    return {
        "chart": _chart(listed, rows, title, measured.get("card")),
        "title": title,
        "rows": rows,
        "card": measured.get("card"),
        "pytorch": (measured.get("pytorch") or "").partition("+")[0],
        "has": {name: any(row[name] for row in rows) for name, *_ in SERIES},
    }


def _row(step):
    """The texts of a step, all times in milliseconds."""
    return {
        **vars(step),
        **{name: text(getattr(step, name)) for name, *_ in SERIES},
        "kernels": step.kernels[:8],
        "against": _against(step),
    }


def _against(step):
    """'17 times PyTorch’s time', '2.6 times as fast as PyTorch'; '' of what was not measured."""
    if not (step.measured and step.torch):
        return ""
    if step.measured > step.torch:
        return f"{_times(step.measured / step.torch)} times PyTorch’s time"
    return f"{_times(step.torch / step.measured)} times as fast as PyTorch"


def _times(ratio):
    """In two digits, in which the ratio of two medians is the median ratio of pairs too."""
    return text(float(f"{ratio:.2g}"))


def _chart(listed, rows, title, card):
    """A row for each step: the interval of its prediction, and marks for what was measured."""
    texts = [
        {
            "name": row["name"],
            "note": "earlier kernels" if row["earlier"] else catalog.RUNGS[row["name"]].precision,
            "text": f"{row['here'] or row['measured'] or row['predicted']}{NARROW_SPACE}ms",
            "small": row["against"],
        }
        for row in rows
    ]
    series = []
    for time, words, colour, look in SERIES:
        name, points = words.format(card), []
        for at, (step, row) in enumerate(zip(listed, rows, strict=True)):
            if row[time]:
                low, high = ends if isinstance(ends := getattr(step, time), tuple) else (ends, ends)
                interval = {"low": low, "high": high} if low < high else {}
                tip = f"{step.name}, {name}: {row[time]}{NARROW_SPACE}ms"
                point = {"x": (low + high) / 2, "y": at, "look": look, "text": tip}
                points.append(point | interval)
        series.append({"name": name, "key": name, "colour": colour, "points": points})
    x = charts.number_axis("milliseconds of a training step", "log")
    drawn = [each for each in series if each["points"]]
    return charts.scatter(title, drawn, x, {"label": "", "rows": texts})


def text(value):
    """0.01234 -> '0.0123', 45.67 -> '45.7', 1234.5 -> '1,234', (0.2, 0.3) -> '0.20-0.30'; '' of
    nothing.
    """
    if isinstance(value, tuple):
        return span(*value)
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
