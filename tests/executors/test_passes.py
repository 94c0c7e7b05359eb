"""The time of each pass of a step: load, forward, backward from the loss on, update."""

import numpy as np
import pytest

from ladder.data import normalization
from ladder.executors import sequential
from ladder.network import networks, weights
from ladder.plan import plan
from ladder.training import training

PASSES = ["load", "forward", "backward", "update"]
IMAGES = np.random.default_rng(0).integers(0, 256, (11, 28, 28, 1), dtype=np.uint8)
LENET, AUTOENCODER = (
    networks.build("lenet_5", (28, 28, 1)),
    networks.build("autoencoder", (28, 28, 1), filters=(4, 3)),
)
NETWORKS = pytest.mark.parametrize(
    "network", [LENET, AUTOENCODER], ids=lambda network: network.name
)


def settings(network, rung, **changes):
    return plan.TrainingSettings(
        network=network, rung=rung, batch_size=4, **{"epochs": 3, **changes}
    )


def start(network, rung="cpu", **changes):
    labels = np.arange(11, dtype=np.uint8) % 10 if network.classifies else None
    return training.Training(
        settings(network, rung, **changes),
        IMAGES,
        normalization.measure("unit", IMAGES),
        weights.initialize(network, 1),
        1,
        labels=labels,
    )


def finish(run):
    while not run.done:
        run.run_epoch()
    return run


@NETWORKS
@pytest.mark.parametrize("rung", ["cpu", "gpu_basic", "gpu_opt_v2"])
def test_the_steps_of_a_plan_are_passes_in_their_order(network, rung):
    made = plan.training_plan(
        settings(network, rung, loss_scale=2), plan.Dataset(11, "uint8"), plan.Length(9, 3)
    )
    order = [PASSES.index(step.pass_) for step in made.steps]
    assert order == sorted(order) and set(order) == {0, 1, 2, 3}
    loss = next(
        number
        for number, step in enumerate(made.steps)
        if step.operation in ("mse", "cross_entropy")
    )
    assert (PASSES[order[loss - 1]], PASSES[order[loss]]) == ("forward", "backward")


@NETWORKS
def test_the_cpu_rung_measures_every_pass_and_nothing_twice(network):
    run = finish(start(network))
    assert set(run.executor.passes) == set(PASSES) and min(run.executor.passes.values()) > 0
    # which leaves out small gaps
    assert sum(run.executor.passes.values()) >= 0.999 * sum(run.executor.seconds.values())
    assert sum(run.executor.passes.values()) <= run.seconds


def test_the_sequential_rung_counts_each_step_once(monkeypatch):
    run = start(LENET, "cpu_sequential")
    clock = iter(range(10**6))
    monkeypatch.setattr(sequential.time, "perf_counter", lambda: next(clock))
    finish(run)
    steps = [step.pass_ for step in run.plan.steps]
    assert run.executor.passes == {name: 9 * steps.count(name) for name in PASSES}


def test_an_epoch_has_the_seconds_of_its_own_steps_also_after_an_interruption(
    tmp_path, monkeypatch
):
    run = start(AUTOENCODER, epochs=None, steps=7)
    monkeypatch.setattr(training, "LOOK_EVERY", 1)
    monkeypatch.setattr(training, "SAVE_AFTER", -1)
    run.run_epoch(tmp_path / "checkpoint")  # the last checkpoint is that of step 2
    first = run.seconds_by_pass
    assert len(first) == 1 and first[0] == run.executor.passes
    after = start(AUTOENCODER, epochs=None, steps=7)
    assert after.restore(tmp_path / "checkpoint") and after.step == 2
    (begun,) = after.seconds_by_pass
    assert all(0 < begun[name] < first[0][name] for name in PASSES)
    # the last checkpoint is that of step 5, in the second of three epochs
    run.run_epoch(tmp_path / "second")
    later = start(AUTOENCODER, epochs=None, steps=7)
    assert later.restore(tmp_path / "second") and later.step == 5
    assert len(later.seconds_by_pass) == 2 and later.seconds_by_pass[0] == run.seconds_by_pass[0]
    finish(after)
    assert len(after.seconds_by_pass) == 3
    assert all(after.seconds_by_pass[0][name] > begun[name] for name in PASSES)
    for name in PASSES:
        assert sum(epoch[name] for epoch in after.seconds_by_pass) == pytest.approx(
            after.executor.passes[name]
        )
