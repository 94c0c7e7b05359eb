"""The check of a GPU rung before its first use (first_use.py): training and extraction beside the cpu rung, in seconds.

Both rungs make a few updates with the run's batch size and a few with a smaller one, as at the end of an epoch, by the parity
protocols; then both compute the output and the features of some images. A batch that would take the cpu rung long is smaller.
"""

import json

import numpy as np

from ladder.data import normalization
from ladder.errors import one_line
from ladder.executors import create as executors
from ladder.machine import gpu_errors, gpus, runtime
from ladder.network import networks
from ladder.training import inference, measure_rungs, parity, plan

UPDATES = 3       # of each batch size
MOST_FLOP = 4e12  # of the cpu rung's training
TAIL = 5          # images of the last batch of an extraction
# Largest |x - x_cpu| / |x_cpu| of a layer's output. Those of cpu_sequential differ by 1.4e-6 for the autoencoder, and by less
# for LeNet-5, the small CNN and ResNets of 18 and 50 layers.
TOLERANCE = 1e-4


def check(variant, described, threads):
    """The outcome as store/first_use.py takes it; described: text of first_use.described."""
    runtime.set_threads(threads)
    gpus.claim()
    try:
        (pairs, batch_size) = json.loads(described)
        network = networks.from_params(dict(pairs))
        return _outcome(variant, _measured(network, variant, batch_size, threads))
    except Exception as error:   # whatever the GPU does wrong
        known = gpu_errors.explained(error)
        fault = known or one_line(f"{type(error).__name__}: {error}")
        return {"passed": False, "fault": f"variant {variant} does not run here: {fault}",
                "passing": bool(known and known.passing), "report": known is None, "summary": ""}


def _measured(network, variant, batch_size, threads):
    found = {"device": executors.create(variant, threads).device(), "extraction": extraction(network, variant, threads)}
    if network.trains:
        batches = batches_of(network, batch_size)
        references = measure_rungs.references(network, threads, batches)
        found |= {"batches": list(batches)} | measure_rungs.check(network, variant, threads, references, batches)
    return found


def _outcome(variant, found):
    wrong = faults(found)
    largest = [f"{name} {one['largest']:.1e} in {one['tensor']} (at most {one['tolerance']:.0e})"
               for name, one in found.get("parity", {}).items()]
    largest += [f"output of {name} {value:.1e} (at most {TOLERANCE:.0e})" for name, value in found["extraction"].items()]
    return {**found, "passed": not wrong, "passing": False, "report": bool(wrong), "summary": ", ".join(largest),
            "fault": f"variant {variant} computes other numbers than the cpu rung on {found['device']}: {'; '.join(wrong)}"
            if wrong else ""}


def faults(found):
    """What deviates too much, in words."""
    wrong = [f"{one['tensor']} deviates by {one['largest']:.1e} of its update with {name}, {one['tolerance']:.0e} at most"
             for name, one in found.get("parity", {}).items() if not one["largest"] <= one["tolerance"]]
    wrong += [f"the output of {name} deviates by {value:.1e}, {TOLERANCE:.0e} at most"
              for name, value in found["extraction"].items() if not value <= TOLERANCE]
    return wrong + ([] if found.get("same_bytes", True) else ["two identical trainings give different bytes"])


def batches_of(network, batch_size):
    """The images of each update: UPDATES times the run's batch, and as often about half of it."""
    least = 2 * parity.batch_size(network)
    settings = plan.Settings(network=network, variant=measure_rungs.REFERENCE, batch_size=least)
    flop = plan.training_plan(settings, plan.Dataset(least, "uint8"), plan.Length(1, 1)).flop / least
    most = MOST_FLOP / (len(parity.protocols(network)) * 1.5 * UPDATES * flop)
    batch = int(max(least, min(batch_size, most)))
    return (batch,) * UPDATES + (batch // 2 + 1,) * UPDATES


def extraction(network, variant, threads):
    """Layer -> |x - x_cpu| / |x_cpu| of its output for random images: of the last layer and of the features' layer."""
    images = parity.random_images(network, inference.BATCH + TAIL)["images"]
    statistics = normalization.measure("unit", images)
    found = {}
    for layer in dict.fromkeys((network.layers[-1].name, network.features)):
        mine, right = (np.concatenate([values.astype(np.float64) for _, values in inference.Inference(
            network, rung, parity.initial(network), statistics, threads, layer).batches(images)])
            for rung in (variant, measure_rungs.REFERENCE))
        found[layer] = float(np.linalg.norm(mine - right) / np.linalg.norm(right))
    return found
