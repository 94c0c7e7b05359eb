"""Milliseconds of a training step on the CPU: the cpu rung, PyTorch, TensorFlow and JAX, side by
side.

    python benchmarks/cpu.py --torch-python .venv-benchmark/bin/python --peers-python PYTHON
    [--networks lenet_5,...] [--threads 2] [--load 4] [--out FILE.json]

PYTHON is that of an environment with tensorflow-cpu and jax of your own. All train the same
networks, built from the same table of layers, with Adam on random images, float32, same batch, same
threads; PyTorch as it is and compiled (torch.compile), and where the CPU multiplies bfloat16
numbers PyTorch and TensorFlow also with bfloat16 activations, which the cpu rung does not have.
They run in turns, each turn in a new process, so that a noisy machine affects all; a figure is the
median step over all turns. CPU milliseconds are those of all threads, which other programs disturb
less. A step of the cpu rung includes loading its batch, the others' do not.

FILE is written after each process, and the rows of other networks that it has stay: networks may
be measured one by one. cpu_table.py makes a table of FILE.

With --load so many other processes compute all the time, as on a machine that is shared. A figure
is then the mean step, as the waits of a thread that is not running are rare and long.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow/scripts"))

from ladder.executors import create as executors  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
from ladder.network import networks  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
from ladder.network import optimizers  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
from ladder.plan import plan  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
from ladder.machine import runtime  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
from ladder.network import weights  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
import numpy as np  # noqa: E402

MNIST, CIFAR = (28, 28, 1), (32, 32, 3)
WARM_UP = 3
COMPUTE = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
OURS = "Kernel Ladder, cpu"
# flags in /proc/cpuinfo of CPUs that multiply bfloat16 numbers
BFLOAT16 = {"avx512_bf16", "amx_bf16"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A network, its training images, and the number of timed steps per turn."""

    network: str
    input_shape: tuple
    batch: int
    steps: int


CASES = (
    Case("autoencoder", CIFAR, 32, 8),
    Case("autoencoder", CIFAR, 64, 6),
    Case("lenet_300_100", MNIST, 64, 600),
    Case("lenet_5", MNIST, 64, 300),
    Case("small_cnn", MNIST, 64, 150),
    Case("resnet18", CIFAR, 128, 3),
    Case("resnet50", MNIST, 32, 10),
)


def main():
    arguments = parse()
    if arguments.worker:
        print(json.dumps(time_steps(case_of(json.loads(arguments.worker)), arguments.threads)))
        return
    record = started(arguments)
    print(
        f"{record['machine']['processor']}, {arguments.threads} threads, {record['machine']['blas']}"
    )
    print(
        f"{'network':<16}{'batch':>5}  {'what':<36}{'ms/step':>9}{'fastest to slowest':>22}{'ratio':>7}"
        f"{'CPU ms':>9}{'ratio':>7}{'images/s':>10}"
    )
    for case in CASES:
        if not arguments.networks or case.network in arguments.networks.split(","):
            for measured in growing_rows(case, arguments):
                keep(record, case, measured, arguments.out)
            for row in measured:
                print(
                    f"{case.network:<16}{case.batch:>5}  {row['name']:<36}{row['ms']:>9.2f}"
                    f"{row['fastest_ms']:>12.2f}-{row['slowest_ms']:<9.2f}{row['ladder_is_faster_by']:>7.2f}"
                    f"{row['cpu_ms']:>9.2f}{row['cpu_ratio']:>7.2f}{row['images_per_second']:>10.0f}",
                    flush=True,
                )


def started(arguments):
    """The record in --out, or one without rows; SystemExit if that is of another machine."""
    machine = {name: value for name, value in runtime.machine().items() if name != "host"}
    about = {"machine": machine, "threads": arguments.threads, "load": arguments.load}
    if not (arguments.out and arguments.out.exists()):
        return {**about, "rows": []}
    record = json.loads(arguments.out.read_text("utf-8"))
    if about != {name: record.get(name) for name in about}:
        sys.exit(f"{arguments.out} is of another machine, threads or load: give --out a new file")
    return record


def keep(record, case, measured, out):
    """Put a case's rows into the record, in place of earlier ones, and the record into its file."""
    places = [(each.network, each.batch) for each in CASES]
    here = case.network, case.batch
    others = [row for row in record["rows"] if (row["network"], row["batch"]) != here]
    record["rows"] = sorted(
        [*others, *measured], key=lambda row: places.index((row["network"], row["batch"]))
    )
    if out:
        part = out.with_name(out.name + ".part")
        part.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        part.replace(out)


def growing_rows(case, arguments):
    """After each process the measurements of a case so far, one row per contender."""
    programs = commands(case, arguments)
    steps = {name: [] for name in programs}
    with computing(arguments.load):
        for turn in range(1, arguments.turns + 1):
            for name, command in programs.items():
                began = time.perf_counter()
                steps[name] += measure(command)
                print(
                    f"{case.network} {case.batch}, turn {turn} of {arguments.turns}, {name}: "
                    f"{time.perf_counter() - began:.0f} s",
                    file=sys.stderr,
                )
                yield rows(case, steps, statistics.mean if arguments.load else statistics.median)


