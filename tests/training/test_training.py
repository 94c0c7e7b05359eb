"""Complete runs on a small network: gradients through all layers, determinism, resuming, errors."""

import dataclasses
import logging
import os

import numpy as np
import pytest

import small_networks
import untrained
from ladder.arithmetic.multipliers import MULTIPLIERS, PRECISIONS, ByDirection
from ladder.data import normalization
from ladder.errors import UserError
from ladder.machine import compiling
from ladder.network import layers, networks, weights
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.training import training

# Every group of layers of the cpu rung, with sizes divisible only by the two poolings.
SMALL = networks.resolve(
    "small",
    (12, 8, 1),
    (
        layers.conv2d("a", 3),
        layers.relu("a_relu"),
        layers.maxpool2d("a_pool"),
        layers.conv2d("b", 2),
        layers.maxpool2d("latent"),
        layers.relu("r"),
        layers.upsample2d("up"),
        layers.conv2d("c", 3),
        layers.relu("c_relu"),
        layers.upsample2d("c_up"),
        layers.conv2d("d", 1),
    ),
    "latent",
    "mse",
)
IMAGES = np.random.default_rng(0).integers(0, 256, (11, 12, 8, 1), dtype=np.uint8)
STATISTICS = normalization.measure("unit", IMAGES)
SETTINGS = plan.TrainingSettings(
    network=SMALL,
    rung="cpu",
    batch_size=4,
    epochs=3,
    optimizer=Optimizer("adam"),
    learning_rate=1e-2,
    schedule={"schedule": "cosine"},
    seed=7,
)


