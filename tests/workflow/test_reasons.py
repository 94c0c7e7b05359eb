"""Why an artifact would be made: how it differs from the most similar one that is there."""

import pathlib

import numpy as np

import manifest_files
import planned
from ladder.workflow import reasons


def finish(results, artifact):
    """Write the manifest of an artifact."""
    manifest_files.write(pathlib.Path(results, artifact.stage, artifact.version), artifact.spec)


def test_a_longer_list_of_runs_is_described_in_a_few_words(tmp_path):
    for artifact in planned.chain(runs=[{"seed": [2, 3, 5, 7, 11]}]).values():
        finish(tmp_path, artifact)
    report = planned.chain(runs=[{"seed": [2, 4]}])["report"]
    why = reasons.why(report, tmp_path)
    assert why.startswith("runs changed, parent "), why


def test_why_a_stage_runs(tmp_path):
    before = planned.chain()
    assert reasons.why(before["train"], tmp_path) == "first run"
    for artifact in before.values():
        finish(tmp_path, artifact)
    assert {reasons.why(artifact, tmp_path) for artifact in before.values()} == {""}

    after = planned.chain({"epochs": 3, "weight_decay": 0.5})
    assert reasons.why(after["train"], tmp_path) == "epochs 10 -> 3, weight_decay 0 -> 0.5"
    assert reasons.why(after["features"], tmp_path) == "parent train changed"
    assert reasons.why(after["svm"], tmp_path) == "parent features changed"
    after = planned.chain({"optimizer": "momentum"})
    assert "momentum unused -> 0.9" in reasons.why(after["train"], tmp_path)


def test_why_compares_with_the_most_similar_artifact_and_controls_with_controls(tmp_path):
    for batch_size in (8, 64):
        for artifact in planned.chain({"batch_size": batch_size}).values():
            finish(tmp_path, artifact)
    after = planned.chain({"batch_size": 8, "learning_rate": 0.5, "svm_C": 2.0})
    assert reasons.why(after["train"], tmp_path) == "learning_rate 0.001 -> 0.5"
    assert reasons.why(after["svm_pixels"], tmp_path) == "C 10 -> 2"
    assert reasons.why(after["svm_random"], tmp_path) == "C 10 -> 2"


def test_why_finds_the_controls_among_joined_features_too(tmp_path):
    for artifact in planned.chain(features_concatenate=[{"features_layer": "enc1_pool"}]).values():
        finish(tmp_path, artifact)
    after = planned.chain(features_concatenate=[{"features_layer": "enc1_pool"}], svm_C=2)
    assert {reasons.why(after[f"svm{kind}"], tmp_path) for kind in ("", "_random", "_pixels")} == {
        "C 10 -> 2"
    }


def test_a_damaged_manifest_gives_no_reason_but_does_no_harm(tmp_path):
    artifact = planned.chain()["train"]
    finish(tmp_path, artifact)
    (tmp_path / artifact.stage / artifact.version / "manifest.json").write_text("{")
    assert reasons.why(artifact, tmp_path) == "first run"


def test_a_table_of_products_has_the_name_of_its_file(tmp_path):
    table = np.multiply.outer(np.arange(-128, 128), np.arange(-128, 128)).astype(np.int16)
    np.save(tmp_path / "mine.npy", table)
    np.save(tmp_path / "theirs.npy", table // 2 * 2)
    mine, theirs = (str(tmp_path / name) for name in ("mine.npy", "theirs.npy"))
    exact = planned.chain(network="lenet_5")["train"]
    finish(tmp_path, exact)
    own = planned.chain(network="lenet_5", multiplier=mine)["train"]
    assert f"multiplier unused -> {mine}" in reasons.why(own, tmp_path)
    finish(tmp_path, own)
    other = planned.chain(network="lenet_5", multiplier=theirs)["train"]
    assert reasons.why(other, tmp_path) == f"multiplier {mine} -> {theirs}"
    reasons.FILES.clear()  # another configuration names none of the two
    assert reasons.why(other, tmp_path).startswith("multiplier a table (")
