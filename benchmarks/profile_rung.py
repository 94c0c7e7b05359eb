"""Sections of Nsight Compute: what each kernel of a rung's training step spends its time on.

Of a kernel: microseconds; the shares of their peaks of the tensor pipe, the FMA pipe, level 2, DRAM
and shared memory; wavefronts of shared memory, and how many are bank conflicts; bytes that level 2
moves, and that it sends to multiprocessors; instructions of wgmma; cycles in which an instruction
is issued; achieved occupancy. Clock rates and caches stay as they are.
"""

import csv
import functools
import json
import pathlib
import sys
import tempfile

import programs
from ladder.machine.worker import Failed
from sections import Section, runnable

HERE = pathlib.Path(__file__).resolve().parent
# Quantity -> metrics, the first that this GPU has: their names differ between architectures.
METRICS = {
    "us": ("gpu__time_duration.sum",),
    "tensor": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    ),
    "fma": (
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    ),
    "L2": (
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    ),
    "DRAM": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__bytes.avg.pct_of_peak_sustained_elapsed",
    ),
    "shared": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "level 2 bytes": ("lts__t_bytes.sum",),
    "bytes from level 2": ("l1tex__m_xbar2l1tex_read_bytes.sum",),
    "wgmma": ("sm__inst_executed_pipe_tensor_op_gmma.sum",),
    "issue": ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
}
MICROSECONDS = {
    "nsecond": 1e-3,
    "ns": 1e-3,
    "usecond": 1,
    "us": 1,
    "msecond": 1e3,
    "ms": 1e3,
    "second": 1e6,
    "s": 1e6,
}
SECONDS = 60  # time limit of a rung
REFUSED = "ERR_NVGPUCTRPERM"


def sections(rungs):
    """A Section for each rung that this GPU runs; none where ncu is not installed."""
    program = programs.find("ncu")
    for rung in runnable(rungs) if program else ():
        yield Section(
            section_name(rung),
            lambda session, seconds, rung=rung: profile(program, rung, seconds),
            SECONDS,
        )


def section_name(rung):
    return f"ncu: {rung}"


def profile(ncu, rung, seconds):
    """{"launches": [{"place", "kernel", quantity of METRICS: value}]} of a step's launches; raises
    Failed, why in one line.
    """
    metrics, step = chosen(known_metrics(ncu)), [sys.executable, str(HERE / "one_step.py"), rung]
    with tempfile.NamedTemporaryFile(suffix=".csv") as log:
        status, output = programs.run(
            [
                ncu,
                "--csv",
                "--page",
                "raw",
                "--profile-from-start",
                "off",
                "--clock-control",
                "none",
                "--cache-control",
                "none",
                "--print-units",
                "base",
                "--metrics",
                ",".join(metrics.values()),
                "--log-file",
                log.name,
                *step,
            ],
            seconds,
        )
        text = pathlib.Path(log.name).read_text("utf-8", "replace")
    if status != 0:
        raise fault(status, [*output, *text.splitlines()], seconds)
    rows = kernels(text.splitlines(), metrics)
    launched = json.loads(next(line for line in reversed(output) if line.startswith("[[")))
    if len(rows) != len(launched):
        raise Failed(f"ncu saw {len(rows)} kernels of {len(launched)} launches")
    return {
        "launches": [
            {"place": place, "kernel": kernel, **row}
            for (place, kernel), row in zip(launched, rows, strict=True)
        ]
    }


@functools.cache
def known_metrics(ncu):
    """Names, without suffixes, of the metrics that this GPU has."""
    status, output = programs.run([ncu, "--query-metrics"], SECONDS)
    if status != 0:
        raise fault(status, output, SECONDS)
    return {word for line in output for word in line.split()[:1] if "__" in word}


def chosen(known):
    """{quantity: metric} of those that the GPU has; the first of each where ncu's list was not
    understood.
    """
    metrics = {
        quantity: next(
            (name for name in names if not known or name.partition(".")[0] in known), None
        )
        for quantity, names in METRICS.items()
    }
    return {quantity: name for quantity, name in metrics.items() if name}


def kernels(lines, metrics):
    """[{quantity: value}] from ncu's raw page as CSV: names, units, and a line for each kernel."""
    rows = list(csv.reader(line for line in lines if not line.startswith("==")))
    names, units = rows[0], rows[1]
    profiled = []
    for row in rows[2:]:
        values = dict(zip(names, row, strict=False))
        measured = {quantity: number(values[name]) for quantity, name in metrics.items()}
        measured["us"] *= MICROSECONDS.get(units[names.index(metrics["us"])], 1e-3)
        profiled.append(measured)
    return profiled


def number(text):
    """ncu's '1,234.5' as a number; 0 for 'n/a' or an empty cell."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def fault(status, output, seconds):
    """Why ncu failed."""
    if REFUSED in "\n".join(output):
        return Failed(
            f"ncu may not read this GPU's counters ({REFUSED}): run it as root, or let an administrator allow it as "
            f"https://developer.nvidia.com/{REFUSED} says"
        )
    if status is None:
        return Failed(f"was ended after {seconds:.0f} s", timed_out=True)
    said = next(
        (line for line in reversed(output) if "ERROR" in line or "Error" in line),
        output[-1] if output else "",
    )
    return Failed(f"ncu ended with status {status}: {said.strip()[:200]}")
