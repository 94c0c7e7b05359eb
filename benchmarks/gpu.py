"""All measurements of the GPU rungs in one run of at most 8 minutes, written as JSON after each section.

    python benchmarks/gpu.py --out FILE.json [--rungs gpu_basic,gpu_opt_v1] [--minutes 7]
    python benchmarks/gpu.py --dry-run          list the measurements, with predictions and lower bounds; needs no GPU

Needs NumPy, CuPy (for CUDA 12 or 13) and NVRTC; PyTorch is measured too if it is installed. Sections: machine; ceilings (copy,
float32, tensor); autoencoder: parity, reproducibility, training steps by batch size (scaled to an epoch of 50,000 images),
extraction of 60,000 images, memory, PyTorch; LeNet-5, ResNet-18 and ResNet-50: parity, training steps, PyTorch; ResNet-18 with
half as many filters: training steps with every multiplier.
Every step uses new images; timed steps are repeated untimed and must give the same bytes; a time below the roofline is an
error. benchmarks/table.py makes the table in kernels/README.md from the record.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import sys
import time

import timing
from ladder import progress
from ladder.arithmetic import multipliers
from ladder.data import normalization
from ladder.errors import UserError
from ladder.executors import create as executors
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.network import networks, weights
from ladder.rungs import variants
from ladder.training import measure_rungs, plan
from ladder.training.inference import Inference
from timing import roofline

import numpy as np   # isort: skip (after ladder)

ROWS = 60_000             # images of an extraction
BATCHES = (64, 32, 512)   # of the autoencoder: the table's first, the slowest last
WARM_UP = 10


@dataclasses.dataclass(frozen=True)
class Case:
    """A training to time: `steps` steps of `batch` images; an epoch has `images` images."""

    name: str
    input_shape: tuple
    batch: int
    images: int
    steps: int = 200
    options: tuple = ()   # of the network, (name, value)
    multiplier: str = "exact"

    @property
    def network(self):
        return networks.build(self.name, self.input_shape, **dict(self.options))

    @property
    def settings(self):
        """More fields of plan.Settings."""
        multiplier = multipliers.find(self.multiplier)
        return {"multipliers": multipliers.ByDirection(multiplier, multiplier, multiplier),
                "loss_scale": LOSS_SCALE if self.multiplier == "fp16" else 1}

    @property
    def label(self):
        return f"{self.name}, batch {self.batch}"


AUTOENCODERS = tuple(Case("autoencoder", (32, 32, 3), batch, 50_000) for batch in BATCHES)
# In their forms for CIFAR-10 and for MNIST; the lowest rung takes long for the large ones.
OTHERS = (Case("lenet_5", (28, 28, 1), 64, 60_000), Case("resnet18", (32, 32, 3), 128, 50_000, steps=20),
          Case("resnet50", (28, 28, 1), 32, 60_000, steps=20))
LOSS_SCALE = 1024
MULTIPLIED = tuple(Case("resnet18", (32, 32, 3), 128, 50_000, 20, (("width", 32),), name) for name in multipliers.MULTIPLIERS)


def main(arguments=None):
    arguments = parse(arguments)
    rungs = arguments.rungs or table_rungs()
    if arguments.dry_run:
        dry_run(rungs)
        return
    try:
        Record(arguments.out, time.monotonic() + 60 * arguments.minutes).measure(rungs)
    except UserError as error:
        sys.exit(str(error))


class Record:
    """The record in progress; every section is written to `path` as soon as it is complete."""

    def __init__(self, path, deadline):
        self.path, self.deadline = path, deadline
        self.data = {"kind": "gpu", "made": progress.utc(), "left_out": []}

    def measure(self, rungs):
        executor = executors.create(rungs[0], 1)
        self.write("machine", machine(executor))
        ceilings = timing.ceilings(executor)
        self.write("ceilings", {"copy_bytes_per_second": ceilings.bytes, "fp32_flop_per_second": ceilings.flop,
                                "tensor_flop_per_second": with_torch(lambda torch_gpu: torch_gpu.matrix_product())})
        del executor
        shown, *others = AUTOENCODERS
        self.check(self.data, shown, rungs)
        self.time(self.data, shown, rungs, ceilings)
        for case in OTHERS:
            section = self.data.setdefault("networks", {}).setdefault(case.name, {"batch": case.batch})
            self.check(section, case, rungs)
            self.time(section, case, rungs, ceilings)
        for variant in reversed(rungs):
            self.add(self.data, "extraction", variant, extraction, shown.network, variant)
        for case in MULTIPLIED:
            for variant in reversed(rungs):
                self.add(self.data, "multipliers", f"{case.label}, {case.multiplier}, {variant}", train_steps, case, variant,
                         ceilings)
        for case in others:
            self.time(self.data, case, rungs, ceilings)

    def check(self, into, case, rungs):
        """Parity and reproducibility of every rung."""
        if self.is_late(f"parity: {case.name}"):
            return
        network, threads = case.network, os.cpu_count()
        references = measure_rungs.references(network, threads)
        for variant in rungs:
            self.add(into, "parity", f"{case.name}, {variant}", lambda variant=variant: {
                variant: measure_rungs.check(network, variant, threads, references)})

    def time(self, into, case, rungs, ceilings):
        """Training steps of every rung, and of PyTorch."""
        for variant in reversed(rungs):   # the lowest rung is the slowest and the most dispensable
            self.add(into, "steps", f"{case.label}, {variant}", train_steps, case, variant, ceilings)
        for name in torch_contenders(case):
            self.add(into, "torch", f"{case.label}, {name}", torch_step, name, case)

    def add(self, into, section, name, work, *arguments):
        """Append the result of work to a section, if there is time left; an error is recorded and the run continues."""
        if self.is_late(f"{section}: {name}"):
            return
        try:
            found = work(*arguments)
        except (UserError, RuntimeError) as error:
            self.data["left_out"].append(f"{section}: {name}: {error}")
        else:
            if section == "parity":
                into.setdefault(section, {}).update(found)
            else:
                into.setdefault(section, []).append(found)
            say(f"{section}: {name}: {json.dumps(found)}")
        self.save()

    def is_late(self, name):
        """True if there is no time left to begin this, which is then recorded."""
        late = time.monotonic() > self.deadline
        if late:
            self.data["left_out"].append(f"{name}: out of time")
            self.save()
        return late

    def write(self, section, value):
        self.data[section] = value
        say(f"{section}: {json.dumps(value)}")
        self.save()

    def save(self):
        temporary = self.path.with_name(f".{self.path.name}.new")
        temporary.write_text(json.dumps(self.data, indent=1) + "\n")
        temporary.replace(self.path)


def machine(executor):
    gpu = driver.gpu()
    return {"device": executor.device(), "gpu": gpu.name, "architecture": gpu.architecture, "memory_bytes": gpu.memory_bytes,
            "driver": driver.version(), "driver_cuda": driver.cuda_version(), "nvrtc": nvrtc.version(),
            "cupy": executor.cupy.__version__, "python": sys.version.split()[0], "numpy": np.__version__,
            "torch": with_torch(lambda torch_gpu: torch_gpu.torch.__version__)}


def train_steps(case, variant, ceilings):
    """A row of the steps: median and spread of a training step, its prediction and its lower bound."""
    network, warm_up = case.network, min(WARM_UP, case.steps)

    def run(clock=None):
        executor = executors.create(variant, 1, "device")
        made, arrays = timing.bind(executor, network, variant, case.batch, case.images, warm_up + case.steps,
                                   **case.settings)
        clock = clock and timing.Clock(executor)
        for number in range(warm_up + case.steps):
            if clock and number >= warm_up:
                clock.time(lambda: executor.run(made, arrays))
            else:
                executor.run(made, arrays)
        times = clock and timing.spread(clock.microseconds(), clock.mhz)
        trained = {name: executor.fetch(arrays[name]) for name in weights.shapes(network)}
        return made, times, trained, executor.device_bytes()

    made, times, trained, used = run(clock=True)
    checked = case in (AUTOENCODERS[0], *OTHERS, *MULTIPLIED)   # checking the other batches would double their time
    if checked and not all(np.array_equal(trained[name], value) for name, value in run()[2].items()):
        raise RuntimeError("two runs of the same steps end in different bytes")
    if not all(np.isfinite(value).all() for value in trained.values()):
        raise RuntimeError("the weights are not finite")
    refuse_impossible(times["median_us"] / 1e6, made, ceilings)
    seconds, steps = times["median_us"] / 1e6, -(-case.images // case.batch)
    return {"variant": variant, "batch": case.batch, "multiplier": case.multiplier, **times,
            "scaled_epoch_seconds": steps * seconds,
            "scaled": f"{steps} steps of the median, not an epoch that was run", "same_bytes_twice": checked or "not tried",
            "flop": made.flop, "bytes": roofline.plan_bytes(made), "launches": sum(len(step.launches) for step in made.steps),
            "tflop_per_second": made.flop / seconds / 1e12, "share_of_fp32_ceiling": made.flop / seconds / ceilings.flop,
            "predicted_h200_us": 1e6 * roofline.plan_seconds(made, roofline.H200),
            "predicted_us": 1e6 * roofline.plan_seconds(made, ceilings), "bound_by": roofline.bound_by(made, ceilings),
            "planned_bytes": sum(made.bytes_by_kind().values()), "driver_bytes": used}


def refuse_impossible(seconds, made, ceilings):
    """Raise RuntimeError for a time that beats the arithmetic; memory traffic does not count, it may come from a cache."""
    reason = roofline.impossible(seconds, made.flop, 0, ceilings)
    if reason:
        raise RuntimeError(reason)


def extraction(network, variant):
    """Seconds to compute and fetch the features of ROWS images in memory."""
    images = np.random.default_rng(0).integers(0, 256, (ROWS, *network.input_shape), dtype=np.uint8)
    encoder = Inference(network, variant, weights.initialize(network, 0), normalization.measure("unit", images), 1,
                        until=network.features)
    for _, values in encoder.batches(images[:256]):
        first = values   # compiles and loads
    started, total = time.perf_counter(), 0
    for _, values in encoder.batches(images):
        total += len(values)
    seconds = time.perf_counter() - started
    if total != ROWS or not np.isfinite(first).all():
        raise RuntimeError(f"{total} of {ROWS} images came back")
    return {"variant": variant, "images": ROWS, "seconds": seconds}


def torch_contenders(case):
    """Names of PyTorch's configurations, [] without PyTorch; compiled ones, which start slowly, for the autoencoder only."""
    def names(torch_gpu):
        return [name for name, (*_, compiled) in torch_gpu.CONTENDERS.items()
                if not compiled or (case in AUTOENCODERS and case.batch in torch_gpu.BATCHES_COMPILED)]

    return with_torch(names) or []


