"""Gradients of values: which have one, and the sums of their readers' parts."""

import pytest

from ladder.network import layers
from small_plans import graph, training_plan


def steps_of(network, *operations):
    """(layer, reads, writes) of the backward steps with these operations."""
    made = training_plan(network, "cpu_sequential")
    loss = [step.operation for step in made.steps].index(
        "cross_entropy" if network.classifies else "mse"
    )
    return [
        (step.layer, dict(step.reads), dict(step.writes))
        for step in made.steps[loss:]
        if step.operation in operations
    ]


def test_the_parts_of_a_gradient_are_added_before_it_is_used():
    network = graph(
        layers.conv2d("a", 4),
        layers.relu("b"),
        layers.conv2d("c", 4),
        layers.add("d", ("b", "c")),
        layers.add("e", ("d", "b")),
    )
    assert steps_of(network, "add_forward", "relu_backward") == [
        ("b", {"a": "e.gradient", "b": "e.gradient"}, {"y": "b.gradient.sum1"}),
        ("b", {"a": "b.gradient.sum1", "b": "b.gradient.3"}, {"y": "b.gradient.sum2"}),
        ("b", {"y": "b", "dy": "b.gradient.sum2"}, {"dx": "a.gradient"}),
    ]


def test_the_gradient_of_a_sum_goes_to_both_terms_even_if_they_are_equal():
    network = graph(layers.conv2d("a", 4), layers.add("b", ("a", "a")))
    assert steps_of(network, "add_forward", "conv2d_weight_grad") == [
        ("a", {"a": "b.gradient", "b": "b.gradient"}, {"y": "a.gradient.sum1"}),
        ("a", {"x": "input", "dy": "a.gradient.sum1"}, {"dweight": "a.weight.gradient"}),
    ]


def test_values_that_depend_on_no_parameters_get_no_gradient():
    network = graph(
        layers.pad("a", 1),
        layers.maxpool2d("b", 3, 1, 0),
        layers.conv2d("c", 4),
        layers.add("d", ("c", "b")),
    )
    made = training_plan(network, "cpu_sequential")
    assert {name for name in made.buffers if name.endswith(".gradient")} == {
        "d.gradient",
        "c.weight.gradient",
        "c.bias.gradient",
    }


def test_a_layer_that_reads_a_trained_layer_cannot_be_frozen():
    with pytest.raises(
        ValueError, match="layer enc2 cannot be frozen: it reads the output of a trained layer"
    ):
        training_plan(frozen=("enc2",))
