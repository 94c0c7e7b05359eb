"""Images per second of a training step on the CPU: the cpu rung and PyTorch, side by side.

    python benchmarks/cpu.py --torch-python .venv-benchmark/bin/python [--threads 2] [--out FILE.json]

Both train the same autoencoder with Adam on the same random images, float32, same batch, same threads. They run in turns,
each turn a process of its own, so that a noisy machine hits both; a figure is the median step over all turns.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow/scripts"))

from ladder import executors, networks, optimizers, plan, runtime, weights  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
import numpy as np  # noqa: E402

BATCHES = (32, 64)
TURNS = 3
WARM_UP, STEPS = 2, 8


def main():
    arguments = parse()
    if arguments.worker:
        print(json.dumps(time_steps(arguments.worker, arguments.threads)))
        return
    machine = {name: value for name, value in runtime.machine().items() if name != "host"}
    record = {"machine": machine, "threads": arguments.threads, "rows": []}
    print(f"{record['machine']['processor']}, {arguments.threads} threads, {record['machine']['blas']}")
    print(f"{'batch':>5}  {'what':<28}{'images/s':>9}{'spread':>14}{'ratio':>8}")
    for batch in BATCHES:
        contenders = commands(arguments, batch)
        steps = {name: [] for name in contenders}
        for _ in range(TURNS):
            for name, command in contenders.items():
                steps[name] += measure(command)
        for name, seconds in steps.items():
            record["rows"].append(row := summary(batch, name, seconds, steps["Kernel Ladder, cpu"]))
            print(f"{batch:>5}  {name:<28}{row['images_per_second']:>9.1f}"
                  f"{row['slowest']:>7.1f}-{row['fastest']:.1f}{row['ladder_is_faster_by']:>8.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


def commands(arguments, batch):
    """Name -> command of a process that prints the seconds of its steps as JSON."""
    threads = str(arguments.threads)
    found = {"Kernel Ladder, cpu": [sys.executable, __file__, "--worker", str(batch), "--threads", threads]}
    if arguments.torch_python:
        for layout in ("channels_last", "contiguous"):
            found[f"PyTorch fp32 {layout}"] = [arguments.torch_python, str(HERE / "torch_step.py"), str(batch), layout, threads,
                                               str(WARM_UP), str(STEPS)]
    return found


def measure(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def summary(batch, name, seconds, ladder_seconds):
    median = statistics.median(seconds)
    return {"batch": batch, "name": name, "images_per_second": batch / median, "fastest": batch / min(seconds),
            "slowest": batch / max(seconds), "ladder_is_faster_by": median / statistics.median(ladder_seconds)}


def time_steps(batch, threads):
    """Seconds of each timed training step of the cpu rung."""
    network, length = networks.build("autoencoder"), plan.Length(WARM_UP + STEPS, WARM_UP + STEPS)
    rows = batch * length.steps
    images = np.random.default_rng(0).integers(0, 256, (rows, *network.input_shape), dtype=np.uint8)
    made = plan.training_plan(network, "cpu", batch, plan.Dataset(rows, "uint8"), optimizers.Optimizer("adam"), length)
    executor = executors.create("cpu", threads)
    arrays = executor.allocate(made, {
        **weights.initialize(network, 0), "images": images, "permutation": np.arange(rows),
        "scale": np.full(3, 1 / 255, np.float32), "learning_rates": optimizers.learning_rates(1e-3, length)})
    seconds = []
    for _ in range(length.steps):
        started = time.perf_counter()
        executor.run(made, arrays)
        seconds.append(time.perf_counter() - started)
    return seconds[WARM_UP:]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="an interpreter that has PyTorch; without one only the cpu rung is timed")
    parser.add_argument("--threads", type=int, default=runtime.available_cores())
    parser.add_argument("--out", type=pathlib.Path, help="write the record there as JSON")
    parser.add_argument("--worker", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
