"""Ten training steps end where those of PyTorch do, by a record of what torch.nn and torch.optim
computed in float64.

Tolerances are of float32 rounding: PyTorch's own float32 and the rungs differ from the record by up
to 6e-5 of a tensor's movement, that of weights near 1 which move by 3e-3 and are rounded to 6e-8 in
every step, and by 1e-6 of a loss. A gradient that is wrong by 1 % in one tensor makes that tensor's
movement wrong by 1.8e-3 or more with momentum.
"""

import itertools

import numpy as np
import pytest

import emulator_executor
import needs
import pytorch_truth
from ladder.data.normalization import Statistics
from ladder.executors import create as executors
from ladder.executors import sequential
from ladder.plan import plan
from ladder.training import training
from ladder.verify import parity

LOSS, MOVEMENT = 1e-5, 3e-4
RECORD = pytorch_truth.record()


@pytest.mark.parametrize("title", pytorch_truth.CASES)
@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential"])
def test_losses_and_weights_of_ten_steps_are_those_of_pytorch(rung, title, tmp_path):
    losses, deviations = beside_pytorch(rung, title, tmp_path)
    assert losses == pytest.approx(RECORD[title]["losses"], rel=LOSS)
    assert not too_large(deviations)


@needs.COMPILER
@pytest.mark.parametrize("title", ["lenet_5, momentum", "wta_autoencoder, adam"])
def test_kernels_of_a_gpu_end_there_too(title, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "create", lambda *arguments: emulator_executor.Executor())
    losses, deviations = beside_pytorch("gpu_basic", title, tmp_path)
    assert losses == pytest.approx(RECORD[title]["losses"], rel=LOSS)
    assert not too_large(deviations)


@pytest.mark.parametrize(
    "title, tensor",
    [  # the two that show it least
        ("wta_autoencoder, momentum", "decoder.bias"),
        ("resnet18, momentum", "stage4_1_bn1.weight"),
    ],
)
def test_a_gradient_wrong_by_one_percent_in_one_tensor_deviates(
    title, tensor, tmp_path, monkeypatch
):
    right, names = (
        sequential.OPERATIONS["momentum_update"],
        itertools.cycle(pytorch_truth.CASES[title].build().parameters),
    )

    def wrong(*, gradient, **operands):
        right(gradient=gradient * np.float32(1.01 if next(names) == tensor else 1), **operands)

    monkeypatch.setitem(sequential.OPERATIONS, "momentum_update", wrong)
    _, deviations = beside_pytorch("cpu_sequential", title, tmp_path)
    assert tensor in too_large(deviations)


def beside_pytorch(rung, title, folder):
    """(losses, {tensor: its deviation from PyTorch's}) of the case's training; folder: for weights
    files.
    """
    case, movements = pytorch_truth.CASES[title], RECORD[title]["movements"]
    network = case.build()
    start = parity.initial(network)
    run = train(case, network, rung, start)
    before, after = (
        pytorch_truth.in_file(network, values, folder / "weights") for values in (start, run.values)
    )
    assert movements.keys() == after.keys()
    return run.history["losses"], {
        name: pytorch_truth.deviation(before[name], after[name], movements[name]) for name in after
    }


def train(case, network, rung, start):
    """The finished training.Training."""
    images, labels = pytorch_truth.dataset(case)
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=pytorch_truth.BATCH,
        epochs=pytorch_truth.EPOCHS,
        optimizer=case.optimizer,
        learning_rate=case.learning_rate,
        gradient_scale=case.gradient_scale,
        seed=pytorch_truth.SEED,
    )
    by_255 = Statistics(
        np.full(case.image[2], 1 / 255, np.float32), np.zeros(case.image[2], np.float32)
    )
    run = training.Training(
        settings, images, by_255, start, 2, labels=labels if network.classifies else None
    )
    while not run.done:
        run.run_epoch()
    return run


def too_large(deviations):
    return {name: value for name, value in deviations.items() if not value <= MOVEMENT}  # NaN too
