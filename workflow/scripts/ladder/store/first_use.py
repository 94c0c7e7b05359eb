"""Checks that are made before something computes on a GPU for the first time, and kept beside the
compiled kernels.

A check runs in a process of its own with a time limit, so that whatever goes wrong there is an
outcome: wrong numbers, an exception, a crash, a hang. Its key holds all that the outcome depends
on; with another driver, for example, it is made again.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any, Literal, overload

from ladder import progress
from ladder.errors import UserError, one_line
from ladder.machine import driver, libraries
from ladder.progress import log
from ladder.sources import SCRIPTS, closure
from ladder.store import cache, programs

SECONDS = 300  # time limit of a check
MOST_SHOWN = 400  # characters of a reason
NOTE = "first_use"  # in the notes of an artifact
# of this process, by the check's path: also those that are not kept
_outcomes: dict[pathlib.Path, dict[str, Any]] = {}


@dataclasses.dataclass(frozen=True)
class Check:
    """A function that is called in a process of its own: FUNCTION(*arguments) of `module`.

    FUNCTION returns a dict in what JSON can hold: "passed"; "summary" of what it found; "fault",
    what is wrong; "passing", whether it may pass at another time; "report", whether the fault
    should be reported; and more.

    name  of what is checked
    how   the check in words
    key   all that the outcome depends on, JSON-able
    """

    name: str
    how: str
    module: str
    function: str
    arguments: tuple[Any, ...]
    key: dict[str, Any]

    @property
    def path(self) -> pathlib.Path:
        text = json.dumps(self.key, sort_keys=True)
        return (
            cache.folder("checks")
            / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        )


def machine(packages: Iterable[str]) -> dict[str, Any]:
    """The part of a key that describes this machine: GPU, driver, and the versions of the
    `packages`.
    """
    gpu = driver.gpu()
    return {
        "gpu": gpu and gpu.name,
        "driver": driver.version(),
        "cuda": driver.cuda_version(),
        "packages": libraries.versions(packages),
    }


def code(module: str, *files: Iterable[str]) -> str:
    """The part of a key that describes the program: a digest of the module, of all that it imports,
    and of other files.
    """
    paths = sorted(closure(SCRIPTS / f"{module.replace('.', '/')}.py").union(*files))
    return hashlib.sha256("".join(map(programs.digest, paths)).encode()).hexdigest()[:16]


@overload
def outcome(check: Check, makes: Literal[True] = True) -> dict[str, Any]: ...


@overload
def outcome(check: Check, makes: bool) -> dict[str, Any] | None: ...


def outcome(check: Check, makes: bool = True) -> dict[str, Any] | None:
    """The outcome of a check, with the time when it was `made`: the kept one, or that of a check
    made now.

    makes: whether to make a check that was never made; if not, its outcome is None.
    """
    if check.path not in _outcomes:
        result = _kept(check)
        if result is None and makes:
            result = _make(check)
        if result is None:
            return None
        _outcomes[check.path] = result
    return _outcomes[check.path]


def refusal(check: Check, result: dict[str, Any]) -> str:
    """Why what is checked must not be used, in one line."""
    again = "" if result["passing"] else f", kept in {check.path}: remove it to check again"
    return f"{result['fault']} (checked {result['made']}{again})"


def require(check: Check, instead: str) -> dict[str, Any]:
    """What the notes of an artifact say of a check that has to pass; else raises UserError.
    instead: what to do, in words.
    """
    result = outcome(check)
    if not result["passed"]:
        report = (
            "; please report it with that file (CONTRIBUTING.md)" if result.get("report") else ""
        )
        raise UserError(f"{refusal(check, result)}{report}; {instead}")
    return {NOTE: {key: result[key] for key in ("name", "made", "seconds", "summary")}}


def _kept(check: Check) -> dict[str, Any] | None:
    """The outcome in the cache; None without one, and for a file that is damaged or of another
    key.
    """
    try:
        result: dict[str, Any] = json.loads(check.path.read_text("utf-8"))
        if result["key"] != json.loads(json.dumps(check.key)):
            return None
        texts = [result[name] for name in ("name", "summary", "fault", "made")]
        whole = all(isinstance(text, str) for text in texts) and isinstance(
            result["seconds"], int | float
        )
        return (
            result
            if whole and result["passed"] in (True, False) and result["passing"] is False
            else None
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _make(check: Check) -> dict[str, Any]:
    if not log.handlers:  # in the Snakefile
        progress.start_logging()
    log.info("checking %s: %s", check.name, check.how)
    started = time.monotonic()
    result = {
        "name": check.name,
        **_call(check),
        "seconds": round(time.monotonic() - started, 2),
        "made": progress.utc(),
        "key": check.key,
    }
    log.info(
        "%s %s, in %s",
        check.name,
        f"passed: {result['summary']}" if result["passed"] else "did not pass",
        progress.duration(result["seconds"]),
    )
    if not result["passing"]:
        with contextlib.suppress(OSError):  # no room at all
            cache.keep(check.path, (json.dumps(result, indent=1) + "\n").encode())
    return result


def _call(check: Check) -> dict[str, Any]:
    """What the check's function returns, or what kept it from returning."""
    from ladder.machine import worker  # here, because every command imports this module

    with tempfile.TemporaryDirectory(prefix="kernel-ladder-") as folder:
        printed = pathlib.Path(folder, "output.txt")
        try:
            process = worker.Worker(sys.executable, check.module, SCRIPTS, printed)
        except worker.Failed as error:
            return _failed(check, str(error), passing=True)
        try:
            result: dict[str, Any] = process.call(check.function, *check.arguments, limit=SECONDS)
        except worker.Failed as error:
            last = printed.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            reason = f"it hung and {error}" if error.timed_out else " - ".join([str(error), *last])
            # by somebody, or for want of memory
            return _failed(check, reason, passing="SIGKILL" in reason)
        except BaseException:  # Ctrl-C
            process.stop()
            raise
        process.stop()
        return result


def _failed(check: Check, reason: str, passing: bool) -> dict[str, Any]:
    return {
        "passed": False,
        "fault": one_line(f"{check.name} could not be checked: {reason}", MOST_SHOWN),
        "passing": passing,
        "summary": "",
    }
