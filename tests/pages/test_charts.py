"""Descriptions of charts, and the palette; tests/browser/test_charts.py reads what is drawn of
them.
"""

import json
import math
import re

import pytest

import colours
from ladder.pages import charts, templates


def test_a_description_is_json_also_of_what_is_no_number():
    curve = {"name": "run", "colour": 1, "points": [(0, 0.123456789), (1, math.nan)]}
    of = charts.lines("t", [{**curve, "by": [1, [0.5, math.inf]]}], charts.loss_axis("loss"))
    told = json.loads(json.dumps(of, allow_nan=False))["series"][0]
    assert told["x"] == [0, 1] and told["y"] == [0.123457, None] and told["by"] == [1, [0.5, None]]


def test_a_scatter_has_only_the_lists_that_its_points_have():
    points = [{"x": 1, "y": 2.0, "id": "a"}, {"x": 2, "y": 3.0, "look": "ring"}]
    axis = charts.number_axis("x")
    (told,) = charts.scatter("t", [{"name": "n", "points": points}], axis, axis)["series"]
    assert told == {
        "name": "n",
        "x": [1, 2],
        "y": [2.0, 3.0],
        "id": ["a", None],
        "look": [None, "ring"],
    }


def test_without_its_script_a_page_has_the_curves_and_their_ends():
    series = [
        {"name": "a", "colour": 1, "points": [(0, 0.4), (5, math.nan), (10, 0.0)]},
        {"name": "b", "colour": "level", "points": [(0, 0.2), (10, 0.2)]},
    ]
    of = charts.lines("t", series, charts.loss_axis("loss"))
    assert [one["path"] for one in charts.plain(of)] == ["M0 0L1000 1000", "M0 500L1000 500"]
    page = str(templates._environment().get_template("pieces.html").module.chart(of, "a chart"))
    assert "a: loss 0.4 to 0" in page and "b: loss 0.2<" in page
    assert charts.plain(charts.lines("t", [], charts.loss_axis("loss"))) == []


# The palette.


def palettes():
    """Theme -> [colour] of the ten series and the grey of the others, and the paper, as style.css
    has them.
    """
    text = (templates.TEMPLATES / "style.css").read_text()
    light, dark = (
        re.search(start + r"(.*?)\}", text, re.DOTALL)[1]
        for start in (r":root, \.light \{", r"\(prefers-color-scheme: dark\) \{\s*:root \{")
    )
    names = [*(f"series-{number}" for number in range(1, charts.COLOURS + 1)), "quiet"]
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
    assert difference >= 10, alike
    difference, *alike = colours.smallest_difference([*series[:6], series[-1]], vision)
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
