"""The stage `patches` on a few small images: its files, and independence of threads and rungs."""

import numpy as np
import pytest

import fit_patches
import manifest_files
import references
from ladder.data import normalization
from ladder.executors import create as executors
from ladder.network import networks, weights
from ladder.plan import plan
from ladder.store import artifacts
from ladder.verify import parity

IMAGE = (16, 12, 3)
PARAMS = {
    "network": "autoencoder",
    "autoencoder_filters": [6, 5],
    "autoencoder_norm": False,
    "image": list(IMAGE),
    "variant": "cpu",
    "array_library": "numpy",
    "patches_atoms": "kmeans",
    "patches_samples": [600, 300],
    "patches_whitening": [0.1, 0.5],
    "patches_iterations": 3,
    "seed": 7,
}
PATCH_NET = {
    **PARAMS,
    "network": "patch_net",
    "patch_net_filters": [5, 6, 7, 8],
    "image": [20, 21, 3],
}
NORM = {**PARAMS, "autoencoder_norm": True}


def fitted(folder, params, threads=2):
    """(network, artifact) of a fit, from images that have edges to be found."""
    height, width, channels = params["image"]
    random = np.random.default_rng(0)
    images = (
        np.cumsum(random.integers(-40, 41, (50, height, width, channels)), axis=2)
        .clip(-128, 127)
        .astype(np.int16)
        + 128
    )
    network, parents = networks.from_params(params), {}
    with artifacts.making(folder / "normalized/n0", manifest_files.spec("normalized")) as work:
        work.write_array("train.npy", images.astype(np.uint8))
        work.write_tensors(
            normalization.FILE,
            normalization.measure("standardize", images.astype(np.uint8)).tensors(),
        )
    initial = artifacts.making(folder / "initial/i0", manifest_files.spec("initial"))
    with initial as work, work.file(weights.file_name(network)) as path:
        weights.save(path, network, weights.initialize(network, 1))
    parents = {
        name: artifacts.Artifact(folder / place)
        for name, place in (("normalized", "normalized/n0"), ("initial", "initial/i0"))
    }
    with artifacts.making(folder / "patches/p0", manifest_files.spec("patches", params)) as work:
        work.threads = threads
        fit_patches.make(work, parents, params, {"data_residency": "auto"})
    return network, artifacts.Artifact(folder / "patches/p0")


def values(network, artifact):
    return weights.load(artifact.path(weights.file_name(network)), network)


@pytest.mark.parametrize(
    "params",
    [PARAMS, NORM, PATCH_NET, *({**PATCH_NET, "patch_net_kernel": side} for side in (4, 8))],
    ids=["autoencoder", "norm", "patch_net", "patch_net of 4x4", "patch_net of 8x8"],
)
def test_every_layer_with_a_fit_is_fitted_and_the_others_do_not_change(tmp_path, params):
    network, artifact = fitted(tmp_path, params)
    before, after = weights.initialize(network, 1), values(network, artifact)
    for name in network.parameters:
        layer, _, role = name.partition(".")
        if role == "weight" or layer not in network.encoder:
            assert np.array_equal(before[name], after[name]) == (layer not in network.encoder), name
    facts = artifact.metrics["layers"]
    assert [row["layer"] for row in facts] == list(network.encoder)
    assert [row["patches"] for row in facts] == [600, *[300] * (len(facts) - 1)]
    assert all(
        len(row["objective"]) == (3 if row["atoms"] else 0) and 0 < row["explained"] <= 1
        for row in facts
    )
    first = network.layer(network.fits[0].layer)
    assert artifact.array("atoms.npy").shape == first.parameters[f"{first.name}.weight"]
    assert artifact.metrics["parameters"] == network.parameter_count and artifact.metrics["kernels"]


def test_the_second_layer_is_fitted_to_the_output_of_the_first(tmp_path):
    """Its responses to patches of the first layer's output, computed by definition, have mean 0 and
    standard deviation 1.
    """
    network, artifact = fitted(tmp_path, {**PARAMS, "patches_samples": [600, 9000]})
    found, images = (
        values(network, artifact),
        artifacts.Artifact(tmp_path / "normalized/n0").array("train.npy"),
    )
    statistics = normalization.Statistics.load(artifacts.Artifact(tmp_path / "normalized/n0"))
    maps = references.relu(
        references.conv2d(statistics.apply(images), found["enc1.weight"], found["enc1.bias"], 1)
    )
    maps, _ = references.maxpool2d(maps)
    answers = references.conv2d(maps, found["enc2.weight"], found["enc2.bias"], 0)
    np.testing.assert_allclose(answers.mean(axis=(0, 1, 2)), 0, atol=0.1)
    np.testing.assert_allclose(answers.std(axis=(0, 1, 2)), 1, atol=0.1)


@pytest.mark.parametrize("kernel, window", [(4, 5), (6, 5), (8, 4)])
def test_the_features_of_a_fitted_patch_network_are_its_definition(tmp_path, kernel, window):
    """In float64, of the images that the network reads as they are: bytes over 255."""
    network, artifact = fitted(
        tmp_path, {**PATCH_NET, "patch_net_kernel": kernel, "image": [26, 27, 3]}
    )
    found, uploaded = values(network, artifact), parity.random_images(network, 2)
    assert (
        found["conv1.weight"].shape == artifact.array("atoms.npy").shape == (5, kernel, kernel, 3)
    )
    images = uploaded["images"] * uploaded["scale"].astype(np.float64)

    def conv(name, x):
        return references.conv2d(
            x, found[f"{name}.weight"], found.get(f"{name}.bias", 0), padding=0
        )

    maps = references.local_contrast(conv("conv1", images), images, kernel, 10 / 64**2)
    maps = conv("reduce", references.avgpool2d(references.soft_threshold(maps, 0.25), 3, 2))
    maps, _ = references.position_norm(conv("whiten", maps), 1e-6)
    expected = references.avgpool2d(references.soft_threshold(conv("conv2", maps), 0.25), window, 3)
    executor, steps = (
        executors.create("cpu", 1),
        plan.inference_plan(network, "cpu", 2, plan.Dataset(2, "uint8")),
    )
    arrays = executor.allocate(steps, executor.upload({**uploaded, **found}))
    executor.run(steps, arrays)
    features = executor.download(arrays[steps.output])
    assert features.shape == expected.shape == (2, 2, 2, 16) and expected.max() > 0
    assert np.abs(features - expected).max() <= 1e-4 * np.abs(expected).max()


def test_another_rung_fits_nearly_the_same_weights(tmp_path):
    """Random filters: k-means may assign a patch between two clusters to either."""
    params = {**NORM, "patches_atoms": "random"}
    del params["patches_iterations"]
    (network, here), (_, there) = (
        fitted(tmp_path / rung, {**params, "variant": rung}) for rung in ("cpu", "cpu_sequential")
    )
    here, there = values(network, here), values(network, there)
    assert all(
        np.abs(here[name] - there[name]).max() <= 1e-3 * np.abs(here[name]).max() for name in here
    )
