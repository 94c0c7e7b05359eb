"""The first screen of pages and the bar that they share, in a real browser."""

import shlex
import time

import pytest
import yaml

import browser
import synthetic_results
import synthetic_run
from browser import SMALL_TARGETS, check_width
from ladder.pages import history, index, report
from ladder.workflow import copies

pytestmark = pytest.mark.skipif(browser.find() is None, reason="no Chromium found (Debian package: chromium)")

RUNS = {"digits": {}, "lenet": {"dataset": "mnist", "network": "lenet_5"},
        "resnet": {"dataset": "cifar10", "network": "resnet50"}}
BOTTOMS = """["h1", ".lead", "header .intervals"].map(name => document.querySelector(name).getBoundingClientRect().bottom)"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, settings in RUNS.items():
        run = synthetic_run.make(folder / name, **settings)
        params = {"variant": "cpu", "seed": 1, "name": "a run with a name", "tags": ["one", "two"]}
        (folder / f"{name}.html").write_text(report.page(run, report.summary(run, "r0123456789e", params)))
    return folder


@pytest.mark.parametrize("width, height", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("name", RUNS)
def test_the_first_screen_holds_the_verdict_and_its_chart(chromium, reports, name, width, height):
    chromium.open(reports / f"{name}.html", width, height)
    title, verdict, chart = chromium.value(BOTTOMS)
    assert 0 < title < verdict < chart <= height


def test_the_first_page_fits_a_phone(chromium, tmp_path):
    synthetic_results.add(tmp_path, epochs=2)
    page = tmp_path / "index.html"
    page.write_text(index.page(tmp_path))
    check_width(chromium, page, 390)
    assert chromium.value(SMALL_TARGETS) == []
    assert chromium.value("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.wide'))")
    assert chromium.value("document.querySelector('.wide tbody').innerText.replace(/\\s+/g, ' ')").startswith(
        "An autoencoder on handwritten digits r")


def test_the_bar_leads_to_a_page_that_is_there_and_else_to_its_entry(chromium, tmp_path):
    made = synthetic_results.add(tmp_path, epochs=2)["report"]
    copies.publish(made.folder, tmp_path / "report.html")
    (tmp_path / "history.html").write_text("<title>all runs</title>")
    (tmp_path / "index.html").write_text(index.page(tmp_path))

    def place():
        try:
            return chromium.value("location.href")
        except RuntimeError:   # while the browser goes from one page to the next
            return "report.html"

    def led(start, name):
        chromium.open(start)
        chromium.value(f"document.querySelector('.site a[href$=\"#{name}\"]').click()")
        deadline = time.monotonic() + browser.PATIENCE
        while (there := place()).endswith(("report.html", "#history")):
            assert time.monotonic() < deadline, there
        return there.rpartition("/")[2]

    for start in (tmp_path / "report.html", made.folder / "report.html"):
        assert led(start, "history") == "history.html"
        assert led(start, "parity") == "index.html#parity"


def history_of(folder):
    for epochs, made in ((2, "2026-02-01T00:00:00Z"), (3, "2026-02-02T00:00:00Z")):
        synthetic_results.add(folder, made=made, epochs=epochs)
    rows = history.rows(folder)
    (folder / "history.html").write_text(history.page(rows, folder, folder / "history.html", {"dataset": "digits"}))
    return rows


def test_two_ticked_runs_give_the_commands_that_diff_and_compare_them(chromium, tmp_path):
    rows = history_of(tmp_path)
    chromium.open(tmp_path / "history.html")
    chromium.value("document.querySelectorAll('.pick')[0].click()")
    assert "Tick one more run" in chromium.value("document.getElementById('picked').innerText")
    chromium.value("document.querySelectorAll('.pick')[1].click()")
    diff, compare = chromium.value("[...document.querySelectorAll('#picked code')].map(line => line.textContent)")
    assert diff == f".venv/bin/snakemake results/diff.html --config 'diff=[{rows[0].version},{rows[1].version}]'"
    entries = yaml.safe_load(shlex.split(compare)[3].removeprefix("compare="))
    assert entries[0].keys() == entries[1].keys() and "epochs" in entries[0] or "epochs" in entries[1]
    assert [{**row.settings, **entry} == row.settings for row, entry in zip(rows, entries, strict=True)] == [True, True]


def test_any_metric_can_be_shown_and_sorted_by(chromium, tmp_path):
    rows = history_of(tmp_path)
    chromium.open(tmp_path / "history.html")
    chromium.value("metric.value = 'training loss'; metric.dispatchEvent(new Event('change'))")
    assert chromium.value("document.querySelector('th.metric').innerText") == "training loss"
    chromium.value("document.querySelector('th.metric button').click()")
    shown = [float(text) for text in chromium.value("[...document.querySelectorAll('td.metric')].map(cell => cell.innerText)")]
    assert shown == sorted((float(f"{row.summary['loss'][-1]:.4g}") for row in rows), reverse=True)
