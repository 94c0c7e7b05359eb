"""Charts in a real browser: what is drawn lies at its values; values under mouse, finger and keys,
zoom, axes, selections, and files to save.
"""

import csv
import io
import itertools
import json
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import browser
import needs
from browser import TOO_WIDE
from ladder.pages import charts, figures, intervals, templates

pytestmark = needs.BROWSER

PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>t</title>
<style>{style}</style>{body}{scripts}"""
# Draws a description in a chart of its own and returns what is in the SVG, numbers in its units.
DRAWN = """(description => {
  const box = Object.assign(document.body.appendChild(document.createElement("div")), {className: "chart"});
  const chart = new charts.Chart(box, description), all = name => [...chart.svg_.querySelectorAll(name)];
  const number = (one, name) => Number(one.getAttribute(name)), d = one => one.getAttribute("d");
  const grids = all(".texts .grid").map(one => d(one).match(/-?[\\d.]+/g).map(Number));
  const place = one => one.getAttribute("transform").match(/-?[\\d.]+/g).slice(0, 2).map(Number);
  const found = {
    left: chart.left, right: chart.right, top: chart.top, bottom: chart.bottom, kind: chart.kind, width: chart.width,
    y: all(".number[text-anchor=end]").map((one, at) => [one.textContent, grids[at][1]]),
    x: all(".number[text-anchor=middle]").map(one => [one.textContent, number(one, "x")]),
    curves: all(".series .curve").map(one => d(one).slice(1).split("L").map(spot => spot.split(" ").map(Number))),
    marks: all(".series :is(.mark, .ring, .cross)").map(place),
    shapes: all(".series .mark").map(one => [d(one), getComputedStyle(one).fill]),
    spans: all(".series .interval").map(one => d(one).match(/-?[\\d.]+/g).map(Number)),
    boxes: all(".leader + text, .plate").map(one => one.getBBox()).map(({x, y, width, height}) => [x, y, x + width, y + height]),
    texts: all("text").map(one => one.textContent),
  };
  box.remove();
  return found;
})"""
# The tip of the page's last chart, and the page units of its ring.
SHOWN = """(() => {
  const chart = [...document.querySelectorAll(".chart")].at(-1), tip = chart.querySelector(".tip");
  const ring = chart.querySelector(".shown:not(.near)")?.getBoundingClientRect();
  return {text: tip.hidden ? null : tip.textContent, x: ring && ring.x + ring.width / 2, y: ring && ring.y + ring.height / 2};
})()"""
# The plot of the first chart on the page.
PLOT = """(() => { const [chart] = charts.all, box = chart.svg_.getBoundingClientRect();
  return [box.left + chart.left, box.top + chart.top, chart.right - chart.left, chart.bottom - chart.top]; })()"""


def curves(count=2, points=5, **axis):
    """Epochs of two steps; of the first five steps those of the first two take 20 s each, the
    others 10 s.
    """
    clock = [20, 40, 50, 60, 70, *range(80, 80 + points)][:points]
    series = [
        {
            "name": f"run {number}",
            "key": str(number),
            "colour": number if number <= charts.COLOURS else "rest",
            "by": [1, 0.5, clock],
            "points": [(step, 0.1 * number / (1 + step)) for step in range(1, points + 1)],
        }
        for number in range(1, count + 1)
    ]
    return charts.lines(
        "A training", series, charts.loss_axis("loss", **axis), ("step", "epoch", "seconds")
    )


def runs(count=6):
    points = [
        {"x": at, "y": 0.9 + at / 100, "id": f"r{at}", "low": 0.89 + at / 100, "high": 0.91}
        for at in range(1, count + 1)
    ]
    one = {"name": "runs", "key": "runs", "colour": 1, "points": points}
    return charts.scatter("Runs", [one], charts.number_axis("batch"), charts.share_axis("accuracy"))


def pieces():
    return templates._environment().get_template("pieces.html").module


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page with this body and the scripts of charts."""

    def open_page(body="", width=800, scheme="light"):
        page = tmp_path / "chart.html"
        style = "".join(
            (templates.TEMPLATES / name).read_text()
            for name in ("style.css", "charts.css", "site.css")
        )
        scripts = "".join(map(str, map(templates.script, ("page.js", *templates.CHARTS))))
        page.write_text(PAGE.format(style=style, body=body, scripts=scripts))
        chromium.open(page, width, scheme=scheme)
        return page

    return open_page


