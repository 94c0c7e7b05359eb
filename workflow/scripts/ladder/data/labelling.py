"""What a person says of pictures by their names: a table of their labels (key `labels`), and a list
of those to leave out (key `leave_out`). Standard library; both are read as text and bounded.
"""

import csv
import io
import os
import pathlib

from ladder.errors import UserError, excerpt
from ladder.files import shown
from ladder.progress import size

AUTO, FOLDERS, NONE = "auto", "folders", "none"  # values of `labels` that are no file
MOST_BYTES = 100_000_000  # of such a file
HEADS = {"name": ("name", "file", "filename"), "label": ("label", "class")}


def is_table(labels: str) -> bool:
    return labels not in (AUTO, FOLDERS, NONE)


def table(path: str) -> dict[str, str]:
    """{name: label} of a CSV file with the columns name and label, in any order, nothing else; ''
    is no label.

    Raises UserError with one line where it is anything else, or names a picture twice.
    """
    where = f"config: labels: {shown(path)}"
    labels: dict[str, str] = {}
    try:
        rows = csv.reader(io.StringIO(_text(path, where), newline=""), strict=True)
        name, label = _columns(next(rows, []), where)
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            if len(row) != 2:
                raise UserError(
                    f"{where}: row {number} has {len(row):,} columns, not name and label"
                )
            if row[name] in labels:
                raise UserError(f"{where}: {excerpt(row[name])} is there twice (row {number})")
            labels[row[name]] = row[label]
    except csv.Error as error:
        raise UserError(f"{where} is no table in CSV: {error}") from error
    if not labels:
        raise UserError(
            f"{where} has no rows; write a line for each picture, its name and its label"
        )
    return labels


def _columns(heads, where):
    """The places of the columns name and label."""
    lower = [head.strip().lower() for head in heads[:3]]
    places = [
        next((place for place, head in enumerate(lower) if head in names), None)
        for names in HEADS.values()
    ]
    if len(heads) != 2 or None in places:
        raise UserError(
            f"{where} begins with {len(heads):,} columns ({excerpt(','.join(lower))}); its first line has "
            "to be name,label"
        )
    return places


def left_out(path: str) -> frozenset[str]:
    """The names in a file with one on each line; raises UserError if it cannot be read."""
    lines = _text(path, f"config: leave_out: {shown(path)}").split("\n")
    return frozenset(filter(None, (line.removesuffix("\r") for line in lines)))


def _text(path, where):
    file = pathlib.Path(os.path.expanduser(path))
    try:
        if not file.is_file():  # a pipe would be waited for
            raise UserError(f"{where} is no file (seen from {shown(pathlib.Path.cwd())})")
        if (count := file.stat().st_size) > MOST_BYTES:
            raise UserError(f"{where} has {size(count)}; {size(MOST_BYTES)} at most")
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is no text in UTF-8") from error
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from error
