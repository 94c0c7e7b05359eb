"""Measurements of the GPU rungs and of PyTorch on this machine's GPU, written to DIR/record.json as each section ends.

    python benchmarks/gpu.py --out DIR [--minutes 9] [--rungs gpu_basic,gpu_opt_v1] [--torch-python PYTHON]
    python benchmarks/gpu.py --dry-run          list the steps, with predictions and lower bounds; needs no GPU

Called again with the same DIR, it goes on where the time ran out. Sections, the most important first: the machine; ceilings;
parity of every rung, the newest first; training steps of the autoencoder in batches of 64 and 32, rungs and PyTorch in
turns; seconds of an epoch and of an extraction; an SVM by cuML; streamed images; LeNet-5, ResNet-18 and ResNet-50; batches of
512; every multiplier.

The rungs run in one process and PyTorch in another, each with a time limit: a section that fails, hangs or breaks CUDA is
recorded with its reason, its process is replaced, and the rest runs. A rung that gives other bytes in a second run, or that is
faster than the GPU's arithmetic, has no time in the record; one that is not within its tolerance has, marked, and is never the
fastest. An edit of the program discards the sections that depend on what was edited (record.MEASURED_WITH).

Needs NumPy, CuPy (for CUDA 12 or 13) and, for kernels that are not compiled yet, NVRTC. Without Numba, NumPy computes what
parity is compared with. PyTorch, in this environment or that of --torch-python, and cuML are measured where they are installed.
benchmarks/table.py makes the tables.
"""

import argparse
import importlib.util
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import cases
import race
import roofline
from cases import HEADLINES, LARGE, OTHERS
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import gpus
from ladder.machine.worker import Failed, Worker
from ladder.network import optimizers
from ladder.progress import size
from ladder.rungs import catalog
from ladder.training import plan
from record import Record
from sections import sections

MODULES = {"rungs": "rung_work", "torch": "torch_gpu"}   # kind of work -> the module that does it in a process of its own
HERE = pathlib.Path(__file__).resolve().parent
TORCH_PYTHON = HERE.parent / ".venv-benchmark/bin/python"
SPARE = 20   # seconds that a call may take longer than it was given, to say that the GPU cannot be used
STATE = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "power.limit", "utilization.gpu")   # of nvidia-smi


