"""What the launches of a rung's training step ask of a GPU, counted without one.

The emulator runs some blocks of each launch at its real shapes and counts requests, sectors and
wavefronts (counts.cpp there); NVRTC says how many registers a kernel takes, NVIDIA's disassembler
which instructions its busiest loop has. The counts of a launch are kept in benchmarks/counts.json
under a digest of all they depend on, so that only what changed is counted again.
"""

import collections
import concurrent.futures
import functools
import math
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE.parent / "workflow/scripts"),
    str(HERE.parent / "tests/support"),
    str(HERE.parent / "emulator/src"),
]

import disassembly  # noqa: E402
import emulator_executor  # noqa: E402
import load_chains  # noqa: E402
import plan_checks  # noqa: E402
import prediction  # noqa: E402
import roofline  # noqa: E402
import rung_checks  # noqa: E402
import step_kernels  # noqa: E402
from cases import products  # noqa: E402
from ladder.executors.cuda import nvrtc  # noqa: E402
from ladder.rungs import catalog  # noqa: E402
from ladder.rungs.launches import Table  # noqa: E402

import numpy as np  # noqa: E402  # isort: skip (after ladder)

METHOD = 8  # goes up when the way of counting changes
BLOCKS = 6  # at most, of a launch, drawn at random; of an update, one of each parameter
# Accesses of single threads after which no more blocks run, with barriers and without, where a warp
# of a block can be enough.
ENOUGH, ENOUGH_WARPS = 200_000, 1_500_000
PLACES = {
    "loads": "global_loads",
    "stores": "global_stores",
    "shared_loads": "shared_loads",
    "shared_stores": "shared_stores",
    "bulk_copies": "bulk_copies",
    "operands": "operands",
}


def key(launch, plan):
    """16 hex digits of all that the counts of a launch depend on."""
    return step_kernels.hashed([METHOD, *step_kernels.described(launch, plan)])


def count_plan(plan, known):
    """{key: counts} of a plan's launches; those in `known`, {key: counts}, are not counted
    again.
    """
    launches = {key(launch, plan): launch for launch in plan_checks.launches(plan)}
    new = {digest: launch for digest, launch in launches.items() if digest not in known}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # compiles
        list(
            pool.map(lambda launch: emulator_executor.function(launch).module.counted, new.values())
        )
    return {
        digest: known[digest] if digest in known else counted(launches[digest], plan)
        for digest in launches
    }


def counted(launch, plan):
    """The counts of a launch as JSON holds them: per warp, on average over the blocks that ran."""
    threads, blocks = math.prod(launch.block), math.prod(launch.grid)
    resources = _compiled(launch.source, launch.defines).kernels[launch.entry]
    shared = resources.static_shared_bytes + launch.shared_bytes
    resident = {
        gpu.name: prediction.resident_blocks(gpu, threads, resources.registers, shared)
        for gpu in prediction.GPUS
    }
    lines = prediction.cache_lines(prediction.H200, resident[prediction.H200.name], shared)
    totals = _run(launch, plan, lines)
    warps = totals["warps"]
    per_warp = {
        name: {what: count / warps for what, count in totals[place].items()}
        for place, name in PLACES.items()
    }
    per_warp["missed"] = totals["missed"] / warps
    return {
        "kernel": f"{launch.source} {launch.entry}",
        "blocks": blocks,
        "threads": threads,
        "bytes": launch_bytes(launch, plan),
        "registers": resources.registers,
        "shared_bytes": shared,
        "resident": resident,
        "body": vars(_bodies(launch.source, launch.defines)[launch.entry]),
        "per_warp": per_warp,
        "chain": {
            "longest": totals["longest"],
            "mean": round(totals["chain"] / totals["blocks"], 2),
        },
    }


def launch_bytes(launch, plan):
    """Bytes of the arrays that the launch reads or writes, each once: the least that comes from or
    goes to memory.
    """
    return sum(roofline.buffer_bytes(plan, name) for name in launch.buffers)


