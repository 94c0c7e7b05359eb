import errno
import multiprocessing
import os
import pickle
import signal
import time

import numpy as np
import pytest

import ladder
import manifest_files
import processes
from ladder.errors import UserError
from ladder.machine import compiling
from ladder.sources import SCRIPTS
from ladder.store import artifacts, disk

SPEC = {"stage": "data", "params": {"n": 1}, "sources": {}, "parents": {}}
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def make(folder, spec=SPEC, remake=False, values=VALUES):
    """Make a small artifact; True if it was made, False if it existed."""
    with artifacts.making(folder, spec, remake) as work:
        if work.complete:
            return False
        work.write_array("values.npy", values)
        work.write_tensors("tensors.safetensors", {"a": VALUES[0]})
        work.write_json("facts.json", {"x": 1})
        work.metrics = {"rows": 2}
    return True


@pytest.fixture
def folder(tmp_path):
    make(tmp_path / "d1")
    return tmp_path / "d1"


def test_an_artifact_is_read_as_written(folder):
    artifact = artifacts.Artifact(folder)
    np.testing.assert_array_equal(artifact.array("values.npy"), VALUES)
    np.testing.assert_array_equal(artifact.tensors("tensors.safetensors")["a"], VALUES[0])
    assert artifact.json("facts.json") == {"x": 1}
    assert artifact.metrics == {"rows": 2} and artifact.version == "d1"
    assert artifact.manifest["spec"] == SPEC and artifact.manifest["program"] == ladder.__version__
    assert (
        artifact.manifest["files"]["values.npy"].items()
        >= {"shape": [2, 3], "dtype": "float32"}.items()
    )


def test_a_file_may_be_empty(tmp_path):
    with artifacts.making(tmp_path / "d1", SPEC) as work:
        work.write_bytes("empty.txt", b"")
    assert artifacts.Artifact(tmp_path / "d1").path("empty.txt").read_bytes() == b""


def test_an_array_that_is_read_cannot_be_written(folder):
    with pytest.raises(ValueError, match="read-only"):
        artifacts.Artifact(folder).array("values.npy")[0, 0] = 1


def test_an_artifact_exists_only_when_complete(tmp_path):
    with pytest.raises(ZeroDivisionError), artifacts.making(tmp_path / "d1", SPEC) as work:
        work.write_array("values.npy", VALUES)
        raise ZeroDivisionError
    assert not (tmp_path / "d1/manifest.json").exists()
    with pytest.raises(UserError, match="no finished artifact"):
        artifacts.Artifact(tmp_path / "d1")


def test_an_unfinished_file_is_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), disk.replacing(tmp_path / "file") as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x77"),
    ],
    ids=["missing", "truncated", "one byte changed"],
)
def test_a_damaged_file_is_named_where_it_is_read_and_made_anew(folder, damage):
    damage(folder / "values.npy")
    with pytest.raises(
        UserError, match=r"values.npy is damaged \(it.*\); the command that needs it makes it again"
    ):
        artifacts.Artifact(folder).array("values.npy")
    assert make(folder)
    np.testing.assert_array_equal(artifacts.Artifact(folder).array("values.npy"), VALUES)


