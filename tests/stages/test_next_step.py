"""What `make report` says last: the minutes of the real CIFAR-10, where this machine's speed is known."""

import json

import pytest

import next_step

DIGITS = {"dataset": "digits", "network": "autoencoder", "images_per_second": next_step.SPEED}


def minutes(folder, **changed):
    (folder / "summary.json").write_text(json.dumps(DIGITS | changed))
    return next_step.minutes(folder)


def test_half_the_speed_takes_twice_as_long(tmp_path):
    seconds = sum(json.loads(next_step.RECORD.read_text())["whole"]["summary"]["seconds"].values())

    assert minutes(tmp_path) == f", about {round(seconds / 60)} minutes on this machine"
    assert minutes(tmp_path, images_per_second=next_step.SPEED / 2) == f", about {round(seconds / 30)} minutes on this machine"


@pytest.mark.parametrize("changed", [{"images_per_second": None}, {"network": "lenet_5"}, {"dataset": "mnist"}])
def test_a_run_with_no_comparable_speed_gets_no_minutes(tmp_path, changed):
    assert minutes(tmp_path, **changed) == ""
