"""Shifted images, and rows that are joined as they are read."""

import numpy as np
import pytest

from ladder.data.normalization import Statistics
from ladder.features import features, shifts
from ladder.network import networks, weights
from ladder.training.inference import Inference

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 9, 3), dtype=np.uint8)


def moved(images, down, right):
    """By definition: the window of the padded images."""
    reach = max(abs(down), abs(right))
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    height, width = images.shape[1:3]
    return padded[:, reach - down : reach - down + height, reach - right : reach - right + width]


@pytest.mark.parametrize(
    "images", [IMAGES, IMAGES.astype(np.float32) / 7], ids=["uint8", "float32"]
)
@pytest.mark.parametrize("distance", [1, 2, 5])
def test_a_shifted_image_is_moved_and_repeats_the_values_at_its_edges(images, distance):
    for offset in shifts.offsets(distance):
        some = shifts.Shifted(images, offset)
        assert len(some) == 5 and some[1:4].dtype == images.dtype and some[1:4].flags.c_contiguous
        np.testing.assert_array_equal(some[1:4], moved(images[1:4], *offset))
    assert moved(IMAGES, 1, 1)[0, 3, 4].tolist() == IMAGES[0, 2, 3].tolist()


def test_the_copies_lie_on_both_diagonals():
    assert shifts.offsets(2) == [(2, 2), (-2, -2), (2, -2), (-2, 2)]
    assert shifts.offsets("none") == []


def encoder(network, layer):
    """An Inference with weights large enough that codes are not 0."""
    random, shapes = np.random.default_rng(2), weights.shapes(network)
    values = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return Inference(
        network,
        "cpu",
        values,
        Statistics(np.full(3, 1 / 60, np.float32), np.full(3, -2, np.float32)),
        2,
        layer,
    )


PATCH_NETS = [
    networks.build("patch_net", filters=(8, 6, 10, 12), kernel=kernel) for kernel in (6, 8)
]
WTA = networks.build("wta_autoencoder", (32, 32, 3), filters=4, kernels=(6, 6))


@pytest.mark.parametrize(
    "network, layer, distance",
    [
        (PATCH_NETS[0], "pool2", 1),
        (PATCH_NETS[1], "pool2", 1),
        (PATCH_NETS[0], "pool2", 2),
        (PATCH_NETS[0], "pool2", 3),
        (PATCH_NETS[0], "conv2", 1),
        (WTA, "contrast", 1),
        (WTA, "code", 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_copies_computed_together_are_those_computed_one_by_one(network, layer, distance):
    alone, transform = encoder(network, layer), features.FeatureTransform(flip="apart")
    together = shifts.CopiesEncoder.from_encoder(alone, distance)
    assert together.encoder.network.input_shape == (32 + 2 * distance, 32 + 2 * distance, 3)
    images = np.random.default_rng(0).integers(0, 256, (70, 32, 32, 3), dtype=np.uint8)
    width = np.prod(network.layer(layer).output_shape)
    copies, expected = np.zeros((2, 2, 4, 70, width), np.float32)
    features.extract(
        together, shifts.Copies(images), transform, [shifts.ByCopy(out) for out in copies], ""
    )
    for number, offset in enumerate(shifts.offsets(distance)):
        features.extract(alone, shifts.Shifted(images, offset), transform, expected[:, number], "")
    assert (np.abs(expected) > 0.01).mean() > 0.5 and np.abs(
        expected[:, 0] - expected[:, 1]
    ).max() > 0.1
    np.testing.assert_allclose(copies, expected, atol=1e-4)


@pytest.mark.parametrize(
    "network, layer, distance",
    [
        (networks.build("autoencoder", filters=(4, 4)), "enc2", 2),
        (WTA, "winners", 1),
        (networks.build("resnet18", width=4), "pool", 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_copies_are_computed_one_by_one_where_padding_or_strides_part_them(
    network, layer, distance
):
    names = [row.name for row in network.layers]
    assert (
        shifts.CopiesEncoder.from_encoder(
            encoder(network, layer if layer in names else network.features), distance
        )
        is None
    )


def test_copies_of_raw_pixels_are_computed_one_by_one():
    assert shifts.CopiesEncoder.from_encoder(features.Pixels(None), 1) is None


def test_rows_of_parts_are_joined_as_they_are_read():
    random = np.random.default_rng(1)
    one, other = (random.normal(size=(7, width)).astype(np.float32) for width in (3, 2))
    joined = shifts.Joined([(1, one), (0.3, other)])
    assert joined.shape == (7, 5) and len(joined) == 7 and joined[2:4].dtype == np.float32
    np.testing.assert_array_equal(joined[2:4], np.hstack([one, np.float32(0.3) * other])[2:4])
