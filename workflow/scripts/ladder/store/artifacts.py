"""Artifacts: folders of plain binaries with a manifest, written completely or not at all, verified
when read.

An artifact is a folder results/<stage>/<version>/ whose manifest names every file with its size and
sha256. Data is .npy, safetensors, JSON or raw bytes: reading it never runs code from it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ladder import __version__, progress
from ladder.errors import UserError
from ladder.machine import compiling, locks, runtime
from ladder.progress import log
from ladder.store import manifests
from ladder.store.disk import replacing, write_atomically
from ladder.store.manifests import COMPLETE, MANIFEST

LOCK = ".lock"
Tensors = dict[str, npt.NDArray[Any]]


class Artifact:
    """A finished artifact, opened for reading.

    Raises UserError if the folder holds no finished artifact, and on access to a file that differs
    from the manifest.
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder)
        manifest = manifests.read(self.folder)
        if manifest is None:
            raise UserError(
                f"{self.folder} holds no finished artifact; run the stage that makes it"
            )
        self.manifest = manifest
        self._checked: set[str] = set()

    @property
    def version(self) -> str:
        return self.folder.name

    @property
    def metrics(self) -> dict[str, Any]:
        return cast(dict[str, Any], self.manifest["metrics"])

    @property
    def failed(self) -> str:
        """Why its run failed, in one line (then there are no files); '' if it succeeded."""
        return str(self.manifest.get("failed", ""))

    def path(self, name: str) -> pathlib.Path:
        """Path of the file `name`, after its size and sha256 were verified against the manifest."""
        if name not in self._checked:
            manifests.check(self.folder, name, self.manifest["files"])
            self._checked.add(name)
        return self.folder / name

    def array(self, name: str) -> npt.NDArray[Any]:
        """The .npy file `name`, memory-mapped read-only."""
        return cast(npt.NDArray[Any], np.load(self.path(name), mmap_mode="r", allow_pickle=False))

    def tensors(self, name: str) -> Tensors:
        """The safetensors file `name` as a dict of arrays."""
        return load_tensors(self.path(name))

    def json(self, name: str) -> Any:
        return json.loads(self.path(name).read_text("utf-8"))


class ArtifactWriter:
    """An artifact being written. `metrics` (results) and `notes` (circumstances) go into its
    manifest.

    complete   another run has already made this artifact; nothing is left to do
    failed     why the run failed, if the failure is to be kept
    threads    the number of threads that the work may use
    libraries  package -> version of the libraries that compute
    """

    def __init__(self, folder: pathlib.Path, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.spec = spec
        self.complete = False
        self.failed = ""
        self.metrics: dict[str, Any] = {}
        self.notes: dict[str, Any] = {}
        self.threads = 1
        self.libraries: dict[str, str] = {}
        self.seconds = 0.0
        self.seconds_compiling = 0.0  # beside `seconds`
        self.seconds_before = 0.0  # spent on this artifact by interrupted runs
        self._files: dict[str, dict[str, Any]] = {}

    @contextlib.contextmanager
    def file(self, name: str, **facts: Any) -> Iterator[pathlib.Path]:
        """Context manager: a path to write to, renamed to `name` once it is complete and on the
        disk.

        facts: what the manifest says of the file beside its size and checksum.
        """
        with replacing(self.folder / name) as path:
            yield path
        self._files[name] = facts

    def write_bytes(self, name: str, data: bytes) -> None:
        with self.file(name) as path:
            path.write_bytes(data)

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, (json.dumps(value, indent=1) + "\n").encode())

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        with self.new_array(name, array.shape, array.dtype) as out:
            out[...] = array

    @contextlib.contextmanager
    def new_array(
        self, name: str, shape: Iterable[int], dtype: npt.DTypeLike
    ) -> Iterator[npt.NDArray[Any]]:
        """Context manager: a writable memory-mapped .npy file of this shape and dtype, to be filled
        piece by piece.
        """
        shape = tuple(int(n) for n in shape)
        with self.file(name, shape=list(shape), dtype=np.dtype(dtype).name) as path:
            out = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
            reserve(path)
            yield out
            out.flush()
            del out

    def write_tensors(self, name: str, tensors: Tensors) -> None:
        """A dict of arrays as safetensors."""
        with self.file(name) as path:
            save_tensors(path, tensors)

    def _manifest(self) -> dict[str, Any]:
        return {
            "version": self.folder.name,
            "program": __version__,
            "spec": self.spec,
            "files": {
                name: {**manifests.facts(self.folder / name), **facts}
                for name, facts in sorted(self._files.items())
            },
            "metrics": self.metrics,
            "notes": self.notes,
            "seconds": self.seconds_before + self.seconds,
            "seconds_compiling": self.seconds_compiling,
            "peak_memory_bytes": runtime.peak_memory_bytes(),
            "machine": runtime.machine(),
            "libraries": self.libraries,
            "threads": self.threads,
            "made": progress.utc(),
            **({"failed": self.failed} if self.failed else {}),
        }


