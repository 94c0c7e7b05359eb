"""The real chain on a few digits: from config.yaml to the report; interrupted, on a full disk, and
with damaged artifacts.
"""

import hashlib
import html
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pyarrow.parquet
import pytest
import safetensors.numpy
from PIL import Image

import once
import picture_folders
import snakemake_server
from ladder.pages import summary_keys
from ladder.sources import ROOT
from ladder.store import artifacts

TINY = [
    "--config",
    "dataset=digits",
    "network=autoencoder",
    "train_limit=60",
    "test_limit=20",
    "epochs=3",
    "batch_size=16",
    "threads=2",
    "label_counts=[]",
]


def copy_project(folder, source=ROOT):
    """A copy of the project without results; with __pycache__, so that Numba compiles nothing
    twice.
    """
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(source / name, folder / name)
    for name in ("workflow", "profiles", "kernels", "presets", "envs"):
        shutil.copytree(source / name, folder / name)
    return folder


def start(project, target, *more, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", target, *TINY, *more],
        cwd=project,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )


def run(project, target, *more):
    """(exit status, output) of a complete run."""
    return snakemake_server.run([target, *TINY, *more], project)


def completed(project, target, *more):
    """The output of a run that has to succeed."""
    status, output = run(project, target, *more)
    assert status == 0, output
    return output


def summary_of(project):
    return json.loads((project / "results/summary.json").read_text())


def weights(project):
    (folder,) = (project / "results/train").iterdir()
    return (folder / "weights.bin").read_bytes()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return once.folder(tmp_path_factory, "chain", finish)


@pytest.fixture
def project(done, tmp_path):
    """A copy of the finished one."""
    return shutil.copytree(done, tmp_path / "project")


def finish(folder):
    lines = completed(copy_project(folder), "report").splitlines()
    summary = summary_of(folder)
    assert summary["verdict"] in lines and lines[-1].endswith("/results/report.html")


def test_the_report_and_the_summary_are_made(done):
    summary = summary_of(done)
    assert list(summary) == list(summary_keys.KEYS)
    assert len(summary["loss"]) == 3
    assert summary["loss"][-1] < summary["loss"][0]
    assert min(summary["layer_movement"].values()) > 0.001
    assert (done / summary["weights"]).stat().st_size == 3_007_508
    assert all(
        0 <= summary[key] <= 1
        for key in ("test_accuracy", "control_accuracy", "raw_pixel_accuracy")
    )
    assert sum(map(sum, summary["confusion"])) == 20
    assert "<html" in (done / "results/report.html").read_text()


def test_in_the_first_report_training_beats_the_untrained_encoder_and_raw_pixels(tmp_path):
    status, output = snakemake_server.run(["results/report.html"], copy_project(tmp_path))
    assert status == 0, output
    summary = summary_of(tmp_path)
    assert [one["control"] for one in summary["controls"]] == ["svm_random", "svm_pixels"]
    assert all(one["difference_interval"][0] > 0 for one in summary["controls"])
    assert summary["verdict"].endswith("; training helped.") and summary["test_accuracy"] > 0.96
    few = {name: curve["mean"] for name, curve in summary["few_labels"]["curves"].items()}
    assert summary["few_labels"]["counts"] == [10, 30, 100, 300, 1000]
    assert few["run"][-1] > few["untrained"][-1] > few["pixels"][-1] > 0.9
    assert (
        "labels the features are as good as raw pixels with about"
        in (tmp_path / "results/report.html").read_text()
    )


def test_training_killed_after_an_epoch_gives_the_bytes_of_an_uninterrupted_run(done, tmp_path):
    project = copy_project(tmp_path, done)
    process = start(project, "train")
    while not list((project / "results").glob("train/*/checkpoint.safetensors")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list((project / "results").glob("train/*/manifest.json"))
    assert "resuming after step" in completed(project, "train")
    assert weights(project) == weights(done)


@pytest.mark.parametrize("forced", [("-R", "train_network"), ("-f",)], ids=" ".join)
def test_a_forced_training_repeats_every_step_and_gives_the_same_bytes(project, forced):
    before, (made,) = weights(project), (project / "results").glob("train/*/weights.bin")
    made.with_name("checkpoint.safetensors").write_bytes(b"of an earlier run")
    output = completed(project, "train", *forced)
    assert "resuming after" not in output and "epoch 3/3" in output
    assert weights(project) == before
    assert not list(made.parent.glob("checkpoint*"))


def with_little_room(project, target, limit):
    """The output and the exit status of a command whose files may have `limit` bytes."""
    process = start(
        project,
        target,
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        ),
    )
    return process.communicate()[0], process.returncode


