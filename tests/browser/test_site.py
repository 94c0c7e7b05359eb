"""The first screen of pages and the bar that they share, in a real browser."""

import time

import pytest

import browser
import needs
import synthetic_results
import synthetic_run
from browser import SMALL_TARGETS
from ladder.pages import report, templates
from ladder.pages.runs import discovery, page
from ladder.workflow import copies

pytestmark = needs.BROWSER

RUNS = {
    "digits": {},
    "lenet": {"dataset": "mnist", "network": "lenet_5"},
    "resnet": {"dataset": "cifar10", "network": "resnet50"},
}
BOTTOMS = """["h1", ".lead", "header .chart"].map(name => document.querySelector(name).getBoundingClientRect().bottom)"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, settings in RUNS.items():
        run = synthetic_run.make(folder / name, **settings)
        params = {"variant": "cpu", "seed": 1, "name": "a run with a name", "tags": ["one", "two"]}
        (folder / f"{name}.html").write_text(
            report.page(run, report.summary(run, "r0123456789e", params))
        )
    return folder


@pytest.mark.parametrize("width, height", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("name", RUNS)
def test_the_first_screen_holds_the_verdict_and_its_chart(chromium, reports, name, width, height):
    chromium.open(reports / f"{name}.html", width, height)
    title, verdict, chart = chromium.value(BOTTOMS)
    assert 0 < title < verdict < chart <= height


def test_on_a_phone_the_bar_is_one_row_whose_menu_has_every_page(chromium, reports):
    shown = "['.menu', '.site a'].map(name => document.querySelector(name).checkVisibility())"
    chromium.open(reports / "digits.html", 390, 844)
    assert (
        chromium.value(shown) == [True, False]
        and chromium.value("document.querySelector('.top').offsetHeight") <= 48
    )
    chromium.value("document.querySelector('.menu').click()")
    assert chromium.value(shown) == [True, True] and chromium.value(SMALL_TARGETS) == []
    assert chromium.value("document.querySelectorAll('.site a').length") == len(templates.SITE)
    assert chromium.value(
        "(box => box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight)"
        "(document.querySelector('.site').getBoundingClientRect())"
    )
    chromium.open(reports / "digits.html", 1280)
    assert chromium.value(shown) == [False, True]


def test_the_bar_leads_to_a_page_that_is_there_and_else_to_its_entry(chromium, tmp_path):
    made = synthetic_results.add(tmp_path, epochs=2)["report"]
    copies.publish(made.folder, tmp_path / "report.html")
    (tmp_path / "network.html").write_text("<title>a network</title>")
    page.write(discovery.runs(tmp_path), tmp_path, {}, dict)

    def place():
        try:
            return chromium.value("location.href")
        except RuntimeError:  # while the browser goes from one page to the next
            return "report.html"

    def led(start, name):
        chromium.open(start)
        chromium.value(f"document.querySelector('.site a[href$=\"#{name}\"]').click()")
        deadline = time.monotonic() + browser.PATIENCE
        while (there := place()).endswith(("report.html", "#network")):
            assert time.monotonic() < deadline, there
        return there.rpartition("/")[2]

    for start in (tmp_path / "report.html", made.folder / "report.html"):
        assert led(start, "network") == "network.html"
        assert led(start, "parity") == "runs.html#parity"


PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_small_and_painted_within_half_a_second(chromium, reports, name):
    """The least of three times, as other work of the machine takes some."""
    assert (reports / f"{name}.html").stat().st_size <= 1.5e6
    times = []
    for _ in range(3):
        chromium.open(reports / f"{name}.html")
        deadline = time.monotonic() + browser.PATIENCE
        while (painted := chromium.value(PAINTED)) is None:
            assert time.monotonic() < deadline, "nothing is painted"
        times.append(painted)
    assert min(times) < 500, times


def test_every_control_of_a_report_is_reached_by_the_tab_key_and_shows_the_focus(chromium, reports):
    chromium.open(reports / "digits.html", 1280)
    wanted = chromium.value("""[...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")]
      .filter(one => one.checkVisibility({visibilityProperty: true})).length""")
    reached = set()
    for _ in range(wanted + 5):
        for kind in ("keyDown", "keyUp"):
            chromium.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        at, outlined = (
            chromium.value("""(one => [[...document.querySelectorAll("*")].indexOf(one), one === document.body ||
          getComputedStyle(one).outlineStyle !== "none" || one.matches(".skip")])(document.activeElement)""")
        )
        assert outlined, chromium.value("document.activeElement.outerHTML.slice(0, 100)")
        reached.add(at)
    assert len(reached) >= wanted
