"""Feature vectors: order, pooling, mirroring, standardising, whole and partial batches."""

import numpy as np
import pytest

import references
from ladder import features, inference, networks, weights
from ladder.inference import Inference
from ladder.normalization import Statistics

NETWORK = networks.build("autoencoder")
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
SCALE, OFFSET = np.full(3, 1 / 255, np.float32), np.zeros(3, np.float32)


@pytest.fixture(scope="module")
def parameters():
    return weights.initialize(NETWORK, 3)


@pytest.fixture(scope="module")
def latent(parameters):
    """The latent of IMAGES by definition, float64 (N, 8, 8, 128)."""
    values = IMAGES / 255
    for name in ("enc1", "enc2"):
        values = references.conv2d(values, parameters[f"{name}.weight"], parameters[f"{name}.bias"], 1)
        values = references.relu(values)
        values = values.reshape(len(values), values.shape[1] // 2, 2, values.shape[2] // 2, 2, -1).max(axis=(2, 4))
    return values


def extract(parameters, images=IMAGES, pool=0, flip=False):
    encoder = Inference(NETWORK, "cpu", parameters, SCALE, OFFSET, threads=2, until="latent")
    out = np.full((len(images), features.dimensions((8, 8, 128), pool)), np.nan, np.float32)
    features.extract(encoder, images, out, pool, flip, "")
    return out


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_features_are_the_latent_channel_by_channel_for_any_batch_size(parameters, latent, batch, monkeypatch):
    monkeypatch.setattr(inference, "BATCH", batch)
    expected = latent.transpose(0, 3, 1, 2).reshape(5, 8192)
    assert np.allclose(extract(parameters), expected, rtol=1e-4, atol=1e-5)


def test_pooling_averages_over_a_grid(parameters, latent):
    expected = latent.reshape(5, 4, 2, 4, 2, 128).mean(axis=(2, 4)).transpose(0, 3, 1, 2).reshape(5, 2048)
    assert np.allclose(extract(parameters, pool=4), expected, rtol=1e-4, atol=1e-5)


def test_flip_averages_with_the_mirror_image_so_both_get_the_same_features(parameters):
    plain = extract(parameters, flip=True)
    assert np.allclose(plain, (extract(parameters) + extract(parameters, IMAGES[:, :, ::-1])) / 2, atol=1e-6)
    assert np.allclose(plain, extract(parameters, np.ascontiguousarray(IMAGES[:, :, ::-1]), flip=True), atol=1e-6)


def test_a_grid_that_does_not_divide_the_map_is_refused():
    with pytest.raises(ValueError, match="8x8"):
        features.average_pool(np.zeros((1, 8, 8, 2)), 3)


def test_standardise_uses_the_training_rows_alone_and_zeroes_constant_features():
    rng = np.random.default_rng(0)
    train, test = rng.normal(5, 3, (4001, 3)).astype(np.float32), rng.normal(7, 1, (7, 3)).astype(np.float32)
    train[:, 1] = test[:, 1] = 0.1
    varying = [0, 2]
    mean, deviation = (statistic(train[:, varying].astype(np.float64), axis=0) for statistic in (np.mean, np.std))
    expected = [(rows[:, varying] - mean) / deviation for rows in (train, test)]
    features.standardize(train, test)
    for rows, wanted in zip((train, test), expected, strict=True):
        assert np.allclose(rows[:, varying], wanted, atol=1e-5)
        assert not rows[:, 1].any()


def test_pixels_are_the_normalised_images_channel_by_channel():
    out = np.full((5, 3072), np.nan, np.float32)
    features.pixels(IMAGES, Statistics(SCALE, OFFSET), out)
    assert np.allclose(out, IMAGES.transpose(0, 3, 1, 2).reshape(5, -1) / 255)