def start(threads=2, images=IMAGES, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return training.Training(
        settings, images, STATISTICS, weights.initialize(settings.network, 1), threads
    )


def finish(run):
    while not run.done:
        run.run_epoch()
    return run


def test_the_loss_of_an_epoch_is_the_mean_over_all_images_with_the_last_batch():
    run = start(learning_rate=0.0, epochs=1)
    run.run_epoch()
    one_batch = start(learning_rate=0.0, epochs=1, batch_size=11)
    one_batch.run_epoch()
    assert run.losses[0] == pytest.approx(one_batch.losses[0], rel=1e-6)


PREPARED = {
    "adam": {},
    "all batches whole": {"images": IMAGES[:8]},
    "plain loops": {"rung": "cpu_sequential"},
    "augmented": {
        "augmentation": plan.Augmentation(flip=True, crop=1),
        "optimizer": Optimizer("momentum", 0.9),
    },
}


@pytest.mark.parametrize("changes", PREPARED.values(), ids=PREPARED)
def test_a_prepared_training_compiles_nothing_more_and_ends_in_the_same_bytes(changes, monkeypatch):
    plain, run, prepared = finish(start(**changes)), start(**changes), []
    prepare = run.executor.prepare
    monkeypatch.setattr(
        run.executor, "prepare", lambda *bound: (prepared.append(bound), prepare(*bound))
    )
    run.prepare()
    assert (
        prepared == run._batches
        and run.executor.seconds == run.executor.passes == {}
        and run.step == 0
    )
    compiled = compiling.seconds()
    finish(run)
    assert compiling.seconds() == compiled
    assert run.losses == plain.losses and all(
        np.array_equal(run.values[name], value) for name, value in plain.values.items()
    )


def test_a_training_that_is_prepared_after_an_interruption_goes_on_from_there(tmp_path):
    plain, first, second = finish(start()), start(), start()
    first.run_epoch()
    first.save(tmp_path / "checkpoint.safetensors")
    assert second.restore(tmp_path / "checkpoint.safetensors")
    second.prepare()
    assert second.seconds == first.seconds and second.executor.seconds == first.executor.seconds
    finish(second)
    assert second.losses == plain.losses
    assert all(np.array_equal(second.values[name], value) for name, value in plain.values.items())


def test_the_time_of_all_steps_is_estimated_from_the_first_ones(monkeypatch, caplog):
    clock, run = [0.0], start(batch_size=2)
    run_step = run.executor.run

    def slow(*bound):
        clock[0] += 2.0
        run_step(*bound)

    monkeypatch.setattr(run.executor, "run", slow)
    monkeypatch.setattr(training.time, "monotonic", lambda: clock[0])
    with caplog.at_level(logging.INFO):
        run.run_epoch()
    assert f"estimate: {2 * run.length.steps} s for {run.length.steps} steps" in caplog.text


def test_training_lowers_the_loss():
    run = finish(start(epochs=30, learning_rate=3e-2))
    assert run.losses[-1] < 0.5 * run.losses[0]


def test_frozen_layers_do_not_change_while_the_others_are_trained():
    run = finish(start(epochs=20, learning_rate=3e-2, frozen=SMALL.encoder))
    assert run.losses[-1] < 0.9 * run.losses[0]
    for name, before in weights.initialize(SMALL, 1).items():
        assert (run.values[name].tobytes() == before.tobytes()) == (
            name.split(".")[0] in ("a", "b")
        ), name
    averages = run.memory()["optimizer"]
    assert averages == 2 * 4 * sum(run.values[name].size for name in run.values if name[0] in "cd")


def test_gradient_scale_batch_is_mean_times_the_elements_of_an_image():
    elements = 12 * 8
    mean = finish(start(optimizer=Optimizer("sgd"), learning_rate=elements * 1e-3, epochs=1))
    batch = finish(
        start(optimizer=Optimizer("sgd"), learning_rate=1e-3, epochs=1, gradient_scale="batch")
    )
    for name, value in batch.values.items():
        assert np.allclose(value, mean.values[name], rtol=1e-4, atol=1e-6)


def test_a_loss_scale_of_a_power_of_two_changes_no_byte():
    plain, scaled = finish(start(epochs=1)), finish(start(epochs=1, loss_scale=1024))
    assert plain.losses == scaled.losses
    assert all(np.array_equal(plain.values[name], scaled.values[name]) for name in plain.values)
    assert "scale" in {step.operation for step in scaled.plan.steps}


def test_a_loss_scale_preserves_gradients_that_are_too_small_for_halves():
    half = ByDirection(*[MULTIPLIERS["fp16"]] * 3)
    moved = [
        finish(
            start(
                epochs=1,
                optimizer=Optimizer("sgd"),
                learning_rate=0.1,
                multipliers=half,
                loss_scale=scale,
                images=IMAGES // 64,
            )
        ).values["a.weight"]
        for scale in (1, 2.0**-20)
    ]
    assert not np.array_equal(*moved)
    assert np.array_equal(moved[1], weights.initialize(SMALL, 1)["a.weight"])


def test_float16_trains_as_float32_where_gradients_vanish_without_a_loss_scale():
    """One batch, with a scale that makes its gradients too small for halves, and with the one that
    is the default.
    """
    given = {
        "epochs": 1,
        "optimizer": Optimizer("sgd"),
        "learning_rate": 10,
        "images": IMAGES // 64,
    }
    start_of_a = weights.initialize(SMALL, 1)["a.weight"].astype(float)
    moved = {
        scale: finish(start(multipliers=PRECISIONS["float16"], loss_scale=scale, **given)).values[
            "a.weight"
        ]
        - start_of_a
        for scale in (None, 2.0**-20)
    }
    wanted = finish(start(**given)).values["a.weight"] - start_of_a
    assert not moved[2.0**-20].any()
    assert np.linalg.norm(moved[None] - wanted) <= 3e-3 * np.linalg.norm(wanted)


def test_training_with_a_multiplier_is_reproducible_and_differs_from_the_exact_one():
    am16 = ByDirection(*[MULTIPLIERS["am16"]] * 3)
    first, second, exact = (
        finish(start(multipliers=am16)),
        finish(start(multipliers=am16)),
        finish(start()),
    )
    assert all(np.array_equal(first.values[name], second.values[name]) for name in first.values)
    assert not np.array_equal(first.values["a.weight"], exact.values["a.weight"])
    assert first.losses[-1] < first.losses[0]


@pytest.mark.parametrize(
    "settings, words",
    [
        ({}, "try a smaller learning_rate, or a gradient_clip$"),
        (
            {"multipliers": ByDirection(forward=MULTIPLIERS["am32"])},
            "multiplier=exact shows whether the multiplier is the cause",
        ),
        (
            {"multipliers": PRECISIONS["tf32"]},
            "precision=float32 shows whether the precision is the cause",
        ),
        (
            {
                "multipliers": ByDirection(MULTIPLIERS["fp16"], MULTIPLIERS["fp16"]),
                "loss_scale": 2.0**30,
            },
            "or a smaller loss_scale than 1.07374e.09: what exceeds 65504 is infinite in halves",
        ),
        (
            {"multipliers": PRECISIONS["float16"]},
            "or a smaller loss_scale than 1024: what exceeds 65504 is infinite in halves",
        ),
    ],
)
def test_a_loss_that_is_not_finite_is_one_line_with_advice(settings, words):
    with pytest.raises(UserError, match=words):
        finish(start(optimizer=Optimizer("sgd"), learning_rate=1e12, **settings))


def test_another_seed_shuffles_in_another_order():
    first, second = finish(start(seed=7)), finish(start(seed=8))
    assert not np.array_equal(first.values["a.weight"], second.values["a.weight"])


# Network, its options, input shape, batch and a smaller last batch, further settings.
ON_THREADS = {
    "autoencoder": ("autoencoder", {}, (32, 32, 3), 32, 5, {}),
    "autoencoder with norms, augmented": (
        "autoencoder",
        {"norm": True, "filters": (32, 48)},
        (32, 32, 3),
        24,
        7,
        {"augmentation": plan.Augmentation(True, 4)},
    ),
    "lenet_300_100": ("lenet_300_100", {}, (28, 28, 1), 64, 33, {}),
    "lenet_5": ("lenet_5", {}, (28, 28, 1), 64, 33, {}),
    "small_cnn": ("small_cnn", {}, (28, 28, 1), 64, 33, {}),
    "resnet18": ("resnet18", {}, (32, 32, 3), 24, 5, {}),
    "resnet34": ("resnet34", {"width": 8}, (32, 32, 3), 128, 100, {}),
    "resnet50": ("resnet50", {}, (28, 28, 1), 24, 7, {}),
    "resnet101": ("resnet101", {"width": 8}, (32, 32, 3), 24, 7, {}),
    **{
        optimizer: (
            "small_cnn",
            {},
            (28, 28, 1),
            50,
            3,
            {"optimizer": Optimizer(optimizer, weight_decay=1e-3, clip=0.01)},
        )
        for optimizer in ("sgd", "momentum", "rmsprop")
    },
    **{
        name: (
            "small_cnn",
            {},
            (28, 28, 1),
            40,
            9,
            {"multipliers": ByDirection(*[MULTIPLIERS[name]] * 3)},
        )
        for name in ("fp16", "mit16")
    },
    "one direction exact": (
        "lenet_5",
        {},
        (28, 28, 1),
        40,
        9,
        {
            "multipliers": ByDirection(
                MULTIPLIERS["am16"], MULTIPLIERS["exact"], MULTIPLIERS["exact"]
            )
        },
    ),
}


@pytest.mark.parametrize("case", ON_THREADS)
def test_the_bytes_of_a_training_do_not_depend_on_the_number_of_threads(case):
    name, options, shape, batch, tail, settings = ON_THREADS[case]
    network = networks.build(name, shape, **options)

    def trained(threads):
        return bytes_of(finish(start_network(network, threads, batch, tail, **settings)))

    one = trained(1)
    assert trained(2) == one
    assert trained(3) == one


def start_network(network, threads, batch, tail, **changes):
    """A run of two epochs, each with a smaller last batch."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (batch + tail, *network.input_shape), dtype=np.uint8)
    settings = dataclasses.replace(
        SETTINGS,
        **{"network": network, "batch_size": batch, "epochs": 2, "learning_rate": 1e-3, **changes},
    )
    labels = random.integers(0, 10, len(images), dtype=np.uint8) if network.classifies else None
    values = untrained.values(network)
    return training.Training(
        settings, images, normalization.measure("unit", images), values, threads, labels=labels
    )


def bytes_of(run):
    return {**{name: value.tobytes() for name, value in run.values.items()}, "losses": run.losses}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "rmsprop", "adam"])
@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_run_resumed_from_its_checkpoint_ends_in_the_bytes_of_an_uninterrupted_one(
    tmp_path, optimizer, done
):
    whole, before = (
        finish(start(optimizer=Optimizer(optimizer))),
        start(optimizer=Optimizer(optimizer)),
    )
    for _ in range(done):
        before.run_epoch()
    before.save(tmp_path / "checkpoint")
    after = start(optimizer=Optimizer(optimizer))
    assert after.restore(tmp_path / "checkpoint")
    assert after.epoch == done
    finish(after)
    assert after.losses == whole.losses
    assert all(
        after.values[name].tobytes() == whole.values[name].tobytes() for name in whole.values
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:100],
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        lambda data: b"",
    ],
    ids=["cut", "one bit", "empty"],
)
def test_a_damaged_checkpoint_is_not_used(tmp_path, damage):
    run = start()
    run.run_epoch()
    run.save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint").write_bytes(damage((tmp_path / "checkpoint").read_bytes()))
    fresh = start()
    kept = fresh.values["a.weight"].copy()
    assert not fresh.restore(tmp_path / "checkpoint")
    assert fresh.epoch == 0
    assert np.array_equal(fresh.values["a.weight"], kept)


def test_no_flipped_bit_of_a_checkpoint_is_used(tmp_path):
    run = start()
    run.run_epoch()
    run.save(tmp_path / "checkpoint")
    whole, fresh = (tmp_path / "checkpoint").read_bytes(), start()
    header = 8 + int.from_bytes(whole[:8], "little")
    for at in (*range(header), *range(header, len(whole), 97)):
        (tmp_path / "checkpoint").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not fresh.restore(tmp_path / "checkpoint")
    (tmp_path / "checkpoint").write_bytes(whole)
    assert fresh.restore(tmp_path / "checkpoint")


def test_the_checkpoint_of_another_run_is_not_used(tmp_path):
    run = start(seed=7)
    run.run_epoch()
    (tmp_path / "t1").mkdir(), (tmp_path / "t2").mkdir()
    run.save(tmp_path / "t1/checkpoint")
    os.rename(tmp_path / "t1/checkpoint", tmp_path / "t2/checkpoint")
    assert not start(seed=8).restore(tmp_path / "t2/checkpoint")


def test_a_loss_that_is_not_finite_stops_with_the_step_and_the_learning_rate():
    with (
        pytest.raises(UserError, match=r"step \d+ .*learning rate 1e\+20"),
        np.errstate(all="ignore"),
    ):
        finish(
            start(optimizer=Optimizer("sgd"), learning_rate=1e20, schedule={"schedule": "constant"})
        )


def test_a_batch_larger_than_the_data_is_refused_with_both_numbers():
    with pytest.raises(UserError, match="batch_size 12 is larger than the 11"):
        start(batch_size=12)


def test_memory_names_every_use_and_adds_up_to_the_plan():
    run = start()
    run.run_epoch()
    memory = run.memory()
    assert {
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "masks",
        "workspace of the executor",
    } <= set(memory)
    assert memory.pop("workspace of the executor") == run.executor.workspace_bytes() > 0
    assert memory == run.plan.bytes_by_purpose()
    assert memory["weights"] == 4 * SMALL.parameter_count
    assert memory["optimizer"] == 2 * memory["weights"]


CLASSIFIER = small_networks.classifier((12, 8, 1), stride=2, rate=0.3)
LABELS = np.random.default_rng(1).integers(0, 3, len(IMAGES)).astype(np.uint8)


def start_classifier(rung="cpu", **changes):
    settings = dataclasses.replace(
        SETTINGS,
        network=CLASSIFIER,
        rung=rung,
        epochs=None,
        steps=8,
        augmentation=plan.Augmentation(flip=True, crop=2),
        **changes,
    )
    values = untrained.values(CLASSIFIER)
    return training.Training(settings, IMAGES, STATISTICS, values, 2, labels=LABELS)


def test_a_run_limited_by_steps_ends_within_an_epoch():
    run = finish(start_classifier())
    assert (run.step, run.length.steps_per_epoch, run.epochs, run.epoch) == (8, 3, 3, 3)
    assert run.images_seen == 2 * len(IMAGES) + 2 * 4
    assert len(run.losses) == len(run.accuracies) == 3
    assert all(0 <= accuracy <= 1 for accuracy in run.accuracies)


def test_accuracy_and_running_statistics_are_those_of_the_images_trained_on():
    run = finish(start_classifier(learning_rate=3e-2, optimizer=Optimizer("adam")))
    hits = run.history["hits"]
    assert hits.sum() > 0 and (hits <= 4).all() and (hits == np.rint(hits)).all()
    assert (run.values["a_bn.running_var"] != 1).all() and run.values["a_bn.running_mean"].any()


def start_drawn(rung="cpu", beta=2.0, **changes):
    network = networks.build("autoencoder", (12, 8, 1), filters=(5,), variational=True, beta=beta)
    settings = dataclasses.replace(
        SETTINGS, network=network, rung=rung, **{"epochs": None, "steps": 8, **changes}
    )
    return training.Training(settings, IMAGES, STATISTICS, weights.initialize(network, 1), 2)


def start_rounded(rung="cpu"):
    """At bfloat16, where the convolutions behind both upsamplings have phases."""
    run = start(rung=rung, multipliers=PRECISIONS["bfloat16"])
    assert sum(step.operation == "phase_conv2d_forward" for step in run.plan.steps) == 2
    return run


@pytest.mark.parametrize(
    "begin", [start_classifier, start_drawn, start_rounded], ids=["classifier", "drawn", "rounded"]
)
@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential"])
def test_a_run_killed_within_an_epoch_resumes_to_the_same_bytes(tmp_path, begin, rung, monkeypatch):
    whole = finish(begin(rung))
    monkeypatch.setattr(training, "LOOK_EVERY", 1)
    monkeypatch.setattr(training, "SAVE_AFTER", -1)
    killed, save = begin(rung), training.Training.save

    def save_and_die(run, path):
        save(run, path)
        if run.step == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.Training, "save", save_and_die)
    with pytest.raises(KeyboardInterrupt):
        while True:
            killed.run_epoch(tmp_path / "checkpoint")
    after = begin(rung)
    assert after.restore(tmp_path / "checkpoint") and after.step == 5
    finish(after)
    assert all(
        after.values[name].tobytes() == value.tobytes() for name, value in whole.values.items()
    )
    assert all(
        after.averages[name].tobytes() == value.tobytes() for name, value in whole.averages.items()
    )
    assert all(np.array_equal(after.history[name], whole.history[name]) for name in whole.history)


# ---- latent values that are drawn


def test_the_divergence_of_an_epoch_is_the_mean_over_its_images():
    run = finish(start_drawn())
    by_step = run.history["divergences"]
    assert (
        (by_step > 0).all() and len(by_step) == 8 and finish(start_classifier()).divergences is None
    )
    assert run.divergences == pytest.approx(
        [
            np.average(by_step[:3], weights=(4, 4, 3)),
            np.average(by_step[3:6], weights=(4, 4, 3)),
            by_step[6:].mean(),
        ]
    )


def test_a_heavy_divergence_is_made_small_and_the_loss_is_without_it():
    light, heavy = (finish(start_drawn(beta=beta, learning_rate=3e-2)) for beta in (1e-3, 1000.0))
    assert (
        heavy.divergences[-1] < 0.7 * light.divergences[-1]
        and heavy.divergences[0] < 1.2 * light.divergences[0]
    )
    assert heavy.losses[0] == pytest.approx(light.losses[0], rel=0.2)


def test_draws_differ_from_step_to_step_and_by_the_seed():
    still = {"learning_rate": 0.0, "batch_size": 11, "steps": 3}
    first, second = start_drawn(**still), start_drawn(seed=8, **still)
    losses = [*finish(first).history["losses"], *finish(second).history["losses"]]
    assert len(set(losses)) == 6 and np.ptp(losses) < 0.5 * max(losses)
    assert np.ptp(first.history["divergences"]) < 1e-5 * first.divergences[0]


@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential"])
def test_the_cpu_rungs_draw_alike(rung):
    one, other = (
        finish(start_drawn(rung, optimizer=Optimizer("sgd"))) for rung in (rung, "cpu_sequential")
    )
    for name in one.history:
        np.testing.assert_allclose(one.history[name], other.history[name], rtol=1e-5)


def test_the_monitor_prints_the_divergence(caplog):
    run = start_drawn()
    with caplog.at_level(logging.INFO, logger=training.log.name):
        run.run_epoch(monitor=2)
    loss, divergence = (run.history[name][:2].mean() for name in ("losses", "divergences"))
    assert f"step: 2, loss: {loss:.3f}, KL divergence: {divergence:.1f}" in [
        record.getMessage() for record in caplog.records
    ]


def test_the_monitor_prints_means_over_the_steps_since_the_last_line(caplog):
    run = start_classifier()
    with caplog.at_level(logging.INFO, logger=training.log.name):
        while not run.done:
            run.run_epoch(monitor=4)
    lines = [
        record.getMessage() for record in caplog.records if record.getMessage().startswith("step: ")
    ]
    sizes = np.array([4, 4, 3, 4, 4, 3, 4, 4])
    expected = []
    for steps in (slice(0, 4), slice(4, 8)):
        loss = np.average(run.history["losses"][steps], weights=sizes[steps])
        accuracy = 100 * run.history["hits"][steps].sum() / sizes[steps].sum()
        expected.append(f"step: {steps.stop}, loss: {loss:.3f}, accuracy: {accuracy:.3f}%")
    assert lines == expected
