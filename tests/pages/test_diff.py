"""The comparison of two versions finds every difference, and the first one."""

import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import manifest_files
import synthetic_results
from ladder.errors import UserError
from ladder.pages import diff, intervals, templates
from ladder.sources import ROOT
from ladder.store import artifacts, lineage
from page_text import text_of

SCRIPT = ROOT / "workflow/scripts/tools/make_diff.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def runs(results):
    """name -> {role: artifact}."""
    return {
        "usual": synthetic_results.add(results, epochs=2),
        "faster": synthetic_results.add(
            results,
            epochs=2,
            learning_rate=0.01,
            noise=0.1,
            loss=2,
            faster=2,
            svm_C=1,
            sources={"train": "1" * 16},
        ),
        "whitened": synthetic_results.add(results, epochs=2, normalization="zca"),
        "svm": synthetic_results.add(results, epochs=2, svm_C=5),
        "plain": synthetic_results.add(results, epochs=2, controls=()),
        "resnet": synthetic_results.add(results, dataset="cifar10", network="resnet50", steps=3),
        "elsewhere": synthetic_results.add(results, epochs=2, train_limit=1000),
        "other resnet": synthetic_results.add(
            results, dataset="cifar10", network="resnet50", steps=3, seed=2, noise=0.2
        ),
    }


@pytest.fixture
def difference(results, runs):
    def between(a, b, role="report"):
        return diff.Difference(lineage.Store(results), runs[a][role].version, runs[b][role].version)

    return between


def test_settings_that_differ_anywhere_above_are_found_once(difference):
    context = diff.context(difference("usual", "faster"))
    assert {row["name"]: (row["a"], row["b"], row["roles"]) for row in context["settings"]} == {
        "learning_rate": ("0.001", "0.01", ["train"]),
        "svm_C": ("10", "1", ["svm"]),
    }
    assert ("batch_size", "64") in {(row["name"], row["a"]) for row in context["same_settings"]}


def test_sources_that_differ_are_found(difference):
    (row,) = diff.context(difference("usual", "faster"))["sources"]
    assert row == {
        "name": "workflow/scripts/train_network.py",
        "a": "0" * 16,
        "b": "1" * 16,
        "same": False,
        "roles": ["train"],
    }


def test_the_first_difference_is_in_the_first_ancestor_with_one_of_its_own(difference):
    found = difference("usual", "whitened")
    assert found.first.label == "normalized"
    assert found.sentence() == "the first difference is in normalized: normalization unit → zca"
    rows = {row["label"]: row for row in diff.context(found)["lineage"]}
    assert (
        rows["data"]["same"]
        and rows["initial weights"]["same"]
        and rows["train"]["inherits"]
        and rows["report"]["inherits"]
    )
    assert not rows["normalized"]["inherits"]
    assert difference("usual", "svm").first.label == "svm"
    assert "learning_rate 0.001 → 0.01" in difference("usual", "faster", "train").sentence()


def test_changed_settings_are_counted():
    def state(count):
        manifests = [
            {
                "spec": {
                    "stage": "train",
                    "params": dict.fromkeys("abcdef"[:count], value),
                    "sources": {},
                }
            }
            for value in (1, 2)
        ]
        return diff.Pair("train", "t1", "t2", *manifests).state

    assert state(3) == "a 1 → 2, b 1 → 2, c 1 → 2" and state(4) == f"{state(3)}, 1 more setting"
    assert state(5) == f"{state(3)}, 2 more settings"


def test_ancestors_come_before_what_was_made_from_them(difference):
    labels = [pair.label for pair in difference("usual", "faster").pairs]
    assert labels[-1] == "report" and len(labels) == len(set(labels)) == 11
    for parent, child in (
        ("data", "normalized"),
        ("normalized", "train"),
        ("train", "features"),
        ("features", "svm"),
    ):
        assert labels.index(parent) < labels.index(child)


def test_a_role_that_only_one_has_is_said(difference):
    found = difference("usual", "plain")
    states = {pair.label: pair.state for pair in found.pairs}
    assert states["svm, raw pixels"] == "only in A" and states["svm"] == ""
    assert difference("plain", "usual").first.state == "only in B"


def test_metrics_times_and_machines_are_compared(difference):
    context = diff.context(difference("usual", "faster"))
    metrics = {(row["role"], row["name"]): row for row in context["metrics"]}
    assert (
        metrics["train", "loss, last epoch"]["change"].replace(templates.NARROW_SPACE, " ")
        == "+100 %"
    )
    assert metrics["train", "images per second"]["a"] == "171.4"
    assert context["same_metrics"] > 20 and context["named"] == [
        {"role": "svm", "count": 0, "of": 360, "scored_on": "test"}
    ]
    changes = {row["role"]: row["change"] for row in context["times"]}  # with what this test took
    assert re.fullmatch(r"(1\.9|2\.0)\d× as fast", changes["train"])
    assert context["operations"][0] == {
        "name": "convolution backward",
        "a": "48\N{NARROW NO-BREAK SPACE}s",
        "b": "24\N{NARROW NO-BREAK SPACE}s",
        "change": "2.00× as fast",
    }
    assert context["machines"] == [] and {row["name"] for row in context["same_machine"]} >= {
        "processor",
        "numpy",
    }


