"""Targets of a run, judged by the numbers of its summary."""

import json

import pytest

from ladder.store import targets

NUMBERS = {
    "test_accuracy": 0.61,
    "test_loss": None,
    "loss": [0.5, 0.25],
    "seconds": {"train": 12.5},
    "accuracy": None,
    "svm": {"backend": "sklearn", "C": 10},
    "validation_curve": {"loss": [3, 2, 1], "stopped": True},
}


@pytest.mark.parametrize(
    "target, reached, met",
    [
        ({"metric": "test_accuracy", "at_least": 0.61}, 0.61, True),
        ({"metric": "test_accuracy", "at_least": 0.62}, 0.61, False),
        ({"metric": "test_accuracy", "at_most": 0.61}, 0.61, True),
        ({"metric": "test_accuracy", "at_most": 0.6}, 0.61, False),
        ({"metric": "loss", "at_most": 0.3}, 0.25, True),
        ({"metric": "validation_curve.loss", "at_most": 1}, 1, True),
        ({"metric": "seconds.train", "at_most": 12}, 12.5, False),
        ({"metric": "svm.C", "at_least": 10}, 10, True),
        *(
            ({"metric": metric, "at_most": 1e9}, None, False)
            for metric in (
                "test_loss",
                "accuracy",
                "seconds",
                "seconds.svm",
                "none",
                "svm.backend",
                "validation_curve.stopped",
                "loss.x",
            )
        ),
    ],
)
def test_a_target_is_met_by_the_number_that_it_names(target, reached, met):
    assert targets.judged([target], NUMBERS) == [{**target, "reached": reached, "met": met}]


def test_a_number_that_is_not_finite_meets_nothing():
    numbers = {"loss": json.loads("[1, NaN]"), "test_loss": json.loads("Infinity")}
    for metric in numbers:
        assert targets.judged([{"metric": metric, "at_least": 0}], numbers)[0]["reached"] is None
