"""The check of a GPU rung before its first use (first_use.py): training and extraction beside the
cpu rung, in seconds.

Both rungs make a few updates with the run's batch size and a few with a smaller one, as at the end
of an epoch, by the parity protocols; then both compute the output and the features of some images.
Steps with Adam that are recorded and replayed have to give the bytes of single ones. Both rungs
multiply with the precision that the rung is made for. A batch that would take the cpu rung long is
smaller.
"""

import functools
import json

import numpy as np

from ladder.data import normalization
from ladder.executors import create as executors
from ladder.machine import gpu_errors, gpus, runtime
from ladder.network import networks, optimizers
from ladder.plan import plan
from ladder.rungs.catalog import RUNGS
from ladder.training import inference
from ladder.verify import measure_rungs, parity

UPDATES = 3  # of each batch size
MOST_FLOP = 4e12  # of the cpu rung's training
REPLAYED = 25  # steps in one call: some are recorded together, some alone
TAIL = 5  # images of the last batch of an extraction
# Precision -> largest |x - x_cpu| / |x_cpu| of a layer's output. Right rungs
# (benchmarks/limits.json): 4e-6, 3e-4 and 9e-4.
OUTPUT_LIMITS = {"float32": 1e-4, "tf32": 1e-3, "bfloat16": 5e-3, "float16": 1e-3}


def check(rung, described, threads):
    """The outcome as store/first_use.py takes it; described: text of first_use.described."""
    runtime.set_threads(threads)
    gpus.claim()
    try:
        (pairs, batch_size) = json.loads(described)
        network = networks.from_params(dict(pairs))
        return _outcome(rung, _measured(network, rung, batch_size, threads))
    except Exception as error:  # whatever the GPU does wrong
        return gpu_errors.outcome(f"rung {rung}", error)


def _measured(network, rung, batch_size, threads):
    results = {
        "device": executors.create(rung, threads).device(),
        "extraction": extraction(network, rung, threads),
    }
    if network.trains:
        batches = batches_of(network, batch_size)
        create = functools.partial(executors.create, measure_rungs.REFERENCE, threads)
        references = measure_rungs.references(network, RUNGS[rung].precision, create, batches)
        results |= {
            "batches": list(batches),
            "same_replayed": same_replayed(network, rung, batches[0], threads),
        }
        results |= measure_rungs.check(network, rung, threads, references, batches)
    return results


def _outcome(rung, results):
    limit, wrong = OUTPUT_LIMITS[RUNGS[rung].precision], faults(rung, results)
    largest = [
        f"{name} {worst['largest']:.1e} in {worst['tensor']} (at most {worst['tolerance']:.0e})"
        for name, worst in results.get("parity", {}).items()
    ]
    largest += [
        f"output of {name} {value:.1e} (at most {limit:.0e})"
        for name, value in results["extraction"].items()
    ]
    return {
        **results,
        "passed": not wrong,
        "passing": False,
        "report": bool(wrong),
        "summary": ", ".join(largest),
        "fault": f"rung {rung} computes other numbers than the cpu rung on {results['device']}: {'; '.join(wrong)}"
        if wrong
        else "",
    }


def faults(rung, results):
    """What deviates too much, in words."""
    limit = OUTPUT_LIMITS[RUNGS[rung].precision]
    wrong = [
        f"{worst['tensor']} deviates by {worst['largest']:.1e} of its update with {name}, {worst['tolerance']:.0e} at most"
        for name, worst in results.get("parity", {}).items()
        if not worst["largest"] <= worst["tolerance"]
    ]
    wrong += [
        f"the output of {name} deviates by {value:.1e}, {limit:.0e} at most"
        for name, value in results["extraction"].items()
        if not value <= limit
    ]
    alike = {
        "same_replayed": "steps that are recorded and replayed give other bytes than single ones",
        "same_bytes": "two identical trainings give different bytes",
    }
    return wrong + [words for name, words in alike.items() if not results.get(name, True)]


def batches_of(network, batch_size):
    """The images of each update: UPDATES times the run's batch, and as often about half of it."""
    least = 2 * parity.batch_size(network)
    settings = plan.TrainingSettings(
        network=network, rung=measure_rungs.REFERENCE, batch_size=least
    )
    flop = (
        plan.training_plan(settings, plan.Dataset(least, "uint8"), plan.Length(1, 1)).flop / least
    )
    most = MOST_FLOP / (len(parity.protocols(network)) * 1.5 * UPDATES * flop)
    batch = int(max(least, min(batch_size, most)))
    return (batch,) * UPDATES + (batch // 2 + 1,) * UPDATES


def same_replayed(network, rung, batch, threads):
    """Whether run_many, which a GPU records and replays, gives the bytes of single steps."""
    length, digests = plan.Length(REPLAYED, REPLAYED), []
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=batch,
        optimizer=optimizers.Optimizer("adam"),
        multipliers=plan.made_for(rung),
    )
    step_plan = plan.training_plan(settings, plan.Dataset(batch * REPLAYED, "uint8"), length)
    for together in (1, REPLAYED):
        executor = executors.create(rung, threads)
        uploaded = executor.upload(
            {
                **parity.random_images(network, batch * REPLAYED),
                **parity.initial(network),
                "learning_rates": optimizers.learning_rates(1e-3, length),
            }
        )
        arrays = executor.allocate(step_plan, uploaded)
        for _ in range(REPLAYED // together):
            executor.run_many(step_plan, arrays, together)
        digests.append(
            measure_rungs.digests(
                {name: executor.download(uploaded[name]) for name in parity.initial(network)}
            )
        )
    return digests[0] == digests[1]


def extraction(network, rung, threads):
    """Layer -> |x - x_cpu| / |x_cpu| of its output for random images: of the last layer and of the
    features' layer.
    """
    images = parity.random_images(network, inference.BATCH + TAIL)["images"]
    statistics = normalization.measure("unit", images)
    deviations = {}
    for layer in dict.fromkeys((network.layers[-1].name, network.features)):
        mine, right = (
            np.concatenate(
                [
                    values.astype(np.float64)
                    for _, values in inference.Inference(
                        network,
                        name,
                        parity.initial(network),
                        statistics,
                        threads,
                        layer,
                        multipliers=plan.made_for(rung),
                    ).batches(images)
                ]
            )
            for name in (rung, measure_rungs.REFERENCE)
        )
        deviations[layer] = float(np.linalg.norm(mine - right) / np.linalg.norm(right))
    return deviations
