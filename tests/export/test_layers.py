"""Every kind of layer in onnxruntime gives what the cpu rung gives."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest

import zoo
from ladder.data.normalization import Statistics
from ladder.export import encoder, layers
from ladder.export.graph import Graph
from ladder.network import networks, weights
from ladder.network.layers import KINDS, conv2d, lrn, winner_take_all
from ladder.sources import ROOT
from ladder.training.inference import Inference

EVEN = networks.resolve(
    "an even window of channels, negative winners",
    (7, 6, 3),
    (
        conv2d("first", 9),
        lrn("even", size=4, alpha=0.5),
        winner_take_all("few", 3, 0.5),
        conv2d("last", 3),
    ),
    "few",
    "mse",
)
NETWORKS = {**zoo.NETWORKS, **zoo.FITTED, "even": EVEN}
STATISTICS = (1 / 128, -1.0)


def test_every_kind_has_a_row_here_and_in_the_file_for_pytorch():
    assert layers.LAYERS.keys() == KINDS.keys()
    text = (
        (ROOT / "workflow/resources/model/encoder.py")
        .read_text("utf-8")
        .partition("class Encoder")[0]
    )
    assert set(re.findall(r'"(\w+)"(?:: lambda|[,)])', text)) >= KINDS.keys()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_gives_in_onnxruntime_what_the_cpu_rung_gives(name, tmp_path):
    network, random = NETWORKS[name], np.random.default_rng(5)
    values = {
        key: random.normal(0.1, 0.4, shape).astype(np.float32)
        for key, shape in weights.shapes(network).items()
    }
    values |= {
        key: np.abs(value) + np.float32(0.5)
        for key, value in values.items()
        if key.endswith("running_var")
    }
    weights.save(tmp_path / "weights", network, values)
    statistics = Statistics(
        *(np.full(network.input_shape[2], value, np.float32) for value in STATISTICS)
    )
    images = random.integers(0, 256, (5, *network.input_shape), np.uint8)

    graph, stored = Graph(), weights.read(tmp_path / "weights", network)
    x = encoder.network_input(graph, network.input_shape, statistics)
    for layer in network.layers:
        graph.put_out(
            layer.name,
            layers.output(graph, network.needed_for(layer.name), stored, x),
            np.float32,
            None,
            None,
            None,
        )
    model = graph.model(network.input_shape, {})
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    ours = Inference(network, "cpu", values, statistics, threads=1)
    for layer, given in zip(network.layers, session.run(None, {"images": images}), strict=True):
        ours.until = layer.name
        expected = np.concatenate([block.copy() for _, block in ours.batches(images)]).transpose(
            0, 3, 1, 2
        )
        np.testing.assert_allclose(
            given, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max(), err_msg=layer.name
        )
