"""results/test_scores.csv: one line for each scoring on the test images, never rewritten.

Every scoring on the test images makes the best of their accuracies slightly optimistic, so the
number of scorings is part of an accuracy's meaning. Scorings on validation rows are recorded as
such and do not count.
"""

import os
import pathlib
from collections.abc import Mapping

from ladder import progress
from ladder.errors import UserError
from ladder.machine import locks
from ladder.store import artifacts

NAME = "test_scores.csv"  # in results/
# rows: test or validation
COLUMNS = ("when", "stage", "version", "weights", "dataset", "data", "rows")


def record(work: artifacts.ArtifactWriter, inputs: Mapping[str, artifacts.Artifact]) -> None:
    """Append a line for the artifact `work`; inputs: its parents, among them data, and features or
    weights.
    """
    results = work.folder.parent.parent
    line = (
        progress.utc(),
        work.spec["stage"],
        work.folder.name,
        _weights(results, inputs),
        inputs["data"].manifest["spec"]["params"]["dataset"],
        inputs["data"].version,
        kind(inputs["data"]),
    )
    _append(results / NAME, ",".join(line) + "\n")


def kind(data: artifacts.Artifact) -> str:
    """The rows that a data artifact has for scoring: 'test', or 'validation' if they are training
    images.
    """
    return "validation" if data.manifest["spec"]["params"].get("validation") else "test"


def lines(results: str | pathlib.Path) -> list[dict[str, str]]:
    """Every line of the record in the folder `results`, in order, as a dict by COLUMNS; empty
    without a record.

    Incomplete lines, as left by a power cut, and damaged ones are skipped. Raises UserError if the
    record cannot be read.
    """
    path = pathlib.Path(results, NAME)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _in_the_way(path, error) from error
    rows = [tuple(row.split(",")) for row in text.splitlines()]
    return [
        dict(zip(COLUMNS, row, strict=True))
        for row in rows
        if len(row) == len(COLUMNS) and row != COLUMNS
    ]


def _weights(results: pathlib.Path, inputs: Mapping[str, artifacts.Artifact]) -> str:
    """Version of the weights that were scored, of the first part if features are joined; '' for raw
    pixels.
    """
    if "weights" in inputs:
        return inputs["weights"].version
    parents = inputs["features"].manifest["spec"]["parents"]
    if "part1" in parents:
        parents = artifacts.Artifact(results / "features" / parents["part1"]).manifest["spec"][
            "parents"
        ]
    return str(parents.get("weights", ""))


def _in_the_way(path: pathlib.Path, error: OSError) -> UserError:
    return UserError(f"cannot keep the record {path}: {error.strerror}; move it away and run again")


def _append(path: pathlib.Path, line: str) -> None:
    """Append a line, with the header before the first; under a lock, since another stage may append
    at the same time.
    """
    try:
        opened = open(path, "a+b")
    except OSError as error:
        raise _in_the_way(path, error) from error
    with opened as file:
        locks.take(file.fileno(), path)
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            line = ",".join(COLUMNS) + "\n" + line
        # an incomplete line that a power cut left
        elif os.pread(file.fileno(), 1, size - 1) != b"\n":
            line = "\n" + line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
