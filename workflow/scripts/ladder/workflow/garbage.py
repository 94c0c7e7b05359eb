"""Garbage collection: finding and removing artifacts that no configuration reaches.

Only folders results/<stage>/<version> of stages can be garbage, those of earlier releases too;
symbolic links are neither followed nor removed.
"""

import contextlib
import dataclasses
import difflib
import fnmatch
import os
import pathlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ladder import files, progress
from ladder.errors import MOST_SHOWN, UserError, excerpt, one_line
from ladder.machine import locks
from ladder.pages import templates as pages
from ladder.store import artifacts, lineage
from ladder.workflow.stages import STAGES

DAY = 24 * 3600
# in the order of the work, behind them those that are no more
ORDER = (*STAGES, "compare", "multipliers", "gradients")
CONFIRM = "the same command with confirm=yes in its --config"
SHOWN = 10  # names in a line
# Parameters that describe an artifact, most distinctive first.
TELLING = (
    "dataset",
    "train_limit",
    "normalization",
    "network",
    "encoder",
    "variant",
    "batch_size",
    "epochs",
    "steps",
    "optimizer",
    "learning_rate",
    "features_layer",
    "kernel",
    "C",
    "seed",
    "name",
)
USUAL = ("all", "network")  # defaults, not shown
ASIDE = re.compile(r"\.([a-z][0-9a-f]{11})\.\d+\.removed")  # folder left by an interrupted removal


@dataclasses.dataclass(frozen=True)
class Item:
    """An unreached artifact.

    size  bytes
    age   seconds
    what  _summary
    name  the run's, of a report
    why   the reason to keep it nevertheless, or ''
    """

    stage: str
    version: str
    folder: pathlib.Path
    size: int
    age: float
    what: str
    name: str = ""
    why: str = ""


def named(results: str | pathlib.Path, patterns: Iterable[str]) -> dict[str, list[str]]:
    """Pattern -> the "stage/version" below `results` that it matches; raises UserError for one that
    matches none.

    A pattern is a version, with its stage and a slash before it or without, in which `*`, `?` and
    `[...]` stand for others.
    """
    folders = lineage.Store(results).folders()
    there = {f"{folder.parent.name}/{version}": version for version, folder in folders.items()}
    matches = {}
    for pattern in patterns:
        matches[pattern] = [
            name
            for name, version in there.items()
            if fnmatch.fnmatchcase(name if "/" in pattern else version, pattern)
        ]
        if not matches[pattern]:
            near = difflib.get_close_matches(pattern, [*there, *folders], 1)
            hint = (
                f"do you mean {near[0]}?"
                if near
                else "`snakemake gc` without it lists the versions that it would remove"
            )
            raise UserError(
                f"keep: no version in {files.shown(results)} is {excerpt(pattern)}; {hint}"
            )
    return matches


def collect(results: str | pathlib.Path, keep: Iterable[str]) -> list[Item]:
    """An Item for each artifact below `results` that is not an ancestor of `keep`
    ("stage/version"), by stage.
    """
    store = lineage.Store(results)
    reached = {version for name in keep for version in store.ancestors(name.partition("/")[2])}
    folders = [folder for folder in store.folders().values() if folder.parent.name in ORDER]
    loose = [folder for folder in folders if folder.name not in reached]
    running = [folder for folder in loose if _is_locked(folder)]
    items = [_item(store, folder, running) for folder in loose] + _left_over(store.results)
    return sorted(items, key=lambda item: (ORDER.index(item.stage), -item.age))


def _left_over(results: str | pathlib.Path) -> list[Item]:
    why = "left of a removal that was interrupted"
    return [
        Item(stage, aside[1], folder, _size(folder), time.time() - _changed(folder), why)
        for stage in ORDER
        for folder in pathlib.Path(results, stage).glob(".*.removed")
        if (aside := ASIDE.fullmatch(folder.name))
        and not any(path.is_symlink() for path in (folder, folder.parent))
    ]


def _item(store: lineage.Store, folder: pathlib.Path, running: list[pathlib.Path]) -> Item:
    manifest = store.manifest(folder.name)
    age = max(0.0, time.time() - _changed(folder))
    name = one_line(manifest["spec"]["params"].get("name", ""), MOST_SHOWN) if manifest else ""
    return Item(
        folder.parent.name,
        folder.name,
        folder,
        _size(folder),
        age,
        _summary(store, folder, manifest),
        name,
        _why_it_stays(folder, manifest, age, running),
    )


def _why_it_stays(
    folder: pathlib.Path, manifest: dict[str, Any] | None, age: float, running: list[pathlib.Path]
) -> str:
    """The inputs of a stage that runs for another configuration are unknown: everything it could
    read stays.
    """
    if folder in running:
        return "a stage is at work on it"
    for other in running:
        if ORDER.index(folder.parent.name) < ORDER.index(other.parent.name):
            return f"{other.parent.name}/{other.name}, which is being made, may read it"
    if manifest is None and age < DAY:
        return "younger than a day, and its stage could go on from it"
    return ""


