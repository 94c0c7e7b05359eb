"""The archive of a report: what is in it, that it can be checked with Python alone, and that its
settings make it again.
"""

import subprocess
import sys
import types
import zipfile

import pytest
import yaml

import planned
import synthetic_results
import write_bundle
from ladder.errors import UserError
from ladder.store import manifests, zips
from ladder.workflow import chains, config, runs


@pytest.fixture
def report(tmp_path, monkeypatch):
    """A plan whose report is in results/."""
    monkeypatch.chdir(tmp_path)
    run = synthetic_results.add(tmp_path / "results", epochs=1)
    chain = {role: types.SimpleNamespace(folder=artifact.folder) for role, artifact in run.items()}
    return types.SimpleNamespace(
        chain={**chain, "model": types.SimpleNamespace(folder=tmp_path / "none")}, run=planned.run()
    )


@pytest.fixture
def unpacked(report, tmp_path):
    path = tmp_path / "bundle.zip"
    zips.pack(path, write_bundle.bundle(report))
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "elsewhere")
    return tmp_path / "elsewhere"


def verified(folder):
    """(exit status, lines) of verify.py."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", folder / "verify.py"], capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_the_archive_has_the_report_manifests_predictions_and_final_weights_alone(report, unpacked):
    names = {
        path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()
    }
    folders = {
        role: f"results/{artifact.folder.parent.name}/{artifact.folder.name}"
        for role, artifact in report.chain.items()
        if role != "model"
    }
    assert {f"{folder}/manifest.json" for folder in folders.values()} <= names
    assert {
        f"{folders['report']}/report.html",
        f"{folders['report']}/summary.json",
        f"{folders['svm']}/predictions.npy",
        f"{folders['svm_pixels']}/predictions.npy",
        f"{folders['train']}/weights.bin",
    } <= names
    assert not [
        name
        for name in names
        if "images.npy" in name or name.endswith(("train.npy", "features.npy"))
    ]
    assert [name for name in names if "weights." in name] == [f"{folders['train']}/weights.bin"]
    assert manifests.read(unpacked / folders["svm"]) == manifests.read(report.chain["svm"].folder)
    text = (unpacked / "README.md").read_text()
    assert "CC BY 4.0" in text and report.chain["svm"].folder.name in text and "{" not in text


def test_a_flipped_byte_a_missing_and_another_file_are_named(unpacked):
    assert verified(unpacked)[0] == 0
    (weights,) = unpacked.glob("results/train/*/weights.bin")
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(content)
    (unpacked / "config.yaml").unlink()
    (unpacked / "more.txt").touch()
    name = weights.relative_to(unpacked).as_posix()
    assert verified(unpacked) == (
        1,
        ["config.yaml: missing", "more.txt: not of this archive", f"{name}: changed"],
    )


def test_the_archive_has_the_same_bytes_each_time(report, tmp_path):
    for name in "ab":
        zips.pack(tmp_path / name, write_bundle.bundle(report))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_settings_in_the_archive_make_the_same_versions(report, unpacked):
    settings = yaml.safe_load((unpacked / "config.yaml").read_text())
    again = chains.chain(runs.resolve(config.load(settings)))
    assert {role: artifact.version for role, artifact in again.items()} == planned.versions()


def test_a_damaged_artifact_is_not_packed(report):
    path = report.chain["svm"].folder / "predictions.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"predictions.npy is damaged \(its checksum"):
        write_bundle.bundle(report)