def test_a_full_disk_at_the_last_copy_is_one_line(project):
    (project / "results/report.html").unlink()
    output, status = with_little_room(project, "report", 100_000)  # bytes, less than the page has
    assert status != 0 and "Traceback" not in output
    assert output.strip().splitlines()[-1] == (
        "cannot write results/report.html: File too large; its artifact is whole, and the same command copies it"
    )


def test_a_full_disk_is_one_line_and_finished_artifacts_stay(done, tmp_path):
    project = copy_project(tmp_path, done)
    # images and weights fit, the first checkpoint does not
    output, status = with_little_room(project, "train", 4_000_000)
    last = output.strip().splitlines()[-1]
    assert status != 0
    assert "no room left to write" in last
    assert "Traceback" not in output
    assert list((project / "results").glob("initial/*/manifest.json"))
    assert not list((project / "results/train").glob("*/.*.tmp"))


def test_the_users_own_pictures_are_classified(project, tmp_path):
    folder = tmp_path / "my pictures"
    folder.mkdir()
    images, digits = (
        np.load(next((project / "results").glob(f"data/*/train_{name}.npy")))
        for name in ("images", "labels")
    )
    for row in range(10):
        Image.fromarray(255 - images[row]).save(folder / f"dark – {row}.png")
    (folder / "torn.png").write_bytes(b"\x89PNG")
    (folder / "film.heic").write_bytes(b"x")
    for _ in range(2):  # made again each time
        output = completed(project, "results/predictions.html", f"predict={folder}")
        assert "10 pictures classified, 1 skipped" in output
        assert (
            "skipped 2 of 12 files: 1 .png, as " in output
            and "film.heic (no picture by its name)" in output
        )
    found = json.loads((project / "results/predictions.json").read_text())
    assert [one["class"] for one in found["pictures"]] == [str(digit) for digit in digits[:10]]
    assert [one["nearest"][0]["row"] for one in found["pictures"]] == list(range(10))
    assert [pathlib.Path(one["name"]).name for one in found["skipped"]] == ["torn.png"]

    status, output = run(project, "results/predictions.html", f"predict={folder / 'torn.png'}")
    assert (
        status != 0
        and "none of the 1 files could be read" in output.strip().splitlines()[-1]
        and "Traceback" not in output
    )


def test_the_model_is_exported_and_the_same_command_has_nothing_to_do_then(project):
    assert "0 of 20 classes differ from the run's" in completed(project, "model")
    (made,) = (project / "results").glob("model/*/model.zip")
    assert made.samefile(project / "results/model.zip")
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None and "README.md" in {
            pathlib.Path(name).name for name in archive.namelist()
        }
    assert "Nothing to be done" in completed(project, "model")


def test_the_table_has_the_features_and_answers_of_the_run_and_is_made_once(project):
    assert "features.parquet: 80 rows of 8192 features" in completed(project, "table")
    summary = summary_of(project)
    table = pyarrow.parquet.read_table(project / "results/features.parquet").slice(60)
    features = np.load(project / "results/features" / summary["versions"]["features"] / "test.npy")
    assert np.array_equal(np.stack(table["features"].to_pylist()).astype(np.float32), features)
    right = [
        line["label"] == line["prediction"]
        for line in table.select(["label", "prediction"]).to_pylist()
    ]
    assert np.mean(right) == summary["test_accuracy"]
    assert "Nothing to be done" in completed(project, "table")


LENET = ("network=lenet_5", "steps=6", "monitor=3", "augment_flip=true", "augment_crop=2")


