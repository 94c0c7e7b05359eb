"""A longer training goes on from a finished shorter one and ends in the bytes of one that was made
from its first step.
"""

import logging

import numpy as np
import pytest

import train_network
import untrained
from ladder.arithmetic import randomness
from ladder.data.normalization import Statistics
from ladder.machine import runtime
from ladder.network import networks, weights
from ladder.store import artifacts, shorter
from ladder.training.inference import Inference
from manifest_files import spec

TRAIN, TEST = 90, 20  # with batches of 32 an epoch is three steps, the last one smaller
BASE = {
    "variant": "cpu",
    "image": [8, 8, 3],
    "training": "gradient",
    "batch_size": 32,
    "optimizer": "adam",
    "learning_rate": 1e-2,
    "seed": 1,
    "weight_decay": 0.0,
    "gradient_clip": 0.0,
    "schedule": "constant",
    "warmup_steps": 0,
    "augment_flip": True,
    "augment_crop": 0,
    "augment_rotate": 0,
    "augment_colour": 0,
}
SMALL = {
    **BASE,
    "network": "autoencoder",
    "autoencoder_filters": [4, 3],
    "autoencoder_norm": False,
    "gradient_scale": "mean",
}
DRAWN = {**SMALL, "variational": True, "variational_beta": 0.1}
LABELLED = {**BASE, "network": "small_cnn", "classes": 10, "optimizer": "momentum", "momentum": 0.9}
FITTED = {**SMALL, "training": "patches_then_gradient", "decoder_epochs": 1}
HEAD = {
    **FITTED,
    **LABELLED,
    "training": "patches_then_gradient",
    "network": "autoencoder_classifier",
    "freeze_encoder": False,
}
OPTIONS = {
    "data_residency": "auto",
    "multiplier": "exact",
    "monitor": "0",
    "page": "",
}
STEPS = {
    "schedule": "step",
    "schedule_step_epochs": 2,
    "schedule_step_factor": 0.5,
    "warmup_steps": 4,
}

CASES = {  # (params, the key of the length, shorter, longer)
    "epochs": (SMALL, "epochs", 1, 3),
    "steps that end within an epoch": ({**SMALL, **STEPS}, "steps", 4, 8),
    "a warm-up as long as the shorter one": ({**SMALL, "warmup_steps": 3}, "epochs", 1, 3),
    "labels": (LABELLED, "epochs", 2, 3),
    "sgd": ({**SMALL, "optimizer": "sgd"}, "epochs", 1, 2),
    "validation": ({**LABELLED, "patience": 0}, "steps", 4, 9),
    "patience": ({**SMALL, "patience": 2, "learning_rate": 0.3}, "epochs", 2, 5),
    "stopped early": ({**SMALL, "patience": 1, "learning_rate": 0.3}, "epochs", 6, 9),
    "drawn latent values": ({**DRAWN, "patience": 0}, "steps", 4, 8),
    "all layers after a fit": (FITTED, "epochs", 1, 2),
    "all layers after a fit, validation": ({**FITTED, "patience": 0}, "epochs", 1, 2),
    "decoder of a fitted encoder": ({**FITTED, "training": "patches"}, "decoder_epochs", 1, 2),
}


@pytest.fixture
def inputs(tmp_path):
    random = np.random.default_rng(0)
    with (
        artifacts.making(tmp_path / "data", spec("data")) as data,
        artifacts.making(tmp_path / "normalized", spec("normalized")) as normalized,
    ):
        for part, count in (("train", TRAIN), ("test", TEST)):
            data.write_array(f"{part}_labels.npy", random.integers(0, 10, count, dtype=np.uint8))
            normalized.write_array(
                f"{part}.npy", random.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
            )
        statistics = {"scale": np.full(3, 1 / 255, np.float32), "offset": np.zeros(3, np.float32)}
        normalized.write_tensors("statistics.safetensors", statistics)
    return {name: artifacts.Artifact(tmp_path / name) for name in ("data", "normalized")}


