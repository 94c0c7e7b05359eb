"""Curves are counted by the steps, epochs and seconds of their training."""

import pytest

import synthetic_run
from ladder.executors.create import COPIES
from ladder.pages import curves


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    return synthetic_run.make(
        tmp_path_factory.mktemp("lenet"), "mnist", network="lenet_5", epochs=3
    )


def test_the_last_batch_of_an_epoch_is_what_is_left(lenet):
    images = lenet["data"].metrics["train"]
    sizes = curves.batch_sizes(lenet["train"], images)
    assert len(sizes) == lenet["train"].metrics["steps"] and sizes.sum() == 3 * images
    assert sizes[:22].tolist() == [64] * 22 and sizes[22] == images - 22 * 64


@pytest.mark.parametrize("parts, ends", [([69], [0, 23, 46, 69]), ([10, 59], [0, 10, 33, 56, 69])])
def test_seconds_go_by_the_measured_passes_of_each_epoch(lenet, monkeypatch, parts, ends):
    """The passes of the first epoch took as long as those of two others; copies to a GPU run beside
    them.
    """
    metrics = lenet["train"].metrics
    epochs = [
        {"forward": 1.0, "backward": 3.0, COPIES: 9.0},
        *[{"forward": 0.5, "backward": 1.5}] * (len(ends) - 2),
    ]
    monkeypatch.setitem(metrics, "parts", [{"steps": steps} for steps in parts])
    monkeypatch.setitem(metrics, "seconds_by_pass", epochs)
    images = lenet["data"].metrics["train"]
    whole = curves.batch_sizes(lenet["train"], images).sum() / metrics["images_per_second"]
    at_ends = curves.paces(lenet["train"], images, [(end, 0.0) for end in ends])[2]
    assert at_ends == pytest.approx(
        [whole * at / len(ends) for at in (0, *range(2, len(ends) + 1))]
    )
    assert curves.paces(lenet["train"], images, [(ends[1] / 2, 0.0)])[2] == pytest.approx(
        [whole / len(ends)]
    )
    # a GPU's first samples come later
    monkeypatch.setitem(metrics, "seconds_by_pass", [{}] * (len(ends) - 1))
    assert curves.paces(lenet["train"], images, [(34.5, 0.0)])[2] == pytest.approx([whole / 2])
