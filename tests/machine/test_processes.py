"""Names of files that belong to a process, and what tells that they are left."""

import os
import pathlib
import platform
import subprocess
import sys

import pytest

from ladder.machine import processes


def name_of_another(wait):
    """A name that another process makes; the process, which ends if `wait` is false."""
    code = "import sys; from ladder.machine import processes; print(processes.owner(), flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": "workflow/scripts"},
    )
    name = process.stdout.readline().strip()
    if not wait:
        process.communicate()
    return name, process


@pytest.mark.parametrize("form", [".errors.{}", ".report.html.{}.tmp"])
def test_a_file_is_left_once_its_process_has_ended(form):
    name, process = name_of_another(wait=True)
    path = pathlib.Path("logs", form.format(name))
    assert not processes.is_left(path)
    process.communicate()
    assert processes.is_left(path)


def test_files_of_this_process_of_others_machines_and_of_other_people_are_not_left():
    assert not processes.is_left(pathlib.Path(f".errors.{processes.owner()}"))
    assert not processes.is_left(pathlib.Path(f".errors.{platform.node()}.1"))  # of root
    ended, _ = name_of_another(wait=False)
    for name in (
        f".errors.not-{ended}",
        f".errors.{ended}x",
        ".errors.0x1",
        f".errors.{platform.node()}.",
        "errors",
        ".tmp",
    ):
        assert not processes.is_left(pathlib.Path(name)), name
    assert processes.is_left(pathlib.Path(f".errors.{ended}"))
