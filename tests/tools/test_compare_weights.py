"""The command that compares two weights files: what it takes for A and B, and files that are
none.
"""

import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
import safetensors.numpy

import processes
import synthetic_results
from ladder.network import networks, weights
from ladder.stage import command
from ladder.store import artifacts
from tools import compare_weights

SMALL = networks.from_params(
    {"network": "autoencoder", "image": [8, 8, 1], "autoencoder_filters": [4, 2]}
)


@pytest.fixture
def compare(monkeypatch, capsys):
    """A function: arguments -> (exit status, stdout, stderr) of the command."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["compare_weights.py", *map(str, arguments)])
        monkeypatch.setattr(signal, "signal", lambda *_: None)  # that of the tests stays as it is
        with pytest.raises(SystemExit) as ended:
            command.run(compare_weights.main)
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(results, two runs {role: artifact})."""
    results = tmp_path_factory.mktemp("results")
    return (
        results,
        synthetic_results.add(results, noise=0.1),
        synthetic_results.add(results, epochs=2, noise=0.2),
    )


def save(path, values=0.0, network=SMALL):
    tensors = {
        name: array + np.float32(values) for name, array in weights.initialize(network, 5).items()
    }
    weights.save(path, network, tensors)
    return path


def plain(path, values):
    path.write_bytes(
        weights.HEADER.pack(weights.MAGIC, weights.VERSION) + np.asarray(values, "<f4").tobytes()
    )
    return path


def test_a_file_of_another_size_is_compared_in_a_row_where_nothing_names_its_tensors(
    compare, tmp_path
):
    a, b = plain(tmp_path / "a.bin", [1, 2, 3]), plain(tmp_path / "b.bin", [1, 2, 4])
    status, out, error = compare(a, b)
    assert (status, error) == (1, "")
    assert out.splitlines()[1].split() == [
        "values",
        "3",
        "1",
        "0.3333",
        "0.2673",
        "[2]:",
        "3",
        "and",
        "4",
    ]
    assert compare(a, a)[0] == 0


def test_the_manifest_beside_one_file_names_the_tensors_of_both(compare, tmp_path):
    params = {"network": "autoencoder", "image": [8, 8, 1], "autoencoder_filters": [4, 2]}
    with artifacts.making(
        tmp_path / "artifact", {"stage": "train", "params": params, "sources": {}, "parents": {}}
    ):
        pass
    a, moved = save(tmp_path / "artifact/weights.bin"), save(tmp_path / "moved.bin", 1e-3)
    for pair in ((a, moved), (moved, a)):
        status, out, _ = compare(*pair)
        assert status == 1 and [line.split()[0] for line in out.splitlines()[1:-1]] == list(
            weights.shapes(SMALL)
        )
    assert compare(moved, moved)[1].splitlines()[1].startswith("values ")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        '{"spec": {"params": [], "parents": {}}, "files": {}}',
        '{"spec": {"params": {"network": 3}, "parents": {}}, "files": {}}',
        '{"spec": {"params": {"network": "autoencoder", "image": "x"}, "parents": {}}, "files": {}}',
    ],
)
def test_a_damaged_manifest_beside_a_file_names_no_tensors(compare, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    status, out, _ = compare(save(tmp_path / "a.bin"), tmp_path / "a.bin")
    assert status == 0 and out.splitlines()[1].startswith("values ")


def test_folders_and_versions_stand_for_the_weights_in_them(compare, runs):
    results, one, other = runs
    by_file = compare(one["train"].folder / "weights.bin", other["train"].folder / "weights.bin")
    assert (
        by_file[0] == 1
        and by_file[1].count("\n") == len(weights.shapes(networks.build("autoencoder"))) + 2
    )
    assert compare(one["train"].folder, other["train"].folder) == by_file
    versions = [run["train"].version for run in (one, other)]
    assert compare(*versions, "--results", results) == by_file
    shortest = next(n for n in range(1, 13) if versions[0][:n] != versions[1][:n])
    assert compare(*(version[:shortest] for version in versions), "--results", results) == by_file


def test_an_artifact_without_weights_and_an_unknown_version_are_one_line(compare, runs):
    results, one, _ = runs
    for name, words in (
        (one["svm"].folder, "holds no weights"),
        ("t00000000000", "there is no version t00000000000"),
        ("t", "more than one version"),
        (results / "none.bin", "cannot read"),
    ):
        status, out, error = compare(name, one["train"].folder, "--results", results)
        assert (status, out) == (2, "") and error.count("\n") == 1 and words in error


def test_a_damaged_file_of_an_artifact_is_named(compare, runs, tmp_path):
    shutil.copytree(runs[1]["train"].folder, tmp_path / "copy")
    with open(tmp_path / "copy/weights.bin", "rb+") as file:
        file.write(b"\0")
    status, _, error = compare(tmp_path / "copy", runs[1]["train"].folder)
    assert status == 2 and "weights.bin is damaged" in error and error.count("\n") == 1


def test_tensors_without_values_are_alike(compare, tmp_path):
    safetensors.numpy.save_file(
        {"a": np.zeros((0, 3), np.float32), "b": np.ones(2, np.float16)}, tmp_path / "a.safetensors"
    )
    status, out, _ = compare(tmp_path / "a.safetensors", tmp_path / "a.safetensors")
    assert status == 0 and "all 2 tensors are within" in out


def header(**tensors):
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


HOSTILE = {
    "empty": b"",
    "text": b"weights\n",
    "no tensors": header(),
    "short": b"\x24\x20",
    "half": bytes(8),
    "odd": weights.HEADER.pack(weights.MAGIC, weights.VERSION) + bytes(3),
    "float8": header(a={"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}) + bytes(1),
    "int64": header(a={"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}) + bytes(8),
    "complex": header(a={"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}) + bytes(8),
    "huge header": (1 << 62).to_bytes(8, "little") + b"{}",
    "huge shape": header(a={"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}) + bytes(4),
    "deep": (100_000).to_bytes(8, "little") + b"[" * 100_000,
    "long name": header(
        **{"x" * 100_000 + "\n": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}
    )
    + bytes(8),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
def test_what_is_no_weights_file_is_one_short_line(compare, tmp_path, name, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(HOSTILE[name])
    status, out, error = compare(path, path)
    assert (status, out) == (2, "") and error.count("\n") == 1
    assert str(path) in error and len(error) < 600


def test_a_sparse_file_larger_than_memory_is_refused_unread(compare, tmp_path):
    path = plain(tmp_path / "a.bin", [1])
    os.truncate(path, 10**12)
    status, _, error = compare(path, path)
    assert status == 2 and "it has 1,000,000,000,000 bytes, 2,000,000,000 at most" in error


@pytest.mark.parametrize(
    "script, options", [("compare_weights.py", ["other.bin"]), ("check_multiplier.py", [])]
)
def test_a_pipe_is_not_waited_for(tmp_path, script, options):
    os.mkfifo(tmp_path / "pipe")
    result = processes.python(
        f"workflow/scripts/tools/{script}", tmp_path / "pipe", *options, timeout=60
    )
    line = f"cannot read {tmp_path}/pipe: it is not a plain file\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)
