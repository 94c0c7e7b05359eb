"""Kill stages and whole commands at every file operation and at random moments; the same command
then has to finish the work.

    .venv/bin/python tests/campaigns/kill.py --kills 1000 --folder /tmp/kills

What has to hold after each kill: the same command ends with 0, every artifact has the bytes of an
undisturbed run, artifacts that were finished are untouched, nothing else is left in results/ and
logs/, and pages in results/ are their artifacts' files.

stage    A stage's command, in a fork of a process that has imported it: by SIGKILL before each
         operation by which it changes files and in the middle of each write, then by signals, at
         operations and once or twice in a row, drawn at random.
chain    `snakemake` on a chain from which some artifacts were removed: its process group, one of
         its processes or Snakemake itself, at an operation of any of them or at a moment drawn at
         random; once or twice, alone or beside a second command.

FOLDER keeps a copy of the project, its undisturbed results and kills.jsonl, a line for each kill:
the same call goes on after the last one, and a larger N adds to them. Linux only: operations are
counted by a library for LD_PRELOAD (kill_at.c).
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

import killed_project as kp
from warm import Server

SIGNALS = ("KILL", "TERM", "INT")
SHARE = 0.15  # of the kills that are of whole chains
SECONDS = 120  # for a command to end


# The record.


class Record:
    """The file of the kills so far, by their keys."""

    def __init__(self, path):
        self.path = path
        self.lines = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        self._keys = {line["key"]: line for line in self.lines}

    def __contains__(self, key):
        return key in self._keys

    def line(self, key):
        return self._keys[key]

    def count(self, kind=""):
        """The number of signals sent."""
        return sum(
            len(line["struck"]) - line["struck"].count("")
            for line in self.lines
            if line["key"].startswith(kind)
        )

    def add(self, key, **facts):
        line = {"key": key, **facts}
        self.lines.append(line)
        self._keys[key] = line
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        if facts["faults"]:
            print(f"{key}: {facts['struck']}: {'; '.join(facts['faults'][:5])}", flush=True)


# Stages.


@dataclasses.dataclass(frozen=True)
class Kill:
    """at: the operation; signal: its name; torn: whether half of the operation, a write, is
    done.
    """

    at: int
    signal: str = "KILL"
    torn: bool = False

    def __str__(self):
        return f"{self.signal}@{self.at}{'½' if self.torn else ''}"


class Stage:
    """The command of one stage, whose artifact is `made`; a context manager."""

    def __init__(self, project, counter, made):
        self._project, self._counter, self.made = project, counter, made
        self._folder, self._output = project.folder / made, project.folder / "output.txt"
        script, *self._words = project.stages[made]
        self._server = Server(pathlib.Path(script).stem, project.folder, **counter.environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()

    def operations(self):
        """The number of operations of an undisturbed run."""
        self._remove()
        assert self._run() == 0, self._output.read_text()
        return self._counter.count

    def kill(self, kills):
        """Make the artifact from nothing, killed by each of the kills in turn, then undisturbed:
        facts for the record.
        """
        before = self._project.finished(but=(self.made,))
        self._remove()
        faults, struck, writes = [], [], False
        for kill in kills:
            self._run(kill.at, getattr(signal, f"SIG{kill.signal}"), kill.torn)
            struck.append(self._counter.struck)
            writes = self._counter.struck_a_write
            if self._is_there():  # then the workflow does not run the stage again
                break
        if not self._is_there() and (status := self._run()) != 0:
            faults.append(f"ended with {status}: {self._output.read_text().strip()[-300:]}")
        faults += self._project.artifact_faults(self.made)
        if self._project.finished(but=(self.made,)) != before:
            faults.append("another artifact was written")
        if faults:
            self._project.restore()
        return {"struck": struck, "writes": writes, "faults": faults}

    def _is_there(self):
        return (self._folder / "manifest.json").exists()

    def _remove(self):
        shutil.rmtree(self._folder)
        self._project.restore_scores()

    def _run(self, *kill):
        self._output.unlink(missing_ok=True)
        self._counter.arm(*kill)
        return self._server.run(self._words, self._output, SECONDS)


def representatives(project):
    """The first artifact of each stage of the two runs, and the pages of several runs."""
    found = {}
    for name, added in project.added.items():
        for made in added:
            stage = pathlib.Path(made).parent.name
            if name in ("autoencoder", "classifier") or name == stage:
                found.setdefault((name, stage), made)
    return list(found.values())


def kill_stages(project, counter, record, seed):
    """Kill at every operation of every stage, then at operations drawn at random; yields after each
    experiment.
    """
    counts = {}
    for made in representatives(project):
        with Stage(project, counter, made) as stage:
            counts[made] = stage.operations()
            for at in range(1, counts[made] + 1):
                for kill in (Kill(at), Kill(at, torn=True)):
                    key = f"stage {made} {kill}"
                    if key not in record:
                        record.add(key, **stage.kill([kill]))
                        yield
                    if not record.line(key)["writes"]:
                        break
    while True:
        rng = random.Random(f"stage {seed} {len(record.lines)}")
        made = rng.choice(list(counts))
        with Stage(project, counter, made) as stage:
            for _ in range(10):
                kills = [
                    Kill(rng.randint(1, counts[made]), rng.choice(SIGNALS))
                    for _ in range(rng.choice((1, 2)))
                ]
                record.add(
                    f"stage {made} {' '.join(map(str, kills))} #{len(record.lines)}",
                    **stage.kill(kills),
                )
                yield


# Chains.


@dataclasses.dataclass(frozen=True)
class Strike:
    """One kill of a command. target: 'group', 'itself' (the process of the operation), 'parent' (of
    it), 'snakemake' or 'process' (any); at: an operation, or None for the moment `after` (seconds).
    """

    signal: str
    target: str
    at: int | None
    after: float

    @classmethod
    def draw(cls, rng, jobs):
        at = rng.randint(1, 40 * jobs) if rng.random() < 0.5 else None
        target = rng.choice(
            ("group", "itself", "parent", "snakemake") if at else ("group", "snakemake", "process")
        )
        return cls(rng.choice(SIGNALS), target, at, rng.uniform(0, 1.5 + jobs))

    def __str__(self):
        return f"{self.signal} {self.target} {f'@{self.at}' if self.at else f'{self.after:.1f} s'}"


class Command:
    """A command of Snakemake that has been started."""

    def __init__(self, server, project, name, output):
        self._server, self._output = server, project.folder / output
        self._output.unlink(missing_ok=True)
        self.process = server.start(project.arguments(name), self._output)

    def wait(self, seconds=SECONDS):
        return self._server.wait(self.process, seconds)

    def last_words(self):
        return self._output.read_text().strip()[-300:]

    def kill(self, number, target, rng):
        """Send the signal to the group, to Snakemake or to any of its processes."""
        with contextlib.suppress(ProcessLookupError):
            if target == "group":
                os.killpg(self.process, number)
            else:
                os.kill(
                    self.process if target == "snakemake" else rng.choice(members(self.process)),
                    number,
                )


def members(session):
    """The processes of a session."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return found or [session]


