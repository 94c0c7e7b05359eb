"""The page of the comparison of rungs."""

import pytest

import browser
import needs
import planned
import small_comparison
from browser import SCROLLING, SMALL_TARGETS, TOO_WIDE
from ladder.executors import sequential as numba_executor
from ladder.executors.cpu import executor as numpy_executor
from ladder.executors.cpu import small
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
        "other": "variant other lacks Numba; set variant to auto or cpu",
    }
    text = text_of(parity_page.page({**summary, "unavailable": reasons}, "2026-01-31T12:34:56Z"))
    assert f"Not here: gpu_basic and gpu_fused, each of which {needs}; other, which lacks" in text
    many = {f"gpu_{number}": f"variant gpu_{number} {needs}" for number in range(5)}
    line = text_of(parity_page.page({**summary, "unavailable": many}, "2026-01-31T12:34:56Z"))
    assert f"Not here: 5 rungs, each of which {needs}." in line
    assert "and all results agree" in text and "2026-01-31 12:34" in text


def test_a_page_on_which_no_rung_ran_says_why(summary):
    made = {**summary, "rungs": [{"name": "cpu", "fault": "no memory"}], "fastest": {}}
    assert "cpu did not run. no memory" in text_of(parity_page.page(made, "2026"))


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
    assert "which variant: auto takes from now on: cpu (float32), gpu_tf32 (tf32)." in text
    assert (
        "Rungs for a lower precision (gpu_tf32) round the operands of products, and so does the cpu rung"
        in text
    )
    assert text.count("1e-03") == 1 and text.count("5e-05") == 1
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


def test_what_ran_here_stands_beside_predictions_of_the_same_step_alone(summary):
    made = counted.predictions(), counted.measured()
    same = {**summary, "network": "autoencoder", "batch": 64}
    together, apart = (
        parity_page.context(one, "2026-01-31T12:34:56Z", *made)["ladders"]
        for one in (same, summary)
    )
    assert [row["name"] for row in together[0]["rows"]][:3] == [
        "cpu",
        "cpu_sequential",
        "gpu_basic",
    ]
    here, elsewhere = apart
    assert [row["name"] for row in here["rows"]] == ["cpu", "cpu_sequential"]
    assert not here["has"]["predicted"] and not elsewhere["has"]["here"] and len(together) == 1
    text = text_of(parity_page.page(summary, "2026-01-31T12:34:56Z", *made))
    assert "bound by latency, most of it in dec3 backward" in text
    assert 'id="predicted"' not in parity_page.page(summary, "2026-01-31T12:34:56Z")


def test_the_committed_predictions_are_part_of_the_page(monkeypatch):
    made = page(monkeypatch, ["cpu"])
    assert (
        counted.predictions()[0]["name"] == "gpu_basic"
        and made.spec["params"]["predictions"] == counted.predictions()
        and made.spec["params"]["measured"] == counted.measured()
    )


@needs.BROWSER
def test_the_page_is_readable_in_a_browser(summary, tmp_path):
    path = tmp_path / "parity.html"
    names = [name for name in catalog.RUNGS if name.startswith(("cpu", "gpu_opt", "gpu_3xt"))]
    many = [{**rung, "name": name} for name, rung in zip(names, 3 * summary["rungs"], strict=True)]
    path.write_text(
        parity_page.page(
            {**summary, "rungs": many, "network": "autoencoder", "batch": 64},
            "2026-01-31T12:34:56Z",
            counted.predictions(),
            counted.measured(),
        )
    )
    chromium = browser.Browser(browser.find())
    try:
        for width in (360, 1280):
            for scheme in ("light", "dark"):
                chromium.open(path, width, scheme=scheme)
                assert chromium.value("document.documentElement.scrollWidth") == width
                assert chromium.value(TOO_WIDE) == []
                browser.run_axe(chromium, scheme)
        chromium.open(path, 360)
        assert chromium.value(SMALL_TARGETS) == []
        assert chromium.value(f"{SCROLLING}.map(one => one.ariaLabel)") == []
        chromium.open(path, 1280)
        assert chromium.value(f"{SCROLLING}.map(one => one.ariaLabel)") == []
        assert [address for address in chromium.requested() if not address.startswith("data:")] == [
            path.as_uri()
        ]
    finally:
        chromium.close()


def test_every_operation_of_a_rung_counts_as_some_kind_of_work():
    for operation in {
        **numpy_executor.OPERATIONS,
        **small.OPERATIONS,
        **numba_executor.OPERATIONS,
        **gpu_opt_v2.RUNG.launches,
    }:
        assert Step(operation, "", {}, {}, {}).work != "other", operation