@pytest.fixture
def train(inputs, tmp_path):
    """Function of params, and the folder of a shorter training or '', that makes a training in a
    folder of this name.
    """

    def made(name, params, goes_on_from="", **options):
        runtime.set_threads(1)
        network = networks.from_params(params)
        if not (tmp_path / "initial").exists():
            with artifacts.making(tmp_path / "initial", spec("initial")) as work:
                untrained.save(work, network)
        start = {"initial": artifacts.Artifact(tmp_path / "initial")}
        with artifacts.making(tmp_path / name, spec("train", params)) as work:
            train_network.make(
                work,
                {**inputs, **start},
                params,
                {**OPTIONS, "goes_on_from": goes_on_from, **options},
            )
        return artifacts.Artifact(tmp_path / name)

    return made


def bytes_of(artifact):
    return {name: (artifact.folder / name).read_bytes() for name in artifact.manifest["files"]}


@pytest.mark.parametrize("case", CASES)
def test_a_longer_training_ends_in_the_bytes_of_one_from_the_first_step(
    train, monkeypatch, caplog, case
):
    params, key, short, long = CASES[case]
    whole, first = train("whole", {**params, key: long}), train("first", {**params, key: short})
    shuffled, generator = [], randomness.generator
    monkeypatch.setattr(
        randomness, "generator", lambda *key: shuffled.append(key[1:]) or generator(*key)
    )
    with caplog.at_level(logging.INFO):
        rest = train("rest", {**params, key: long}, first.folder)
    assert bytes_of(rest) == bytes_of(whole) and shorter.STATE in rest.manifest["files"]
    for name in (
        "loss",
        "accuracy",
        "divergence",
        "steps",
        "epochs",
        "epochs_at_most",
        "layer_movement",
    ):
        assert rest.metrics[name] == whole.metrics[name], name
    for name in ("loss", "accuracy", "best_epoch") if "patience" in params else ():
        assert rest.metrics["validation_curve"][name] == whole.metrics["validation_curve"][name], (
            name
        )
    assert ("reconstruction_loss" in rest.metrics) == ("classes" not in params)
    assert all(len(part["seconds_by_pass"]) == part["epochs"] for part in rest.metrics["parts"])
    begun = sum(part["steps"] for part in first.metrics["parts"])
    assert rest.manifest["notes"] == {"goes_on_from": "first", "after_step": begun}
    assert f"going on from first after step {last_steps(first)} of" in caplog.text
    epochs = range(last_steps(first) // 3, -(-last_steps(whole) // 3))
    assert [key for key in shuffled if key[0] == randomness.SHUFFLE] == [
        (randomness.SHUFFLE, epoch) for epoch in epochs
    ]
    assert rest.manifest["seconds"] > sum(part["seconds"] for part in first.metrics["parts"]) > 0


def last_steps(artifact):
    return artifact.metrics["parts"][-1]["steps"]


def test_the_cases_stop_early_and_within_an_epoch_where_they_say_so(train):
    params, key, short, _ = CASES["stopped early"]
    stopped = train("stopped", {**params, key: short})
    assert (
        stopped.metrics["epochs"] < short
        and stopped.metrics["validation_curve"]["best_epoch"] < stopped.metrics["epochs"]
    )


def test_the_reconstruction_error_of_all_test_images_is_that_of_the_kept_weights(train, inputs):
    made = train("trained", {**SMALL, "epochs": 2})
    network, statistics = networks.from_params(SMALL), Statistics.load(inputs["normalized"])
    model = Inference(network, "cpu", weights.of_artifact(made, network), statistics, 1)
    images = inputs["normalized"].array("test.npy")
    errors = [
        np.square(
            values - statistics.apply(images[start : start + len(values)]), dtype=np.float64
        ).mean(axis=(1, 2, 3))
        for start, values in model.batches(images)
    ]
    assert made.metrics["reconstruction_loss"] == pytest.approx(
        np.concatenate(errors).mean(), rel=1e-12
    )
    assert made.metrics["divergence"] is None and "samples.npy" not in made.manifest["files"]


def test_each_epoch_of_a_training_in_two_parts_has_its_accuracy(train):
    metrics = train("run", {**HEAD, "patience": 0, "epochs": 2}).metrics
    numbers = (
        metrics["loss"],
        metrics["accuracy"],
        metrics["validation_curve"]["loss"],
        metrics["validation_curve"]["accuracy"],
    )
    assert [len(values) for values in numbers] == [3, 3, 3, 3] and metrics["divergence"] is None


@pytest.mark.parametrize("params", [SMALL, LABELLED, {**FITTED}])
def test_snapshots_are_those_of_trainings_that_end_there_and_none_of_parts(train, params):
    long = train("long", {**params, "epochs": 3})
    if params == FITTED:
        assert "epochs.safetensors" not in long.manifest["files"]
        return
    taken = long.tensors("epochs.safetensors")
    kinds = ("filters", "reconstructions") if params == SMALL else ("filters",)
    assert taken.keys() == {f"{epoch}.{kind}" for epoch in (0, 1, 2) for kind in kinds}
    short, network = train("short", {**params, "epochs": 2}), networks.from_params(params)
    first = next(layer.name for layer in network.layers if layer.parameters)
    np.testing.assert_array_equal(
        taken["2.filters"], weights.of_artifact(short, network)[f"{first}.weight"]
    )
    assert not np.array_equal(taken["0.filters"], taken["1.filters"])
    if params == SMALL:
        np.testing.assert_array_equal(
            taken["2.reconstructions"], short.array("reconstructions.npy")[:8]
        )


def test_pictures_are_decoded_from_samples_of_the_prior_by_the_seed(train):
    made, again, other = (
        train(name, {**DRAWN, "epochs": 1, "seed": seed})
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    pictures = made.array("samples.npy")
    assert (
        pictures.shape == (32, 8, 8, 3)
        and pictures.dtype == np.uint8
        and len(np.unique(pictures, axis=0)) == 32
    )
    assert np.array_equal(again.array("samples.npy"), pictures) and not np.array_equal(
        other.array("samples.npy"), pictures
    )
    network, drawn = (
        networks.from_params(DRAWN),
        randomness.normal(1, randomness.PRIOR, 0, 0, 32 * 12).reshape(32, 2, 2, 3),
    )
    values, unit = (
        weights.of_artifact(made, network),
        Statistics(np.ones(3, np.float32), np.zeros(3, np.float32)),
    )
    ((_, decoded),) = Inference(
        networks.decoder(network), "cpu_sequential", values, unit, 1
    ).batches(drawn)
    assert np.abs(pictures - np.clip(255 * decoded, 0, 255)).max() < 0.51
    assert made.metrics["divergence"][0] > 0 and "divergences" in made.tensors(
        "history.safetensors"
    )


@pytest.mark.parametrize(
    "changes, kept",
    [
        ({"schedule": "cosine"}, False),
        ({"patience": 1, "steps": 4}, False),
        ({"patience": 1, "steps": 3}, True),
        ({"patience": 0, "steps": 4}, True),
        ({"warmup_steps": 3}, False),
        ({"warmup_steps": 2}, True),
    ],
)
def test_only_what_a_longer_training_can_go_on_from_is_kept(train, changes, kept):
    made = train("first", {**SMALL, "steps": 2, **changes})
    assert (shorter.STATE in made.manifest["files"]) == kept


def test_the_first_steps_are_others_where_the_warm_up_does_not_fit(
    train,
):
    short, long = (
        train(f"of {steps}", {**SMALL, "warmup_steps": 8, "steps": steps}) for steps in (7, 8)
    )
    assert not np.array_equal(
        *(made.tensors("history.safetensors")["losses"][:7] for made in (short, long))
    )


def test_a_schedule_that_does_not_fit_is_said_and_is_a_metric(train, caplog):
    with caplog.at_level(logging.INFO):
        made = train("first", {**SMALL, "warmup_steps": 30, "epochs": 7})
    assert made.metrics["misfits"] == [
        "warmup_steps 30 is more than the training has (epochs 7, 21 steps); the learning rate rises over the first 2 steps "
        "instead"
    ]
    assert f"{made.metrics['misfits'][0]}\n" in caplog.text
    assert train("second", {**SMALL, "warmup_steps": 21, "epochs": 7}).metrics["misfits"] == []


def test_fewer_images_than_a_batch_as_some_could_not_be_read_are_one_batch(train):
    few, all_ = (
        train(name, {**SMALL, "batch_size": size, "epochs": 2})
        for name, size in (("few", TRAIN + 2), ("all", TRAIN))
    )
    assert bytes_of(few) == bytes_of(all_)
    (line,) = few.metrics["misfits"]
    assert line.startswith(f"batch_size {TRAIN + 2} is more than the {TRAIN} training images")


@pytest.mark.parametrize("optimizer, averages", [("sgd", 0), ("rmsprop", 1), ("adam", 2)])
def test_what_is_kept_takes_the_size_of_the_averages(train, optimizer, averages):
    made = train("first", {**SMALL, "steps": 1, "optimizer": optimizer})
    values = sum(value.size for value in made.tensors(shorter.STATE).values())
    assert values == averages * networks.from_params(SMALL).parameter_count


def test_a_damaged_shorter_training_is_named_and_not_used(train, caplog):
    whole, first = train("whole", {**SMALL, "epochs": 2}), train("first", {**SMALL, "epochs": 1})
    path = first.folder / shorter.STATE
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with caplog.at_level(logging.INFO):
        rest = train("rest", {**SMALL, "epochs": 2}, first.folder)
    assert (
        f"{shorter.STATE} is damaged" in caplog.text
        and "training starts from the first step" in caplog.text
    )
    assert bytes_of(rest) == bytes_of(whole) and "after_step" not in rest.manifest["notes"]


@pytest.fixture
def interrupted(train, monkeypatch):
    """The function `train` for a training that is interrupted after its second checkpoint; returns
    the steps of both.
    """
    save, saved = train_network.training.Training.save, []

    def save_and_die(run, path):
        save(run, path)
        saved.append(run.step)
        if len(saved) == 2:
            raise KeyboardInterrupt

    def made(*arguments):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(train_network.training.Training, "save", save_and_die)
            train(*arguments)
        return saved

    return made


def test_an_interrupted_training_with_a_shortened_warm_up_ends_in_the_same_bytes(
    train, interrupted, caplog
):
    params = {**SMALL, "warmup_steps": 30, "epochs": 7}
    whole = train("whole", params)
    assert interrupted("rest", params) == [3, 6]
    with caplog.at_level(logging.INFO):
        rest = train("rest", params)
    assert "resuming after step 6 of 21" in caplog.text and bytes_of(rest) == bytes_of(whole)


def test_an_interrupted_longer_training_goes_on_from_its_own_checkpoint(train, interrupted, caplog):
    whole, first = train("whole", {**SMALL, "epochs": 4}), train("first", {**SMALL, "epochs": 1})
    saved = interrupted("rest", {**SMALL, "epochs": 4}, first.folder)
    with caplog.at_level(logging.INFO):
        rest = train("rest", {**SMALL, "epochs": 4}, first.folder)
    assert saved == [6, 9] and "resuming after step 9 of 12" in caplog.text
    assert bytes_of(rest) == bytes_of(whole) and rest.manifest["notes"]["after_step"] == 3


@pytest.mark.parametrize(
    "losses, told",
    [
        ([1.0, 0.5, 0.6, 0.7, 2.0], [3]),
        ([1.0, 1.1, 0.5, 0.6], [2]),
        ([1.0, 0.5, 0.9, 0.4, 0.9], [3]),
        ([1.0], []),
        ([1.0, 0.5, 0.4], []),
        ([0.5, 0.5, 0.5], []),
        ([1.0, 0.5, 0.52, 0.524], []),
        ([np.nan, 1.0], []),
        ([0.5, np.nan], []),
    ],
)
def test_a_loss_that_has_risen_by_more_than_noise_is_told_once(losses, told):
    assert [
        epoch for epoch in range(1, len(losses) + 1) if train_network.risen(losses[:epoch])
    ] == told


def test_a_training_whose_loss_has_risen_says_so_in_a_warning_with_what_to_do(train, caplog):
    with caplog.at_level(logging.WARNING):
        train("falls", {**SMALL, "epochs": 2})
        assert not caplog.messages
        losses = train(
            "rises", {**SMALL, "optimizer": "sgd", "learning_rate": 10.0, "epochs": 3}
        ).metrics["loss"]
    (said,) = caplog.messages
    assert said == (
        f"train rises: the loss has risen from {losses[0]:.5g} to {losses[1]:.5g} in epoch 2; "
        "a learning_rate below 10 may be needed"
    )
    assert losses[0] < losses[1] < losses[2]
