"""The history in a real browser: its charts show and select runs, its table sorts and has pages,
its commands are exact.
"""

import json
import shlex

import numpy as np
import pytest
import yaml

import browser
import synthetic_results
from browser import EveryPage, on_paper
from ladder.pages import history
from tools import make_history

pytestmark = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium found (Debian package: chromium)"
)

RATES = (1e-4, 1e-3, 1e-2, 1e-1)
COUNT = 120
VERSIONS = (
    "[...document.querySelectorAll('#history tbody tr')].map(row => row.querySelector('a').title)"
)
MARKS = """[...document.querySelectorAll('#scatter .mark')].map(mark => [Number(mark.dataset.run),
  ...mark.getAttribute('transform').match(/[-.0-9]+/g).slice(0, 2).map(Number)])"""
BOX = "(box => [box.x, box.y])(document.querySelector('#scatter svg').getBoundingClientRect())"
NEXT = "[...document.querySelectorAll('.turn button')].find(one => one.textContent === 'Next')"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """120 runs, the newest first: of four learning rates, better by and by."""
    results = tmp_path_factory.mktemp("results")
    run = synthetic_results.add(results, epochs=2, train_limit=1200, made="2026-01-01T00:00:00Z")
    for number in range(1, COUNT):
        synthetic_results.vary(
            results,
            run,
            f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z",
            0.8 + 0.0015 * (number * 7 % COUNT),
            learning_rate=RATES[number % 4],
        )
    return history.rows(results)


@pytest.fixture(scope="module")
def page(rows):
    path = rows[0].results / "history.html"
    path.write_text(
        history.page(rows, rows[0].results, path, make_history.defaults(), make_history.entry)
    )
    return path


@pytest.fixture
def opened(chromium, page):
    chromium.open(page, height=800)


def press(chromium, key, shift=False):
    for kind in ("keyDown", "keyUp"):
        chromium.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            code=key,
            modifiers=8 * shift,
            **({"windowsVirtualKeyCode": 13, "text": "\r"} if key == "Enter" else {}),
        )


def choose(chromium, menu, value):
    chromium.value(
        f"((menu, value) => {{ menu.value = value; menu.dispatchEvent(new Event('change')); }})"
        f"(document.getElementById('{menu}'), {json.dumps(value)})"
    )


@pytest.mark.usefixtures("opened")
def test_each_mark_lies_at_its_time_and_the_logarithm_of_its_errors_or_its_value(chromium, rows):
    def off_a_line(values, places):
        return np.abs(np.polyval(np.polyfit(values, places, 1), values) - places).max()

    runs, x, y = np.transpose(chromium.value(MARKS))
    shown = [rows[int(run)] for run in runs]
    assert len(shown) == COUNT and np.ptp(x) > 250 and np.ptp(y) > 100
    assert off_a_line(np.log([1 - row.summary["test_accuracy"] for row in shown]), y) < 0.1
    assert (
        off_a_line(np.array([row.made[:10] for row in shown], "datetime64[D]").astype(float), x)
        < 0.1
    )
    choose(chromium, "x", "learning_rate")
    runs, x, y = np.transpose(chromium.value(MARKS))
    assert off_a_line(np.log([rows[int(run)].settings["learning_rate"] for run in runs]), x) < 0.1
    shapes = chromium.value(
        "[...document.querySelectorAll('#scatter .mark')].map(mark => mark.getAttribute('d'))"
    )
    assert (
        len(
            {
                (shape, rows[int(run)].settings["learning_rate"])
                for shape, run in zip(shapes, runs, strict=True)
            }
        )
        == 4
    )


@pytest.mark.usefixtures("opened")
def test_a_rectangle_selects_the_rows_of_the_marks_in_it_and_a_click_takes_it_away(chromium, rows):
    marks, (left, top) = chromium.value(MARKS), chromium.value(BOX)
    low, high = np.percentile([mark[1:] for mark in marks], (30, 70), axis=0)
    wanted = {
        rows[run].version
        for run, x, y in marks
        if low[0] <= x <= high[0] and low[1] <= y <= high[1]
    }
    for kind, (x, y) in (("mousePressed", low), ("mouseMoved", high), ("mouseReleased", high)):
        chromium.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=left + x,
            y=top + y,
            button="left",
            buttons=1,
            clickCount=1,
        )
    assert 5 < len(wanted) < 50 and set(chromium.value(VERSIONS)) == wanted
    assert (
        chromium.value("document.getElementById('filtered').textContent")
        == f"{len(wanted)} of {COUNT}"
    )
    assert chromium.value("document.querySelectorAll('#scatter .mark:not(.off)').length") == len(
        wanted
    )
    for kind in ("mousePressed", "mouseReleased"):
        chromium.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=left + low[0],
            y=top + low[1],
            button="left",
            clickCount=1,
        )
    assert chromium.value("document.getElementById('filtered').textContent") == ""


