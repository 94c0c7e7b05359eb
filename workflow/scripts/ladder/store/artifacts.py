"""Artifacts: folders of plain binaries with a manifest, written completely or not at all, verified when read.

An artifact is a folder results/<stage>/<version>/ whose manifest.json names every file with its size and sha256. Data is
.npy, safetensors, JSON or raw bytes: reading it never runs code from it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import time

import numpy as np
import safetensors
import safetensors.numpy

from ladder import progress
from ladder.errors import UserError
from ladder.machine import processes, runtime
from ladder.progress import log

MANIFEST = "manifest.json"
# The same bytes under a name that no rule declares: Snakemake deletes declared outputs before it runs a job, even if another
# process has finished the artifact in the meantime.
COMPLETE = ".complete.json"
LOCK = ".lock"


class Artifact:
    """A finished artifact, opened for reading.

    Raises UserError if the folder holds no finished artifact, and on access to a file that differs from the manifest.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = _read_manifest(self.folder)
        if self.manifest is None:
            raise UserError(f"{self.folder} holds no finished artifact; run the stage that makes it")
        self._checked = set()

    @property
    def version(self):
        return self.folder.name

    @property
    def metrics(self):
        return self.manifest["metrics"]

    @property
    def failed(self):
        """Why its run failed, in one line (then there are no files); '' if it succeeded."""
        return self.manifest.get("failed", "")

    def path(self, name):
        """Path of the file `name`, after its size and sha256 were verified against the manifest."""
        if name not in self._checked:
            _check(self.folder, name, self.manifest["files"])
            self._checked.add(name)
        return self.folder / name

    def array(self, name):
        """The .npy file `name`, memory-mapped read-only."""
        return np.load(self.path(name), mmap_mode="r", allow_pickle=False)

    def tensors(self, name):
        """The safetensors file `name` as a dict of arrays."""
        return load_tensors(self.path(name))

    def json(self, name):
        return json.loads(self.path(name).read_text())


class Making:
    """An artifact being written. `metrics` (results) and `notes` (circumstances) go into its manifest.

    complete: another run has already made this artifact; nothing is left to do.
    failed: why the run failed, if the failure is to be kept.
    threads: the number of threads that the work may use.
    libraries: package -> version of the libraries that compute.
    """

    def __init__(self, folder, spec):
        self.folder = folder
        self.spec = spec
        self.complete = False
        self.failed = ""
        self.metrics = {}
        self.notes = {}
        self.threads = 1
        self.libraries = {}
        self.seconds = 0.0
        self.seconds_before = 0.0   # spent on this artifact by interrupted runs
        self._files = {}

    def file(self, name):
        """Context manager: a path to write to, renamed to `name` once it is complete and on the disk."""
        return self._written(name)

    def write_bytes(self, name, data):
        with self.file(name) as path:
            path.write_bytes(data)

    def write_json(self, name, value):
        self.write_bytes(name, (json.dumps(value, indent=1) + "\n").encode())

    def write_array(self, name, array):
        with self.new_array(name, array.shape, array.dtype) as out:
            out[...] = array

    @contextlib.contextmanager
    def new_array(self, name, shape, dtype):
        """Context manager: a writable memory-mapped .npy file of this shape and dtype, to be filled piece by piece."""
        shape = tuple(int(n) for n in shape)
        with self._written(name, shape=list(shape), dtype=np.dtype(dtype).name) as path:
            out = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
            reserve(path)
            yield out
            out.flush()
            del out

    def write_tensors(self, name, tensors):
        """A dict of arrays as safetensors."""
        with self.file(name) as path:
            save_tensors(path, tensors)

    @contextlib.contextmanager
    def _written(self, name, **facts):
        with replacing(self.folder / name) as path:
            yield path
        self._files[name] = facts

    def _manifest(self):
        return {
            "spec": self.spec,
            "files": {name: {"bytes": (self.folder / name).stat().st_size, "sha256": sha256(self.folder / name), **facts}
                      for name, facts in sorted(self._files.items())},
            "metrics": self.metrics,
            "notes": self.notes,
            "seconds": self.seconds_before + self.seconds,
            "peak_memory_bytes": runtime.peak_memory_bytes(),
            "machine": runtime.machine(),
            "libraries": self.libraries,
            "threads": self.threads,
            "made": progress.utc(),
            **({"failed": self.failed} if self.failed else {}),
        }


