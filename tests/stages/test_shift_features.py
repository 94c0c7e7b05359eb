"""The features of shifted test images."""

import hashlib

import numpy as np
import pytest

import answering_run
import extract_features
import manifest_files
import shift_features
from ladder import progress
from ladder.features import features, shifts
from ladder.store import artifacts

OPTIONS = {"data_residency": "auto", "multiplier": "exact"}
RUNS = {
    "plain": {},
    "standardised": {"features_standardize": True, "features_flip": True, "features_pool": 4},
    "both halves, projected": {
        "features_flip": "apart",
        "features_standardize": True,
        "features_pca": 20,
        "features_fit_rows": 80,
        "seed": 1,
    },
    "whitened": {"normalization": "zca"},
    "pixels": {"encoder": "pixels", "features_pca": 9, "features_fit_rows": 80, "seed": 1},
}


def extracted(folder, stage, params, make, inputs):
    with artifacts.making(folder, manifest_files.spec(stage, params)) as work:
        make(work, inputs, params, OPTIONS)
    return artifacts.Artifact(folder)


def normalized(folder, like, test):
    """The artifact `like` with other test images."""
    with artifacts.making(folder, like.manifest["spec"]) as work:
        work.write_array("train.npy", like.array("train.npy"))
        work.write_array("test.npy", test)
        work.write_bytes("statistics.safetensors", like.path("statistics.safetensors").read_bytes())
    return artifacts.Artifact(folder)


@pytest.mark.parametrize("name", RUNS)
def test_they_are_the_features_of_images_shifted_before_the_extraction(name, tmp_path):
    run = answering_run.make(
        tmp_path, side=16, normalization=RUNS[name].get("normalization", "unit")
    )
    of = {**run["features"].manifest["spec"]["params"], **RUNS[name]}
    read = {"normalized": run["normalized"], "weights": run["train"]}
    whole = extracted(tmp_path / "f", "features", of, extract_features.make, read)
    found = extracted(
        tmp_path / "s",
        "shifted",
        {"classify_shifts": 2},
        shift_features.make,
        {"features": whole, **read},
    )
    images = np.asarray(run["normalized"].array("test.npy"))
    height, width = images.shape[1:3]
    for number, (down, right) in enumerate([(2, 2), (-2, -2), (2, -2), (-2, 2)]):
        padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
        moved = padded[:, 2 - down : 2 - down + height, 2 - right : 2 - right + width]
        read["normalized"] = normalized(tmp_path / f"n{number}", run["normalized"], moved)
        expected = extracted(tmp_path / f"f{number}", "features", of, extract_features.make, read)
        for half in ("", "_odd") if of["features_flip"] == "apart" else ("",):
            np.testing.assert_array_equal(
                found.array(f"shifted{half}.npy")[number], expected.array(f"test{half}.npy")
            )
        assert np.abs(expected.array("test.npy") - whole.array("test.npy")).max() > 1e-3
    assert set(found.manifest["files"]) == set(shifts.NAMES[: 1 + (of["features_flip"] == "apart")])
    assert found.metrics["dimensions"] == whole.metrics["dimensions"]


@pytest.mark.parametrize("flip, halves", [(True, 1), ("apart", 2)])
def test_the_disk_that_they_take_is_announced(flip, halves, tmp_path, monkeypatch):
    run, said = answering_run.make(tmp_path, side=16, features_flip=flip), []
    monkeypatch.setattr(progress.log, "info", lambda text, *values: said.append(text % values))
    inputs = {"features": run["features"], "normalized": run["normalized"], "weights": run["train"]}
    found = extracted(
        tmp_path / "s", "shifted", {"classify_shifts": 1}, shift_features.make, inputs
    )
    written = sum(found.array(name).nbytes for name in found.manifest["files"])
    assert written == 4 * 4 * halves * answering_run.TEST * run["features"].metrics["dimensions"]
    width = halves * run["features"].metrics["dimensions"]
    assert (
        f"120 feature vectors of {width} values of shifted images: {progress.size(written)} on disk"
        in said
    )


def test_an_interrupted_extraction_is_made_again_with_the_same_bytes(tmp_path, monkeypatch):
    run = answering_run.make(tmp_path, side=16, features_flip="apart")
    inputs = {"features": run["features"], "normalized": run["normalized"], "weights": run["train"]}

    def make(folder):
        made = extracted(folder, "shifted", {"classify_shifts": 1}, shift_features.make, inputs)
        return {
            name: hashlib.sha256(made.path(name).read_bytes()).hexdigest()
            for name in made.manifest["files"]
        }

    whole, extract, calls = make(tmp_path / "whole"), features.extract, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        extract(*arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(features, "extract", interrupted)
        make(tmp_path / "torn")
    assert len(calls) == 3 and not (tmp_path / "torn/manifest.json").exists()
    assert make(tmp_path / "torn") == whole
