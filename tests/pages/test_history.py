"""The history lists every report, newest first, also unfinished and damaged ones; nothing is run
for it.
"""

import builtins
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import pytest
import yaml

import manifest_files
import synthetic_results
from ladder.pages import history, index, intervals, reproduce
from ladder.sources import ROOT
from ladder.store import lineage, manifests
from ladder.workflow import chains, config, plans, runs, stages
from page_text import text_of
from tools import make_history

SCRIPT = ROOT / "workflow/scripts/tools/make_history.py"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(results, reports)."""
    results = tmp_path_factory.mktemp("results")
    return results, [
        synthetic_results.add(results, epochs=2, made="2026-03-02T08:15:00Z")["report"],
        synthetic_results.add(
            results,
            epochs=2,
            made="2026-03-04T09:15:00Z",
            learning_rate=0.01,
            name="faster <start>",
            tags=["sweep", "lr"],
        )["report"],
        synthetic_results.add(
            results, epochs=1, made="2026-03-03T10:00:00Z", dataset="mnist", network="lenet_5"
        )["report"],
        synthetic_results.add(results, epochs=2, made="2026-03-01T10:00:00Z", seed=3)["report"],
    ]


@pytest.fixture
def results(whole, tmp_path):
    """A copy to damage."""
    return shutil.copytree(whole[0], tmp_path / "results")


def context_of(results):
    return history.context(
        history.rows(results), results, results / "history.html", make_history.defaults()
    )


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="runs">(.*?)</script>', page, re.S)[1]
    )


def page_of(results):
    rows = history.rows(results)
    return history.page(rows, results, results / "history.html", make_history.defaults())


def test_every_report_is_there_the_newest_first(whole):
    results, reports = whole
    rows = history.rows(results)
    assert [row.version for row in rows] == [reports[at].version for at in (1, 2, 0, 3)]
    assert (
        rows[0].name == "faster <start>"
        and rows[0].tags == ("sweep", "lr")
        and not any(row.fault for row in rows)
    )
    assert rows[0].settings["learning_rate"] == 0.01 and rows[0].settings["svm_C"] == 10
    assert rows[2].settings["controls"] == ["random", "pixels"]


def test_the_page_has_numbers_settings_and_a_link_to_each_report(whole):
    results, reports = whole
    page = page_of(results)
    for report in reports:
        assert f'href="report/{report.version}/report.html"' in page
        assert (results / "report" / report.version / "report.html").is_file()
    text = text_of(page)
    assert (
        "4 runs Reports made from 2026-03-01 to 2026-03-04; the runs differ in dataset, network, "
        in text
    )
    assert (
        "97.2 %" in text and "faster &lt;start&gt;" in page and "sweep" in text and "seed 3" in text
    )
    assert "None" not in text and all(" scope=" in tag for tag in re.findall(r"<th\b[^>]*>", page))


def test_runs_can_be_sorted_by_the_divergence_of_latent_values_that_were_drawn(results):
    drawn = synthetic_results.add(results, drawn=0.25, made="2026-03-05T10:00:00Z")
    context = history.context(
        history.rows(results), results, results / "history.html", make_history.defaults()
    )
    values = [row["metrics"].get("KL divergence", (None,))[0] for row in context["rows"]]
    assert values.count(drawn["train"].metrics["divergence"][-1]) == 1 and set(values) - {None} == {
        drawn["train"].metrics["divergence"][-1]
    }


def test_a_run_departs_from_the_configuration_but_for_what_is_the_machines(
    whole,
):
    results, _ = whole
    context = context_of(results)
    # config.yaml has 10, although most of them have 2
    epochs = {"epochs": "2", "dataset": "digits", "network": "autoencoder"}
    departures = [
        history.departures(row.settings, make_history.defaults()) for row in history.rows(results)
    ]
    assert departures == [
        epochs | {"learning_rate": "0.01"},
        {"epochs": "1", "dataset": "mnist", "network": "lenet_5"},
        epochs,
        epochs | {"seed": "3"},
    ]
    assert history.departures(
        {"variant": "cpu", "train_limit": 5000}, {"variant": "auto", "train_limit": "all"}
    ) == {"train_limit": "5000"}
    assert (
        context["same"]["svm_C"] == {"text": "10", "usual": ""}
        and not {"dataset", "seed"} & context["same"].keys()
    )
    assert context["columns"][:2] == ["dataset", "network"] and context["differing"][2:] == [
        "epochs",
        "learning_rate",
        "seed",
    ]


def test_what_two_runs_have_differently_comes_before_what_only_one_of_them_has():
    a, b = (
        {"augment_flip": True, "epochs": 2, "network": "autoencoder"},
        {"epochs": 3, "network": "patch_net", "patches": 9},
    )
    assert list(history.apart(a, b)) == ["network", "epochs", "augment_flip", "patches"]
    assert history.apart(a, b)["patches"] == ("–", "9")


def test_the_best_run_of_each_data_set_has_its_interval_and_what_sets_it_apart(
    tmp_path,
):
    first = synthetic_results.add(
        tmp_path, dataset="mnist", network="lenet_5", epochs=1, accuracy=0.96
    )["report"]
    best = synthetic_results.add(
        tmp_path, dataset="mnist", network="lenet_5", epochs=3, accuracy=0.98, name="longer"
    )["report"]
    alone = synthetic_results.add(tmp_path, validation=180)["report"]
    more, other = context_of(tmp_path)["leaders"]
    assert (more["row"].version, more["second"].version, more["count"]) == (
        best.version,
        first.version,
        2,
    )
    assert more["text"] == intervals.accuracy(best.json("summary.json")) and more["apart"] == {
        "epochs": ("3", "1")
    }
    assert (
        more["departs"] == {"epochs": "3", "network": "lenet_5"}
        and more["points"] == "+1.9"
        and more["luck"]
    )
    assert (other["row"].version, other["notes"], "second" in other) == (
        alone.version,
        ["validation"],
        False,
    )
    page = page_of(tmp_path)
    assert (
        "epochs 3 against 1" in text_of(page)
        and f"<strong>{more['text']}</strong> {more['interval_text']} " in page
    )


def test_links_lead_from_where_the_page_is(whole, tmp_path):
    results, reports = whole
    rows = history.rows(results)
    context = history.context(rows, results, tmp_path / "elsewhere/history.html", {})
    assert (tmp_path / "elsewhere" / context["rows"][0]["link"]).resolve() == reports[
        1
    ].folder / "report.html"


def test_what_is_unfinished_or_damaged_is_there_and_named_so(results, whole):
    reports = [results / "report" / report.version for report in whole[1]]
    (results / "report/r00000000000").mkdir()
    (reports[0] / "manifest.json").write_text("{")
    (reports[1] / "report.html").unlink()
    (reports[2] / "summary.json").write_bytes((reports[2] / "summary.json").read_bytes()[:-5])
    (reports[3] / "summary.json").write_text("x" * (reports[3] / "summary.json").stat().st_size)
    faults = {row.version: row.fault for row in history.rows(results)}
    assert faults == {
        "r00000000000": "unfinished: interrupted or still running",
        reports[0].name: "damaged: manifest.json: it has no digest of itself",
        reports[1].name: "damaged: report.html: it is missing",
        reports[2].name: faults[reports[2].name],
        reports[3].name: "damaged: summary.json: its checksum is not its manifest's",
    }
    assert faults[reports[2].name].startswith("damaged: summary.json: it has ")
    text = text_of(page_of(results))
    assert "5 of them are unfinished, failed or damaged" in text and "None" not in text
    assert 'href="report/' not in page_of(results)


def test_a_report_whose_ancestors_are_gone_still_has_its_line(results, whole):
    for stage in ("train", "data", "svm", "normalized"):
        shutil.rmtree(results / stage)
    assert [row.fault for row in history.rows(results)] == [""] * 4
    assert "97.2 %" in text_of(page_of(results))


def change_summary(folder, change):
    """Change the summary of a report, and its manifest with it."""
    path = folder / "summary.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    manifest_files.rewrite(folder)


def test_a_run_without_a_number_for_any_epoch_has_its_line(results, whole):
    folder = results / "report" / whole[1][1].version  # the latest
    change_summary(folder, lambda of: of | {"loss": [], "accuracy": [], "divergence": []})
    context = history.context(
        history.rows(results), results, results / "history.html", make_history.defaults()
    )
    assert context["rows"][0]["loss"] == "" and "training loss" not in context["rows"][0]["metrics"]
    assert not context["rows"][0]["fault"] and "97.2 %" in text_of(page_of(results))
    assert f'href="report/{folder.name}/report.html"' in index.page(results)


@pytest.mark.parametrize(
    "change, part",
    [
        (lambda of: {}, "dataset"),
        (lambda of: [], "dataset"),
        (lambda of: of | {"network": None}, "network"),
        (lambda of: of | {"loss": 0.5}, "loss"),
        (lambda of: {key: of[key] for key in of if key != "seconds"}, "seconds"),
    ],
)
def test_a_summary_of_another_release_is_named_so_and_is_not_the_latest_run(
    results, whole, change, part
):
    folder = results / "report" / whole[1][1].version
    change_summary(folder, change)
    assert history.rows(results)[0].fault == f"made by another release: its summary has no {part}"
    assert "1 of them is unfinished, failed or damaged" in text_of(page_of(results))
    assert folder.name not in index.page(results) and "The best of 3 runs" in text_of(
        index.page(results)
    )


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_none_at_all_makes_a_page_that_says_how_to_begin(tmp_path, name):
    (tmp_path / "empty/report").mkdir(parents=True)
    text = text_of(page_of(tmp_path / name))
    assert "No runs yet" in text and ".venv/bin/snakemake report" in text


def test_it_looks_at_nothing_but_reports(results):
    (results / "report" / "notes.txt").write_text("mine")
    (results / "report" / "mine").mkdir()
    (results / "report" / "r11111111111").symlink_to(results)
    assert len(history.rows(results)) == 4


def many(results, report, count):
    """Write copies of a report."""
    for number in range(count):
        folder = shutil.copytree(
            report, results / "report" / f"r{number:011x}", copy_function=os.link
        )
        manifest_files.rewrite(folder, made=f"2025-{1 + number % 12:02}-11T10:00:00Z")


def count_opened(monkeypatch, below):
    """Counter of the files below a folder that are opened from now on."""
    opened = collections.Counter()
    for owner, opens in ((builtins, open), (pathlib.Path, pathlib.Path.open)):

        def counted(path, *rest, how=opens, **more):
            opened.update([path] if pathlib.Path(path).is_relative_to(below) else [])
            return how(path, *rest, **more)

        monkeypatch.setattr(owner, "open", counted)
    return opened


def test_five_hundred_reports_are_half_a_megabyte_with_each_file_read_at_most_twice(
    results, whole, monkeypatch
):
    many(results, results / "report" / whole[1][0].version, 500)
    opened = count_opened(monkeypatch, results)
    page = page_of(results)
    assert len(opened) >= 2 * 504 and max(opened.values()) <= 2  # a summary also for its checksum
    assert (
        page.count('<tr><th scope="row">') == 50
        and "Rows 1 to 50 of 504; 454 are left out." in page
    )
    assert len(data_of(page)["version"]) == 504 and len(page) < 500_000


def test_the_command_writes_the_page_and_changes_nothing_else(results):
    before = sorted(results.rglob("*"))
    done = subprocess.run(
        [sys.executable, SCRIPT, "--results", results, "--output", results / "history.html"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"{results}/history.html: 4 reports\n")
    assert sorted(results.rglob("*")) == sorted([*before, results / "history.html"])


def test_a_file_that_a_run_starts_from_and_labels_behind_its_features_are_told(tmp_path):
    synthetic_results.add(tmp_path, epochs=2, start="theirs.bin")
    synthetic_results.add(tmp_path, trained=False, start="theirs.bin")
    synthetic_results.add(tmp_path, epochs=2, parts=(0.5,), labelled=True)
    plain = synthetic_results.add(tmp_path, epochs=2)
    rows = history.rows(tmp_path)
    assert (
        sorted(row.settings["initial_weights"] for row in rows)
        == ["none"] * 2 + ["theirs.bin, sha256 5e5e5e5e5e5e"] * 2
    )
    assert [row.settings["epochs"] for row in rows if row.summary["training"] == "none"] == [0]
    page = page_of(tmp_path)
    assert page.count(
        "<small>features learned with labels</small>"
    ) == 1 and "theirs.bin, sha256" in text_of(page)
    assert plain["report"].version in page


def test_runs_that_differ_in_what_a_default_leaves_unsaid_have_different_lines(tmp_path):
    # exact: in no specification
    synthetic_results.add(tmp_path, epochs=2)
    synthetic_results.add(tmp_path, epochs=2, multiplier="mit16")
    synthetic_results.add(tmp_path, steps=3)
    ablated = [
        {"features_flip": True, "features_concatenate": [{"features_layer": "enc1", "weight": 0.5}]}
    ]
    row = history.Row(
        "r0", "2026-01-01", fault="failed", settings={"ablation": ablated, "seeds": [2, 3]}
    )
    rows = [*history.rows(tmp_path), row]
    texts = [history.texts(row) for row in rows]
    assert sorted(own.get("multiplier", "") for own in texts) == ["", "exact", "exact", "mit16"]
    assert len(set(map(str, texts))) == 4
    assert texts[-1] == {
        "ablation": "{features_flip: true, features_concatenate: [{features_layer: enc1, weight: 0.5}]}",
        "seeds": "2, 3",
    }
    shown = history.context(rows, tmp_path, tmp_path / "history.html", make_history.defaults())
    assert set(shown["columns"]) <= {"multiplier", "epochs", "steps"} and "mit16" in str(
        shown["rows"]
    )


def test_the_machines_are_named_where_there_are_several(results):
    report = min((results / "report").glob("r*"))
    assert "gpu-node" not in page_of(results) and "machine" not in context_of(results)["differing"]
    row = next(row for row in history.rows(results) if row.version == report.name)
    parent = next(
        folder
        for folder in (results / "train").iterdir()
        if folder.name == lineage.Store(results).parents(report.name)["train"]
    )
    manifest = manifests.decoded(parent / manifests.MANIFEST)
    manifest_files.rewrite(parent, machine={**manifest["machine"], "host": "gpu-node"})
    rows = {row.version: row for row in history.rows(results)}
    assert "gpu-node" in rows[report.name].hosts and len(rows[report.name].hosts) == 1 + len(
        row.hosts
    )
    assert "machine" in context_of(results)["differing"] and "gpu-node" in text_of(page_of(results))


def test_accuracies_and_differences_have_no_more_digits_than_in_the_report(tmp_path):
    synthetic_results.add(tmp_path, dataset="cifar10", network="resnet50", steps=5)
    (row,) = history.context(
        history.rows(tmp_path), tmp_path, tmp_path / "history.html", make_history.defaults()
    )["rows"]
    assert row["accuracy"] == row["metrics"]["accuracy"][1] == "71\u202f%"
    assert row["metrics"]["points against majority"][1] == "+62"
    (leader,) = index.context(tmp_path)["leaders"]
    assert leader["text"] == index.context(tmp_path)["rows"][0]["accuracy"] == "71\u202f%"


COMPARED = [
    {"train_limit": 400, "seed": 3},
    {"train_limit": 400, "seed": 4},
    {"train_limit": 400, "name": "it's", "tags": ["a", "b"]},
    {"multiplier": "mit16", "multiplier_in": ["input_grad"]},
    {"multiplier": "mit16", "test_multiplier": "exact"},
    {"epochs": 3},
    {
        "steps": 12,
        "controls": [],
        "evaluations": ["knn"],
        "seeds": [4, 5],
        "ablation": [{"features_standardize": True}],
    },
    {
        "network": "lenet_5",
        "dataset": "mnist",
        "learning_rate": 1e-7,
        "validation": 50,
        "reference_variant": "cpu_sequential",
    },
]


@pytest.mark.parametrize(
    "here",
    [
        {},
        {"train_limit": 400, "epochs": 3, "name": "mine", "seeds": [4, 5], "multiplier": "am32"},
        {
            "label_counts": [10],
            "evaluations": ["ridge"],
            "features_pca": 5,
            "precision": "bfloat16",
        },
    ],
)
def test_what_the_page_says_of_runs_plans_their_versions_whatever_is_configured_now(
    monkeypatch, here
):
    base = yaml.safe_load((ROOT / "tests/support/experiment.yaml").read_text())
    planned = [chains.chain(runs.resolve(config.load(base | run)))["report"] for run in COMPARED]
    inputs = [
        {
            role: types.SimpleNamespace(manifest={"spec": parent.spec})
            for role, parent in report.parents.items()
        }
        for report in planned
    ]
    monkeypatch.setattr(make_history.config, "base", lambda: base | here)
    make_history.configured.cache_clear()
    entries = [
        make_history.entry(reproduce.settings(roles, report.spec["params"]))
        for roles, report in zip(inputs, planned, strict=True)
    ]
    make_history.configured.cache_clear()
    plan = plans.load(base | here | {"compare": json.loads(json.dumps(entries))})
    page = stages.page(
        stages.STAGES["compare"],
        stages.Configuration(plan.run, {"compare": runs.entries(plan.run.given)}, {}),
    )
    again = [page.parents[f"report{number}"].version for number in range(len(planned))]
    assert again == [report.version for report in planned] and set(again) <= plan.artifacts.keys()