def test_a_network_that_classifies_goes_through_the_same_chain(project):
    output = completed(project, "report", *LENET)
    assert re.search(r"step: 3, loss: \d\.\d{3}, accuracy: \d+\.\d{3}%", output)
    summary = summary_of(project)
    assert list(summary) == list(summary_keys.KEYS)
    assert summary["steps"] == 6 and len(summary["loss"]) == len(summary["accuracy"]) == 2
    assert summary["svm"] is summary["control_accuracy"] is summary["raw_pixel_accuracy"] is None
    assert (
        0 <= summary["test_accuracy"] <= 1
        and summary["test_loss"] > 0
        and sum(map(sum, summary["confusion"])) == 20
    )
    assert "<html" in (project / "results/report.html").read_text()

    completed(
        project, "report", *LENET, "features_layer=fc1", f"initial_weights={summary['weights']}"
    )
    again = summary_of(project)
    assert (
        again["start"]["file"] == summary["weights"]
        and again["features"][0]["learned"] == "with labels"
    )
    assert again["svm"] and 0 <= again["control_accuracy"] <= 1
    assert again["loss"][0] < summary["loss"][0]

    completed(project, "report", *LENET, "steps=0", f"initial_weights={summary['weights']}")
    given = summary_of(project)
    assert "train" not in given["versions"] and given["loss"] is given["accuracy"] is None
    assert (given["test_accuracy"], given["test_loss"]) == (
        summary["test_accuracy"],
        summary["test_loss"],
    )


def test_weights_of_a_file_are_used_as_they_are_beside_a_random_control(project):
    small = "autoencoder_filters=[8,6]", "controls=[random]"
    completed(project, "report", *small)
    trained = summary_of(project)
    given = project / "theirs.bin"
    shutil.copy(project / trained["weights"], given)
    completed(project, "report", *small, "steps=0", "initial_weights=theirs.bin")
    summary = summary_of(project)
    assert (
        list(summary) == list(summary_keys.KEYS)
        and summary["training"] == "none"
        and "train" not in summary["versions"]
    )
    assert summary["start"] == {
        "file": "theirs.bin",
        "sha256": hashlib.sha256(given.read_bytes()).hexdigest()[:12],
    }
    assert summary["test_accuracy"] == trained["test_accuracy"], (
        "the same weights as after the training"
    )
    error = trained["reconstruction_loss"]["test"]
    assert error > 0 and summary["reconstruction_loss"] == {"training": None, "test": error}
    said = f"images with a mean squared error of {error:.4g}."
    assert said in (project / "results/report.html").read_text()
    random = artifacts.Artifact(
        project / "results/features" / summary["versions"]["features_random"]
    )
    assert "reconstruction_loss" not in random.metrics
    assert summary["versions"]["features_random"] == trained["versions"]["features_random"]
    features = [
        np.load(project / "results/features" / of["versions"][role] / "test.npy")
        for of, role in ((summary, "features"), (trained, "features"), (trained, "features_random"))
    ]
    assert np.array_equal(*features[:2]) and not np.array_equal(features[0], features[2])


FITTED = (
    "patches_samples=[2000]",
    "autoencoder_filters=[8,6]",
    "normalization=standardize",
    "controls=[]",
)


def artifact(project, stage):
    """The folder of the stage's artifact that the report is made from."""
    versions = summary_of(project)["versions"]
    return project / "results" / stage / versions[stage]


def encoder_bytes(folder):
    """The bytes of enc1 and enc2, the first tensors in a weights file of FITTED."""
    return (folder / "weights.bin").read_bytes()[: 8 + 4 * (8 * 27 + 8 + 6 * 72 + 6)]


def test_an_encoder_fitted_to_patches_is_frozen_while_its_decoder_learns(project):
    output = completed(project, "report", *FITTED, "training=patches", "decoder_epochs=2")
    assert (
        "enc1: 2040 patches of 27 values" in output and "enc2: 2040 patches of 72 values" in output
    )
    summary = summary_of(project)
    assert (
        list(summary) == list(summary_keys.KEYS)
        and summary["training"] == "patches"
        and len(summary["loss"]) == 2
    )
    fit, train, features = (artifact(project, stage) for stage in ("patches", "train", "features"))
    assert encoder_bytes(fit) == encoder_bytes(train)
    assert (fit / "weights.bin").read_bytes() != (train / "weights.bin").read_bytes()
    assert (
        summary["layer_movement"]["enc1"]
        == summary["layer_movement"]["enc2"]
        == 0
        < summary["layer_movement"]["dec1"]
    )
    assert (
        json.loads((features / "manifest.json").read_text())["spec"]["parents"]["weights"]
        == fit.name
    )
    page = (project / "results/report.html").read_text()
    assert (
        "Fit to patches" in page
        and "Only the decoder was trained for 2 epochs" in page
        and "drawn as the patch" in page
    )

    completed(
        project, "report", *FITTED, "training=patches_then_gradient", "decoder_epochs=2", "epochs=1"
    )
    summary = summary_of(project)
    assert len(summary["loss"]) == 3 and min(summary["layer_movement"].values()) > 0
    assert artifact(project, "patches") == fit and encoder_bytes(
        artifact(project, "train")
    ) != encoder_bytes(fit)
    features = json.loads((artifact(project, "features") / "manifest.json").read_text())
    assert features["spec"]["parents"]["weights"] == summary["versions"]["train"]


