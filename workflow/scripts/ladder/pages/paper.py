"""A report's figures for papers: PDFs of one column's width by Matplotlib, the same bytes each time, fonts embedded as text.

They are drawn from the variables of the report's page (report.context), so they show what its charts show.
"""

import importlib.util
import io

from ladder.errors import UserError

WIDTH, HEIGHT = 3.4, 2.4   # inches
COLOURS = {1: "#1f5fb4", 2: "#c45302", "level": "#85888e"}   # those of style.css, by the series of a chart
DASHES = {1: "-", 2: "--", "level": ":"}
# The date of the file is left out, and text stays text that can be searched and edited.
STYLE = {"pdf.fonttype": 42, "font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
         "xtick.major.width": 0.6, "ytick.major.width": 0.6, "legend.frameon": False}
METADATA = {"CreationDate": None, "Creator": "Kernel Ladder"}
MOST_COUNTED = 20   # classes up to which the cells of a confusion matrix have their numbers


def missing() -> str | None:
    """Why no figure can be drawn here, in one line; None if they can."""
    if importlib.util.find_spec("matplotlib"):
        return None
    return "figures need Matplotlib, which is not installed here: `envs/install figures`, or figures: false"


def titles(page):
    """Name of the file -> its title, of the figures that a report whose page has these variables has."""
    return {f"{name}.pdf": title for name, (title, content, _) in FIGURES.items() if content(page)}


def files(page):
    """Name of the file -> its bytes, a PDF, for all of `titles`; raises UserError if Matplotlib is missing."""
    return {f"{name}.pdf": _pdf(figure) for name, figure in drawings(page).items()}


def drawings(page):
    """Name -> matplotlib.figure.Figure, for all of `titles`; raises UserError if Matplotlib is missing."""
    if reason := missing():
        raise UserError(reason)
    import matplotlib
    from matplotlib.figure import Figure  # without pyplot there is no window and no state
    figures = {}
    for name, (_, content, draw) in FIGURES.items():
        if content(page):
            with matplotlib.rc_context(STYLE):
                figures[name] = Figure((WIDTH, HEIGHT), layout="constrained")
                draw(figures[name].subplots(), content(page))
    return figures


def _pdf(figure):
    import matplotlib
    with matplotlib.rc_context(STYLE), io.BytesIO() as file:
        figure.savefig(file, format="pdf", metadata=METADATA)
        return file.getvalue()


def _curves(axes, chart):
    """A chart of charts.lines."""
    data = chart["data"]
    for line in data["series"]:
        axes.plot(line["x"], line["y"], DASHES[line["series"]], color=COLOURS[line["series"]], linewidth=1.2,
                  label=line["name"])
    axes.set(xlabel=data["x"]["label"], ylabel=data["y"]["label"])
    if data["y"]["kind"] == "log":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend()


def _intervals(axes, rows):
    """Accuracies with their intervals, the first at the top; rows: those of intervals.chart."""
    for at, row in enumerate(reversed(rows)):
        colour = COLOURS[1 if row["key"] == "own" else "level"]
        axes.plot([100 * end for end in row["interval"]], [at, at], "-", color=colour, linewidth=1.6)
        axes.plot([100 * row["value"]], [at], "o", color=colour, markersize=4.5)
    axes.set_yticks(range(len(rows)), [row["name"] for row in reversed(rows)])
    axes.set(xlabel="accuracy, % (with 95 % interval)", ylim=(-0.6, len(rows) - 0.4))


def _confusion(axes, content):
    """content: {"names", "matrix": images by true and predicted class}. Cells have the colour of their share of a class."""
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
            axes.text(named, true, str(count), ha="center", va="center", fontsize=5,
                      color="white" if shares[true][named] > 0.5 else "black")


# Name -> (title, function of the page's variables that gives what is drawn, or nothing, function that draws it).
FIGURES = {
    "loss": ("training loss", lambda page: page["training"] and page["training"]["loss_curve"], _curves),
    "accuracy": ("accuracy beside its controls", lambda page: page["verdict"] and page["verdict"]["chart"]["rows"],
                 _intervals),
    "confusion": ("confusion matrix", lambda page: page["run"]["confusion"] and {
        "names": page["data"]["classes"], "matrix": page["run"]["confusion"]}, _confusion),
}
