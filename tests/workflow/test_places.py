"""Where a command writes: folders that are something else, belong to somebody else, or have no room
are named in one line.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys

import pytest

from ladder import sources
from ladder.errors import UserError
from ladder.workflow import places
from permissions import unprivileged

CHECK = "import sys; sys.path.insert(0, sys.argv[1]); from ladder.workflow import places; places.check_writable(sys.argv[2])"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "make",
    [pathlib.Path.touch, lambda path: path.symlink_to("nowhere"), os.mkfifo],
    ids=["file", "dangling link", "pipe"],
)
def test_a_folder_that_is_something_else_is_named(make):
    make(pathlib.Path("results"))
    for check in (places.check_kind, places.check_writable):
        with pytest.raises(
            UserError,
            match="^results is not a folder, but this command has to write into it; move it away$",
        ):
            check("logs", "results")


def test_folders_missing_ones_and_links_to_them_are_writable_and_left_as_they_were(
    here,
):
    (here / "results").mkdir()
    (here / "logs").symlink_to("results")
    places.check_writable("results", "logs", ".snakemake")
    assert sorted(os.listdir(here)) == ["logs", "results"] and os.listdir(here / "results") == []


@pytest.mark.parametrize("name, place", [("results", "results"), ("logs", ".")])
def test_a_folder_of_somebody_else_is_named(here, name, place):
    (here / "results").mkdir()
    (here / place).chmod(0o555)
    try:
        done = subprocess.run(
            [*unprivileged(), sys.executable, "-c", CHECK, str(sources.SCRIPTS), name],
            text=True,
            stderr=subprocess.PIPE,
        )
    finally:
        (here / place).chmod(0o755)
    assert done.stderr.splitlines()[-1].endswith(
        f"nothing can be written into {(here / place).resolve()}: Permission denied; free some disk, or make it a place where "
        "this user may write"
    )


def test_a_folder_without_room_is_named(here):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(
            UserError, match=f"nothing can be written into {here}: File too large; free some disk"
        ):
            places.check_writable("results")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_limit_of_memory_in_which_nothing_runs_is_named(monkeypatch):
    limits = {resource.RLIMIT_AS: (400_000 * 1024, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    with pytest.raises(
        UserError,
        match=r"^a process may have 409.6 MB of address space here, .* need 1.0 GB; lift the limit",
    ):
        places.check_memory()
    for enough in (places.ADDRESSES, resource.RLIM_INFINITY):
        limits[resource.RLIMIT_AS] = enough, enough
        places.check_memory()


def test_a_small_file_is_written_once_and_a_fault_is_one_line(here):
    places.write("logs/data/d1.json", "[1]")
    made = (here / "logs/data/d1.json").stat()
    places.write("logs/data/d1.json", "[1]")
    assert (here / "logs/data/d1.json").stat().st_ino == made.st_ino, (
        "the same text is not written again"
    )
    places.write("logs/data/d1.json", "[2]")
    assert json.loads((here / "logs/data/d1.json").read_text()) == [2] and os.listdir(
        here / "logs/data"
    ) == ["d1.json"]
    with pytest.raises(UserError, match="^logs/data/d1.json/d2.json cannot be written: "):
        places.write("logs/data/d1.json/d2.json", "")
