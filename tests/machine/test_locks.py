"""A file system without locks is one line that names the place and the way out, wherever a lock is
taken.
"""

import errno
import fcntl
import os

import pytest

import manifest_files
from ladder.errors import UserError
from ladder.machine import driver, gpus, locks
from ladder.store import artifacts, scores
from ladder.workflow import garbage

FAULTS = [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP]


@pytest.fixture(params=FAULTS, ids=errno.errorcode.get)
def without_locks(request, monkeypatch):
    def refuse(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)
    return f"is on a file system without locks ({os.strerror(request.param)})"


def test_a_lock_is_taken_once(tmp_path):
    with open(tmp_path / "lock", "w") as first, open(tmp_path / "lock", "w") as second:
        assert locks.take(first.fileno(), "lock") and not locks.take(
            second.fileno(), "lock", wait=False
        )


def test_a_stage_the_record_of_scores_and_gc_name_the_place(tmp_path, without_locks):
    folder = tmp_path / "train/t0"
    with pytest.raises(UserError) as stage, artifacts.making(folder, manifest_files.spec("train")):
        pass
    with pytest.raises(UserError) as record:
        scores._append(tmp_path / scores.NAME, "a line\n")
    with pytest.raises(UserError) as gc:
        garbage._is_locked(folder)
    for error, place in ((stage, folder), (record, tmp_path), (gc, folder)):
        assert str(error.value).startswith(f"{place} {without_locks}") and "local disk" in str(
            error.value
        )


def test_gpus_are_not_shared_out_then_and_the_place_is_named(
    tmp_path, without_locks, monkeypatch, caplog
):
    monkeypatch.setattr(gpus, "_folder", lambda: tmp_path / "locks")
    monkeypatch.setattr(driver, "installed_gpus", lambda: 2)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setattr(gpus.log, "propagate", True)
    assert gpus.claim() is None
    assert f"{tmp_path / 'locks'} {without_locks}" in caplog.text
