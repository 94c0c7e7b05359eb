"""A comparison of all rungs that this machine can run with the cpu rung: results, time and memory.

A rung passes if it is within the tolerance of both parity protocols (parity.py) and gives the same bytes twice.
"""

import functools
import hashlib
import time

import numpy as np

from ladder.errors import UserError
from ladder.executors import create as executors
from ladder.network.optimizers import Optimizer, learning_rates
from ladder.progress import log
from ladder.rungs import variants
from ladder.training import parity, plan

REFERENCE = "cpu"
# The kinds of plan.WORK in the order of the page, and what is waited for of the copies of streamed images.
WORK = ("convolution forward", "convolution backward", "dense layers", "batch normalisation", "ReLU", "pooling", "upsampling",
        "dropout and LRN", "norms and contrast", "thresholds", "shortcuts and shapes", "loss", "update", "input",
        executors.WAITING, "other")
WARM_UP, STEPS, SECONDS = 3, 50, 2.0   # of a measurement: at most STEPS steps, none started after SECONDS
PARTS = (*dict.fromkeys(plan.PURPOSES.values()), plan.EXECUTOR, "images and counters")   # of the memory of a rung


def compare(network, names, batch, threads):
    """The results of the variants in `names` for the protocols, and their time for a training step of `batch` images.

    Returns {"machine", "network", "batch", "rungs": [...], "unavailable": {variant: reason}, "fastest": variant or None},
    JSON-able; times are in milliseconds per step, memory in bytes. A rung that raises a UserError has only a "fault".
    """
    made = references(network, threads)
    rungs = []
    for variant in names:
        log.info("%s", variant)
        rung = {"variant": variant, "technique": variants.VARIANTS[variant].technique}
        try:
            rung |= check(network, variant, threads, made) | measure(network, variant, batch, threads)
        except UserError as error:
            log.info("%s: %s", variant, error)
            rung["fault"] = str(error)
        rungs.append(rung)
    passed = [rung for rung in rungs if rung.get("passed")]
    return {
        "machine": variants.machine(), "network": network.name, "batch": batch, "rungs": rungs,
        "unavailable": {name: variants.unavailable(name) for name in variants.VARIANTS if name not in names},
        "fastest": min(passed, key=lambda rung: rung["step"])["variant"] if passed else None,
    }


def references(network, threads):
    """Protocol -> result of the reference rung."""
    return {name: parity.train(network, REFERENCE, executors.create(REFERENCE, threads), protocol)
            for name, protocol in parity.protocols(network).items()}


def check(network, variant, threads, references):
    """The parity of a variant: {"parity": {protocol: {"largest", "tensor", "tolerance"}}, "same_bytes", "passed"}."""
    results, same = {}, True
    for name, protocol in parity.protocols(network).items():
        train = functools.partial(parity.train, network, variant, protocol=protocol, follow=references[name])
        trained = train(executor=executors.create(variant, threads))
        deviations = parity.deviations(network, trained, references[name])
        tensor = max(deviations, key=lambda one: (not np.isfinite(deviations[one]), deviations[one]))
        results[name] = {"largest": deviations[tensor], "tensor": tensor, "tolerance": protocol.tolerance}
        first = digests(trained)
        del trained   # gigabytes for a deep network
        same = same and digests(train(executor=executors.create(variant, threads))) == first
    within = all(one["largest"] <= one["tolerance"] for one in results.values())   # False for NaN
    return {"parity": results, "same_bytes": same, "passed": bool(within and same)}


def digests(trained):
    """Tensor -> hash of its bytes."""
    return {name: hashlib.sha256(value).hexdigest() for name, value in trained.items()}


def measure(network, variant, batch, threads):
    """The time and memory of a training step of the variant with Adam on random images."""
    executor = executors.create(variant, threads)
    most = WARM_UP + 2 * STEPS
    length = plan.Length(most, most)
    settings = plan.Settings(network=network, variant=variant, batch_size=batch, optimizer=Optimizer("adam"))
    made = plan.training_plan(settings, plan.Dataset(batch * most, "uint8"), length)
    arrays = executor.allocate(made, executor.place({
        **parity.random_images(network, batch * most), **parity.initial(network),
        "learning_rates": learning_rates(1e-3, length)}))

    def run(steps, seconds):
        """(steps made, seconds taken): at most `steps`, none started after `seconds`."""
        started, done = time.perf_counter(), 0
        while done < steps and (done == 0 or time.perf_counter() - started < seconds):
            executor.run(made, arrays)
            done += 1
        executor.synchronize()
        return done, time.perf_counter() - started

    run(WARM_UP, SECONDS / 2)
    executor.seconds = {}
    steps, taken = run(STEPS, SECONDS)
    step, measured = 1000 * taken / steps, steps
    if not executor.measures_every_step:
        executor.measures_every_step, executor.seconds = True, {}
        measured, _ = run(STEPS, SECONDS)
    memory = {**made.bytes_by_purpose(), plan.EXECUTOR: executor.workspace_bytes()}
    memory["images and counters"] = sum(count for kind, count in made.bytes_by_kind().items() if kind not in plan.PURPOSES)
    return {
        "device": executor.device(), "steps": steps, "step": step, "flop": made.flop,
        "work": {work: 1000 * executor.seconds[work] / measured for work in WORK if work in executor.seconds},
        "memory": memory, "driver_bytes": executor.device_bytes(),
        "kernels": kernels(made),
    }


def kernels(made):
    """The forward operation of each group of layers: [{"layers", "operation", "rung": the rung of its kernels}]."""
    found = []
    for layers, operation in made.kernels:
        step = next(step for step in made.steps if (step.layer, step.operation) == (layers[0], operation))
        rung = step.launches[-1].source.partition("/")[0] if step.launches else made.variant
        found.append({"layers": list(layers), "operation": operation, "rung": rung})
    return found
