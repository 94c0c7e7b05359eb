"""The report in a real browser: no requests, no sideways scrolling, readable in light and dark."""

import pytest

import browser
import synthetic_run
from ladder import report

pytestmark = pytest.mark.skipif(browser.find() is None, reason="no Chromium found (Debian package: chromium)")

# The visible texts whose contrast with the colour behind them (WCAG 2) is below 4.5.
FAINT_TEXTS = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = color => [0.2126, 0.7152, 0.0722].reduce((sum, weight, index) => {
    const value = rgba(color)[index] / 255;
    return sum + weight * (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (rgba(color)[3] === 255) return color;
    }
    return "white";
  };
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
    const [ink, paper] = [luminance(getComputedStyle(element).color), luminance(behind(element))];
    if ((Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5) faint.push(texts.currentNode.data.trim());
  }
  return faint;
})()
"""

# Elements that reach beyond the right edge of the page and are not in a box that scrolls by itself.
TOO_WIDE = """
[...document.querySelectorAll("body *")]
  .filter(element => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".wide, .skip"))
  .map(element => element.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def chromium():
    chromium = browser.Browser(browser.find())
    yield chromium
    chromium.close()


@pytest.fixture(scope="module", params=["digits", "cifar10"])
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    run = synthetic_run.make(folder, request.param)
    path = folder / "report.html"
    path.write_text(report.page(run, report.summary(run, "r0123456789e")))
    return path


def test_it_asks_for_nothing_but_itself(chromium, page):
    chromium.open(page)
    assert [address for address in chromium.requested() if not address.startswith("data:")] == [page.as_uri()]
    assert not [event for event in chromium.events if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_it_never_scrolls_sideways(chromium, page, width):
    chromium.open(page, width)
    assert chromium.value("document.documentElement.scrollWidth") == width
    assert chromium.value(TOO_WIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(chromium, page, scheme):
    chromium.open(page, scheme=scheme)
    assert chromium.value(FAINT_TEXTS) == []


def test_light_and_dark_differ(chromium, page):
    backgrounds = set()
    for scheme in ("light", "dark"):
        chromium.open(page, scheme=scheme)
        backgrounds.add(chromium.value("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_every_picture_is_drawn(chromium, page):
    chromium.open(page)
    assert chromium.value("document.images.length") > 70
    assert chromium.value("[...document.images].filter(image => !image.naturalWidth || !image.clientWidth).length") == 0


def test_pictures_fill_their_places_on_a_phone(chromium, page):
    chromium.open(page, 360)
    pictures = "[...document.querySelectorAll('.rebuilt img, .mistakes img')]"
    assert min(chromium.value(f"{pictures}.map(image => image.clientWidth)")) > 60


def test_the_contents_lead_to_their_sections(chromium, page):
    chromium.open(page)
    links = "[...document.querySelectorAll('.contents a')]"
    assert chromium.value(f"{links}.length") > 8
    assert chromium.value(f"{links}.filter(link => !document.querySelector(link.hash)).length") == 0


def test_tables_that_scroll_can_be_reached_with_the_keyboard(chromium, page):
    chromium.open(page, 360)
    assert chromium.value("document.querySelectorAll('.wide').length") >= 3
    assert chromium.value("[...document.querySelectorAll('.wide')].every(box => box.tabIndex === 0 && box.ariaLabel)")
