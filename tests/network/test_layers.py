"""Shapes, parameters, state and multiply-accumulates of each kind of layer, and inputs that are
refused.
"""

import pytest

import zoo
from ladder.errors import UserError
from ladder.network import layers, networks


def resolved(layer, image):
    """The layer with an input of this shape."""
    return networks.resolve("alone", image, (layer,), layer.name, "mse").layers[0]


@pytest.mark.parametrize(
    "layer, image, output",
    [
        (layers.conv2d("conv", 5), (9, 7, 2), (9, 7, 5)),
        (layers.conv2d("conv", 5, stride=2), (9, 8, 2), (5, 4, 5)),
        (layers.conv2d("conv", 5, kernel=7, padding=3, stride=2), (28, 27, 1), (14, 14, 5)),
        (layers.conv2d("conv", 5, kernel=1, padding=0, stride=2), (7, 8, 2), (4, 4, 5)),
        (layers.conv2d("conv", 5, kernel=9, padding=0), (9, 9, 1), (1, 1, 5)),
        (layers.dense("scores", 5), (1, 1, 12), (1, 1, 5)),
        (layers.maxpool2d("pool", 3, 2, 1), (14, 13, 2), (7, 7, 2)),
        (layers.maxpool2d("pool", 2, 1, 1), (1, 1, 2), (2, 2, 2)),
        (layers.maxpool2d("pool", 15, 1, 7), (14, 9, 2), (14, 9, 2)),
        (layers.avgpool2d("pool", 3, 1, 1), (5, 4, 2), (5, 4, 2)),
        (layers.global_avgpool("mean"), (5, 4, 2), (1, 1, 2)),
        (layers.upsample2d("up"), (5, 4, 2), (10, 8, 2)),
        (layers.pad("padded", 3), (5, 4, 2), (11, 10, 2)),
        (layers.flatten("flat"), (5, 4, 2), (1, 1, 40)),
        (layers.attention("attention"), (5, 4, 6), (5, 4, 2)),
        (layers.soft_threshold("both", 0.5), (5, 4, 2), (5, 4, 4)),
    ],
    ids=str,
)
def test_output_shapes(layer, image, output):
    assert resolved(layer, image).output_shape == output


def test_a_sample_needs_a_mean_and_a_log_variance_of_one_shape():
    kind = layers.KINDS["sample"]
    with pytest.raises(
        ValueError, match=r"a mean of shape \(5, 4, 2\) has no log-variance of shape \(5, 4, 3\)"
    ):
        kind.output_shape({}, (5, 4, 2), (5, 4, 3))


def test_an_addition_has_the_shape_of_its_terms():
    table = layers.relu("a"), layers.relu("b"), layers.add("sum", ["a", "b"])
    network = networks.resolve("sum", (4, 6, 2), table, "sum", "mse")
    assert network.layer("sum").output_shape == (4, 6, 2) and network.layer("sum").inputs == (
        "a",
        "b",
    )
    assert network.layer("sum").input_shapes == ((4, 6, 2), (4, 6, 2))


@pytest.mark.parametrize(
    "layer, image, parameters, state",
    [
        (
            layers.conv2d("conv", 5, kernel=7),
            (9, 9, 2),
            {"conv.weight": (5, 7, 7, 2), "conv.bias": (5,)},
            {},
        ),
        (layers.conv2d("conv", 5, bias=False), (9, 9, 2), {"conv.weight": (5, 3, 3, 2)}, {}),
        (layers.dense("fc", 5), (1, 1, 12), {"fc.weight": (5, 1, 1, 12), "fc.bias": (5,)}, {}),
        (
            layers.batchnorm("bn"),
            (4, 3, 7),
            {"bn.weight": (7,), "bn.bias": (7,)},
            {"bn.running_mean": (7,), "bn.running_var": (7,)},
        ),
    ],
    ids=str,
)
def test_parameters_and_state(layer, image, parameters, state):
    layer = resolved(layer, image)
    assert (layer.parameters, layer.state) == (parameters, state)


