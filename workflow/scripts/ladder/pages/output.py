"""Writing a page, or data beside it, where a user wants it."""

from ladder import files
from ladder.errors import UserError
from ladder.store import disk


def write(path, text):
    """Write a text to `path` at once and make the folders above it; raises UserError if that is not possible."""
    data = text.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, data)
    except OSError as error:
        raise UserError(f"cannot write {files.shown(path)}: {error.strerror}") from error
    except ValueError as error:   # '.' and '/' have no last part
        raise UserError(f"cannot write {files.shown(path)}: it is not the name of a file") from error
