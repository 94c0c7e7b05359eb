import os
import re

import pytest

import synthetic_results
from ladder.pages import index, templates
from ladder.workflow import copies
from page_text import text_of

LINK = re.compile(r'href="([^"]*)"')


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two runs of digits, a validation score, and the copies and pages of the latest one."""
    folder = tmp_path_factory.mktemp("site") / "results"
    synthetic_results.add(folder, made="2026-02-01T00:00:00Z", epochs=2)
    synthetic_results.add(
        folder, made="2026-02-02T00:00:00Z", epochs=3, name="second", tags=["good"]
    )
    report = synthetic_results.add(folder, made="2026-02-03T00:00:00Z", epochs=3, validation=180)[
        "report"
    ]
    copies.publish(report.folder, folder / "report.html")
    (folder / "index.html").write_text(index.page(folder))
    return folder


def dead_links(page):
    """The links of a page that lead to no file, or to no place in it."""
    dead = []
    for address in LINK.findall(page.read_text()):
        file, _, place = address.partition("#")
        target = page.parent / file if file else page
        if not address.startswith("data:") and not (
            target.is_file() and (not place or f'id="{place}"' in target.read_text())
        ):
            dead.append(address)
    return dead


def test_every_link_of_every_page_resolves_from_its_folder_and_from_results(results):
    pages = [*results.glob("*.html"), *results.glob("report/*/report.html")]
    assert len(pages) == 5
    for page in pages:
        others = ("manifest.json", "summary.json", ".csv")  # which a stage writes and copies
        assert [link for link in dead_links(page) if not link.endswith(others)] == [], page
        bar = re.findall(r'<li><a href="[^"]*index.html#\w+"', page.read_text())
        assert len(bar) == len(templates.SITE), "one bar of pages"


def test_the_copy_is_the_keyed_page_with_links_from_where_it_lies(results, tmp_path):
    report = results / "report"
    (artifact,) = [
        folder
        for folder in report.iterdir()
        if copies.is_published(folder, results / "report.html")
    ]
    assert b"../../index.html#history" in (artifact / "report.html").read_bytes()
    assert b"../" not in (results / "report.html").read_bytes()
    assert (artifact / "summary.json").read_bytes() == copies.published(artifact / "summary.json")
    (tmp_path / "report.html").write_bytes((results / "report.html").read_bytes() + b" ")
    assert not copies.is_published(artifact, tmp_path / "report.html")


def test_the_best_run_and_the_newest_stand_first_and_the_list_says_where_runs_differ(
    results,
):
    text = text_of((results / "index.html").read_text())
    context = index.context(results)
    (leader,) = context["leaders"]
    assert (leader["row"].made[:10], leader["count"], leader["alike"]) == (
        "2026-02-01",
        2,
        [context["rows"][1]["run"].version],
    )
    assert "The best of 3 runs" in text and "1 other as accurate" in text
    assert (
        "The newest: " in text
        and "180 validation images of handwritten digits correctly (95 % interval" in text
    )
    assert (
        [row["run"].name for row in context["rows"]] == ["", "second", ""]
        and "epochs 3" in text
        and "epochs 2" in text
    )
    assert [row["apart"] for row in context["rows"]] == [
        {"epochs": "3", "validation": "180"},
        {"epochs": "3", "validation": "0"},
        {"epochs": "2", "validation": "0"},
    ]
    assert [page["made"] is not None for page in context["pages"]] == [True] + [False] * 8
    assert "not made yet: .venv/bin/snakemake results/history.html" in text


def test_a_folder_without_runs_has_a_page_that_says_how_to_begin(tmp_path):
    assert "No runs yet" in text_of(
        index.page(tmp_path)
    ) and ".venv/bin/snakemake report" in index.page(tmp_path)


def test_damaged_and_unfinished_reports_are_left_out(results, tmp_path):
    synthetic_results.add(tmp_path, epochs=2)
    (tmp_path / "report/r00000000000").mkdir()
    (summary,) = tmp_path.glob("report/*/summary.json")
    assert len(index.runs(tmp_path)) == 1
    summary.write_text("{")
    assert index.runs(tmp_path) == []


def test_the_index_is_made_when_a_page_is_newer(tmp_path):
    assert not copies.is_index_older(tmp_path)
    (tmp_path / "history.html").write_text("")
    assert copies.is_index_older(tmp_path)
    (tmp_path / "index.html").write_text("")
    os.utime(tmp_path / "history.html", (1, 1))
    assert not copies.is_index_older(tmp_path)
