"""Whether a command has the places and the memory that it needs, found out before Snakemake or a
stage fails there.
"""

import contextlib
import os
import pathlib
import resource
import tempfile

from ladder import progress
from ladder.errors import UserError
from ladder.machine import processes

# bytes, more than Snakemake writes into any of its own files before the first stage starts
PROBE = 2**16

# bytes of address space; with 0.7 GB the smallest run ends in the middle of Snakemake or of a
# library
ADDRESSES = 10**9


def check_memory() -> None:
    """Raise UserError if a limit of this shell lets no process have enough address space."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < ADDRESSES:
        raise UserError(
            f"a process may have {progress.size(limit)} of address space here, and Snakemake and the stages need "
            f"{progress.size(ADDRESSES)}; lift the limit of this shell: ulimit -S -v unlimited"
        )


def check_kind(*folders: str) -> None:
    """Raise UserError if one of the folders is something else, such as a file or a dangling
    link.
    """
    for name in folders:
        if os.path.lexists(name) and not os.path.isdir(name):
            raise UserError(
                f"{name} is not a folder, but this command has to write into it; move it away"
            )


def check_writable(*folders: str) -> None:
    """Raise UserError if nothing can be written into one of the folders: it is somebody else's,
    read-only, or has no room.

    A folder that does not exist will be made in the working directory, which is tried in its place.
    """
    check_kind(*folders)
    for name in folders:
        place = name if os.path.isdir(name) else "."
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(PROBE))
        except OSError as error:
            raise UserError(
                f"nothing can be written into {os.path.abspath(place)}: {error.strerror}; free some disk, or make "
                "it a place where this user may write"
            ) from error


def remove_leftovers(*patterns: str) -> None:
    """Remove the files of commands that were killed, as processes.owner names them, that match a
    pattern.
    """
    for path in (
        path
        for pattern in patterns
        for path in pathlib.Path().glob(pattern)
        if processes.is_left(path)
    ):
        with contextlib.suppress(OSError):
            path.unlink()


def write(path: str | pathlib.Path, text: str) -> None:
    """Write a small file unless it holds `text` already; raises UserError if that is impossible."""
    path = pathlib.Path(path)
    try:
        if path.exists() and path.read_text("utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{processes.owner()}.tmp")
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