@pytest.mark.parametrize(
    "a, b, share, text",
    [
        (0.95, 0.97, True, "+2.00 points"),
        (0.97, 0.95, True, "−2.00 points"),
        (10, 5, False, "−50 %"),
        (1e-3, 4, False, "4,000×"),
        (0, 4, False, ""),
        (None, 4, False, ""),
        (3, 3, False, ""),
        (1.0, float("nan"), False, ""),
    ],
)
def test_changes_are_points_percent_or_factors(a, b, share, text):
    assert diff._change(a, b, share).replace(templates.NARROW_SPACE, " ") == text


def test_another_machine_is_said(results, runs, tmp_path):
    elsewhere = shutil.copytree(results, tmp_path / "results")
    machine = runs["faster"]["train"].manifest["machine"] | {"processor": "Another Processor"}
    manifest_files.rewrite(
        elsewhere / "train" / runs["faster"]["train"].version, machine=machine, threads=64
    )
    found = diff.Difference(
        lineage.Store(elsewhere), runs["usual"]["train"].version, runs["faster"]["train"].version
    )
    rows = {row["name"]: row for row in diff.context(found)["machines"]}
    assert (
        rows["processor"]["b"] == "Another Processor"
        and rows["threads used"]["b"] == "64"
        and set(rows) == {"processor", "threads used"}
    )


def test_weights_differ_layer_by_layer(difference):
    for role in ("train", "report", "svm"):
        weights = diff.context(difference("usual", "faster", role))["weights"]
        assert [bar["name"] for bar in weights["bars"][0]["bars"]] == [
            "enc1",
            "enc2",
            "dec1",
            "dec2",
            "dec3",
        ]
        assert {bar["text"][:2] for bar in weights["bars"][0]["bars"]} <= {"10", "9."}
    folded = diff.context(difference("resnet", "other resnet"))["weights"]["bars"]
    assert [part["stage"] for part in folded] == ["", "stage1", "stage2", "stage3", "stage4", ""]


def test_weights_that_are_the_same_are_called_so(difference):
    assert diff.context(difference("usual", "svm"))["weights"]["same"]
    # other versions, the same bytes
    assert diff.context(difference("usual", "whitened"))["weights"]["same"]


def test_two_networks_have_no_weights_to_compare_but_a_page(difference):
    found = difference("usual", "resnet")
    assert "two networks" in diff.context(found)["weights"]["fault"]
    assert "Two reports" in text_of(diff.page(found))


def test_damage_and_what_is_gone_do_not_keep_the_page_from_being_made(results, runs, tmp_path):
    broken = shutil.copytree(results, tmp_path / "results")
    (broken / "train" / runs["faster"]["train"].version / "weights.bin").write_bytes(b"damaged")
    shutil.rmtree(broken / "data" / runs["usual"]["data"].version)
    found = diff.Difference(
        lineage.Store(broken), runs["usual"]["report"].version, runs["faster"]["report"].version
    )
    assert "damaged" in diff.context(found)["weights"]["fault"]
    assert "None" not in text_of(diff.page(found))
    shutil.rmtree(broken / "svm" / runs["faster"]["svm"].version)
    again = diff.Difference(
        lineage.Store(broken), runs["usual"]["report"].version, runs["faster"]["report"].version
    )
    assert {pair.label: pair.state for pair in again.pairs}[
        "svm"
    ] == "no longer available for comparison"
    diff.page(again)


def test_a_version_can_be_named_by_its_beginning(results, runs):
    store, version = lineage.Store(results), runs["resnet"]["train"].version
    assert (
        diff.resolve(store, version) == diff.resolve(store, f"results/train/{version}/") == version
    )
    assert diff.resolve(store, version[:8]) == version


@pytest.mark.parametrize(
    "name, words",
    [
        ("r00000000000", "the nearest are r"),
        ("z", "there is no version z"),
        ("r", "more than one version"),
        ("", "no version"),
    ],
)
def test_a_version_that_is_not_there_is_named_with_the_nearest(results, runs, name, words):
    with pytest.raises(UserError, match=words):
        diff.resolve(lineage.Store(results), name)


def test_nothing_to_compare_is_said(tmp_path):
    with pytest.raises(UserError, match="holds no artifacts"):
        diff.resolve(lineage.Store(tmp_path), "r0")


def test_two_stages_or_one_version_twice_cannot_be_compared(results, runs):
    store, run = lineage.Store(results), runs["usual"]
    with pytest.raises(UserError, match="a version of report and t.* one of train"):
        diff.Difference(store, run["report"].version, run["train"].version)
    with pytest.raises(UserError, match="the same version"):
        diff.Difference(store, run["report"].version, run["report"].version)


def called(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True
    )


