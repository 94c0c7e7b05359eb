"""A command line of Snakemake as far as a plan depends on it: which targets, what is forced,
whether jobs run at all.
"""

import argparse
import atexit
import dataclasses
import functools
import gc
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from ladder import caller
from ladder.errors import UserError, excerpt
from ladder.machine import processes
from ladder.stage.command import repeat_at_the_end
from ladder.workflow import places, removed
from ladder.workflow.stages import COPIES, LISTED
from ladder.workflow.values import nearest

# names of roles that are targets
TARGETS = (
    "data",
    "normalized",
    "patches",
    "train",
    "evaluate",
    "features",
    "svm",
    "neighbours",
)
KNOWN = {*TARGETS, *COPIES, *LISTED, *(page for pages in COPIES.values() for page in pages)}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line of Snakemake.

    words    those after the name of the program
    now      a file that is newer than all that is there when the command begins
    is_main  False in a job on a node of a cluster
    cores    --cores; None if other machines run the jobs
    """

    words: tuple[str, ...]
    now: pathlib.Path = pathlib.Path(os.devnull)
    is_main: bool = True
    cores: int | None = None

    @functools.cached_property
    def options(self) -> argparse.Namespace:
        """The words as Snakemake reads them; `targets` are all those that it takes for one."""
        read: argparse.Namespace = parser().parse_known_args(self.words)[0]
        return read

    @property
    def targets(self) -> set[str]:
        """The KNOWN targets that are named."""
        return KNOWN.intersection(self.options.targets)

    @property
    def dry(self) -> bool:
        return bool(self.options.dryrun)

    @property
    def forced(self) -> set[str]:
        """Rules named by -R, and the targets if -f is given."""
        rules: set[str] = self.options.forcerun
        return rules | self.targets if self.options.force else rules

    @property
    def has_settings(self) -> bool:
        return bool(self.options.config or self.options.configfile)


@functools.cache
def parser() -> Any:
    """That of Snakemake's command line."""
    from snakemake import cli  # here, because it takes a second

    return cli.get_argument_parser()


def begin(cores: Callable[[], int]) -> Command:
    """The command of this process, which runs Snakemake; its stages are told what they have to know
    (caller.py).

    cores: gives --cores, or raises an error where Snakemake has no such number because other
    machines run the jobs. Raises UserError where the command cannot work here.
    """
    places.check_memory()
    places.check_kind("results", "logs")
    places.check_writable(".snakemake")
    places.remove_leftovers(
        "logs/.*", "logs/*/.*.tmp", "results/.*.tmp", "results/runs/.*.tmp", ".snakemake/now.*"
    )
    now = pathlib.Path(".snakemake", f"now.{processes.owner()}")
    now.parent.mkdir(exist_ok=True)
    now.write_text(f"{now.name} {time.time_ns()}", "utf-8")  # Snakemake compares its checksum too
    atexit.register(now.unlink, missing_ok=True)
    # what was imported is not looked through once more when Snakemake ends
    atexit.register(gc.freeze)
    try:
        known = cores()
    except Exception:  # an error of Snakemake's own, which is not known here
        known = None
    command = Command(tuple(sys.argv[1:]), now, not caller.fact("started"), known)
    # Rules call `python3`: the one that runs Snakemake or, with --sdm conda, that of the
    # environment that Snakemake activates.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])
    errors = pathlib.Path("logs", f".errors.{processes.owner()}").absolute()
    atexit.register(errors.unlink, missing_ok=True)
    caller.tell(errors=str(errors))
    if command.is_main:
        # The nodes may have a GPU or libraries that this machine lacks.
        executor = command.options.executor
        elsewhere = known is None or executor not in (None, "local", "dryrun", "touch")
        # What `auto` takes is checked before its first use, by a command that runs jobs here.
        caller.tell(
            started=now.stat().st_mtime_ns,
            elsewhere=elsewhere,
            checks=not (elsewhere or command.dry),
        )
    if command.targets and command.targets <= LISTED:  # then a failed run does not stop the others
        caller.tell(keep_failed=True)
    return command


def check_profile(name: str | None, home: str | pathlib.Path) -> None:
    """Raise UserError for a --workflow-profile that is nowhere: Snakemake would run without one, on
    a cluster all jobs on the machine where it is typed. home: the folder of the workflow.
    """
    own = pathlib.Path(home, "profiles")
    folders = pathlib.Path(), pathlib.Path("profiles"), own
    if name in (None, "none") or any((folder / name).exists() for folder in folders):
        return
    known = sorted(path.name for path in own.iterdir())
    near = nearest(pathlib.Path(name).name, known) or f"; there are {', '.join(known)}"
    raise UserError(f"there is no profile {excerpt(name)}{near}")


def check_targets(unknown: list[str], rules: list[str]) -> None:
    """Raise UserError for the first target that no rule makes and that is no file; rules: their
    names.
    """
    for target in unknown:
        if gone := removed.instead(target):
            raise UserError(gone)
        if not os.path.exists(target):
            pages = [page for pages in COPIES.values() for page in pages]
            others = (
                f", and no folder of this name; there are {', '.join(sorted({*TARGETS, *COPIES, 'runs'}))}, and the pages "
                "in results/"
            )
            raise UserError(
                f"there is no target {excerpt(target)}{nearest(target, [*pages, *LISTED, *rules]) or others}"
            )


# A failed stage writes its error message to its log and to the file that caller.fact("errors")
# names. Where a signal other than Ctrl-C has ended it, its shell command writes the status and the
# script, which has the rule's name, beside its log.
KILLED = "{} was {}; run the same command again: finished artifacts stay"
BY_SIGNAL = {
    128 + signal.SIGTERM: "asked to end (SIGTERM), by a person, a scheduler or a time limit",
    128 + signal.SIGHUP: "ended with its terminal (SIGHUP)",
}
OTHER_SIGNAL = "killed by signal {} before it could say why, perhaps for want of memory"


def name_if_silent(rule: str) -> None:
    """Add a message for a job that has failed without one: its shell was killed with it."""
    if not os.path.exists(caller.fact("errors")) and not [*pathlib.Path("logs").glob("*/*.killed")]:
        how = "killed with its shell, perhaps for want of memory"
        repeat_at_the_end(KILLED.format(rule, how))


def repeat_errors() -> None:
    """Print the error messages of stages that have failed in this command; called at exit, so that
    they are the last lines.
    """
    errors, lines = pathlib.Path(caller.fact("errors")), []
    if errors.exists():
        lines += errors.read_text("utf-8").strip().splitlines()
    for path in sorted(pathlib.Path("logs").glob("*/*.killed")):
        status, script = path.read_text("utf-8").strip().split(maxsplit=1)
        by = BY_SIGNAL.get(int(status), OTHER_SIGNAL.format(int(status) - 128))
        # an older one is of a command that was killed too
        if path.stat().st_mtime_ns >= caller.fact("started"):
            lines.append(KILLED.format(pathlib.Path(script).stem, by))
        path.unlink(missing_ok=True)
    if lines:
        print("", *lines, sep="\n", file=sys.stderr, flush=True)