def rows(case, steps, figure):
    """A row per contender that has steps; `ladder_is_faster_by` and `cpu_ratio` are ratios of
    figures, medians or means.
    """
    ours, our_cpu = (figure(part) for part in zip(*steps[OURS], strict=True))
    measured = []
    for name, times in steps.items():
        if times:
            seconds, cpu = zip(*times, strict=True)
            typical = figure(seconds)
            measured.append(
                {
                    **dataclasses.asdict(case),
                    "name": name,
                    "turns": len(times) // case.steps,
                    "ms": 1000 * typical,
                    "fastest_ms": 1000 * min(seconds),
                    "slowest_ms": 1000 * max(seconds),
                    "images_per_second": case.batch / typical,
                    "ladder_is_faster_by": typical / ours,
                    "cpu_ms": 1000 * figure(cpu),
                    "cpu_ratio": figure(cpu) / our_cpu,
                }
            )
    return measured


@contextlib.contextmanager
def computing(count):
    """So many other processes that compute, none longer than this one lives."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", COMPUTE]))
            stack.callback(loop.kill)
        yield


def commands(case, arguments):
    """{name: command of a process that prints [wall, CPU] seconds of its steps as JSON}."""
    described = dataclasses.asdict(case)
    common = {**described, "threads": arguments.threads, "warm_up": WARM_UP}
    programs = {
        OURS: [
            sys.executable,
            __file__,
            "--worker",
            json.dumps(described),
            "--threads",
            str(arguments.threads),
        ]
    }
    if arguments.torch_python:
        for precision, layout, form in contenders():
            spec = {**common, "precision": precision, "layout": layout, "form": form}
            command = [arguments.torch_python, str(HERE / "torch_step.py"), json.dumps(spec)]
            programs[f"PyTorch {precision} {layout} {form}"] = command
    if arguments.peers_python:
        for library, precision in peers():
            spec = {**common, "library": library, "precision": precision}
            command = [arguments.peers_python, str(HERE / "peer_step.py"), json.dumps(spec)]
            programs[f"{library} {precision}"] = command
    return programs


def peers():
    """(library, precision) of every row of TensorFlow and JAX."""
    fast = BFLOAT16 & set(runtime.cpu_flags())
    return [
        ("tensorflow", "fp32"),
        *([("tensorflow", "bf16")] if fast else []),
        ("jax", "fp32"),
    ]


def contenders():
    """(precision, layout, form) of every row of PyTorch."""
    fast = BFLOAT16 & set(runtime.cpu_flags())
    layouts = [
        ("fp32", "channels_last"),
        ("fp32", "contiguous"),
        *([("bf16", "channels_last")] if fast else []),
    ]
    return [
        (precision, layout, form) for precision, layout in layouts for form in ("eager", "compiled")
    ]


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def case_of(described):
    return Case(**{**described, "input_shape": tuple(described["input_shape"])})


def time_steps(case, threads):
    """[[wall seconds, CPU seconds of all threads]] of each timed training step of the cpu rung."""
    network, count = networks.build(case.network, case.input_shape), WARM_UP + case.steps
    length, rows = plan.Length(count, count), case.batch * count
    random, channels = np.random.default_rng(0), case.input_shape[2]
    settings = plan.TrainingSettings(
        network=network,
        rung="cpu",
        batch_size=case.batch,
        optimizer=optimizers.Optimizer("adam"),
    )
    lowered = plan.training_plan(settings, plan.Dataset(rows, "uint8"), length)
    executor = executors.create("cpu", threads)
    arrays = executor.allocate(
        lowered,
        executor.upload(
            {
                **weights.initialize(network, 0),
                **{name: np.ones(shape, np.float32) for name, shape in network.state.items()},
                "images": random.integers(0, 256, (rows, *case.input_shape), dtype=np.uint8),
                "labels": random.integers(0, 10, rows, dtype=np.uint8),
                "permutation": np.arange(rows),
                "scale": np.full(channels, 1 / 255, np.float32),
                "learning_rates": optimizers.learning_rates(1e-3, length),
            }
        ),
    )
    seconds = []
    for _ in range(count):
        started = time.perf_counter(), time.process_time()
        executor.run(lowered, arrays)
        seconds.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return seconds[WARM_UP:]


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--torch-python",
        help="an interpreter that has PyTorch; without one only the cpu rung is timed",
    )
    parser.add_argument(
        "--peers-python",
        help="an interpreter that has TensorFlow and JAX, which are then timed too",
    )
    parser.add_argument("--networks", help="names with commas between them; by default all")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=runtime.available_cores())
    parser.add_argument(
        "--load", type=int, default=0, help="other processes that compute meanwhile"
    )
    parser.add_argument("--out", type=pathlib.Path, help="the record to write or to complete, JSON")
    parser.add_argument("--worker", metavar="CASE", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what was measured is in the file of --out")
