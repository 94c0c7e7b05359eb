"""Everything about the GPU rungs in one run of at most 8 minutes, written as JSON after each section.

    python benchmarks/gpu.py --out FILE.json [--rungs gpu_basic,gpu_opt_v1] [--minutes 8]
    python benchmarks/gpu.py --dry-run          what would be measured, with predictions and floors; needs no GPU

Needs NumPy, CuPy (for CUDA 12 or 13) and NVRTC; PyTorch is measured beside where it is installed. Sections: machine, ceilings
(copy, float32, tensor), parity and same bytes twice, training steps by batch (scaled to an epoch of 50,000 images), extraction
of 60,000 images, memory, PyTorch. Every step draws images of its own; timed steps are run again untimed and must end in the
same bytes; a time below the roofline is refused. benchmarks/table.py makes kernels/README.md's table of the record.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import time

import timing
from ladder import comparison, cuda_executor, driver, executors, networks, nvrtc, parity, plan, progress, variants, weights
from ladder.errors import UserError
from ladder.inference import Inference
from timing import roofline

import numpy as np   # isort: skip (after ladder)

IMAGES, ROWS = 50_000, 60_000
BATCHES = (64, 32, 512)   # the one that the table shows first, the one that takes long last
WARM_UP, STEPS = 10, 200
NETWORK = "autoencoder"


def main(arguments=None):
    arguments = parse(arguments)
    rungs = arguments.rungs or table_rungs()
    network = networks.build(NETWORK)
    if arguments.dry_run:
        dry_run(network, rungs)
        return
    try:
        Record(arguments.out, time.monotonic() + 60 * arguments.minutes).measure(network, rungs)
    except UserError as error:
        sys.exit(str(error))


class Record:
    """The record being made; every section is written to `path` as soon as it is there."""

    def __init__(self, path, deadline):
        self.path, self.deadline = path, deadline
        self.data = {"kind": "gpu", "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "left_out": []}

    def measure(self, network, rungs):
        executor = executors.create(rungs[0], 1)
        self.write("machine", machine(executor))
        ceilings = timing.ceilings(executor)
        self.write("ceilings", {"copy_bytes_per_second": ceilings.bytes, "fp32_flop_per_second": ceilings.flop,
                                "tensor_flop_per_second": with_torch(lambda torch_gpu: torch_gpu.matrix_product())})
        del executor
        references = {name: parity.train(network, comparison.REFERENCE, executors.create(comparison.REFERENCE, 1), protocol)
                      for name, protocol in parity.PROTOCOLS.items()}
        for variant in rungs:
            self.add("parity", variant, comparison.check, network, variant, 1, references)
        for batch in BATCHES:
            if batch == BATCHES[-1]:
                for variant in reversed(rungs):
                    self.add("extraction", variant, extraction, network, variant)
            for variant in reversed(rungs):   # the lowest rung takes longest, and can be left out most easily
                self.add("steps", f"{variant}, batch {batch}", train_steps, network, variant, batch, ceilings)
            for name in torch_contenders(batch):
                self.add("torch", f"{name}, batch {batch}", torch_step, name, batch)

    def add(self, section, name, work, *arguments):
        """What work gives into the section, if there is time left; a fault is recorded and the rest goes on."""
        if time.monotonic() > self.deadline:
            self.data["left_out"].append(f"{section}: {name}: out of time")
        else:
            try:
                found = work(*arguments)
            except (UserError, RuntimeError) as error:
                self.data["left_out"].append(f"{section}: {name}: {error}")
            else:
                if section == "parity":
                    self.data.setdefault(section, {})[name] = found
                else:
                    self.data.setdefault(section, []).append(found)
                say(f"{section}: {name}: {json.dumps(found)}")
        self.save()

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


def train_steps(network, variant, batch, ceilings):
    """A row of the steps: median and spread of a training step, with what it was predicted to take and may not beat."""
    def run(clock=None):
        executor = executors.create(variant, 1, "device")
        made, arrays = timing.bind(executor, network, variant, batch, IMAGES, WARM_UP + STEPS)
        clock = clock and timing.Clock(executor)
        for number in range(WARM_UP + STEPS):
            if clock and number >= WARM_UP:
                clock.time(lambda: executor.run(made, arrays))
            else:
                executor.run(made, arrays)
        times = clock and timing.spread(clock.microseconds(), clock.mhz)
        trained = {name: executor.fetch(arrays[name]) for name in network.parameters}
        return made, times, trained, executor.device_bytes()

    made, times, trained, used = run(clock=True)
    checked = batch == BATCHES[0]   # the other batches would take as long again
    if checked and not all(np.array_equal(trained[name], value) for name, value in run()[2].items()):
        raise RuntimeError("two runs of the same steps end in different bytes")
    if not all(np.isfinite(value).all() for value in trained.values()):
        raise RuntimeError("the weights are not finite")
    refuse_impossible(times["median_us"] / 1e6, made, ceilings)
    seconds, steps = times["median_us"] / 1e6, -(-IMAGES // batch)
    return {"variant": variant, "batch": batch, **times, "scaled_epoch_seconds": steps * seconds,
            "scaled": f"{steps} steps of the median, not an epoch that was run", "same_bytes_twice": checked or "not tried",
            "flop": made.flop, "bytes": roofline.plan_bytes(made), "launches": sum(len(step.launches) for step in made.steps),
            "tflop_per_second": made.flop / seconds / 1e12, "share_of_fp32_ceiling": made.flop / seconds / ceilings.flop,
            "predicted_h200_us": 1e6 * roofline.plan_seconds(made, roofline.H200),
            "predicted_us": 1e6 * roofline.plan_seconds(made, ceilings), "bound_by": roofline.bound_by(made, ceilings),
            "planned_bytes": sum(made.bytes_by_kind().values()), "driver_bytes": used}


def refuse_impossible(seconds, made, ceilings):
    """Raise RuntimeError for a time that beats the arithmetic; a whole step's bytes may come from a cache."""
    reason = roofline.impossible(seconds, made.flop, 0, ceilings)
    if reason:
        raise RuntimeError(reason)


