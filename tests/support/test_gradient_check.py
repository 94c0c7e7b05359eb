"""The check of a backward pass: every network passes it on every kind of rung, and a wrong gradient
is found.
"""

import pytest

import emulator_executor
import gradient_check
import zoo
from ladder.executors import create as executors
from ladder.network import networks
from ladder.network.layers import conv2d, dense, flatten, l1_penalty, maxpool2d, relu

NETWORK = networks.resolve(
    "small",
    (6, 6, 2),
    (
        conv2d("first", 4),
        relu("first_relu"),
        maxpool2d("pool"),
        conv2d("second", 5),
        relu("second_relu"),
        flatten("flat"),
        dense("scores", 3),
    ),
    "flat",
    "cross_entropy",
)


class Broken:
    """An executor that scales one gradient after each run."""

    def __init__(self, executor, name, factor):
        self.executor, self.name, self.factor = executor, name, factor

    def __getattr__(self, name):
        return getattr(self.executor, name)

    def run(self, plan, arrays):
        self.executor.run(plan, arrays)
        if (
            self.name in arrays
            and "losses" in arrays
            and any("grad" in step.operation or "backward" in step.operation for step in plan.steps)
        ):
            arrays[self.name] *= self.factor


@pytest.fixture
def broken(monkeypatch):
    """broken(tensor, factor): every executor scales that gradient."""

    def wrong(name, factor):
        create = executors.create
        monkeypatch.setattr(
            executors,
            "create",
            lambda *arguments: Broken(create(*arguments), f"{name}.gradient", factor),
        )

    return wrong


@pytest.mark.parametrize(
    "name", ["forked", "sparse", "drawn", "all kinds", "alexnet", "preactivation"]
)
@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential"])
def test_the_rungs_of_the_cpu_agree_with_differences_to_many_digits(name, rung):
    found = gradient_check.check(zoo.NETWORKS[name], rung, 2)
    assert found["passed"] and found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-12)
    assert max(one["deviation"] for one in found["tensors"]) < 1e-6
    assert {one["tensor"] for one in found["tensors"]} == zoo.NETWORKS[name].parameters.keys()


def test_a_rung_of_a_gpu_agrees_in_single_precision(monkeypatch):
    create = executors.create
    monkeypatch.setattr(
        executors,
        "create",
        lambda rung, threads: (
            emulator_executor.Executor("forward") if rung == "gpu_basic" else create(rung, threads)
        ),
    )
    found = gradient_check.check(NETWORK, "gpu_basic", 1)
    assert found["passed"] and found["precision"] == "float32"
    assert 1e-9 < max(one["deviation"] for one in found["tensors"]) < 1e-3


@pytest.mark.parametrize("factor", [0.99, 1.01, -1, 0, float("nan")])
@pytest.mark.parametrize("tensor", ["first.weight", "second.bias", "scores.weight"])
def test_a_gradient_that_is_wrong_by_one_percent_deviates(broken, tensor, factor):
    broken(tensor, factor)
    found = gradient_check.check(NETWORK, "cpu", 1)
    wrong = [one["tensor"] for one in found["tensors"] if not one["passed"]]
    assert not found["passed"] and wrong == [tensor]


def test_a_step_over_a_bend_of_the_loss_is_shortened(monkeypatch):
    """A first step so long that ReLUs switch within it deviates; shorter ones show that the
    gradient is right.
    """
    monkeypatch.setattr(gradient_check, "STEPS", (0.3,))
    assert not gradient_check.check(NETWORK, "cpu", 1)["passed"]
    monkeypatch.setattr(gradient_check, "STEPS", (0.3, 1e-6))
    assert gradient_check.check(NETWORK, "cpu", 1)["passed"]


def test_a_penalty_is_part_of_what_is_differentiated():
    layers = (conv2d("code", 4), relu("code_relu"), l1_penalty("penalty", 50.0), conv2d("last", 2))
    network = networks.resolve("penalised", (6, 6, 2), layers, "code_relu", "mse")
    found = gradient_check.check(network, "cpu", 1)
    assert found["passed"]
    plain = gradient_check.check(
        networks.resolve("plain", (6, 6, 2), (*layers[:2], layers[3]), "code_relu", "mse"), "cpu", 1
    )
    norms = [
        next(one["norm"] for one in some["tensors"] if one["tensor"] == "code.weight")
        for some in (found, plain)
    ]
    assert norms[0] > 2 * norms[1]


def test_the_divergence_is_part_of_what_is_differentiated():
    def norm(beta):
        network = networks.build(
            "autoencoder", (8, 8, 2), filters=(4,), variational=True, beta=beta
        )
        found = gradient_check.check(network, "cpu", 1)
        assert found["passed"]
        return next(
            one["norm"] for one in found["tensors"] if one["tensor"] == "log_variance.weight"
        )

    assert norm(20.0) > 2 * norm(0.01)
