"""The section on the training shows what the artifacts have of it."""

import re

import numpy as np
import pytest

import synthetic_run
from ladder.pages import report
from ladder.pages.sections import training


@pytest.mark.parametrize(
    "steps, points", [(1, 1), (7, 7), (50, 25), (230, 26), (500, 50), (10_000, 100), (123_456, 100)]
)
def test_a_curve_has_as_many_points_as_its_steps_can_bear(steps, points):
    windows = training._windows(steps)
    assert len(windows) == points
    assert [step for window in windows for step in range(window.start, window.stop)] == list(
        range(steps)
    )
    lengths = {window.stop - window.start for window in windows}
    assert max(lengths) - min(lengths) <= 1


def test_curves_are_means_over_images(lenet, monkeypatch):
    monkeypatch.setattr(
        training, "_windows", lambda steps: [slice(0, 23), slice(23, 46), slice(46, 69)]
    )
    epochs = lenet["train"].metrics
    loss, accuracy = training.loss_curve(lenet, None), training.accuracy_curve(lenet)
    losses, level = loss["chart"]["series"]
    assert losses["x"] == [11.5, 34.5, 57.5] and [
        round(losses["by"][1] * x, 6) for x in losses["x"]
    ] == [0.5, 1.5, 2.5]
    assert losses["y"] == pytest.approx(epochs["loss"], rel=1e-5)
    assert accuracy["chart"]["series"][0]["y"] == pytest.approx(epochs["accuracy"], rel=1e-5)
    tested = lenet["evaluate"].metrics["loss"]
    assert level["label"] == f"test images {tested:.4g}" and level["y"] == pytest.approx(
        [tested] * 2, rel=1e-5
    )
    assert level["x"] == [0, 69] and level["colour"] == "level"
    assert training.curve_points(lenet) == {
        "step": losses["x"],
        "loss": losses["y"],
        "accuracy": accuracy["chart"]["series"][0]["y"],
    }


def test_an_autoencoder_has_no_accuracy_in_training(tmp_path):
    run = synthetic_run.make(tmp_path, controls=())
    assert training.accuracy_curve(run) is None
    assert training.loss_curve(run, 0.07)["chart"]["series"][1]["label"] == "average image 0.07"


@pytest.mark.parametrize(
    "network, names",
    [
        ("lenet_5", ["training", "validation"]),
        ("autoencoder", ["training", "validation", "average image"]),
    ],
)
def test_the_validation_curve_has_a_point_after_each_epoch_beside_the_training(
    tmp_path, network, names
):
    run = synthetic_run.make(tmp_path, network=network, validation=180, epochs=4, controls=())
    history, shown = (
        run["train"].tensors("history.safetensors"),
        training.loss_curve(run, 0.07)["chart"]["series"],
    )
    # a colour that is drawn dashed
    assert [one["name"] for one in shown] == names and shown[1]["colour"] == 2
    assert shown[1]["x"] == [26, 52, 78, 104] and shown[1]["y"] == pytest.approx(
        history["validation_losses"], rel=1e-5
    )
    assert shown[1]["by"][:2] == shown[0]["by"][:2]
    assert shown[1]["label"] == f"validation {history['validation_losses'][-1]:.4g}"
    accuracy = training.accuracy_curve(run)
    if network == "lenet_5":
        assert accuracy["chart"]["series"][1]["y"] == pytest.approx(
            history["validation_hits"] / 180, rel=1e-5
        )
        assert [one["name"] for one in accuracy["chart"]["series"]] == names
    found = training.validation_curve(run)
    assert found["step"] == shown[1]["x"] and found["loss"] == history["validation_losses"].tolist()
    assert (found["best_epoch"], found["patience"], found["stopped"], found["epochs_at_most"]) == (
        2,
        0,
        False,
        4,
    )
    assert (found["accuracy"] is None) == (network == "autoencoder")


def test_of_many_epochs_the_report_has_some_the_last_among_them(tmp_path, monkeypatch):
    run = synthetic_run.make(tmp_path, network="lenet_5", validation=180, epochs=8, controls=())
    monkeypatch.setattr(training, "EPOCHS", 3)
    assert [list(training.spaced(count)) for count in (1, 3, 4, 8)] == [
        [0],
        [0, 1, 2],
        [1, 3],
        [1, 4, 7],
    ]
    for chart in (training.loss_curve(run, None), training.accuracy_curve(run)):
        assert chart["chart"]["series"][1]["x"] == [52, 130, 208]
    page = report.page(run, report.summary(run, "r0"))
    table = page[page.index("<summary>By epoch, 3 of 8, all in summary.json</summary>") :]
    assert re.findall(r'<th scope="row">(\d+)</th>', table[: table.index("</table>")]) == [
        "2",
        "5",
        "8",
    ]


def test_without_a_validation_set_nothing_was_measured_on_one(lenet):
    assert training.validation_curve(lenet) is None


def test_the_movement_of_many_layers_is_folded_on_one_scale():
    layers = {
        "stem": 0.5,
        **{f"stage1_{block}_conv1": block / 100 for block in range(1, 31)},
        "scores": 1.0,
    }
    stem, stage, scores = training.movement(layers)
    assert (stem["stage"], stage["stage"], stage["count"]) == ("", "stage1", 30)
    assert stage["range"].replace("\N{NARROW NO-BREAK SPACE}", " ") == "1.0 % to 30.0 %"
    assert stem["bars"][0]["length"] == 50 and scores["bars"][0]["length"] == 100
    assert [one["stage"] for one in training.movement(dict(list(layers.items())[:5]))] == [""]


def test_the_baseline_is_the_variance_of_the_training_pixels(digits):
    images = np.asarray(digits["data"].array("train_images.npy")) / 255
    assert training.average_image_loss(digits) == pytest.approx(images.var(axis=0).mean(), rel=1e-6)


def test_without_a_training_no_loss_has_changed(digits, lenet):
    untrained = {role: artifact for role, artifact in digits.items() if role != "train"}
    assert (
        training.loss_change(untrained) is None and training.reconstruction_loss(untrained) is None
    )
    assert training.reconstruction_loss(lenet) is None
