"""Charts in a real browser: values under mouse, finger and keys, zoom, axes, colours on demand, and
files to save.
"""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import browser
from browser import TOO_WIDE
from ladder.pages import charts, figures, intervals, templates

pytestmark = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium found (Debian package: chromium)"
)

# Page units of the shown ring, of the tip, and the tip's text.
SHOWN = """(() => {
  const tip = document.querySelector(".tip"), ring = document.querySelector(".stage .ring")?.getBoundingClientRect();
  return {text: tip.hidden ? null : tip.textContent, x: ring && ring.x + ring.width / 2, y: ring && ring.y + ring.height / 2};
})()"""
# The place of a value on the axes of the first chart, from the ticks' own texts being drawn on a
# canvas: the plot's box.
OVER = """(() => { const box = document.querySelector(".u-over").getBoundingClientRect();
  return [box.left, box.top, box.width, box.height]; })()"""
PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>t</title>
<style>{style}</style>{body}{scripts}"""


def curves(count=2, points=5, **axis):
    """Epochs of two steps; of the first five steps those of the first two take 20 s each, the
    others 10 s.
    """
    clock = [20, 40, 50, 60, 70, *range(80, 80 + points)][:points]
    series = [
        {
            "name": f"run {number}",
            "label": str(number),
            "key": number,
            "series": number if number <= 6 else "rest",
            "by": [1, 0.5, clock],
            "points": [(step, 0.1 * number / (1 + step)) for step in range(1, points + 1)],
        }
        for number in range(1, count + 1)
    ]
    y = charts.loss_axis([value for one in series for _, value in one["points"]], "loss", **axis)
    return charts.lines("A training", series, y, ("step", "epoch", "seconds"))


STYLES = ("uplot/uPlot.min.css", "style.css", "charts.css", "site.css")


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page with this body and the scripts of charts."""

    def open_page(body, width=800, scheme="light"):
        page = tmp_path / "chart.html"
        style = "".join((templates.TEMPLATES / name).read_text() for name in STYLES)
        scripts = "".join(map(str, map(templates.script, templates.CHARTS)))
        page.write_text(PAGE.format(style=style, body=body, scripts=scripts))
        chromium.open(page, width, scheme=scheme)
        return page

    return open_page


@pytest.fixture
def shown(opened):
    """Opens a page with one chart, its names and what follows."""

    def show(of, width=800, after=""):
        names = [
            {"key": one["key"], "name": one["name"], "series": one["series"]}
            for one in of["data"]["series"]
        ]
        return opened(
            f"{pieces().chart(of, 'A chart')}{pieces().series_names(names)}{after}", width
        )

    return show


def pieces():
    return templates._environment().get_template("pieces.html").module


def move(chromium, x, y):
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def press(chromium, *keys):
    for key in keys:
        chromium.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        chromium.call("Input.dispatchKeyEvent", type="keyUp", key=key)


def focus(chromium):
    chromium.value("document.querySelector('.stage').focus()")


def click(chromium, label):
    chromium.value(f"""[...document.querySelectorAll('.controls button')]
      .find(one => one.textContent === {json.dumps(label)}).click()""")


def test_the_mouse_finds_the_value_at_its_place(chromium, shown):
    shown(curves())
    left, top, width, height = chromium.value(OVER)
    # of the linear axis, whose last step is 5
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
    left, top, width, height = chromium.value(OVER)
    chromium.value(f"""document.querySelector('.stage').dispatchEvent(new TouchEvent('touchstart', {{touches: [new Touch(
      {{identifier: 1, target: document.body, clientX: {left + width}, clientY: {top + height * 0.8}}})]}}))""")
    assert chromium.value(SHOWN)["text"].startswith("run 1, step 5")
    assert (
        chromium.value("document.documentElement.scrollWidth") == 390
        and chromium.value(TOO_WIDE) == []
    )


