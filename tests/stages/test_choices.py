"""Every documented choice of every key, several in a run, goes through the stages' own functions on
a few digits.
"""

import importlib
import inspect
import pathlib

import numpy as np
import pytest

import planned
from ladder.arithmetic import multipliers
from ladder.classifiers import backends
from ladder.data.facts import FACTS
from ladder.machine import runtime
from ladder.rungs import catalog
from ladder.store import artifacts
from ladder.workflow import chains, config, planning, runs, settings
from ladder.workflow.stages import STAGES

SMALL = {
    "train_limit": 40,
    "test_limit": 20,
    "batch_size": 20,
    "steps": 2,
    "warmup_steps": 1,
    "threads": 1,
    "controls": [],
    "feature_map": False,
    "autoencoder_filters": [4, 3],
    "resnet_width": 1,
    "patch_net_filters": [6, 5, 4, 6],
    "wta_filters": 6,
    "wta_kernels": [3, 3],
    "patches_samples": [300],
    "patches_iterations": 2,
    "schedule_step_epochs": 1,
    "features_fit_rows": 20,
    "knn_k": 3,
    "variant": "cpu",
    "svm_backend": "sklearn",
    "array_library": "numpy",
    "multiplier_in": [],
}
# The choices of each run; the others are those of SMALL and experiment.yaml.
RUNS = [
    {
        "share": False,
        "normalization": "unit",
        "autoencoder_norm": True,
        "optimizer": "sgd",
        "gradient_scale": "mean",
        "schedule": "constant",
        "augment_flip": True,
        "features_flip": "apart",
        "features_standardize": True,
        "features_two_polarity": 0.5,
        "features_polarity_scale": "channel",
        "features_pca": 5,
        "svm_kernel": "rbf",
        "svm_C": "validated",
        "svm_gamma": "scale",
        "evaluations": ["linear", "ridge", "knn"],
        "controls": ["random", "pixels"],
        "feature_map": True,
        "classify_shifts": 1,
        "multiplier": "am32",
        "multiplier_in": ["forward"],
        "multiplier_as_it_is": True,
        "features_variant": "cpu_sequential",
    },
    {
        "normalization": "standardize",
        "autoencoder_norm": False,
        "training": "patches_then_gradient",
        "patches_atoms": "random",
        "optimizer": "momentum",
        "gradient_scale": "batch",
        "schedule": "step",
        "variant": "cpu_sequential",
        "augment_flip": False,
        "features_two_polarity": 0,
        "features_polarity_scale": "none",
        "features_pool": 2,
        "svm_kernel": "linear",
        "svm_backend": "sklearnex",
        "evaluations": ["knn"],
        "data_residency": "device",
        "validation": 10,
        "patience": 1,
        "runs": [{"variant": "cpu"}],
    },
    {
        "training": "patches",
        "patches_atoms": "kmeans",
        "optimizer": "rmsprop",
        "schedule": "cosine",
        "features_two_polarity": "none",
        "features_pool": "none",
        "features_pca": "none",
        "features_flip": False,
        "features_standardize": False,
        "svm_kernel": "poly",
        "svm_gamma": "auto",
        "data_residency": "host",
    },
    {
        "network": "lenet_5",
        "training": "gradient",
        "optimizer": "adam",
        "multiplier": "am16",
        "multiplier_in": ["forward"],
        "features_layer": "fc1",
        "svm_gamma": 0.1,
    },
    {
        "network": "lenet_5",
        "multiplier": "fp16",
        "multiplier_in": ["input_grad"],
        "test_multiplier": "exact",
        "steps": 1,
    },
    {
        "network": "patch_net",
        "training": "patches",
        "svm_kernel": "none",
        "evaluations": ["ridge"],
        "controls": ["strong"],
    },
    {"network": "lenet_5", "precision": "tf32", "steps": 1},
    {"network": "lenet_5", "precision": "bfloat16", "steps": 1},
    {"network": "lenet_5", "precision": "float16", "steps": 1},
    {
        "network": "small_cnn",
        "multiplier": "mit16",
        "multiplier_in": ["weight_grad"],
        "test_multiplier": "acc16",
        "steps": 1,
    },
    {
        "network": "lenet_5",
        "multiplier": "mit32",
        "multiplier_in": ["forward", "input_grad", "weight_grad"],
        "steps": 1,
    },
    {
        "network": "lenet_5",
        "multiplier": "acc16",
        "multiplier_in": ["forward"],
        "steps": "none",
        "epochs": 1,
    },
    {"network": "lenet_300_100", "steps": 1},
    {
        "network": "lenet_5",
        "validation": 10,
        "patience": 1,
        "steps": 3,
        "batch_size": 10,
        "runs": [{"variant": "cpu_sequential"}],
    },
    {"network": "resnet18", "multiplier": "exact", "multiplier_in": ["forward"]},
    {"network": "resnet34", "steps": 1},
    {"network": "resnet50", "steps": 1},
    {"network": "resnet101", "steps": 1},
    {"network": "alexnet", "steps": 1},
    {"network": "vgg11", "steps": 1},
    {"network": "vgg16", "steps": 1},
    {"network": "autoencoder_classifier", "freeze_encoder": True, "training": "patches"},
    {
        "network": "autoencoder_classifier",
        "freeze_encoder": False,
        "steps": 1,
        "autoencoder_attention": True,
        "autoencoder_residual": True,
    },
    {"network": "patch_net", "training": "patches"},
    {
        "network": "autoencoder",
        "variational": True,
        "variational_beta": 0.5,
        "training": "gradient",
    },
    {"network": "wta_autoencoder", "input_noise": 0.1, "wta_winners": 2, "features_flip": True},
]
# Settings that no stage's parameters name, because their value means "off" or only the way of
# working.
UNNAMED = {
    "features_two_polarity": "none",
    "features_polarity_scale": "none",
    "features_pca": "none",
    "steps": "none",
    "multiplier": "exact",
    "feature_map": False,
    "data_residency": None,
    "multiplier_as_it_is": None,
}
# of a key, in the parameters
NAMES = {
    "svm_kernel": "kernel",
    "svm_C": "C",
    "svm_gamma": "gamma",
    "svm_backend": "backend",
    "features_variant": "variant",
}


