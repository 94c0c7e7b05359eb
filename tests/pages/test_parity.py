"""The page of the comparison of rungs."""

import re

import pytest

import browser
import planned
import small_comparison
from browser import FAINT_TEXTS, SCROLLING, SMALL_TARGETS, TOO_WIDE
from ladder.executors import sequential as numba_executor
from ladder.executors.cpu import executor as numpy_executor
from ladder.executors.cpu import small
from ladder.pages import launches, templates
from ladder.pages import parity as parity_page
from ladder.rungs import catalog, counted, gpu_opt_v2
from ladder.rungs.launches import Step
from page_text import text_of


@pytest.fixture(scope="module")
def summary():
    return small_comparison.summary()


def test_the_page_names_every_rung_that_cannot_run_here(summary):
    needs = "needs an NVIDIA GPU and no driver answers here"
    reasons = {
        **{rung: f"variant {rung} {needs}" for rung in ("gpu_basic", "gpu_fused")},
        "other": "Numba is missing",
    }
    text = text_of(parity_page.page({**summary, "unavailable": reasons}, "2026-01-31T12:34:56Z"))
    assert f"gpu_basic and gpu_fused: {needs}" in text and "other: Numba is missing" in text
    assert "selects it on this machine. 3 others could not run here." in text, (
        "in the first sentences"
    )
    assert "and all results agree" in text and "2026-01-31 12:34" in text


def test_a_rung_for_a_lower_precision_has_its_own_tolerance_and_its_own_fastest(summary):
    first = summary["rungs"][0]
    rounded = {
        **first,
        "name": "gpu_tf32",
        "precision": "tf32",
        "parity": {
            **first["parity"],
            "momentum": {**first["parity"]["momentum"], "tolerance": 1e-3},
        },
    }
    made = {
        **summary,
        "rungs": [*summary["rungs"], rounded],
        "fastest": {"float32": "cpu", "tf32": "gpu_tf32"},
    }
    text = text_of(parity_page.page(made, "2026-01-31T12:34:56Z"))
    assert (
        "rung that passed is cpu. The fastest rung that passed at precision tf32 is gpu_tf32. From now on"
        in text
    )
    assert (
        "Rungs for a lower precision (gpu_tf32) round the operands of products, and so does the cpu rung"
        in text
    )
    assert text.count("at most 1e-03") == 1 and text.count("at most 5e-05") == 1
    assert "lower precision" not in text_of(parity_page.page(summary, "2026-01-31T12:34:56Z"))


def page(monkeypatch, rungs, host="a"):
    """The planned comparison of these rungs on a machine."""
    monkeypatch.setattr(catalog, "available", lambda: rungs)
    monkeypatch.setattr(catalog, "machine", lambda: {"host": host, "gpu": None})
    return planned.page("parity", planned.run(dataset="cifar10"))


def test_the_comparison_depends_on_every_rung_it_runs_and_on_the_machine(monkeypatch):
    here = page(monkeypatch, ["cpu", "cpu_sequential"])
    assert "workflow/scripts/ladder/executors/sequential.py" in here.spec["sources"]
    assert "workflow/scripts/ladder/rungs/cpu.py" in here.spec["sources"]
    gpu = page(monkeypatch, ["cpu", "gpu_basic"])
    assert "kernels/gpu_basic/conv2d.cu" in gpu.spec["sources"]
    assert here.version != page(monkeypatch, ["cpu", "cpu_sequential"], host="b").version


def test_predictions_are_named_as_such_beside_what_was_measured(summary):
    named = {
        "below": None,
        "floor": 1000.0,
        "launches": [["advance", "a.cu a", 8, 8, 2.0, "launch"]],
    }
    predictions = [
        {**named, "name": "gpu_basic", "predicted": [24430.4, 31000.0], "bound": "level 1"},
        {**named, "name": "cpu", "predicted": [1212.0, 1500.0], "bound": "issue"},
    ]
    text = _predicted(parity_page.page(summary, "2026-01-31T12:34:56Z", predictions))
    assert (
        "gpu_basic 24-31 ms level 1" in text
        and "level 1 the cache and shared memory of a multiprocessor, which" in text
    )
    # the page has another network and batch than the predictions
    assert "None of these steps was measured here." in text
    same = {**summary, "network": "autoencoder", "batch": 64}
    step = launches.milliseconds(summary["rungs"][0]["step"]).replace(templates.NARROW_SPACE, " ")
    text = _predicted(parity_page.page(same, "2026-01-31T12:34:56Z", predictions))
    assert (
        f"cpu 1.2-1.5 ms measured {step}" in text
        and "24-31 ms measured" not in text
        and "None of" not in text
    )
    assert 'id="predicted"' not in parity_page.page(summary, "2026-01-31T12:34:56Z")


