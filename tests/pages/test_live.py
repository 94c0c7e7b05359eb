import json
import os
import re
import time

import numpy as np
import pytest

from ladder.pages import live
from ladder.store import artifacts

LOG = (
    "10:00:00 estimate: 3 s for 40 steps, 20 in an epoch\n10:00:01 step: 10, loss: 0.500, accuracy: 45.000%\n"
    "10:00:02 epoch 1/2  loss 0.25000  accuracy 61.50%  1.2 s  1,351 images/s\n"
)


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "results/train/t0").mkdir(parents=True)
    (tmp_path / "logs/train").mkdir(parents=True)
    return tmp_path / "results", tmp_path / "logs"


def test_before_any_training_there_is_nothing(folders):
    assert live.state(*folders) is None


def test_the_log_alone_gives_its_epochs_and_monitored_steps(folders):
    (folders[1] / "train/t0.log").write_text(LOG)
    found = live.state(*folders)
    assert found["epochs"] == [
        {
            "epoch": 1,
            "of": 2,
            "loss": 0.25,
            "accuracy": 0.615,
            "validation_loss": None,
            "validation_accuracy": None,
            "speed": "1,351",
            "seconds": 1.2,
        }
    ]
    assert (found["steps"], found["losses"], found["accuracies"]) == (
        [10],
        [0.5],
        [0.45],
    ) and not found["done"]


@pytest.mark.parametrize(
    "job, network",
    [
        ({"spec": {"params": {"network": "lenet_5"}}}, "LeNet-5"),
        ({}, ""),
        (
            {"spec": {"params": {"network": "autoencoder", "variational": True}}},
            "A variational autoencoder",
        ),
    ],
)
def test_the_training_is_named_by_its_network(folders, job, network):
    (folders[1] / "train/t0.log").write_text(LOG)
    assert live.state(*folders)["network"] == ""
    (folders[1] / "train/t0.json").write_text(json.dumps(job))
    assert live.state(*folders)["network"] == network
    (folders[1] / "train/t0.json").write_text('{"spec": ')  # being written
    assert live.state(*folders)["network"] == ""


def test_a_network_that_does_not_classify_has_no_accuracy(folders):
    (folders[1] / "train/t0.log").write_text(
        "10:00:02 epoch 1/2  loss 0.83909  13 min 30 s  2 images/s\n"
    )
    assert live.state(*folders)["epochs"] == [
        {
            "epoch": 1,
            "of": 2,
            "loss": 0.83909,
            "accuracy": None,
            "validation_loss": None,
            "validation_accuracy": None,
            "speed": "2",
            "seconds": 810,
        }
    ]


@pytest.mark.parametrize(
    "line, found",
    [
        (
            "loss 0.25000  accuracy 61.50%  validation loss 0.30000  accuracy 58.00%  1.2 s  1351 images/s",
            (0.615, 0.3, 0.58),
        ),
        ("loss 0.25000  validation loss 0.30000  1.2 s  1351 images/s", (None, 0.3, None)),
        (
            "loss 0.25000  validation loss 0.30000  KL divergence 812.5  1.2 s  1351 images/s",
            (None, 0.3, None),
        ),
    ],
)
def test_an_epoch_is_shown_with_what_was_measured_on_the_validation_images(folders, line, found):
    (folders[1] / "train/t0.log").write_text(f"10:00:02 epoch 2/3  {line}\n")
    (shown,) = live.state(*folders)["epochs"]
    assert (shown["accuracy"], shown["validation_loss"], shown["validation_accuracy"]) == found
    assert shown["loss"] == 0.25 and shown["speed"] == "1351"


@pytest.mark.parametrize(
    "file, prefix, joint", [("checkpoint", "history.", "."), ("history", "", "_")]
)
def test_the_validation_curve_is_that_of_the_checkpoint_and_then_of_the_history(
    folders, file, prefix, joint
):
    (folders[1] / "train/t0.log").write_text(LOG)
    artifacts.save_tensors(
        folders[0] / f"train/t0/{file}.safetensors",
        {
            f"{prefix}losses": np.ones(40),
            f"validation{joint}steps": np.array([20, 40]),
            f"validation{joint}losses": np.array([0.5, 0.25]),
        },
        {"state": json.dumps({"step": 40})},
    )
    found = live.state(*folders)
    assert found["validation_curve"] == {"steps": [20, 40], "losses": [0.5, 0.25]}
    assert "training 1<" in found["chart"] and "validation 0.25<" in found["chart"]
    assert 'class="curve stroke-2"' in found["chart"], "dashed"