@pytest.fixture
def shown(opened):
    """Opens a page with one chart and what follows."""
    return lambda of, width=800, after="": opened(f"{pieces().chart(of, 'A chart')}{after}", width)


@pytest.fixture
def drawn(chromium, opened):
    """Draws a description and returns what is in the SVG."""
    opened()
    return lambda of: chromium.value(f"{DRAWN}({json.dumps(of, allow_nan=False)})")


def line(*points, **more):
    return {"name": "run", "key": "run", "colour": 1, "points": list(points), **more}


def dots(xs, ys):
    return {**line(), "points": [{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)]}


def values_of(ticks):
    """Text of a share -> its place, as value -> place."""
    return {float(text.replace("\u202f%", "")) / 100: place for text, place in ticks}


# What is drawn lies at its values.


@pytest.mark.parametrize(
    "low, high, texts",
    [
        (0, 0.0731, ["0", "0.02", "0.04", "0.06"]),
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (88.6, 100, ["90", "95", "100"]),
        (0, 3e-5, ["0", "1e-5", "2e-5", "3e-5"]),
        (0, 4500, ["0", "1,000", "2,000", "3,000", "4,000"]),
    ],
)
def test_ticks_are_round_and_inside(drawn, low, high, texts):
    y = charts.number_axis("y", ends=(low, high))
    found = drawn(charts.scatter("t", [dots([1], [low])], charts.number_axis("x"), y))
    assert [text for text, _ in found["y"]] == texts


def test_a_curve_lies_at_the_ticks_of_its_values(drawn):
    found = drawn(charts.lines("t", [line((0, 0.4), (5, 0.2), (10, 0.0))], charts.loss_axis("l")))
    ticks, ((x0, y0), (x1, y1), (x2, y2)) = dict(found["y"]), found["curves"][0]
    assert (x0, x2) == pytest.approx((found["left"], found["right"]), abs=0.01)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.01)
    assert (y0, y1, y2) == (ticks["0.4"], ticks["0.2"], ticks["0"]) and y2 == found["bottom"]
    assert [text for text, _ in found["x"]] == ["0", "2", "4", "6", "8", "10"]


@pytest.mark.parametrize(
    "scores",
    [
        [1.0],
        [0.9, 1.0],
        [0.973, 0.981, 1.0],
        [0.5, 0.6],
        [0.0, 0.1],
        [0.1, 0.985, 0.99],
        [0.9999, 1.0],
        [0.5, 0.5],
    ],
)
@pytest.mark.parametrize("zero", [False, True])
def test_an_accuracy_lies_between_the_ticks_of_its_value_also_100_percent(drawn, scores, zero):
    y = charts.share_axis("accuracy", zero)
    found = drawn(
        charts.scatter("t", [dots(range(len(scores)), scores)], charts.number_axis("x"), y)
    )
    levels = values_of(found["y"])
    assert len(levels) >= 2
    for score, (_, place) in zip(scores, found["marks"], strict=True):
        assert all(
            (place < level) == (score > value)
            for value, level in levels.items()
            if abs(value - score) > 1e-9
        )
        assert found["top"] <= place <= found["bottom"]
        assert abs(levels.get(score, place) - place) < 0.02
    assert (1.0 in levels) == (1.0 in scores)
    assert len({place for _, place in found["marks"]}) == len(set(scores))


def test_an_accuracy_axis_expands_evenly_towards_100_percent(drawn):
    y = charts.share_axis("accuracy", from_zero=True)
    of = charts.scatter("t", [dots([1, 2, 3], [0.9, 0.99, 0.999])], charts.number_axis("x"), y)
    a, b, c = (place for _, place in drawn(of)["marks"])
    assert a - b == pytest.approx(b - c, abs=0.05) and a - b > 20


def test_a_curve_over_decades_is_drawn_on_a_logarithmic_scale(drawn):
    of = charts.lines("t", [line((0, 1.0), (1, 0.1), (2, 0.01))], charts.loss_axis("loss"))
    found = drawn(of)
    a, b, c = (place for _, place in found["curves"][0])
    assert found["kind"]["y"] == "log" and b - a == pytest.approx(c - b, abs=0.05)
    assert [text for text, _ in found["y"]] == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]
    zero = charts.lines("t", [line((0, 1.0), (1, 0.1), (2, 0.0))], charts.loss_axis("loss"))
    assert drawn(zero)["kind"]["y"] == "linear", "a zero has no logarithm"