def test_zoom_keeps_the_point_that_is_shown_and_0_shows_all_again(chromium, shown):
    shown(curves(points=50))
    focus(chromium)
    press(chromium, "ArrowRight", *["ArrowRight"] * 24)
    before = chromium.value(SHOWN)
    press(chromium, "+", "+")
    near = chromium.value(SHOWN)
    assert near["text"] == before["text"] == "run 1, step 25: 0.003846" and near[
        "x"
    ] == pytest.approx(before["x"], abs=1)
    press(chromium, "ArrowRight")
    step = chromium.value(SHOWN)["x"] - near["x"]
    assert step == pytest.approx(1.6**2 * chromium.value(OVER)[2] / 50, rel=0.05)
    press(chromium, "0")
    press(chromium, "Home")
    assert chromium.value(SHOWN)["text"] == "run 1, step 1: 0.05"


def test_the_axis_goes_by_epoch_and_by_time(chromium, shown):
    shown(curves())
    left, _, width, _ = chromium.value(OVER)
    for by, text, share in (
        ("epoch", "run 1, epoch 1: 0.03333", 2 / 5),
        ("seconds", "run 1, seconds 40: 0.03333", 40 / 70),
    ):
        chromium.value(f"""(() => {{ const by = document.querySelector('.controls select');
          by.selectedIndex = [...by.options].findIndex(one => one.text === 'by {by}');
          by.dispatchEvent(new Event('change')); }})()""")
        focus(chromium)
        press(chromium, "Home", "ArrowRight")
        found = chromium.value(SHOWN)
        assert found["text"] == text and found["x"] == pytest.approx(left + width * share, abs=1)


def test_the_log_switch_makes_ratios_even(chromium, shown):
    shown(curves())
    places = []
    for _ in range(2):
        focus(chromium)
        press(chromium, "Escape", "Home")
        places.append([chromium.value(SHOWN)["y"]])
        press(chromium, "ArrowDown")
        places[-1].append(chromium.value(SHOWN)["y"])
        press(chromium, "End")
        places[-1].append(chromium.value(SHOWN)["y"])
        press(chromium, "ArrowUp")
        places[-1].append(chromium.value(SHOWN)["y"])
        click(chromium, "log")
    linear, log = ([b - a for a, b in ((one[0], one[1]), (one[3], one[2]))] for one in places)
    assert linear[0] == pytest.approx(3 * linear[1], rel=0.05), "0.05 to 0.1 and 0.0167 to 0.0333"
    assert log[0] == pytest.approx(log[1], rel=0.02), "twice as much is as far up everywhere"


def test_no_more_than_six_are_in_colour_and_the_others_get_one_on_demand(chromium, shown):
    shown(curves(9))
    classes = """[...document.querySelectorAll('[data-series] [data-run]')].map(one =>
      one.querySelector('path').getAttribute('class').match(/stroke-(\\w+)/)[1])"""
    assert chromium.value(classes) == ["1", "2", "3", "4", "5", "6", "rest", "rest", "rest"]
    chromium.value("document.querySelector('[data-run=\"8\"] button').click()")
    assert chromium.value(classes) == ["rest", "2", "3", "4", "5", "6", "rest", "1", "rest"]
    chromium.value("document.querySelector('[data-run=\"3\"] button').click()")
    assert chromium.value(classes) == ["rest", "2", "rest", "4", "5", "6", "rest", "1", "rest"]


