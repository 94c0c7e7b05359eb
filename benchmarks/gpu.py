"""A call of gpu_check.py: the processes that measure, the time that is left, and the record that
each section is written to.

The rungs run in one process and PyTorch in another, each with a time limit: a section that fails,
hangs or breaks CUDA is recorded with its reason, its process is replaced, and the rest runs. A rung
that gives other bytes in a second run, or that is faster than the GPU's arithmetic, has no time in
the record; one that is not within its tolerance has, marked, and is never the fastest. An edit of
the program discards the sections that depend on what was edited (record.MEASURED_WITH).
"""

import importlib.util
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import race
from ladder.machine.worker import Failed, Worker
from ladder.store import disk
from record import Record

# kind of work -> the module that does it in a process of its own
MODULES = {"rungs": "rung_work", "torch": "torch_gpu"}
HERE = pathlib.Path(__file__).resolve().parent
TORCH_PYTHON = HERE.parent / ".venv-benchmark/bin/python"
# the last: to send in
RESULTS = "record*.json", "log.txt", "index.html", "report.html", "*-????-??-??.json"
# seconds that a call may take longer than it was given, to say that the GPU cannot be used
SPARE = 20
# of nvidia-smi
STATE = (
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "utilization.gpu",
)


class Session:
    """One call: its processes, its time, and the record, of which `mirror`, a folder or None, has a
    copy after each section.
    """

    def __init__(self, out, seconds, torch_python, begun, mirror=None):
        self.out, self.record, self.mirror = out, None, mirror
        self.begun, self.seconds = begun, seconds
        self.pythons = {"rungs": sys.executable, "torch": torch_python}
        self._workers, self._state = {}, {}  # _state: of the GPU, after the section before
        # an exception, so that the processes are ended too
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def run(self, wanted):
        """All wanted sections: those never tried, those that had to wait, and those that failed in
        an earlier call.

        wanted(record): Sections; what a later one measures may depend on the results of earlier
        ones, which are made by then. Raises Failed if no rung can run; SystemExit, in one line,
        where it is stopped.
        """
        machine = self.call("rungs", "machine", limit=min(240, max(self.left, SPARE)))
        self.record, reason = Record.open(self.out / "record.json", machine)
        if reason:
            say(reason)
        self._state = state(machine)
        failed = {
            name for name, section in self.record.data["sections"].items() if "failed" in section
        }
        waiting, tried = {}, set()
        for skipped, patient in ((failed, True), (failed, False), (set(), False)):
            for section in wanted(self.record):
                attempt = section.name, str(section.of)
                if self._is_done(section) or section.name in skipped or attempt in tried:
                    continue
                late = patient and self.left < self.seconds * (1 - section.until)
                if late or self.left < section.least or not self._make(section):
                    waiting[section.name] = True
                else:
                    tried.add(attempt)
                    waiting.pop(section.name, None)
        self.record.leave_out(list(waiting), {name for name, _ in tried})
        say(summary(self.record))

    def call(self, kind, name, *arguments, limit):
        """The result of a function of MODULES[kind]; after a Failed, the next call has a new
        process.
        """
        if kind not in self._workers:
            self._workers[kind] = Worker(
                str(self.pythons[kind]), MODULES[kind], HERE, self.out / "log.txt"
            )
        try:
            return self._workers[kind].call(name, *arguments, limit=limit)
        except Failed:
            del self._workers[kind]
            raise

    @property
    def left(self):
        """Seconds left."""
        return self.begun + self.seconds - time.monotonic()

    def copy(self):
        """Copy the files of results to the mirror."""
        try:
            for path in (
                path for pattern in RESULTS for path in self.out.glob(pattern) if self.mirror
            ):
                disk.write_atomically(self.mirror / path.name, path.read_bytes())
        except OSError as error:  # of a disk that is full: the measurements go on
            say(f"not copied to {self.mirror}: {error}")

    def close(self):
        for worker in self._workers.values():
            worker.stop()
        self._workers = {}

    def _is_done(self, section):
        """True if the record has its result, of the same things, and nothing in it was cut off by
        the end of the time.
        """
        result = self.record.result(section.name)
        if result is None or self.record.measured_of(section.name) != section.of:
            return False
        return race.LATE not in result.get("failed", {}).values()

    def _make(self, section):
        """Measure a section and keep its outcome; False, and nothing is kept, where the end of the
        time cut it off.
        """
        started, limit = time.monotonic(), min(section.limit, self.left)
        try:
            outcome = {"result": section.work(self, limit)}
        except Failed as error:
            if error.timed_out and self.left < 2:
                return False
            outcome = {"failed": str(error)}
        self._forget()
        seconds, before = round(time.monotonic() - started, 2), self._state
        self._state = state(self.record.data["machine"])
        self.record.keep(
            section.name,
            {
                "of": section.of,
                **outcome,
                "seconds": seconds,
                "before": before,
                "after": self._state,
            },
        )
        self.copy()
        say(f"{section.name} ({seconds:.0f} s): {brief(outcome)}")
        return True

    def _forget(self):
        for kind in list(self._workers):
            try:
                self.call(kind, "forget", limit=min(30, max(self.left, 5)))
            except Failed:
                pass  # its process is replaced


# ---- this machine


def find_torch():
    """An interpreter that has PyTorch: this one, the shell's, or that of `make benchmark`; None
    without one.
    """
    if importlib.util.find_spec("torch"):
        return sys.executable
    for python in filter(None, map(shutil.which, ("python3", str(TORCH_PYTHON)))):
        if (
            subprocess.run(
                [python, "-c", "import tomllib, numpy, torch"], capture_output=True
            ).returncode
            == 0
        ):
            return python
    return None


def state(machine):
    """Clocks, temperature and power of the GPU now, by nvidia-smi; {} without it."""
    command = [
        "nvidia-smi",
        f"--id={machine['pci_address']}",
        f"--query-gpu={','.join(STATE)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = outcome.stdout.strip().split(", ")
    return (
        dict(zip(STATE, values, strict=True))
        if outcome.returncode == 0 and len(values) == len(STATE)
        else {}
    )


# ---- what is printed


def brief(outcome):
    """An outcome in a line."""
    if "failed" in outcome:
        return f"FAILED: {outcome['failed']}"
    result = outcome["result"]
    if "failed" in result:  # a race
        rows = sorted(result["rows"], key=lambda row: row["median_us"])
        lost = [f"{name} FAILED: {reason}" for name, reason in result["failed"].items()]
        return "; ".join([*(f"{row['name']} {row['median_us']:.0f} us" for row in rows), *lost])
    if "us" in result:
        return f"{statistics.median(result['us']):.0f} us"
    rows = next(
        (
            result[kind]
            for kind in ("launches", "tiles", "rows")
            if isinstance(result.get(kind), list)
        ),
        None,
    )
    if rows is not None:
        return f"{len(rows)} rows" + (
            f", a step {result['step_us']:.0f} us" if "step_us" in result else ""
        )
    text = json.dumps(result.get("summary", result), default=float)
    return text if len(text) < 400 else f"{text[:400]}…"


def summary(record):
    failed = [name for name, section in record.data["sections"].items() if "failed" in section]
    waiting = record.data["left_out"]
    lines = [
        f"{record.path}: {len(record.data['sections']) - len(failed)} sections measured, {len(failed)} failed"
    ]
    if waiting:
        lines.append(
            f"out of time for {len(waiting)}; the same command goes on with: {', '.join(waiting[:5])}"
            + (" ..." if len(waiting) > 5 else "")
        )
    return "\n".join(lines)


def say(text):
    print(text, file=sys.stderr, flush=True)
