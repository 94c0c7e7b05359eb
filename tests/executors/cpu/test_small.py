"""What is done by tasks, and that a training by tasks is the same training."""

import numpy as np
import pytest

from ladder.executors import create as executors
from ladder.executors.cpu import executor as cpu_executor
from ladder.executors.cpu import small, tasks
from ladder.network import networks, optimizers, weights
from ladder.plan import plan

MNIST = (28, 28, 1)
STEPS, BATCH = 3, 19  # groups of two images and a last one of one


class SmallTraining:
    def __init__(self, network, threads=2, shape=MNIST):
        self.network, count = networks.build(network, shape), STEPS * BATCH
        random, length = np.random.default_rng(0), plan.Length(STEPS, STEPS)
        settings = plan.TrainingSettings(
            network=self.network,
            rung="cpu",
            batch_size=BATCH,
            optimizer=optimizers.Optimizer("adam"),
        )
        self.plan = plan.training_plan(settings, plan.Dataset(count, "uint8"), length)
        self.executor = executors.create("cpu", threads)
        self.arrays = self.executor.allocate(
            self.plan,
            self.executor.upload(
                {
                    **weights.initialize(self.network, 0),
                    "images": random.integers(0, 256, (count, *shape), dtype=np.uint8),
                    "labels": random.integers(0, 10, count, dtype=np.uint8),
                    "permutation": np.arange(count),
                    "scale": np.full(shape[2], 1 / 255, np.float32),
                    "learning_rates": optimizers.learning_rates(1e-3, length),
                }
            ),
        )

    def calls(self):
        """Names of the functions that a step calls."""
        steps = (
            (step.operation, cpu_executor.operands_of(step, self.arrays), step.pass_)
            for step in self.plan.steps
        )
        return [
            function.__name__
            for function, *_ in cpu_executor.bind(steps, np.float32, self.executor.threads)
        ]

    def run(self):
        for _ in range(STEPS):
            self.executor.run(self.plan, self.arrays)
        return self


@pytest.mark.parametrize("network", ["lenet_300_100", "lenet_5", "small_cnn"])
def test_a_step_of_a_small_network_is_one_table(network):
    assert SmallTraining(network).calls() == ["work_through"]


def test_large_convolutions_are_no_tasks():
    assert {"winograd_conv2d_forward", "upsample_conv2d_backward"} <= set(
        SmallTraining("autoencoder", shape=(32, 32, 3)).calls()
    )


@pytest.mark.parametrize(
    "filters, channels, are_tasks", [(63, 4, True), (64, 4, False), (256, 3, True)]
)
def test_a_convolution_of_many_filters_and_taps_is_no_task(filters, channels, are_tasks):
    shapes = (64, 9, 9, channels), (filters, 3, 3, channels), filters, (64, 7, 7, filters)
    x, weight, bias, y = (np.zeros(shape, np.float32) for shape in shapes)
    operands = {
        "x": x,
        "weight": weight,
        "y": y,
        "stride": 1,
        "padding": 0,
        "relu": False,
        "bias": bias,
    }
    assert small.Table(2, np.float32).add("conv2d_forward", operands, None) is are_tasks


@pytest.mark.parametrize("network", ["lenet_300_100", "lenet_5", "small_cnn"])
def test_a_training_by_tasks_is_the_same_training(network, monkeypatch):
    assert BATCH % -(-BATCH // small.GROUPS), (
        "the last group of images has to be smaller than the others"
    )
    found = SmallTraining(network).run()
    monkeypatch.setattr(small, "MOST_WEIGHTS", 0)
    expected = SmallTraining(network)
    assert "conv2d_backward" in expected.calls()
    expected.run()
    assert (found.arrays["counters"] == [STEPS, STEPS * BATCH, STEPS]).all()
    assert np.allclose(found.arrays["losses"], expected.arrays["losses"], rtol=1e-5)
    assert np.array_equal(found.arrays["hits"], expected.arrays["hits"])
    for name in found.network.parameters:
        # Adam's first steps have the sign of a gradient, whose last digits differ; so compare the
        # gradients.
        gradient, wanted = found.arrays[f"{name}.gradient"], expected.arrays[f"{name}.gradient"]
        assert np.linalg.norm(gradient - wanted) <= 1e-3 * np.linalg.norm(wanted), name


def test_scratch_counts_as_workspace_and_is_shared_by_the_operations():
    one, step = SmallTraining("lenet_300_100").run(), 4 * BATCH * 784
    assert step <= one.executor.workspace_bytes() < 2 * step


def test_the_type_of_a_task_changes_with_the_sources_of_what_is_compiled():
    from ladder.store import programs

    folder = "workflow/scripts/ladder/executors/cpu"
    (name,) = [name for name in tasks.TASK.names if name.startswith("sources_")]
    assert name.split("_")[1:] == [
        programs.digest(f"{folder}/{file}.py") for file in ("loops", "products", "tasks")
    ]