# One value, equal ones, none, many digits, ends of the range of float32, and what is no number.
ODD = [
    [],
    [0.0],
    [1.0],
    [0.5, 0.5],
    [0.1, 0.1 + 1e-12],
    [0.0448, 0.0443],
    [1e-30, 1e-28],
    [1e-30] * 2,
    [3e38, 1e30],
    [math.nan],
    [math.inf, 0.2, math.nan, 0.9],
    [1 - 1e-6, 1.0],
    [1 - 1e-6],
    [0.0, 1.0],
    [1e6, 1e6 + 1],
]


@pytest.mark.parametrize(
    "y", [charts.loss_axis("y"), charts.loss_axis("y", "log"), charts.share_axis("y")], ids=str
)
def test_odd_values_lie_within_their_chart_without_what_is_no_number(drawn, y):
    for values in ODD:
        values = [value for value in values if not (y.get("percent") and value > 1)]
        if y["scale"] == "log" and 0.0 in values:
            continue
        steps = list(range(len(values)))
        of = charts.lines(
            "t",
            [line(*zip(steps, values, strict=True), by=[1, [2.0 * step for step in steps]])],
            y,
            ("step", "seconds"),
        )
        found = drawn(of)
        places = [spot for curve in found["curves"] for spot in curve]
        assert len(places) == sum(map(math.isfinite, values)), values
        for x, at in places:
            assert found["left"] - 0.01 <= x <= found["right"] + 0.01, values
            assert found["top"] - 0.01 <= at <= found["bottom"] + 0.01, values
        for side in "xy":
            assert len(dict(found[side])) == len(found[side]), (values, found[side])
        if values and any(map(math.isfinite, values)):
            assert len(found["y"]) >= 2, values


@pytest.mark.parametrize(
    "ends",
    [(60, 60), (1, 1), (10, 10**6), (30, 60), (1e-9, 1e-9), (2.0, 2.0 + 1e-12), (1e-9, 1e-3)],
)
def test_a_scatter_of_one_place_and_of_places_far_apart_lies_within_its_chart(drawn, ends):
    for scale in ("linear", "log"):
        of = charts.scatter(
            "t",
            [dots([*ends, math.nan, ends[0]], [0.5, 0.5, 0.5, math.inf])],
            charts.number_axis("x", scale),
            charts.share_axis("accuracy"),
        )
        found = drawn(of)
        assert len(found["marks"]) == 2 and len(dict(found["x"])) >= 2
        assert all(found["left"] < x < found["right"] for x, _ in found["marks"])


def test_names_of_a_band_and_moments_have_ticks(drawn):
    x, names = {"label": "network", "names": []}, ["lenet_5", "small_cnn", "lenet_5"]
    found = drawn(charts.scatter("t", [dots(names, [1.0, 2.0, 3.0])], x, charts.number_axis("s")))
    places = dict(found["x"])
    assert [at for at, _ in found["marks"]] == [places[name] for name in names]
    x = charts.number_axis("made", "time")
    found = drawn(
        charts.scatter("t", [dots([0, 864e5 * 9], [1.0, 2.0])], x, charts.number_axis("s"))
    )
    assert found["x"][0][0] == "1970-01-01" and found["x"][-1][0] == "1970-01-09"


def test_moments_below_a_narrow_chart_do_not_overlap(chromium, shown):
    axes = charts.number_axis("made", "time"), charts.number_axis("s")
    shown(charts.scatter("t", [dots([0, 5 * 36e5], [1.0, 2.0])], *axes), 580)
    boxes = chromium.value("""[...document.querySelectorAll('svg text.number')]
      .filter(one => one.textContent.includes(':')).map(one => one.getBoundingClientRect())
      .map(({left, right}) => [left, right])""")
    assert len(boxes) > 1
    assert all(first[1] < second[0] for first, second in itertools.pairwise(sorted(boxes)))


