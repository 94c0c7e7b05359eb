"""The encoder's nodes give the features that the stage `features` computes, of images that are no
square too.
"""

import numpy as np
import onnxruntime

from ladder.data.normalization import Statistics
from ladder.export import encoder
from ladder.export.graph import Graph
from ladder.features import features
from ladder.network import networks, weights
from ladder.training.inference import Inference


def test_cells_of_a_grid_over_maps_that_are_no_square_have_two_sides(tmp_path):
    network = networks.build("autoencoder", (8, 12, 3), filters=(3, 7))
    layer, random = "enc1_pool", np.random.default_rng(3)
    values = weights.initialize(network, 1)
    weights.save(tmp_path / "weights", network, values)
    statistics = Statistics(np.full(3, 1 / 255, np.float32), np.zeros(3, np.float32))
    transform = features.FeatureTransform(
        threshold=0.1,
        grid=2,
        flip="apart",
        channel_mean=random.random(3, np.float32),
        channel_scale=np.float32([2, 0, 3]),
    )
    images = random.integers(0, 256, (9, *network.input_shape), np.uint8)
    own = Inference(network, "cpu", values, statistics, threads=1, until=layer)
    ((_, expected),) = features.blocks(own, images, transform)

    last = network.layer(layer)
    assert last.output_shape == (4, 6, 3)
    stored, appended = encoder.with_transform(
        weights.read(tmp_path / "weights", network), transform, last
    )
    part = encoder.Part(
        network.input_shape,
        (*network.needed_for(layer), *appended),
        24,
        stored,
        statistics,
        transform,
        1,
    )
    graph = Graph()
    for name, half in zip(("even", "odd"), encoder.rows(graph, [part], [(0, 0)]), strict=True):
        graph.put_out(name, half, np.float32, 24)
    session = onnxruntime.InferenceSession(graph.model(network.input_shape, {}).SerializeToString())
    given = np.concatenate(session.run(["even", "odd"], {"images": images}), axis=1)
    np.testing.assert_allclose(given, expected, atol=1e-6 * np.abs(expected).max())
    assert [
        row["window"]
        for row in encoder.described([part])[0]["layers"]
        if row["layer"] == "average-of-each"
    ] == [[2, 3]]
