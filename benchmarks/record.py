"""The record of gpu.py: one JSON file, written whole after every section, without the name of a host or of a person."""

import getpass
import hashlib
import json
import pathlib
import platform
import re
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SAME = ("gpu", "driver", "nvrtc", "cupy", "numpy")   # what a record's sections must have in common, of its machine
MEASURED_WITH = ("kernels/**/*.cu*", "workflow/scripts/ladder/**/*.py", "benchmarks/*.py", "benchmarks/*.cu")


class Record:
    """Sections by name, each with its `result` or the reason why it `failed`; `left_out`: those that found no time."""

    def __init__(self, path, data):
        self.path, self.data = path, data

    @classmethod
    def open(cls, path, machine):
        """(the record at `path` or a new one, why the one there was put aside or ''); machine: as rung_work describes it."""
        new = {"kind": "gpu", "made": _utc(), "sources": sources(), "machine": machine, "sections": {}, "left_out": []}
        saved, reason = _kept(path, new)
        if reason:
            aside = path.with_name(f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json")
            path.rename(aside)
            reason = f"{path} is {reason}: it is kept as {aside.name}, and a new one begins"
        return cls(path, saved or new), reason

    def result(self, name):
        """The result of a section; None if it has none."""
        return self.data["sections"].get(name, {}).get("result")

    def failure(self, name):
        """Why a section failed; None if it did not."""
        return self.data["sections"].get(name, {}).get("failed")

    def of(self, name):
        """What the result of a section was measured of (Section.of)."""
        return self.data["sections"].get(name, {}).get("of")

    def keep(self, name, section):
        """Put a section into the record, and write it."""
        self.data["sections"][name] = scrubbed(section)
        self.save()

    def leave_out(self, names, tried):
        """Note that there was no time for the sections `names`, besides those left out before and not `tried` now."""
        before = [name for name in self.data["left_out"] if name not in tried and name not in self.data["sections"]]
        self.data["left_out"] = list(dict.fromkeys([*before, *names]))
        self.save()

    def save(self):
        temporary = self.path.with_name(f".{self.path.name}.new")
        temporary.write_text(json.dumps(self.data, indent=1, default=float) + "\n", "utf-8")
        temporary.replace(self.path)


def sources():
    """Digest of the programs that are measured, and of those that measure."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in MEASURED_WITH for path in ROOT.glob(pattern)}):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def scrubbed(value):
    """The value without the project's folder, the home folder, and the names of this host and of its user."""
    if isinstance(value, dict):
        return {scrubbed(key): scrubbed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(item) for item in value]
    if not isinstance(value, str):
        return value
    value = value.replace(f"{ROOT}/", "").replace(str(pathlib.Path.home()), "~")
    for name, put in ((platform.node(), "HOST"), (_user(), "USER")):
        if name and name not in ("root", "localhost"):   # a word of many messages
            value = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", put, value)
    return value


def _kept(path, new):
    """(the record at `path` if it can be continued else None, why not or '')."""
    try:
        saved = json.loads(path.read_text("utf-8"))
        if saved["sources"] != new["sources"]:
            return None, "of other sources"
        other = [name for name in SAME if saved["machine"][name] != json.loads(json.dumps(new["machine"][name]))]
        saved["sections"], saved["left_out"]
    except FileNotFoundError:
        return None, ""
    except (ValueError, KeyError, TypeError):
        return None, "no record of this program"
    return (None, f"of another {', '.join(other)}") if other else (saved, "")


def _user():
    try:
        return getpass.getuser()
    except (KeyError, OSError):   # a user without a name, in a container
        return ""


def _utc():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