def test_the_command_writes_the_page_or_says_in_one_line_why_not(results, runs, tmp_path):
    a, b = (runs[name]["report"].version for name in ("usual", "faster"))
    output = tmp_path / "new/diff.html"
    made = called(a, b, "--results", results, "--output", output)
    assert (
        made.returncode == 0
        and "the first difference is in train" in made.stdout
        and "Two reports" in output.read_text()
    )
    refused = called(a, "r00000000000", "--results", results, "--output", tmp_path / "none.html")
    assert (
        refused.returncode == 2
        and len(refused.stderr.splitlines()) == 1
        and "Traceback" not in refused.stderr
    )
    assert not pathlib.Path(tmp_path / "none.html").exists()
    refused = called(a, b, "--results", results, "--output", tmp_path)
    assert (refused.returncode, refused.stderr) == (2, f"cannot write {tmp_path}: Is a directory\n")


@pytest.mark.parametrize(
    "role", ["data", "normalized", "initial", "train", "evaluate", "features", "svm", "report"]
)
def test_any_stage_can_be_compared(results, runs, role):
    store = lineage.Store(results)
    versions = [version for version in store.folders() if store.stage(version) == role]
    for other in versions[1:]:
        page = diff.page(diff.Difference(store, versions[0], other))
        assert "None" not in text_of(page) and all(
            " scope=" in tag for tag in re.findall(r"<th\b[^>]*>", page)
        )


class Family:
    """A store of versions that have nothing but parents."""

    def __init__(self, parents):
        self.every = parents

    def parents(self, version):
        return self.every.get(version, {})

    def stage(self, version):
        return (
            {"d": "data", "t": "train", "f": "features", "s": "svm", "r": "report"}[version[0]]
            if version
            else None
        )

    def manifest(self, version):
        return {
            "spec": {
                "stage": self.stage(version),
                "params": {},
                "sources": {},
                "parents": self.parents(version),
            }
        }


def test_repetitions_are_told_by_name_once_and_apart_from_the_run():
    chain = (
        {f"s{n}": {"features": f"f{n}", "data": "d1"} for n in (1, 2, 3)}
        | {f"f{n}": {"train": f"t{n}", "data": "d1"} for n in (1, 2, 3)}
        | {f"t{n}": {"data": "d1"} for n in (1, 2, 3)}
    )
    own = {"data": "d1", "train": "t1", "features": "f1", "svm": "s1"}
    repeated = {**own, "svm_seed2": "s2", "svm_seed3": "s3", "score_ablation1": "s4"}
    family = Family(chain | {"s4": {"features": "f1", "data": "d1"}, "r1": own, "r2": repeated})
    of = diff.Difference(family, "r1", "r2")
    assert [(pair.label, pair.a, pair.b) for pair in of.run] == [
        ("data", "d1", "d1"),
        ("train", "t1", "t1"),
        ("features", "f1", "f1"),
        ("svm", "s1", "s1"),
        ("report", "r1", "r2"),
    ]
    assert diff._repeats(of) == [
        {"name": "seed 2", "how": "only in B: 3 artifacts"},
        {"name": "seed 3", "how": "only in B: 3 artifacts"},
        {"name": "ablation 1", "how": "only in B: 1 artifact"},
    ]
    versions = [version for pair in of.pairs for version in {pair.a, pair.b} - {None}]
    assert len(versions) == len(set(versions)), "each artifact once"


def test_the_page_begins_with_what_happened_to_the_accuracy(difference, runs, monkeypatch):
    a, b = (runs[name]["svm"] for name in ("usual", "svm"))
    found = difference("usual", "svm")
    labels = np.asarray(runs["usual"]["data"].array("test_labels.npy"))
    answers = np.asarray(a.array("predictions.npy"))
    better = answers.copy()
    better[np.flatnonzero(answers != labels)[:9]] = labels[answers != labels][:9]
    read = artifacts.Artifact.array
    monkeypatch.setattr(
        artifacts.Artifact,
        "array",
        lambda one, name: (
            better if one.version == b.version and name == "predictions.npy" else read(one, name)
        ),
    )
    context = diff.context(found)
    verdict, chart = context["verdict"], context["accuracies"]
    assert chart["series"][1]["x"] + chart["series"][0]["x"] == [
        a.metrics["accuracy"],
        b.metrics["accuracy"],
    ]
    assert [row["note"] for row in chart["y"]["rows"]] == [
        "360 test images",
        "+2.5 points, more than luck",
    ]
    told = intervals.words(intervals.paired(9, 0, 360))
    assert verdict["same_images"] and verdict["points"] == told["points"] == "+2.5"
    assert verdict["interval_text"] == told["interval_text"]
    assert f"{told['points']} points ({told['interval_text']}, more than luck)" in text_of(
        diff.page(found)
    )


def test_accuracies_on_different_images_are_said_to_be_that(difference):
    found = difference("usual", "elsewhere")
    verdict = diff.context(found)["verdict"]
    assert not verdict["same_images"] and verdict["formula"] == intervals.FORMULAS[False]
    assert (
        "They were measured on different images: 360 test images in A, 360 test images in B."
        in text_of(diff.page(found))
    )


def test_trainings_that_nobody_scored_have_no_verdict(difference):
    assert diff.context(difference("usual", "faster", "train"))["verdict"] is None
