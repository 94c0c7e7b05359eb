"""Charts: marks lie at their values, between the ticks that they belong to, and names do not cover
each other.
"""

import functools
import itertools
import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

import colours
from ladder.pages import charts, templates

SVG = "{http://www.w3.org/2000/svg}"


def one(*points, **more):
    return {"name": "run", "label": "run", "key": 1, "series": 1, "points": list(points), **more}


def drawn(of):
    """The SVG of a chart as an element tree."""
    page = str(templates._environment().get_template("pieces.html").module.chart(of, "a chart"))
    svg = re.search(r"<svg.*</svg>", page, re.DOTALL)[0]
    return ET.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))


def ticks_of(svg):
    """Text -> y of the horizontal grid lines."""
    every = list(svg)
    return {
        text.text: float(re.match(r"M\S+ (\S+)H", grid.get("d"))[1])
        for grid, text in itertools.pairwise(every)
        if grid.get("class") == "grid" and "H" in grid.get("d")
    }


def dots_of(svg):
    """[(x, y)] of the marks of a scatter."""
    return [
        tuple(
            map(float, re.match(r"translate\(([^ ]+) ([^ )]+)\)", path.get("transform")).groups())
        )
        for path in svg.iter(f"{SVG}path")
        if "mark" in path.get("class")
    ]


def percent(value):
    return f"{value}{templates.NARROW_SPACE}%"


@pytest.mark.parametrize(
    "low, high, texts",
    [
        (0, 0.0731, ["0", "0.02", "0.04", "0.06"]),
        (0, 10, ["0", "5", "10"]),
        (88.6, 100, ["90", "95", "100"]),
        (0, 3e-5, ["0", "0.00001", "0.00002", "0.00003"]),
        (0, 4500, ["0", "2,000", "4,000"]),
    ],
)
def test_ticks_are_round_and_inside(low, high, texts):
    assert [text for _, text in charts.ticks(low, high, 4)] == texts


def test_a_curve_lies_between_the_ticks_of_its_values():
    of = charts.lines(
        "t", [one((0, 0.4), (5, 0.2), (10, 0.0))], charts.loss_axis([0.4, 0.2, 0.0], "loss")
    )
    svg = drawn(of)
    still, grid = of["still"], ticks_of(svg)
    curve = next(path for path in svg.iter(f"{SVG}path") if "curve" in path.get("class"))
    (x0, y0), (x1, y1), (x2, y2) = (
        map(float, place.split()) for place in re.findall(r"[\d.]+ [\d.]+", curve.get("d"))
    )
    assert (x0, x2) == (still["left"], still["right"]) and x1 == pytest.approx((x0 + x2) / 2)
    assert (y0, y1, y2) == (grid["0.4"], grid["0.2"], grid["0"])
    assert still["bottom"] == grid["0"]
    assert [tick["text"] for tick in still["x_ticks"]] == ["0", "2", "4", "6", "8", "10"]


@pytest.mark.parametrize(
    "scores",
    [
        [1.0],
        [0.9, 1.0],
        [0.973, 0.981, 1.0],
        [1.0, 1.0],
        [0.5, 0.6],
        [0.0, 0.1],
        [0.97, 0.986],
        [0.1, 0.985, 0.99],
        [0.61, 0.66, 0.68],
        [0.9999, 1.0],
        [0.5, 0.5],
    ],
)
def test_an_accuracy_lies_at_the_tick_of_its_value_also_100_percent(scores):
    y = charts.share_axis(scores, "accuracy")
    points = [{"x": at, "y": score, "run": str(at)} for at, score in enumerate(scores)]
    svg = drawn(charts.scatter("t", [one(*points)], charts.number_axis(-1, len(scores), "x"), y))
    grid, dots = ticks_of(svg), dots_of(svg)
    assert len(grid) >= 2
    levels = {
        float(text.split(templates.NARROW_SPACE)[0].rstrip("%")) / 100: place
        for text, place in grid.items()
    }
    for score, (_, place) in zip(scores, dots, strict=True):
        assert all(
            (place < level) == (score > value)
            for value, level in levels.items()
            if abs(value - score) > 1e-9
        )
        assert 30 - 1e-6 <= place <= 254 + 1e-6, "within the plot"
    if 1.0 in scores:
        assert percent(100) in grid and dots[scores.index(1.0)][1] == pytest.approx(
            grid[percent(100)]
        )
    assert len({place for _, place in dots}) == len(set(scores)), "different ones lie apart"


def test_good_accuracies_are_told_apart_beside_a_bad_one():
    axis = charts.share_axis([0.1, 0.98, 0.99], "accuracy")
    assert axis.place(0.99) - axis.place(0.98) > 0.1


