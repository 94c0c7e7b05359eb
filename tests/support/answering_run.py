"""A run on a hundred real digits, made by the stages' own code without training: the input of a
predictor.
"""

import numpy as np

import evaluate_network
import extract_features
import fit_ridge
import fit_svm
import join_features
import normalize_images
import shift_features
import untrained
from ladder.data import datasets
from ladder.network import networks
from ladder.store import artifacts, versions

TRAIN, TEST = 100, 30
FEATURES = {"features_standardize": False, "features_pool": "none", "features_flip": False}
CLASSIFIERS = {
    "svm": (fit_svm.make, {"backend": "sklearn", "kernel": "rbf", "C": 10, "gamma": "scale"}),
    "ridge": (fit_ridge.make, {"seed": 1, "array_library": "numpy"}),
}


def make(
    results,
    network="autoencoder",
    normalization="unit",
    features_layer=None,
    multiplier="exact",
    joined=None,
    side=32,
    primary_classifier="svm",
    shifted=None,
    **features,
):
    """{role: artifacts.Artifact} of chains.prediction_roles; a network that classifies reads 28x28
    grey images, as of MNIST.

    features_layer: for features if the network classifies; joined: a layer whose features are
    appended, times 0.5; side: of an autoencoder's images; primary_classifier: of its features, svm
    or ridge; shifted: classify_shifts, None for none; features: other values of FEATURES. With
    `shifted`, {shifted1, shifted2} are there too.
    """
    classifies = network != "autoencoder"
    params = _network_params(network, classifies, side)
    run = {"data": _data(results, "mnist" if classifies else "digits", 32 // side)}
    run["normalized"] = _made(
        results,
        "normalized",
        {"normalization": normalization},
        normalize_images.make,
        {"data": run["data"]},
    )
    run["train"] = _made(results, "train", params | {"variant": "cpu"}, _train, {})
    options = {"data_residency": "auto", "multiplier": multiplier}
    tested = {
        **params,
        "variant": "cpu",
        **({} if multiplier == "exact" else {"multiplier": multiplier}),
    }
    read = {"normalized": run["normalized"], "weights": run["train"]}
    layer = features_layer or (None if classifies else "latent")
    if layer:
        of = {"encoder": "network", **tested, "features_layer": layer, **FEATURES, **features}
        run["features"] = classified = _made(
            results, "features", of, extract_features.make, read, options
        )
    if joined:
        of |= {"features_layer": joined}
        run["features_part2"] = _made(results, "features", of, extract_features.make, read, options)
        parts = {"part1": run["features"], "part2": run["features_part2"]}
        run["joined"] = classified = _made(
            results, "joined", {"weights": [1, 0.5]}, join_features.make, parts
        )
    if classifies:
        run["evaluate"] = _made(
            results,
            "evaluate",
            tested,
            evaluate_network.make,
            read | {"data": run["data"]},
            options,
        )
    else:
        fit, settings = CLASSIFIERS[primary_classifier]
        copies, told = {}, {"classify_shifts": shifted} if shifted else {}
        for number, part in enumerate(("features", "features_part2") if shifted else (), 1):
            if part in run:
                copies[f"shifted{number}"] = _made(
                    results,
                    "shifted",
                    told,
                    shift_features.make,
                    {"features": run[part], **read},
                    options,
                )
        read = {"features": classified, "data": run["data"], **copies}
        run |= {
            **copies,
            primary_classifier: _made(results, primary_classifier, {**settings, **told}, fit, read),
        }
    return run


def _network_params(network, classifies, side):
    if classifies:
        return {"network": network, "image": [28, 28, 1], "classes": 10}
    return {"network": network, "image": [side, side, 3], "autoencoder_filters": [8, 4]}


def _made(results, stage, params, make, inputs, *options):
    spec = {
        "stage": stage,
        "params": params,
        "sources": {},
        "parents": {name: one.version for name, one in inputs.items()},
    }
    with artifacts.making(results / stage / versions.version(spec), spec) as work:
        make(work, inputs, params, *options)
    return artifacts.Artifact(work.folder)


def _data(results, dataset, stride):
    def make(work, inputs, params):
        digits = datasets.limited(datasets.digits(), TRAIN, TEST)
        # The digits are enlarged four times, so that every second pixel is enough.
        crop = np.s_[:, 2:-2, 2:-2, :1] if dataset == "mnist" else np.s_[:, ::stride, ::stride]
        for part in ("train", "test"):
            work.write_array(
                f"{part}_images.npy", np.ascontiguousarray(getattr(digits, f"{part}_images")[crop])
            )
            work.write_array(f"{part}_labels.npy", getattr(digits, f"{part}_labels"))
        work.metrics = {"classes": list(digits.classes), "train": TRAIN, "test": TEST}

    return _made(results, "data", {"dataset": dataset}, make, {})


def _train(work, inputs, params):
    network = networks.from_params(params)
    untrained.save(work, network)
