"""Whether a command can write where it has to, found out before Snakemake or a stage fails there. Standard library only."""

import os
import pathlib
import tempfile

from ladder.errors import UserError
from ladder.machine import processes

PROBE = 2 ** 16   # bytes, more than Snakemake writes into any of its own files before the first stage starts


def check_kind(*folders):
    """Raise UserError if one of the folders is something else, such as a file or a dangling link."""
    for name in folders:
        if os.path.lexists(name) and not os.path.isdir(name):
            raise UserError(f"{name} is no folder, but this command has to write into it; move it away")


def check_writable(*folders):
    """Raise UserError if nothing can be written into one of the folders: it is somebody else's, read-only, or has no room.

    A folder that does not exist will be made in the working directory, which is tried in its place.
    """
    check_kind(*folders)
    for name in folders:
        place = name if os.path.isdir(name) else "."
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(PROBE))
        except OSError as error:
            raise UserError(f"nothing can be written into {os.path.abspath(place)}: {error.strerror}; free some disk, or make "
                            "it a place where this user may write") from error


def write(path, text):
    """Write a small file unless it holds `text` already; raises UserError if that is impossible."""
    path = pathlib.Path(path)
    try:
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{processes.owner()}.tmp")
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