def test_an_accuracy_axis_from_zero_expands_evenly_towards_100_percent():
    axis = charts.share_axis([0.2, 0.999], "accuracy", from_zero=True)
    assert axis.place(0) == 0 and axis.place(0.99) - axis.place(0.9) == pytest.approx(
        axis.place(0.9)
    )


def test_a_curve_over_decades_is_drawn_on_a_logarithmic_scale():
    values = [1.0, 0.1, 0.01]
    axis = charts.loss_axis(values, "loss")
    assert axis.kind == "log" and axis.place(1) - axis.place(0.1) == pytest.approx(
        axis.place(0.1) - axis.place(0.01)
    )
    assert [text for _, text in axis.ticks] == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]
    assert charts.loss_axis([1.0, 0.1, 0.0], "loss").kind == "linear", "a zero has no logarithm"


@pytest.mark.parametrize(
    "values", [(0.45, 0.32), (0.46, 0.24), (2.1, 0.02), (0.31, 0.31), (0.0448, 0.0443)]
)
def test_a_logarithmic_axis_has_more_than_two_ticks_also_where_values_are_close(values):
    axis = charts.loss_axis(values, "loss", always_log=True)
    assert axis.kind == "log" and len(axis.ticks) > 2
    assert all(
        0 <= axis.place(value) <= 1 + 1e-9
        for value in (*values, *(value for value, _ in axis.ticks))
    )


def test_charts_of_one_step_of_zeros_and_of_nothing_can_be_drawn():
    assert charts.lines("t", [one((0.5, 0.4))], charts.loss_axis([0.4], "loss"))["still"]["series"]
    zeros = charts.lines("t", [one((1, 0.0), (2, 0.0))], charts.loss_axis([0.0, 0.0], "loss"))[
        "still"
    ]
    assert [y for _, y in zeros["series"][0]["at"]] == [zeros["bottom"]] * 2


# One value, equal ones, none, many digits, ends of the range of float32, and what is no number.
ODD = [
    [],
    [0.0],
    [1.0],
    [0.5, 0.5],
    [0.1, 0.1 + 1e-12],
    [1e-30, 1e-28],
    [1e-30] * 2,
    [3e38, 1e30],
    [math.nan],
    [math.nan, 0.3],
    [math.inf, 0.2, 0.9],
    [1 - 1e-6, 1.0],
    [1 - 1e-6],
    [0.0, 1.0],
    [1e6, 1e6 + 1],
]


def assert_lies_within(of):
    """Whatever is drawn has a place within the chart, ticks differ and leave room for the plot, and
    the data is JSON.
    """
    still, data = of["still"], json.dumps(of["data"], allow_nan=False)
    assert json.loads(data) and still["left"] < still["width"] / 3
    for x, y in (at for curve in still["series"] for at in curve["at"]):
        assert (
            still["left"] - 1e-6 <= x <= still["right"] + 1e-6
            and still["top"] - 1e-6 <= y <= still["bottom"] + 1e-6
        )
    for side, low, high in (
        ("x", still["left"], still["right"]),
        ("y", still["top"], still["bottom"]),
    ):
        ticks = still[f"{side}_ticks"]
        assert len({tick["text"] for tick in ticks}) == len(ticks), ticks
        assert all(low - 1 <= tick["at"] <= high + 1 for tick in ticks), ticks
    assert drawn(of) is not None


@pytest.mark.parametrize("values", ODD, ids=str)
@pytest.mark.parametrize(
    "axis",
    [charts.loss_axis, functools.partial(charts.loss_axis, always_log=True), charts.share_axis],
)
def test_curves_of_odd_values_lie_within_their_chart_without_what_is_no_number(axis, values):
    if axis is charts.share_axis:
        values = [value for value in values if not value > 1]
    steps = [[step, 2.0 * step] for step in range(len(values))]
    of = charts.lines(
        "t",
        [one(*zip(range(len(values)), values, strict=True), by=[1, [two for _, two in steps]])],
        axis(values, "value"),
        ("step", "seconds"),
    )
    assert_lies_within(of)
    finite = [at for at, value in enumerate(values) if math.isfinite(value)]
    (curve,) = of["data"]["series"]
    assert curve["x"] == finite and curve["by"] == [1, [2 * at for at in finite]]


