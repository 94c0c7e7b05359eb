"""What right GPU rungs and planted faults deviate by from the cpu rung, from which parity.py has
its limits; no GPU needed.

    python tests/campaigns/limits.py right [--rungs gpu_bf16,gpu_tf32] [--networks autoencoder]
    python tests/campaigns/limits.py faults [--rungs gpu_bf16] [--count 60]
    python tests/campaigns/limits.py table         writes the table of kernels/README.md

Kernels run in the emulator. Tensor cores add their products in two ways, rounded and truncated,
between which a GPU is. Faults are mutants of the rung's kernels (mutate_kernels.py), first those
that cut an operand instead of rounding it, then drawn ones, always the same; each makes one update
of FAULT_IMAGES images with the kernels and tiles of a batch of 64. Every result is written to
benchmarks/limits.json as it is there, and is not measured again: minutes to half an hour of CPU
time for a rung.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("workflow/scripts", "benchmarks", "tests/support", "emulator/src"):
    sys.path.insert(0, str(ROOT / folder))

import cuda_emulator  # noqa: E402
import emulated  # noqa: E402
import emulator_executor  # noqa: E402
import mutant_fates  # noqa: E402
import mutant_schemata  # noqa: E402
import mutate_kernels  # noqa: E402
import mutations  # noqa: E402
import rung_checks  # noqa: E402
import table  # noqa: E402
import whole_step  # noqa: E402
from ladder.arithmetic.multipliers import PRECISIONS  # noqa: E402
from ladder.executors import create as executors  # noqa: E402
from ladder.network import networks  # noqa: E402
from ladder.plan import plan  # noqa: E402
from ladder.rungs import catalog  # noqa: E402
from ladder.training import inference  # noqa: E402
from ladder.verify import check_rung, measure_rungs, parity  # noqa: E402

import numpy as np  # noqa: E402 isort: skip (after ladder)

RECORD, DOCUMENT, BEGIN = (
    ROOT / "benchmarks/limits.json",
    ROOT / "kernels/README.md",
    "<!-- limits: made by limits.py -->",
)
RUNGS = [name for name, entry in catalog.RUNGS.items() if entry.executor == "cuda"]
NETWORKS = {
    "autoencoder": networks.build("autoencoder"),
    "lenet_5": networks.build("lenet_5", (28, 28, 1)),
    "wta_autoencoder": networks.build("wta_autoencoder", (28, 28, 1), filters=8, kernels=(11, 7)),
    "resnet18": networks.build("resnet18", (32, 32, 3), width=8),
}
BATCHES = (64, 33)  # of the check before first use
EXTRACTED = 16  # images of a batch of the extraction
FAULT_IMAGES, FAULT_SECONDS = 2, 60
HARDEST = 30  # faults of a rung that the table looks at
CUT = ("truncated_pair(", "__float_as_uint(")  # what mutants put in the place of a rounding
# Part of a fault below its rung's limit -> the test that finds it: float16 has 11 bits, and cutting
# one operand moves little.
OWN_TESTS = {
    (
        "gpu_f16",
        "truncated_pair(renew(",
    ): "test_copies_are_rounded_to_halves_subnormal_and_infinite_ones_too",
    (
        "gpu_f16",
        "truncated_pair(x[6]",
    ): "test_copies_are_rounded_to_halves_subnormal_and_infinite_ones_too",
    (
        "gpu_f16",
        "truncated_pair(sum_of(",
    ): "test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order",
    (
        "gpu_f16_sm90",
        "within ? words(i, j) : make_uint4(0, 1, 0, 0)",
    ): "test_a_copy_that_a_convolution_writes_is_its_result_with_a_border_of_zeros",
    ("gpu_3xf16_sm90", "odd << shift << 16"): "test_operands_are_pairs_of_halves",
}
SAME, NONE = "same bytes", "none"
HEAD = (
    "rung",
    "right, sums rounded",
    "sums truncated",
    "limit",
    "the hardest fault",
    f"{HARDEST} hardest found",
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("right", "faults", "table"))
    parser.add_argument("--rungs", type=lambda text: text.split(","), default=RUNGS)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=NETWORKS)
    parser.add_argument("--count", type=int, default=60)
    asked = parser.parse_args()
    if asked.what == "table":
        DOCUMENT.write_text(
            table.with_table(DOCUMENT.read_text("utf-8"), written(read()), BEGIN), "utf-8"
        )
    for rung in asked.rungs if asked.what == "faults" else ():
        measure_faults(rung, asked.count)
    for network in asked.networks if asked.what == "right" else ():
        for rung in asked.rungs:
            measure_right(network, rung)


# ---- right rungs


def measure_right(network, rung):
    few = (parity.batch_size(NETWORKS[network]),) * parity.UPDATES
    for sums in cuda_emulator.TENSOR_SUMS if catalog.RUNGS[rung].on_tensor_cores else ("rounded",):
        for batches in (few, BATCHES):
            key = f"{network}, {' and '.join(map(str, dict.fromkeys(batches)))} images, sums {sums}"
            if key not in read()["right"].get(rung, {}):
                cuda_emulator.tensor_sums = sums
                keep("right", rung, key, deviations(NETWORKS[network], rung, batches))


def deviations(network, rung, batches):
    """{protocol: [largest deviation, its tensor, limit]}, of "output" without a tensor."""
    precision, result = catalog.RUNGS[rung].precision, {}
    references = measure_rungs.references(
        network, precision, functools.partial(executors.create, "cpu", 1), batches
    )
    protocols = parity.protocols(network, precision)
    # momentum's first update has the same gradients
    for name in protocols if batches != BATCHES else ("sgd",):
        mine = parity.train(
            network,
            rung,
            emulator_executor.Executor(),
            protocols[name],
            batches=batches,
            follow=references[name].trained,
            multipliers=plan.made_for(rung),
        )
        result[name] = [
            *worst(network, mine, references[name].trained, batches),
            references[name].tolerance,
        ]
    if batches != BATCHES:
        result["output"] = [extracted(network, rung), "", check_rung.OUTPUT_LIMITS[precision]]
    return result


def extracted(network, rung):
    """The largest deviation of the check's extraction."""
    create, inference.BATCH = executors.create, EXTRACTED
    executors.create = lambda name, *more: (
        emulator_executor.Executor() if name == rung else create(name, *more)
    )
    try:
        return max(check_rung.extraction(network, rung, 1).values())
    finally:
        executors.create = create


