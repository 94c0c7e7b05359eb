"""One operation of a rung on the GPU: its time, its share of the roofline, its error, and PyTorch's
time for the same.

    python benchmarks/kernel.py conv2d_forward --rung gpu_basic --shape 64 16 16 256 128
    python benchmarks/kernel.py conv2d_forward --rung gpu_basic --shape 64 16 16 256 128 --dry-run
    needs no GPU

shape: batch, height, width, channels of the layer's input; for a convolution, or a dense layer with
images of 1x1, also filters and optionally kernel, padding and stride (default 3, 1, 1). Each
repetition uses new images, and the level-2 cache is flushed before the operation is timed. The
output of the last repetition is compared with the sequential program in float64. A time below the
roofline is an error.
"""

import argparse
import dataclasses
import importlib.util
import json
import sys

import timing
from cases import precision, products
from ladder.errors import UserError
from ladder.executors import create as executors
from ladder.machine import driver
from ladder.network import layers, networks, weights
from ladder.plan import frame, plan
from ladder.plan.builder import Builder
from ladder.plan.data import Plan
from ladder.rungs import catalog
from timing import roofline

import numpy as np  # isort: skip (after ladder)

# relative L2 error of float32 sums of this length (Higham, 2002: a few units for random signs)
ERROR_BOUND = 1e-5
WARM_UP, REPETITIONS = 5, 100


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation inside a small network; step: its index in plan.steps."""

    network: networks.Network
    plan: Plan
    step: int

    @property
    def operation(self):
        return self.plan.steps[self.step]


def main(arguments=None):
    arguments = parse(arguments)
    try:
        case = find(arguments.operation, arguments.rung, arguments.shape)
        print(predicted(case))
        if not arguments.dry_run:
            print(json.dumps(measure(case, arguments), indent=1))
    except (UserError, RuntimeError) as error:
        sys.exit(str(error))


def find(operation, rung, shape):
    """The Case of an operation; raises UserError, listing the rung's operations, if it has none of
    that name.
    """
    batch, *image = shape[:4]
    known = set()
    for stack in stacks(image, complete(shape)[4:]):
        try:
            network = networks.resolve("one", (*image[:2], 3), stack, stack[-1].name, "none")
        except UserError:  # images of 1x1 are not pooled
            continue
        lowered = step_plan(network, rung, batch)
        operations = {
            step.operation: number
            for number, step in enumerate(lowered.steps)
            if step.layer not in ("", "before")
        }
        known |= set(operations)
        if operation in operations:
            return Case(network, lowered, operations[operation])
    raise UserError(
        f"{rung} has no operation {operation} for the shape {' '.join(map(str, shape))}; it has "
        f"{', '.join(sorted(known))}"
    )


def complete(shape):
    """A shape with default kernel, padding and stride filled in."""
    return [*shape, *(3, 1, 1)[len(shape) - 5 :]] if len(shape) > 4 else shape


def stacks(image, convolution):
    """Candidate stacks of layers, simplest first; in each, a small convolution computes the layer's
    input from an image.
    """
    before = layers.conv2d("before", image[2], kernel=1, padding=0)
    if not convolution:
        alone = (
            layers.relu("layer"),
            layers.maxpool2d("layer"),
            layers.upsample2d("layer"),
            layers.avgpool2d("layer"),
            layers.global_avgpool("layer"),
            layers.batchnorm("layer"),
            layers.dropout("layer", 0.5),
            layers.lrn("layer"),
            layers.pad("layer", 1),
            layers.flatten("layer"),
            layers.add("layer", ("before", "before")),
        )
        return [(before, layer) for layer in alone]
    filters, kernel, padding, stride = convolution
    conv, relu = layers.conv2d("layer", filters, kernel, padding, stride), layers.relu("layer_relu")
    pool, up = layers.maxpool2d("layer_pool"), layers.upsample2d("layer_up")
    groups = [
        (before, conv),
        (before, conv, relu),
        (before, conv, relu, pool),
        (before, up, conv),
        (before, up, conv, relu),
    ]
    return [*groups, (before, layers.dense("layer", filters))] if image[:2] == [1, 1] else groups


def step_plan(network, rung, batch, dtype="float32"):
    """Forward and backward without loss and updates; the caller fills in the gradient of the
    output.
    """
    settings = plan.TrainingSettings(
        network=network, rung=rung, batch_size=batch, multipliers=plan.made_for(rung)
    )
    builder = Builder(settings, network.layers, dtype, training=True)
    build = builder.build
    frame.load_batch(build, plan.Dataset(batch * (WARM_UP + REPETITIONS), "uint8"))
    builder.lower()
    build.gradients.part(build.values.output)
    builder.go_back()
    frame.advance(build)
    return builder.plan()


def predicted(case):
    moved, step = roofline.step_bytes(case.plan, case.operation), case.operation
    ceilings = roofline.H200[products(case.plan.rung)]
    seconds = roofline.step_seconds(case.plan, step, ceilings)
    bound = "FLOP" if step.flop / ceilings.flop >= moved / ceilings.bytes else "bytes"
    return (
        f"{step.operation} of {case.plan.rung}: {step.flop / 1e9:.3g} GFLOP, {moved / 1e6:.3g} MB, "
        f"{step.flop / moved:.3g} FLOP/byte, {len(step.launches)} launches; predicted for an H200: "
        f"{1e6 * seconds:.1f} us, bound by {bound}"
    )


def measure(case, arguments):
    """The measurement as a dict for JSON; raises RuntimeError for a wrong result or an impossible
    time.
    """
    executor = executors.create(arguments.rung, 1, "device")
    ceilings = timing.ceilings(executor)
    uploaded = inputs(case)
    arrays = executor.allocate(case.plan, executor.upload(uploaded))
    flush, clock, output = (
        timing.flusher(executor),
        timing.Clock(executor),
        f"{case.plan.output}.gradient",
    )
    gradients = [
        np.random.default_rng(number).standard_normal(case.plan.buffers[output].shape, np.float32)
        for number in range(3)
    ]
    for number in range(WARM_UP + REPETITIONS):
        gradient = gradients[number % len(gradients)]
        executor.fill(arrays[output], gradient)
        run_once(executor, case, arrays, clock if number >= WARM_UP else None, flush)
    times = timing.spread(clock.microseconds(), clock.mhz)
    error = largest_error(case, executor, arrays, uploaded, gradient)
    step, seconds = case.operation, times["median_us"] / 1e6
    if error is not None and not error <= ERROR_BOUND:
        raise RuntimeError(
            f"{step.operation} is wrong: relative error {error:.2g}, at most {ERROR_BOUND:g} is allowed"
        )
    cold = sum(roofline.buffer_bytes(case.plan, name) for name in set(step.reads.values()))
    limits = roofline.peak(driver.gpu().architecture, driver.gpu_size(), products(arguments.rung))
    reason = limits and roofline.impossible(seconds, step.flop, cold, limits)
    if reason:
        raise RuntimeError(reason)
    moved, torch_us = roofline.step_bytes(case.plan, step), beside(arguments)
    return {
        "operation": step.operation,
        "rung": arguments.rung,
        "shape": arguments.shape,
        "device": executor.device(),
        **times,
        "flop": step.flop,
        "bytes": moved,
        "tflop_per_second": step.flop / seconds / 1e12,
        "gigabytes_per_second": moved / seconds / 1e9,
        "share_of_roofline": roofline.step_seconds(case.plan, step, ceilings) / seconds,
        "relative_error": error,
        "error_bound": ERROR_BOUND,
        "torch_us": torch_us,
        "share_of_torch": torch_us / times["median_us"] if torch_us else None,
    }


def inputs(case):
    """{name: host array}: images for all repetitions, and weights."""
    random, rows = np.random.default_rng(0), case.plan.buffers["images"].shape[0]
    return {
        "images": random.integers(0, 256, case.plan.buffers["images"].shape, dtype=np.uint8),
        "permutation": random.permutation(rows),
        "counters": np.zeros(3, np.int64),
        "scale": np.full(3, 1 / 255, np.float32),
        **weights.initialize(case.network, 0),
        **weights.initial_state(case.network),
    }


def run_once(executor, case, arrays, clock, flush):
    """All launches of the plan on one stream; the operation's own are timed by `clock`, if given,
    after a cache flush.
    """
    for step in arrays.prologue:
        for launch in step.launches:
            launch.kernel(
                launch.grid, launch.block, launch.arguments[0], launch.shared_bytes, executor.stream
            )
    for number, step in enumerate(arrays.steps):

        def work(step=step):
            for launch in step.launches:
                launch.kernel(
                    launch.grid,
                    launch.block,
                    launch.arguments[0],
                    launch.shared_bytes,
                    executor.stream,
                )

        if number == case.step and clock:
            flush()
            clock.time(work)
        else:
            work()


def largest_error(case, executor, arrays, uploaded, gradient):
    """The largest relative L2 error of the operation's last float32 outputs, compared with the
    sequential program.

    None without a comparable output, e.g. for transformed weights. Running statistics, which depend
    on all repetitions, do not count.
    """
    batch = case.plan.batch
    reference = step_plan(case.network, "cpu_sequential", batch, "float64")
    sequential = executors.create("cpu_sequential", 1)
    uploaded = {
        name: value.astype(np.float64) if name in weights.shapes(case.network) else value
        for name, value in uploaded.items()
    }
    last = WARM_UP + REPETITIONS - 1
    counters = np.array([last, batch * last, last])
    wanted = sequential.allocate(reference, sequential.upload({**uploaded, "counters": counters}))
    wanted[f"{reference.output}.gradient"][...] = gradient
    sequential.run(reference, wanted)
    errors = []
    for name in case.operation.writes.values():
        if (
            name in wanted
            and name not in case.network.state
            and case.plan.buffers[name].dtype == "float32"
        ):
            computed = executor.download(arrays[name]).astype(np.float64)
            errors.append(
                float(np.linalg.norm(computed - wanted[name]) / np.linalg.norm(wanted[name]))
            )
    return max(errors, default=None)


def beside(arguments):
    """PyTorch's median microseconds for the operation in the rung's precision; None if it is not
    here or has no counterpart.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    import torch_gpu

    return torch_gpu.operation(
        arguments.operation, complete(arguments.shape), REPETITIONS, precision(arguments.rung)
    )


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "operation",
        help="such as conv2d_forward or maxpool2d_backward; a wrong one lists the rung's",
    )
    parser.add_argument(
        "--rung",
        required=True,
        choices=[name for name, entry in catalog.RUNGS.items() if entry.executor == "cuda"],
    )
    parser.add_argument(
        "--shape",
        required=True,
        type=int,
        nargs="+",
        metavar="N",
        help="batch height width channels [filters [kernel padding [stride]]]",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the plan's numbers and the prediction; measure nothing",
    )
    parsed = parser.parse_args(arguments)
    if len(parsed.shape) not in (4, 5, 7, 8) or min(parsed.shape[:6] + parsed.shape[7:]) < 1:
        parser.error(
            "--shape takes 4, 5, 7 or 8 numbers: batch height width channels [filters [kernel padding [stride]]]"
        )
    return parsed


if __name__ == "__main__":
    main()