@pytest.mark.parametrize(
    "ends",
    [(60, 60), (1, 1), (10, 10**6), (30, 60), (1e-9, 1e-9), (2.0, 2.0 + 1e-12), (1e-9, 1e-3)],
)
@pytest.mark.parametrize("kind", ["linear", "log"])
def test_a_scatter_of_one_place_and_of_places_far_apart_lies_within_its_chart(kind, ends):
    points = [{"x": x, "y": 0.5} for x in ends] + [
        {"x": math.nan, "y": 0.5},
        {"x": ends[0], "y": math.inf},
    ]
    of = charts.scatter(
        "t",
        [one(*points)],
        charts.number_axis(*ends, "x", kind),
        charts.share_axis([0.5], "accuracy"),
    )
    assert_lies_within(of)
    assert len(dots_of(drawn(of))) == 2 and len(of["still"]["x_ticks"]) >= 2


def test_names_at_the_ends_of_curves_do_not_overlap_and_keep_their_order():
    lines = [one((0, 0.5), (9, 0.1 + 0.0001 * number), label=f"{number}") for number in range(8)]
    of = charts.lines("t", lines, charts.loss_axis([0.1, 0.5], "loss"))["still"]
    places = [label["y"] for label in sorted(of["labels"], key=lambda label: label["from"])]
    assert all(
        below - above >= charts.LINE - 0.02 for above, below in itertools.pairwise(places)
    ), places
    assert charts.TOP <= places[0] and places[-1] <= of["bottom"]


@pytest.mark.parametrize("places", [[50, 50, 50], [0, 1, 2], [99, 100], [10, 90], [5] * 30])
def test_places_are_spread_no_further_than_needed(places):
    moved = charts.spread(places, 10, 0, 100)
    gaps = [b - a for a, b in itertools.pairwise(sorted(moved))]
    assert (
        min(gaps) >= min(10, 100 / (len(places) - 1)) - 0.02
        and min(moved) >= 0
        and max(moved) <= 100
    )
    if min(abs(a - b) for a, b in itertools.combinations(places, 2)) >= 10:
        assert moved == places


def test_names_in_a_plane_move_aside_for_each_other():
    names = [(300 + 3 * at, 300 + 2 * at, f"class {at}") for at in range(10)]
    found = charts.apart(names, (0, 0, 600, 600))
    boxes = [
        (name["x"] - name["wide"] / 2, name["y"] - 8, name["x"] + name["wide"] / 2, name["y"] + 8)
        for name in found
    ]
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] + 0.2 or b[2] <= a[0] + 0.2 or a[3] <= b[1] + 1 or b[3] <= a[1] + 1, (
            a,
            b,
        )
    assert charts.apart([(100, 100, "alone")], (0, 0, 600, 600))[0]["of"] == [100, 100]


# The palette.


def palettes():
    """Theme -> [colour] of the six series and the grey of the others, and the paper, as style.css
    has them.
    """
    text = (templates.TEMPLATES / "style.css").read_text()
    light, dark = (
        re.search(start + r"(.*?)\}", text, re.DOTALL)[1]
        for start in (r":root, \.light \{", r"\(prefers-color-scheme: dark\) \{\s*:root \{")
    )
    names = [*(f"series-{number}" for number in range(1, charts.COLOURED + 1)), "quiet"]
    return {
        theme: (
            [re.search(rf"--{name}: (#\w{{6}});", part)[1] for name in names],
            re.search(r"--paper: (#\w+);", part)[1],
        )
        for theme, part in (("light", light), ("dark", dark))
    }


@pytest.mark.parametrize("vision", [None, *colours.VISIONS])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_colours_of_series_differ_in_every_kind_of_colour_vision(theme, vision):
    series, paper = palettes()[theme]
    difference, *alike = colours.smallest_difference(series, vision)
    assert difference >= 12, alike
    assert all(colours.contrast(colour, paper) >= 3 for colour in series), "WCAG 2, 1.4.11"


@pytest.mark.parametrize(
    "one, other, difference",
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
        ((50, 0, 0), (50, -1, 2), 2.3669),
    ],
)
def test_the_measure_of_colours_agrees_with_the_published_examples(one, other, difference):
    assert colours.ciede2000(one, other) == pytest.approx(difference, abs=5e-5)


def test_the_dashes_of_the_script_are_those_of_the_style():
    script, style = (
        (templates.TEMPLATES / name).read_text() for name in ("charts.js", "charts.css")
    )
    dashes = dict(
        re.findall(r"(\d|level): \[([\d, ]+)\]", re.search(r"DASHES = \{(.*?)\};", script)[1])
    )
    for series, dash in dashes.items():
        assert f".curve.stroke-{series} {{ stroke-dasharray: {dash.replace(',', '')}; }}" in style
    assert len(set(dashes.values())) == len(dashes) == charts.COLOURED
