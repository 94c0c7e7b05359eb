"""A comparison of all rungs that this machine can run with the cpu rung: results, time and memory.

A rung passes if it is within the tolerance of both parity protocols (parity.py) and gives the same
bytes twice. A rung that is made for a lower precision is compared with the cpu rung at that
precision: the same roundings, sums in another order. How far two right programs of that kind are
apart depends on the network, from 1e-6 in LeNet-5 to 9e-2 in a ResNet-18: it is measured, with the
cpu rung and sums in float64.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import sys
import tempfile
import time

import numpy as np

from ladder.arithmetic.multipliers import PRECISIONS
from ladder.errors import one_line
from ladder.executors import create as executors
from ladder.machine import gpu_errors, runtime
from ladder.machine.worker import Failed, Worker
from ladder.network import networks
from ladder.network.optimizers import Optimizer, learning_rates
from ladder.plan import plan
from ladder.plan.data import EXECUTOR, PURPOSES
from ladder.progress import log
from ladder.rungs import catalog
from ladder.rungs.launches import WORK as OPERATIONS
from ladder.sources import SCRIPTS
from ladder.verify import parity

REFERENCE = "cpu"
# Of operations, and what is waited for of the copies of streamed images.
WORK = (*dict.fromkeys(work for _, work in OPERATIONS[:-1]), executors.WAITING, OPERATIONS[-1][1])
GPU_SECONDS = 600  # time limit of a GPU rung, with the compilation of its kernels
# of a measurement: at most STEPS steps, none started after SECONDS
WARM_UP, STEPS, SECONDS = 3, 50, 2.0


def compare(network, names, batch, run):
    """The results of the rungs in `names` for the protocols, and their time for a training step of
    `batch` images.

    run: (rung) -> its results, as of_rung returns them. A rung that raises an exception has only a
    "fault". Returns JSON-able

        "machine", "network", "batch"
        "rungs"        a list of the results; times are in milliseconds per step, memory in bytes
        "unavailable"  {rung: reason}
        "fastest"      {precision: rung, where one passed}
    """
    rungs = []
    for name in names:
        log.info("%s", name)
        entry = catalog.RUNGS[name]
        row = {"name": name, "technique": entry.technique, "precision": entry.precision}
        try:
            row |= run(name)
        # of CuPy, the driver, ... : the other rungs are compared all the same
        except Exception as error:
            row["fault"] = _fault(error)
            log.info("%s: %s", name, row["fault"])
        rungs.append(row)
    passed = [row for row in rungs if row.get("passed") and catalog.is_for_auto(row["name"])]
    # of a precision, the fastest is the last
    passed.sort(key=lambda row: row["step"], reverse=True)
    return {
        "machine": catalog.machine(),
        "network": network.name,
        "batch": batch,
        "rungs": rungs,
        "unavailable": {
            name: catalog.unavailable(name) for name in catalog.RUNGS if name not in names
        },
        "fastest": {row["precision"]: row["name"] for row in passed},
    }


def _fault(error):
    """An exception in one line."""
    if isinstance(error, Failed):
        return f"it {error}" if error.timed_out else str(error)
    return one_line(gpu_errors.explained(error) or error)


@contextlib.contextmanager
def apart(params, batch, threads):
    """A `run` for compare: each rung runs in another process, which is a new one after a rung that
    failed there.

    A rung that breaks CUDA or hangs then leaves the others alone. params: of networks.from_params.
    """
    workers = []

    def run(rung):
        if not workers:
            workers.append(
                Worker(sys.executable, __name__, SCRIPTS, pathlib.Path(folder, "output.txt"))
            )
        try:
            limit = GPU_SECONDS if catalog.uses_gpu(rung) else None
            return workers[0].call("of_rung", params, rung, batch, threads, limit=limit)
        except Failed:
            workers.clear()
            raise

    with tempfile.TemporaryDirectory(prefix="kernel-ladder-") as folder:
        try:
            yield run
        finally:
            for worker in workers:
                worker.stop()


def of_rung(params, rung, batch, threads):
    """The results of one rung: `check`, and `measure` with batches of `batch` images; params: of
    networks.from_params.
    """
    runtime.set_threads(threads)
    network, references = _references(json.dumps(params), threads, catalog.RUNGS[rung].precision)
    try:
        return check(network, rung, threads, references) | measure(network, rung, batch, threads)
    except Exception as error:
        raise gpu_errors.explained(error) or error  # noqa: B904 (the worker prints both)


@functools.lru_cache(maxsize=1)
def _references(params, threads, precision):
    network = networks.from_params(json.loads(params))
    return network, references(
        network, precision, functools.partial(executors.create, REFERENCE, threads)
    )


@dataclasses.dataclass(frozen=True)
class Reference:
    """trained: of the reference rung by a protocol, as parity.train returns it; tolerance: of a
    deviation from it.
    """

    trained: dict
    tolerance: float


def references(network, precision, create, batches=None, rung=REFERENCE):
    """Protocol -> Reference; create: () -> an executor of this rung; batches: see parity.train."""
    protocols = parity.protocols(network, precision)

    def train(name, *more):
        return parity.train(
            network,
            rung,
            create(),
            protocols[name],
            *more,
            batches=batches,
            multipliers=PRECISIONS[precision],
        )

    trained, apart = {name: train(name) for name in protocols}, 0
    if precision != "float32":  # the gradients of both protocols are the same
        other = train("sgd", "float64", trained["sgd"])
        apart = max(parity.deviations(network, other, trained["sgd"], batches).values())
    return {
        name: Reference(trained[name], max(protocol.tolerance, parity.SPREAD * apart))
        for name, protocol in protocols.items()
    }


def check(network, rung, threads, references, batches=None):
    """The parity of a rung: {"parity": {protocol: {"largest", "tensor", "tolerance"}},
    "same_bytes", "passed"}.

    references, batches: of the same updates, the references with the rung's precision.
    """
    results, same, precision = {}, True, catalog.RUNGS[rung].precision
    least = parity.CUT if catalog.RUNGS[rung].on_tensor_cores else 0
    for name, protocol in parity.protocols(network, precision).items():
        reference = references[name]
        train = functools.partial(
            parity.train,
            network,
            rung,
            protocol=protocol,
            follow=reference.trained,
            batches=batches,
            multipliers=plan.made_for(rung),
        )
        trained = train(executor=executors.create(rung, threads))
        deviations = parity.deviations(network, trained, reference.trained, batches)
        tensor = max(
            deviations,
            key=lambda candidate: (not np.isfinite(deviations[candidate]), deviations[candidate]),
        )
        results[name] = {
            "largest": deviations[tensor],
            "tensor": tensor,
            "tolerance": max(reference.tolerance, least),
        }
        first = digests(trained)
        del trained  # gigabytes for a deep network
        same = same and digests(train(executor=executors.create(rung, threads))) == first
    # False for NaN
    within = all(result["largest"] <= result["tolerance"] for result in results.values())
    return {"parity": results, "same_bytes": same, "passed": bool(within and same)}


def digests(trained):
    """Tensor -> hash of its bytes."""
    return {name: hashlib.sha256(value).hexdigest() for name, value in trained.items()}


def measure(network, rung, batch, threads):
    """The time and memory of a training step of the rung with Adam on random images."""
    executor = executors.create(rung, threads)
    most = WARM_UP + 2 * STEPS
    length = plan.Length(most, most)
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=batch,
        optimizer=Optimizer("adam"),
        multipliers=plan.made_for(rung),
    )
    step_plan = plan.training_plan(settings, plan.Dataset(batch * most, "uint8"), length)
    arrays = executor.allocate(
        step_plan,
        executor.upload(
            {
                **parity.random_images(network, batch * most),
                **parity.initial(network),
                "learning_rates": learning_rates(1e-3, length),
            }
        ),
    )

    def run(steps, seconds):
        """(steps made, seconds taken): at most `steps`, none started after `seconds`."""
        started, done = time.perf_counter(), 0
        while done < steps and (done == 0 or time.perf_counter() - started < seconds):
            executor.run(step_plan, arrays)
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
    memory = {**step_plan.bytes_by_purpose(), EXECUTOR: executor.workspace_bytes()}
    memory["images and counters"] = sum(
        count for kind, count in step_plan.bytes_by_kind().items() if kind not in PURPOSES
    )
    return {
        "device": executor.device(),
        "steps": steps,
        "step": step,
        "flop": step_plan.flop,
        "work": {
            work: 1000 * executor.seconds[work] / measured
            for work in WORK
            if work in executor.seconds
        },
        "memory": memory,
        "driver_bytes": executor.device_bytes(),
    }
