"""Manifests: what a finished artifact says of itself, and whether that is still true. Standard
library only.

A manifest is JSON whose second line is its digest: the sha256 of the file without that line, as in

    grep -v '^ "digest"' manifest.json | sha256sum

Whoever reads a manifest reads it here, so a changed one is never used.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
from collections.abc import Iterable
from typing import Any, BinaryIO

from ladder.errors import UserError
from ladder.store import disk

MANIFEST = "manifest.json"
# The same bytes under a name that no rule declares: Snakemake deletes declared outputs before it
# runs a job, even if another process has finished the artifact in the meantime.
COMPLETE = ".complete.json"
VERSION = re.compile(r"[a-z][0-9a-f]{11}")
SHA256 = re.compile(r"[0-9a-f]{64}")
LARGEST = 1 << 26  # bytes; a file beyond them is no manifest and is not read into memory
HEAD = re.compile(rb'\{\n "digest": "([0-9a-f]{64})",\n')
NUMBER = (int, float)
# Key -> type of its value, or the keys of an object and their types.
SHAPE = {
    "digest": str,
    "version": str,
    "spec": {"stage": str, "params": dict, "sources": dict, "parents": dict},
    "files": dict,
    "metrics": dict,
    "notes": dict,
    "seconds": NUMBER,
    "peak_memory_bytes": int,
    "machine": dict,
    "libraries": dict,
    "threads": int,
    "made": str,
}
FILE = {"bytes": int, "sha256": str, "mtime_ns": int}
# bytes of a file, and nanoseconds of its time: beyond them no system call takes the number
MOST = 2**63
LONGEST = 200  # characters of a file's name


class Damaged(UserError):
    """A file of a finished artifact is not what was written.

    path: the file; fault: what is wrong with it; brief: both, for a page that names the artifact
    itself.
    """

    def __init__(self, path: pathlib.Path, fault: str | None) -> None:
        super().__init__(f"{path} is damaged ({fault}); the command that needs it makes it again")
        self.path, self.fault, self.brief = path, fault, f"{path.name}: {fault}"


def encoded(manifest: dict[str, Any]) -> bytes:
    """The bytes of a manifest file with this content, its digest included; an old digest is
    replaced.
    """
    rest = _text({key: value for key, value in manifest.items() if key != "digest"})
    return (
        b"{\n"
        + f' "digest": "{hashlib.sha256(rest).hexdigest()}",\n'.encode()
        + rest.removeprefix(b"{\n")
    )


def read(
    folder: str | pathlib.Path, names: Iterable[str] = (MANIFEST, COMPLETE)
) -> dict[str, Any] | None:
    """The manifest of a finished artifact, None without one; raises Damaged.

    For a moment it may exist under its second name only: another run that planned to make this
    artifact has removed its declared output and is about to find the artifact complete.
    """
    for name in names:
        path = pathlib.Path(folder, name)
        try:
            manifest = decoded(path)
        except FileNotFoundError:
            continue
        # a copy may have any other name
        if VERSION.fullmatch(path.parent.name) and manifest["version"] != path.parent.name:
            raise Damaged(path, f"it is the manifest of {manifest['version']}")
        return manifest
    return None


def decoded(path: pathlib.Path) -> dict[str, Any]:
    """The content of a manifest file, of any artifact; raises Damaged, and FileNotFoundError
    without one.
    """
    try:
        with open_plain(path) as file:
            data = file.read(LARGEST)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(path, error.strerror) from error
    head = HEAD.match(data)
    if head is None:
        raise Damaged(path, "it has no digest of itself")
    if hashlib.sha256(b"{\n" + data[head.end() :]).hexdigest() != head[1].decode():
        raise Damaged(path, "its digest is not that of its content")
    try:
        manifest: dict[str, Any] = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(path, "it is not JSON") from error
    if fault := _fault(manifest, SHAPE) or _fault_of_files(manifest["files"]):
        raise Damaged(path, fault)
    return manifest


def open_plain(path: pathlib.Path) -> BinaryIO:
    """A plain file, opened for reading; raises Damaged for a FIFO, which would be waited for, a
    device or a folder.
    """
    file = open(path, "rb", opener=lambda name, mode: os.open(name, mode | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Damaged(path, "it is not a file")
    return file


def read_if_whole(folder: str | pathlib.Path) -> dict[str, Any] | None:
    """The manifest of a finished artifact, None if there is none or it is damaged."""
    with contextlib.suppress(Damaged):
        return read(folder)
    return None


def verify(folder: str | pathlib.Path, thoroughly: bool = False) -> None:
    """Check that a finished artifact is whole; a folder without a manifest passes. Raises Damaged
    at the first fault.

    A file of the recorded size and time counts as whole, unless `thoroughly`. One of another time
    is read and, if it is whole, gets its time back. A second copy of the manifest that is missing
    or damaged is written anew.
    """
    folder = pathlib.Path(folder)
    manifest = read(folder)
    if manifest is None:
        return
    if not (folder / MANIFEST).exists():
        raise Damaged(folder / MANIFEST, "it is missing")
    for name in manifest["files"]:
        check(folder, name, manifest["files"], thoroughly)
    _mend_second_copy(folder)


def has_whole_files(folder: str | pathlib.Path, manifest: dict[str, Any]) -> bool:
    """Whether the files that a manifest names have their recorded sizes and, where their times
    differ, their content.
    """
    try:
        for name in manifest["files"]:
            check(pathlib.Path(folder), name, manifest["files"], thoroughly=False)
    except Damaged:
        return False
    return True


def check(
    folder: pathlib.Path, name: str, files: dict[str, dict[str, Any]], thoroughly: bool = True
) -> None:
    """Check a file of an artifact against `files` of its manifest; raises Damaged."""
    path, facts = folder / name, files.get(name)
    if facts is None:
        raise Damaged(path, "its manifest does not name it")
    try:
        status = path.lstat()
        if not path.is_file():
            raise Damaged(path, "it is not a file")
        if status.st_size != facts["bytes"]:
            raise Damaged(path, f"it has {status.st_size} bytes, not {facts['bytes']}")
        timely = status.st_mtime_ns == facts["mtime_ns"]
        if timely and not thoroughly:
            return
        whole = disk.sha256(path) == facts["sha256"]
    except FileNotFoundError:
        raise Damaged(path, "it is missing") from None
    except OSError as error:
        raise Damaged(path, error.strerror) from error
    # The time tells the next check which files to read, so a damaged file must have another one
    # than the manifest records.
    if whole != timely:
        times: dict[str, Any] = {"ns": (status.st_atime_ns, facts["mtime_ns"])} if whole else {}
        with contextlib.suppress(OSError):  # the results of somebody else
            os.utime(path, **times)
    if not whole:
        raise Damaged(path, "its checksum is not its manifest's")


def facts(path: pathlib.Path) -> dict[str, Any]:
    """What a manifest says of a file that is complete."""
    return {
        "bytes": path.stat().st_size,
        "sha256": disk.sha256(path),
        "mtime_ns": path.stat().st_mtime_ns,
    }


def _text(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _fault(value: Any, shape: type[Any] | tuple[type[Any], ...] | dict[str, Any]) -> str | None:
    """What keeps a value from having a shape, in words; None if nothing does."""
    if not isinstance(shape, dict):
        fits = isinstance(value, shape) and not isinstance(value, bool)
        return None if fits else "a value has the wrong type"
    if not isinstance(value, dict):
        return "a value has the wrong type"
    missing = [key for key in shape if key not in value]
    if missing:
        return f"it has no {missing[0]}"
    return next(
        (f"{key}: {fault}" for key, inner in shape.items() if (fault := _fault(value[key], inner))),
        None,
    )


def _fault_of_files(files: dict[str, Any]) -> str | None:
    """What keeps `files` of a manifest from being plain files of its folder, in words; None if
    nothing does.
    """
    if fault := _fault(files, dict.fromkeys(files, FILE)):
        return fault
    for name, facts in files.items():
        plain = (
            name.isprintable() and name[:1] not in ("", ".") and pathlib.PurePath(name).name == name
        )
        if not plain or len(name) > LONGEST:
            return f"it names a file outside of its folder, {name[:LONGEST]!a}"
        if not (
            0 <= facts["bytes"] < MOST
            and abs(facts["mtime_ns"]) < MOST
            and SHA256.fullmatch(facts["sha256"])
        ):
            return f"{name}: its size, time or checksum cannot be"
    return None


def _mend_second_copy(folder: pathlib.Path) -> None:
    written, second = (folder / MANIFEST).read_bytes(), folder / COMPLETE
    try:
        if second.stat().st_size == len(written) and second.read_bytes() == written:
            return
    except OSError:
        pass
    with contextlib.suppress(OSError):  # the results of somebody else
        if second.is_dir():
            shutil.rmtree(second)
        disk.write_atomically(second, written)
        shutil.copystat(folder / MANIFEST, second)  # its time is that of the making
