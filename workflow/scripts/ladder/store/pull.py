"""Artifacts of another results folder, on this machine or on another one by ssh, taken whole or not at all.

An artifact is taken if its manifest is whole and every file, once it is here, has the checksum that the manifest names. The
manifest is written last, as by a stage: whatever is interrupted or changed meanwhile leaves nothing that looks finished. What
is here already stays.
"""

import contextlib
import dataclasses
import errno
import pathlib
import shlex
import shutil
import subprocess
import tarfile
import tempfile

from ladder.errors import UserError
from ladder.files import shown
from ladder.machine import processes
from ladder.progress import log, size
from ladder.store import artifacts, disk, manifests

ROOM = 100 << 20   # bytes of the disk that stay free
FULL = errno.ENOSPC, errno.EDQUOT, errno.EROFS   # of a disk that is written to


@dataclasses.dataclass
class Pulled:
    """What a pull did: artifacts taken, "stage/version"; those that were here; those left, with the reason."""

    taken: list = dataclasses.field(default_factory=list)
    here: list = dataclasses.field(default_factory=list)
    left: dict = dataclasses.field(default_factory=dict)


def pull(source, results, stages):
    """Take what `results` lacks of the artifacts of these stages from `source`: a folder, or HOST:FOLDER by ssh.

    The folder is a results folder or that of a project. Raises UserError where the source cannot be read.
    """
    results = pathlib.Path(results)
    if is_remote(source):
        with _staging(results) as staging:
            return _taken(_fetched(source, results, stages, staging), results, stages)
    folder = pathlib.Path(source).expanduser()
    if not folder.is_dir():
        raise UserError(f"from: there is no folder {shown(folder)} (seen from {shown(pathlib.Path.cwd())}); name a results "
                        "folder, or HOST:FOLDER for one of another machine")
    return _taken(_results_of(folder), results, stages)


def is_remote(source):
    """Whether `source` is HOST:FOLDER."""
    host, colon, _ = source.partition(":")
    return bool(colon) and "/" not in host


@contextlib.contextmanager
def _staging(results):
    """A folder in `results`, removed at the end; by its name the next command removes that of a process that was killed."""
    folder = _made(results / f".pull.{processes.owner()}.tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _results_of(folder):
    return folder / "results" if (folder / "results").is_dir() else folder


def _taken(source, results, stages):
    """Take the artifacts of a results folder of this machine, parents before children."""
    found = Pulled()
    for stage in stages:
        for folder in sorted((source / stage).glob("*")):
            if manifests.VERSION.fullmatch(folder.name) and folder.name[0] == stage[0]:
                _take(folder, results / stage / folder.name, f"{stage}/{folder.name}", found)
    return found


def _take(folder, target, name, found):
    if manifests.read_if_whole(target):
        found.here.append(name)
        return
    try:
        manifest = manifests.read(folder)
        if manifest is None:
            found.left[name] = "unfinished there"
            return
        _check_names(folder, manifest, name)
        _copy(folder, target, manifest)
    except manifests.Damaged as damage:
        found.left[name] = f"damaged there, {damage.fault}"
    except OSError as error:
        if error.errno in FULL or pathlib.Path(error.filename or "").is_relative_to(target):
            raise UserError(f"from: {target} cannot be written: {error.strerror}; what is here stays") from error
        found.left[name] = f"cannot be read there ({error.strerror})"
    else:
        found.taken.append(name)


def _check_names(folder, manifest, name):
    """Raise Damaged for a manifest that is not that of its folder, or that names a file outside of it."""
    if f"{manifest['spec']['stage']}/{manifest['version']}" != name:
        raise manifests.Damaged(folder / manifests.MANIFEST, "it is the manifest of another artifact")
    for file in manifest["files"]:
        if pathlib.PurePath(file).name != file or file.startswith("."):
            raise manifests.Damaged(folder / manifests.MANIFEST, "it names a file outside of its folder")


def _copy(folder, target, manifest):
    """Copy the files under the artifact's lock, check what arrived, and write the manifest last."""
    needed, free = sum(facts["bytes"] for facts in manifest["files"].values()), shutil.disk_usage(_made(target)).free
    if needed > free - ROOM:
        raise UserError(f"from: {target} has {size(needed)}, but only {size(free)} are free; what is here stays")
    with artifacts.locked(target / artifacts.LOCK, f"another process is making {target}"):
        if manifests.read_if_whole(target):
            return
        for name, facts in manifest["files"].items():
            with disk.replacing(target / name) as temporary:
                shutil.copyfile(folder / name, temporary, follow_symlinks=False)
                manifests.check(temporary.parent, temporary.name, {temporary.name: facts})   # and sets its time
        artifacts.publish(target, manifest)


# Another machine.

def _fetched(source, results, stages, staging):
    """A results folder in `staging` with the artifacts of HOST:FOLDER that `results` lacks."""
    host, _, folder = source.partition(":")
    if not host or host.startswith("-") or not folder:
        raise UserError(f"from: {shown(source)} is not HOST:FOLDER, such as me@server:kernel-ladder")
    below = f"cd {_quoted(folder)} && {{ [ ! -d results ] || cd results; }}"
    _untar(host, f"{below} && find . -maxdepth 3 -name {manifests.MANIFEST} | tar -cf - -T -", staging)
    wanted = [path.parent.relative_to(staging) for stage in stages for path in sorted(staging.glob(f"{stage}/*/"
              f"{manifests.MANIFEST}")) if not manifests.read_if_whole(results / path.parent.relative_to(staging))]
    if wanted:
        log.info("%s: %d artifacts to take", host, len(wanted))
        names = " ".join(shlex.quote(f"./{one.as_posix()}") for one in wanted)
        _untar(host, f"{below} && tar -cf - --exclude='.*.tmp' {names}", staging)
    return staging


def _quoted(folder):
    """A folder for a shell; of the home folder, as ~ or without a leading slash, as ssh begins there."""
    return shlex.quote(folder.removeprefix("~/") or ".") if folder != "~" else "."


def _untar(host, command, staging):
    """Unpack below `staging` what a command on another machine writes as tar; nothing of it leaves that folder."""
    with tempfile.TemporaryFile() as errors:   # a pipe that nobody reads meanwhile would stop a program that says much
        process, fault = subprocess.Popen(["ssh", "--", host, command], stdout=subprocess.PIPE, stderr=errors), ""
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(staging, filter="data")
        except (tarfile.TarError, OSError) as error:
            fault = str(error)
        process.stdout.close()
        status = process.wait()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip().splitlines()
    if status or fault:
        raise UserError(f"from: {host}: {said[-1] if said else fault or 'ssh failed'}")
