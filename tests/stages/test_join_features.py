"""Concatenated features of several parts."""

import numpy as np
import pytest

import join_features
import manifest_files
from ladder.store import artifacts

WEIGHTS = [1, 0.5, 2]


def features(folder, count, width, seed, odd=0):
    random = np.random.default_rng(seed)
    rows = {
        name: random.normal(size=(rows, columns)).astype(np.float32)
        for name, rows, columns in (
            ("train.npy", count, width),
            ("test.npy", 7, width),
            ("train_odd.npy", count, odd),
            ("test_odd.npy", 7, odd),
        )
        if columns
    }
    with artifacts.making(folder, manifest_files.spec("features")) as work:
        for name, values in rows.items():
            work.write_array(name, values)
        work.metrics = {"dimensions": width} | ({"odd_dimensions": odd} if odd else {})
    return artifacts.Artifact(folder), rows


@pytest.fixture
def join(tmp_path):
    """join((width, odd columns), ...): the joined artifact, and the rows of each part by file."""

    def join(*widths):
        parts = [
            features(tmp_path / f"f{number}", 10, width, number, odd)
            for number, (width, odd) in enumerate(widths)
        ]
        inputs = {f"part{number}": one for number, (one, _) in enumerate(parts, 1)}
        with artifacts.making(tmp_path / "joined", manifest_files.spec("joined")) as work:
            join_features.make(work, inputs, {"weights": WEIGHTS})
        return artifacts.Artifact(tmp_path / "joined"), [rows for _, rows in parts]

    return join


def test_each_parts_columns_are_in_order_and_multiplied_by_its_weight(join, monkeypatch):
    monkeypatch.setattr(join_features, "ROWS", 4)
    joined, parts = join((3, 0), (5, 0), (2, 0))
    for name in ("train.npy", "test.npy"):
        wanted = np.hstack(
            [weight * rows[name] for weight, rows in zip(WEIGHTS, parts, strict=True)]
        )
        assert np.array_equal(joined.array(name), wanted.astype(np.float32))
    assert joined.metrics == {"dimensions": 10, "parts": [3, 5, 2]}


def test_odd_parts_are_joined_apart_and_a_part_without_one_adds_nothing_to_them(join):
    joined, (first, _, last) = join((3, 3), (3, 0), (3, 2))
    for name in ("train_odd.npy", "test_odd.npy"):
        assert np.array_equal(joined.array(name), np.hstack([first[name], 2 * last[name]]))
    assert joined.metrics == {"dimensions": 9, "parts": [3, 3, 3], "odd_dimensions": 5}
