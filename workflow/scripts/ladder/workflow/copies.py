"""The copies of an artifact's files in results/. Standard library only.

They have the same bytes, except that the links of a page lead from results/, two folders above that
of the artifact.
"""

import filecmp
import os
import pathlib
import shutil

from ladder.store import disk

BELOW = b'href="../../'
LINKED = (".zip", ".parquet")  # may have gigabytes
OTHERS = ("report.html", "predictions.html", "network.html", "parity.html", "model.zip")


def published(path: str | pathlib.Path, folder: str | pathlib.Path = "results") -> bytes:
    """The bytes that the copy of an artifact's file has in a folder."""
    path = pathlib.Path(path)
    content, there = path.read_bytes(), os.path.relpath(path.parents[2], folder)
    here = b'href="' if there == "." else f'href="{there}/'.encode()
    return content.replace(BELOW, here) if path.suffix == ".html" else content


def publish(folder: str | pathlib.Path, copy: str | pathlib.Path) -> None:
    """Write `copy` from the file of its name in an artifact's folder; one that is LINKED is a
    link.
    """
    source = pathlib.Path(folder, pathlib.Path(copy).name)
    if source.suffix not in LINKED:
        disk.write_atomically(pathlib.Path(copy), published(source, os.path.dirname(copy)))
        return
    with disk.replacing(pathlib.Path(copy)) as temporary:
        try:
            os.link(source, temporary)
        except OSError:  # a disk without links
            shutil.copyfile(source, temporary)


def is_published(folder: str | pathlib.Path, copy: str | pathlib.Path) -> bool:
    """Whether `copy` is what `publish` would write; False where a file is missing or cannot be
    read.
    """
    try:
        source = pathlib.Path(folder, pathlib.Path(copy).name)
        if source.suffix in LINKED:
            return os.path.samefile(copy, source) or filecmp.cmp(copy, source, shallow=False)
        return pathlib.Path(copy).read_bytes() == published(source, os.path.dirname(copy))
    except OSError:
        return False


def is_runs_page_older(results: str | pathlib.Path) -> bool:
    """Whether runs.html of the folder `results` is missing, is older than a report or a training
    there, or links to pages that are not there, or not to those that are.
    """
    page = pathlib.Path(results, "runs.html")
    written, text = (page.stat().st_mtime, page.read_bytes()) if page.is_file() else (0, b"")
    folders = [
        entry
        for stage in ("report", "train")
        if os.path.isdir(pathlib.Path(results, stage))
        for entry in os.scandir(pathlib.Path(results, stage))
    ]
    return any(folder.stat().st_mtime > written for folder in folders) or any(
        pathlib.Path(results, name).exists() != (f'<a href="{name}">'.encode() in text)
        for name in OTHERS
    )
