"""The figures of pages for papers: PDFs of one column's width by Matplotlib, the same bytes each
time, fonts embedded as text.

They are drawn from the variables of the page (such as report.context), so they show what its charts
show.
"""

import importlib.util
import io
import math
import textwrap

from ladder.errors import UserError
from ladder.pages.templates import NARROW_SPACE

WIDTH, HEIGHT = 3.4, 2.4  # inches
# Those of style.css, by the series of a chart.
COLOURS = {
    1: "#1f5fb4",
    2: "#c45302",
    3: "#2f8a5b",
    4: "#846df2",
    5: "#9c0036",
    6: "#5a1a6b",
    "rest": "#85888e",
    "level": "#85888e",
}
DASHES = {
    1: "-",
    2: "--",
    3: ":",
    4: "-.",
    5: (0, (5, 2)),
    6: (0, (1, 3)),
    "rest": "-",
    "level": ":",
}
# The date of the file is left out, and text stays text that can be searched and edited.
STYLE = {
    "pdf.fonttype": 42,
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
}
METADATA = {"CreationDate": None, "Creator": "Kernel Ladder"}
MOST_COUNTED = 20  # classes up to which the cells of a confusion matrix have their numbers
NAME, LABEL = 22, 34  # characters of a line of a row's name, and of the label of the upright axis


def missing() -> str | None:
    """Why no figure can be drawn here, in one line; None if they can."""
    if importlib.util.find_spec("matplotlib"):
        return None
    return "figures need Matplotlib, which is not installed here: `envs/install figures`, or figures: false"


def write(work, page):
    """Write the figures of the page of a stage beside it; returns {address on the page: title}.

    work: the artifacts.ArtifactWriter of the stage; page: the variables of its page. Raises
    UserError if Matplotlib is missing.
    """
    stage = work.spec["stage"]
    for name, figure in drawings(stage, page).items():
        work.write_bytes(f"{name}.pdf", pdf(figure))
    return {
        f"../../{stage}/{work.folder.name}/{name}.pdf": title
        for name, title, _, _ in figures(stage, page)
    }


def figures(stage, page):
    """[(name, title, content, function that draws it)] of the figures that a page of this stage
    with these variables has.
    """
    return [row for row in FIGURES[stage](page) if row[2]]


def drawings(stage, page):
    """Name -> matplotlib.figure.Figure, for all of `figures`; raises UserError if Matplotlib is
    missing.
    """
    if reason := missing():
        raise UserError(reason)
    import matplotlib
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    drawn = {}
    for name, _, content, draw in figures(stage, page):
        with matplotlib.rc_context(STYLE):
            drawn[name] = Figure((WIDTH, HEIGHT), layout="constrained")
            draw(drawn[name].subplots(), content)
    return drawn


def pdf(figure):
    import matplotlib

    with matplotlib.rc_context(STYLE), io.BytesIO() as file:
        figure.savefig(file, format="pdf", metadata=METADATA)
        return file.getvalue()


def _curves(axes, chart):
    """A chart of charts.lines; shares are in percent, and runs without a colour have no name."""
    data = chart["data"]
    scale, unit = (100, ", %") if data["y"]["percent"] else (1, "")
    for line in data["series"]:
        series, name = line["series"], _wrapped(line["name"])
        axes.plot(
            line["x"],
            [scale * value for value in line["y"]],
            linestyle=DASHES[series],
            color=COLOURS[series],
            linewidth=1.2,
            label=name if series != "rest" else "",
        )
    axes.set(xlabel=data["x"]["label"], ylabel=_wrapped(data["y"]["label"] + unit, LABEL))
    if data["x"]["kind"] == "log":
        axes.set_xscale("log")
    if data["y"]["kind"] == "log":
        axes.set_yscale("log")
    elif not data["y"]["percent"]:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=6 if len(data["series"]) > 2 else 8)


def _intervals(axes, rows):
    """Accuracies with their intervals, the first at the top; rows: those of intervals.chart."""
    for at, row in enumerate(reversed(rows)):
        colour = COLOURS[1 if row["key"] == "own" else "level"]
        axes.plot(
            [100 * end for end in row["interval"]], [at, at], "-", color=colour, linewidth=1.6
        )
        axes.plot([100 * row["value"]], [at], "o", color=colour, markersize=4.5)
    _name_rows(axes, rows)
    axes.set_xlabel("accuracy, % (with 95 % interval)")