@pytest.mark.usefixtures("opened")
def test_keys_alone_select_on_axis_and_scatter_sort_turn_the_page_and_clear(chromium, rows):
    chromium.value(
        "[...document.querySelectorAll('.axis')].find(one => one.ariaLabel.startsWith('learning_rate')).focus()"
    )
    press(chromium, "ArrowUp")
    press(chromium, "ArrowUp")
    press(chromium, "ArrowUp", shift=True)
    chosen = {row.version for row in rows if row.settings["learning_rate"] in RATES[1:3]}
    seen = set(chromium.value(VERSIONS))
    chromium.value(f"{NEXT}.focus()")
    press(chromium, "Enter")
    assert seen | set(chromium.value(VERSIONS)) == chosen and len(seen) == 50
    chromium.value("document.querySelector('.axis').focus()")
    press(chromium, "Escape")
    chromium.value("document.querySelector('#history thead [data-column=metric] button').focus()")
    press(chromium, "Enter")
    ranked = sorted((row.summary["test_accuracy"] for row in rows), reverse=True)
    best = {row.version for row in rows if row.summary["test_accuracy"] == ranked[0]}
    assert chromium.value(VERSIONS)[0] in best
    chromium.value("document.querySelector('#scatter svg').focus()")
    for _ in range(3):
        press(chromium, "ArrowRight", shift=True)
    # of the oldest three; two are corners
    levels = [row.summary["test_accuracy"] for row in rows[:-4:-1]]
    between = 2 + (min(levels[0], levels[2]) <= levels[1] <= max(levels[0], levels[2]))
    assert (
        chromium.value("document.getElementById('filtered').textContent") == f"{between} of {COUNT}"
    )
    assert chromium.value("document.querySelector('.tip').textContent").startswith("r")
    press(chromium, "Escape")
    assert chromium.value("document.getElementById('filtered').textContent") == ""


@pytest.mark.usefixtures("opened")
def test_the_second_page_has_rows_51_to_100_in_the_order_of_the_sorted_column(chromium, rows):
    chromium.value("document.querySelector('#history thead [data-column=metric] button').click()")
    chromium.value(f"{NEXT}.click()")
    assert (
        chromium.value("document.getElementById('range').textContent")
        == f"Rows 51 to 100 of {COUNT}; 70 are left out."
    )
    shown = {row.version: row.summary["test_accuracy"] for row in rows}
    ranked = sorted(shown.values(), reverse=True)
    assert [shown[version] for version in chromium.value(VERSIONS)] == ranked[50:100]
    chromium.value("document.querySelector('.turn button[aria-pressed]').click()")
    assert [shown[version] for version in chromium.value(VERSIONS)] == ranked


def test_the_page_without_its_script_has_the_rows_that_the_script_shows_first(chromium, page):
    texts = """[...document.querySelectorAll('#history tbody tr')].map(row =>
      [...row.cells].map(cell => [cell.textContent.trim(), cell.dataset.label ?? "", cell.title]))"""
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(page)
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    still = chromium.value(texts)
    assert not chromium.value("document.getElementById('numbers').checkVisibility()")
    chromium.open(page)
    assert chromium.value(texts) == still and len(still) == 50
    assert chromium.value("document.getElementById('numbers').checkVisibility()")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_of_the_charts_is_cut_at_an_edge(chromium, page, width):
    chromium.open(page, width)
    assert (
        chromium.value("""[...document.querySelectorAll("#scatter svg text, #parallel svg text")].filter(text => {
      const [own, drawn] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
      return own.left < drawn.left - 1 || own.right > drawn.right + 1;
    }).map(text => text.textContent)""")
        == []
    )


@pytest.mark.usefixtures("opened")
def test_it_is_three_screens_tall_and_on_paper_says_how_many_rows_are_left_out(chromium):
    assert chromium.value("document.documentElement.scrollHeight") <= 3 * 800
    with on_paper(chromium):
        assert f"Rows 1 to 50 of {COUNT}; 70 are left out." in chromium.value(
            "document.body.innerText"
        )
        assert not chromium.value(
            "[...document.querySelectorAll('.turn button, .tick')].some(one => one.checkVisibility())"
        )


@pytest.mark.usefixtures("opened")
def test_two_ticked_runs_give_the_commands_that_diff_them_and_make_them_again(chromium, rows):
    chromium.value("document.querySelector('.pick').click()")
    assert "Tick one more run" in chromium.value("document.getElementById('picked').innerText")
    chromium.value(f"{NEXT}.click()")
    chromium.value("document.querySelector('.pick').click()")
    diff, compare = chromium.value(
        "[...document.querySelectorAll('#picked code')].map(line => line.textContent)"
    )
    pair = rows[0], rows[50]
    assert (
        diff
        == f".venv/bin/snakemake results/diff.html --config 'diff=[{pair[0].version},{pair[1].version}]'"
    )
    entries = yaml.safe_load(shlex.split(compare)[3].removeprefix("compare="))
    assert entries == [make_history.entry(row.written) for row in pair]
    assert {entry["train_limit"] for entry in entries} == {1200}


@pytest.mark.usefixtures("opened")
def test_any_metric_can_be_shown_and_sorted_by(chromium, rows):
    choose(chromium, "y", "training loss")
    assert chromium.value("document.querySelector('th.metric').innerText") == "training loss"
    assert (
        chromium.value("document.querySelector('td.metric').textContent")
        == f"{rows[0].summary['loss'][-1]:.4g}"
    )
    assert chromium.value("document.querySelector('#scatter text').textContent") == "training loss"


class TestEveryPage(EveryPage):
    pass
