"""The section on classes shows the accuracy of each, and the mistakes."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from ladder.data import names
from ladder.pages import facts, figures, templates
from ladder.pages.sections import classes


def picture(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_the_surest_mistakes_come_first(lenet):
    labels, predictions = np.asarray(lenet["data"].array("test_labels.npy")), lenet["evaluate"].array("predictions.npy")
    probabilities = np.asarray(lenet["evaluate"].array("probabilities.npy"))
    wrong = np.flatnonzero(labels != predictions)
    surest = wrong[np.argmax(probabilities[wrong].max(axis=1))]
    found = classes.mistakes(lenet)
    assert found["count"] == len(wrong) and len(found["shown"]) == min(len(wrong), classes.MISTAKES)
    first = found["shown"][0]
    assert (first["true"], first["named"]) == (str(labels[surest]), str(predictions[surest]))
    assert np.array_equal(picture(first["image"]), lenet["data"].array("test_images.npy")[surest][..., 0])
    sure = [float(re.search(r"[\d.]+", one["sure"])[0]) for one in found["shown"]]
    assert sure == sorted(sure, reverse=True)


def test_a_mistake_names_the_file_of_its_picture(digits, monkeypatch):
    assert {one["file"] for one in classes.mistakes(digits)["shown"]} == {""}
    wrong = np.flatnonzero(digits["data"].array("test_labels.npy") != digits["svm"].array("predictions.npy"))
    monkeypatch.setattr(names, "of", lambda data, part: [f"{part}/a\n{row}" for row in range(data.metrics["test"])])
    assert [one["file"] for one in classes.mistakes(digits)["shown"]] == [f"test/a\\n{row}" for row in wrong[:classes.MISTAKES]]


def test_no_probability_below_one_is_called_certain():
    assert classes._sure(0.99949).startswith("99.9") and classes._sure(0.99999).startswith("> 99.9")


@pytest.mark.parametrize("shares, cut, lengths", [
    ({"a": 0.5, "b": 0.75, "c": 1.0}, 0, [100, 75, 50]),
    ({"a": 0.95, "b": 0.99, "c": 1.0}, 0.9, [100, 90, 50]),
    ({"a": 1.0, "b": 1.0}, 0.9, [100, 100]),
])
def test_the_bar_of_a_class_ends_at_its_accuracy_on_the_axis(lenet, monkeypatch, shares, cut, lengths):
    metrics = {"per_class": {**shares, "d": None}, "confusion": [[1, 0, 0, 0]] * len([*shares, "d"])}
    monkeypatch.setattr(facts, "predictions", lambda inputs: type("Evaluated", (), {"metrics": metrics}))
    found = classes.bars(lenet)
    rows = found["rows"]
    assert [row["name"] for row in rows] == sorted(shares, key=lambda name: -shares[name])   # a class without images has no row
    assert found["cut"] == cut and [row["length"] for row in rows] == lengths
    ticks = {float(tick["text"].split(templates.NARROW_SPACE)[0]) / 100: tick["at"] for tick in found["ticks"]}
    assert len(ticks) >= 3 and ticks[1.0] == 100
    for row in rows:
        assert all((at < row["length"]) == (value < shares[row["name"]]) for value, at in ticks.items()
                   if abs(value - shares[row["name"]]) > 1e-9)


def test_the_most_confused_pairs_come_with_their_images_and_none_that_happened_once(digits):
    labels, predictions = digits["data"].array("test_labels.npy"), digits["svm"].array("predictions.npy")
    pairs = classes.most_confused(digits)
    assert [pair["count"] for pair in pairs] == sorted((pair["count"] for pair in pairs), reverse=True)
    for pair in pairs:
        rows = np.flatnonzero((labels == int(pair["true"])) & (predictions == int(pair["named"])))
        assert pair["count"] == len(rows) > 1 and pair["of"] == (labels == int(pair["true"])).sum()
        images = digits["data"].array("test_images.npy")
        assert pair["images"] == [figures.png_uri(images[row]) for row in rows[:classes.PAIR_IMAGES]]
    assert classes.section({role: digits[role] for role in ("data", "train")}, {}) is None


def test_mistakes_are_tinted_by_how_many_they_are():
    (right, few, many, none), *_ = [row["cells"] for row in classes.confusion(
        [[6, 1, 3, 0], [0] * 4, [0] * 4, [0] * 4], ["a", "b", "c", "d"])]
    assert right["strength"] == 60 and right["right"]
    assert (none["strength"], few["strength"], many["strength"]) == (0, 33, 100)   # 0, 10 % and the most, 30 % of a class


def test_one_error_of_126_is_nearly_as_pale_as_none_beside_28():
    matrix = [[97, 28, 1], [0, 126, 0], [0, 0, 126]]
    _, many, one = classes.confusion(matrix, ["a", "b", "c"])[0]["cells"]
    assert (many["strength"], one["strength"]) == (100, 4)
    assert classes.most_mistaken(matrix) == 28 / 126


def test_of_many_classes_the_matrix_shows_those_with_the_most_errors():
    count = classes.FEW + 5
    matrix = np.diag(np.full(count, 9))
    matrix[5:, 0] = np.arange(count - 5)   # class 5 has no error, 6 has one, ...
    rows = classes.confusion(matrix.tolist(), [f"c{number}" for number in range(count)])
    assert [row["name"] for row in rows] == ["c0", *(f"c{number}" for number in range(6, count))]
    assert [len(row["cells"]) for row in rows] == [classes.FEW] * classes.FEW
    assert rows[-1]["cells"][0]["count"] == count - 6 and rows[-1]["others"] == 0
    few = classes.confusion(matrix[:3, :3].tolist(), ["a", "b", "c"])
    assert [row["others"] for row in few] == [None] * 3