def test_an_interval_ends_at_its_values_and_a_control_far_below_stretches_no_axis(drawn):
    rows = [
        {"key": key, "name": name, "note": "", "floor": floor, "mark": mark, "mark_text": "other",
         **intervals.share(value, 1000)}
        for key, name, value, floor, mark in (
            ("own", "this run", 0.9, False, 0.7),
            ("", "control", 0.8, False, None),
            ("", "majority", 0.1, True, None),
        )
    ]  # fmt: skip
    found = drawn({**intervals.chart(rows), "title": "t"})
    levels = values_of(found["x"])
    low, high = sorted(levels)[0], sorted(levels)[-1]
    per_point = (levels[high] - levels[low]) / (high - low)
    for (x, _), value in zip(sorted(found["marks"])[-2:], (0.8, 0.9), strict=True):
        assert x == pytest.approx(levels[low] + per_point * (value - low), abs=0.1)
    for (a, _, b), row in zip(sorted(found["spans"]), rows[1::-1], strict=True):
        assert b - a == pytest.approx(
            per_point * (row["interval"][1] - row["interval"][0]), abs=0.1
        )
    floor, mark = sorted(found["marks"])[:2]
    assert floor[0] == pytest.approx(found["left"], abs=0.01) and low > 0.6, "a mark at the edge"
    assert mark[0] == pytest.approx(levels[low] + per_point * (0.7 - low), abs=0.1)
    assert {"this run", "90.0\u202f%", "88.0 to 91.7"} <= set(found["texts"])


def test_ten_series_differ_in_shape_and_colour(drawn):
    series = [{**dots([number], [1.0]), "colour": number} for number in range(1, 11)]
    found = drawn(charts.scatter("t", series, charts.number_axis("x"), charts.number_axis("y")))
    shapes, colours = zip(*found["shapes"], strict=True)
    assert len(set(shapes)) == len(set(colours)) == charts.COLOURS == 10


def apart(boxes):
    return all(
        a[2] <= b[0] + 0.2 or b[2] <= a[0] + 0.2 or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
        for a, b in itertools.combinations(boxes, 2)
    )


def test_names_at_the_ends_of_curves_and_in_a_plane_do_not_overlap(drawn):
    lines = [
        line((0, 0.5), (9, 0.1 + 0.0001 * number), name=f"{number}", colour=number)
        for number in range(1, 9)
    ]
    boxes = drawn(charts.lines("t", lines, charts.loss_axis("loss")))["boxes"]
    assert len(boxes) == 8 and apart(boxes) and boxes == sorted(boxes, key=lambda box: -box[1])
    side = charts.number_axis("", ends=(0, 1))
    names = [{"name": f"class {at}", "x": 0.5 + at / 200, "y": 0.5} for at in range(10)]
    of = charts.scatter("t", [dots([0.5], [0.5])], side, side, square=True, names=names)
    found = drawn(of)
    assert len(found["boxes"]) == 10 and apart(found["boxes"])
    of["names"] = names[:1]
    left, _, right, _ = drawn(of)["boxes"][0]
    assert (left + right) / 2 == pytest.approx(found["width"] / 2, abs=0.5)


def test_colours_of_a_column(chromium, opened):
    opened()
    found = chromium.value("""[charts.colouring(["b", "a", "b", null], false), charts.colouring([...Array(50).keys()], true),
      charts.colouring([...Array(12).keys()].map(at => "n" + at), false)]
      .map(one => [one.legend, ["a", 0, 49, "n11"].map(one.colourOf)])""")
    (names, numbers, many) = found
    assert names == [[[1, "a"], [2, "b"], ["rest", "others"]], [1, "rest", "rest", "rest"]]
    assert [colour for colour, _ in numbers[0]] == [f"step-{at}" for at in range(1, 6)]
    assert numbers[0][0][1].startswith("0 to") and numbers[1][1:3] == ["step-1", "step-5"]
    assert len(many[0]) == 11 and many[0][-1] == ["rest", "others"]


# Values under mouse, finger and keys.


def move(chromium, x, y):
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def drag(chromium, start, end):
    move(chromium, *start)
    for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
        chromium.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def press(chromium, *keys, modifiers=0):
    for key in keys:
        for kind in ("keyDown", "keyUp"):
            chromium.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers)


def focus(chromium):
    chromium.value("[...document.querySelectorAll('.stage')].at(-1).focus()")


