"""The section on classes shows the accuracy of each, and the mistakes."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from ladder.data import names
from ladder.pages import facts, intervals
from ladder.pages.sections import classes


def cut(sheet, at):
    """The picture number `at` of a sheet."""
    whole = np.asarray(
        Image.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2]))), int
    )
    top, left = at // sheet["columns"] * sheet["height"], at % sheet["columns"] * sheet["width"]
    return whole[top : top + sheet["height"], left : left + sheet["width"]]


@pytest.mark.parametrize("name", ["digits", "lenet"])
def test_every_error_is_in_the_gallery_with_its_picture_by_pair_of_classes(name, request):
    run = request.getfixturevalue(name)
    role = "evaluate" if name == "lenet" else "svm"
    labels, named = (
        np.asarray(run["data"].array("test_labels.npy")),
        np.asarray(run[role].array("predictions.npy")),
    )
    gallery = classes.gallery(run)
    counts = [pair["count"] for pair in gallery["pairs"]]
    assert (
        gallery["count"] == gallery["shown"] == sum(counts) == (labels != named).sum()
        and counts == sorted(counts)[::-1]
    )
    at = 0
    for pair in gallery["pairs"]:
        rows = np.flatnonzero((labels == int(pair["true"])) & (named == int(pair["named"])))
        assert sorted(error["row"] for error in pair["errors"]) == rows.tolist() and pair[
            "count"
        ] == len(rows)
        assert pair["of"] == (labels == int(pair["true"])).sum()
        for error in pair["errors"]:
            assert error["at"] == at
            assert (
                np.abs(
                    cut(gallery["sheet"], at) - run["data"].array("test_images.npy")[error["row"]]
                ).mean()
                < 12
            )
            at += 1
    for pair in gallery["pairs"]:
        sure = [float(re.search(r"[\d.]+", error["sure"])[0]) for error in pair["errors"]]
        assert sure == sorted(sure, reverse=True)
        assert all(("margin" in error["sure"]) == (name == "digits") for error in pair["errors"])
    assert classes.section({role: run[role] for role in ("data", "train")}, {}) is None


def test_of_too_many_errors_every_pair_has_some_and_frequent_ones_lose_most(digits, monkeypatch):
    whole = classes.gallery(digits)
    monkeypatch.setattr(classes, "MOST", whole["count"] - 1)
    fewer = classes.gallery(digits)
    most = whole["pairs"][0]["count"]
    assert [len(pair["errors"]) for pair in fewer["pairs"]] == [
        min(most - 1, pair["count"]) for pair in whole["pairs"]
    ]
    assert fewer["shown"] < fewer["count"] == whole["count"]
    monkeypatch.setattr(classes, "MOST", 3)
    assert [len(pair["errors"]) for pair in classes.gallery(digits)["pairs"]] == [1, 1, 1]


def test_of_a_million_errors_only_the_most_frequent_pairs_are_looked_at(
    monkeypatch,
):
    pairs = [range(10**6), *[range(20)] * (classes.MOST - 1), *[None] * 10**5]
    assert [len(rows) for rows in classes._most(pairs)] == [1] * classes.MOST
    monkeypatch.setattr(classes, "MOST", 5)
    assert [len(rows) for rows in classes._most([range(10**6), range(2)])] == [3, 2]


def test_an_error_names_the_file_of_its_picture(digits, monkeypatch):
    errors = [error for pair in classes.gallery(digits)["pairs"] for error in pair["errors"]]
    assert {error["file"] for error in errors} == {""}
    monkeypatch.setattr(
        names,
        "read",
        lambda data, part: [f"{part}/a\n{row}" for row in range(data.metrics["test"])],
    )
    errors = [error for pair in classes.gallery(digits)["pairs"] for error in pair["errors"]]
    assert [error["file"] for error in errors] == [f"test/a\\n{error['row']}" for error in errors]


def test_a_class_has_its_accuracy_and_interval_and_the_best_is_first(lenet, monkeypatch):
    shares = {"few": 35 / 37, "none": None, "many": 3500 / 3700, "all": 1.0}
    metrics = {
        "per_class": shares,
        "confusion": [[37, 0, 0, 0], [0, 0, 0, 0], [3700, 0, 0, 0], [10, 0, 0, 0]],
    }
    monkeypatch.setattr(
        facts, "predictions", lambda inputs: type("Evaluated", (), {"metrics": metrics})
    )
    chart = classes.accuracies(lenet)["all"]
    notes = {row["name"]: row["note"] for row in chart["y"]["rows"]}
    # a class without images has no row
    assert list(notes.items()) == [("all", "of 10"), ("few", "of 37"), ("many", "of 3,700")]
    (drawn,) = chart["series"]
    assert drawn["x"] == [1.0, 35 / 37, 35 / 37] and drawn["y"] == [0, 1, 2]
    ends = list(zip(drawn["low"], drawn["high"], strict=True))
    assert ends[1:] == [intervals.wilson(35 / 37, n) for n in (37, 3700)]


def test_the_untrained_encoder_has_a_mark_at_its_accuracy_of_the_class(digits):
    control = digits["svm_random"].metrics["per_class"]
    chart = classes.accuracies(digits)
    names, marks = [row["name"] for row in chart["all"]["y"]["rows"]], chart["all"]["series"][1]
    assert dict(zip(names, marks["x"], strict=True)) == control and marks["look"] == ["tick"] * 10
    assert chart["ends"] is None


def test_mistakes_are_tinted_by_how_many_they_are():
    (right, few, many, none), *_ = [
        row["cells"]
        for row in classes.confusion(
            [[6, 1, 3, 0], [0] * 4, [0] * 4, [0] * 4], ["a", "b", "c", "d"]
        )
    ]
    assert right["strength"] == 60 and right["right"]
    # 0, 10 % and the most, 30 % of a class
    assert (none["strength"], few["strength"], many["strength"]) == (0, 33, 100)


def test_one_error_of_126_is_nearly_as_pale_as_none_beside_28():
    matrix = [[97, 28, 1], [0, 126, 0], [0, 0, 126]]
    _, many, one = classes.confusion(matrix, ["a", "b", "c"])[0]["cells"]
    assert (many["strength"], one["strength"]) == (100, 4)
    assert classes.most_mistaken(matrix) == 28 / 126


def test_of_many_classes_the_matrix_shows_those_with_the_most_errors():
    count = classes.FEW + 5
    matrix = np.diag(np.full(count, 9))
    matrix[5:, 0] = np.arange(count - 5)  # class 5 has no error, 6 has one, ...
    rows = classes.confusion(matrix.tolist(), [f"c{number}" for number in range(count)])
    assert [row["name"] for row in rows] == ["c0", *(f"c{number}" for number in range(6, count))]
    assert [len(row["cells"]) for row in rows] == [classes.FEW] * classes.FEW
    assert rows[-1]["cells"][0]["count"] == count - 6 and rows[-1]["others"] == 0
    few = classes.confusion(matrix[:3, :3].tolist(), ["a", "b", "c"])
    assert [row["others"] for row in few] == [None] * 3