# The number of drawings after what has changed was laid out and painted.
CANVASES = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
  done(document.querySelectorAll('.stage canvas').length))))"""
SVG = "{http://www.w3.org/2000/svg}"
BAR = "rgb(71, 123, 192)"  # 82 % accent on light paper
SAVED = """(async () => {
  const made = [], create = URL.createObjectURL;
  URL.createObjectURL = blob => { made.push(blob); return create.call(URL, blob); };
  const [opener, ...formats] = [...document.querySelectorAll('.save')].at(-1).querySelectorAll('button');
  for (const format of formats) { opener.click(); format.click(); }
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
    answer = chromium.call(
        "Runtime.evaluate", expression=SAVED, awaitPromise=True, returnByValue=True
    )["result"]["value"]
    rows = list(csv.DictReader(io.StringIO(answer["csv"])))
    return {"svg": ET.fromstring(answer["svg"]), "size": answer["png"], "rows": rows}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chart_is_saved_as_svg_png_and_csv_in_the_colours_of_paper(chromium, shown, scheme):
    page = shown(curves())
    chromium.open(page, 800, scheme=scheme)
    found = saved(chromium)
    curve = next(one for one in found["svg"].iter(f"{SVG}path") if "curve" in one.get("class"))
    assert curve.get("stroke") == "rgb(31, 95, 180)" and "A training" in "".join(
        found["svg"].itertext()
    )
    assert found["size"] == [
        2 * int(found["svg"].get("width")),
        2 * int(found["svg"].get("height")),
    ]
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
    state = """(([opener, first]) => [opener.ariaExpanded, first.checkVisibility(), document.activeElement === opener, saved])(
      document.querySelectorAll('.save button'))"""
    chromium.value("document.querySelector('.save button').focus()")
    press(chromium, "ArrowDown")
    assert chromium.value(state) == ["false", False, True, 0]
    chromium.value("document.activeElement.click()")
    assert chromium.value(state) == ["true", True, True, 0]
    chromium.value("document.querySelectorAll('.save button')[1].focus()")
    assert chromium.value(state) == ["true", True, False, 0]
    press(chromium, "Escape")
    assert chromium.value(state) == ["false", False, True, 0]
    chromium.value("document.activeElement.click(); document.querySelector('.stage').focus()")
    assert chromium.value(state) == ["false", False, False, 0], "the focus has left it"


def test_the_name_of_a_button_is_the_word_on_it_and_says_what_the_axis_becomes(chromium, shown):
    names = "[...document.querySelectorAll('.controls button')].map(one => [one.textContent, one.ariaLabel, one.title])"
    shown(curves())
    named = chromium.value(names)
    assert ["log", None, "Logarithmic vertical axis"] in named and [
        "+",
        "Zoom in",
        "Zoom in",
    ] in named
    assert all(label is None or text in label or not text.isalpha() for text, label, _ in named)
    series = {"name": "a", "series": 1, "points": [(1, 0.5), (2, 0.99)]}
    shown(charts.lines("t", [series], charts.share_axis([0.5, 0.99], "accuracy")))
    assert ["expanded", None, "Vertical axis that expands towards 100 %"] in chromium.value(names)


def test_a_point_of_a_map_is_shown_with_its_picture(chromium, opened):
    images = np.zeros((5, 4, 8, 3), np.uint8)
    images[3] = 255
    side = charts.number_axis(0, 1, "")
    points = [{"x": at / 5, "y": 0.5, "text": f"true class {at}", "picture": at} for at in range(5)]
    of = charts.scatter(
        "Map", [{"name": "a", "key": "a", "series": 10, "points": points}], side, side, square=True
    )
    of["data"]["pictures"] = figures.sheet(images)
    opened(pieces().chart(of, "A map"))
    focus(chromium)
    press(chromium, *["ArrowRight"] * 4)
    assert chromium.value(SHOWN)["text"] == "true class 3"
    picture, sheet = (
        chromium.value("""['.tip .picture', '.tip img'].map(name => document.querySelector(name))
      .map(one => one.getBoundingClientRect()).map(box => [box.x, box.y, box.width, box.height])""")
    )
    assert picture[2:] == [72, 36] and sheet[2:] == [3 * 72, 2 * 36], "three in a row of the sheet"
    assert [sheet[at] - picture[at] for at in (0, 1)] == [0, -36], "the first one of its second row"


def test_a_picture_is_saved_in_its_place(chromium, opened):
    picture = figures.png_uri(np.zeros((2, 2, 3), np.uint8))
    opened(
        f"<figure {pieces().saved('Errors', ['name'])}><p {pieces().row_of(['am32'])}>"
        f'<img src="{picture}" alt="" width="40" height="30"></p></figure>'
    )
    found = saved(chromium)
    (image,) = found["svg"].iter(f"{SVG}image")
    assert image.get("href") == picture and [image.get("width"), image.get("height")] == [
        "40",
        "30",
    ]
    assert found["rows"] == [{"name": "am32"}]


def rectangles(root, fill):
    return [
        {key: float(one.get(key)) for key in ("x", "y", "width", "height")}
        for one in root.iter(f"{SVG}rect")
        if one.get("fill") == fill
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_are_saved_with_their_lengths_and_numbers(chromium, opened, scheme):
    seconds = {"data": 1.25, "train, with a comma": 5.0}
    opened(
        pieces().bars(templates.bars(seconds, templates.duration), "Time by stage, seconds"),
        scheme=scheme,
    )
    found = saved(chromium)
    short, long = sorted(rectangles(found["svg"], BAR), key=lambda one: one["y"])
    assert long["width"] == pytest.approx(4 * short["width"], rel=0.01) and long[
        "x"
    ] == pytest.approx(short["x"], abs=0.1)
    assert {"data", "train, with a comma", "5.0 s", "Time by stage, seconds"} <= texts_of(
        found["svg"]
    )
    assert found["rows"] == [
        {"": name, "Time by stage, seconds": f"{value:g}"} for name, value in seconds.items()
    ]
    assert found["size"] == [
        round(2 * float(found["svg"].get(side))) // 2 * 2 for side in ("width", "height")
    ]


def test_intervals_are_saved_with_their_places_and_numbers(chromium, opened):
    rows = [
        {"key": key, "name": name, "note": "", **intervals.share(value, 1000)}
        for key, name, value in (("own", "this run", 0.9), ("", "control", 0.8))
    ]
    of = intervals.chart(rows)
    opened(pieces().intervals(of))
    found = saved(chromium)
    own = next(one for one in rectangles(found["svg"], "rgb(31, 95, 180)") if one["height"] == 3)
    other = next(
        one for one in rectangles(found["svg"], "rgb(133, 136, 142)") if one["height"] == 3
    )
    scale = own["width"] / (of["rows"][0]["right"] - of["rows"][0]["left"])
    assert own["x"] - other["x"] == pytest.approx(
        scale * (of["rows"][0]["left"] - of["rows"][1]["left"]), abs=0.5
    )
    assert [float(found["rows"][0][key]) for key in ("value", "low", "high")] == [
        0.9,
        *rows[0]["interval"],
    ]
    assert {"this run", "control"} <= texts_of(found["svg"])


def test_heads_that_are_read_from_below_are_saved_so(chromium, opened):
    rows = [
        {
            "name": name,
            "total": 10,
            "others": None,
            "cells": [
                {"count": count, "right": right, "named": "", "strength": 50}
                for count, right in ((8, index == 0), (2, index == 1))
            ],
        }
        for index, name in enumerate(("automobile", "ship"))
    ]
    opened(pieces().confusion(rows, 10, "the network"))
    found = saved(chromium)
    heads = [one for one in found["svg"].iter(f"{SVG}text") if one.text == "automobile"]
    assert ["rotate(-90)" in one.get("transform", "") for one in heads] == [True, False]
    assert found["rows"][1] == {"true class": "ship", "automobile": "8", "ship": "2"}


def texts_of(root):
    return {one.text.replace("\u202f", " ") for one in root.iter(f"{SVG}text")}


def test_without_a_script_and_on_paper_the_svg_stands_in_place_of_the_drawing(chromium, shown):
    shown(curves())
    visible = "['.still', '.asked'].map(one => document.querySelector(one).checkVisibility())"
    assert chromium.value(visible) == [False, True]
    chromium.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert chromium.value(visible) == [True, False] and chromium.value(CANVASES) == 1
        assert chromium.value(
            "[...document.querySelectorAll('.still text')].every(one => one.checkVisibility())"
        )
    finally:
        chromium.call("Emulation.setEmulatedMedia", media="")
    assert chromium.value(CANVASES) == 1, "also after printing"


def test_a_run_pointed_at_in_a_table_stands_out_in_the_chart(chromium, shown):
    y = charts.share_axis([0.9, 0.95], "accuracy")
    points = [
        {"x": at, "y": value, "run": str(run), "text": f"run {run}"}
        for at, value, run in ((1, 0.9, 1), (2, 0.95, 2))
    ]
    of = charts.scatter(
        "Search",
        [{"name": "runs", "key": "runs", "series": 1, "points": points}],
        charts.number_axis(0, 3, "batch"),
        y,
    )
    shown(of, after='<div data-runs><p data-run="2" tabindex="0">2</p></div>')
    ink = """(() => { const canvas = document.querySelector("canvas"); const pixels = canvas.getContext("2d")
      .getImageData(0, 0, canvas.width, canvas.height).data; let count = 0;
      for (let at = 0; at < pixels.length; at += 4) count += pixels[at + 3] && pixels[at + 2] > pixels[at] + 60;
      return count; })()"""
    before = chromium.value(ink)
    chromium.value("document.querySelector('[data-runs] p').focus()")
    assert chromium.value(ink) > 1.2 * before


INK = """(() => { const canvas = document.querySelector("canvas"); const found = {};
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let at = 0; at < pixels.length; at += 4) if (pixels[at + 3] === 255) {
    const colour = pixels.slice(at, at + 3).join(); found[colour] = (found[colour] ?? 0) + 1; }
  return found; })()"""


def test_a_press_on_a_name_of_the_map_shows_that_class_on_its_own(chromium, opened):
    side = charts.number_axis(0, 1, "")
    series = [
        {
            "name": f"class {number}",
            "key": f"class {number}",
            "series": number if number <= 6 else "rest",
            "points": [
                {"x": number / 10, "y": at / 10, "text": f"class {number}"} for at in range(1, 10)
            ],
        }
        for number in range(1, 9)
    ]
    of = charts.scatter("Map", series, side, side, square=True)
    names = "".join(
        f'<li data-run="{one["key"]}"><i class="glyph stroke-{one["series"]}"></i>{one["name"]}</li>'
        for one in series
    )
    opened(f"{pieces().chart(of, 'A map')}<ul data-series data-runs>{names}</ul>")
    first, second = "31,95,180", "196,83,2"
    before = chromium.value(INK)
    assert before[first] > 100 and before[second] > 100
    # of those in grey it takes the colour of the one that was asked for first
    for run in ("class 8", "class 3"):
        box = chromium.value(f"""(box => [box.x + 5, box.y + 5])(document.querySelector('[data-run="{run}"]')
          .getBoundingClientRect())""")
        move(chromium, *box)
        for kind in ("mousePressed", "mouseReleased"):
            chromium.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )
        if run == "class 8":
            alone = chromium.value(INK)
            assert alone[first] == pytest.approx(before[first], rel=0.2), (
                "class 8 in the first colour"
            )
            assert alone.get(second, 0) < 0.05 * before[second], (
                "the others as pale as the background of one"
            )
    move(chromium, 1, 1)
    after = chromium.value(INK)
    assert after[second] == before[second], "all are there again"


def test_a_smoothed_curve_has_the_raw_one_faint_below_also_in_what_is_saved(chromium, shown):
    of = curves(1, 41)
    shown(of)
    assert (
        chromium.value("document.querySelector('.smooth input').labels[0].textContent") == "smooth"
    )
    plain = saved(chromium)["svg"]
    chromium.value("""(slider => { slider.value = 3; slider.dispatchEvent(new Event('input')); })(
      document.querySelector('.smooth input'))""")
    smooth = saved(chromium)["svg"]

    def drawn(root):
        lines = [
            one
            for one in root.iter(f"{SVG}path")
            if "curve" in one.get("class", "") and "level" not in one.get("class")
        ]
        return [
            (
                [
                    [float(number) for number in place.split()]
                    for place in re.findall(r"[\d.]+ [\d.]+", line.get("d"))
                ],
                line.get("opacity"),
            )
            for line in lines
        ]

    ((raw, opaque),) = drawn(plain)
    (faint, little), (over, _) = drawn(smooth)
    assert faint == raw and float(little) < float(opaque)
    for at in (0, 1, 10, 40):
        reach = min(3, at, 40 - at)
        assert over[at] == pytest.approx(
            [raw[at][0], np.mean([y for _, y in raw[at - reach : at + reach + 1]])], abs=1e-6
        )
    shown(curves(1, 5))
    assert chromium.value("document.querySelector('.smooth')") is None, "a few points are no noise"