def choose(chromium, option):
    chromium.value(f"""[...document.querySelectorAll('.controls option')].filter(one => one.text === {json.dumps(option)})
      .forEach(one => {{ one.selected = true; one.parentNode.dispatchEvent(new Event('change')); }})""")


def test_the_mouse_finds_the_value_at_its_place(chromium, shown):
    shown(curves())
    left, top, width, height = chromium.value(PLOT)
    low, high = 0, 1.04 * 0.1
    x, y = left + width * 2 / 5, top + height * (1 - (0.1 / 3 - low) / (high - low))
    move(chromium, x + 3, y + 3)
    found = chromium.value(SHOWN)
    assert found["text"] == "run 1, step 2: 0.03333"
    assert found["x"] == pytest.approx(x, abs=1) and found["y"] == pytest.approx(y, abs=1)


def test_arrow_keys_go_along_a_curve_and_to_the_next(chromium, shown):
    shown(curves())
    focus(chromium)
    texts = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowDown", "Home", "ArrowUp"):
        press(chromium, key)
        texts.append(chromium.value(SHOWN)["text"])
    assert texts == [
        "run 1, step 1: 0.05",
        "run 1, step 2: 0.03333",
        "run 1, step 5: 0.01667",
        "run 2, step 5: 0.03333",
        "run 2, step 1: 0.1",
        "run 1, step 1: 0.05",
    ]
    press(chromium, "Escape")
    assert chromium.value(SHOWN)["text"] is None


def test_a_finger_on_the_last_point_shows_its_value_and_widens_no_page(chromium, shown):
    shown(curves(), width=390)
    left, top, width, height = chromium.value(PLOT)
    for kind, points in (
        ("touchStart", [{"x": left + width, "y": top + height * 0.8}]),
        ("touchEnd", []),
    ):
        chromium.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    assert chromium.value(SHOWN)["text"].startswith("run 1, step 5"), "also when it is lifted"
    assert chromium.value("document.documentElement.scrollWidth") == 390
    assert chromium.value(TOO_WIDE) == []


def test_zoom_keeps_the_point_that_is_shown_and_0_shows_all_again(chromium, shown):
    shown(curves(points=50))
    focus(chromium)
    press(chromium, *["ArrowRight"] * 25)
    before = chromium.value(SHOWN)
    press(chromium, "+", "+")
    near = chromium.value(SHOWN)
    assert near["text"] == before["text"] == "run 1, step 25: 0.003846"
    assert near["x"] == pytest.approx(before["x"], abs=1)
    press(chromium, "ArrowRight")
    step = chromium.value(SHOWN)["x"] - near["x"]
    assert step == pytest.approx(1.6**2 * chromium.value(PLOT)[2] / 50, rel=0.05)
    press(chromium, "0")
    press(chromium, "Home")
    assert chromium.value(SHOWN)["text"] == "run 1, step 1: 0.05"


def test_a_rectangle_that_is_dragged_is_zoomed_into(chromium, shown):
    shown(curves(points=50))
    left, top, width, height = chromium.value(PLOT)
    drag(chromium, (left + width / 2, top + 2), (left + width * 0.7, top + height - 2))
    ends = chromium.value("[charts.all[0].x.low, charts.all[0].x.high]")
    assert ends == pytest.approx([25, 35], abs=0.2)


def test_the_axis_goes_by_epoch_and_by_time(chromium, shown):
    shown(curves())
    left, _, width, _ = chromium.value(PLOT)
    for by, text, share in (
        ("epoch", "run 1, epoch 1: 0.03333", 2 / 5),
        ("seconds", "run 1, seconds 40: 0.03333", 40 / 70),
    ):
        choose(chromium, f"by {by}")
        focus(chromium)
        press(chromium, "Home", "ArrowRight")
        found = chromium.value(SHOWN)
        assert found["text"] == text and found["x"] == pytest.approx(left + width * share, abs=1)


def test_the_log_switch_makes_ratios_even(chromium, shown):
    shown(curves())
    places = "[0, 1].map(one => [0, 4].map(at => charts.all[0].y.at(charts.all[0].series[one].points[at].y)))"
    (a, b), (c, d) = chromium.value(places)
    assert a - c == pytest.approx(3 * (b - d), rel=0.05), "0.05 to 0.1 and 0.0167 to 0.0333"
    choose(chromium, "logarithmic")
    (a, b), (c, d) = chromium.value(places)
    assert a - c == pytest.approx(b - d, rel=0.02), "twice as much is as far up everywhere"


