"""What a training measures on images that it does not train on, and what follows: when it stops and
which weights it keeps.
"""

import dataclasses
import logging
import shutil

import numpy as np
import pytest

import small_networks
import untrained
from ladder.arithmetic.multipliers import MULTIPLIERS, ByDirection
from ladder.data import normalization
from ladder.errors import RunFailed
from ladder.executors import create as executors
from ladder.network import layers, networks
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.training import inference, training, validation

AUTOENCODER = small_networks.autoencoder((6, 4, 1), 3)
CLASSIFIER = small_networks.classifier((6, 4, 1), rate=0.3)
PLAIN = networks.resolve(
    "plain", (6, 4, 1), (layers.flatten("flat"), layers.dense("scores", 3)), "flat", "cross_entropy"
)
RANDOM = np.random.default_rng(0)
# 70: more than a batch
IMAGES, OTHERS = (RANDOM.integers(0, 256, (count, 6, 4, 1), dtype=np.uint8) for count in (11, 70))
LABELS, OTHER_LABELS = (
    RANDOM.integers(0, 3, len(images)).astype(np.uint8) for images in (IMAGES, OTHERS)
)
STATISTICS = normalization.measure("standardize", IMAGES)
NETWORKS = pytest.mark.parametrize(
    "network", [AUTOENCODER, CLASSIFIER], ids=lambda network: network.name
)


def start(network=AUTOENCODER, patience=None, others=(OTHERS, OTHER_LABELS), **changes):
    """A training that is measured on `others` unless patience is None."""
    settings = dataclasses.replace(
        plan.TrainingSettings(
            network=network,
            rung="cpu",
            batch_size=4,
            epochs=6,
            optimizer=Optimizer("adam"),
            learning_rate=1e-2,
            seed=7,
            augmentation=plan.Augmentation(flip=True, crop=1),
        ),
        **changes,
    )
    labels, measured_on = (LABELS, others[1]) if network.classifies else (None, None)
    measured = (
        None
        if patience is None
        else validation.Validation(
            settings, others[0], STATISTICS, 1, labels=measured_on, patience=patience
        )
    )
    values = untrained.values(network)
    return training.Training(
        settings, IMAGES, STATISTICS, values, 1, labels=labels, validation=measured
    )


def finish(run, checkpoint=None, monitor=0):
    while not run.done:
        run.run_epoch(checkpoint, monitor)
    return run


def bytes_of(values):
    return {name: value.tobytes() for name, value in values.items()}


def measure(monkeypatch, losses):
    """The losses of the epochs are these, whatever the weights."""
    monkeypatch.setattr(
        validation.Validation,
        "measure",
        lambda self, values: (losses[len(self.losses)], len(self.losses)),
    )


@NETWORKS
@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential"])
def test_looking_changes_no_byte_of_the_weights_and_no_loss(network, rung):
    blind, looking = start(network, rung=rung), start(network, 0, rung=rung)
    finish(blind)
    finish(looking, monitor=2)
    assert bytes_of(looking.values) == bytes_of(blind.values) == bytes_of(looking.kept)
    assert looking.losses == blind.losses and looking.accuracies == blind.accuracies
    assert looking.validation.steps == [3, 6, 9, 12, 15, 18] and len(looking.validation.losses) == 6
    assert looking.executor.seconds.keys() == blind.executor.seconds.keys()


@pytest.mark.parametrize("network", [AUTOENCODER, PLAIN], ids=lambda network: network.name)
def test_the_loss_is_the_one_of_the_training(network):
    run = start(
        network,
        0,
        (IMAGES, LABELS),
        learning_rate=0.0,
        batch_size=11,
        epochs=1,
        augmentation=plan.Augmentation(),
    )
    finish(run)
    assert run.validation.losses == pytest.approx(run.losses, rel=1e-6)
    assert run.validation.accuracies == run.accuracies


def test_latent_values_are_not_drawn_for_validation_images():
    network = networks.build("autoencoder", (6, 4, 1), filters=(5,), variational=True)
    run = finish(
        start(
            network,
            0,
            (IMAGES, None),
            learning_rate=0.0,
            batch_size=11,
            augmentation=plan.Augmentation(),
        )
    )
    assert len(set(run.validation.losses)) == 1 and len(set(run.losses)) == len(run.losses) == 6
    assert run.validation.losses[0] < min(run.losses)