def worst(network, mine, reference, batches):
    """[largest deviation, its tensor]."""
    by_tensor = parity.deviations(network, mine, reference, batches)
    tensor = max(by_tensor, key=lambda name: (np.isnan(by_tensor[name]), by_tensor[name]))
    return [by_tensor[tensor], tensor]


# ---- planted faults


def measure_faults(rung, count):
    whole_step.on_a_gpu_for(FAULT_IMAGES, setattr)
    kernels, same = ROOT / "kernels", mutate_kernels.equivalent(ROOT)
    launches = rung_checks.training_plan(rung, NETWORKS["autoencoder"], FAULT_IMAGES).launches
    files = set().union(
        *(cuda_emulator.with_headers(kernels / launch.source, (kernels,)) for launch in launches)
    )
    mutants = [
        mutant
        for file in sorted(files)
        for mutant in mutate_kernels.mutants(kernels, file.relative_to(kernels))
        if (str(mutant.file), mutant.line) not in same
    ]
    cut = [mutant for mutant in mutants if mutant.new in CUT]
    chosen = dict(enumerate(dict.fromkeys([*cut, *mutations.sample(mutants, 6 * count)]), 1))
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        mutate_kernels.copy_project(ROOT, copy)
        emulated.KERNELS, emulated.NAMES = copy / "kernels", copy / "tests/support/emulated.h"
        emulated.NAMES.write_text(emulated.NAMES.read_text() + mutant_schemata.HEADER)
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        places = {
            number: (str(mutant.file), mutant.start, mutant.end, mutant.new)
            for number, mutant in chosen.items()
        }
        kernels = mutant_fates.Kernels(cuda_emulator, emulated.KERNELS, places)
        order = np.random.default_rng(0).permutation(len(chosen) + 1)
        judge(
            rung,
            kernels,
            lambda met: [
                (number, chosen[number].place())
                for number in sorted(met, key=lambda number: (number > len(cut), order[number]))[
                    :count
                ]
            ],
        )