def test_the_name_of_a_button_is_the_word_on_it(chromium, shown):
    shown(runs())
    named = chromium.value("""[...document.querySelectorAll('.controls :is(button, summary)')]
      .map(one => [one.textContent, one.ariaLabel])""")
    assert ["+", "Zoom in"] in named and ["reset", None] in named
    assert all(label is None or text in label or not text.isalpha() for text, label in named)
    scales = "[...document.querySelectorAll('.controls option')].map(one => one.text)"
    assert chromium.value(scales) == ["expanded", "linear"]


def test_a_point_of_a_map_is_shown_with_its_picture_and_those_nearest_to_it(chromium, opened):
    images = np.zeros((5, 4, 8, 3), np.uint8)
    images[3] = 255
    side = charts.number_axis("", ends=(0, 1))
    points = [{"x": at / 5, "y": 0.5, "text": f"true class {at}", "picture": at} for at in range(5)]
    series = [
        {"name": name, "key": name, "colour": 10, "thumb": 0, "points": part}
        for name, part in (("a", points[:4]), ("b", points[4:]))
    ]
    nearest, sheet = [[4, 2]] * 5, figures.sheet(images)
    of = charts.scatter("Map", series, side, side, square=True, sheet=sheet, nearest=nearest)
    opened(pieces().chart(of, "A map"))
    focus(chromium)
    press(chromium, *["ArrowRight"] * 4)
    assert chromium.value(SHOWN)["text"] == "true class 3nearest by their featuresba"
    picture, sheet = (
        chromium.value("""['.tip .picture', '.tip img'].map(name => document.querySelector(name))
      .map(one => one.getBoundingClientRect()).map(box => [box.x, box.y, box.width, box.height])""")
    )
    assert picture[2:] == [72, 36] and sheet[2:] == [3 * 72, 2 * 36], "three in a row of the sheet"
    assert [sheet[at] - picture[at] for at in (0, 1)] == [0, -36], "the first one of its second row"
    assert chromium.value("document.querySelectorAll('.entry rect[fill^=url]').length") == 2
    assert chromium.value(TOO_WIDE) == []


# What stands out, and selections.

OPAQUE = """[...document.querySelectorAll('.series')].filter(one => getComputedStyle(one).opacity === "1")
  .map(one => Number(one.dataset.key)).sort((a, b) => a - b)"""


def test_a_press_on_a_name_makes_the_others_faint_until_it_is_pressed_again(chromium, shown):
    shown(curves(12))
    states = []
    for key in ("3", "12", "3", "12"):
        x, y = (
            chromium.value(f"""(box => [box.x + 5, box.y + 5])(document.querySelector('[data-key="{key}"].entry')
          .getBoundingClientRect())""")
        )
        drag(chromium, (x, y), (x, y))
        move(chromium, 1, 1)
        states.append(chromium.value(OPAQUE))
    assert states == [[3], [3, 12], [12], list(range(1, 13))]
    focus(chromium)
    chromium.value("document.querySelectorAll('.entry')[4].focus()")
    assert chromium.value(OPAQUE) == [5], "what has the focus stands out"
    press(chromium, "Enter")
    assert chromium.value("document.querySelectorAll('.entry')[4].ariaPressed") == "true"


def test_a_run_pointed_at_in_a_table_stands_out_in_the_chart(chromium, shown):
    shown(runs(), after='<div data-runs><p data-run="r2" tabindex="0">2</p></div>')
    chromium.value("document.querySelector('[data-runs] p').focus()")
    strong = "[...document.querySelectorAll('.mark.strong')].map(one => one.dataset.run)"
    assert chromium.value(strong) == ["r2"]


