"""The pages that compare runs, in a real browser: they sort, filter, fit and can be read."""

import base64
import json
import os
import re
import shutil

import numpy as np
import pytest

import browser
import manifest_files
import synthetic_results
from browser import (
    FAINT_TEXTS,
    SMALL_TARGETS,
    UNCLEAR,
    EveryPage,
    check_contents,
    check_keys_scroll,
    check_self_contained,
    check_width,
    show,
)
from ladder.arithmetic import multipliers
from ladder.pages import compare, diff, history, multiplier_runs, run_table, search
from ladder.pages import multipliers as multipliers_page
from ladder.store import lineage
from synthetic_cells import REASON, Cells
from tools import make_history

pytestmark = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium found (Debian package: chromium)"
)

PAGES = (
    "few",
    "many",
    "many settings",
    "mixed",
    "empty",
    "search",
    "empty search",
    "diff",
    "diff of many layers",
    "history",
    "long history",
    "no history",
    "multipliers",
    "no multipliers",
)
SETTINGS = {
    "features_polarity_scale": ("channel", "none", "channel", "none"),
    "autoencoder_filters": 4 * ([256, 128],),
    "augment_crop": range(4),
    "weight_decay": (0, 1e-4, 1e-5, 0),
    "svm_gamma": ("scale", "auto", "auto", 0.1),
    "features_two_polarity": ("none", 0.25, 0.5, 1),
    "learning_rate": (1e-3, 1e-2, 1e-3, 1e-2),
    "batch_size": range(4),
    # of many columns
    "optimizer": ("adam", "adam", "sgd", "momentum"),
    "features_pca": (64, "none", 128, 256),
}
OF_HISTORY = (
    "[...document.querySelectorAll('#history tbody tr')].filter(row => row.checkVisibility())"
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def runs(results):
    made = [
        synthetic_results.add(results, epochs=2, made="2026-03-01T08:00:00Z"),
        synthetic_results.add(
            results,
            epochs=2,
            learning_rate=0.01,
            noise=0.1,
            loss=2,
            faster=3,
            made="2026-03-02T08:00:00Z",
            name="faster start",
            tags=["sweep", "lr"],
        ),
        synthetic_results.add(
            results, epochs=2, batch=128, noise=0.5, faster=2, made="2026-03-03T08:00:00Z"
        ),
        synthetic_results.add(
            results, dataset="cifar10", network="resnet50", steps=5, made="2026-03-04T08:00:00Z"
        ),
        synthetic_results.add(
            results,
            dataset="cifar10",
            network="resnet50",
            steps=5,
            seed=2,
            noise=0.3,
            made="2026-03-05T08:00:00Z",
        ),
        synthetic_results.add(
            results, dataset="mnist", network="lenet_5", epochs=1, made="2026-03-06T08:00:00Z"
        ),
    ]
    (results / "report" / "r00000000000").mkdir()
    return made


def compared(runs, entries):
    """The page of entries: (overrides, which run or None)."""
    inputs = {
        f"{role}{number}": runs[which][role]
        for number, (_, which) in enumerate(entries)
        if which is not None
        for role in ("report", "train")
    }
    return compare.page(
        run_table.read(
            inputs,
            [
                {
                    "overrides": overrides,
                    "reason": ""
                    if which is not None
                    else "it needs an NVIDIA GPU, and none answers here",
                }
                for overrides, which in entries
            ],
        )
    )


def searched(runs, count=24):
    """The page of a search of `count` runs, some of which could not run."""
    inputs, entries = {}, []
    for number in range(count):
        reason = "" if number % 8 else "the values do not go together"
        entries.append(
            {
                "overrides": {
                    "learning_rate": 10.0 ** -(1 + number % 5),
                    "optimizer": ("adam", "sgd")[number % 2],
                    "batch_size": 8 + number,
                },
                "reason": reason,
            }
        )
        if not reason:
            inputs |= {f"{role}{number}": runs[number % 3][role] for role in ("report", "train")}
    keys = {
        "learning_rate": {"min": 1e-5, "max": 0.1, "scale": "log"},
        "optimizer": ["adam", "sgd"],
        "batch_size": {"min": 8, "max": 40, "scale": "linear"},
    }
    params = {
        "strategy": "random",
        "budget": count,
        "seed": 1,
        "metric": "auto",
        "validation": 180,
        "keys": keys if count else {},
    }
    return search.page(search.Outcome(inputs, {"search": params, "entries": entries}))


def differing(results, runs, a, b):
    return diff.page(
        diff.Difference(
            lineage.Store(results), runs[a]["report"].version, runs[b]["report"].version
        )
    )


def history_of(results):
    return history.page(
        history.rows(results), results, results / "history.html", make_history.defaults()
    )


def long_history(results, runs, folder):
    """The page of 400 more copies of a report."""
    shutil.copytree(results, folder, copy_function=os.link)
    for number in range(1, 401):
        copy = shutil.copytree(
            runs[0]["report"].folder, folder / "report" / f"r{number:011x}", copy_function=os.link
        )
        manifest_files.rewrite(copy, made=f"2025-{1 + number % 12:02}-11T10:00:00Z")
    return history_of(folder)


def multiplied(results):
    """The page of two networks with every multiplier and tables with long names."""
    tables = [
        str(results / f"{name}.npy")
        for name in ("a_table", "another_table_with_quite_a_long_name", "third", "fourth")
    ]
    cells = Cells(results)
    results.mkdir()
    for bits, path in enumerate(tables, 2):
        np.save(path, multipliers.tabulated("mbm", bits))
    for number, multiplier in enumerate([*multipliers.MULTIPLIERS, *tables]):
        for seed in (1, 2)[: 1 + (number < 2)]:
            cells.add(
                multiplier,
                seed,
                0.98 - 0.01 * number + 0.001 * seed,
                slower=1 + number,
                loss=1 + number / 9,
            )
    cells.add("exact", network="lenet_5", batch_size=32).add(
        "fp16", network="lenet_5", batch_size=32, reason=REASON
    )
    return multipliers_page.page(
        multiplier_runs.groups(multiplier_runs.read(cells.inputs, cells.entries))
    )


@pytest.fixture(scope="module")
def pages(results, runs, tmp_path_factory):
    """Name -> path of the page, made on demand."""
    folder, made = tmp_path_factory.mktemp("pages"), {}
    long_list = [
        (
            {
                "learning_rate": 10.0 ** -(number % 5),
                "optimizer": ("adam", "sgd")[number % 2],
                "batch_size": number + 1,
            },
            number % 3,
        )
        for number in range(40)
    ]
    texts = {
        "few": lambda: compared(
            runs,
            [
                ({}, 0),
                ({"learning_rate": 0.01}, 1),
                ({"batch_size": 128}, 2),
                ({"variant": "gpu_gemm"}, None),
            ],
        ),
        "many": lambda: compared(runs, long_list),
        "many settings": lambda: compared(
            runs,
            [
                (
                    {key: values[number] for key, values in SETTINGS.items()},
                    number if number < 3 else None,
                )
                for number in range(4)
            ],
        ),
        "mixed": lambda: compared(
            runs,
            [
                ({"network": "resnet50"}, 3),
                ({"network": "resnet50", "seed": 2}, 4),
                ({"network": "lenet_5"}, 5),
                ({"network": "autoencoder"}, 0),
            ],
        ),
        "empty": lambda: compared(runs, []),
        "search": lambda: searched(runs),
        "empty search": lambda: searched(runs, 0),
        "diff": lambda: differing(results, runs, 0, 1),
        "diff of many layers": lambda: differing(results, runs, 3, 4),
        "history": lambda: history_of(results),
        "long history": lambda: long_history(results, runs, folder / "long"),
        "no history": lambda: history_of(folder / "none"),
        "multipliers": lambda: multiplied(folder / "cells"),
        "no multipliers": lambda: multipliers_page.page([]),
    }

    def path(name):
        if name not in made:
            made[name] = folder / f"{name}.html"
            made[name].write_text(texts[name]())
        return made[name]

    return path


@pytest.fixture(params=PAGES)
def page(request, pages):
    return pages(request.param)


def test_it_asks_for_nothing_but_itself_and_its_script_runs(chromium, page):
    check_self_contained(chromium, page)
    assert chromium.value(
        "[...document.querySelectorAll('table.sortable')].every(table => table.matches('.sorts'))"
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_it_never_scrolls_sideways(chromium, page, width):
    check_width(chromium, page, width)


def test_pages_with_tables_of_many_columns_are_turned(chromium, pages):
    chromium.open(pages("many settings"))
    printed = base64.b64decode(chromium.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    sizes = [
        [float(side) for side in box.split()[2:]]
        for box in re.findall(rb"/MediaBox \[(.*?)\]", printed)
    ]
    upright = [width < height for width, height in sizes]
    assert upright[:2] == [True, False]  # the first screen, and the table of the runs


def test_landmarks_have_names_of_their_own_and_no_table_head_is_empty(chromium, page):
    chromium.open(page)
    assert chromium.value(UNCLEAR) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(chromium, page, scheme):
    show(chromium, page, scheme=scheme)
    assert chromium.value(FAINT_TEXTS) == []


@pytest.mark.parametrize("width, height", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("name", ["few", "many", "search", "diff", "multipliers"])
def test_the_first_screen_holds_the_verdict_and_its_chart(chromium, pages, name, width, height):
    chromium.open(pages(name), width, height)
    bottoms = """["h1", ".lead", "header .chart"].map(name =>
      document.querySelector(name).getBoundingClientRect().bottom)"""
    title, verdict, chart = chromium.value(bottoms)
    assert 0 < title < verdict < chart <= height


def test_the_contents_lead_to_their_sections(chromium, page):
    assert check_contents(chromium, page) >= 1


def column(chromium, head):
    """(texts of the column with this head in the table of runs, its aria-sort)."""
    return chromium.value(f"""(() => {{
      const table = document.querySelector("table.sortable");
      const heads = [...table.tHead.rows[0].cells];
      const at = heads.findIndex(cell => cell.textContent.trim() === {json.dumps(head)});
      return [[...table.tBodies[0].rows].map(row => row.cells[at]?.textContent.trim()), heads[at].getAttribute("aria-sort")];
    }})()""")


def press(chromium, head):
    chromium.value(f"""[...document.querySelectorAll("table.sortable")][0].tHead.querySelectorAll("button")
      .forEach(button => {{ if (button.textContent.trim() === {json.dumps(head)}) button.click(); }})""")


def test_a_table_sorts_by_the_column_that_is_pressed(chromium, pages):
    chromium.open(pages("few"))
    assert column(chromium, "run") == [["1", "2", "3", "4"], None]
    press(chromium, "images/s")  # larger is better, so the order is descending
    assert column(chromium, "run") == [["2", "3", "1", "4"], None]
    assert column(chromium, "images/s")[1] == "descending"
    press(chromium, "images/s")
    # empty cells are last in both directions
    assert column(chromium, "run")[0] == ["1", "3", "2", "4"]
    assert column(chromium, "images/s")[1] == "ascending"
    press(chromium, "batch_size")
    # also of the run without a result
    assert column(chromium, "batch_size") == [["64", "64", "64", "128"], "ascending"]
    assert column(chromium, "images/s")[1] is None
    press(chromium, "loss")
    assert column(chromium, "run")[0][-2:] == ["2", "4"]
    press(chromium, "run")
    assert column(chromium, "run") == [["1", "2", "3", "4"], "ascending"]


def test_numbers_sort_as_numbers_and_words_as_words(chromium, pages):
    chromium.open(pages("many"))
    press(chromium, "batch_size")
    texts, _ = column(chromium, "batch_size")
    assert len(texts) == 40 and [int(text) for text in texts] == sorted(map(int, texts))
    press(chromium, "learning_rate")
    rates = [float(text) for text in column(chromium, "learning_rate")[0]]
    assert rates == sorted(rates)


def test_a_head_can_be_pressed_with_the_keyboard(chromium, pages):
    chromium.open(pages("few"))
    chromium.value("document.querySelector('table.sortable thead button').focus()")
    for kind in ("keyDown", "keyUp"):
        chromium.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            windowsVirtualKeyCode=13,
            text="\r",
        )
    assert column(chromium, "run")[1] == "ascending"


def test_an_arm_has_one_colour_in_every_plot(chromium, pages):
    chromium.open(pages("multipliers"))
    colours = chromium.value("""(() => {
      const group = document.querySelector("section");
      const of = (selector, property) => [...group.querySelectorAll(selector)].map(one => getComputedStyle(one)[property]);
      return [of("tbody .swatch", "backgroundColor"), of(".strips .swatch", "backgroundColor"),
              of("[data-series] .curve", "stroke"), of(".strips .track i:nth-of-type(1)", "backgroundColor"),
              of(".bars .bar", "backgroundColor")];
    })()""")
    assert len(colours[0]) == 11 and len(set(colours[0])) == 7  # six, and one for all others
    assert all(found == colours[0] for found in colours[1:])


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_of_multipliers_leave_room_and_have_it(chromium, pages, width):
    chromium.open(pages("multipliers"), width)
    heights = chromium.value(
        "[...document.querySelectorAll('.bars tr, .strips .who')].map(row => row.offsetHeight)"
    )
    assert len(heights) > 20 and max(heights) < 90
    widths = chromium.value(
        "[...document.querySelectorAll('.bars .track, .strips .track')].map(one => one.offsetWidth)"
    )
    assert min(widths) > 70


def filter_by(chromium, text):
    chromium.value(f"""(() => {{
      const box = document.querySelector("#filter");
      box.value = {json.dumps(text)};
      box.dispatchEvent(new Event("input"));
    }})()""")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "text, count",
    [
        ("", 7),
        ("cifar10", 2),
        ("SWEEP", 1),
        ("learning_rate=0.01", 1),
        ("cifar10 seed=2", 1),
        ("unfinished", 1),
        ("nonsense", 0),
        ("multiplier=exact", 6),
        ("multiplier=mit16", 0),
    ],
)
def test_the_history_shows_only_what_holds_the_words(chromium, pages, text, count, width):
    chromium.open(pages("history"), width)
    filter_by(chromium, text)
    assert chromium.value(f"{OF_HISTORY}.length") == count
    assert chromium.value("document.querySelector('#filtered').textContent") == (
        f"{count} of 7" if text else ""
    )


def test_without_its_script_a_page_shows_the_same(chromium, pages):
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(pages("history"))
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert chromium.value(f"{OF_HISTORY}.length") == 7
    assert chromium.value("document.querySelectorAll('#history button').length") == 0
    assert not chromium.value("document.querySelector('#filter').checkVisibility()")


def test_the_table_of_runs_fits_a_laptop_and_no_label_of_a_bar_is_crushed(chromium, pages):
    for name in ("few", "many"):
        chromium.open(pages(name), 1280)
        wide = chromium.value(
            "(box => [box.scrollWidth, box.clientWidth])"
            "(document.querySelector('.wide:has(#runs-table)'))"
        )
        assert wide[0] <= wide[1]
        assert (
            chromium.value(
                "Math.max(...[...document.querySelectorAll('.bars th')].map(one => one.offsetHeight))"
            )
            < 60
        )


CARDS = """[...document.querySelector('table.cards').tBodies[0].rows].map(row => [...row.cells]
  .filter(cell => cell.checkVisibility())
  .map(cell => [cell.dataset.label ?? "", cell.textContent.replace(/\\s+/g, " ").trim()]))"""


@pytest.mark.parametrize("name", ["few", "history", "search", "multipliers"])
def test_on_a_phone_the_rows_are_cards_that_show_the_accuracy_without_scrolling(
    chromium, pages, name
):
    chromium.open(pages(name), 390)
    assert chromium.value(
        "[...document.querySelectorAll('.wide:has(> .cards)')].every(one => "
        "one.scrollWidth <= one.clientWidth)"
    )
    for cells in chromium.value(CARDS):
        failed = any(words in text for _, text in cells for words in ("no result", "unfinished"))
        assert failed or any("accuracy" in label for label, _ in cells), cells
    assert chromium.value(SMALL_TARGETS) == []
    hidden = "[...document.querySelectorAll('.cards thead button')].filter(one => one.checkVisibility()).length"
    assert chromium.value(hidden) == 0, "no tab stops that nobody sees"


def test_on_a_phone_a_table_of_colours_scrolls_by_the_keyboard(chromium, pages):
    chromium.open(pages("mixed"), 360)
    check_keys_scroll(chromium)


def test_on_a_phone_a_menu_sorts_the_cards(chromium, pages):
    chromium.open(pages("history"), 390)
    order = "[...document.querySelectorAll('#history tbody tr')].map(row => row.cells[1].textContent.slice(0, 10))"
    before = chromium.value(order)
    choose = """(text => { const menu = document.querySelector('.sort-menu select');
      menu.selectedIndex = [...menu.options].findIndex(one => one.text === text);
      menu.dispatchEvent(new Event('change')); return menu.getBoundingClientRect().height; })"""
    assert chromium.value(f"{choose}('loss')") >= 44
    losses = [
        float(text)
        for text in chromium.value(
            "[...document.querySelectorAll('#history [data-label=loss]')].map(cell => cell.textContent)"
        )
    ]
    assert losses == sorted(losses) and chromium.value(order) != before
    chromium.value(f"{choose}('as listed')")
    assert chromium.value(order) == before
    chromium.open(pages("history"), 1280)
    assert not chromium.value("document.querySelector('.sort-menu').checkVisibility()")


class TestEveryPage(EveryPage):
    pass