def extraction(network, variant):
    """Seconds to compute the features of ROWS images and fetch them, images in memory, nothing written."""
    images = np.random.default_rng(0).integers(0, 256, (ROWS, *network.input_shape), dtype=np.uint8)
    channels = network.input_shape[2]
    encoder = Inference(network, variant, weights.initialize(network, 0), np.full(channels, 1 / 255, np.float32),
                        np.zeros(channels, np.float32), 1, until=network.features)
    for _, values in encoder.batches(images[:256]):
        first = values   # compiles and loads
    started, total = time.perf_counter(), 0
    for _, values in encoder.batches(images):
        total += len(values)
    seconds = time.perf_counter() - started
    if total != ROWS or not np.isfinite(first).all():
        raise RuntimeError(f"{total} of {ROWS} images came back")
    return {"variant": variant, "images": ROWS, "seconds": seconds}


def torch_contenders(batch):
    """Names of what PyTorch is measured with at this batch; none where it is not installed."""
    return with_torch(lambda torch_gpu: [name for name, (*_, compiled) in torch_gpu.CONTENDERS.items()
                                         if not compiled or batch in torch_gpu.BATCHES_COMPILED]) or []


def torch_step(name, batch):
    return with_torch(lambda torch_gpu: torch_gpu.train_step(name, batch, STEPS, WARM_UP))


def with_torch(work):
    """work(torch_gpu), or None where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch_gpu

    return work(torch_gpu)


def table_rungs():
    return [name for name, variant in variants.VARIANTS.items() if variant.executor == "cuda"]


def dry_run(network, rungs):
    """Print what each rung's step takes by its plan, predicted for an H200."""
    print(f"{'rung':<12}{'batch':>6}{'launches':>10}{'GFLOP':>8}{'MB':>8}{'memory':>10}{'predicted us':>14}{'floor us':>10}"
          f"{'s/epoch':>9}")
    for variant in rungs:
        for batch in sorted(BATCHES):
            length = plan.Length(WARM_UP + STEPS, WARM_UP + STEPS)
            made = plan.training_plan(network, variant, batch, plan.Dataset(IMAGES, "uint8"),
                                      timing.optimizers.Optimizer("adam"), length)
            seconds = roofline.plan_seconds(made, roofline.H200)
            needed = sum(cuda_executor.aligned(buffer.bytes) for buffer in made.buffers.values())
            print(f"{variant:<12}{batch:>6}{sum(len(step.launches) for step in made.steps):>10}{made.flop / 1e9:>8.1f}"
                  f"{roofline.plan_bytes(made) / 1e6:>8.0f}{progress.size(needed):>10}{1e6 * seconds:>14.0f}"
                  f"{1e6 * roofline.floor(made.flop, 0, roofline.H200):>10.0f}{-(-IMAGES // batch) * seconds:>9.2f}")
    print("predicted for an H200 (67 TFLOP/s, 4.3 TB/s) from each operation's FLOP and bytes; nothing here was measured")


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="the record, JSON")
    parser.add_argument("--rungs", type=lambda text: text.split(","), help="by default all of a GPU")
    parser.add_argument("--minutes", type=float, default=8, help="no measurement is begun after so many (8)")
    parser.add_argument("--dry-run", action="store_true", help="print plans, predictions and floors; measure nothing")
    parsed = parser.parse_args(arguments)
    for variant in parsed.rungs or ():
        if variant not in table_rungs():
            parser.error(f"{variant} is no GPU rung; there are {', '.join(table_rungs())}")
    if not parsed.dry_run and parsed.out is None:
        parser.error("--out FILE.json says where the record goes (or --dry-run)")
    return parsed


if __name__ == "__main__":
    main()
