"""The parts of a report show the contents of the artifacts."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

import synthetic_run
from ladder.executors.create import COPIES
from ladder.network import networks, weights
from ladder.pages import report_sections, templates


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("lenet"), "mnist", network="lenet_5", epochs=3)


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("dense"), "mnist", network="lenet_300_100", steps=7)


def picture(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


@pytest.mark.parametrize("steps, points", [(1, 1), (7, 7), (50, 25), (230, 26), (500, 50), (10_000, 100), (123_456, 100)])
def test_a_curve_has_as_many_points_as_its_steps_can_bear(steps, points):
    windows = report_sections._windows(steps)
    assert len(windows) == points
    assert [step for window in windows for step in range(window.start, window.stop)] == list(range(steps))
    lengths = {window.stop - window.start for window in windows}
    assert max(lengths) - min(lengths) <= 1


def test_the_last_batch_of_an_epoch_is_what_is_left(lenet):
    images = lenet["data"].metrics["train"]
    sizes = report_sections.batch_sizes(lenet["train"], images)
    assert len(sizes) == lenet["train"].metrics["steps"] and sizes.sum() == 3 * images
    assert sizes[:22].tolist() == [64] * 22 and sizes[22] == images - 22 * 64


def test_curves_are_means_over_images(lenet, monkeypatch):
    monkeypatch.setattr(report_sections, "_windows", lambda steps: [slice(0, 23), slice(23, 46), slice(46, 69)])
    epochs = lenet["train"].metrics
    loss, accuracy = report_sections.loss_curve(lenet, None), report_sections.accuracy_curve(lenet)
    losses, level = loss["data"]["series"]
    assert losses["x"] == [11.5, 34.5, 57.5] and [round(losses["by"][1] * x, 6) for x in losses["x"]] == [0.5, 1.5, 2.5]
    assert losses["y"] == pytest.approx(epochs["loss"], rel=1e-5)
    assert accuracy["data"]["series"][0]["y"] == pytest.approx(epochs["accuracy"], rel=1e-5)
    tested = lenet["evaluate"].metrics["loss"]
    assert level["label"] == f"test images {tested:.4g}" and level["y"] == pytest.approx([tested] * 2, rel=1e-5)
    assert level["x"] == [0, 69] and loss["still"]["labels"][1]["text"] == level["label"]
    assert report_sections.curves(lenet) == {"step": losses["x"], "loss": losses["y"],
                                             "accuracy": accuracy["data"]["series"][0]["y"]}


@pytest.mark.parametrize("parts, ends", [([69], [0, 23, 46, 69]), ([10, 59], [0, 10, 33, 56, 69])])
def test_seconds_go_by_the_measured_passes_of_each_epoch(lenet, monkeypatch, parts, ends):
    """The passes of the first epoch took as long as those of two others; copies to a GPU run beside them."""
    metrics = lenet["train"].metrics
    epochs = [{"forward": 1.0, "backward": 3.0, COPIES: 9.0}, *[{"forward": 0.5, "backward": 1.5}] * (len(ends) - 2)]
    monkeypatch.setitem(metrics, "parts", [{"steps": steps} for steps in parts])
    monkeypatch.setitem(metrics, "seconds_by_pass", epochs)
    images = lenet["data"].metrics["train"]
    whole = report_sections.batch_sizes(lenet["train"], images).sum() / metrics["images_per_second"]
    at_ends = report_sections.paces(lenet["train"], images, [(end, 0.0) for end in ends])[2]
    assert at_ends == pytest.approx([whole * at / len(ends) for at in (0, *range(2, len(ends) + 1))])
    assert report_sections.paces(lenet["train"], images, [(ends[1] / 2, 0.0)])[2] == pytest.approx([whole / len(ends)])
    monkeypatch.setitem(metrics, "seconds_by_pass", [{}] * (len(ends) - 1))   # a GPU's first samples come later
    assert report_sections.paces(lenet["train"], images, [(34.5, 0.0)])[2] == pytest.approx([whole / 2])


def test_an_autoencoder_has_no_accuracy_in_training(tmp_path):
    run = synthetic_run.make(tmp_path, controls=())
    assert report_sections.accuracy_curve(run) is None
    assert report_sections.loss_curve(run, 0.07)["still"]["labels"][1]["text"] == "average image 0.07"


@pytest.mark.parametrize("network, names", [("lenet_5", ["training", "hold-out"]),
                                            ("autoencoder", ["training", "hold-out", "average image"])])
def test_the_hold_out_curve_has_a_point_after_each_epoch_beside_the_training(tmp_path, network, names):
    run = synthetic_run.make(tmp_path, network=network, holdout=180, epochs=4, controls=())
    history, shown = run["train"].tensors("history.safetensors"), report_sections.loss_curve(run, 0.07)["data"]["series"]
    assert [one["name"] for one in shown] == names and shown[1]["series"] == 2   # a colour that is drawn dashed
    assert shown[1]["x"] == [26, 52, 78, 104] and shown[1]["y"] == pytest.approx(history["held_out_losses"], rel=1e-5)
    assert shown[1]["by"][:2] == shown[0]["by"][:2] and shown[1]["label"] == f"hold-out {history['held_out_losses'][-1]:.4g}"
    accuracy = report_sections.accuracy_curve(run)
    if network == "lenet_5":
        assert accuracy["data"]["series"][1]["y"] == pytest.approx(history["held_out_hits"] / 180, rel=1e-5)
        assert [one["name"] for one in accuracy["data"]["series"]] == names
    found = report_sections.held_out(run)
    assert found["step"] == shown[1]["x"] and found["loss"] == history["held_out_losses"].tolist()
    assert (found["best_epoch"], found["patience"], found["stopped"], found["epochs_at_most"]) == (2, 0, False, 4)
    assert (found["accuracy"] is None) == (network == "autoencoder")


def test_without_a_hold_out_set_nothing_was_measured_on_one(lenet):
    assert report_sections.held_out(lenet) is None


def test_the_surest_mistakes_come_first(lenet):
    labels, predictions = np.asarray(lenet["data"].array("test_labels.npy")), lenet["evaluate"].array("predictions.npy")
    probabilities = np.asarray(lenet["evaluate"].array("probabilities.npy"))
    wrong = np.flatnonzero(labels != predictions)
    surest = wrong[np.argmax(probabilities[wrong].max(axis=1))]
    found = report_sections.mistakes(lenet)
    assert found["count"] == len(wrong) and len(found["shown"]) == min(len(wrong), report_sections.MISTAKES)
    first = found["shown"][0]
    assert (first["true"], first["named"]) == (str(labels[surest]), str(predictions[surest]))
    assert np.array_equal(picture(first["image"]), lenet["data"].array("test_images.npy")[surest][..., 0])
    sure = [float(re.search(r"[\d.]+", one["sure"])[0]) for one in found["shown"]]
    assert sure == sorted(sure, reverse=True)


def test_no_probability_below_one_is_called_certain():
    assert report_sections._sure(0.99949).startswith("99.9") and report_sections._sure(0.99999).startswith("> 99.9")


def test_filters_of_one_channel_are_grey_pictures(lenet):
    found = report_sections.filters(lenet["train"], networks.from_params(lenet["train"].manifest["spec"]["params"]))
    assert (found["layer"], found["count"], found["shown"], found["size"]) == ("conv1", 6, 6, "5 × 5")
    pixels = picture(found["image"])
    assert (pixels[..., 0] == pixels[..., 1]).all() and len(np.unique(pixels[..., 0])) > 20


def test_units_of_a_dense_first_layer_are_shown_as_images(dense):
    network = networks.from_params(dense["train"].manifest["spec"]["params"])
    found = report_sections.filters(dense["train"], network)
    assert (found["count"], found["shown"], found["size"]) == (300, report_sections.UNIT_LIMIT, "28 × 28") and found["dense"]
    first = weights.read(dense["train"].path("weights.safetensors"), network)["fc1.weight"]
    strongest = first[np.argmax(np.linalg.norm(first, axis=1))].reshape(28, 28)
    tile = picture(found["image"])[:56:2, :56:2, 0].astype(float)   # each pixel twice as large
    assert np.corrcoef(tile.ravel(), strongest.ravel())[0, 1] > 0.999


def test_a_first_layer_of_other_channels_is_not_shown(dense):
    of = networks.build("lenet_5", (32, 32, 5))
    names = {name: np.zeros(shape, np.float32) for name, shape in weights.shapes(of).items()}
    path = dense["train"].folder / "other.safetensors"
    weights.save(path, of, names)

    class Train:
        @staticmethod
        def path(name):
            return path

    assert report_sections.filters(Train, of) is None


@pytest.mark.parametrize("shares, cut, lengths", [
    ({"a": 0.5, "b": 0.75, "c": 1.0}, 0, [100, 75, 50]),
    ({"a": 0.95, "b": 0.99, "c": 1.0}, 0.9, [100, 90, 50]),
    ({"a": 1.0, "b": 1.0}, 0.9, [100, 100]),
])
def test_the_bar_of_a_class_ends_at_its_accuracy_on_the_axis(lenet, monkeypatch, shares, cut, lengths):
    metrics = {"per_class": {**shares, "d": None}, "confusion": [[1, 0, 0, 0]] * len([*shares, "d"])}
    monkeypatch.setattr(report_sections, "verdict", lambda inputs: type("Evaluated", (), {"metrics": metrics}))
    found = report_sections.classes(lenet)
    rows = found["rows"]
    assert [row["name"] for row in rows] == sorted(shares, key=lambda name: -shares[name])   # a class without images has no row
    assert found["cut"] == cut and [row["length"] for row in rows] == lengths
    ticks = {float(tick["text"].split(templates.NARROW_SPACE)[0]) / 100: tick["at"] for tick in found["ticks"]}
    assert len(ticks) >= 3 and ticks[1.0] == 100
    for row in rows:
        assert all((at < row["length"]) == (value < shares[row["name"]]) for value, at in ticks.items()
                   if abs(value - shares[row["name"]]) > 1e-9)


def test_the_movement_of_many_layers_is_folded_on_one_scale():
    layers = {"stem": 0.5, **{f"stage1_{block}_conv1": block / 100 for block in range(1, 31)}, "scores": 1.0}
    stem, stage, scores = report_sections.movement(layers)
    assert (stem["stage"], stage["stage"], stage["count"]) == ("", "stage1", 30)
    assert stage["range"].replace("\N{NARROW NO-BREAK SPACE}", " ") == "1.0 % to 30.0 %"
    assert stem["bars"][0]["length"] == 50 and scores["bars"][0]["length"] == 100
    assert [one["stage"] for one in report_sections.movement(dict(list(layers.items())[:5]))] == [""]