def test_a_rectangle_selects_runs_and_a_press_picks_one_by_mouse_and_keys(chromium, opened):
    opened('<div id="runs" class="chart"></div>')
    chromium.value(f"""globalThis.told = []; globalThis.chart = new charts.Chart(document.getElementById("runs"),
      {json.dumps(runs())}, {{brush: ids => told.push(ids), pick: id => told.push(id)}}); undefined""")

    def told():
        return chromium.value("told.splice(0)")

    spots = chromium.value("""(box => chart.points.map(one => [box.left + chart.x.at(one.x), box.top + chart.y.at(one.y)]))(
      chart.svg_.getBoundingClientRect())""")
    drag(chromium, (spots[1][0] - 10, spots[1][1] + 40), (spots[3][0] + 10, spots[3][1] - 10))
    assert told() == [["r2", "r3", "r4"]]
    faint = "[...document.querySelectorAll('.mark.faint')].map(one => one.dataset.run)"
    assert chromium.value(faint) == ["r1", "r5", "r6"]
    drag(chromium, spots[4], spots[4])
    drag(chromium, (spots[0][0], spots[5][1]), (spots[0][0], spots[5][1]))
    assert told() == ["r5", None], "a press beside them clears"
    assert chromium.value(faint) == []
    focus(chromium)
    press(chromium, "ArrowRight")
    press(chromium, "ArrowRight", "ArrowRight", modifiers=8)
    press(chromium, "Enter")
    press(chromium, "Escape")
    assert told() == [["r1", "r2"], ["r1", "r2", "r3"], "r3", None]


# Saving, paper, and without a script.

SVG = "{http://www.w3.org/2000/svg}"
SAVED = """(async () => {
  const made = [], create = URL.createObjectURL;
  URL.createObjectURL = blob => { made.push(blob); return create.call(URL, blob); };
  for (const format of [...document.querySelectorAll('.save')].at(-1).querySelectorAll('button')) format.click();
  while (made.length < 3) await new Promise(resolve => setTimeout(resolve, 20));
  const byType = type => made.find(blob => blob.type === type);
  const image = await createImageBitmap(byType('image/png'));
  return {svg: await byType('image/svg+xml').text(), csv: await byType('text/csv').text(), png: [image.width, image.height]};
})()"""


def saved(chromium):
    """What the menu of the page's last chart saves: {"svg": its root, "size": of the PNG, "rows":
    of the CSV}.
    """
    chromium.call("Browser.setDownloadBehavior", behavior="deny")
    answer = chromium.value(SAVED)
    rows = list(csv.DictReader(io.StringIO(answer["csv"])))
    return {"svg": ET.fromstring(answer["svg"]), "size": answer["png"], "rows": rows}


def texts_of(root):
    return {"".join(one.itertext()).replace("\u202f", " ") for one in root.iter(f"{SVG}text")}


def test_what_is_drawn_is_saved_as_svg_and_png_in_the_colours_of_paper_and_as_csv(chromium, shown):
    chromium.open(shown(curves()), 800, scheme="dark")
    found = saved(chromium)
    drawing = chromium.value(
        "[...document.querySelectorAll('.drawing .curve')].map(one => one.getAttribute('d'))"
    )
    saved_curves = [one for one in found["svg"].iter(f"{SVG}path") if "curve" in one.get("class")]
    assert [one.get("d") for one in saved_curves] == drawing and len(drawing) == 2
    assert saved_curves[0].get("stroke") == "rgb(31, 95, 180)"
    assert {"A training", "loss", "run 1", "0.05"} <= texts_of(found["svg"])
    assert found["size"] == [2 * int(float(found["svg"].get(side))) for side in ("width", "height")]
    assert len(found["rows"]) == 10
    assert found["rows"][1] == {
        "series": "run 1",
        "step": "2",
        "epoch": "1",
        "seconds": "40",
        "loss": "0.0333333",
    }


def test_the_menu_that_saves_works_by_keys_and_saves_when_a_format_is_pressed(chromium, shown):
    shown(curves())
    chromium.value(
        "globalThis.saved = 0; URL.createObjectURL = () => { saved += 1; return '#'; }; undefined"
    )
    state = """(box => [box.open, document.activeElement === box.firstChild, saved])(
      document.querySelector('.save'))"""
    chromium.value("document.querySelector('.save summary').focus()")
    press(chromium, "ArrowDown")
    assert chromium.value(state) == [False, True, 0]
    chromium.value("document.activeElement.click()")
    assert chromium.value(state) == [True, True, 0]
    chromium.value("document.querySelector('.save button').focus()")
    assert chromium.value(state) == [True, False, 0]
    press(chromium, "Escape")
    assert chromium.value(state) == [False, True, 0]
    chromium.value("document.activeElement.click(); document.querySelector('.stage').focus()")
    assert chromium.value(state) == [False, False, 0], "the focus has left it"


