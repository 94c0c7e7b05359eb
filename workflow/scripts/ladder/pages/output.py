"""Writing a page, or data beside it, where a user wants it."""

import csv
import io

from ladder import files
from ladder.errors import UserError
from ladder.store import disk


def csv_text(heads, lines):
    """CSV with a head; lines: dicts, whose missing values are empty."""
    file = io.StringIO()
    table = csv.DictWriter(file, heads, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    return file.getvalue()


def write(path, text):
    """Write a text to `path` at once and make the folders above it; raises UserError if that is not
    possible.
    """
    data = text.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, data)
    except OSError as error:
        raise UserError(f"cannot write {files.shown(path)}: {error.strerror}") from error
    except ValueError as error:  # '.' and '/' have no last part
        raise UserError(
            f"cannot write {files.shown(path)}: it is not the name of a file"
        ) from error
