"""What the command prints: faults as text, JSON and annotations of GitHub, counts as a table; and
its exit statuses.
"""

import dataclasses
import pathlib
import sys

import cuda_emulator
from cuda_emulator import faults, hints
from cuda_emulator.arguments import ArgumentError

RIGHT, WRONG, UNCHECKED, INTERRUPTED = 0, 1, 2, 130
# of a user, or of what is installed; a KernelFault is of arguments that no launch can have
ERRORS = (
    cuda_emulator.CompileError,
    cuda_emulator.KernelFault,
    ArgumentError,
    KeyError,
    OSError,
)

SECTOR = 32  # bytes that a GPU moves at least
ENOUGH = 0.8  # of the bytes that are moved, or of the wavefronts, that is not worth a word


def print_error(error):
    """To stderr, one of ERRORS."""
    what = error.args[0] if isinstance(error, KeyError) else error
    print(f"cuda-emulator: {hints.first_lines(str(what))}", file=sys.stderr)


def text(listed):
    """Lines for a person, of Faults."""
    return [line for fault in listed for line in _lines(fault)]


def _lines(fault):
    place = f"{fault.file}:{fault.line}" if fault.line else fault.kernel
    times = f" ({fault.times} times)" if fault.times > 1 else ""
    yield f"{place}: {fault.severity}: {fault.kind}: {fault.message}{times}"
    if line := faults.source_line(fault.file, fault.line).strip():
        yield f"    {line}"
    if fault.other:
        file, line = fault.other
        yield f"{file}:{line}: the other access"
        if fault.other != (fault.file, fault.line):
            yield f"    {faults.source_line(file, line).strip()}"


def summary(runs):
    """One line for all runs of a kernel."""
    kernel = runs[0].report.kernel
    errors = sum(len(run.report.errors) for run in runs)
    notes = sum(len(run.report.notes) for run in runs)
    seconds = sum(run.report.seconds for run in runs)
    accesses = sum(run.report.accesses for run in runs)
    return (
        f"{kernel}: {totals(errors, notes, len(runs))}, each in {runs[0].orders} orders of threads; "
        f"{accesses:,} accesses watched in {seconds:.1f} s; __CUDA_ARCH__ is {runs[0].architecture}0"
    )


def totals(errors, notes, launches):
    """As "1 error, 0 notes in 2 launches"."""
    return (
        f"{errors} error{'s' * (errors != 1)}, {notes} note{'s' * (notes != 1)} in "
        f"{launches} launch{'es' * (launches != 1)}"
    )


def as_json(runs):
    """A dictionary of plain values."""
    return {
        "kernel": runs[0].report.kernel,
        "architecture": runs[0].architecture,
        "errors": sum(len(run.report.errors) for run in runs),
        "notes": sum(len(run.report.notes) for run in runs),
        "launches": [
            {
                "sizes": run.sizes,
                "grid": run.grid,
                "block": run.block,
                "accesses": run.report.accesses,
                "seconds": round(run.report.seconds, 3),
                "faults": [dataclasses.asdict(fault) for fault in run.report.faults],
            }
            for run in runs
        ],
    }


def annotations(run):
    """Lines that GitHub shows beside the source (workflow commands of its documentation)."""
    for fault in run.report.faults:
        level = "error" if fault.severity == "error" else "notice"
        fields = [f"title={fault.kind}"]
        if fault.line:
            fields = [f"file={_relative(fault.file)}", f"line={fault.line}", *fields]
        yield f"::{level} {','.join(fields)}::{fault.message}"


def _relative(file):
    path, here = pathlib.Path(file), pathlib.Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


# ---- counts


def counted(counts):
    """Lines of a table of Function.count, and a sentence of advice."""
    rows = [("", "requests", "a request", "share used")]
    for key, name in (("loads", "global loads"), ("stores", "global stores")):
        part = counts[key]
        rows.append((name, *_row(part["requests"], part["sectors"], "sectors", _used(part))))
    for key, name in (("shared_loads", "shared loads"), ("shared_stores", "shared stores")):
        part = counts[key]
        rows.append((name, *_row(part["requests"], part["wavefronts"], "wavefronts", _free(part))))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(word.rjust(w) for word, w in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]
    return [*lines, "", advice(counts)]


def _row(requests, parts, word, share):
    if not requests:
        return "0", "", ""
    return f"{requests:,}", f"{parts / requests:.1f} {word}", f"{100 * share:.0f} %"


def _used(traffic):
    """The share of the bytes moved that a warp asked for."""
    return traffic["bytes"] / (SECTOR * traffic["sectors"]) if traffic["sectors"] else 1.0


def _free(traffic):
    """The share of the wavefronts that there were without bank conflicts."""
    return traffic["least"] / traffic["wavefronts"] if traffic["wavefronts"] else 1.0


def advice(counts):
    """A sentence on the traffic that costs most for nothing."""
    wasted = {
        key: counts[key]["sectors"] * (1 - _used(counts[key])) for key in ("loads", "stores")
    } | {
        key: counts[key]["wavefronts"] * (1 - _free(counts[key]))
        for key in ("shared_loads", "shared_stores")
    }
    worst = max(wasted, key=wasted.get)
    share = (_free if worst.startswith("shared") else _used)(counts[worst])
    if share > ENOUGH:
        return "Nothing stands out: warps use what they move, and no bank conflict costs much."
    name = worst.replace("shared_", "shared ").replace("loads", "load").replace("stores", "store")
    if worst.startswith("shared"):
        return (
            f"A {name} takes {1 / share:.1f} times the wavefronts that it needs, for bank conflicts: let the "
            "lanes of a warp touch 32 neighbouring words, or pad the rows of the array by one element."
        )
    return (
        f"Global {worst} use {100 * share:.0f} % of the bytes that they move: let neighbouring threads "
        "touch neighbouring elements, or stage a tile in shared memory."
    )
