"""The features of training and test images, and which images are computed for them."""

import numpy as np
import pytest

import answering_run
import extract_features
import manifest_files
from ladder.arithmetic import arrays
from ladder.features import features
from ladder.store import artifacts
from ladder.training.inference import Inference

OPTIONS = {"data_residency": "auto", "multiplier": "exact"}


@pytest.mark.parametrize("rows", [40, 1000], ids=["a sample", "all images"])
@pytest.mark.parametrize("flip", [False, "apart"])
def test_images_that_pca_is_fitted_to_are_computed_once(rows, flip, tmp_path, monkeypatch):
    run, batches, seen = (
        answering_run.make(tmp_path, side=16),
        Inference.batches,
        {False: [], True: []},
    )
    monkeypatch.setattr(
        Inference,
        "batches",
        lambda self, images, mirrored=False: (
            seen[mirrored].extend(image.tobytes() for image in images),
            batches(self, images, mirrored),
        )[1],
    )
    monkeypatch.setattr(features, "prepare", lambda *arguments: None)
    params = {
        **run["features"].manifest["spec"]["params"],
        "features_flip": flip,
        "features_standardize": True,
        "features_pca": 12,
        "features_fit_rows": rows,
        "seed": 1,
    }
    read = {"normalized": run["normalized"], "weights": run["train"]}
    with artifacts.making(tmp_path / "f", manifest_files.spec("features", params)) as work:
        extract_features.make(work, read, params, OPTIONS)
    images = [run["normalized"].array(name) for name in ("train.npy", "test.npy")]
    once = sorted(image.tobytes() for part in images for image in part)
    assert sorted(seen[False]) == once and sorted(seen[True]) == (once if flip else [])

    fitted = artifacts.Artifact(tmp_path / "f")
    transform = features.FeatureTransform.from_params(params, fitted.tensors(features.FILE))
    encoder, _ = extract_features.ENCODERS["network"](read, params, 1, OPTIONS)
    for name, part in zip(("train", "test"), images, strict=True):
        expected = np.concatenate(
            [block.copy() for _, block in features.blocks(encoder, part, transform, arrays.NumPy())]
        )
        halves = [fitted.array(f"{name}{half}.npy") for half in (("", "_odd") if flip else ("",))]
        np.testing.assert_allclose(np.concatenate(halves, axis=1), expected, atol=1e-4)


def test_as_many_components_are_fitted_as_the_images_that_could_be_read_allow(tmp_path):
    run = answering_run.make(tmp_path, side=16)
    params = run["features"].manifest["spec"]["params"]
    params |= {"features_pca": 10, "features_fit_rows": 1000, "rows": 10, "seed": 1}
    read = {"normalized": run["normalized"], "weights": run["train"]}
    with artifacts.making(tmp_path / "f", manifest_files.spec("features", params)) as work:
        extract_features.make(work, read, params, OPTIONS)
    assert artifacts.Artifact(tmp_path / "f").metrics["dimensions"] == 9