class Chain:
    """Commands on whole chains; a context manager."""

    def __init__(self, project, counter):
        self._project, self._counter = project, counter
        self._server = Server("snakemake", project.folder, **counter.environment)
        self._stuck = 0  # commands that SIGTERM did not end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()

    def kill(self, rng):
        """(description, facts for the record) of a chain with artifacts removed that is killed and
        run again.
        """
        name = rng.choice(
            [
                name
                for name, (target, *_) in self._project.commands.items()
                for _ in range(3 if target == "report" else 1)
            ]
        )
        page = (self._project.added[name] or [None])[-1]
        removed = self._drawn(rng, page, rng.choice((0, 1, 1, 2, 3))) if page else []
        self._remove(removed, page)
        untouched = self._project.finished(but=removed)
        strikes = [Strike.draw(rng, len(removed) + 1) for _ in range(rng.choice((1, 1, 2)))]
        struck, faults, sessions, self._stuck = [], [], [], 0
        beside = rng.random() < 0.2
        for strike in strikes:
            struck.append(
                self._strike(name, strike, rng, beside and strike is strikes[-1], faults, sessions)
            )
        self._counter.arm()
        command = self._start(name, "output.txt", sessions)
        if (status := command.wait()) != 0:
            faults.append(f"ended with {status}: {command.last_words()}")
        faults += self._left_processes(sessions) + self._project.faults()
        after = self._project.finished(but=removed)
        faults += [
            f"{made} was written again" for made in untouched if after.get(made) != untouched[made]
        ]
        self._project.restore()  # pages tell the times of their parents
        what = (
            f"{name} without {' '.join(removed) or 'its page'}: {', then '.join(map(str, strikes))}"
        )
        return what + (" beside another" if beside else ""), {
            "struck": struck,
            "faults": faults,
            "stuck": self._stuck,
        }

    def _start(self, name, output, sessions):
        command = Command(self._server, self._project, name, output)
        sessions.append(command.process)
        return command

    def _drawn(self, rng, page, count):
        """`count` artifacts that the command makes again if they are missing: the page, and
        ancestors of it one by one.
        """
        removed = [page][:count]
        while len(removed) < count:
            removed.append(
                rng.choice(
                    [made for child in removed for made in self._project.parents(child)] or removed
                )
            )
        return list(dict.fromkeys(removed))

    def _remove(self, removed, page):
        """Remove the artifacts, or the copies of the page alone."""
        for made in removed:
            shutil.rmtree(self._project.folder / made)
        for copy in (self._project.folder / "results").glob("*.*"):
            if page and not removed and (self._project.folder / page / copy.name).exists():
                copy.unlink()

    def _strike(self, name, strike, rng, beside, faults, sessions):
        """Run a command and kill it, and perhaps another one beside it, which has to succeed;
        returns what was struck.
        """
        number = getattr(signal, f"SIG{strike.signal}")
        at = 0 if beside else strike.at or 0
        self._counter.arm()
        first = self._start(name, "output1.txt", sessions)
        target = {"group": kp.GROUP, "itself": kp.ITSELF, "parent": kp.PARENT}.get(
            strike.target, first.process
        )
        self._counter.arm(at, number, target=target)
        other = None
        if beside:
            time.sleep(rng.uniform(0, 1))
            other = self._start(name, "output2.txt", sessions)
        status, sent = first.wait(SECONDS if at else strike.after), False
        if status is None and not self._counter.struck:
            first.kill(
                number, "group" if strike.target in ("itself", "parent") else strike.target, rng
            )
            status, sent = first.wait(), True
        if other and (ended := other.wait()) != 0:
            faults.append(f"the other command ended with {ended}: {other.last_words()}")
        if status is None and not self._gives_up(first, strike):
            faults.append("did not end")
        return self._counter.struck if at else f"after {strike.after:.1f} s" if sent else ""

    def _gives_up(self, command, strike):
        """Kill a command that SIGTERM did not end, as whoever waits for it does: true if that was
        the signal.

        Snakemake 9 waits for ever if SIGTERM comes while its scheduler holds the lock that its
        signal handler takes.
        """
        command.kill(signal.SIGKILL, "group", None)
        command.wait()
        self._stuck += 1
        return strike.signal == "TERM"

    def _left_processes(self, sessions):
        """Wait for orphans; name those that do not end."""
        end = time.monotonic() + SECONDS
        while left := [
            process for session in sessions for process in members(session) if process != session
        ]:
            if time.monotonic() > end:
                return [f"{len(left)} processes are left"]
            time.sleep(0.05)
        return []


