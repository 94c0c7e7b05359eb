"""Every stage that computes puts out the same bytes for 1, 2, 3 and 7 threads."""

import hashlib

import numpy as np
import pytest
import threadpoolctl

import classify_knn
import evaluate_network
import extract_features
import fit_linear
import fit_patches
import fit_ridge
import fit_svm
import join_features
import map_features
import normalize_images
import shift_features
import train_network
import untrained
from ladder.arithmetic import matmul
from ladder.classifiers import backends, linear
from ladder.executors.cpu import executor as cpu_executor
from ladder.features import map as feature_map
from ladder.machine import runtime
from ladder.network import networks
from ladder.store import artifacts, scores

TRAIN, TEST, DIMENSIONS = 1300, 700, 640
AUTOENCODER = {
    "network": "autoencoder",
    "autoencoder_filters": [40, 24],
    "autoencoder_norm": False,
    "image": [16, 12, 3],
    "variant": "cpu",
}
VARIATIONAL = {**AUTOENCODER, "variational": True, "variational_beta": 0.1}
WTA = {
    "network": "wta_autoencoder",
    "wta_filters": 300,
    "wta_kernels": [5, 7],
    "wta_winners": 2,
    "wta_lifetime": 0.1,
    "input_noise": 0.2,
    "image": [16, 12, 3],
    "variant": "cpu",
}
ATTENTIVE = {**AUTOENCODER, "autoencoder_residual": True, "autoencoder_attention": True}
CNN = {"network": "small_cnn", "image": [16, 12, 3], "classes": 10, "variant": "cpu"}
TRAINING = {
    "training": "gradient",
    "batch_size": 64,
    "steps": 3,
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "seed": 1,
    "weight_decay": 0.0,
    "gradient_clip": 0.0,
    "schedule": "constant",
    "warmup_steps": 0,
    "augment_flip": False,
    "augment_crop": 0,
    "augment_rotate": 0,
    "augment_colour": 0,
}
FEATURES = {
    "encoder": "network",
    **AUTOENCODER,
    "features_layer": "latent",
    "features_standardize": False,
    "features_pool": "none",
    "features_flip": False,
}
PATCHES = {
    **AUTOENCODER,
    "array_library": "numpy",
    "patches_atoms": "kmeans",
    "patches_samples": [9000, 8500],
    "patches_whitening": [0.1],
    "patches_iterations": 2,
    "seed": 7,
}
PATCH_NET = {
    **PATCHES,
    "network": "patch_net",
    "patch_net_filters": [20, 16, 18, 24],
    "image": [20, 21, 3],
}
SVM = {"backend": "sklearn", "kernel": "rbf", "C": 1.0, "gamma": "scale"}
OPTIONS = {
    "data_residency": "auto",
    "multiplier": "exact",
    "monitor": "0",
    "page": "",
}

