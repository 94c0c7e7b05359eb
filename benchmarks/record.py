"""The record of gpu_check.py: one JSON file, written whole after every section, without the name of
a host or of a person.
"""

import functools
import getpass
import hashlib
import json
import pathlib
import platform
import re
import time

import cases
import sanitizer
from ladder.executors import create
from sections import mark

ROOT = pathlib.Path(__file__).resolve().parents[1]
# what a record's sections must have in common, of its machine
SAME = ("gpu", "driver", "nvrtc", "cupy", "numpy")
LIBRARY = tuple(
    f"workflow/scripts/ladder/{name}/**/*.py"
    for name in ("arithmetic", "network", "plan", "training", "verify")
)
TORCH = ("benchmarks/torch_*.py", "benchmarks/cases.py", "workflow/scripts/ladder/network/*.py")
# Besides the sources of a rung (executors.create.sources), which come to every section that has
# one.
RUNGS = (
    *LIBRARY,
    "benchmarks/rung_work.py",
    "benchmarks/step_kernels.py",
    "benchmarks/timing.py",
    "benchmarks/cases.py",
)
# Kind of a section, the beginning of its name -> patterns of the files that its result depends on;
# another kind: RUNGS. What is of PyTorch alone depends on TORCH.
MEASURED_WITH = {
    "ceilings": ("benchmarks/ceilings.cu", "benchmarks/timing.py", "benchmarks/roofline.py"),
    "PyTorch": TORCH,
    "PyTorch's ceilings": TORCH,
    "first look": TORCH,
    "kernels": (
        *LIBRARY,
        "benchmarks/prepare.py",
        "kernels/**/*",
        "workflow/scripts/ladder/rungs/*.py",
    ),
    "parity": (
        *RUNGS,
        "workflow/scripts/ladder/executors/cpu/*.py",
        "benchmarks/numpy_reference.py",
    ),
    "race": (*RUNGS, "benchmarks/race.py"),
    "launches": (*RUNGS, "benchmarks/launch_times.py"),
    "tiles": (*RUNGS, "benchmarks/launch_times.py", "benchmarks/tiles.py"),
    "ncu": (*RUNGS, "benchmarks/profile_rung.py", "benchmarks/one_step.py"),
    "cuDNN": TORCH,
    "chain": (
        "workflow/**/*.py",
        "workflow/rules/*",
        "kernels/**/*",
        "Snakefile",
        "config.yaml",
        "benchmarks/chain.py",
    ),
    "svm": ("benchmarks/rung_work.py", "workflow/scripts/ladder/classifiers/*.py"),
    **dict.fromkeys(sanitizer.TOOLS, (*RUNGS, "benchmarks/one_step.py")),
}


class Record:
    """Sections by name, each with its `result` or the reason why it `failed`; `left_out`: those
    that found no time.
    """

    def __init__(self, path, data):
        self.path, self.data = path, data

    @classmethod
    def open(cls, path, machine):
        """(the machine's record or a new one, why that at `path` was put aside or ''); machine: as
        rung_work describes it.
        """
        new = {"kind": "gpu", "made": _utc(), "machine": machine, "sections": {}, "left_out": []}
        saved, reason = _kept(path, new)
        if reason:  # this machine may have a record from before the one that is there now
            earlier = sorted(path.parent.glob(f"{path.stem}-*.json"), reverse=True)
            saved = next(filter(None, (_kept(other, new)[0] for other in earlier)), None)
        if saved:
            fresh = {
                name: section
                for name, section in saved["sections"].items()
                if section.get("sources") == sources(name, section.get("of"))
            }
            new = saved | {"sections": fresh}
            if not reason and (others := len(saved["sections"]) - len(fresh)):
                reason = f"{others} of its {len(saved['sections'])} sections of other sources, which are measured again"
        if reason:
            aside = path.with_name(
                f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"
            )
            path.rename(aside)
            reason = f"{path} has {reason}: as it was, it is kept as {aside.name}"
        return cls(path, new), reason

    def result(self, name):
        """The result of a section; None if it has none."""
        return self.data["sections"].get(name, {}).get("result")

    def failure(self, name):
        """Why a section failed; None if it did not."""
        return self.data["sections"].get(name, {}).get("failed")

    def measured_of(self, name):
        """What the result of a section was measured of (Section.of)."""
        return self.data["sections"].get(name, {}).get("of")

    def keep(self, name, section):
        """Put a section into the record, with the digest of its sources, and write it."""
        self.data["sections"][name] = scrubbed(
            {**section, "sources": sources(name, section.get("of"))}
        )
        mark(self.data)
        self.save()

    def leave_out(self, names, tried):
        """Note that there was no time for the sections `names`, besides those left out before and
        not `tried` now.
        """
        before = [
            name
            for name in self.data["left_out"]
            if name not in tried and name not in self.data["sections"]
        ]
        self.data["left_out"] = list(dict.fromkeys([*before, *names]))
        self.save()

    def save(self):
        temporary = self.path.with_name(f".{self.path.name}.new")
        temporary.write_text(json.dumps(self.data, indent=1, default=float) + "\n", "utf-8")
        temporary.replace(self.path)


def sources(name, line_up=None):
    """Digest of the files that the result of a section depends on: what is measured, and what
    measures it.
    """
    kind, _, rest = name.partition(": ")
    contestants = line_up or [rest.rpartition(", ")[2]]
    contenders = cases.CONTENDERS.keys() & set(contestants)
    patterns = {
        *(TORCH if contenders else ()),
        *(() if contenders >= set(contestants) else MEASURED_WITH.get(kind, RUNGS)),
    }
    paths = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    paths |= {
        ROOT / path
        for rung in contestants
        if rung in cases.gpu_rungs()
        for path in create.sources(rung)
    }
    return hashlib.sha256("".join(map(_digest, sorted(paths))).encode()).hexdigest()[:16]


@functools.cache  # as they are when the program begins
def _digest(path):
    return f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def scrubbed(value):
    """The value without the project's folder, the home folder, and the names of this host and of
    its user.
    """
    if isinstance(value, dict):
        return {scrubbed(key): scrubbed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(item) for item in value]
    if not isinstance(value, str):
        return value
    value = value.replace(f"{ROOT}/", "").replace(str(pathlib.Path.home()), "~")
    for name, put in ((platform.node(), "HOST"), (_user(), "USER")):
        if name and name not in ("root", "localhost"):  # a word of many messages
            value = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", put, value)
    return value


def _kept(path, new):
    """(the record at `path` if it can be continued else None, why not or '')."""
    try:
        saved = json.loads(path.read_text("utf-8"))
        other = [
            name
            for name in SAME
            if saved["machine"][name] != json.loads(json.dumps(new["machine"][name]))
        ]
        saved["sections"].items(), saved["left_out"]
    except FileNotFoundError:
        return None, ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "no sections of this program"
    return (None, f"the measurements of another {', '.join(other)}") if other else (saved, "")


def _user():
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, in a container
        return ""


def _utc():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
