"""The table of a run has its arrays to the bit, and beside each row what is known of it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import answering_run
import export_table
import manifest_files
from ladder.classifiers import scoring, svm
from ladder.data import names
from ladder.errors import UserError
from ladder.export import table
from ladder.machine import requirements
from ladder.store import artifacts, lineage

ODD_NAMES = ["a/\udce9\n.png", 'b/<i>,"x".png', *(f"c/{number}.png" for number in range(28))]


def export(folder, run, **inputs):
    """(the table that the stage makes of a run, its metrics)"""
    read = {"data": run["data"], "predictions": run[lineage.answering(run)], **inputs}
    features = run.get("joined") or run.get("features")
    with artifacts.making(folder / "t0123456789a", manifest_files.spec("table")) as work:
        export_table.make(work, read | ({"features": features} if features else {}), {})
    return pq.ParquetFile(work.folder / "features.parquet"), work.metrics


def array(read, column):
    return read[column].combine_chunks().flatten().to_numpy().reshape(len(read), -1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with pictures of one's own, as far as a table knows."""
    run = answering_run.make(tmp_path_factory.mktemp("run"), side=16)
    rows = {"train": [f"d/{row}" for row in range(100)], "test": ODD_NAMES}
    manifest_files.add_file(run["data"].folder, names.FILE, json.dumps(rows).encode())
    return {**run, "data": artifacts.Artifact(run["data"].folder)}


def test_every_row_has_its_features_to_the_bit_its_name_label_and_prediction(
    run, tmp_path, monkeypatch
):
    monkeypatch.setattr(table, "GROUP", 40 * 4 * 64)
    file, metrics = export(tmp_path, run)
    groups = [
        file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)
    ]
    assert groups == [40, 40, 20, 30] and metrics == {"rows": 130, "dimensions": 64}
    read, data, classes = file.read(), run["data"], run["data"].metrics["classes"]
    assert read.schema.field("features").type == pa.list_(pa.float32(), 64)
    for part, rows in ("train", read.slice(0, 100)), ("test", read.slice(100)):
        assert array(rows, "features").tobytes() == run["features"].array(f"{part}.npy").tobytes()
        assert rows["row"].to_pylist() == list(range(len(rows))) and set(
            rows["split"].to_pylist()
        ) == {part}
        assert rows["label"].to_pylist() == [
            classes[label] for label in data.array(f"{part}_labels.npy")
        ]
        assert rows["file"].to_pylist() == names.read(data, part)
    assert rows["file"][0].as_py() == "a/\\xe9\n.png"
    assert rows["prediction"].to_pylist() == [
        classes[label] for label in run["svm"].array("predictions.npy")
    ]
    assert rows["decision"].to_pylist() == run["svm"].array("margins.npy").tolist()
    assert read["prediction"].null_count == read["decision"].null_count == 100


def test_a_decision_is_what_the_classifier_decided_by(run):
    machine, features = (
        svm.load(run["svm"].path("model.safetensors")),
        run["features"].array("test.npy"),
    )
    decided = np.concatenate(svm.decision_blocks(machine, features))
    least = np.sort(svm.margins(machine, decided, run["svm"].array("predictions.npy")), axis=1)
    expected = np.where(least[:, 0] < 0, least[:, 0], least[:, 1])  # behind the 0 against itself
    np.testing.assert_array_equal(scoring.decisions(run["svm"]), expected)


@pytest.mark.parametrize(
    "settings", [{"features_flip": "apart"}, {"features_flip": "apart", "joined": "enc1_pool"}]
)
def test_the_odd_half_and_joined_features_are_there_and_the_lead_of_kernel_ridge(
    tmp_path, settings
):
    run = answering_run.make(tmp_path / "results", side=16, primary_classifier="ridge", **settings)
    file, _ = export(tmp_path, run)
    rows, features = file.read().slice(100), run.get("joined") or run["features"]
    for column, name in ("features", "test.npy"), ("features_odd", "test_odd.npy"):
        assert array(rows, column).tobytes() == features.array(name).tobytes()
    assert (
        rows["file"].null_count == 30
        and rows["decision"].to_pylist() == run["ridge"].array("margins.npy").tolist()
    )
    assert min(rows["decision"].to_pylist()) > 0


def test_a_classifier_without_features_has_its_probabilities_on_a_validation_set(
    tmp_path, monkeypatch
):
    run = answering_run.make(tmp_path / "results", network="lenet_5")
    monkeypatch.setitem(run["data"].manifest["spec"]["params"], "validation", 30)
    rows = export(tmp_path, run)[0].read().slice(100)
    assert "features" not in rows.column_names and set(rows["split"].to_pylist()) == {"validation"}
    probabilities = run["evaluate"].array("probabilities.npy")
    assert (
        rows["decision"].to_pylist()
        == probabilities[np.arange(30), run["evaluate"].array("predictions.npy")].tolist()
    )


def test_without_pyarrow_one_line_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: None)
    with (
        artifacts.making(tmp_path / "t0123456789a", manifest_files.spec("table")) as work,
        pytest.raises(
            UserError,
            match="table needs pyarrow, not installed here: `make table`, or `pip install pyarrow`",
        ),
    ):
        export_table.make(work, {}, {})
