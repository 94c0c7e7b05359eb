"""The model of a run in other programs: it gives the run's own answers, with all settings that a
run can have.
"""

import importlib.util
import json
import os
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

import count_tokens
import export_model
import exported_run
import manifest_files
import other_runtimes
import processes
import width_models
from ladder.errors import RunFailed, UserError
from ladder.export import model
from ladder.export.graph import FLOAT, Graph
from ladder.machine import requirements
from ladder.sources import ROOT
from ladder.store import artifacts, manifests

SUPPORT = ROOT / "tests/support"
HALVES = {"features_flip": "apart", "features_standardize": True}
PROJECTED = {"features_pca": 20, "features_fit_rows": 80, "seed": 1}
RUNS = {
    "svm": {},
    "pooled, both ways": {
        "features_pool": 4,
        "features_flip": True,
        "normalization": "standardize",
    },
    "projected": {
        "features_layer": "enc2",
        "features_two_polarity": 0.25,
        "features_polarity_scale": "channel",
        "features_max_pool": 2,
        "features_flip": True,
        "features_standardize": True,
        **PROJECTED,
    },
    "averaged polarities": {
        "features_layer": "enc2",
        "features_two_polarity": 0.1,
        "features_polarity_scale": "channel",
        "features_pool": 4,
        **PROJECTED,
    },
    "ridge of shifted halves": {
        "primary_classifier": "ridge",
        "shifted": 2,
        "joined": "enc1_pool",
        **HALVES,
    },
    "ridge, projected halves": {
        "primary_classifier": "ridge",
        "joined": "enc1_pool",
        **HALVES,
        **PROJECTED,
    },
    "shifted and whitened": {"shifted": 3, "normalization": "zca", "features_pool": 4},
    "classifier": {"network": "lenet_5"},
    "classifier with features": {"network": "lenet_5", "features_layer": "fc1"},
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """exported(name) -> (inputs by role, the artifact, the folder of its archive), made on
    demand.
    """
    runs = {}

    def of(name):
        if name not in runs:
            folder = tmp_path_factory.mktemp("exported")
            inputs, artifact = exported_run.make(folder, side=16, **RUNS[name])
            runs[name] = inputs, artifact, exported_run.unpacked(artifact, folder)
        return runs[name]

    return of


@pytest.mark.parametrize("name", RUNS)
def test_onnxruntime_gives_the_classes_of_the_run_and_its_decisions(exported, name):
    inputs, artifact, folder = exported(name)
    metrics = artifact.metrics
    assert metrics["classes_that_differ"] == 0 and metrics["images"] == 30
    assert 0 < max(metrics["deviations"].values()) < 2e-5
    assert ("features" in metrics["deviations"]) == (name != "classifier")
    assert set(metrics["bytes"]) == {
        "model.onnx",
        "encoder.json",
        "encoder.safetensors",
        "encoder.py",
        "exported.py",
        "model_sklearn.py",
        "sha256.json",
        "predict.py",
        "reading/__init__.py",
        "reading/pictures.py",
        "reading/plain.py",
        "reading/tiff.py",
    }
    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    assert metrics["decisions"] == "float32" and "float32_deviation" not in metrics
    session, images = (
        onnxruntime.InferenceSession(folder / "model.onnx"),
        np.asarray(inputs["data"].array("test_images.npy")),
    )
    for output, values in zip(
        session.get_outputs(), session.run(None, {"images": images}), strict=True
    ):
        assert output.shape == ["N", *values.shape[1:]], output.name


@pytest.mark.parametrize("name", ["ridge of shifted halves", "svm", "classifier"])
def test_scikit_learn_calibrates_stacks_validates_and_copies_the_estimators(
    exported, name, tmp_path
):
    inputs, _, folder = exported(name)
    images, labels = (
        np.asarray(inputs["data"].array(f"train_{name}.npy")) for name in ("images", "labels")
    )
    answers = onnxruntime.InferenceSession(folder / "model.onnx").run(
        ["class"], {"images": images}
    )[0]
    for name, values in (("images", images), ("labels", labels), ("predictions", answers)):
        np.save(tmp_path / f"{name}.npy", values)
    ran = processes.python(SUPPORT / "estimators_used.py", folder, tmp_path)
    assert ran.stdout == "scikit-learn: all uses\n", ran.stderr


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_largest_decision_is_that_of_the_predicted_class_ties_of_votes_too(
    count, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(ROOT / "workflow/resources/model")
    estimators = importlib.import_module("model_sklearn")
    (tmp_path / "model.onnx").write_bytes(width_models.model(30, count).SerializeToString())
    classifier = estimators.Classifier(tmp_path / "model.onnx")
    rows = np.random.default_rng(count).integers(0, 256, (400, 30))
    decisions = classifier.decision_function(rows)
    assert decisions.shape == ((400,) if count == 2 else (400, count))
    chosen = (decisions > 0).astype(int) if count == 2 else decisions.argmax(axis=1)
    np.testing.assert_array_equal(chosen, classifier.predict(rows))
    assert len(set(chosen)) > 1
    if count > 2:
        votes = np.sort(np.rint(decisions + np.arange(count) / count), axis=1)
        assert (votes[:, -1] == votes[:, -2]).any(), "no tie"
        assert (votes.sum(axis=1) == count * (count - 1) / 2).all()


@pytest.mark.parametrize("name", RUNS)
def test_the_definition_of_onnx_gives_what_onnxruntime_gives(exported, name):
    inputs, _, folder = exported(name)
    images = np.asarray(inputs["data"].array("test_images.npy"))
    one, other = (
        other_runtimes.answers(program, folder / "model.onnx", images)
        for program in ("onnxruntime", "reference")
    )
    assert np.array_equal(one.pop("class"), other.pop("class"))
    for output, values in one.items():
        assert (
            np.abs(other[output] - values).max() <= model.MOST_DEVIATION * np.abs(values).max()
        ), output


def test_the_model_answers_alike_in_environments_without_kernel_ladder(tmp_path):
    oldest = ["sklearn-oldest"] if sys.version_info < (3, 14) else []  # for which it has no wheel
    ran = processes.run(
        ROOT / "tests/model_elsewhere.sh",
        "onnx",
        *oldest,
        "sklearn-newest",
        "programs",
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    if "NewConnectionError" in ran.stdout:
        pytest.skip("packages cannot be downloaded here")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_picture_gets_the_class_of_its_image_and_one_that_is_no_picture_is_a_line(
    exported, tmp_path
):
    inputs, _, folder = exported("svm")
    images, expected = (
        inputs["data"].array("test_images.npy")[:4],
        inputs["svm"].array("predictions.npy"),
    )
    names = inputs["data"].metrics["classes"]
    for row, image in enumerate(images):  # two as they are, two as ink on paper
        Image.fromarray(image if row < 2 else 255 - image).save(tmp_path / f"{row}.png")
    (tmp_path / "torn.png").write_bytes(b"\x89PNG")
    ran = processes.python(
        folder / "predict.py", *sorted(tmp_path.glob("?.png")), tmp_path / "torn.png"
    )
    said = [line.partition(": ")[2].partition(", margin ") for line in ran.stdout.splitlines()]
    assert [name for name, _, _ in said] == [names[label] for label in expected[:4]]
    assert all(float(margin) > 0 for _, _, margin in said)
    assert (
        ran.returncode == 1
        and len(ran.stderr.strip().splitlines()) == 1
        and "torn.png: not a picture that" in ran.stderr
    )


def test_the_files_that_people_copy_are_short(exported):
    _, _, folder = exported("svm")
    assert count_tokens.count((folder / "encoder.py").read_text()) <= 1165
    assert count_tokens.count((folder / "predict.py").read_text()) <= 616


def test_the_card_says_how_good_the_model_is_and_what_it_must_not_be_used_for(
    exported,
):
    inputs, _, folder = exported("svm")
    card = (folder / "README.md").read_text("utf-8")
    assert card.startswith("# A &#60;run&#62;\n\nA sentence &#124; of a verdict.\n")
    assert "| this model | 90.00% | 74.00% to 97.00% |" in card
    assert "| the same classifier on the untrained encoder | 50.00% | 30.00% to 70.00% |" in card
    assert "All numbers are float32." in card and '{"INFERENCE_PRECISION_HINT": "f32"}' in card
    assert "UCI: CC BY 4.0" in card and "it must not be used" in card.replace("\n", " ")
    assert "`results/model/m0123456789a`" in card and "epochs: 3\n" in card
    for name in ("model.onnx", "encoder.safetensors"):
        assert f"`{manifests.facts(folder / name)['sha256']}`" in card


def test_the_archive_has_the_same_bytes_each_time_and_nothing_else_is_left(
    exported, tmp_path, monkeypatch
):
    inputs, artifact, _ = exported("svm")
    (tmp_path / artifact.version).mkdir()
    (tmp_path / artifact.version / "model.onnx.data").write_bytes(b"of an interrupted run")
    folders, compared = [], model.compared
    monkeypatch.setattr(
        model,
        "compared",
        lambda path, *others: (
            folders.extend(entry for entry in path.parent.iterdir() if entry.is_dir()),
            compared(path, *others),
        )[1],
    )
    again = exported_run.export(tmp_path / artifact.version, inputs)
    assert again.path("model.zip").read_bytes() == artifact.path("model.zip").read_bytes()
    assert folders == [], "another command that waits for the artifact would remove them"
    assert {entry.name for entry in again.folder.iterdir()} == {
        "model.zip",
        "manifest.json",
        ".complete.json",
        ".lock",
    }


def test_a_large_model_has_its_constants_in_a_file_of_their_own(exported, tmp_path, monkeypatch):
    inputs, _, whole = exported("svm")
    monkeypatch.setattr(model, "LARGE", 1)
    artifact = exported_run.export(tmp_path / "m0123456789a", inputs)
    folder = exported_run.unpacked(artifact, tmp_path)
    assert artifact.metrics["classes_that_differ"] == 0
    assert (folder / "model.onnx.data").stat().st_size > (folder / "model.onnx").stat().st_size


def test_an_answer_that_float32_does_not_explain_fails_the_stage(exported, tmp_path, monkeypatch):
    inputs, _, _ = exported("svm")
    wrong = artifacts.Artifact(inputs["svm"].folder)
    predictions = np.asarray(wrong.array("predictions.npy"))
    monkeypatch.setattr(wrong, "array", lambda name: (predictions + 1) % 10)
    with pytest.raises(
        RunFailed, match="30 of 30 classes differ, features by up to .*decisions by up to .*e-0"
    ):
        exported_run.export(tmp_path / "m1", {**inputs, "svm": wrong})
    monkeypatch.setattr(model, "MOST_DEVIATION", 0.0)
    monkeypatch.setattr(model.Answering, "explained", lambda self: 0.0)
    with pytest.raises(RunFailed, match="answers otherwise than the run: 0 of 30 classes differ"):
        exported_run.export(tmp_path / "m2", inputs)


def test_decisions_are_float64_where_float32_does_not_hold_and_the_card_says_why(
    exported, tmp_path, monkeypatch
):
    inputs, _, _ = exported("svm")
    monkeypatch.setattr(model, "MOST_DEVIATION", 1e-6)
    artifact = exported_run.export(tmp_path / "m0123456789a", inputs)
    metrics, folder = artifact.metrics, exported_run.unpacked(artifact, tmp_path)
    assert (
        metrics["decisions"] == "float64"
        and metrics["deviations"]["decisions"] <= metrics["explained"]
    )
    assert 1e-6 < metrics["float32_deviation"] < 1e-5
    types = {
        output.name: output.type
        for output in onnxruntime.InferenceSession(folder / "model.onnx").get_outputs()
    }
    assert types == {
        "features": "tensor(float)",
        "decisions": "tensor(double)",
        "class": "tensor(int64)",
        "margin": "tensor(double)",
    }
    words = (folder / "README.md").read_text().replace("\n", " ")
    assert (
        f"computed in float64, because in float32 they would differ by {metrics['float32_deviation']:.1e}"
        in words
    )


def test_weights_that_are_not_finite_are_not_exported():
    with pytest.raises(
        RunFailed, match="^model: enc1.weight holds NaN or Inf: .*lower learning_rate$"
    ):
        Graph().constant(np.float32([1, np.nan]), "enc1.weight")


def spoil(folder, name, value):
    """Write a value over all numbers of a constant of an unpacked model."""
    stored = onnx.load(folder / "model.onnx")
    constant = next(one for one in stored.graph.initializer if one.name == name)
    numbers = onnx.numpy_helper.to_array(constant)
    constant.CopyFrom(onnx.numpy_helper.from_array(np.full_like(numbers, value), name))
    onnx.save(stored, folder / "model.onnx")


def list_again(folder):
    """Write the list of an unpacked model anew, of the files as they are."""
    listed = json.loads((folder / "sha256.json").read_text())
    digests = {name: manifests.facts(folder / name)["sha256"] for name in listed}
    (folder / "sha256.json").write_text(json.dumps(digests))


@pytest.fixture
def copied(exported, tmp_path):
    """A copy of the folder of an archive."""
    return shutil.copytree(exported("svm")[2], tmp_path / "copied")


def test_a_changed_constant_is_noticed_and_one_that_is_not_finite_in_a_new_list_too(
    copied, monkeypatch
):
    monkeypatch.syspath_prepend(copied)
    fault = importlib.import_module("exported").fault
    assert fault(copied) is None
    whole = (copied / "model.onnx").read_bytes()
    constants = onnx.load(copied / "model.onnx").graph.initializer
    real = [one.name for one in constants if one.data_type == onnx.TensorProto.FLOAT]
    assert len(real) > 10
    for name in [one.name for one in constants]:
        values = (np.nan, np.inf, -np.inf) if name in real else (1,)
        for value in values:
            (copied / "model.onnx").write_bytes(whole)
            spoil(copied, name, value)
            assert fault(copied).startswith("model.onnx is not the file that was exported"), name
            if name in real:
                list_again(copied)
                assert fault(copied).startswith(f"the constant {name} of model.onnx holds NaN")


@pytest.mark.parametrize("form", ["float64", "numbers, no bytes", "a file of their own"])
def test_constants_are_read_in_each_form_that_onnx_has_for_them(form, copied, monkeypatch):
    monkeypatch.syspath_prepend(copied)
    constants = importlib.import_module("exported").constants
    values = np.linspace(-1, 1, 300).reshape(3, 100).astype("f8" if form == "float64" else "f4")
    graph = Graph()
    graph.constant(values, "whole")
    stored = graph.model((1,), {})
    if form == "numbers, no bytes":
        stored.graph.initializer[0].CopyFrom(
            onnx.helper.make_tensor("0.whole", FLOAT, values.shape, values.ravel())
        )
    apart = form == "a file of their own"
    onnx.save_model(stored, copied / "model.onnx", save_as_external_data=apart, location="data")
    ((name, read),) = constants(copied / "model.onnx")
    assert name == "0.whole" and np.array_equal(read, values.ravel())


def test_a_model_that_is_damaged_or_computes_no_number_gives_no_answer(copied, tmp_path):
    first = next(
        node.input[1]
        for node in onnx.load(copied / "model.onnx").graph.node
        if node.op_type == "Conv"
    )
    Image.new("RGB", (16, 16), "gray").save(tmp_path / "a.png")

    def refused(words):
        ran = processes.python(copied / "predict.py", tmp_path / "a.png")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith(words) and ran.stderr.count("\n") == 1

    spoil(copied, first, np.nan)
    refused("model.onnx is not the file that was exported: unpack model.zip again\n")
    list_again(copied)
    refused(f"the constant {first} of model.onnx holds NaN or Inf: export the model again\n")
    spoil(copied, first, 3e38)
    list_again(copied)
    refused(f"{tmp_path}/a.png: no answer, because the model computes NaN or Inf from it\n")
    (copied / "model.onnx").write_bytes(b"x")
    list_again(copied)
    refused(f"{copied}/model.onnx cannot be read: ")


def test_predict_says_how_it_is_used_and_what_it_needs(exported):
    _, _, folder = exported("svm")
    predict, usage = folder / "predict.py", "which pictures? python predict.py PICTURE ..."
    for command, words in (
        ([predict], usage),
        ([predict, "--help"], usage),
        # -S: no packages
        (["-S", predict], "No module named 'numpy': pip install onnxruntime numpy pillow"),
    ):
        ran = processes.python(*command)
        assert (ran.returncode, ran.stderr) == (1, f"{words}\n")


def test_a_damaged_input_is_named(exported, tmp_path):
    inputs, _, _ = exported("svm")
    copied = tmp_path / inputs["svm"].version
    copied.mkdir()
    for path in inputs["svm"].folder.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    manifest_files.rewrite(copied)
    (copied / "model.safetensors").write_bytes(b"x" * (copied / "model.safetensors").stat().st_size)
    with pytest.raises(UserError, match="model.safetensors is damaged"):
        exported_run.export(tmp_path / "m", {**inputs, "svm": artifacts.Artifact(copied)})


@pytest.mark.parametrize(
    "products, reason",
    [
        (["bfloat16"], "rounded (bfloat16), which ONNX cannot do"),
        (["am16", "float32"], "rounded (am16)"),
        (
            ["float32"],
            "needs onnx and onnxruntime, not installed here: `make model`, or `pip install onnx onnxruntime`",
        ),
    ],
)
def test_what_cannot_be_exported_is_said_before_anything_is_computed(
    products, reason, tmp_path, monkeypatch
):
    if products == ["float32"]:
        assert requirements.unavailable(products) is None
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert reason in requirements.unavailable(products)
    with (
        artifacts.making(tmp_path / "m", manifest_files.spec("model")) as work,
        pytest.raises(UserError),
    ):
        export_model.make(work, {}, {"products": products})
