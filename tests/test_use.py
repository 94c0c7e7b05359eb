"""docs/use.md: its Python runs, and its table has every file that a stage can write, as shaped."""

import ast
import contextlib
import fnmatch
import json
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest

import answering_run
import export_table
import exported_run
import manifest_files
import synthetic_results
from ladder.sources import ROOT
from ladder.store import artifacts
from ladder.workflow import copies
from ladder.workflow.stages import STAGES

PAGE = (ROOT / "docs/use.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
RUN = [number for number in range(1, len(BLOCKS)) if "import mlflow" not in BLOCKS[number]]
# [(stages, names or patterns of files, shape as text)]
FILES = [
    (*(re.findall(r"`([^`]+)`", cell) for cell in cells[:2]), cells[2])
    for cells in (
        row.split(" | ")
        for row in re.findall(r"^\| (`.*) \|$", PAGE.split("\n## Every file\n")[1], re.M)
    )
]
WRITTEN = re.compile(r"[\w*]+\.(npy|json|safetensors|bin|csv|html|yaml|zip|parquet)")
RUNS = {
    "autoencoder": {"normalization": "zca", "features_flip": "apart", "joined": "enc1_pool"},
    "ridge": {"primary_classifier": "ridge", "features_flip": "apart", "shifted": 1},
    "classifier": {"network": "lenet_5"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The artifacts by role of each of RUNS, with the model and the table of the first in its
    results/.
    """
    folders = {name: tmp_path_factory.mktemp(name) for name in RUNS}
    made = {
        name: answering_run.make(folder / "results", side=16, **RUNS[name])
        for name, folder in folders.items()
        if name != "autoencoder"
    }
    home = folders["autoencoder"]
    inputs, model = exported_run.make(home, side=16, **RUNS["autoencoder"])
    exported_run.unpacked(model, home)
    with artifacts.making(
        home / "results/table/t0123456789a", manifest_files.spec("table")
    ) as work:
        export_table.make(
            work,
            {"data": inputs["data"], "features": inputs["joined"], "predictions": inputs["svm"]},
            {},
        )
    copies.publish(work.folder, home / "results/features.parquet")
    versions = {role: artifact.version for role, artifact in inputs.items()}
    (home / "results/summary.json").write_text(json.dumps({"versions": versions}))
    return {
        **made,
        "autoencoder": {**inputs, "model": model, "table": artifacts.Artifact(work.folder)},
    }, home


@pytest.mark.parametrize("number", RUN, ids=lambda number: BLOCKS[number].split()[1])
def test_a_block_of_python_runs_after_the_first_one(runs, number, monkeypatch):
    monkeypatch.chdir(runs[1])
    names = {}
    for block in (BLOCKS[0], BLOCKS[number]):
        exec(compile(block, "docs/use.md", "exec"), names)
    assert names.get("accuracy", 1) > 0.7 and len(names["classes"]) == 10
    if "predicted" in names:
        answers = np.load(runs[0]["autoencoder"]["svm"].path("predictions.npy"))
        assert names["predicted"] == [str(answer) for answer in answers]


class StandInMLflow:
    """An `mlflow` module that keeps what it is given."""

    def __init__(self):
        self.name, self.params, self.metrics, self.files = None, {}, [], []

    @contextlib.contextmanager
    def start_run(self, run_name):
        self.name = run_name
        yield

    def log_params(self, params):
        self.params |= params

    def log_metric(self, key, value, step=0):
        self.metrics.append((key, value, step))

    def log_artifact(self, path):
        self.files.append((path, pathlib.Path(path).read_bytes()))


def test_mlflow_gets_the_settings_numbers_and_pages_of_a_run(tmp_path, monkeypatch):
    run = synthetic_results.add(tmp_path / "results", epochs=2, name="first")
    for name in ("report.html", "summary.json"):
        shutil.copy(run["report"].path(name), tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", kept := StandInMLflow())
    (block,) = (block for block in BLOCKS if "import mlflow" in block)
    exec(compile(block, "docs/use.md", "exec"), {"json": json, "results": pathlib.Path("results")})
    summary = run["report"].json("summary.json")
    losses = [("loss", loss, epoch) for epoch, loss in enumerate(summary["loss"], 1)]
    assert kept.metrics == [("test_accuracy", summary["test_accuracy"], 0), *losses]
    assert len(losses) == 2 and kept.name == "first" and kept.params["learning_rate"] == 0.001
    assert [path for path, _ in kept.files] == ["results/report.html", "results/summary.json"]
    assert json.loads(kept.files[1][1]) == summary


def rows_of(stage, file):
    """The shapes in the rows of the page's table for a file of a stage."""
    return [
        shape
        for stages, patterns, shape in FILES
        if stage in stages and any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns)
    ]


def check(artifact):
    """Every file of an artifact is in the table, once, with its shape, and its manifest has its
    type.
    """
    for name, facts in artifact.manifest["files"].items():
        (shape,) = rows_of(artifact.manifest["spec"]["stage"], name)
        if name.endswith(".npy"):
            assert facts["dtype"] == np.load(artifact.path(name), mmap_mode="r").dtype.name
            sizes = shape.strip("()").split(", ")
            assert len(sizes) == len(facts["shape"]), name
            assert all(
                length == int(size)
                for size, length in zip(sizes, facts["shape"], strict=True)
                if size.isdigit()
            )


def test_the_files_of_a_run_are_those_of_the_table_in_their_shapes(runs):
    every = [artifact for run in runs[0].values() for artifact in run.values()]
    for artifact in every:
        check(artifact)
    assert {artifact.manifest["spec"]["stage"] for artifact in every} >= {
        "data",
        "normalized",
        "train",
        "evaluate",
        "features",
        "joined",
        "shifted",
        "svm",
        "ridge",
        "report",
        "model",
        "table",
    }


def names_in(tree):
    """The names of files in a script, with * for what an f-string fills in."""
    filled = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in filled for part in node.values}
    texts = [
        "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
        for node in filled
    ]
    texts += [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in parts
    ]
    return {text for text in texts if isinstance(text, str) and WRITTEN.fullmatch(text)}


@pytest.mark.parametrize("stage", STAGES)
def test_every_file_that_a_stages_script_names_is_in_the_table_and_so_are_its_pages(stage):
    known = [pattern for _, patterns, _ in FILES for pattern in patterns]
    files = names_in(ast.parse((ROOT / STAGES[stage].script).read_text("utf-8")))
    of_no_artifact = {
        "train": {"checkpoint*.safetensors"},
        "model": {"encoder.json", "encoder.safetensors", "sha256.json"},
    }
    assert {
        name
        for name in files
        if not any(
            fnmatch.fnmatchcase(pattern, name) or fnmatch.fnmatchcase(name, pattern)
            for pattern in known
        )
    } == of_no_artifact.get(stage, set())
    assert all(rows_of(stage, page) for page in STAGES[stage].pages)
    assert (stage == "labels") != any(stage in stages for stages, *_ in FILES)


def test_the_newest_scikit_learn_of_the_page_is_the_pinned_one():
    pinned = re.search(r"^scikit-learn==(\S+)", (ROOT / "envs/cpu.txt").read_text("utf-8"), re.M)[1]
    assert re.search(r"scikit-learn [\d.]+ to ([\d.]+\d)", PAGE)[1] == pinned, (
        "what else tests/model_elsewhere.sh tries"
    )
