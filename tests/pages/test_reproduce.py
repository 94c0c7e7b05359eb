import pytest
import yaml

import manifest_files
from ladder.pages import reproduce
from ladder.workflow import chains, config, runs
from planned import RAW

CHANGES = [
    {
        "dataset": "digits",
        "batch_size": 16,
        "learning_rate": 0.005,
        "name": "a: name",
        "tags": ["x", "null"],
    },
    {
        "dataset": "digits",
        "steps": 12,
        "controls": ["pixels"],
        "evaluations": ["knn", "linear"],
        "features_flip": True,
    },
    {
        "dataset": "digits",
        "runs": [
            {"seed": [4, 5], "tag": "seeds"},
            {"features_standardize": True, "name": "standard"},
        ],
        "controls": [{"random": {"normalization": "zca"}}],
        "optimizer": "momentum",
        "momentum": 0.7,
    },
    {"dataset": "mnist", "network": "lenet_5", "train_limit": 500, "controls": []},
    {"dataset": "digits", "features_variant": "cpu_sequential"},
    {"dataset": "digits", "features_variant": "same"},
    {"dataset": "digits", "validation": 100, "patience": 2},
    {
        "dataset": "digits",
        "classify_shifts": 2,
        "features_variant": "cpu_sequential",
        "evaluations": ["ridge"],
    },
    {
        "dataset": "digits",
        "runs": [{"variant": "cpu_sequential"}],
        "targets": [{"metric": "reference.largest", "at_most": 1e-4}],
    },
    {
        "dataset": "digits",
        "network": "autoencoder_classifier",
        "training": "patches",
        "head_units": 32,
        "svm_C": 3,
    },
    {
        "dataset": "digits",
        "network": "autoencoder_classifier",
        "freeze_encoder": True,
        "features_layer": "head_relu",
    },
]


class Planned:
    """An artifact of a chain that was not made."""

    def __init__(self, artifact):
        self.manifest, self.version = (
            {"spec": artifact.spec, "files": {}, "metrics": {}},
            artifact.version,
        )


@pytest.mark.parametrize("changes", CHANGES)
def test_the_settings_with_config_yaml_plan_the_very_same_report(changes):
    planned = chains.chain(runs.resolve(config.load(RAW | changes)))
    report = planned["report"]
    inputs = {role: Planned(artifact) for role, artifact in report.parents.items()}
    written = reproduce.text(reproduce.settings(inputs, report.spec["params"]))
    again = chains.chain(runs.resolve(config.load(RAW | yaml.safe_load(written))))
    assert reproduce.unwritten(inputs) == []
    assert {role: artifact.version for role, artifact in again.items()} == {
        role: artifact.version for role, artifact in planned.items()
    }


def test_what_cannot_be_written_is_named_instead():
    joined = {"joined": type("Made", (), {"manifest": {"spec": manifest_files.spec("joined")}})}
    assert reproduce.unwritten(joined) == ["features_concatenate"]