def _run(launch, plan, lines):
    arrays = {name: emulator_executor.zeros(plan.buffers[name]) for name in launch.buffers}
    arguments = [rung_checks.passed(argument, arrays) for argument in launch.arguments]
    function, total = emulator_executor.function(launch), {}
    code = _groups(launch.source, launch.defines)[launch.entry]

    def count(block, enough, alike=1):
        counts = function.count(
            launch.grid, launch.block, arguments, launch.shared_bytes, [block], lines, enough
        )
        longest = load_chains.longest(counts.pop("threads"), code)
        more = _times({**counts, "blocks": 1, "chain": longest}, alike)
        return {**_sum(total, more), "longest": max(longest, total.get("longest", 0))}

    if tables(launch):
        # of each block's row: that of a parameter
        first_words = tables(launch)[0].words[: launch.grid[0]]
        for word, number in collections.Counter(first_words).items():
            total = count(first_words.index(word), ENOUGH, number)
        return total
    for block in np.random.default_rng(0).permutation(math.prod(launch.grid))[:BLOCKS].tolist():
        total = count(block, ENOUGH // BLOCKS)
        if total["accesses"] >= (ENOUGH if total["barriers"] else ENOUGH_WARPS):
            break
    return total


def tables(launch):
    """Its arguments that name a parameter for each block: those of an update."""
    return [argument for argument in launch.arguments if isinstance(argument, Table)]


def _times(counts, number):
    return {
        name: _times(value, number) if isinstance(value, dict) else value * number
        for name, value in counts.items()
    }


def _sum(counts, more):
    """The counts of two runs together."""
    return {
        name: _sum(counts.get(name, {}), value)
        if isinstance(value, dict)
        else counts.get(name, 0) + value
        for name, value in more.items()
    }


@functools.cache
def _compiled(source, defines):
    return nvrtc.compile_file(
        nvrtc.KERNELS / source, prediction.H200.architecture, defines, disassembly.WITH_LINES
    )


@functools.cache
def _bodies(source, defines):
    return disassembly.bodies(_compiled(source, defines).cubin)


@functools.cache
def _groups(source, defines):
    return load_chains.groups(_compiled(source, defines).cubin)


def summary(plan, counts):
    """The numbers of a plan's row in the ladder's tables; counts: {key: counts} with at least those
    of its launches.
    """
    launches = [counts[key(launch, plan)] for launch in plan_checks.launches(plan)]
    gpu = prediction.H200
    rates, steps = prediction.between(gpu), timeline(plan, counts)
    busiest = max(launches, key=lambda launch: prediction.seconds(gpu, launch, rates))
    return {
        "launches": len(launches),
        "megabytes": sum(launch["bytes"] for launch in launches) / 1e6,
        "level_2_megabytes": sum(
            prediction.warps(launch) * prediction.level_2_bytes(launch) for launch in launches
        )
        / 1e6,
        **asked(launches),
        "busiest": {
            "kernel": busiest["kernel"],
            "registers": busiest["registers"],
            "occupancy": prediction.occupancy(gpu, busiest),
            "waves": {
                str(card.multiprocessors): prediction.waves(card, busiest)
                for card in prediction.GPUS
            },
        },
        "kernels": step_kernels.digest(plan),
        "bound_by": next(iter(bound_shares(steps))),
        "limiting": limiting(gpu, launches, steps, rates),
        "middle": _microseconds(prediction.interval(gpu, launches).middle),
        "predicted": {
            card.name: _ends(prediction.interval(card, launches))
            for card in prediction.GPUS
            if int(card.architecture.removeprefix("sm_")) >= catalog.RUNGS[plan.rung].oldest
            and all(prediction.runs(card, launch) for launch in launches)
        },
        "floor": _microseconds(roofline.plan_seconds(plan, roofline.H200[products(plan.rung)])),
        "timeline": steps,
    }


def asked(launches):
    """What launches ask of the caches and of the schedulers, all together."""
    issued = [prediction.warps(launch) * prediction.issued_per_warp(launch) for launch in launches]
    # Copies by the engine are of whole sectors.
    copied = sum(
        prediction.warps(launch) * prediction.bulk_bytes(launch, "bulk_copies")
        for launch in launches
    )
    loads = {
        name: _total(launches, "global_loads", name)
        + _total(launches, "global_stores", name)
        + copied / each
        for name, each in {"sectors": prediction.SECTOR, "bytes": 1}.items()
    }
    shared = {
        name: _total(launches, "shared_loads", name) + _total(launches, "shared_stores", name)
        for name in ("wavefronts", "least")
    }
    return {
        "sectors": loads["sectors"],
        "coalesced": loads["bytes"] / (32 * loads["sectors"]),
        "wavefronts": shared["wavefronts"],
        "conflicts": shared["wavefronts"] - shared["least"],
        "products_of_issued": sum(
            count * launch["body"]["products"] / launch["body"]["instructions"]
            for count, launch in zip(issued, launches, strict=True)
        )
        / sum(issued),
    }


def bound_shares(steps):
    """{what bounds launches: their share of the step's time}, the largest first; steps: rows that
    end with a launch's time and bound.
    """
    total, shares = sum(row[-2] for row in steps), collections.Counter()
    for *_, time, name in steps:
        shares[name] += time / total
    return dict(shares.most_common())


def limiting(gpu, launches, steps, rates):
    """What a page says of the bound that takes most of a step (ladder/pages/bounds.py): its share
    of the time, the launch that takes longest by it, and the step without it.

    share      of the step's time in launches with this bound
    place      of that launch, its layer and pass, and its kernel
    occupancy  the share of a multiprocessor's warps that it has room for
    waves      how often its blocks fill the GPU
    coalesced  the share of the bytes of its sectors that it uses
    conflicts  the share of its wavefronts that are conflicts of banks
    products   the share of its instructions that multiply
    without    microseconds of the step if this resource took no time, and `next`, its bound then
    """
    name, share = next(iter(bound_shares(steps).items()))
    of_bound = [pair for pair in zip(steps, launches, strict=True) if pair[0][5] == name]
    row, launch = max(of_bound, key=lambda pair: pair[0][4])
    needs = asked([launch])
    freed = [
        (prediction.seconds(gpu, each, rates, name), prediction.bound(gpu, each, rates, name))
        for each in launches
    ]
    return {
        "share": round(share, 3),
        "place": row[0],
        "kernel": row[1],
        "occupancy": prediction.occupancy(gpu, launch),
        "waves": round(prediction.waves(gpu, launch), 3),
        "coalesced": round(needs["coalesced"], 3),
        "conflicts": round(needs["conflicts"] / max(1, needs["wavefronts"]), 3),
        "products": round(needs["products_of_issued"], 3),
        "without": _microseconds(sum(time for time, _ in freed)),
        "next": next(iter(bound_shares(freed))),
    }


def timeline(plan, counts):
    """[[layer and pass, kernel, FLOP, bytes, microseconds, what bounds it]] of a plan's launches,
    one after another.

    The FLOP of an operation are those of its longest launch: the others prepare for it, or add what
    it left in parts.
    """
    gpu, rates = prediction.H200, prediction.between(prediction.H200)
    rows = []
    for step in plan.steps:
        launches = [counts[key(launch, plan)] for launch in step.launches]
        times = [prediction.seconds(gpu, launch, rates) for launch in launches]
        rows += [
            [
                f"{step.layer} {step.pass_}" if step.layer else step.operation,
                launch["kernel"],
                step.flop if number == times.index(max(times)) else 0,
                launch["bytes"],
                round(1e6 * time, 2),
                prediction.bound(gpu, launch, rates),
            ]
            for number, (launch, time) in enumerate(zip(launches, times, strict=True))
        ]
    return rows


def _ends(interval):
    return _microseconds(interval.low, interval.high)


def _microseconds(*seconds):
    """Of one time a number, of several a list, to a tenth."""
    rounded = [round(1e6 * time, 1) for time in seconds]
    return rounded if len(rounded) > 1 else rounded[0]


def _total(launches, place, what):
    return sum(prediction.warps(launch) * launch["per_warp"][place][what] for launch in launches)