HEADED, FIRST = ("network=autoencoder_classifier", "head_units=10"), 256  # filters of enc1


@pytest.mark.parametrize("frozen", [True, False])
def test_a_head_over_a_trained_encoder_is_beside_the_svm_on_that_encoder(project, frozen):
    before = summary_of(project)
    theirs = safetensors_of(project / before["weights"])
    completed(
        project,
        "report",
        *HEADED,
        f"initial_weights={before['weights']}",
        f"freeze_encoder={frozen}",
    )
    summary = summary_of(project)
    assert list(summary) == list(summary_keys.KEYS) and [
        one["control"] for one in summary["controls"]
    ] == ["svm_start", "linear_pixels", "majority"]
    assert summary["evaluations"]["svm_start"] == before["test_accuracy"], (
        "the same encoder, the same SVM"
    )
    initial, trained = (
        safetensors.numpy.load_file(artifact(project, stage) / "weights.safetensors")
        for stage in ("initial", "train")
    )
    assert all(np.array_equal(initial[name], theirs[name]) for name in ("enc1.weight", "enc1.bias"))
    assert np.array_equal(trained["enc1.weight"], theirs["enc1.weight"]) == frozen
    assert not np.array_equal(trained["head.weight"], initial["head.weight"])
    page = (project / "results/report.html").read_text()
    assert ("its features saw labels" in page) != frozen and (
        "so its features saw no labels" in page
    ) == frozen
    assert ("Training the encoder with labels" in page) != frozen
    assert (
        "an autoencoder trained without labels" in page
        and "on the encoder that it started from" in page
    )


def safetensors_of(path):
    """Name -> array of the encoder's first convolution in a weights.bin of TINY."""
    values = np.frombuffer(path.read_bytes(), "<f4", offset=8)
    return {
        "enc1.weight": values[: FIRST * 27].reshape(FIRST, 3, 3, 3),
        "enc1.bias": values[FIRST * 27 : FIRST * 28],
    }


def test_a_network_that_does_not_support_the_training_is_one_line(project):
    for settings, message in (
        (("network=patch_net",), "patch_net is fitted to patches alone; set training to patches"),
        (
            ("network=lenet_5", "training=patches"),
            "lenet_5 has no layers that are fitted to patches",
        ),
        (("network=patch_net", "training=patches_then_gradient"), "set training to patches"),
    ):
        status, output = run(project, "report", *settings)
        assert status != 0 and message in output and "Traceback" not in output


def test_pictures_of_ones_own_take_the_recipe_and_what_is_written_wins(tmp_path):
    pets = picture_folders.write(tmp_path / "pets", {"cat": 45, "dog": 15})
    project = copy_project(tmp_path)
    keys = ("dataset=folder", f"folder={pets}", "patches_samples=[1000]", "feature_map=false")
    command = ["report", "--config", *keys, "patch_net_filters=[8,8,8,8]"]
    status, output = snakemake_server.run(command, project)
    assert status == 0, output
    summary = summary_of(project)
    assert [origin["network"] for origin in summary["features"]] == ["patch_net", "autoencoder"]
    assert summary["answered_by"] == "ridge"
    assert [one["control"] for one in summary["controls"]] == [
        *("ridge_random", "ridge_strong", "ridge_pixels"),
        "majority",
    ]
    assert " of only 12 test images of " in summary["verdict"]
    chosen = {key: value for each in summary["choices"] for key, value in each["keys"].items()}
    assert {"network", "features_flip", "batch_size"} <= chosen.keys()
    assert not {"patches_samples", "patch_net_filters"} & chosen.keys()
    page = (project / "results/report.html").read_text()
    assert all(each["reason"] in html.unescape(page) for each in summary["choices"])
    assert all(each["reason"] in output for each in summary["choices"])
    status, output = snakemake_server.run(command, project)
    assert status == 0 and "Nothing to be done" in output, "nothing is looked at or made again"