def test_a_checkpoint_gives_the_steps_that_are_done_and_no_more(folders):
    (folders[1] / "train/t0.log").write_text(LOG)
    losses = np.concatenate([np.linspace(1, 0.5, 20), np.zeros(20)])
    artifacts.save_tensors(
        folders[0] / "train/t0/checkpoint.safetensors",
        {"history.losses": losses},
        {"state": json.dumps({"step": 20})},
    )
    found = live.state(*folders)
    assert found["steps"] == list(range(1, 21)) and found["losses"] == pytest.approx(
        losses[:20].tolist()
    )
    (folders[0] / "train/t0/checkpoint.safetensors").write_bytes(b"half")
    assert (
        found["validation_curve"]
        == live.state(*folders)["validation_curve"]
        == {"steps": [], "losses": []}
    )
    assert live.state(*folders)["steps"] == [10]  # the log's


def test_losses_that_are_not_finite_are_json(folders):
    (folders[1] / "train/t0.log").write_text(
        "10:00:01 step: 10, loss: nan\n10:00:02 epoch 1/2  loss nan  validation loss inf  1.2 s  1,351 images/s\n"
        "10:00:03 step: 20, loss: 1e"
    )
    found = live.state(*folders)
    # the second is still being written
    assert (found["steps"], found["losses"]) == ([10, 20], [None, 1])
    assert (found["epochs"][0]["loss"], found["epochs"][0]["validation_loss"]) == ("nan", "inf")
    artifacts.save_tensors(
        folders[0] / "train/t0/history.safetensors",
        {
            "losses": np.array([0.5, np.inf, np.nan]),
            "validation_steps": np.array([1, 3]),
            "validation_losses": np.array([0.5, np.nan]),
        },
    )
    found = live.state(*folders)
    assert found["losses"] == [0.5, None, None] and found["validation_curve"] == {
        "steps": [1, 3],
        "losses": [0.5, None],
    }
    json.dumps(found, allow_nan=False)


def test_the_training_that_wrote_last_is_shown_and_long_curves_are_thinned(folders):
    (folders[0] / "train/t1").mkdir()
    for name, seconds in (("t1", 100), ("t0", 50)):
        (folders[1] / f"train/{name}.log").write_text(LOG)
        os.utime(folders[1] / f"train/{name}.log", (seconds, seconds))
    artifacts.save_tensors(
        folders[0] / "train/t1/history.safetensors", {"losses": np.arange(10_000.0)}
    )
    found = live.state(*folders)
    assert (
        found["version"] == "t1"
        and len(found["steps"]) == live.POINTS
        and found["steps"][-1] == 10_000
    )
    assert np.mean(found["losses"]) == pytest.approx(4999.5)


def test_trainings_that_run_are_offered_and_each_can_be_asked_for(folders):
    now = time.time()
    for name, ago in (("t0", 5), ("t1", 90), ("t2", live.LATELY + 60), ("t3", 30)):
        log = folders[1] / f"train/{name}.log"
        log.write_text(LOG.replace("0.25000", f"0.{int(name[1]) + 1}"))
        os.utime(log, (now - ago, now - ago))
    (folders[0] / "train/t3").mkdir()
    (folders[0] / "train/t3/manifest.json").write_text("{}")  # it has ended
    found = live.state(*folders)
    assert found["version"] == "t0" and [one["version"] for one in found["running"]] == ["t0", "t1"]
    assert (
        live.state(*folders, "t1")["epochs"][0]["loss"] == 0.2
        and live.state(*folders, "../../x")["version"] == "t0"
    )


def test_the_curve_goes_by_the_epochs_and_seconds_that_the_log_tells(folders):
    (folders[1] / "train/t0.log").write_text(
        LOG + "10:00:06 epoch 2/2  loss 0.2  3.0 s  500 images/s\n"
    )
    artifacts.save_tensors(folders[0] / "train/t0/history.safetensors", {"losses": np.ones(40)})
    found = live.state(*folders)
    assert found["of_steps"] == 40 and found["seconds"] == pytest.approx(4.2)
    (series,) = json.loads(
        re.search(r'<script type="application/json">(.*?)</script>', found["chart"], re.S)[1]
    )["series"]
    assert series["by"][:2] == [1, 0.05] and [
        series["by"][2][at] for at in (9, -1)
    ] == pytest.approx([0.6, 4.2])


def test_the_page_runs_its_own_script_only_and_asks_only_its_server():
    page = live.page()
    assert "connect-src 'self'; script-src 'sha256-" in page and "index.html" not in page