def kill_chains(project, counter, record, seed):
    """Kill chains; yields after each experiment."""
    with Chain(project, counter) as chain:
        while True:
            number = len(record.lines)
            what, facts = chain.kill(random.Random(f"chain {seed} {number}"))
            record.add(f"chain {what} #{number}", **facts)
            yield


def operations(record):
    """Stage -> the number of its operations at which it was killed."""
    found = collections.Counter()
    for line in record.lines:
        kind, made, *kills = line["key"].split()
        if kind == "stage" and len(kills) == 1 and not kills[0].endswith("½"):
            found[pathlib.Path(made).parent.name] += 1
    return found


def summary(record):
    """Lines on the kills of the record."""
    faulty = [line for line in record.lines if line["faults"]]
    each = operations(record)
    return "\n".join(
        [
            f"{record.count('stage')} kills of stages and {record.count('chain')} of chains, in {len(record.lines)} "
            f"experiments, of which {len(faulty)} ended with faults",
            f"{sum(line.get('stuck', 0) for line in record.lines)} commands did not end after SIGTERM (a fault of "
            "Snakemake's), were killed, and were finished by the next",
            f"Stages were killed at {sum(each.values())} operations, each once: "
            f"{', '.join(f'{stage} {count}' for stage, count in each.items())}",
            *(f"  {line['key']}: {'; '.join(line['faults'])}" for line in faulty),
        ]
    )


def main():
    arguments = parse()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    record = Record(arguments.folder / "kills.jsonl")
    project, counter = kp.Project(arguments.folder, kp.COMMANDS), kp.Counter(arguments.folder)
    with (
        contextlib.closing(kill_stages(project, counter, record, arguments.seed)) as stages,
        contextlib.closing(kill_chains(project, counter, record, arguments.seed)) as chains,
    ):
        while record.count() < arguments.kills:
            next(chains if record.count("chain") < SHARE * record.count() else stages)
    print(summary(record))
    return int(any(line["faults"] for line in record.lines))


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=1000, metavar="N", help="in all (default %(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        required=True,
        help="for the copy of the project and the record",
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