def test_the_other_kinds_have_no_parameters():
    others = zoo.LAYERS.keys() - {"conv2d", "dense", "batchnorm"}
    assert not any(zoo.LAYERS[kind].parameters | zoo.LAYERS[kind].state for kind in others)


def test_macs_count_the_products_of_every_window():
    assert resolved(
        layers.conv2d("conv", 5, kernel=3, stride=2, bias=False), (9, 8, 2)
    ).macs == 5 * 4 * 5 * (3 * 3 * 2)
    assert resolved(layers.dense("fc", 5), (1, 1, 12)).macs == 60
    # scores, sums
    assert resolved(layers.attention("attention"), (5, 4, 6)).macs == 20 * 20 * 2 + 20 * 20 * 2
    assert (
        resolved(layers.batchnorm("bn"), (9, 8, 2)).macs
        == resolved(layers.maxpool2d("pool"), (9, 8, 2)).macs
        == 0
    )


@pytest.mark.parametrize(
    "layer, image, message",
    [
        (
            layers.conv2d("conv", 5, kernel=5, padding=0),
            (4, 6, 1),
            "a window of 5x5 does not fit 4x6 pixels",
        ),
        (layers.conv2d("conv", 5, kernel=7), (6, 4, 1), "a window of 7x7 does not fit 6x4 pixels"),
        (layers.maxpool2d("pool"), (1, 6, 1), "a window of 2x2 does not fit 1x6 pixels"),
        (
            layers.maxpool2d("pool", 2, 2, 2),
            (8, 6, 1),
            "a pooling window of 2 with padding 2 may see no pixel",
        ),
        (
            layers.avgpool2d("pool", 3, 2, 2),
            (8, 6, 1),
            "a pooling window of 3 with padding 2 may see no pixel",
        ),
        (
            layers.maxpool2d("pool", 16, 1),
            (16, 16, 1),
            "a pooling window of 16: the maximum's index has 8 bits, so at most 15",
        ),
        (
            layers.dense("fc", 5),
            (8, 6, 1),
            "a dense layer reads a vector, not 8x6 pixels; flatten them first",
        ),
        (
            layers.dense("fc", 5),
            (1, 6, 1),
            "a dense layer reads a vector, not 1x6 pixels; flatten them first",
        ),
        (
            layers.attention("attention"),
            (8, 6, 10),
            "attention reads queries, keys and values, a third of the channels each, not of 10; 12 can be parted",
        ),
    ],
    ids=str,
)
def test_a_layer_that_cannot_process_its_input_gives_the_reason(layer, image, message):
    with pytest.raises(UserError) as error:
        networks.resolve("small", image, (layer,), layer.name, "mse")
    height, width, _ = image
    assert (
        str(error.value)
        == f"config: network small cannot read images of {height}x{width}: layer {layer.name}: {message}"
    )


@pytest.mark.parametrize("other", [layers.maxpool2d("b"), layers.conv2d("b", 3)], ids=str)
def test_only_layers_of_one_shape_are_added(other):
    with pytest.raises(
        UserError,
        match=r"layer sum: layers of shapes \(4, 6, 2\) and \(\d, \d, \d\) cannot be added",
    ):
        networks.resolve(
            "sum", (4, 6, 2), (layers.relu("a"), other, layers.add("sum", ("a", "b"))), "sum", "mse"
        )


def test_a_local_contrast_has_the_shape_of_its_first_input():
    table = (
        layers.conv2d("a", 4, kernel=3, padding=0),
        layers.local_contrast("b", 3, ("a", networks.INPUT), 1e-3),
    )
    assert networks.resolve("even", (5, 7, 2), table, "b", None).layer("b").output_shape == (
        3,
        5,
        4,
    )


def test_a_local_contrast_needs_the_windows_of_its_first_input():
    table = (
        layers.conv2d("a", 4, kernel=3),
        layers.local_contrast("b", 3, ("a", networks.INPUT), 1e-3),
    )
    with pytest.raises(
        UserError,
        match="layer b: 5x7 pixels are not those of a window of 3x3 that slides over 5x7 pixels",
    ):
        networks.resolve("even", (5, 7, 2), table, "b", None)