def documented():
    """(key, choice) of every key with choices; without those that resolve to another, need a GPU,
    or need a download.
    """
    unavailable = {name for name in catalog.RUNGS if catalog.unavailable(name)} | {
        name for name in backends.BACKENDS if backends.unavailable(name)
    }
    # of a folder
    others = {("dataset", name) for name in (*FACTS, "folder") if name != "digits"} | {
        ("image_channels", 1)
    }
    left_out = others | {
        ("variant", "auto"),
        ("network", "auto"),
        ("normalization", "auto"),
        ("features_pool", "auto"),
        ("svm_backend", "auto"),
        ("array_library", "auto"),
        ("array_library", "cupy"),
        ("threads", "all"),
        ("train_limit", "all"),
        ("test_limit", "all"),
        ("data_residency", "auto"),
        ("confirm", True),
        ("confirm", False),
        ("features_variant", "same"),
        ("features_max_pool", "auto"),
        ("normalization", "zca"),
    }  # the last has a test of its own
    found = [("multiplier", name) for name in multipliers.MULTIPLIERS]
    for key, rule in settings.rules().items():
        found += [
            (key, choice)
            for one in rule.get("anyOf", [rule.get("items", rule)])
            for choice in choices(one)
        ]
    return [one for one in found if one not in left_out and one[1] not in unavailable]


def choices(rule):
    """The fixed values of a JSON schema without alternatives."""
    return (
        [True, False]
        if rule.get("type") == "boolean"
        else rule.get("enum", [rule["const"]] if "const" in rule else [])
    )


def resolved(run):
    if backends.unavailable(run.get("svm_backend", "sklearn")):
        run = {**run, "svm_backend": "sklearn"}
    return runs.resolve(config.load({**planned.RAW, **SMALL, **run}))


def test_every_documented_choice_is_in_a_run():
    every = [resolved(run) for run in RUNS]
    chosen = [
        (key, choice)
        for run in every
        for key, value in run.settings.by_key().items()
        for choice in (value if isinstance(value, list) else [value])
    ]
    assert [one for one in documented() if one not in chosen] == []


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("choices")


