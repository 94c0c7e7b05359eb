"""The pictures of a report show the contents of the artifacts."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import synthetic_run
from ladder.network import networks, weights
from ladder.pages import report
from ladder.pages.sections import pictures


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return synthetic_run.make(
        tmp_path_factory.mktemp("dense"), "mnist", network="lenet_300_100", steps=7
    )


def picture(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_filters_of_one_channel_are_grey_pictures(lenet):
    found = pictures.filters_of(
        lenet["train"], networks.from_params(lenet["train"].manifest["spec"]["params"])
    )
    assert (found["layer"], found["count"], found["shown"], found["size"]) == (
        "conv1",
        6,
        6,
        "5 × 5",
    )
    pixels = picture(found["image"])
    assert (pixels[..., 0] == pixels[..., 1]).all() and len(np.unique(pixels[..., 0])) > 20


def test_units_of_a_dense_first_layer_are_shown_as_images(dense):
    network = networks.from_params(dense["train"].manifest["spec"]["params"])
    found = pictures.filters_of(dense["train"], network)
    assert (found["count"], found["shown"], found["size"]) == (
        300,
        pictures.UNIT_LIMIT,
        "28 × 28",
    ) and found["dense"]
    first = weights.read(dense["train"].path("weights.safetensors"), network)["fc1.weight"]
    strongest = first[np.argmax(np.linalg.norm(first, axis=1))].reshape(28, 28)
    tile = picture(found["image"])[:56:2, :56:2, 0].astype(float)  # each pixel twice as large
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


def test_filters_and_reconstructions_are_shown_by_epoch_with_the_images_above(digits, monkeypatch):
    random = np.random.default_rng(2)
    network = networks.from_params(digits["train"].manifest["spec"]["params"])
    last = weights.of_artifact(digits["train"], network)[f"{network.layers[0].name}.weight"]
    tensors = {
        f"{epoch}.filters": random.standard_normal(last.shape).astype(np.float32)
        for epoch in (0, 1, 2)
    }
    tensors |= {
        f"{epoch}.reconstructions": random.integers(0, 256, (8, 32, 32, 3), np.uint8)
        for epoch in (0, 1, 2)
    }
    assert (
        pictures.reconstructions(digits, {"share": True})["epochs"]
        == []
        == pictures.filters(digits, {})["epochs"]
    )
    kinds = {
        kind: {epoch: tensors[f"{epoch}.{kind}"] for epoch in (0, 1, 2)}
        for kind in ("filters", "reconstructions")
    }
    monkeypatch.setattr(
        pictures,
        "by_epoch",
        lambda inputs, kind: {f"epoch {epoch}": array for epoch, array in kinds[kind].items()},
    )
    rebuilt, drawn = (
        pictures.reconstructions(digits, {"share": True})["epochs"],
        pictures.filters(digits, {}),
    )
    assert [frame["name"] for frame in rebuilt] == ["epoch 0", "epoch 1", "epoch 2", "the end"]
    sheet = picture(rebuilt[1]["image"])
    assert np.array_equal(sheet[:32, :32, :3], digits["data"].array("test_images.npy")[0])
    assert np.array_equal(sheet[34:66, 34:66, :3], tensors["1.reconstructions"][1])
    assert (
        drawn["epochs"][-1] == {"name": "the end", "image": drawn["image"]}
        and len(drawn["epochs"]) == 4
    )
    assert report.page(digits, report.summary(digits, "r0123456789e")).count(drawn["image"]) == 1
