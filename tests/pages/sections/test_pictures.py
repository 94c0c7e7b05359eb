"""The pictures of a report show the contents of the artifacts."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import synthetic_run
from ladder.network import networks, weights
from ladder.pages.sections import pictures


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("dense"), "mnist", network="lenet_300_100", steps=7)


def picture(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_filters_of_one_channel_are_grey_pictures(lenet):
    found = pictures.filters_of(lenet["train"], networks.from_params(lenet["train"].manifest["spec"]["params"]))
    assert (found["layer"], found["count"], found["shown"], found["size"]) == ("conv1", 6, 6, "5 × 5")
    pixels = picture(found["image"])
    assert (pixels[..., 0] == pixels[..., 1]).all() and len(np.unique(pixels[..., 0])) > 20


def test_units_of_a_dense_first_layer_are_shown_as_images(dense):
    network = networks.from_params(dense["train"].manifest["spec"]["params"])
    found = pictures.filters_of(dense["train"], network)
    assert (found["count"], found["shown"], found["size"]) == (300, pictures.UNIT_LIMIT, "28 × 28") and found["dense"]
    first = weights.read(dense["train"].path("weights.safetensors"), network)["fc1.weight"]
    strongest = first[np.argmax(np.linalg.norm(first, axis=1))].reshape(28, 28)
    tile = picture(found["image"])[:56:2, :56:2, 0].astype(float)   # each pixel twice as large
    assert np.corrcoef(tile.ravel(), strongest.ravel())[0, 1] > 0.999


def test_a_first_layer_of_other_channels_is_not_shown(dense):
    of = networks.build("lenet_5", (32, 32, 5))
    names = {name: np.zeros(shape, np.float32) for name, shape in weights.shapes(of).items()}
    path = dense["train"].folder / "other.safetensors"
    weights.save(path, of, names)

    class Train:
        @staticmethod
        def path(name):
            return path

    assert pictures.filters_of(Train, of) is None
