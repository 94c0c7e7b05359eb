"""What a run's model is exported from, and the archive: the run of answering_run.py with a summary
as its report has it.
"""

import json
import zipfile

import answering_run
import export_model
import manifest_files
from ladder.store import artifacts, lineage

SUMMARY = {
    "name": "A <run>",
    "verdict": "A sentence | of a verdict.",
    "test_accuracy": 0.9,
    "balanced_accuracy": 0.625,
    "confusion": [[26, 0], [3, 1]],
    "accuracy_interval": [0.74, 0.97],
    "validation": 0,
    "test_scores": {"all": 3},
    "versions": {"report": "r0123456789a"},
    "program": {"version": "1.2.3"},
    "reproduce": {"settings": {"epochs": 3, "evaluations": ["ridge"]}},
    "controls": [
        {"control": "svm_random", "accuracy": 0.5, "interval": [0.3, 0.7]},
        {"control": "majority", "accuracy": 0.1, "interval": [0.0, 0.2]},
    ],
}


def make(folder, **keys):
    """(inputs by role, with the report, of answering_run.make(..., **keys); the artifact
    `model`).
    """
    inputs = answering_run.make(folder / "results", **keys)
    summary = {
        **SUMMARY,
        "answered_by": lineage.answering(inputs),
        "dataset": inputs["data"].manifest["spec"]["params"]["dataset"],
    }
    with artifacts.making(
        folder / "results/report/r0123456789a", manifest_files.spec("report")
    ) as work:
        work.write_json("summary.json", summary)
    inputs["report"] = artifacts.Artifact(work.folder)
    return inputs, export(folder / "results/model/m0123456789a", inputs)


def export(folder, inputs):
    params = {"products": ["float32"]}
    with artifacts.making(folder, manifest_files.spec("model", params)) as work:
        export_model.make(work, inputs, params)
    return artifacts.Artifact(folder)


def unpacked(model, folder):
    """The folder of the archive's files, unpacked in `folder`."""
    with zipfile.ZipFile(model.path("model.zip")) as archive:
        archive.extractall(folder)
    return folder / export_model.FOLDER


def described(folder):
    """encoder.json of an unpacked archive."""
    return json.loads((folder / "encoder.json").read_text("utf-8"))
