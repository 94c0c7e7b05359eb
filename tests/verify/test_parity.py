"""The cpu rung against the simplest plan: one operation per layer, nothing fused, float64; and the
protocol itself.
"""

import numpy as np
import pytest

import zoo
from ladder.executors import create as executors
from ladder.executors.cpu import executor as numpy_executor
from ladder.executors.cpu import small
from ladder.network import networks
from ladder.rungs import cpu
from ladder.rungs.interface import Implementation
from ladder.verify import parity

NETWORKS = {"autoencoder": networks.build("autoencoder"), **zoo.NETWORKS}
NARROW = networks.build("autoencoder", filters=(32, 32))
CONVOLUTIONS = [layer.name for layer in NARROW.layers if layer.kind == "conv2d"]


@pytest.fixture(scope="module", params=parity.PROTOCOLS)
def name(request):
    return request.param


# Of the tolerance. Through few winners an update is smaller, and the rounding of the weights larger
# beside it.
FACTORS = {"sparse": 2}


def train(network, name, dtype="float32", follow=None):
    return parity.train(
        network, "cpu", executors.create("cpu", 2), parity.protocols(network)[name], dtype, follow
    )


@pytest.fixture(scope="module")
def trained(name):
    return train(NARROW, name)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_cpu_rung_stays_within_the_tolerance(name, network, monkeypatch):
    network = NETWORKS[network]
    found = train(network, name)
    monkeypatch.setattr(
        cpu,
        "RUNG",
        Implementation(tuple(pattern for pattern in cpu.RUNG.patterns if len(pattern.kinds) == 1)),
    )
    deviations = parity.deviations(network, found, train(network, name, "float64", follow=found))
    tolerance = parity.protocols(network)[name].tolerance * FACTORS.get(
        network.name, 0.1 if network.classifies else 1
    )
    assert max(deviations.values()) <= tolerance, deviations


@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_a_gradient_wrong_by_one_percent_in_one_layer_fails(name, trained, layer, monkeypatch):
    # no convolution is a task, whose gradient cannot be replaced
    monkeypatch.setattr(small, "MOST_WEIGHTS", 0)
    wrong = NARROW.parameters[f"{layer}.weight"]
    backward = [name for name in numpy_executor.OPERATIONS if name.endswith("conv2d_backward")]
    for operation in backward:

        def scaled(executor, *, dweight, right=numpy_executor.OPERATIONS[operation], **operands):
            right(executor, dweight=dweight, **operands)
            if dweight.shape == wrong:
                dweight *= np.float32(1.01)

        monkeypatch.setitem(numpy_executor.OPERATIONS, operation, scaled)
    tensor, tolerance = f"{layer}.weight", parity.PROTOCOLS[name].tolerance
    assert (
        parity.deviations(NARROW, train(NARROW, name, follow=trained), trained)[tensor] > tolerance
    )


def test_a_following_training_starts_each_update_from_the_reference(name, trained):
    other = {tensor: 2 * values for tensor, values in trained.items()}
    followed = train(NARROW, name, follow=other)
    for tensor, values in trained.items():
        assert np.array_equal(followed[tensor][0], values[0])
        assert not np.array_equal(followed[tensor][1], values[1])
    again = train(NARROW, name, follow=trained)
    assert all(np.array_equal(again[tensor], values) for tensor, values in trained.items())


def test_a_deviation_is_the_median_over_the_updates_relative_to_their_size():
    network, tensor = zoo.NETWORKS["zoo"], "scores_a.bias"
    start = parity.initial(network)[tensor]
    # moves by 1, 2, 4, 1, 2
    right = np.stack([start + movement for movement in (1.0, 3.0, 7.0, 8.0, 10.0)])
    for errors, median in (
        ((0, 0, 0.4, 0.1, 0.2), 0.1),
        ((0, 0, 0, 9, 9), 0),
        ((0, np.nan, 0, 0, 0), np.nan),
    ):
        found = parity.deviations(
            network, {tensor: right + np.reshape(errors, (5, 1))}, {tensor: right}
        )
        assert found == {tensor: pytest.approx(median, nan_ok=True)}


def test_only_classifiers_have_labels_and_running_statistics_begin_as_in_training():
    assert "labels" not in parity.random_images(NARROW, 6)
    labels = parity.random_images(zoo.ZOO, 600)["labels"]
    assert labels.dtype == np.uint8 and set(labels) == set(range(5))
    initial = parity.initial(zoo.ZOO)
    assert set(initial) == {*zoo.ZOO.parameters, *zoo.ZOO.state}
    assert not initial["c7_bn.running_mean"].any() and (initial["c7_bn.running_var"] == 1).all()
    # ends a residual branch
    assert 0.05 <= initial["left_bn.weight"].min() and initial["left_bn.weight"].max() <= 0.15
    assert 0.5 <= initial["right_bn.weight"].min() and initial["right_bn.weight"].max() <= 1.5
