"""Files in the user's cache folder, and what happens where nothing can be written there."""

import os

import pytest

from ladder import progress
from ladder.store import cache


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    """The path of a folder in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(progress.log, "propagate", True)
    cache._say_once.cache_clear()
    return cache.folder("kernels")


def test_what_is_kept_is_found_by_every_process(kernels, tmp_path):
    path = kernels / "a.cubin"
    assert path == tmp_path / "kernel-ladder/kernels/a.cubin" and cache.find(path) is None
    assert cache.keep(path, b"code") == path == cache.find(path)
    assert path.read_bytes() == b"code" and os.listdir(kernels) == ["a.cubin"]


def test_where_nothing_can_be_written_it_is_kept_for_this_process_and_said_once(
    kernels, tmp_path, caplog
):
    (tmp_path / "kernel-ladder").write_text("no folder")
    for name in ("a.cubin", "b.cubin"):
        path = kernels / name
        spare = cache.keep(path, name.encode())
        assert spare != path and spare.read_bytes() == name.encode() and cache.find(path) == spare
    assert [record.getMessage() for record in caplog.records] == [
        f"{kernels} cannot be written (Not a directory): kernels and checks are made again by every command"
    ]