@contextlib.contextmanager
def making(
    folder: str | pathlib.Path, spec: dict[str, Any], remake: bool = False
) -> Iterator[ArtifactWriter]:
    """Make the artifact `folder` under its lock; the manifest is written last, and only if the
    block raises nothing.

    If another process is making it, log that, wait, and take its result
    (`ArtifactWriter.complete`). With `remake`, the artifact is made again from its inputs alone,
    after everything in the folder, checkpoints included, was removed. A finished artifact keeps
    only the files of its manifest.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _remove_folders(folder)
    with locked(folder / LOCK, f"another process is making {folder}"):
        work = ArtifactWriter(folder, spec)
        if not remake and (manifest := _finished(folder, spec)):
            log.info("%s is there already, made by another run", folder)
            publish(folder, manifest)
            work.complete, work.failed = True, Artifact(folder).failed
            yield work
            return
        for stale in (MANIFEST, COMPLETE):
            (folder / stale).unlink(missing_ok=True)
        if remake:
            _remove_all_but(folder, {LOCK})
        started, compiled = time.monotonic(), compiling.seconds()
        yield work
        work.seconds_compiling = compiling.seconds() - compiled
        work.seconds = time.monotonic() - started - work.seconds_compiling
        publish(folder, work._manifest())


@contextlib.contextmanager
def locked(path: pathlib.Path, waiting: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, logging `waiting` if it has to wait. The lock ends
    with the process.
    """
    with open(path, "w", encoding="utf-8") as lock:
        if not locks.take(lock.fileno(), path, wait=False):
            log.info("%s; waiting for it to finish", waiting)
            locks.take(lock.fileno(), path)
        yield


def reserve(path: pathlib.Path) -> None:
    """Allocate the blocks of a sparse file now: a full disk raises OSError here, but sends a fatal
    signal in a mapped file.
    """
    with open(path, "rb+") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def unnamed_array(
    folder: pathlib.Path, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """A writable memory-mapped array whose file has no name and ends with the array."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        array = np.memmap(file, dtype, "w+", shape=shape)
        reserve(pathlib.Path(file.name))
    return array


def load_tensors(path: str | pathlib.Path) -> Tensors:
    """A safetensors file as a dict of arrays; raises UserError if it cannot be read as one."""
    import safetensors.numpy  # here: only these files need it

    try:
        return safetensors.numpy.load_file(path)
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}") from error


def save_tensors(
    path: str | pathlib.Path, tensors: Tensors, metadata: dict[str, str] | None = None
) -> None:
    """Write a dict of arrays, and a dict of texts as metadata, as safetensors; raises OSError if
    the disk is full.
    """
    import safetensors.numpy

    # To bytes first: the library reports a full disk as a format error when it writes to a file
    # itself.
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    pathlib.Path(path).write_bytes(safetensors.numpy.save(contiguous, metadata))


def _finished(folder: pathlib.Path, spec: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of the undamaged artifact of this spec that `folder` holds; None without one."""
    for name in (COMPLETE, MANIFEST):
        try:
            manifest = manifests.read(folder, [name])
            if manifest is None or manifest["spec"] != spec:
                continue
            for file in manifest["files"]:
                manifests.check(folder, file, manifest["files"])
        except manifests.Damaged as damage:
            log.info("%s", damage)
            continue
        return manifest
    return None


def _remove_all_but(folder: pathlib.Path, names: Collection[str]) -> None:
    """Remove the folder's other files: checkpoints and leftovers of interrupted writes."""
    for path in folder.iterdir():
        if path.name not in names and not path.is_dir():
            path.unlink()


def _remove_folders(folder: pathlib.Path) -> None:
    """Remove what stands in the way of an artifact's files: it has no folders of its own."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def publish(folder: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Write the manifest under its second name, and under its first one when nothing is left that
    it does not name.

    Snakemake takes an artifact with the first name for finished: its stage, which removes the rest,
    does not run again.
    """
    encoded = manifests.encoded(manifest)
    write_atomically(folder / COMPLETE, encoded)
    _remove_all_but(folder, {LOCK, COMPLETE, MANIFEST, *manifest["files"]})
    write_atomically(folder / MANIFEST, encoded)
