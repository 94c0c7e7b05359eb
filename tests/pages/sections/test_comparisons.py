"""Comparisons of a run's accuracy: other classifiers, seeds, the list of runs, and the number of
scores on the test images.
"""

import json

import numpy as np
import pytest
import scipy.stats

import synthetic_run
from ladder.pages import facts, intervals, report, verdicts
from ladder.pages.sections import comparisons
from ladder.store import scores

ENTRIES = [
    {"overrides": {"features_flip": False}, "reason": ""},
    {"overrides": {"variant": "gpu_basic"}, "reason": "no GPU"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return synthetic_run.make(
        folder, evaluations=("linear", "ridge", "knn"), seeds=(0, 2, 12), listed=1
    )


def test_the_accuracies_are_the_artifacts(run):
    found = comparisons.accuracies(run)
    assert list(found) == [
        f"{name}{of}"
        for name in ("svm", "linear", "ridge", "knn")
        for of in ("", "_random", "_pixels")
    ]
    assert all(value == run[role].metrics["accuracy"] for role, value in found.items())


def test_mean_and_interval_over_the_seeds_are_students(run):
    found = comparisons.seeds(run, own=1)
    assert (
        found["seeds"] == [0, 1, 2, 12]
        and found["scores"].keys() == comparisons.accuracies(run).keys()
    )
    each = [
        run[f"knn_random{seed}"].metrics["accuracy"] for seed in ("_seed0", "", "_seed2", "_seed12")
    ]
    score = found["scores"]["knn_random"]
    assert score["each"] == each and score["mean"] == pytest.approx(np.mean(each))
    assert score["interval"] == pytest.approx(
        scipy.stats.t.interval(0.95, 3, np.mean(each), scipy.stats.sem(each))
    )


@pytest.mark.parametrize(
    "each, said",
    [
        ((0.8875, 0.9425), "56.6 to 100"),
        ((0.01, 0.03), "0 to 14.7"),
        ((0.5, 0.5), "no spread"),
        ((0.91, 0.92, 0.93), "± 2.5"),
        ((0.1, 0.9), "0 to 100"),
    ],
)
def test_an_interval_stays_between_0_and_100_percent(each, said):
    (row,) = comparisons.seed_table(
        {"seeds": [1, 2], "scores": {"svm": comparisons._score(list(each))}}, "trained"
    )["rows"]
    assert row["reach"] == said


def test_a_run_of_one_seed_has_no_interval(run):
    alone = {role: one for role, one in run.items() if "_seed" not in role}
    assert (
        comparisons.seeds(alone, own=1) is None and comparisons.seed_table(None, "trained") is None
    )


def test_a_listed_run_is_held_against_this_one_image_by_image(run):
    changed, missing = comparisons.runs(run, ENTRIES, own=1)
    labels = run["data"].array("test_labels.npy")
    here, there = (run[role].array("predictions.npy") == labels for role in ("ridge", "score_run1"))
    against = changed["against"]
    assert (against["won"], against["lost"]) == ((there & ~here).sum(), (here & ~there).sum())
    assert against["difference"] == pytest.approx(
        changed["mean"] - run["ridge"].metrics["accuracy"]
    )
    assert changed["versions"] == [run["score_run1"].version]
    assert changed["interval"] == list(intervals.wilson(changed["mean"], 360))
    assert (missing["mean"], missing["against"], missing["reason"]) == (None, None, "no GPU")
    assert comparisons.runs(run, (), own=1) is None


def test_one_run_of_a_list_stands_on_the_first_screen_and_three_do_not(run):
    entry = {"overrides": {"multiplier": "mine.npy"}, "reason": ""}
    numbers = report.summary(run, "r0123456789e", {"runs": [entry]})
    labels = run["data"].array("test_labels.npy")
    here, there = (run[role].array("predictions.npy") for role in ("ridge", "score_run1"))
    ahead = intervals.words(intervals.counted(labels, here, there), "multiplier mine.npy")
    assert ahead["against"] in numbers["verdict"]
    rows = verdicts.first_screen(run, numbers)["chart"]["y"]["rows"]
    assert rows[1]["name"] == "multiplier mine.npy"
    assert rows[1]["text"] == intervals.share(run["score_run1"].metrics["accuracy"], 360)["text"]
    inputs = run | {f"score_run{number}": run["score_run1"] for number in (2, 3)}
    three = [{**entry, "overrides": {"multiplier": name}} for name in ("a", "b", "c")]
    many = report.summary(inputs, "r0123456789e", {"runs": three})
    assert "against multiplier" not in many["verdict"] and len(many["runs"]) == 3


def test_runs_that_differ_in_their_seed_alone_are_a_mean_and_are_paired_by_seed(run):
    overrides = [{"seed": 2}, {"seed": 12}, *({"svm_C": 3, "seed": seed} for seed in (12, 2, 3))]
    entries = [
        {"overrides": one, "reason": "", "tags": ["all"]} | ({"name": name} if name else {})
        for one, name in zip([*overrides, {"svm_C": 3}], ["a", "", "b", "", "c", ""], strict=True)
    ]
    roles = "ridge_seed2", "ridge_seed12", "knn_seed12", "knn_seed2", "knn", "linear"
    inputs = run | {f"score_run{number}": run[role] for number, role in enumerate(roles, 1)}
    this, other = comparisons.runs(inputs, entries, own=1)
    own = [run[role].metrics["accuracy"] for role in ("ridge", "ridge_seed2", "ridge_seed12")]
    assert (this["seeds"], this["each"], this["against"]) == ([1, 2, 12], own, None)
    each = [run[role].metrics["accuracy"] for role in ("linear", "knn_seed2", "knn", "knn_seed12")]
    assert (other["seeds"], other["each"], other["settings"]) == ([1, 2, 3, 12], each, {"svm_C": 3})
    assert (other["names"], other["tags"]) == (["b", "c"], ["all"])
    paired = np.subtract([each[0], each[1], each[3]], own)
    found = other["against"]
    assert (found["seeds"], found["won"]) == (3, None)
    assert found["difference"] == pytest.approx(paired.mean())
    assert found["difference_interval"] == pytest.approx(
        scipy.stats.t.interval(0.95, 2, paired.mean(), scipy.stats.sem(paired))
    )
    shown = comparisons._shown(other)
    assert shown["changes"] == {"svm_C": "3"} and shown["reach"] and shown["points"]


@pytest.mark.parametrize(
    "difference, interval, words",
    [
        (-30 / 360, [-0.12, -0.04], ("−8", "−12 to −4", "more than luck")),
        (-2 / 360, [-0.03, 0.02], ("−0.6", "−3.0 to +2.0", "could be luck")),
        (0.02, None, ("+2.0", "no spread", "")),
    ],
)
def test_a_difference_that_luck_could_explain_is_marked(difference, interval, words):
    against = {"difference": difference, "difference_interval": interval, "seeds": 1}
    row = {"settings": {}, "seeds": [1], "mean": 0.9, "interval": None, "against": against}
    shown = comparisons._shown(row)
    assert (shown["points"], shown["interval_text"], shown["luck_text"]) == words
    assert shown["reach"] == "no spread"


def test_looks_at_the_test_images_are_counted_once_and_at_validation_images_not(
    tmp_path,
):
    run = synthetic_run.make(tmp_path)
    assert comparisons.test_scores(run) == {"rows": "test", "run": 0, "all": 0}
    own, data = run["train"].version, run["data"].version
    lines = [
        ("s1", own, "digits", "test"),
        ("s1", own, "digits", "test"),
        ("s2", own, "digits", "test"),
        ("s3", "t9", "digits", "test"),
        ("s4", own, "digits", "validation"),
        ("s5", own, "mnist", "test"),
    ]
    for version, trained, dataset, rows in lines:
        line = f"2026-01-31T12:34:56Z,svm,{version},{trained},{dataset},{data},{rows}\n"
        scores._append(tmp_path / scores.NAME, line)
    assert comparisons.test_scores(run) == {"rows": "test", "run": 2, "all": 3}


def test_the_tables_say_who_read_what(run):
    numbers = json.loads(
        json.dumps(report.summary(run, "r0123456789e", {"runs": ENTRIES}), allow_nan=False)
    )
    table = comparisons.classifier_table(run, "trained")
    assert table["heads"] == ["trained", "untrained", "raw pixels"]
    assert [row["name"] for row in table["rows"]] == [
        "SVM",
        "logistic regression",
        "kernel ridge",
        "nearest neighbours",
    ]
    assert (
        comparisons.classifier_table({role: run[role] for role in ("svm", "svm_random")}, "trained")
        is None
    )
    for row, role in zip(table["rows"], ("svm", "linear", "ridge", "knn"), strict=True):
        own, *controls = row["cells"]
        assert own["difference"] is None and own["interval"] == list(
            intervals.wilson(run[role].metrics["accuracy"], 360)
        )
        for cell, tail in zip(controls, ("_random", "_pixels"), strict=True):
            assert cell["difference"] == intervals.words(
                facts.difference(run, run[role], run[f"{role}{tail}"])
            )
    rows = comparisons.seed_table(numbers["seeds"], "trained")["rows"]
    assert [(row["name"], row["note"]) for row in rows[:2]] == [
        ("SVM", "trained"),
        ("SVM", "untrained"),
    ]


def test_of_a_network_that_classifies_its_own_accuracy_varies_with_the_seed(tmp_path):
    run = synthetic_run.make(
        tmp_path, "mnist", network="lenet_5", features_layer="fc2_relu", seeds=(5,)
    )
    row = comparisons.seed_table(comparisons.seeds(run, own=1), "trained")["rows"][0]
    assert (row["name"], row["note"]) == ("the network itself", "") and len(row["each"]) == 2