def test_bars_are_saved_as_they_are_seen_in_the_colours_of_paper(chromium, opened):
    opened(
        pieces().bars(templates.bars({"data": 1.25, "a, b": 5.0}, str), "Seconds"), scheme="dark"
    )
    found = saved(chromium)
    assert found["rows"][1] == {"": "a, b", "Seconds": "5"}
    mixed = "rgb(71, 123, 192)"  # 82 % of the accent on paper
    bars = [one for one in found["svg"].iter(f"{SVG}rect") if one.get("fill") == mixed]
    seen = "[...document.querySelectorAll('.bar')].map(one => one.getBoundingClientRect().width)"
    widths = [float(one.get("width")) for one in bars]
    assert widths == pytest.approx(chromium.value(seen), abs=0.01)
    assert texts_of(found["svg"]) == {"Seconds", "data", "1.25", "a,", "b", "5.0"}


def test_a_confusion_matrix_is_saved_with_each_count_in_its_cell(chromium, opened):
    cells = [{"named": "", "count": 40 + at, "strength": 30, "right": not at} for at in (0, 1)]
    matrix = [
        {"name": name, "cells": cells, "others": None, "total": 81} for name in ("zebra", "lion")
    ]
    opened(pieces().confusion(matrix, 6, "it"))
    boxes = chromium.value("""[...document.querySelectorAll("td[title], thead span")].map(one => {
      const own = one.getBoundingClientRect(), box = one.closest("table").getBoundingClientRect();
      return [one.textContent, own.left - box.left, own.right - box.left, own.top - box.top, own.bottom - box.top];
    })""")
    texts = [
        ("".join(one.itertext()), *map(float, re.findall(r"-?[\d.]+", one.get("transform"))))
        for one in saved(chromium)["svg"].iter(f"{SVG}text")
        if one.get("transform")
    ]
    for text, left, right, top, bottom in boxes:
        assert any(
            one == text
            and left <= x <= right
            and top <= y < bottom + 1
            and bool(turned) != text.isdigit()
            for one, x, y, *turned in texts
        ), text


def test_on_paper_it_is_the_same_drawing_and_without_a_script_its_curves(chromium, shown):
    page = shown(curves())
    visible = "['.drawing', '.plain', '.controls'].map(one => document.querySelector(one)?.checkVisibility() ?? null)"
    assert chromium.value(visible) == [True, None, True], "no flash of both"
    with browser.on_paper(chromium):
        assert chromium.value(visible) == [True, None, False]
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(page)
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert chromium.value(visible) == [None, True, None]
    strokes = (
        "[...document.querySelectorAll('.plain path')].map(one => getComputedStyle(one).stroke)"
    )
    assert chromium.value(strokes) == ["rgb(31, 95, 180)", "rgb(196, 83, 2)"]
    assert "run 1: loss 0.05 to 0.01667" in chromium.value("document.body.innerText")


def test_a_smoothed_curve_has_the_raw_one_faint_below_also_in_what_is_saved(chromium, shown):
    shown(curves(1, 41))
    label = "document.querySelector('.smooth input').labels[0].textContent"
    assert chromium.value(label) == "smooth"

    def drawn_curves():
        return [
            ([[float(value) for value in place.split()]
              for place in re.findall(r"[\d.]+ [\d.]+", one.get("d"))], float(one.get("opacity")))
            for one in saved(chromium)["svg"].iter(f"{SVG}path")
            if one.get("class", "").startswith("curve")
        ]  # fmt: skip

    ((raw, opaque),) = drawn_curves()
    chromium.value("""(slider => { slider.value = 3; slider.dispatchEvent(new Event('input')); })(
      document.querySelector('.smooth input'))""")
    (faint, little), (over, _) = drawn_curves()
    assert faint == raw and little < opaque
    for at in (0, 1, 10, 40):
        reach = min(3, at, 40 - at)
        mean = np.mean([y for _, y in raw[at - reach : at + reach + 1]])
        assert over[at] == pytest.approx([raw[at][0], mean], abs=0.006)
    shown(curves(1, 5))
    assert chromium.value("document.querySelector('.smooth')") is None