STAGES = {  # stage and what is special about it: (make, params, options if make takes them)
    "normalized, zca": (normalize_images.make, {"normalization": "zca"}),
    "normalized, standardize": (normalize_images.make, {"normalization": "standardize"}),
    "train": (train_network.make, {**AUTOENCODER, **TRAINING, "gradient_scale": "mean"}, OPTIONS),
    "train, drawn latent values": (
        train_network.make,
        {**VARIATIONAL, **TRAINING, "gradient_scale": "mean"},
        OPTIONS,
    ),
    "train, winners": (train_network.make, {**WTA, **TRAINING, "gradient_scale": "batch"}, OPTIONS),
    "train, attention": (
        train_network.make,
        {**ATTENTIVE, **TRAINING, "gradient_scale": "mean"},
        OPTIONS,
    ),
    "train, labels": (
        train_network.make,
        {**CNN, **TRAINING, "optimizer": "momentum", "momentum": 0.9},
        OPTIONS,
    ),
    "train, patience": (
        train_network.make,
        {
            **AUTOENCODER,
            **TRAINING,
            "gradient_scale": "mean",
            "batch_size": 1300,
            "learning_rate": 0.1,
            "patience": 1,
        },
        OPTIONS,
    ),
    "train, sequential": (
        train_network.make,
        {**CNN, **TRAINING, "variant": "cpu_sequential", "batch_size": 8},
        OPTIONS,
    ),
    "patches": (fit_patches.make, PATCHES, OPTIONS),
    "patches, patch_net": (fit_patches.make, PATCH_NET, OPTIONS),
    "features": (
        extract_features.make,
        {**FEATURES, "features_flip": True, "features_standardize": True},
        OPTIONS,
    ),
    "features, both halves": (
        extract_features.make,
        {**FEATURES, "features_flip": "apart", "features_standardize": True},
        OPTIONS,
    ),
    "features, attention": (extract_features.make, {**FEATURES, **ATTENTIVE}, OPTIONS),
    "features, PCA": (
        extract_features.make,
        {
            **FEATURES,
            "features_standardize": True,
            "features_pca": 30,
            "features_fit_rows": 900,
            "seed": 3,
        },
        OPTIONS,
    ),
    "features, PCA of fewer images than values": (
        extract_features.make,
        {
            **FEATURES,
            "features_layer": "enc1_pool",
            "features_pca": 30,
            "features_fit_rows": 400,
            "seed": 3,
        },
        OPTIONS,
    ),
    "features, polarities": (
        extract_features.make,
        {
            **FEATURES,
            "features_layer": "enc2",
            "features_two_polarity": 0.1,
            "features_polarity_scale": True,
            "features_max_pool": 2,
            "features_fit_rows": 900,
            "seed": 3,
        },
        OPTIONS,
    ),
    "features, polarities on a grid": (
        extract_features.make,
        {
            **FEATURES,
            "features_layer": "enc1",
            "features_two_polarity": 0.1,
            "features_polarity_scale": True,
            "features_pool": 4,
            "features_fit_rows": 900,
            "seed": 3,
        },
        OPTIONS,
    ),
    "features, multiplier": (
        extract_features.make,
        {**FEATURES, "multiplier": "mit16"},
        {**OPTIONS, "multiplier": "mit16"},
    ),
    "features, pixels": (
        extract_features.make,
        {"encoder": "pixels", "features_pca": 20, "features_fit_rows": 900, "seed": 3},
        OPTIONS,
    ),
    "joined": (join_features.make, {"weights": [1, 0.5]}),
    "shifted": (shift_features.make, {**AUTOENCODER, "classify_shifts": 1}, OPTIONS),
    "evaluate": (evaluate_network.make, CNN, OPTIONS),
    "svm": (fit_svm.make, SVM),
    "svm, linear": (fit_svm.make, {**SVM, "kernel": "linear", "C": 0.01}),
    "svm, two classes": (fit_svm.make, SVM),
    "svm, oneDAL, two classes": (fit_svm.make, {**SVM, "backend": "sklearnex"}),
    "linear": (fit_linear.make, {"seed": 1}),
    "linear, fewer images than values": (fit_linear.make, {"seed": 1}),
    "ridge": (fit_ridge.make, {"seed": 1, "array_library": "numpy"}),
    "svm, shifted copies": (fit_svm.make, SVM),
    "linear, shifted copies": (fit_linear.make, {"seed": 1}),
    "ridge, shifted copies": (fit_ridge.make, {"seed": 1, "array_library": "numpy"}),
    "knn, shifted copies": (
        classify_knn.make,
        {"knn_k": 7, "array_library": "numpy"},
    ),
    "knn": (
        classify_knn.make,
        {"knn_k": 7, "array_library": "numpy"},
    ),
    "map": (map_features.make, {"seed": 1}),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Threads as before afterwards, a short t-SNE, and no record of scores, which needs a whole
    chain.

    Several pieces of the smallest work too, and of products and rows a smaller last one.
    """
    monkeypatch.setattr(cpu_executor, "SMALL", 1)
    monkeypatch.setattr(matmul, "TILE", 50)
    monkeypatch.setattr(linear, "ROWS", 300)
    monkeypatch.setattr(scores, "record", lambda work, inputs: None)
    monkeypatch.setattr(feature_map, "ROWS", 120)
    with threadpoolctl.threadpool_limits(None):
        yield


@pytest.mark.parametrize("stage", STAGES)
def test_the_bytes_of_a_stage_do_not_depend_on_the_number_of_threads(stage, tmp_path):
    make, params, *options = STAGES[stage]
    if reason := backends.unavailable(params.get("backend", "sklearn")):
        pytest.skip(reason)
    inputs = parents(tmp_path, stage, params)
    one, *more = (
        files(tmp_path / f"{threads} threads", make, inputs, params, options, threads)
        for threads in (1, 2, 3, 7)
    )
    assert one
    assert more == [one] * 3


def files(folder, make, inputs, params, options, threads):
    """{file: SHA-256} of the artifact that a stage's process with so many threads makes."""
    runtime.set_threads(threads)
    with artifacts.making(folder, spec("tried", params)) as work:
        work.threads = threads
        make(work, inputs, params, *options)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix in (".npy", ".bin", ".safetensors")
    }


