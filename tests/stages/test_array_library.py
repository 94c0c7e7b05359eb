"""Stages that classify and extract with CuPy, on a stand-in: the predictions of NumPy, and a
manifest that names the GPU.
"""

import numpy as np
import pytest
import sklearn.datasets

import classify_knn
import extract_features
import fit_ridge
import manifest_files
import numpy_cupy
from ladder.data import normalization
from ladder.store import artifacts, scores

ROWS, DIGITS = sklearn.datasets.load_digits(return_X_y=True)
IMAGES = ROWS[:400].reshape(-1, 8, 8, 1).astype(np.uint8)


def write(folder, name, **arrays):
    with artifacts.making(folder / name, manifest_files.spec(name, {"dataset": "digits"})) as work:
        work.metrics["classes"] = [str(digit) for digit in range(10)]
        for file, values in arrays.items():
            work.write_array(f"{file}.npy", values)
        if name == "normalized":
            work.write_tensors(normalization.FILE, normalization.measure("unit", IMAGES).tensors())
    return artifacts.Artifact(folder / name)


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "record", lambda work, inputs: None)
    labels = DIGITS[:400].astype(np.uint8)
    return {
        "data": write(tmp_path, "data", train_labels=labels[:300], test_labels=labels[300:]),
        "features": write(
            tmp_path,
            "features",
            train=ROWS[:300].astype(np.float32),
            test=ROWS[300:400].astype(np.float32),
        ),
        "normalized": write(tmp_path, "normalized", train=IMAGES[:300], test=IMAGES[300:]),
    }


STAGES = {
    "ridge": (fit_ridge, {"seed": 1}, "predictions.npy"),
    "knn": (classify_knn, {"knn_k": 5}, "predictions.npy"),
    "features": (
        extract_features,
        {"encoder": "pixels", "features_pca": 9, "features_fit_rows": 200, "seed": 1},
        "test.npy",
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_computes_the_same_on_a_gpu_and_says_so(inputs, tmp_path, monkeypatch, stage):
    script, params, file = STAGES[stage]
    gpu, found = numpy_cupy.install(monkeypatch), []
    for library in ("numpy", "cupy"):
        uploaded = gpu.moved["there"]
        with artifacts.making(
            tmp_path / f"made {library}", manifest_files.spec(stage, params)
        ) as work:
            options = ({},) if stage == "features" else ()
            script.make(work, inputs, {**params, "array_library": library}, *options)
        assert (gpu.moved["there"] > uploaded) == (library == "cupy")
        made = artifacts.Artifact(tmp_path / f"made {library}")
        assert made.metrics.get("gpu") == (
            "Fake, driver 550.54.14, CuPy 0.0" if library == "cupy" else None
        )
        found.append(made.array(file))
    np.testing.assert_allclose(*found, atol=0 if file == "predictions.npy" else 1e-3)
