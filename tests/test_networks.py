"""Shapes, parameters and work of the layers and of the networks made of them."""

import pytest

from ladder import layers, networks


def test_the_autoencoder_has_its_published_size():
    network = networks.build("autoencoder")
    assert network.parameter_count == 751_875
    assert {layer.name: layer.output_shape for layer in network.layers if layer.kind == "conv2d"} == {
        "enc1": (32, 32, 256), "enc2": (16, 16, 128), "dec1": (8, 8, 128), "dec2": (16, 16, 256), "dec3": (32, 32, 3)}
    assert network.layer(network.features).output_shape == (8, 8, 128)
    assert network.layers[-1].output_shape == network.input_shape


def test_the_autoencoder_does_the_published_work():
    network = networks.build("autoencoder")
    assert sum(layer.macs for layer in network.layers) / 1e6 == pytest.approx(174.6, abs=0.05)


def test_layers_read_the_layer_before_them_unless_they_name_others():
    network = networks.resolve("small", (9, 7, 2), (layers.conv2d("a", 4, kernel=5, padding=1), layers.maxpool2d("b"),
                                                     layers.upsample2d("c")), "b", "mse")
    assert [layer.inputs for layer in network.layers] == [("input",), ("a",), ("b",)]
    assert [layer.output_shape for layer in network.layers] == [(7, 5, 4), (3, 2, 4), (6, 4, 4)]
    assert network.parameters == {"a.weight": (4, 5, 5, 2), "a.bias": (4,)}
