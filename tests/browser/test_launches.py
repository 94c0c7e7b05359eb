"""The timeline of launches in a real browser: keys go through it, and the chosen rung stands under
the roofs.
"""

import pytest

import browser
import gpu_page
import needs
import results
import small_comparison
from ladder.pages import launches, parity
from ladder.rungs import counted

pytestmark = needs.BROWSER


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "parity.html"
    path.write_text(
        parity.page(
            small_comparison.summary(),
            "2026-01-31T12:34:56Z",
            counted.predictions(),
            counted.measured(),
        )
    )
    assert path.stat().st_size < 1.5e6
    return path


@pytest.fixture
def opened(chromium, page):
    chromium.open(page)
    return chromium


def test_keys_go_from_launch_to_launch_and_the_focused_rung_stands_under_the_roofs(
    opened,
):
    shown = "[...document.querySelectorAll('.launches')].filter(one => one.checkVisibility()).map(one => one.dataset.rung)"
    assert opened.value(shown) == ["gpu_basic"]
    rungs = launches.context(counted.predictions())["rungs"]
    number = [rung["name"] for rung in rungs].index("gpu_bf16_sm90")
    opened.value(
        f"document.querySelectorAll('.timeline tr')[{number}].querySelector('[data-run]').focus()"
    )
    for kind in ("keyDown", "keyUp"):
        opened.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight")
    assert opened.value(shown) == ["gpu_bf16_sm90"]
    second = rungs[number]["launches"][1]
    assert opened.value("document.querySelector('.ladder > .tip').textContent") == second["text"]
    assert opened.value(
        "document.activeElement.getBoundingClientRect().width / document.activeElement.parentElement"
        ".getBoundingClientRect().width"
    ) == pytest.approx(second["length"] / 100, abs=0.005)
    assert (
        opened.value("document.querySelectorAll('[data-rung=gpu_bf16_sm90] .drawing').length") == 1
    )
    links = "[...document.querySelectorAll('#predicted a')].filter(link => link.hash)"
    assert opened.value(f"{links}.filter(link => !document.querySelector(link.hash)).length") == 0


def test_the_page_of_a_card_can_be_read_by_everyone_and_no_table_is_cut(chromium, tmp_path):
    path = tmp_path / "card.html"
    path.write_text(gpu_page.page(results.records()[0]))
    browser.check_axe(chromium, path, 1280, "light")
    assert chromium.value(f"{browser.SCROLLING}.map(one => one.ariaLabel)") == []


class TestEveryPage(browser.EveryPage):
    pass
