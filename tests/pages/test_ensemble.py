"""The mean of the decisions of runs: its accuracy and difference against a case computed by hand,
and why there is none.
"""

import types

import numpy as np
import pytest

import manifest_files
from ladder.pages import ensemble, intervals, run_table
from ladder.store import artifacts

LABELS = [0, 1, 2, 1, 0]
# Decisions of the pairs (0, 1), (0, 2), (1, 2) for each image. Alone the first machine says 0, 0,
# 2, 0, 0 and the second 1, 1, 2, 2, 0; with their means 0, 1, 2, 2, 0: of the fourth image (1, -2,
# 0), and of the last a vote for each class.
FIRST = [(1, 1, 1), (1, 1, 1), (1, -1, -1), (1, -1, 1), (1, -1, 1)]
SECOND = [(-0.5, 1, 1), (-2, 1, 1), (1, -1, -1), (1, -3, -1), (1, -1, 1)]
SCORES = np.eye(3)[LABELS]


@pytest.fixture
def run(tmp_path):
    """A function that writes the artifacts of a run and returns it; kind: of its classifier."""

    def make(number, values, predictions, kind="svm", images=0, classes=(0, 1, 2)):
        data, score = f"d{number:011}", f"{kind[0]}{number:011}"
        with artifacts.making(tmp_path / "data" / data, manifest_files.spec("data")) as work:
            work.write_array("test_images.npy", np.full((5, 2, 2, 1), images, np.uint8))
            work.write_array("test_labels.npy", np.array(LABELS, np.uint8))
            work.write_array("train_labels.npy", np.array(classes, np.uint8))
            work.metrics = {"classes": ["a", "b", "c"]}
        with artifacts.making(tmp_path / kind / score, manifest_files.spec(kind)) as work:
            work.write_array("predictions.npy", np.array(predictions, np.uint8))
            if values is not None:
                work.write_array(
                    "probabilities.npy" if kind == "evaluate" else "decisions.npy",
                    np.array(values, np.float32),
                )
        accuracy = float(np.mean(np.array(predictions) == LABELS))
        return run_table.Run(
            number,
            {},
            train=types.SimpleNamespace(folder=tmp_path / "train" / "t"),
            tested=5,
            summary={"versions": {"data": data, kind: score}, "test_accuracy": accuracy},
        )

    return make


def test_accuracy_interval_and_difference_are_those_of_the_mean_decisions(run):
    found = ensemble.numbers([run(4, SECOND, [1, 1, 2, 2, 0]), run(2, FIRST, [0, 0, 2, 0, 0])])
    assert found == {
        "runs": [2, 4],
        "classifier": "svm",
        "accuracy": 0.8,
        "tested": 5,
        "best": 4,
        "accuracy_interval": list(intervals.wilson(0.8, 5)),
        **intervals.paired(1, 0, 5).numbers,
    }
    shown = ensemble.texts(found)
    assert shown["text"] == intervals.share(0.8, 5)["text"]
    assert shown["against"] == intervals.words(intervals.paired(1, 0, 5), "run 4")["against"]


@pytest.mark.parametrize("kind", ["ridge", "evaluate"])
def test_scores_and_probabilities_are_averaged_by_class(run, kind):
    wrong = np.roll(SCORES, 1, axis=1)
    surer, unsure = (
        run(1, 0.8 * SCORES, LABELS, kind),
        run(2, 0.6 * wrong, np.argmax(wrong, axis=1), kind),
    )
    assert ensemble.numbers([surer, unsure])["accuracy"] == 1
    surest = run(3, 0.9 * wrong, np.argmax(wrong, axis=1), kind)
    found = ensemble.numbers([surer, unsure, surest])
    assert (found["accuracy"], found["won"], found["lost"], found["best"]) == (0, 0, 5, 1)


def test_a_class_without_training_images_is_never_named(run):
    machines = [
        run(number, [(1,), (-1,)] * 2 + [(1,)], [0, 2, 0, 2, 0], classes=(0, 2))
        for number in (1, 2)
    ]
    assert ensemble.numbers(machines)["accuracy"] == 0.4


@pytest.mark.parametrize(
    "other, reason",
    [
        ({"kind": "ridge", "values": SCORES}, "their classifiers are of different kinds"),
        ({"images": 9}, "they were scored on different images"),
        ({"classes": (0, 1, 2, 3)}, "they know different classes"),
        ({"values": None}, "the decisions of run 2 are not there"),
    ],
)
def test_runs_that_have_no_mean_say_why(run, other, reason):
    found = ensemble.numbers(
        [run(1, FIRST, LABELS), run(2, **{"values": SECOND, "predictions": LABELS, **other})]
    )
    assert found == {"runs": [1, 2], "reason": reason}
    assert ensemble.csv_lines(found) == [{"run": "mean", "test_accuracy": None, "reason": reason}]


def test_one_run_has_no_mean_and_no_line(run):
    assert ensemble.numbers([run(1, FIRST, LABELS)]) is None and ensemble.csv_lines(None) == []