@pytest.mark.parametrize(
    "run", RUNS, ids=lambda run: ",".join(str(value) for value in list(run.values())[:3])
)
def test_a_run_makes_every_stage_with_its_choices(run, results, monkeypatch):
    monkeypatch.chdir(results)
    one = resolved(run)
    runtime.set_threads(1)
    chain = chains.chain(one)
    for artifact in chain.values():
        make(artifact, one.settings)
    assert [key for key in run if not named(chain, key, one)] == []
    (answer, *_) = (chain[role] for role in ("svm", "evaluate", "ridge") if role in chain)
    assert 0 <= artifacts.Artifact(answer.folder).metrics["accuracy"] <= 1


def test_features_of_patches_of_two_sizes_are_joined(results, monkeypatch):
    monkeypatch.chdir(results)
    one = resolved(
        {
            "network": "patch_net",
            "training": "patches",
            "features_concatenate": [{"patch_net_kernel": 8}],
        }
    )
    runtime.set_threads(1)
    chain = chains.chain(one)
    make(chain["joined"], one.settings)
    fits = [artifacts.Artifact(chain[role].folder) for role in ("patches", "patches_part2")]
    assert [fit.array("atoms.npy").shape for fit in fits] == [(6, 6, 6, 3), (6, 8, 8, 3)]
    parts = [
        artifacts.Artifact(chain[role].folder).array("train.npy")
        for role in ("features", "features_part2")
    ]
    assert [part.shape for part in parts] == [(40, 108)] * 2 and not np.array_equal(*parts)
    assert np.array_equal(
        artifacts.Artifact(chain["joined"].folder).array("train.npy"), np.hstack(parts)
    )


# those of a data set take as long as all other tests together
def test_small_images_are_whitened(results, monkeypatch):
    monkeypatch.chdir(results)
    one = resolved({"normalization": "zca"})
    data, normalized = (chains.chain(one)[role] for role in ("data", "normalized"))
    make(data, one.settings)
    whole = artifacts.Artifact(data.folder)
    with artifacts.making("small", data.spec) as work:
        for name in whole.manifest["files"]:
            values = whole.array(name)
            work.write_array(name, values[:, 8:16, 8:16] if values.ndim == 4 else values)
        work.metrics = whole.metrics
    monkeypatch.setattr(
        planning.PlannedArtifact,
        "folder",
        property(lambda artifact: "small" if artifact.stage == "data" else "whitened"),
    )
    make(normalized, one.settings)
    assert normalized.spec["params"] == {"normalization": "zca"}
    assert artifacts.Artifact("whitened").array("train.npy").shape == (40, 8, 8, 3)


def make(artifact, settings):
    """Make an artifact by its stage's function, unless another run has made it."""
    if pathlib.Path(artifact.manifest).exists():
        return
    multiplier = settings.multiplier if artifact.stage == "train" else settings.test_multiplier
    options = {
        "urls": "[]",
        "downloads": "downloads",
        "file": "",
        "data_residency": settings.data_residency,
        "monitor": "1",
        "multiplier": multiplier,
        "page": "",
    }
    for parent in artifact.parents.values():
        make(parent, settings)  # of another chain: the training by another rung
    function = importlib.import_module(STAGES[artifact.stage].rule).make
    inputs = {name: artifacts.Artifact(parent.folder) for name, parent in artifact.parents.items()}
    takes_options = len(inspect.signature(function).parameters) > 3
    with artifacts.making(artifact.folder, artifact.spec) as work:
        work.threads = 1
        function(work, inputs, artifact.spec["params"], *([options] if takes_options else []))


def named(chain, key, run):
    """Whether a stage of the chain was made with the setting: it is in its parameters, or it is the
    stage.
    """
    value, params = run.pick(key)[key], [artifact.spec["params"] for artifact in chain.values()]
    if key in ("evaluations", "controls"):
        return all({name, f"svm_{name}", f"ridge_{name}"} & chain.keys() for name in value)
    if key == "svm_kernel" and value == "none":
        return "svm" not in chain
    if key == "runs":
        other = chain["report"].parents["train_reference"].spec["params"]
        return value == [{"variant": other["variant"]}]
    if key == "feature_map":
        return value == ("map" in chain)
    if key == "test_multiplier":
        return value == "exact" or chain["evaluate"].spec["params"]["multiplier"] == value
    if key == "training" and "train" not in chain:
        return value == "patches" and "patches" in chain
    if (
        UNNAMED.get(key, ...) in (None, value)
        or key == "multiplier_in"
        and run.settings.multiplier == "exact"
    ):
        return True
    return any(one.get(NAMES.get(key, key)) == value for one in params)
