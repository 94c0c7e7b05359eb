"""The model card has words for all that a run can be."""

import itertools

import exported_run
from ladder.export import card
from ladder.pages import verdicts
from ladder.store import lineage

MEASURED = {
    "classes_that_differ": 2,
    "images": 500,
    "deviations": {"decisions": 3e-6},
    "decisions": "float32",
}
FACTS = {"image": [28, 28, 1], "classes": ["a", "b"]}


def test_every_classifier_has_its_decisions():
    assert card.DECISIONS.keys() == {"evaluate", *lineage.PRIMARY_CLASSIFIERS}


def test_every_control_is_named():
    of_features = [
        f"{classifier}{tail}"
        for classifier, tail in itertools.product(lineage.PRIMARY_CLASSIFIERS, verdicts.OF_FEATURES)
    ]
    controls = [
        {"control": name, "accuracy": 0.5, "interval": [0.4, 0.6]}
        for name in (*of_features, *verdicts.OF_CLASSIFIER, "majority")
    ]
    summary = {
        **exported_run.SUMMARY,
        "controls": controls,
        "answered_by": "evaluate",
        "dataset": "cifar10",
        "validation": 50,
        "program": {"version": "1.2.3", "commit": "0123456789abcdef", "clean": False},
    }
    text = card.text(
        summary, "m1", FACTS, MEASURED, {"model.onnx": {"bytes": 1500, "sha256": "5e"}}
    )
    assert (
        "| logistic regression on raw pixels | 50.00% | 40.00% to 60.00% |" in text
        and text.count("| 50.00% |") == 10
        and "| its mean over the classes | 62.50% | |" in text
    )
    assert (
        "500 validation images" in text
        and "the same classes but for 2 " in text
        and "scored" not in text
    )
    assert "Kernel Ladder 1.2.3, git commit 0123456789abcdef with changed files" in text
    assert "| model.onnx | 1.5 kB | `5e` |" in text