@contextlib.contextmanager
def making(folder, spec, remake=False):
    """Make the artifact `folder` under its lock; the manifest is written last, and only if the block raises nothing.

    If another process is making it, log that, wait, and take its result (`Making.complete`). With `remake`, the artifact
    is made again from its inputs alone, after everything in the folder, checkpoints included, was removed. A finished artifact
    keeps only the files of its manifest.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, f"another process is making {folder}"):
        work = Making(folder, spec)
        if not remake and _finished(folder, spec):
            log.info("%s is there already, made by another run", folder)
            _publish(folder)
            work.complete, work.failed = True, Artifact(folder).failed
            yield work
            return
        for stale in (MANIFEST, COMPLETE):
            (folder / stale).unlink(missing_ok=True)
        if remake:
            _remove_all_but(folder, {LOCK})
        started = time.monotonic()
        yield work
        work.seconds = time.monotonic() - started
        manifest = work._manifest()
        write_atomically(folder / COMPLETE, (json.dumps(manifest, indent=1) + "\n").encode())
        _publish(folder)


@contextlib.contextmanager
def locked(path, waiting):
    """Hold an exclusive lock on the file `path`, logging `waiting` if it has to wait. The lock ends with the process."""
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("%s; waiting for it to finish", waiting)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path; if the block raises nothing, it is flushed and renamed to `path`, else it is removed."""
    temporary = path.with_name(f".{path.name}.{processes.owner()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path, data):
    with replacing(pathlib.Path(path)) as temporary:
        temporary.write_bytes(data)


def reserve(path):
    """Allocate the blocks of a sparse file now: a full disk raises OSError here, but sends a fatal signal in a mapped file."""
    with open(path, "rb+") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def sha256(path):
    """Hex sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_tensors(path):
    """A safetensors file as a dict of arrays; raises UserError if it cannot be read as one."""
    try:
        return safetensors.numpy.load_file(path)
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}") from error


def save_tensors(path, tensors, metadata=None):
    """Write a dict of arrays, and a dict of texts as metadata, as safetensors; raises OSError if the disk is full."""
    # To bytes first: the library reports a full disk as a format error when it writes to a file itself.
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    pathlib.Path(path).write_bytes(safetensors.numpy.save(contiguous, metadata))


def _read_manifest(folder):
    """The manifest of a finished artifact, None without one.

    For a moment it may exist under its other name only: another run that planned to make this artifact has removed its
    declared output and is about to find the artifact complete.
    """
    for name in (MANIFEST, COMPLETE):
        try:
            return json.loads((folder / name).read_text())
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise UserError(f"{folder / name} is damaged; remove {folder} and run again") from error
    return None


def _finished(folder, spec):
    """True if `folder` holds a complete, undamaged artifact of this spec."""
    try:
        manifest = json.loads((folder / COMPLETE).read_text())
        if manifest["spec"] != spec:
            return False
        for name in manifest["files"]:
            _check(folder, name, manifest["files"])
    except (FileNotFoundError, ValueError, KeyError, UserError):
        return False
    return True


def _remove_all_but(folder, kept):
    """Remove the folder's other files: checkpoints and leftovers of interrupted writes."""
    for path in folder.iterdir():
        if path.name not in kept and not path.is_dir():
            path.unlink()


def _publish(folder):
    """Remove what the manifest does not name, then give it its declared name: no stage runs after that, so nothing is left."""
    manifest = (folder / COMPLETE).read_bytes()
    _remove_all_but(folder, {LOCK, COMPLETE, MANIFEST, *json.loads(manifest)["files"]})
    write_atomically(folder / MANIFEST, manifest)


def _check(folder, name, files):
    path = folder / name
    damage = f"remove {folder} and run again: it will be made anew"
    if name not in files:
        raise UserError(f"{folder} has no file {name}; {damage}")
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {damage}") from None
    if found != files[name]["bytes"]:
        raise UserError(f"{path} is damaged ({found} bytes, not {files[name]['bytes']}); {damage}")
    if sha256(path) != files[name]["sha256"]:
        raise UserError(f"{path} is damaged (its checksum is not its manifest's); {damage}")