def main(arguments=None):
    arguments = parse(arguments)
    if arguments.dry_run:
        dry_run(arguments.rungs or cases.gpu_rungs())
        return
    gpus.claim()
    reason = catalog.no_gpu()
    if reason:
        sys.exit(f"benchmarks/gpu.py {reason}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    session = Session(arguments.out, 60 * arguments.minutes, arguments.torch_python or find_torch())
    finish(session, "nothing was measured", cases.newest_first(arguments.rungs))


def finish(session, failed, *work):
    """Run a session with this work, and close it; one that cannot begin or is stopped ends the program in one line."""
    try:
        session.run(*work)
    except Failed as error:
        sys.exit(f"{failed}: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")
    finally:
        session.close()


class Session:
    """One call of this program: its processes, its time, and the record."""

    def __init__(self, out, seconds, torch_python, begun=None):
        self.out, self.record = out, None
        self.begun, self.seconds = begun or time.monotonic(), seconds
        self.pythons = {"rungs": sys.executable, "torch": torch_python}
        self._workers, self._state = {}, {}   # _state: of the GPU, after the section before
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # an exception, so that the processes are ended too

    def run(self, rungs, wanted=sections):
        """All wanted sections: those never tried, those that had to wait, and those that failed in an earlier call.

        wanted: see sections.sections. Raises Failed if no rung can run.
        """
        machine = self.call("rungs", "machine", limit=min(240, max(self.left, SPARE)))
        self.record, reason = Record.open(self.out / "record.json", machine)
        if reason:
            say(reason)
        self._state = state(machine)
        failed = {name for name, section in self.record.data["sections"].items() if "failed" in section}
        waiting, tried = {}, set()
        for skipped, patient in ((failed, True), (failed, False), (set(), False)):
            for section in wanted(self.record, rungs, self.pythons["torch"]):
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
        """The result of a function of MODULES[kind]; after a Failed, the next call has a new process."""
        if kind not in self._workers:
            self._workers[kind] = Worker(str(self.pythons[kind]), MODULES[kind], HERE, self.out / "log.txt")
        try:
            return self._workers[kind].call(name, *arguments, limit=limit)
        except Failed:
            del self._workers[kind]
            raise

    @property
    def left(self):
        """Seconds left."""
        return self.begun + self.seconds - time.monotonic()

    def close(self):
        for worker in self._workers.values():
            worker.stop()
        self._workers = {}

    def _is_done(self, section):
        """True if the record has its result, of the same things, and nothing in it was cut off by the end of the time."""
        result = self.record.result(section.name)
        if result is None or self.record.of(section.name) != section.of:
            return False
        return race.LATE not in result.get("failed", {}).values()

    def _make(self, section):
        """Measure a section and keep its outcome; False, and nothing is kept, where the end of the time cut it off."""
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
        self.record.keep(section.name, {"of": section.of, **outcome, "seconds": seconds, "before": before,
                                        "after": self._state})
        say(f"{section.name} ({seconds:.0f} s): {brief(outcome)}")
        return True

    def _forget(self):
        for kind in list(self._workers):
            try:
                self.call(kind, "forget", limit=min(30, max(self.left, 5)))
            except Failed:
                pass   # its process is replaced


# ---- this machine

def find_torch():
    """An interpreter that has PyTorch: this one, the shell's, or that of `make benchmark`; None without one."""
    if importlib.util.find_spec("torch"):
        return sys.executable
    for python in filter(None, map(shutil.which, ("python3", str(TORCH_PYTHON)))):
        if subprocess.run([python, "-c", "import tomllib, numpy, torch"], capture_output=True).returncode == 0:
            return python
    return None


def state(machine):
    """Clocks, temperature and power of the GPU now, by nvidia-smi; {} without it."""
    command = ["nvidia-smi", f"--id={machine['pci_address']}", f"--query-gpu={','.join(STATE)}",
               "--format=csv,noheader,nounits"]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = outcome.stdout.strip().split(", ")
    return dict(zip(STATE, values, strict=True)) if outcome.returncode == 0 and len(values) == len(STATE) else {}


# ---- what is printed

def brief(outcome):
    """An outcome in a line."""
    if "failed" in outcome:
        return f"FAILED: {outcome['failed']}"
    result = outcome["result"]
    if "failed" in result:   # a race
        rows = sorted(result["rows"], key=lambda row: row["median_us"])
        lost = [f"{name} FAILED: {reason}" for name, reason in result["failed"].items()]
        return "; ".join([*(f"{row['name']} {row['median_us']:.0f} us" for row in rows), *lost])
    if "us" in result:
        return f"{statistics.median(result['us']):.0f} us"
    text = json.dumps(result, default=float)
    return text if len(text) < 400 else f"{text[:400]}…"


def summary(record):
    failed = [name for name, section in record.data["sections"].items() if "failed" in section]
    waiting = record.data["left_out"]
    lines = [f"{record.path}: {len(record.data['sections']) - len(failed)} sections measured, {len(failed)} failed"]
    if waiting:
        lines.append(f"out of time for {len(waiting)}; the same command goes on with: {', '.join(waiting[:5])}"
                     + (" ..." if len(waiting) > 5 else ""))
    return "\n".join(lines)


def dry_run(rungs):
    """Print the predicted cost of each rung's step on an H200."""
    print(f"{'network':<12}{'rung':<12}{'batch':>6}{'launches':>10}{'GFLOP':>8}{'MB':>8}{'memory':>10}{'predicted us':>14}"
          f"{'floor us':>10}{'s/epoch':>9}")
    for case in (*HEADLINES, LARGE, *OTHERS):
        for rung in rungs:
            settings = plan.Settings(network=case.network, variant=rung, batch_size=case.batch,
                                     optimizer=optimizers.Optimizer("adam"), multipliers=plan.made_for(rung))
            lowered = plan.training_plan(settings, plan.Dataset(case.images, "uint8"), plan.Length(1, 1))
            ceilings = roofline.H200[cases.products(rung)]
            seconds = roofline.plan_seconds(lowered, ceilings)
            needed = sum(cuda_executor.aligned(buffer.bytes) for buffer in lowered.buffers.values())
            print(f"{case.name:<12}{rung:<12}{case.batch:>6}{sum(len(step.launches) for step in lowered.steps):>10}"
                  f"{lowered.flop / 1e9:>8.1f}{roofline.plan_bytes(lowered) / 1e6:>8.0f}{size(needed):>10}"
                  f"{1e6 * seconds:>14.0f}{1e6 * roofline.floor(lowered.flop, 0, ceilings):>10.0f}"
                  f"{-(-case.images // case.batch) * seconds:>9.2f}")
    print(f"predicted for an H200 ({roofline.in_words()}) from each operation's FLOP and bytes; nothing here was measured")


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="folder of the record, and of log.txt")
    parser.add_argument("--rungs", type=lambda text: text.split(","), help="by default all of a GPU")
    parser.add_argument("--minutes", type=float, default=9, help="everything ends after this many minutes (9)")
    parser.add_argument("--torch-python", type=pathlib.Path, metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--dry-run", action="store_true", help="print plans, predictions and floors; measure nothing")
    parsed = parser.parse_args(arguments)
    for rung in parsed.rungs or ():
        if rung not in cases.gpu_rungs():
            parser.error(f"{rung} is no GPU rung; the GPU rungs are {', '.join(cases.gpu_rungs())}")
    if not parsed.dry_run and parsed.out is None:
        parser.error("--out DIR says where the record goes (or --dry-run)")
    return parsed


if __name__ == "__main__":
    main()
