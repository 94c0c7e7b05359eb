"""Unreachable artifacts are found and, if confirmed, removed; reachable ones, their ancestors and
running ones stay.
"""

import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

import processes
import synthetic_results
from ladder import progress
from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.store import artifacts
from ladder.workflow import garbage

SCRIPT = ROOT / "workflow/scripts/tools/collect_garbage.py"
OLD = 2 * garbage.DAY


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two runs that share their data."""
    results = tmp_path_factory.mktemp("made")
    return results, [
        synthetic_results.add(results, epochs=1, test=1700),
        synthetic_results.add(results, epochs=1, test=1700, learning_rate=0.1),
    ]


@pytest.fixture
def results(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "results")


@pytest.fixture
def runs(made, results):
    """role -> artifact of both runs in `results`."""
    return [
        {role: artifacts.Artifact(results / name(one)) for role, one in run.items()}
        for run in made[1]
    ]


def name(artifact):
    return f"{artifact.folder.parent.name}/{artifact.version}"


def names(items):
    return {f"{item.stage}/{item.version}" for item in items}


def unfinished(results, name, age):
    """A folder with a checkpoint and no manifest, last touched `age` seconds ago."""
    folder = results / name
    folder.mkdir(parents=True)
    for path in (folder / ".lock", folder / "checkpoint.safetensors", folder):
        if path != folder:
            path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    return folder


def test_ancestors_of_a_kept_artifact_stay(results, runs):
    loose = garbage.collect(results, [name(runs[0]["report"])])
    assert names(loose) == {name(runs[1][role]) for role in ("train", "features", "svm", "report")}
    assert names(garbage.collect(results, [name(runs[0]["svm"]), name(runs[1]["svm"])])) == {
        name(run["report"]) for run in runs
    } | {
        name(runs[0][role])
        for role in ("features_random", "svm_random", "features_pixels", "svm_pixels")
    }


def test_everything_is_garbage_if_nothing_is_kept_and_nothing_if_all_is_kept(results, runs):
    every = {name(artifact) for run in runs for artifact in run.values()}
    assert names(garbage.collect(results, [])) == every
    assert garbage.collect(results, [name(run["report"]) for run in runs]) == []


def test_listing_removes_nothing_and_says_how_to(results, runs):
    before = sorted(results.rglob("*"))
    lines = garbage.listed(garbage.collect(results, [name(runs[0]["report"])]))
    assert sorted(results.rglob("*")) == before
    assert lines[0] == "Nothing reaches 4 artifacts:" and garbage.CONFIRM in lines[-1]
    gone = [runs[1][role].folder for role in ("train", "features", "svm", "report")]
    size = sum(path.stat().st_size for folder in gone for path in folder.iterdir())
    assert lines[-2] == f"In all {progress.size(size)}, of 1 run: {runs[1]['report'].version}."
    (line,) = [line for line in lines if name(runs[1]["train"]) in line]
    size = sum(path.stat().st_size for path in runs[1]["train"].folder.iterdir())
    assert re.search(r"  3\.\d MB  ", line) and abs(size - 3.1e6) < 1e5
    assert (
        "0 min" in line
        and "autoencoder, cpu, batch_size 64, epochs 1, adam, learning_rate 0.1, seed 1" in line
    )
    assert "accuracy 95.4 %" in next(line for line in lines if name(runs[1]["svm"]) in line)


def test_what_keep_matches_is_named_and_one_without_a_match_is_refused(results, runs):
    (train, other), report = [run["train"].version for run in runs], runs[0]["report"].version
    assert garbage.named(results, [train, f"report/{report}", "train/t*"]) == {
        train: [f"train/{train}"],
        f"report/{report}": [f"report/{report}"],
        "train/t*": [f"train/{one}" for one in sorted([train, other])],
    }
    for wrong, hint in (
        (train[:-1], f"do you mean {train}?"),
        ("a**b", "`snakemake gc` without it lists"),
        (f"report/{train}", "do you mean"),
    ):
        with pytest.raises(
            UserError, match=re.escape(f"keep: no version in {results} is '{wrong}'; {hint}")
        ):
            garbage.named(results, [train, wrong])


def test_runs_are_named_and_many_names_are_cut():
    items = [
        garbage.Item("report", f"r{i}", None, 1, 0.0, "", name)
        for i, name in enumerate(("wide", "", *"abcdefghij"))
    ]
    assert garbage._of_runs(items[:2]) == ', of 2 runs: "wide" (r0), r1'
    assert garbage._of_runs(items).startswith(', of 12 runs: "wide" (r0), r1, "a" (r2), ')
    assert garbage._of_runs(items).endswith(" and 2 more") and garbage._of_runs([]) == ""


def test_confirmed_garbage_is_removed_and_the_rest_is_intact(results, runs):
    items = garbage.collect(results, [name(runs[0]["report"])])
    lines = garbage.remove(items)
    assert (
        lines[-1].endswith(f" freed, of 1 run: {runs[1]['report'].version}.")
        and lines[0] == "Removed 4 artifacts:"
    )
    assert not any((results / one).exists() for one in names(items))
    for artifact in runs[0].values():
        fresh = artifacts.Artifact(artifact.folder)
        for file in fresh.manifest["files"]:
            fresh.path(file)
    assert garbage.collect(results, [name(runs[0]["report"])]) == []
    assert not list(results.rglob("*.removed"))


def test_an_interrupted_artifact_stays_for_a_day(results, runs):
    keep = [name(run["report"]) for run in runs]
    young, old = (
        unfinished(results, "train/t00000000001", 3600),
        unfinished(results, "train/t00000000002", OLD),
    )
    items = {item.version: item for item in garbage.collect(results, keep)}
    assert "younger than a day" in items[young.name].why and items[old.name].why == ""
    assert items[old.name].what == "unfinished"
    garbage.remove(items.values())
    assert young.exists() and not old.exists()


def test_a_page_of_a_stage_that_is_no_more_is_removed(results, runs):
    old = unfinished(results, "compare/c00000000001", OLD)
    garbage.remove(garbage.collect(results, [name(run["report"]) for run in runs]))
    assert not old.exists() and runs[0]["report"].folder.exists()


def test_a_reachable_interrupted_artifact_stays(results, runs):
    old = unfinished(results, "train/t00000000002", OLD)
    assert (
        garbage.collect(results, [f"train/{old.name}", *(name(run["report"]) for run in runs)])
        == []
    )


def test_an_artifact_being_made_stays_with_its_possible_inputs(results, runs):
    keep = [name(runs[0]["report"])]
    with artifacts.locked(runs[1]["features"].folder / artifacts.LOCK, ""):
        items = {item.stage: item for item in garbage.collect(results, keep)}
        assert items["features"].why == "a stage is at work on it"
        assert (
            items["train"].why == f"{name(runs[1]['features'])}, which is being made, may read it"
        )
        assert items["svm"].why == items["report"].why == ""
        lines = garbage.remove(items.values())
    assert runs[1]["features"].folder.exists() and runs[1]["train"].folder.exists()
    assert not runs[1]["svm"].folder.exists() and not runs[1]["report"].folder.exists()
    assert lines[0] == "Not reached, but staying:"


def test_an_artifact_locked_after_the_listing_stays(results, runs):
    items = [
        item
        for item in garbage.collect(results, [name(runs[0]["report"])])
        if item.stage == "train"
    ]
    with open(items[0].folder / artifacts.LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = garbage.remove(items)
    assert (
        items[0].folder.exists()
        and lines[-1] == "Nothing was removed."
        and "a stage is at work on it" in lines[0]
    )


def test_links_are_not_followed(results, runs, tmp_path):
    mine = tmp_path / "mine"
    (mine / "t0123456789a").mkdir(parents=True)
    (mine / "t0123456789a" / "precious").write_text("keep")
    (results / "train" / "t11111111111").symlink_to(mine / "t0123456789a")
    (results / "evaluate").symlink_to(mine)
    (runs[1]["train"].folder / "link").symlink_to(mine)
    garbage.remove(garbage.collect(results, []))
    assert (mine / "t0123456789a" / "precious").read_text() == "keep"
    assert (results / "train" / "t11111111111").is_symlink() and not runs[1][
        "train"
    ].folder.exists()


def test_a_folder_that_became_a_link_after_the_listing_stays(results, runs, tmp_path):
    items = [
        item for item in garbage.collect(results, []) if item.version == runs[1]["train"].version
    ]
    os.rename(items[0].folder, tmp_path / "moved")
    items[0].folder.symlink_to(tmp_path / "moved")
    garbage.remove(items)
    assert (tmp_path / "moved" / "manifest.json").exists()


@pytest.mark.parametrize(
    "other",
    [
        "downloads/d4a38c50a1bc",
        "train/mine",
        "train/t123",
        "mine/m0123456789a",
        "train/s0123456789a",
    ],
)
def test_other_files_are_ignored(results, runs, other):
    (results / other).mkdir(parents=True)
    (results / "report.html").write_text("the active one")
    garbage.remove(garbage.collect(results, []))
    assert (results / other).exists() and (results / "report.html").exists()


def test_leftovers_of_an_interrupted_removal_are_removed_by_the_next(results, runs):
    left = results / "train" / ".t0123456789a.123.removed"
    left.mkdir()
    (left / "weights.bin").write_bytes(b"1234")
    (item,) = [item for item in garbage.collect(results, []) if item.folder == left]
    assert item.what == "left of a removal that was interrupted"
    garbage.remove([item])
    assert not left.exists()


def test_folders_nested_deeper_than_python_calls_are_counted_and_no_traceback(results, runs):
    here, deep = os.getcwd(), runs[1]["train"].folder
    os.chdir(deep)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    pathlib.Path("file").write_bytes(bytes(10**6))
    os.chdir(here)
    (item,) = [
        item
        for item in garbage.collect(results, [name(runs[0]["report"])])
        if item.stage == "train"
    ]
    assert item.size > 4.1e6
    garbage.remove([item])  # Python 3.13 removes such folders, and older ones leave them aside
    assert not deep.exists()
    subprocess.run(["rm", "-r", results / "train"], check=True)


def test_a_damaged_manifest_is_no_obstacle(results, runs):
    (runs[1]["train"].folder / "manifest.json").write_text("[]")
    items = {item.version: item for item in garbage.collect(results, [name(runs[0]["report"])])}
    assert items[runs[1]["train"].version].what == "damaged"


def test_no_results_are_nothing_to_remove(tmp_path):
    assert garbage.listed(garbage.collect(tmp_path / "none", [])) == [
        "There is nothing to remove: everything that is finished is reached."
    ]


@pytest.mark.parametrize(
    "seconds, text", [(59, "0 min"), (3599, "59 min"), (7300, "2 h"), (OLD, "2 days")]
)
def test_ages_are_words(seconds, text):
    assert garbage._age(seconds) == text


def called(*arguments):
    return processes.python(SCRIPT, *map(str, arguments))


def test_the_command_lists_and_only_confirmed_removes(results, runs, tmp_path):
    keep = tmp_path / "keep.json"
    keep.write_text(json.dumps([name(runs[0]["report"])]))
    listed = called("--results", results, "--reached", keep)
    assert (
        listed.returncode == 0
        and "Nothing reaches 4 artifacts:" in listed.stdout
        and runs[1]["train"].folder.exists()
    )
    removed = called("--results", results, "--reached", keep, "--confirm")
    assert (
        removed.returncode == 0
        and " freed, of 1 run" in removed.stdout
        and not runs[1]["train"].folder.exists()
    )
    assert "There is nothing to remove" in called("--results", results, "--reached", keep).stdout


@pytest.mark.parametrize("text", ["", "{}", '["t123"]', "[1]"])
def test_nothing_is_removed_without_a_readable_list_of_what_is_reached(
    results, runs, tmp_path, text
):
    (tmp_path / "keep.json").write_text(text)
    done = called("--results", results, "--reached", tmp_path / "keep.json", "--confirm")
    assert (
        done.returncode == 2
        and len(done.stderr.splitlines()) == 1
        and runs[1]["train"].folder.exists()
    )