def torch_step(name, case):
    return with_torch(lambda torch_gpu: torch_gpu.train_step(name, case.network, case.batch, case.steps, WARM_UP))


def with_torch(work):
    """work(torch_gpu), or None without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch_gpu

    return work(torch_gpu)


def table_rungs():
    return [name for name, variant in variants.VARIANTS.items() if variant.executor == "cuda"]


def dry_run(rungs):
    """Print the predicted cost of each rung's step on an H200."""
    print(f"{'network':<12}{'rung':<12}{'batch':>6}{'launches':>10}{'GFLOP':>8}{'MB':>8}{'memory':>10}{'predicted us':>14}"
          f"{'floor us':>10}{'s/epoch':>9}")
    for case in (*sorted(AUTOENCODERS, key=lambda case: case.batch), *OTHERS):
        network, length = case.network, plan.Length(WARM_UP + case.steps, WARM_UP + case.steps)
        for variant in rungs:
            settings = plan.Settings(network=network, variant=variant, batch_size=case.batch,
                                     optimizer=timing.optimizers.Optimizer("adam"))
            made = plan.training_plan(settings, plan.Dataset(case.images, "uint8"), length)
            seconds = roofline.plan_seconds(made, roofline.H200)
            needed = sum(cuda_executor.aligned(buffer.bytes) for buffer in made.buffers.values())
            print(f"{case.name:<12}{variant:<12}{case.batch:>6}{sum(len(step.launches) for step in made.steps):>10}"
                  f"{made.flop / 1e9:>8.1f}{roofline.plan_bytes(made) / 1e6:>8.0f}{progress.size(needed):>10}"
                  f"{1e6 * seconds:>14.0f}{1e6 * roofline.floor(made.flop, 0, roofline.H200):>10.0f}"
                  f"{-(-case.images // case.batch) * seconds:>9.2f}")
    print("predicted for an H200 (67 TFLOP/s, 4.3 TB/s) from each operation's FLOP and bytes; nothing here was measured")


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="the record, JSON")
    parser.add_argument("--rungs", type=lambda text: text.split(","), help="by default all of a GPU")
    parser.add_argument("--minutes", type=float, default=7, help="no measurement starts after this many minutes (7)")
    parser.add_argument("--dry-run", action="store_true", help="print plans, predictions and floors; measure nothing")
    parsed = parser.parse_args(arguments)
    for variant in parsed.rungs or ():
        if variant not in table_rungs():
            parser.error(f"{variant} is no GPU rung; the GPU rungs are {', '.join(table_rungs())}")
    if not parsed.dry_run and parsed.out is None:
        parser.error("--out FILE.json says where the record goes (or --dry-run)")
    return parsed


if __name__ == "__main__":
    main()
