"""Which finished training a longer one goes on from."""

import json
import pathlib

import pytest

import manifest_files
from ladder.machine import libraries
from ladder.store import manifests, shorter

PARAMS = {"training": "gradient", "schedule": "constant", "epochs": 10, "batch_size": 64}
HERE = {"numpy": "9.9"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(libraries, "installed", lambda files, on_gpu: HERE)
    return tmp_path


def add(version, state=True, libraries=HERE, **params):
    """A finished training of PARAMS with these changes."""
    folder = pathlib.Path("results/train", version)
    manifest_files.write(folder, spec(**params), libraries=libraries)
    if state:
        manifest_files.add_file(folder, shorter.STATE, b"averages")


def spec(**params):
    kept = {key: value for key, value in {**PARAMS, **params}.items() if value is not None}
    return manifest_files.spec("train", kept, {"normalized": "n1"})


def find(**params):
    return shorter.find(spec(**params), "t00000000000")


def test_the_longest_shorter_training_is_taken():
    assert find() is None
    add("t1", epochs=2)
    add("t2", epochs=7)
    add("t3", epochs=12)
    add("t4", epochs=10)
    assert (
        find() == "t2"
        and find(epochs=5) == "t1"
        and find(epochs=2) is None
        and find(epochs=20) == "t3"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 32},
        {"schedule": "step"},
        {"epochs": None, "steps": 3},
        {"state": False},
        {"libraries": {"numpy": "9.8"}},
    ],
)
def test_what_differs_in_more_than_its_length_is_no_beginning(changed):
    add("t1", **{"epochs": 2, **changed})
    assert find() is None


@pytest.mark.parametrize(
    "change",
    [{"parents": {"normalized": "n2"}}, {"sources": {"train.py": "1"}}, {"libraries": HERE}],
)
def test_nor_is_one_of_other_parents_sources_or_counted_libraries(change):
    add("t1", epochs=2)
    assert shorter.find(spec(), "t00000000000") == "t1"
    assert shorter.find({**spec(), **change}, "t00000000000") is None


def test_a_schedule_that_depends_on_the_length_has_no_beginning():
    add("t1", epochs=2, schedule="cosine")
    assert find(schedule="cosine") is None


@pytest.mark.parametrize(
    "training, key",
    [
        ("gradient", "epochs"),
        ("gradient", "steps"),
        ("patches_then_gradient", "epochs"),
        ("patches", "decoder_epochs"),
    ],
)
def test_the_length_is_that_of_the_last_part(training, key):
    params = {
        "epochs": None,
        "training": training,
        **({"decoder_epochs": 3} if training != "gradient" else {}),
    }
    add("t1", **params | {key: 2})
    assert find(**params | {key: 5}) == "t1"
    if training == "patches_then_gradient":
        assert find(**params | {key: 2, "decoder_epochs": 4}) is None


def test_another_stage_has_none():
    add("t1", epochs=2)
    assert shorter.find({**spec(), "stage": "features"}, "t00000000000") is None


@pytest.mark.parametrize("file", [shorter.STATE, manifests.MANIFEST])
def test_a_damaged_one_is_not_taken(file):
    add("t1", epochs=2)
    pathlib.Path("results/train/t1", file).write_bytes(b"half")
    assert find() is None


def test_only_candidates_down_to_the_first_whole_one_are_verified(monkeypatch):
    verified, verify = [], manifests.verify
    monkeypatch.setattr(
        manifests, "verify", lambda folder: verified.append(folder.name) or verify(folder)
    )
    for epochs in (2, 3, 5, 7):
        add(f"t{epochs}", epochs=epochs)
    pathlib.Path("results/train/t7", shorter.STATE).write_bytes(b"half")
    assert find() == "t5" and verified == ["t7", "t5"]


def test_what_was_made_here_before_is_made_again_from_its_inputs():
    add("t1", epochs=2)
    log = pathlib.Path("logs/train/t00000000000.log")
    log.parent.mkdir(parents=True)
    log.write_text("10:00:00 estimate: 3 s for 40 steps\n")  # it was interrupted
    assert find() == "t1"
    log.write_text("10:00:00 results/train/t00000000000: made in 3 s\n")
    assert find() is None


def test_a_manifest_has_numbers_as_json_writes_them():
    add("t1", epochs=2, image=(8, 8))
    assert (
        json.loads(json.dumps(spec(image=(8, 8)))) != spec(image=(8, 8))
        and find(image=(8, 8)) == "t1"
    )
