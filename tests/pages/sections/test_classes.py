"""The section on classes shows the accuracy of each, and the mistakes."""

import base64
import io
import re

import numpy as np
from PIL import Image

from ladder.data import names
from ladder.pages import facts, figures, intervals
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


def test_a_class_has_a_dot_and_the_interval_of_its_images_on_an_axis_that_begins_at_0(lenet, monkeypatch):
    shares = {"few": 35 / 37, "none": None, "many": 3500 / 3700, "all": 1.0}
    metrics = {"per_class": shares, "confusion": [[37, 0, 0, 0], [0, 0, 0, 0], [3700, 0, 0, 0], [10, 0, 0, 0]]}
    monkeypatch.setattr(facts, "predictions", lambda inputs: type("Evaluated", (), {"metrics": metrics}))
    chart = classes.accuracies(lenet)["all"]
    first, *rows = chart["rows"]   # best first; a class without images has no row
    assert first["name"] == "all" and {row["name"]: row["note"] for row in rows} == {"few": "of 37", "many": "of 3,700"}
    ticks = [(tick["text"], tick["at"]) for tick in chart["ticks"]]
    assert ticks[0] == ("0 %", 0) and ticks[-1] == ("100 %", 100)
    for row in rows:
        n = {"few": 37, "many": 3700}[row["name"]]
        assert row["interval"] == list(intervals.wilson(35 / 37, n)) and row["at"] == round(3500 / 37, 2)
        assert [row["left"], row["right"]] == [round(100 * end, 2) for end in row["interval"]] and row["mark"] is None


def test_the_untrained_encoder_has_a_mark_at_its_accuracy_of_the_class(digits):
    control = digits["svm_random"].metrics["per_class"]
    chart = classes.accuracies(digits)
    assert {row["name"]: row["mark"] for row in chart["all"]["rows"]} == {
        name: round(100 * value, 2) for name, value in control.items()} and chart["ends"] is None


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
