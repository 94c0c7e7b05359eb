"""Files that a machine keeps for all projects of a user: compiled kernels, and what was checked
before its first use.

They lie in kernel-ladder/ of the user's cache folder ($XDG_CACHE_HOME or ~/.cache). Nothing depends
on their being kept.
"""

import functools
import os
import pathlib
import tempfile

from ladder.progress import log
from ladder.store import disk


def folder(name: str) -> pathlib.Path:
    """The path of kernel-ladder/NAME in the user's cache folder, which may not exist."""
    return pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "kernel-ladder", name
    )


def find(path: pathlib.Path) -> pathlib.Path | None:
    """The path of what was kept as `path`; None where nothing was."""
    return next((place for place in (path, _spare(path)) if place.exists()), None)


def keep(path: pathlib.Path, data: bytes) -> pathlib.Path:
    """The path of a file with these bytes: `path`, or where that cannot be written, a file that
    goes when this process ends.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, data)
        return path
    except OSError as error:
        _say_once(
            f"{path.parent} cannot be written ({error.strerror}): kernels and checks are made again by every command"
        )
        _spare(path).write_bytes(data)
        return _spare(path)


def _spare(path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(_of_this_process().name, path.name)


@functools.cache
def _say_once(text: str) -> None:
    log.warning("%s", text)


@functools.cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kernel-ladder-")