def _summary(store: lineage.Store, folder: pathlib.Path, manifest: dict[str, Any] | None) -> str:
    """A description of the artifact in one line."""
    if manifest is None:
        return "damaged" if store.damage(folder.name) else "unfinished"
    params = manifest["spec"]["params"]
    details = [
        params[key] if isinstance(params[key], str) else f"{key} {pages.setting(params[key])}"
        for key in TELLING
        if key in params and params[key] not in USUAL
    ]
    metrics = manifest.get("metrics")
    accuracy = metrics.get("accuracy") if isinstance(metrics, dict) else None
    if isinstance(accuracy, float):
        details.append(f"accuracy {100 * accuracy:.1f} %")
    return ", ".join(details) or f"{len(manifest['files'])} files"


def _size(folder: pathlib.Path) -> int:
    return sum(path.lstat().st_size for path in _files(folder))


def _changed(folder: pathlib.Path) -> float:
    return max(path.lstat().st_mtime for path in (folder, *_files(folder)))


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """All files and folders below the folder, however deep; symbolic links are not followed."""
    folders = [folder]
    while folders:
        for entry in os.scandir(folders.pop()):
            path = pathlib.Path(entry.path)
            yield path
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)


# Locks, as artifacts.making takes them.


def _is_locked(folder: pathlib.Path) -> bool:
    with _lock(folder) as mine:
        return not mine


@contextlib.contextmanager
def _lock(folder: pathlib.Path) -> Iterator[bool]:
    """Hold the artifact's lock if it is free; yields whether it was. A missing lock file is not
    created.
    """
    try:
        lock = os.open(folder / artifacts.LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield True  # never started
        return
    try:
        yield locks.take(lock, folder / artifacts.LOCK, wait=False)
    finally:
        os.close(lock)


# Output and removal.


def listed(items: list[Item]) -> list[str]:
    """Lines of text: the artifacts to remove, those kept nevertheless, the total size, and how to
    confirm.
    """
    going, staying = _parted(items)
    if not going:
        return [
            *_staying(staying),
            "There is nothing to remove: everything that is finished is reached.",
        ]
    size, them = (
        progress.size(sum(item.size for item in going)),
        "it" if len(going) == 1 else "them",
    )
    return [
        *_staying(staying),
        f"Nothing reaches {_count(going)}:",
        *_lines(going),
        f"In all {size}{_of_runs(going)}.",
        f"To remove {them}: {CONFIRM}",
    ]


def remove(items: list[Item]) -> list[str]:
    """Remove the items without a reason to stay; returns lines of text with the removed artifacts
    and the freed size.
    """
    going, staying = _parted(items)
    freed, gone, lines = 0, [], _staying(staying)
    for item in going:
        fault = _remove(item)
        if fault:
            lines.append(f"  {item.stage}/{item.version} stays: {fault}")
        else:
            gone.append(item)
            freed += item.size
    if not gone:
        return [*lines, "Nothing was removed."]
    return [
        *lines,
        f"Removed {_count(gone)}:",
        *_lines(gone),
        f"{progress.size(freed)} freed{_of_runs(gone)}.",
    ]


def _of_runs(items: list[Item]) -> str:
    """The runs whose reports are among the items, by their names: ', of 2 runs: "wide"
    (r0123456789a), r123456789ab'.
    """
    reports = [item for item in items if item.stage == "report"]
    names = [f'"{item.name}" ({item.version})' if item.name else item.version for item in reports]
    return f", of {len(names)} run{'s' if len(names) != 1 else ''}: {some(names)}" if names else ""


def some(names: list[str]) -> str:
    """Names in one line, the first ten of many."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _remove(item: Item) -> str:
    """Remove the artifact; returns the reason if that failed, else ''."""
    if any(path.is_symlink() for path in (item.folder, item.folder.parent)):
        return "it is a link"
    # Renamed in one step first, so that no stage ever sees a partly removed artifact.
    aside = (
        item.folder
        if ASIDE.fullmatch(item.folder.name)
        else item.folder.with_name(f".{item.version}.{os.getpid()}.removed")
    )
    with _lock(item.folder) as mine:
        if not mine:
            return "a stage is at work on it"
        try:
            os.rename(item.folder, aside)
        except FileNotFoundError:
            return "it is gone already"
        except OSError as error:
            return str(error.strerror)
    try:
        shutil.rmtree(aside)
    except (OSError, RecursionError) as error:
        fault = error.strerror if isinstance(error, OSError) else "folders nested too deep"
        return f"only a part of it could be removed ({fault}); the rest is {aside}"
    return ""


def _parted(items: list[Item]) -> tuple[list[Item], list[Item]]:
    return [item for item in items if not item.why], [item for item in items if item.why]


def _count(items: list[Item]) -> str:
    return f"{len(items)} artifact{'s' if len(items) != 1 else ''}"


def _lines(items: list[Item]) -> list[str]:
    names = [f"{item.stage}/{item.version}" for item in items]
    width = max(map(len, names))
    return [
        f"  {name:<{width}}  {progress.size(item.size):>8}  {_age(item.age):>9}  {item.what}"
        for name, item in zip(names, items, strict=True)
    ]


def _staying(items: list[Item]) -> list[str]:
    if not items:
        return []
    return [
        "Not reached, but staying:",
        *(f"{line}: {item.why}" for line, item in zip(_lines(items), items, strict=True)),
        "",
    ]


def _age(seconds: float) -> str:
    """'5 min', '3 h', '12 days'."""
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds // 3600:.0f} h"
    return f"{seconds // DAY:.0f} days"
