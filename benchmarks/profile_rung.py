"""What the kernels of a rung's training step spend their time on, by Nsight Compute; kernel times by Nsight Systems without it.

    python benchmarks/profile_rung.py RUNG [--batch 64]

Nsight Compute prints for each kernel: microseconds; the tensor pipe's or the FMA pipe's share of its peak, whichever is
busier; the shares of level-2 cache and DRAM; the shared-memory pipe's share, and how many of its wavefronts are bank conflicts;
achieved occupancy. The clock rates stay as they are.
"""

import argparse
import csv
import json
import pathlib
import sys
import tempfile

import tools
from cases import gpu_rungs
from ladder.rungs import catalog

HERE = pathlib.Path(__file__).resolve().parent
# Quantity -> metrics, the first that this GPU has: their names differ between architectures.
METRICS = {
    "us": ("gpu__time_duration.sum",),
    "tensor": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
               "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
               "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"),
    "fma": ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"),
    "L2": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"),
    "DRAM": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes.avg.pct_of_peak_sustained_elapsed"),
    "shared": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
}
MICROSECONDS = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1, "us": 1, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6}
SECONDS = 540   # time limit of a profiler
REFUSED = "ERR_NVGPUCTRPERM"


def main(arguments=None):
    arguments = parse(arguments)
    reason = catalog.no_gpu()
    if reason:
        sys.exit(f"profiling {arguments.rung} {reason}")
    step = [sys.executable, str(HERE / "one_step.py"), arguments.rung, "--batch", str(arguments.batch)]
    ncu, nsys = tools.find("ncu"), tools.find("nsys")
    if ncu:
        print(table(profile(ncu, step)))
    elif nsys:
        print("ncu (Nsight Compute) is not installed here, so there are times only:")
        print(times(nsys, step))
    else:
        sys.exit("neither ncu (Nsight Compute) nor nsys (Nsight Systems) is installed here; both come with the CUDA toolkit: "
                 "https://developer.nvidia.com/nsight-compute")


def profile(ncu, step):
    """[{"layer", "operation", "kernel", quantity of METRICS: value}] of the launches of a step."""
    metrics = chosen(known_metrics(ncu))
    with tempfile.NamedTemporaryFile(suffix=".csv") as log:
        status, output = tools.run([ncu, "--csv", "--page", "raw", "--profile-from-start", "off", "--clock-control", "none",
                                    "--print-units", "base",
                                    "--metrics", ",".join(metrics.values()), "--log-file", log.name, *step], SECONDS)
        with open(log.name, encoding="utf-8", errors="replace") as file:
            text = file.read()
    if status != 0:
        sys.exit(fault("ncu", status, [*output, *text.splitlines()]))
    rows = kernels(text.splitlines(), metrics)
    launched = json.loads(next(line for line in reversed(output) if line.startswith("[[")))
    if len(rows) != len(launched):
        sys.exit(f"ncu saw {len(rows)} kernels of {len(launched)} launches")
    return [{"layer": layer, "operation": operation, **row} for (layer, operation, _), row in zip(launched, rows, strict=True)]


def known_metrics(ncu):
    """Names, without suffixes, of the metrics that this GPU has."""
    status, output = tools.run([ncu, "--query-metrics"], SECONDS)
    if status != 0:
        sys.exit(fault("ncu", status, output))
    return {word for line in output for word in line.split()[:1] if "__" in word}


def chosen(known):
    """{quantity: metric} of those that the GPU has; the first of each where ncu's list was not understood."""
    metrics = {quantity: next((name for name in names if not known or name.partition(".")[0] in known), None)
               for quantity, names in METRICS.items()}
    return {quantity: name for quantity, name in metrics.items() if name}


def kernels(lines, metrics):
    """[{"kernel", quantity: value}] from ncu's raw page as CSV: names, units, and a line for each kernel."""
    rows = list(csv.reader(line for line in lines if not line.startswith("==")))
    names, units = rows[0], rows[1]
    profiled = []
    for row in rows[2:]:
        values = dict(zip(names, row, strict=False))
        measured = {quantity: number(values[name]) for quantity, name in metrics.items()}
        measured["us"] *= MICROSECONDS.get(units[names.index(metrics["us"])], 1e-3)
        profiled.append({"kernel": values["Kernel Name"], **measured})
    return profiled


def number(text):
    """ncu's '1,234.5' as a number; 0 for 'n/a' or an empty cell."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def table(rows):
    """The five metrics of every kernel, and their means weighted by time."""
    lines = [f"{'layer':<14}{'kernel':<34}{'us':>9}{'pipe %':>14}{'L2 %':>7}{'DRAM %':>8}{'shared %':>10}{'conflicts %':>13}"
             f"{'occupancy %':>13}"]
    total = sum(row["us"] for row in rows)
    lines += [line(row["layer"], row["kernel"], row) for row in rows]
    mean = {name: sum(row[name] * row["us"] for row in rows) / total for name in rows[0]
            if name not in ("layer", "operation", "kernel", "us", "wavefronts", "conflicts")}
    sums = {name: sum(row.get(name, 0) for row in rows) for name in ("us", "wavefronts", "conflicts")}
    return "\n".join([*lines, line("the step", "mean by time", {**mean, **sums})])


def line(layer, kernel, row):
    pipe = max((name for name in ("tensor", "fma") if name in row), key=lambda name: row[name], default=None)
    busiest = f"{pipe} {row[pipe]:.1f}" if pipe else "?"
    conflicts = 100 * row.get("conflicts", 0) / row["wavefronts"] if row.get("wavefronts") else 0
    cells = [f"{row[name]:.1f}" if name in row else "?" for name in ("L2", "DRAM", "shared", "occupancy")]
    return (f"{layer:<14}{kernel[:33]:<34}{row['us']:>9.1f}{busiest:>14}{cells[0]:>7}{cells[1]:>8}{cells[2]:>10}"
            f"{conflicts:>13.1f}{cells[3]:>13}")


def times(nsys, step):
    """What nsys says of the kernels' times."""
    with tempfile.TemporaryDirectory() as folder:
        status, output = tools.run([nsys, "profile", "--trace=cuda,nvtx", "--capture-range=cudaProfilerApi", "--stats=true",
                                    "--force-overwrite=true", "--output", f"{folder}/step", *step], SECONDS)
    if status != 0:
        sys.exit(fault("nsys", status, output))
    return "\n".join(line for line in output if not line.startswith("[["))


def fault(tool, status, output):
    """Why a profiler failed, in one line."""
    text = "\n".join(output)
    if REFUSED in text:
        return (f"{tool} may not read this GPU's counters ({REFUSED}): run it as root, or let an administrator allow it as "
                f"https://developer.nvidia.com/{REFUSED} says")
    ended = f"was ended after {SECONDS} s" if status is None else f"ended with status {status}"
    said = next((line for line in reversed(output) if "ERROR" in line or "Error" in line), output[-1] if output else "")
    return f"{tool} {ended}: {said.strip()[:200]}"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rung", choices=gpu_rungs())
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