def _predicted(page):
    """The section of the predictions as plain words."""
    section = page.partition('<section id="predicted"')[2].partition("</section>")[0]
    return " ".join(re.sub("<[^>]*>", " ", section).replace(templates.NARROW_SPACE, " ").split())


def test_the_committed_predictions_are_part_of_the_page(monkeypatch):
    made = page(monkeypatch, ["cpu"])
    assert (
        counted.predictions()[0]["name"] == "gpu_basic"
        and made.spec["params"]["predictions"] == counted.predictions()
    )


# The texts of the cells that are seen of the table of kernels.
SHOWN = """[...document.querySelectorAll("#kernels tbody tr")].map(row => [...row.cells].filter(cell => cell.checkVisibility())
  .map(cell => cell.querySelector("code").textContent))"""


@pytest.mark.skipif(browser.find() is None, reason="no Chromium found (Debian package: chromium)")
def test_the_page_is_readable_in_a_browser(summary, tmp_path):
    path = tmp_path / "parity.html"
    many = [
        {**rung, "name": f"{rung['name']}_{number}"}
        for number in range(4)
        for rung in summary["rungs"]
    ]
    path.write_text(
        parity_page.page({**summary, "rungs": many}, "2026-01-31T12:34:56Z", counted.predictions())
    )
    chromium = browser.Browser(browser.find())
    try:
        for width in (360, 1280):
            for scheme in ("light", "dark"):
                chromium.open(path, width, scheme=scheme)
                assert chromium.value("document.documentElement.scrollWidth") == width
                assert chromium.value(TOO_WIDE) == [] and chromium.value(FAINT_TEXTS) == []
        chromium.open(path, 360)
        assert chromium.value(SMALL_TARGETS) == []
        assert chromium.value(f"{SCROLLING}.map(one => one.ariaLabel)") == [], (
            "cells over several rows make cards too"
        )
        operations = [
            {layer: one["operation"] for one in rung["kernels"] for layer in one["layers"]}
            for rung in many
        ]
        cards = [[layer, *(of[layer] for of in operations)] for layer in operations[0]]
        assert chromium.value(SHOWN) == cards
        chromium.open(path, 1280)
        begun = [{one["layers"][0] for one in rung["kernels"]} for rung in many]
        once = [
            [cell for at, cell in enumerate(row) if not at or row[0] in begun[at - 1]]
            for row in cards
        ]
        assert chromium.value(SHOWN) == once and once != cards, (
            "a cell over several rows stands once"
        )
        assert [address for address in chromium.requested() if not address.startswith("data:")] == [
            path.as_uri()
        ]
    finally:
        chromium.close()


def test_numbers_have_the_digits_that_matter():
    texts = [
        launches.milliseconds(value).replace(templates.NARROW_SPACE, " ")
        for value in (0.01234, 1.234, 45.67, 1234.5)
    ]
    assert texts == ["0.012 ms", "1.23 ms", "45.7 ms", "1,234 ms"]


def test_only_a_network_with_shortcuts_spends_time_on_them():
    for operation, words in (
        ("flatten_forward", "padding and shapes"),
        ("add_forward", "shortcuts and shapes"),
    ):
        rung = {
            "work": {"shortcuts and shapes": 1.0},
            "flop": 1,
            "step": 2.0,
            "kernels": [{"operation": operation}],
        }
        assert [row["work"] for row in parity_page._work_table([rung])["rows"]] == [words]


def test_every_operation_of_a_rung_counts_as_some_kind_of_work():
    for operation in {
        **numpy_executor.OPERATIONS,
        **small.OPERATIONS,
        **numba_executor.OPERATIONS,
        **gpu_opt_v2.RUNG.launches,
    }:
        assert Step(operation, "", {}, {}, {}).work != "other", operation
