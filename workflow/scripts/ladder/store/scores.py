"""results/test_scores.csv: a line for each time that anything was scored on the test images, never rewritten.

Each look at the test images makes the best of the numbers seen there a little too good: how many there were is part of what a
number means. What is scored on training rows held out is written down as that and counts for nothing.
"""

import csv
import fcntl
import os
import pathlib

from ladder import progress
from ladder.store import artifacts

NAME = "test_scores.csv"   # in results/
COLUMNS = ("when", "stage", "version", "weights", "dataset", "data", "rows")   # rows: test or holdout


def record(work, inputs):
    """Append that the artifact `work` was scored; inputs: its parents, data and features or weights among them."""
    results = work.folder.parent.parent
    line = (progress.utc(), work.spec["stage"], work.folder.name,
            _weights(results, inputs), inputs["data"].manifest["spec"]["params"]["dataset"], inputs["data"].version,
            kind(inputs["data"]))
    _append(results / NAME, ",".join(line) + "\n")


def kind(data):
    """Which rows a data artifact has to score on: 'test', or 'holdout' where they are training images."""
    return "holdout" if data.manifest["spec"]["params"].get("holdout") else "test"


def lines(results):
    """Every line of the record in the folder `results`, in its order, as a dict by COLUMNS; none where there is no record.

    Lines that are not whole, as a power cut may leave them, are left out.
    """
    try:
        with open(pathlib.Path(results, NAME), newline="") as file:
            found = [dict(zip(COLUMNS, line, strict=False)) for line in csv.reader(file) if len(line) == len(COLUMNS)]
    except FileNotFoundError:
        return []
    return [line for line in found if tuple(line.values()) != COLUMNS]


def _weights(results, inputs):
    """Version of the weights that were scored, of the first part where features are joined; '' of the pixels."""
    if "weights" in inputs:
        return inputs["weights"].version
    parents = inputs["features"].manifest["spec"]["parents"]
    if "part1" in parents:
        parents = artifacts.Artifact(results / "features" / parents["part1"]).manifest["spec"]["parents"]
    return parents.get("weights", "")


def _append(path, line):
    """Add a line, and the head before the first; under a lock, since another stage may be doing the same."""
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            line = ",".join(COLUMNS) + "\n" + line
        elif os.pread(file.fileno(), 1, size - 1) != b"\n":   # the rest of a line that a power cut left
            line = "\n" + line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
