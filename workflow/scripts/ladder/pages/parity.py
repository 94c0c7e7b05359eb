"""A comparison of all rungs that this machine can run with the cpu rung: results, time and memory; and its page.

A rung passes if it is within the tolerance of both parity protocols (training/parity.py) and gives the same bytes twice.
"""

import functools
import hashlib
import time

import numpy as np

from ladder.errors import UserError
from ladder.executors import create as executors
from ladder.network.optimizers import Optimizer, learning_rates
from ladder.pages import templates
from ladder.progress import log
from ladder.rungs import variants
from ladder.training import parity, plan

REFERENCE = "cpu"
# In the order of the page: the kinds of plan.WORK, and the copies of streamed images.
WORK = ("convolution forward", "convolution backward", "dense layers", "batch normalisation", "ReLU", "pooling", "upsampling",
        "dropout and LRN", "norms and contrast", "thresholds", "shortcuts and shapes", "loss", "update", "input", "copies",
        "other")
WARM_UP, STEPS, SECONDS = 3, 50, 2.0   # of a measurement: at most STEPS steps, none started after SECONDS
PARTS = {"parameter": "weights", "state": "weights", "gradient": "gradients", "optimizer": "optimizer",
         "activation": "activations", "mask": "pool masks", "derived": "workspace", "workspace": "workspace",
         "dataset": "images", "control": "other"}


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
    made = plan.training_plan(network, variant, batch, plan.Dataset(batch * most, "uint8"), Optimizer("adam"), length)
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
    memory = {}
    for kind, count in made.bytes_by_kind().items():
        memory[PARTS[kind]] = memory.get(PARTS[kind], 0) + count
    memory["workspace"] = memory.get("workspace", 0) + executor.workspace_bytes()
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


# The page.

def page(summary, made):
    """The page of `summary` as one HTML text; made: its time stamp, as in a manifest."""
    return templates.render("parity.html", context(summary, made))


def context(summary, made):
    """All variables of the template."""
    ran = [rung for rung in summary["rungs"] if "fault" not in rung]
    return {
        "summary": summary, "made": made, "ran": ran,
        "faults": {rung["variant"]: rung["fault"] for rung in summary["rungs"] if "fault" in rung},
        "failed": [rung["variant"] for rung in ran if not rung["passed"]],
        "devices": sorted({rung["device"] for rung in ran}),
        "protocols": ran[0]["parity"] if ran else {},
        "checks": [_check_row(rung) for rung in ran],
        "times": _step_bars(ran),
        "work": _work_table(ran),
        "memory": _memory_table(ran),
        "kernels": _kernel_table(ran),
    }


def _check_row(rung):
    cells = [{"text": f"{one['largest']:.1e}", "share": one["largest"] / one["tolerance"], "tensor": one["tensor"]}
             for one in rung["parity"].values()]
    return {"variant": rung["variant"], "reference": rung["variant"] == REFERENCE, "cells": cells,
            "same_bytes": rung["same_bytes"], "passed": rung["passed"]}


def _step_bars(ran):
    """Bars of the time of a step, with notes of the speed relative to the cpu rung."""
    slowest = max((rung["step"] for rung in ran), default=1)
    reference = next((rung["step"] for rung in ran if rung["variant"] == REFERENCE), None)
    return [{"name": rung["variant"], "length": round(100 * rung["step"] / slowest, 2), "text": milliseconds(rung["step"]),
             "note": f"{reference / rung['step']:.2g}× {REFERENCE}" if reference else ""} for rung in ran]


def _work_table(ran):
    """Rows by kind of work, cells by rung: milliseconds and the share of all kernels of a step."""
    rows = []
    for work in WORK:
        if any(rung["work"].get(work) for rung in ran):
            rows.append({"work": work, "cells": [_work_cell(rung["work"].get(work), rung) for rung in ran]})
    totals = [milliseconds(sum(rung["work"].values())) for rung in ran]
    rates = [f"{rung['flop'] / rung['step'] / 1e6:,.3g} GFLOP/s" for rung in ran]
    return {"rows": rows, "totals": totals, "steps": [milliseconds(rung["step"]) for rung in ran], "rates": rates}


def _work_cell(value, rung):
    if not value:
        return {"text": "", "share": ""}
    return {"text": milliseconds(value), "share": templates.percent(value / sum(rung["work"].values()))}


def _memory_table(ran):
    parts = [part for part in dict.fromkeys(PARTS.values()) if any(rung["memory"].get(part) for rung in ran)]
    rows = [{"part": part, "cells": [templates.size(rung["memory"].get(part, 0)) for rung in ran]} for part in parts]
    return {"rows": rows, "totals": [templates.size(sum(rung["memory"].values())) for rung in ran],
            "driver": [templates.size(rung["driver_bytes"]) if rung["driver_bytes"] is not None else "–" for rung in ran]}


def _kernel_table(ran):
    """Rows by layer: its forward operation, None within a group that began above.

    of: the rung of its kernels if it is not the column's rung.
    """
    columns = [{one["layers"][0]: {"operation": one["operation"], "rows": len(one["layers"]),
                                   "of": one["rung"] if one["rung"] != rung["variant"] else ""} for one in rung["kernels"]}
               for rung in ran]
    layers = [layer for one in ran[0]["kernels"] for layer in one["layers"]] if ran else []
    return [{"layer": layer, "cells": [column.get(layer) for column in columns]} for layer in layers]


def milliseconds(value):
    """0.01234 -> '0.012 ms'."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.3f}"
    return f"{text}{templates.NARROW_SPACE}ms"