def test_a_damaged_manifest_is_one_message(folder):
    (folder / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest.json is damaged \(it has no digest"):
        artifacts.Artifact(folder)


def test_a_pickle_in_an_artifact_is_not_run(folder, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    np.save(folder / "values.npy", np.array([Bomb()]), allow_pickle=True)
    manifest_files.rewrite(folder)
    with pytest.raises(ValueError, match="Python objects"):
        artifacts.Artifact(folder).array("values.npy")
    (folder / "bomb").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError, match="not a readable safetensors file"):
        artifacts.load_tensors(folder / "bomb")
    assert not (tmp_path / "exploded").exists()


def test_a_finished_artifact_is_made_again_only_on_request(folder):
    assert not make(folder, values=VALUES + 1)
    np.testing.assert_array_equal(artifacts.Artifact(folder).array("values.npy"), VALUES)
    assert make(folder, remake=True, values=VALUES + 1)
    np.testing.assert_array_equal(artifacts.Artifact(folder).array("values.npy"), VALUES + 1)


def test_an_artifact_whose_manifest_another_run_removed_can_be_read_and_gets_it_back(folder):
    (folder / "manifest.json").unlink()
    assert artifacts.Artifact(folder).metrics == {"rows": 2}
    assert not make(folder)
    assert (folder / "manifest.json").exists()


def test_an_artifact_of_another_spec_is_made_anew(folder):
    assert make(folder, SPEC | {"params": {"n": 2}})


def slow(folder, started):
    with artifacts.making(folder, SPEC) as work:
        if not work.complete:
            started.set()
            time.sleep(0.5)
            work.write_array("values.npy", VALUES + 1)


def test_the_second_of_two_waits_and_uses_the_result_of_the_first(tmp_path):
    started = multiprocessing.Event()
    first = multiprocessing.Process(target=slow, args=(tmp_path / "d1", started))
    first.start()
    started.wait(10)
    assert not make(tmp_path / "d1")
    first.join()
    np.testing.assert_array_equal(
        artifacts.Artifact(tmp_path / "d1").array("values.npy"), VALUES + 1
    )


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    started = multiprocessing.Event()
    first = multiprocessing.Process(target=slow, args=(tmp_path / "d1", started))
    first.start()
    started.wait(10)
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    assert make(tmp_path / "d1")


FULL = """
import pathlib, resource, signal, sys
import numpy as np
from ladder.store import artifacts
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with artifacts.making(pathlib.Path(sys.argv[1]), {}) as work, work.new_array("x.npy", (100_000,), np.float32) as out:
        out[...] = 1
except OSError as error:
    print(error.errno)
"""


def test_a_full_disk_is_an_error_and_not_a_crash(tmp_path):
    done = processes.python(
        "-c", FULL, tmp_path / "d1", env=os.environ | {"PYTHONPATH": str(SCRIPTS)}
    )
    assert done.stdout.split() == [str(errno.EFBIG)], done.stderr
    assert not (tmp_path / "d1/manifest.json").exists()


def test_a_forced_artifact_starts_empty_and_a_finished_one_keeps_only_its_files(
    tmp_path,
):
    def make(**options):
        found = []
        with artifacts.making(tmp_path / "t1", SPEC, **options) as work:
            if not work.complete:
                found = sorted(path.name for path in work.folder.iterdir())
                (work.folder / "checkpoint").write_text("step 9")
                work.write_json("weights.json", 1)
        return found

    assert make() == [".lock"]
    kept = sorted(path.name for path in (tmp_path / "t1").iterdir())
    assert kept == [".complete.json", ".lock", "manifest.json", "weights.json"]
    (tmp_path / "t1/manifest.json").unlink()
    (tmp_path / "t1/.complete.json").unlink()
    (tmp_path / "t1/checkpoint").write_text("step 5")
    assert make() == [".lock", "checkpoint", "weights.json"], (
        "an interrupted run resumes from its checkpoint"
    )
    (tmp_path / "t1/checkpoint").write_text("step 5")
    assert make(remake=True) == [".lock"]


def test_the_time_of_an_artifact_is_that_of_its_work_and_compiling_stands_by_itself(
    tmp_path, monkeypatch
):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with artifacts.making(tmp_path / "t0123456789a", SPEC) as work:
        now[0] += 2.0
        with compiling.counted():
            now[0] += 30.0
    manifest = artifacts.Artifact(tmp_path / "t0123456789a").manifest
    assert (
        (manifest["seconds"], manifest["seconds_compiling"])
        == (2.0, 30.0)
        == (work.seconds, work.seconds_compiling)
    )
