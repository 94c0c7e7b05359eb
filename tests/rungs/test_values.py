"""Buffers: which are made, how large, and that no two have one name."""

import pytest

import zoo
from ladder.errors import UserError
from ladder.network import layers, networks
from ladder.rungs.values import Values
from small_plans import training_plan


@pytest.mark.parametrize("winners", [1, 3])
def test_the_cpu_rung_stores_no_map_of_a_code_of_winners(winners):
    network = networks.build("wta_autoencoder", (16, 16, 3), filters=40, winners=winners)
    made, dense = (
        training_plan(network, rung=rung, batch=10) for rung in ("cpu", "cpu_sequential")
    )
    maps = 10 * 12 * 12 * 40 * 4  # bytes
    assert max(buffer.bytes for buffer in dense.buffers.values()) == maps
    assert max(buffer.bytes for buffer in made.buffers.values()) < maps / 5


# of 12 pixels, 4 channels each
ATTENTIVE = networks.build("autoencoder", (16, 12, 3), filters=(5, 4), attentive=True)


@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential", "gpu_basic", "gpu_opt_v2"])
def test_attention_keeps_its_weights_and_counts_two_products_forward_four_backward(rung):
    made = training_plan(ATTENTIVE, rung=rung, batch=10)
    assert made.buffers["attention.weights"].bytes == 4 * 10 * 12 * 12
    assert {
        step.operation: (step.flop, step.work)
        for step in made.steps
        if step.operation.startswith("attention")
    } == {
        "attention_forward": (10 * 2 * 2 * 12 * 12 * 4, "attention"),
        "attention_backward": (10 * 4 * 2 * 12 * 12 * 4, "attention"),
    }


def test_attention_over_more_pixels_than_a_kernel_can_index_is_refused():
    network = networks.resolve(
        "wide", (128, 128, 3), (layers.conv2d("parts", 9), layers.attention("all")), "all", "mse"
    )
    with pytest.raises(
        UserError,
        match="^batch_size 8 gives all.weights more numbers than gpu_basic can index; set batch_size "
        "to 7 or less$",
    ):
        training_plan(network, rung="gpu_basic", batch=8)
    assert (
        training_plan(network, rung="gpu_basic", batch=7).buffers["all.weights"].bytes
        == 4 * 7 * 2**28
    )


def test_two_buffers_of_one_name_are_refused(monkeypatch):
    """The partial sums of all batch normalisations in one buffer, of the last one's size."""
    called = Values.workspace

    def in_one(values, name, *spec):
        return called(values, "partials" if name.endswith(".partials") else name, *spec)

    monkeypatch.setattr(Values, "workspace", in_one)
    with pytest.raises(
        ValueError,
        match=r"^two buffers are called partials: .*shape=\(256, 8\).* and .*shape=\(256, 12\)",
    ):
        training_plan(zoo.ZOO, "gpu_basic")