def test_the_multiplier_is_that_of_the_trainings_forward_pass():
    half = ByDirection(MULTIPLIERS["am16"], MULTIPLIERS["fp16"], MULTIPLIERS["fp16"])
    run = start(
        PLAIN,
        0,
        (IMAGES, LABELS),
        learning_rate=0.0,
        batch_size=11,
        epochs=1,
        augmentation=plan.Augmentation(),
        multipliers=half,
    )
    finish(run)
    assert run.validation.losses == pytest.approx(run.losses, rel=1e-6)
    assert (
        finish(start(PLAIN, 0, (IMAGES, LABELS), learning_rate=0.0, epochs=1)).validation.losses
        != run.validation.losses
    )


def test_the_last_epoch_may_be_partial():
    run = finish(start(patience=0, epochs=None, steps=7))
    assert run.validation.steps == [3, 6, 7]


@pytest.mark.parametrize(
    "patience, losses, epochs, best",
    [
        (1, [5, 4, 4.5, 1, 0, 0], 3, 2),
        (2, [5, 4, 4.5, 3, 3.5, 3, 0], 6, 4),
        (2, [5, 4, 4.5, 3, 3.5, 2], 6, 6),
        (9, [1, 2, 3, 4, 5, 6], 6, 1),
        (1, [2, 2, 1, 1, 1, 1], 2, 1),
    ],
)
def test_a_training_stops_without_a_smaller_loss_and_keeps_the_best_epoch(
    monkeypatch, patience, losses, epochs, best
):
    measure(monkeypatch, losses)
    run = finish(start(patience=patience))
    assert (run.epoch, run.epochs, run.step) == (
        epochs,
        6,
        3 * epochs,
    ) and run.validation.best_epoch == best
    assert bytes_of(run.kept) == bytes_of(finish(start(epochs=best)).values)
    assert bytes_of(run.values) == bytes_of(finish(start(epochs=epochs)).values)


@NETWORKS
@pytest.mark.parametrize("killed_at", [2, 3, 9, 11, 15])
def test_a_run_with_patience_that_is_killed_stops_as_an_uninterrupted_one(
    tmp_path, monkeypatch, network, killed_at
):
    monkeypatch.setattr(training, "LOOK_EVERY", 1)
    monkeypatch.setattr(training, "SAVE_AFTER", -1)
    measure(monkeypatch, [5, 4, 3, 3.5, 3.2, 2])
    whole = finish(start(network, 2))
    assert (whole.validation.best_epoch, whole.epoch) == (3, 5)
    killed, save = start(network, 2), training.Training.save

    def save_and_keep(run, path):
        save(run, path)
        if run.step == killed_at:
            shutil.copy(path, tmp_path / "kept")

    monkeypatch.setattr(training.Training, "save", save_and_keep)
    while not killed.done:
        killed.run_epoch(tmp_path / "checkpoint")
        killed.save(tmp_path / "checkpoint")
    (tmp_path / "kept").rename(tmp_path / "checkpoint")
    after = start(network, 2)
    assert after.restore(tmp_path / "checkpoint") and after.step == killed_at
    finish(after)
    assert (after.step, after.validation.best_epoch) == (15, 3)
    assert bytes_of(after.validation.tensors()) == bytes_of(whole.validation.tensors())
    assert bytes_of(after.kept) == bytes_of(whole.kept) and bytes_of(after.values) == bytes_of(
        whole.values
    )


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_is_one_line_with_its_epoch(monkeypatch, loss):
    measure(monkeypatch, [1, loss])
    with pytest.raises(
        RunFailed,
        match="the loss on the validation images is (nan|inf) after epoch 2; try a smaller",
    ):
        finish(start(patience=0))


def test_the_monitor_prints_what_is_measured_at_the_step(caplog):
    run = start(CLASSIFIER, 0)
    with caplog.at_level(logging.INFO, logger=training.log.name):
        run.run_epoch(monitor=3)
    loss, accuracy = run.validation.losses[0], 100 * run.validation.accuracies[0]
    assert f"%, validation loss: {loss:.3f}, validation accuracy: {accuracy:.3f}%" in caplog.text


def test_the_time_of_measuring_is_not_that_of_the_training(monkeypatch):
    clock, measured = [0.0], validation.Validation.measure

    def slow(self, values):
        clock[0] += 1000
        return measured(self, values)

    monkeypatch.setattr(training.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(validation.Validation, "measure", slow)
    assert finish(start(patience=0), monitor=2).seconds == 0


def test_the_forward_pass_is_that_of_the_rung(monkeypatch):
    made, create = [], executors.create
    monkeypatch.setattr(
        inference.executors, "create", lambda rung, *more: made.append(rung) or create("cpu", 1)
    )
    settings = plan.TrainingSettings(network=AUTOENCODER, rung="gpu_basic", batch_size=4)
    validation.Validation(settings, OTHERS, STATISTICS, 1)
    assert made == ["gpu_basic"]