def _bars(axes, rows):
    """Milliseconds on a logarithmic axis, the first at the top; rows: [{"name", "value", "text"}],
    some with "ends".
    """
    values = [row["value"] for row in reversed(rows)]
    ends = [row.get("ends", 2 * (row["value"],)) for row in reversed(rows)]
    spread = [
        [abs(end[side] - value) for value, end in zip(values, ends, strict=True)] for side in (0, 1)
    ]
    axes.bar_label(
        axes.barh(range(len(rows)), values, xerr=spread, color=COLOURS[1], height=0.6),
        [row["text"].replace(NARROW_SPACE, " ") for row in reversed(rows)],
        padding=2,
        fontsize=6,
    )
    _name_rows(axes, rows)
    axes.set_xscale("log")
    axes.set(
        xlabel="training step, ms",
        xlim=(10 ** math.floor(math.log10(min(values)) - 0.1), 4 * max(values)),
    )


def _name_rows(axes, rows):
    """The names of rows from the top, and a figure high enough for them."""
    names = [_wrapped(row["name"]) for row in reversed(rows)]
    axes.figure.set_figheight(
        max(HEIGHT, 0.6 + sum(0.06 + 0.14 * len(name.split("\n")) for name in names))
    )
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(-0.6, len(rows) - 0.4)


def _wrapped(name, width=NAME):
    return "\n".join(textwrap.wrap(name, width))


def _confusion(axes, content):
    """content: {"names", "matrix": images by true and predicted class}. Cells have the colour of
    their share of a class.
    """
    matrix, names = content["matrix"], content["names"]
    shares = [[count / (sum(row) or 1) for count in row] for row in matrix]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.spines[:].set_visible(False)
    places = range(len(names))
    axes.set_xticks(places, names, rotation=90)
    axes.set_yticks(places, names)
    axes.tick_params(length=0, labelsize=6)
    axes.set(xlabel="classified as", ylabel="true class")
    for true, row in enumerate(matrix if len(names) <= MOST_COUNTED else ()):
        for named, count in enumerate(row):
            axes.text(
                named,
                true,
                str(count),
                ha="center",
                va="center",
                fontsize=5,
                color="white" if shares[true][named] > 0.5 else "black",
            )


def _report(page):
    training, verdict, labels = page["training"], page["verdict"], page["few_labels"]
    confusion = (
        {"names": page["data"]["classes"], "matrix": page["run"]["confusion"]}
        if page["run"]["confusion"]
        else None
    )
    return [
        ("loss", "training loss", training and training["loss_curve"], _curves),
        (
            "accuracy",
            "accuracy beside its controls",
            verdict and verdict["chart"]["rows"],
            _intervals,
        ),
        ("few_labels", "accuracy by number of labels", labels and labels["chart"], _curves),
        ("confusion", "confusion matrix", confusion, _confusion),
    ]


def _compare(page):
    accurate = page["accuracies"]["rows"] if page["accuracies"] else []
    rows = [{**row, "name": f"{row['name']} {row['note']}".strip()} for row in accurate]
    return [
        ("accuracy", "accuracies", rows, _intervals),
        *(
            (f"curves{number}", chart["title"].lower(), chart, _curves)
            for number, chart in enumerate(page["charts"], 1)
        ),
    ]


def _multipliers(page):
    return [
        ("accuracy", "accuracies", page["first"] and page["first"]["rows"], _intervals),
        *(
            (f"loss{number}", f"training loss, {group['title']}", group["curves"], _curves)
            for number, group in enumerate(page["groups"], 1)
        ),
    ]


def _parity(page):
    return [
        ("steps", "time of a training step here", page["times"], _bars),
        ("predicted", "predicted time on an H200", page["predicted"]["rungs"], _bars),
    ]


# Stage -> function of its page's variables: [(name of the file, title, what is drawn or nothing,
# function that draws it)].
FIGURES = {"report": _report, "compare": _compare, "multipliers": _multipliers, "parity": _parity}
