"""Files that are written whole or not at all, and their checksums. Standard library only."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterator

from ladder.machine import processes


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary path; if the block raises nothing, it is flushed and renamed to `path`,
    else it is removed.
    """
    temporary = path.with_name(f".{path.name}.{processes.owner()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | pathlib.Path, data: bytes) -> None:
    with replacing(pathlib.Path(path)) as temporary:
        temporary.write_bytes(data)


def sha256(path: str | pathlib.Path) -> str:
    """Hex sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
