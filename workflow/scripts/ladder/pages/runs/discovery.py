"""Every run of a results folder and of the lists of a configuration, a row for each: plain values,
the same in runs.json, runs.csv and on the page.

Nothing is run, and of a report only its manifest, its summary and the manifests of its ancestors
are read.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import hmac
import json
import os
import pathlib
import types
from typing import Any

from ladder import progress, sources
from ladder.arithmetic import multipliers
from ladder.errors import UserError, excerpt
from ladder.machine import locks
from ladder.pages import facts, reproduce
from ladder.pages.runs import columns
from ladder.store import artifacts, cache, disk, lineage, manifests, programs

# What a manifest or a summary of other keys, types or sizes raises.
ODD = (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError)
PRUNED = "pruned after "  # how the reason of a run begins that a search has given up
FOLDER = "runs"  # in results/: what the page loads
# the fields of a Run that a row of rows.json has
KEPT = ("about", "settings", "numbers", "ends", "written", "unsaid", "trains")

# The parts of a summary that pages cannot do without, and their types.
SUMMARY = {
    **dict.fromkeys(("dataset", "network", "variant"), str),
    "loss": list | None,
    "seconds": dict,
    "validation": int,
    "versions": dict,
    "confusion": list | None,
}


@dataclasses.dataclass(frozen=True)
class Run:
    """A row. about: the texts of columns.ABOUT; settings: key -> value of everything that can
    change the run; numbers and ends: as of columns.of_summary.

    written: key -> value as config.yaml has to have them for the same run, and unsaid: the keys
    that cannot be told so. trains: versions of the trainings that it was made from; results: the
    folder with its artifacts.
    """

    about: dict[str, Any]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    ends: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    written: dict[str, Any] = dataclasses.field(default_factory=dict)
    unsaid: list[str] = dataclasses.field(default_factory=list)
    trains: list[str] = dataclasses.field(default_factory=list)
    results: pathlib.Path = pathlib.Path()

    @property
    def version(self):
        return self.about["run"]

    @functools.cached_property
    def summary(self):
        """That of the report of a finished run; None of another."""
        if self.about["state"] != "finished":
            return None
        path = self.results / "report" / self.version / "summary.json"
        return json.loads(path.read_text("utf-8"))


def runs(results, listed=(), given=None):
    """The Run of every report below `results`, of every training without one, and of every listed
    run that is not made; the newest first.

    listed: as workflow/listed.py has them; given: the setting multiplier_costs.
    """
    store, numbered, tables = lineage.Store(results), [*_numbered(listed)], _tables(listed)
    rows = _Kept(store)
    own = {version for version, at in store.folders().items() if at.parent.name == "report"}
    reports = []
    for number, version in enumerate(sorted(own), 1):
        reports.append(rows.report(version))
        if number % 1000 == 0:
            progress.log.info("%d of %d reports read", number, len(own))
    rows.write()
    used = {version for run in reports for version in run.trains}
    alone = [
        _read(_training, store, version)
        for version, folder in store.folders().items()
        if folder.parent.name == "train" and version not in used
    ]
    there = {run.version: run for run in (*reports, *alone)}
    waiting = []
    for entry in numbered:
        versions = [pathlib.Path(entry[key] or "").name for key in ("report", "weights")]
        version = next((version for version in versions if version in there), None)
        if version:
            there[version] = dataclasses.replace(
                there[version], about=_listed_about(there[version].about, entry)
            )
        else:
            waiting.append(_waiting(entry, used))
    for run in there.values():
        name = run.settings.get("test_multiplier")
        if run.numbers and name:
            run.numbers.update(
                columns.of_multiplier(tables.get(name.rpartition(" ")[2], name), given or {})
            )
    _name_multipliers(there.values())
    ordered = sorted(there.values(), key=lambda run: (run.about["made"], run.version), reverse=True)
    return [*ordered, *waiting]


def _numbered(listed):
    """The listed runs with "trial", their numbers among those with the same tags."""
    counts: dict[tuple[str, ...], int] = {}
    for entry in listed:
        tags = tuple(entry["tags"])
        counts[tags] = counts.get(tags, 0) + 1
        yield {**entry, "trial": counts[tags]}


def _tables(listed):
    """What the name of a table ends with in the settings of runs -> the path that listed runs name
    it by: an artifact does not keep it.
    """
    paths = {
        entry["settings"][key]
        for entry in listed
        for key in ("multiplier", "test_multiplier")
        if key in entry["settings"]
    }
    tables = {}
    for path in paths:
        with contextlib.suppress(UserError):  # one that is not there is no run either
            tables[reproduce.digits(multipliers.identity(path))] = path
    return tables


def _name_multipliers(runs):
    """As config.yaml has them: 'mine.npy (63234778)' becomes 'mine.npy' where no run has another
    table of this name, and a test_multiplier that is the run's multiplier 'same'.
    """
    keys = ("multiplier", "test_multiplier")
    named = [
        (run.settings, key)
        for run in runs
        for key in keys
        if isinstance(run.settings.get(key), str)
    ]
    names = {settings[key] for settings, key in named}
    files = collections.Counter(name.rpartition(" (")[0] for name in names)
    for settings, key in named:
        file = settings[key].rpartition(" (")[0]
        if file and files[file] == 1:
            settings[key] = file
    for settings in (run.settings for run in runs):
        if settings.get("test_multiplier", ...) == settings.get("multiplier"):
            settings["test_multiplier"] = "same"


class _Kept:
    """The rows of reports, kept in results/runs/rows.json: a report stays as it is, so its row is
    made once, and again where its manifest or the program that makes rows is another one, or
    where another user has written the rows.
    """

    def __init__(self, store):
        self._store, self._path = store, store.results / FOLDER / "rows.json"
        self._rows, self._now = {}, {}
        with contextlib.suppress(OSError, ValueError):
            own, text = self._path.read_text("utf-8").split("\n", 1)
            if hmac.compare_digest(own.encode(), seal(__file__, text).encode()):
                self._rows = json.loads(text)

    def report(self, version):
        """The Run of a report."""
        stamp = _stamp(self._store.folders()[version])
        row = self._rows.get(version)
        if stamp is None or row is None or row["stamp"] != stamp:
            run = _read(_report, self._store, version)
            row = {"stamp": stamp, **{name: getattr(run, name) for name in KEPT}}
        if stamp is not None:
            self._now[version] = row
        own = {name: row[name] for name in KEPT}
        own |= {"about": {**row["about"], "run": version}}
        own |= {key: dict(row[key]) for key in ("numbers", "settings")}
        return Run(**own, results=self._store.results)

    def write(self):
        if self._now != self._rows:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self._now)
            disk.write_atomically(self._path, f"{seal(__file__, text)}\n{text}".encode())


def seal(module, text=""):
    """64 hex digits that a module and all that it imports give a text for this user, who alone has
    the key: what others have written, and came with a folder, is neither believed nor run.
    """
    path = cache.folder("rows.key")
    key = (cache.find(path) or cache.keep(path, os.urandom(32))).read_bytes()
    return hmac.new(key, f"{_program(module)}{text}".encode(), "sha256").hexdigest()


def _stamp(folder):
    """What changes with the files that a row is made of; None of a report that is not whole."""
    try:
        facts = [(folder / name).stat() for name in ("manifest.json", "summary.json")]
    except OSError:
        return None
    return [number for fact in facts for number in (fact.st_mtime_ns, fact.st_size)]


@functools.cache
def _program(module):
    """A digest of what the file of a module and all that it imports do."""
    digests = map(programs.digest, sorted(sources.closure(module)))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(make, store, version):
    """The Run that `make` returns; a damaged one where what it reads has other keys or types."""
    try:
        return make(store, version)
    except ODD:
        about = {"run": version, "made": _changed(store.folders()[version]), "tags": []}
        reason = "made by another release: its manifest or its summary has other keys"
        return Run({**about, "state": "damaged", "reason": reason})


def _report(store, version):
    """The Run of a report, without what a configuration says of it."""
    folder, manifest = store.folders()[version], store.manifest(version)
    about = {"run": version, "made": _changed(folder), "tags": []}
    if manifest is None:
        return Run({**about, **_unfinished(store, folder)})
    about |= _about(store, manifest)
    uses = [ancestor for ancestor in store.ancestors(version) if store.stage(ancestor) == "train"]
    known = {**_settings(store, version), "trains": uses}
    if manifest.get("failed"):
        return Run({**about, "state": "failed", "reason": manifest["failed"]}, **known)
    try:
        summary = artifacts.Artifact(folder).json("summary.json")
        fault = fault_of(summary)
    except (UserError, ValueError) as error:
        fault = str(error)
    if fault:
        return Run({**about, "state": "damaged", "reason": fault}, **known)
    numbers, ends = columns.of_summary(summary)
    about |= {
        "state": "finished",
        "scored_on": _scored_on(summary),
        "data": summary["versions"].get("data", ""),
        "train": _weights(summary["versions"]),
    }
    return Run(about, numbers=numbers, ends=ends, **known)


def _training(store, version):
    """The Run of a training that no report was made from."""
    manifest, folder = store.manifest(version), store.folders()[version]
    about = {"run": version, "train": version, "tags": [], "made": _changed(folder)}
    if manifest is None:
        return Run({**about, **_unfinished(store, folder)})
    order = store.ancestors(version)
    settings = lineage.settings(
        {store.stage(ancestor): store.manifest(ancestor) for ancestor in order}
    )
    failed = manifest.get("failed")
    state = {"state": "failed", "reason": failed} if failed else {"state": "trained"}
    return Run({**about, **_about(store, manifest), **state}, settings, results=store.results)


def _waiting(listed, used):
    """The Run of an entry of a list that is not made; used: the trainings that reports show."""
    reason = listed["reason"]
    state = "pruned" if reason.startswith(PRUNED) else "not possible" if reason else "listed"
    if pathlib.Path(listed["weights"] or "").name in used:
        reason = "trained for another report; snakemake runs makes its row"
    version = pathlib.Path(listed["report"]).name if listed["report"] else ""
    about = {"run": version, "made": "", "state": state, "reason": reason, "tags": []}
    return Run(_listed_about(about, listed), listed["settings"])


def _listed_about(about, listed):
    """What is said of a run, with what its list says."""
    tags = dict.fromkeys([*about["tags"], *listed["tags"]])
    name = about.get("name") or listed["name"]
    return {**about, "tags": list(tags), "trial": listed["trial"], "name": name}


def _unfinished(store, folder):
    if damage := store.damage(folder.name):
        return {"state": "damaged", "reason": damage}
    if is_locked(folder):
        return {"state": "running", "reason": ""}
    return {"state": "interrupted", "reason": "the same command goes on with it"}


def _about(store, manifest):
    params = manifest["spec"]["params"]
    tags = params.get("tags") or []
    return {
        "made": str(manifest.get("made", "")),
        "name": str(params.get("name") or ""),
        "tags": list(map(str, tags if isinstance(tags, list) else [tags])),
        "machine": ", ".join(_hosts(store, manifest)),
    }


def _hosts(store, manifest):
    """The names of the machines that made an artifact and its parents, each once."""
    parents = map(store.manifest, manifest["spec"]["parents"].values())
    return dict.fromkeys(
        str(artifact["machine"].get("host") or "a machine without a name")
        for artifact in (*parents, manifest)
        if artifact
    )


def _settings(store, version):
    """{"settings", "written", "unsaid"} of a report."""
    read = {role: store.manifest(artifact) for role, artifact in store.parents(version).items()}
    inputs = {
        role: types.SimpleNamespace(manifest=artifact)
        for role, artifact in read.items()
        if artifact
    }
    params = store.manifest(version)["spec"]["params"]
    settings = {**store.settings(version), **reproduce.named_multipliers(inputs, params)}
    if None in read.values():
        gone = "the settings of stages that are no longer there"
        return {"settings": settings, "unsaid": [gone]}
    return {
        "settings": settings,
        "written": reproduce.settings(inputs, params),
        "unsaid": reproduce.unwritten(inputs),
    }


def fault_of(summary):
    """Why the summary of a whole report cannot be shown, in words; '' for one of this release."""
    parts = summary if isinstance(summary, dict) else {}
    missing = [part for part, kind in SUMMARY.items() if not isinstance(parts.get(part, ...), kind)]
    if missing:
        return f"made by another release: its summary has no {missing[0]}"
    versions = parts["versions"].values()  # which become names of files
    odd = [version for version in versions if not manifests.VERSION.fullmatch(str(version))]
    return f"its summary names {excerpt(str(odd[0]))} as a version" if odd else ""


def is_locked(folder):
    """Whether a stage is at work on an artifact, which then holds its lock."""
    try:
        lock = os.open(folder / artifacts.LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not locks.take(lock, folder / artifacts.LOCK, wait=False)
    finally:
        os.close(lock)


def _scored_on(summary):
    if summary.get("changed_copies"):
        return "changed copies"
    if summary.get("test_accuracy") is None:
        return ""
    return "validation" if summary["validation"] else "test"


def _weights(versions):
    """The version of a run's weights: of the training, the fit, or the start."""
    return next((versions[role] for role in facts.WEIGHTS if role in versions), "")


def _changed(folder):
    """The time of the last change in the folder, in the format of a manifest."""
    latest = max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    return progress.utc(latest)
