"""Artifacts of another results folder, on this machine or on another one by ssh, taken whole or not
at all.

The other side is not trusted. Only an artifact's own files are taken: those that its manifest
names, into the folder of its version. The manifest has to be whole, its specification has to hash
to its version, and each file, once it is here, has to have the size and the checksum that the
manifest names. The manifest is written last, as by a stage: whatever is interrupted or changed
meanwhile leaves nothing that looks finished. What is here already stays.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import shlex
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Iterator
from typing import IO, Any

from ladder.errors import UserError
from ladder.files import shown
from ladder.machine import processes
from ladder.progress import size
from ladder.store import artifacts, disk, manifests, remote, tars, versions

ROOM = 100 << 20  # bytes of the disk that stay free
FULL = errno.ENOSPC, errno.EDQUOT, errno.EROFS  # of a disk that is written to
PIECE = 1 << 20  # bytes
SAY_EVERY = 5  # seconds between lines of progress
LISTED = f"find . -maxdepth 3 -name {manifests.MANIFEST} | tar -cf - -T -"
MOST_LISTED = 1 << 30  # bytes of all manifests of another machine
MOST_ARTIFACTS = 100_000
MOST_REFUSED = 1000  # members of a tar that nobody asked for
HEADERS = 32 << 10  # bytes of a member of a tar beside its content
Say = Callable[[str], None]
Bring = Callable[[pathlib.Path, pathlib.Path, int], None]


@dataclasses.dataclass
class Pulled:
    """What a pull did.

    taken, here: artifacts, "stage/version"; left: those that were left there -> the reason;
    refused: what else another machine sent -> the reason; fault: why the pull ended early, '' if it
    did not.
    """

    taken: list[str] = dataclasses.field(default_factory=list)
    here: list[str] = dataclasses.field(default_factory=list)
    left: dict[str, str] = dataclasses.field(default_factory=dict)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    fault: str = ""


def pull(source: str, results: str | pathlib.Path, stages: Collection[str], say: Say) -> Pulled:
    """Take what `results` lacks of the artifacts of these stages from `source`: a folder, or
    HOST:FOLDER by ssh.

    The folder is a results folder or that of a project. say: gets lines of progress. Raises
    UserError where the source cannot be read, or there is no room for all of it.
    """
    results, pulled = pathlib.Path(results), Pulled()
    if is_remote(source):
        _pull_by_ssh(source, results, stages, pulled, say)
    else:
        folder = _folder(source)
        wanted = _wanted(folder, results, stages, pulled)
        _check_room(results, wanted)
        progress = _Progress(wanted, source, say)
        _take(
            wanted,
            folder,
            results,
            pulled,
            lambda there, temporary, count: _copy(there, temporary, count, progress),
        )
    return pulled


def is_remote(source: str) -> bool:
    """Whether `source` is HOST:FOLDER."""
    host, colon, _ = source.partition(":")
    return bool(colon) and "/" not in host


def _folder(source: str) -> pathlib.Path:
    folder = pathlib.Path(os.path.expanduser(source))  # pathlib's raises for an unknown ~user
    if not folder.is_dir():
        raise UserError(
            f"from: there is no folder {shown(folder)} (seen from {shown(pathlib.Path.cwd())}); name a results "
            "folder, or HOST:FOLDER for one of another machine"
        )
    return folder / "results" if (folder / "results").is_dir() else folder


def _wanted(
    folder: pathlib.Path, results: pathlib.Path, stages: Collection[str], pulled: Pulled
) -> dict[str, dict[str, Any]]:
    """ "stage/version" -> manifest of the artifacts of a results folder that can be taken, parents
    before children.
    """
    wanted: dict[str, dict[str, Any]] = {}
    for stage in stages:
        for there in sorted((folder / stage).glob("*")):
            if not manifests.VERSION.fullmatch(there.name) or there.name[0] != stage[0]:
                continue
            name = f"{stage}/{there.name}"
            if manifests.read_if_whole(results / name):
                pulled.here.append(name)
                continue
            try:
                wanted[name] = _manifest(there, name)
            except manifests.Damaged as damage:
                pulled.left[name] = f"damaged there, {damage.brief}"
            except FileNotFoundError:
                pulled.left[name] = "unfinished there"
    return wanted


def _manifest(folder: pathlib.Path, name: str) -> dict[str, Any]:
    """The manifest of the artifact `name`; raises Damaged where it is another one's, and
    FileNotFoundError without one.
    """
    path = folder / manifests.MANIFEST
    manifest = manifests.decoded(path)
    if f"{manifest['spec']['stage']}/{manifest['version']}" != name:
        raise manifests.Damaged(path, "it is the manifest of another artifact")
    try:
        hashed = versions.version(manifest["spec"])
    # a number that is none, half a character, or nested too deep
    except (ValueError, RecursionError):
        hashed = ""
    if hashed != manifest["version"]:
        raise manifests.Damaged(path, "its specification is not that of its version")
    return manifest


def _check_room(results: pathlib.Path, wanted: dict[str, dict[str, Any]]) -> None:
    needed, free = _bytes(wanted), shutil.disk_usage(_made(results)).free
    if needed > free - ROOM:
        raise UserError(
            f"from: {size(needed)} to take, but only {size(free)} are free for {results}; what is here stays"
        )


def _bytes(wanted: dict[str, dict[str, Any]]) -> int:
    return sum(
        facts["bytes"] for manifest in wanted.values() for facts in manifest["files"].values()
    )


def _made(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _take(
    wanted: dict[str, dict[str, Any]],
    folder: pathlib.Path,
    results: pathlib.Path,
    pulled: Pulled,
    bring: Bring,
) -> None:
    """Take artifacts of a results folder of this machine; bring(source, temporary, bytes): makes a
    file of one there.
    """
    for name, manifest in wanted.items():
        target = results / name
        try:
            _take_one(folder / name, target, manifest, bring)
            pulled.taken.append(name)
        except manifests.Damaged as damage:
            pulled.left[name] = f"damaged there, {damage.brief}"
        except OSError as error:
            if error.errno in FULL or pathlib.Path(error.filename or "").is_relative_to(target):
                raise UserError(
                    f"from: {target} cannot be written: {error.strerror}; what is here stays"
                ) from error
            pulled.left[name] = f"cannot be read there ({error.strerror})"


def _take_one(
    folder: pathlib.Path, target: pathlib.Path, manifest: dict[str, Any], bring: Bring
) -> None:
    """Bring the files under the artifact's lock, check what arrived, and write the manifest
    last.
    """
    _made(target)
    with artifacts.locked(target / artifacts.LOCK, f"another process is making {target}"):
        if manifests.read_if_whole(target):
            return
        for name, facts in manifest["files"].items():
            with disk.replacing(target / name) as temporary:
                bring(folder / name, temporary, facts["bytes"])
                _check(temporary, folder / name, facts)
        artifacts.publish(target, manifest)


def _check(temporary: pathlib.Path, source: pathlib.Path, facts: dict[str, Any]) -> None:
    """Check what arrived from `source`, and set its time; raises Damaged."""
    try:
        manifests.check(temporary.parent, temporary.name, {temporary.name: facts})
    except manifests.Damaged as damage:
        raise manifests.Damaged(source, damage.fault) from None


def _copy(source: pathlib.Path, target: pathlib.Path, count: int, progress: "_Progress") -> None:
    """Copy a plain file of `count` bytes, which may change meanwhile."""
    if source.is_symlink():
        raise manifests.Damaged(source, "it is a link")
    with manifests.open_plain(source) as file, open(target, "xb") as out:
        if (held := os.fstat(file.fileno()).st_size) != count:
            raise manifests.Damaged(source, f"it has {held} bytes, not {count}")
        while count and (data := file.read(min(count, PIECE))):
            out.write(data)
            count -= len(data)
            progress.add(len(data))


class _Progress:
    """A line every SAY_EVERY seconds that says how much of the artifacts has come."""

    def __init__(self, wanted: dict[str, dict[str, Any]], source: str, say: Say) -> None:
        self._source, self._say, self._all, self._here = source, say, _bytes(wanted), 0
        self._said = time.monotonic()

    def add(self, count: int) -> None:
        self._here += count
        if time.monotonic() - self._said > SAY_EVERY:
            self._say(f"{size(self._here)} of {size(self._all)} from {self._source}")
            self._said = time.monotonic()


# Another machine: its manifests, then the files of the artifacts that are not here, come into a
# folder of their own.


def _pull_by_ssh(
    source: str, results: pathlib.Path, stages: Collection[str], pulled: Pulled, say: Say
) -> None:
    host, _, folder = source.partition(":")
    if not host or host.startswith("-") or not folder:
        raise UserError(
            f"from: {shown(source)} is not HOST:FOLDER, such as me@server:kernel-ladder"
        )
    below = f"cd {_quoted(folder)} && {{ [ ! -d results ] || cd results; }}"
    with _staging(results) as staging:
        _fetch_manifests(host, f"{below} && {LISTED}", stages, staging, pulled)
        wanted = _wanted(staging, results, stages, pulled)
        _check_room(results, wanted)
        missing = {
            f"{name}/{file}": facts["bytes"]
            for name, manifest in wanted.items()
            for file, facts in manifest["files"].items()
        }
        if missing:
            try:
                _fetch(
                    host,
                    f"{below} && tar -cf - -T -",
                    missing,
                    staging,
                    pulled,
                    _Progress(wanted, host, say),
                )
            except UserError as error:
                pulled.fault = str(error)
        for name in {path.rpartition("/")[0] for path in missing}:
            del wanted[name]
            pulled.left[name] = "it did not come whole"
        _take(
            wanted,
            staging,
            results,
            pulled,
            lambda staged, temporary, _: os.rename(staged, temporary),
        )


@contextlib.contextmanager
def _staging(results: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder in `results`, removed at the end; by its name the next command removes that of a
    process that was killed.
    """
    folder = results / f".pull.{processes.owner()}.tmp"
    shutil.rmtree(folder, ignore_errors=True)  # of a process that had this number before
    try:
        yield _made(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _quoted(folder: str) -> str:
    """A folder for a shell; of the home folder, as ~ or without a leading slash, as ssh begins
    there.
    """
    return shlex.quote(folder.removeprefix("~/") or ".") if folder != "~" else "."


def _fetch_manifests(
    host: str, command: str, stages: Collection[str], staging: pathlib.Path, pulled: Pulled
) -> None:
    """Write the manifests of another machine to STAGE/VERSION/manifest.json below `staging`."""
    with remote.members(host, command, MOST_LISTED) as members:
        for count, (member, file) in enumerate(members, 1):
            if count > MOST_ARTIFACTS:
                raise UserError(f"from: {host} lists more than {MOST_ARTIFACTS:,} artifacts")
            stage, _, rest = _name(member).partition("/")
            version, _, name = rest.partition("/")
            path = staging / stage / version / manifests.MANIFEST
            if not (
                file
                and stage in stages
                and manifests.VERSION.fullmatch(version)
                and name == manifests.MANIFEST
            ):
                _refuse(member, "no manifest of a stage's artifact", pulled)
            elif member.size > manifests.LARGEST:
                _refuse(member, f"a manifest of {size(member.size)}", pulled)
            elif path.exists():
                _refuse(member, "it came before", pulled)
            else:
                _made(path.parent)
                _save(file, path)


def _fetch(
    host: str,
    command: str,
    missing: dict[str, int],
    staging: pathlib.Path,
    pulled: Pulled,
    progress: _Progress,
) -> None:
    """Write files of another machine below `staging`; missing: path -> bytes, from which those that
    came are removed.
    """
    most = sum(missing.values()) + HEADERS * (len(missing) + MOST_REFUSED)
    with remote.members(host, command, most, [f"./{path}" for path in missing]) as members:
        for member, file in members:
            path = _name(member)
            if path not in missing:
                _refuse(member, "nobody asked for it, or it came before", pulled)
            elif not file:
                _refuse(member, "", pulled)
            elif member.size != missing[path]:
                _refuse(member, f"it has {member.size} bytes, not {missing[path]}", pulled)
            else:
                _save(file, staging / path)
                del missing[path]
                progress.add(member.size)


def _name(member: tarfile.TarInfo) -> str:
    return member.name.removeprefix("./")


def _refuse(member: tarfile.TarInfo, reason: str, pulled: Pulled) -> None:
    """Pass over a member; raises UserError where there are too many."""
    pulled.refused[shown(_name(member))] = (
        f"it is {kind}" if (kind := tars.kind(member)) else reason
    )
    if len(pulled.refused) > MOST_REFUSED:
        raise UserError(f"from: more than {MOST_REFUSED:,} files were sent that nobody asked for")


def _save(file: IO[bytes], path: pathlib.Path) -> None:
    try:
        with open(path, "xb") as target:
            shutil.copyfileobj(file, target, PIECE)
    except OSError as error:
        raise UserError(
            f"from: {path} cannot be written: {error.strerror}; what is here stays"
        ) from error