def judge(rung, kernels, asked_for):
    """Measure the faults asked_for(numbers of the mutants that a step meets), each in a process of
    its own.
    """
    network, precision, batches = (
        NETWORKS["autoencoder"],
        catalog.RUNGS[rung].precision,
        (FAULT_IMAGES,),
    )
    protocol = parity.protocols(network, precision)["sgd"]
    train = functools.partial(parity.train, network, protocol=protocol, batches=batches)
    reference = train("cpu", executors.create("cpu", 1), multipliers=PRECISIONS[precision])
    modules = mutant_fates.watch_launches(cuda_emulator)

    def step():
        mine = train(
            rung, emulator_executor.Executor(), follow=reference, multipliers=plan.made_for(rung)
        )
        return worst(network, mine, reference, batches), {
            name: value.tobytes() for name, value in mine.items()
        }

    right = compiled(kernels, step)
    libraries = [module.plain for module in modules]
    keep("faults", rung, NONE, right[0])
    for number, place in asked_for(mutant_fates.met_by(libraries)):
        if place not in read()["faults"][rung]:
            keep(
                "faults",
                rung,
                place,
                apart(functools.partial(with_fault, number, libraries, step, right[1])),
            )


def compiled(kernels, step):
    """What step() returns of the kernels with all mutants that compile."""
    while True:
        kernels.write_schemata()
        try:
            return step()
        except cuda_emulator.CompileError as error:
            if not kernels.leave_out(str(error)):
                raise


def with_fault(number, libraries, step, right):
    """[largest deviation, its tensor], SAME, or what the emulator says."""
    mutant_fates.choose(libraries, number)
    try:
        outcome, values = step()
    except cuda_emulator.KernelFault as fault:
        return f"found by the emulator: {fault.kind}"
    return SAME if values == right else outcome


def apart(work):
    """The result of work() in a process of its own, "crashed" without one."""
    end, results = os.pipe()
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_VIRTUAL, FAULT_SECONDS)
        os.write(results, json.dumps(work()).encode())
        os._exit(0)
    os.close(results)
    with open(end, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "crashed"


# ---- the record


def read():
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"right": {}, "faults": {}}


def keep(kind, rung, key, value):
    record = read()
    record[kind].setdefault(rung, {})[key] = value
    temporary = RECORD.with_suffix(".new")
    temporary.write_text(text(record), "utf-8")
    temporary.replace(RECORD)
    print(f"{rung}: {key}: {value}", flush=True)


def text(record):
    """The record as JSON, a case or a fault on a line."""
    text = json.dumps(record, indent=1) + "\n"
    # of a result, then of a case's results
    for bracket in (r"\[[^][{}]*\]", r"\{[^{}]*\[[^{}]*\}"):
        text = re.sub(
            bracket,
            lambda group: re.sub(r"\n\s+", " ", group[0]) if group[0].count("[") < 4 else group[0],
            text,
        )
    return text


def largest(record, rung, network="autoencoder", word="", protocol="sgd"):
    """(largest deviation, limit) of a right rung in the cases whose names contain the word; None
    where there are none.
    """
    cases = [
        case[protocol]
        for key, case in record["right"].get(rung, {}).items()
        if key.startswith(f"{network}, ") and word in key and protocol in case
    ]
    return max(((value, limit) for value, _, limit in cases), default=None)


def hardest(record, rung):
    """[(deviation, place)] of the HARDEST faults that end in numbers, the smallest deviation
    first.
    """
    numbers = [
        (outcome[0], place)
        for place, outcome in record["faults"].get(rung, {}).items()
        if place != NONE and isinstance(outcome, list)
    ]
    return sorted(numbers, key=lambda pair: (np.isnan(pair[0]), pair[0]))[:HARDEST]


def written(record):
    """The table in Markdown."""
    lines = [" | ".join(HEAD), " | ".join(["---"] * len(HEAD))]
    for rung in RUNGS:
        if rung not in record["right"]:
            lines.append(" | ".join([rung, *(len(HEAD) - 1) * [table.NOT_MEASURED]]))
            continue
        limit, faults = largest(record, rung)[1], hardest(record, rung)
        right = [largest(record, rung, word=sums) for sums in cuda_emulator.TENSOR_SUMS]
        beyond = sum(not value <= limit for value, _ in faults)  # NaN too
        lines.append(
            " | ".join(
                [
                    rung,
                    *(f"{pair[0]:.1e}" if pair else "" for pair in right),
                    f"{limit:.0e}",
                    *(
                        [f"{faults[0][0]:.1e}", f"{beyond} of {len(faults)}"]
                        if faults
                        else 2 * [table.NOT_MEASURED]
                    ),
                ]
            )
        )
    return "".join(f"| {line} |\n" for line in lines)


if __name__ == "__main__":
    main()
