"""Every run of a folder and of a list has a row, with what is known of it and why no more is."""

import fcntl
import json
import shutil

import numpy as np
import pytest

import manifest_files
import synthetic_results
from ladder.arithmetic import multipliers
from ladder.pages.runs import columns, discovery
from ladder.store import artifacts


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(results, the artifacts of four runs)."""
    results = tmp_path_factory.mktemp("results")
    add = synthetic_results.add
    return results, [
        add(results, epochs=2, made="2026-03-02T08:15:00Z", validation=180),
        add(results, epochs=2, made="2026-03-04T09:15:00Z", name="faster", tags=["sweep"]),
        add(results, epochs=1, made="2026-03-03T10:00:00Z", dataset="mnist", network="lenet_5"),
        add(results, epochs=2, made="2026-03-01T10:00:00Z", seed=3),
    ]


@pytest.fixture
def results(whole, tmp_path):
    """A copy to damage."""
    return shutil.copytree(whole[0], tmp_path / "results")


def by_version(results, *listed, **given):
    return {run.version: run for run in discovery.runs(results, listed, **given)}


def entry(run=None, **changes):
    """An entry of a list, as workflow/listed.py has it."""
    report, weights = (
        (f"{run[role].folder}" for role in ("report", "train")) if run else (None,) * 2
    )
    plain = {"name": "", "tags": ["mine"], "settings": {}, "reason": ""}
    return {**plain, "report": report, "weights": weights, **changes}


def test_every_report_is_there_the_newest_first_with_numbers_that_say_what_they_hold(whole):
    results, made = whole
    runs = discovery.runs(results)
    order = [made[place]["report"].version for place in (1, 2, 0, 3)]
    assert [run.version for run in runs] == order
    validated, plain = by_version(results)[made[0]["report"].version], runs[0]
    assert plain.about["scored_on"] == "test" and validated.about["scored_on"] == "validation"
    summary = made[0]["report"].json("summary.json")
    assert validated.numbers["validation_accuracy"] == summary["test_accuracy"]
    assert validated.ends["validation_accuracy"] == summary["accuracy_interval"]
    assert "test_accuracy" not in validated.numbers and "test_accuracy" in plain.numbers
    assert (plain.about["name"], plain.about["tags"]) == ("faster", ["sweep"])
    assert plain.about["train"] == made[1]["train"].version
    assert runs[-1].settings["seed"] == 3 and runs[-1].written["seed"] == 3


def test_what_is_unfinished_or_damaged_is_there_and_named_so(results, whole):
    reports = [results / "report" / run["report"].version for run in whole[1]]
    (results / "report/r00000000000").mkdir()
    (reports[0] / "manifest.json").write_text("{")
    (reports[2] / "summary.json").write_bytes((reports[2] / "summary.json").read_bytes()[:-5])
    found = by_version(results)
    states = {
        version: (run.about["state"], run.about.get("reason")) for version, run in found.items()
    }
    assert states["r00000000000"][0] == "interrupted"
    assert states[reports[0].name] == ("damaged", "manifest.json: it has no digest of itself")
    assert states[reports[2].name][0] == "damaged" and "it has" in states[reports[2].name][1]
    assert states[reports[1].name] == ("finished", None)


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
def test_a_summary_of_another_release_is_named_so(results, whole, change, part):
    folder = results / "report" / whole[1][1]["report"].version
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(change(summary)))
    manifest_files.rewrite(folder)
    found = by_version(results)[folder.name]
    assert found.about["reason"] == f"made by another release: its summary has no {part}"
    assert not found.numbers


@pytest.mark.parametrize(
    "change",
    [
        lambda of: {"versions": of["versions"] | {"train": "../../mine"}},
        lambda of: {"versions": of["versions"] | {"data": ["d"]}},
        lambda of: {"seconds": {"train": "soon"}},
        lambda of: {"seconds": {"train": 10**400}},
        lambda of: {"confusion": [7]},
        lambda of: {"controls": ["pixels"]},
    ],
)
def test_a_summary_with_other_types_is_a_damaged_run_and_names_no_file(results, whole, change):
    folder = results / "report" / whole[1][1]["report"].version
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | change(summary)))
    manifest_files.rewrite(folder)
    found = by_version(results)[folder.name]
    assert found.about["state"] == "damaged" and "its summary " in found.about["reason"]
    assert "train" not in found.about and not found.numbers


def test_a_manifest_with_other_types_is_a_damaged_run(results, whole):
    for role, params in (
        ("report", {"runs": ["mine"]}),
        ("train", {"features_variant": {}, "table": 1}),
    ):
        folder = results / role / whole[1][0][role].version
        spec = artifacts.Artifact(folder).manifest["spec"]
        manifest_files.rewrite(folder, spec=spec | {"params": spec["params"] | params})
    shutil.rmtree(results / "report" / whole[1][2]["report"].version)
    found = by_version(results)
    assert found[whole[1][0]["report"].version].about["state"] == "damaged"
    assert found[whole[1][1]["report"].version].about["state"] == "finished"


def test_a_row_is_made_once_and_again_where_the_report_is_another_one(results, whole, monkeypatch):
    first = by_version(results)
    made = []
    report = discovery._report
    monkeypatch.setattr(discovery, "_report", lambda *of: made.append(of[1]) or report(*of))
    again = by_version(results)
    assert made == [] and again == first
    folder = results / "report" / whole[1][1]["report"].version
    manifest_files.rewrite(folder, made="2026-04-01T00:00:00Z")
    assert by_version(results)[folder.name].about["made"] == "2026-04-01T00:00:00Z"
    assert made == [folder.name]
    path = results / "runs/rows.json"
    seal, text = path.read_text().split("\n", 1)
    path.write_text(f"{seal}\n{text.replace('faster', 'better than it is')}")
    assert "better" not in str(by_version(results)) and len(made) == 5
    made.clear()
    path.write_text("{")
    assert by_version(results).keys() == first.keys() and len(made) == 4


def test_a_report_whose_ancestors_are_gone_still_has_its_numbers(results):
    for stage in ("train", "data", "svm", "normalized"):
        shutil.rmtree(results / stage)
    runs = discovery.runs(results)
    assert len(runs) == 4 and all(run.ends for run in runs)


def test_a_training_without_a_report_is_a_run_and_one_at_work_runs(results, whole):
    shutil.rmtree(results / "report" / whole[1][3]["report"].version)
    alone = by_version(results)[whole[1][3]["train"].version]
    assert (alone.about["state"], alone.settings["seed"]) == ("trained", 3)
    working = results / "train/t00000000000"
    working.mkdir()
    assert by_version(results)[working.name].about["state"] == "interrupted"
    with open(working / artifacts.LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert by_version(results)[working.name].about["state"] == "running"


def test_a_listed_run_has_its_tags_and_number_and_what_is_not_made_its_reason(whole):
    results, made = whole
    missing = entry(report="results/report/r11111111111", settings={"seed": 9})
    unable = entry(reason="it needs an NVIDIA GPU", settings={"variant": "gpu_gemm"})
    pruned = entry(reason="pruned after 1 epoch: its loss", tags=["search"])
    shown_elsewhere = entry(made[3], report="results/report/r22222222222")
    (only,) = (run.about for run in discovery.runs(results, [shown_elsewhere])[4:])
    assert only["state"] == "listed" and only["reason"].startswith("trained for another report")
    listed = [entry(made[3]), missing, unable, pruned, entry(made[1], name="listed")]
    runs = discovery.runs(results, listed)
    found = {run.version: run.about for run in runs}
    own = found[made[3]["report"].version]
    assert (own["tags"], own["trial"], own["state"]) == (["mine"], 1, "finished")
    assert found[made[1]["report"].version]["tags"] == ["sweep", "mine"]
    assert found[made[1]["report"].version]["name"] == "faster", "its own name goes first"
    waiting = [(run.about["state"], run.about["trial"], run.settings) for run in runs[4:]]
    assert waiting == [
        ("listed", 2, {"seed": 9}),
        ("not possible", 3, {"variant": "gpu_gemm"}),
        ("pruned", 1, {}),
    ]


def test_a_run_has_costs_and_errors_of_its_multiplier_a_table_by_its_path(tmp_path, results):
    np.save(tmp_path / "mine.npy", multipliers.tabulated("mbm", 3))
    path = str(tmp_path / "mine.npy")
    for name in ("am32", multipliers.identity(path)):
        report = synthetic_results.add(
            results, dataset="mnist", network="lenet_5", epochs=1, seed=7, multiplier=name
        )["report"]
    spec = report.manifest["spec"]
    manifest_files.rewrite(
        report.folder, spec=spec | {"params": spec["params"] | {"multiplier": "mine.npy"}}
    )
    listed = entry(settings={"multiplier": path})
    found = discovery.runs(results, [listed], {"power": {"mine.npy": 0.2, "am32": 0.3}})
    by_name = {run.settings.get("multiplier"): run.numbers for run in found}
    tested = [run for run in found if run.settings.get("seed") == 7]
    assert len(tested) == 2 and by_name["exact"]["error_most"] < 1e-7
    assert "mine.npy" in by_name
    assert {run.settings["test_multiplier"] for run in tested} == {"exact"}, "trained with it alone"


def test_every_column_of_a_number_has_a_head_and_says_what_it_holds(whole):
    for run in discovery.runs(whole[0], given={"power": {"exact": 1}}):
        for key in run.numbers:
            column = columns.column(key)
            assert column.title and column.text and "{" not in column.title
    assert columns.column("cost_power, W").title == "cost: power, W"
    assert columns.column("over_svm_random").title == "points over svm, random"