def parents(folder, stage, params):
    """Every input that a stage may have, random and of the sizes above."""
    random = np.random.default_rng(0)
    train, test = (
        (90, TEST) if "fewer images than values" in stage and "linear" in stage else (TRAIN, TEST)
    )
    classes = 2 if "two classes" in stage else 10
    labels = {
        f"{part}_labels.npy": random.integers(0, classes, count, dtype=np.uint8)
        for part, count in (("train", train), ("test", test))
    }
    image = params.get("image", [16, 12, 3])
    pixels = {
        part: np.cumsum(random.integers(-40, 41, (count, *image)), axis=2)
        .clip(-128, 127)
        .astype(np.int16)
        + 128
        for part, count in (("train", train), ("test", test))
    }
    images = {f"{part}_images.npy": values.astype(np.uint8) for part, values in pixels.items()}
    found = {
        "data": artifact_of(
            folder / "data", {**labels, **images}, {"classes": [str(n) for n in range(classes)]}
        )
    }
    with artifacts.making(folder / "normalized", spec("normalized")) as work:
        normalize_images.make(work, {"data": found["data"]}, {"normalization": "standardize"})
    found["normalized"] = artifacts.Artifact(folder / "normalized")
    for number in (1, 2):
        vectors = {
            f"{part}.npy": (
                random.standard_normal((count, DIMENSIONS))
                + labels[f"{part}_labels.npy"][:, None] / 20
            ).astype(np.float32)
            for part, count in (("train", train), ("test", test))
        }
        found[f"part{number}"] = artifact_of(
            folder / f"f{number}", vectors, {"dimensions": DIMENSIONS}
        )
    found["features"] = found["part1"]
    if "network" in params:
        network = networks.from_params(params)
        with artifacts.making(folder / "initial", spec("initial")) as work:
            untrained.save(work, network)
        found["initial"] = found["weights"] = artifacts.Artifact(folder / "initial")
    if stage == "shifted":
        of = {**FEATURES, "features_flip": "apart", "features_standardize": True}
        with artifacts.making(folder / "features", spec("features", of)) as work:
            extract_features.make(work, found, of, OPTIONS)
        found["features"] = artifacts.Artifact(folder / "features")
    if "shifted copies" in stage:
        copies = random.standard_normal((4, test, DIMENSIONS)).astype(np.float32)
        found["shifted1"] = artifact_of(folder / "shifted1", {"shifted.npy": copies}, {})
    return found


def artifact_of(folder, arrays, metrics):
    with artifacts.making(folder, spec(folder.name)) as work:
        for name, values in arrays.items():
            work.write_array(name, values)
        work.metrics = metrics
    return artifacts.Artifact(folder)


def spec(stage, params=None):
    return {"stage": stage, "params": params or {}, "sources": {}, "parents": {}}
