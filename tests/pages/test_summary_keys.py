"""summary.json has every number of the report, is what its schema says, and the tables of results/
are described.
"""

import csv
import fnmatch
import io
import json
import math
import re
import types

import jsonschema
import numpy as np
import pytest

import synthetic_results
import synthetic_run
from ladder.pages import predictions, report, summary_keys
from ladder.pages.runs import discovery, page
from ladder.sources import ROOT
from ladder.store import scores

PAGE = (ROOT / "docs/summary.md").read_text("utf-8")
RUNS = {
    "autoencoder": {
        "mapped": 50,
        "seeds": (2, 3),
        "evaluations": ("linear", "ridge", "knn"),
        "listed": 1,
    },
    "classifier": {
        "dataset": "mnist",
        "network": "lenet_5",
        "features_layer": "fc2_relu",
        "epochs": 3,
        "validation": 180,
    },
    "patches": {"network": "patch_net", "fitted": True, "options": {"features_flip": True}},
    "variational": {"drawn": 0.5, "epochs": 2},
    "part of an epoch": {"dataset": "mnist", "network": "resnet50", "steps": 13},
    "as drawn": {"trained": False},
}
# Where marks lie in a drawing, and how many pictures are shown.
DRAWN = {
    "length",
    "at",
    "left",
    "right",
    "still",
    "ticks",
    "cut",
    "mark",
    "strength",
    "ranges",
    "columns",
    "x",
    "y",
    "series",
    "by",
    "gain",
    "few",
    "graph",
    "samples",
    "filters",
    "map",
    "gallery",
}
# Of shown pictures, a quotient of two cells of the confusion matrix, and layers that a kernel
# computes together.
LEFT_OUT = {
    ("reconstructions", "off"),
    ("reconstructions", "columns", "off"),
    ("classes", "most_mistaken"),
    ("network", "parts", "rows", "rows"),
}


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("run"), **RUNS[request.param])


@pytest.fixture(scope="module")
def numbers(run):
    return report.summary(
        run,
        "r0123456789e",
        {"variant": "cpu", "seed": 1, "targets": [{"metric": "steps", "at_least": 1}]},
    )


def leaves(value, path=(), without=DRAWN):
    """(keys above it, number) of every number in a page's variables or a summary, but those below
    the keys `without`.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key), without) if key not in without else ()
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner, path, without)
    elif isinstance(value, int | float | np.number) and not isinstance(value, bool):
        yield path, value


def derived(value):
    """The sum, the product and the length of each list and group of numbers, and of a key over a
    list of groups.
    """
    inner = (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )
    for part in inner:
        yield from derived(part)
    plain = [part for part in inner if isinstance(part, int | float)]
    if plain:
        yield from (
            sum(plain),
            len(plain),
            math.prod(plain),
            *(sum(plain) - part for part in plain),
        )
    if inner and all(isinstance(part, dict) for part in inner):
        yield len(inner)
        for key in inner[0]:
            yield from derived([part.get(key) for part in inner])


def test_every_number_of_the_page_is_in_the_summary_or_computed_of_numbers_there(run, numbers):
    page = report.context(run, numbers)
    there = {value for _, value in leaves(numbers, without=())} | set(derived(numbers))
    for network_part in page["network"]["parts"]:  # of a long network, a part of the layers
        there |= {network_part[key] for key in ("parameters", "macs", "layers", "blocks")}
    missing = {
        ".".join(path): value
        for path, value in leaves({key: page[key] for key in page if key != "run"})
        if value not in there and path not in LEFT_OUT
    }
    assert missing == {}


def test_the_summary_is_what_its_schema_says_and_its_keys_are_in_order(numbers):
    schema = json.loads((ROOT / "docs/summary.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(
        json.loads(json.dumps(numbers, allow_nan=False))
    )
    assert list(numbers) == list(summary_keys.KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"wrong": -1},
        {"test_accuracy": 1.2},
        {"mystery": 1},
        {"schema_version": 1},
        {"images": {"train": 1, "test": 1}},
    ],
)
def test_what_the_schema_does_not_allow_is_refused(tmp_path, change):
    run = synthetic_run.make(tmp_path, controls=())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {**report.summary(run, "r0123456789e"), **change}, summary_keys.schema()
        )


def test_time_and_memory_are_those_of_the_training(tmp_path):
    run = synthetic_run.make(tmp_path)
    numbers, metrics = report.summary(run, "r0123456789e"), run["train"].metrics
    assert numbers["seconds_by_operation"] == metrics["seconds_by_operation"]
    assert numbers["memory_by_purpose"] == metrics["memory"]


def printed(number, folder, capsys, monkeypatch):
    """What the program of this number in the document prints in a folder, by key."""
    monkeypatch.chdir(folder)
    exec(re.findall(r"-c '(.*?)'\n", PAGE, re.S)[number])
    return dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())


def test_a_program_of_the_document_prints_what_each_key_is(capsys, monkeypatch):
    texts = {key: text for key, (_, text) in summary_keys.KEYS.items()}
    assert printed(0, ROOT, capsys, monkeypatch) == texts


def test_a_program_of_the_document_prints_what_each_column_of_runs_csv_holds(
    tmp_path, capsys, monkeypatch
):
    synthetic_results.add(tmp_path / "results", epochs=1)
    found = discovery.runs(tmp_path / "results")
    (tmp_path / "results/runs.json").write_text(page.json_text(found), "utf-8")
    described = printed(1, tmp_path, capsys, monkeypatch)
    head = next(csv.reader(io.StringIO(page.csv_text(found))))
    assert set(described) == {re.sub("_(low|high)$", "", column) for column in head}
    assert all(described.values())


def test_the_columns_of_the_tables_are_described(tmp_path):
    rows = re.findall(r"^\| `(\w+\.csv)` \| (.*?) \|", PAGE, re.M)
    described = {}
    for file, names in rows:
        described.setdefault(file, []).extend(re.findall("`(.*?)`", names))
    run = synthetic_results.add(tmp_path, epochs=1)
    answer = {"scores": {"cat": 1.0}, "nearest": [{"row": 1, "class": "cat", "file": "a.png"}]}
    predicted = next(
        csv.reader(
            io.StringIO(predictions.csv_text(types.SimpleNamespace(classes=["cat"]), [answer], []))
        )
    )
    scored = next(csv.reader(io.StringIO(report.csv_text(run))))
    for file, head in {
        "test_scores.csv": scores.COLUMNS,
        "predictions.csv": predicted,
        "scored_images.csv": scored,
    }.items():
        for column in head:
            assert any(fnmatch.fnmatch(column, pattern) for pattern in described[file]), column
        for pattern in described[file]:
            assert fnmatch.filter(head, pattern), pattern
