"""Count what every GPU rung's training step asks of a GPU, without one, and predict its time:
writes benchmarks/counts.json.

    python benchmarks/count.py [RUNG ...]      without names, all; prints a line each, and under it
                                               the launches that take most
    python benchmarks/count.py --check         writes nothing; ends with 1 where a rung changed
                                               since it was counted; one that was never counted is
                                               "not counted" in the tables

docs/prediction.md has the model. `python benchmarks/table.py` shows the numbers in the ladder's
table.
"""

import argparse
import json
import os
import sys

import counting
import plan_checks
import prediction
from cases import HEADLINES
from ladder import progress
from ladder.errors import UserError
from ladder.rungs import counted
from table import documented_rungs, step_plan

BATCH = HEADLINES[0].batch
SHOWN = 4  # launches of a rung


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rungs", nargs="*", metavar="RUNG")
    parser.add_argument(
        "--check", action="store_true", help="only say which rungs changed since they were counted"
    )
    arguments = parser.parse_args()
    record = counted.read()
    if arguments.check:
        if stale := outdated(record):
            sys.exit(
                f"{', '.join(stale)} changed since it was counted; run: python benchmarks/count.py"
            )
        return
    try:
        for rung in arguments.rungs or documented_rungs():
            plan, counts, row = of_rung(rung, record["launches"])
            print("\n".join(described(rung, plan, counts, row)), flush=True)
            if rung in documented_rungs():
                record["launches"] |= counts
                if predicted(row) != predicted(record["rungs"].get(rung, {})):
                    record["dates"][rung] = progress.utc()[:10]
                record["rungs"][rung] = row
                write(record)
    except UserError as error:
        sys.exit(str(error))


def of_rung(rung, known):
    """(plan, {key: counts}, summary) of a rung's training step."""
    plan = step_plan(rung, BATCH)
    counts = counting.count_plan(plan, known)
    return plan, counts, counting.summary(plan, counts)


def predicted(row):
    """What a prediction is: the time, and the kernels that it is of."""
    return row.get("predicted"), row.get("kernels")


def outdated(record):
    """The rungs in the record of which a launch is not, or whose row is not the one that the
    record's counts give.
    """
    changed = []
    for rung in record["rungs"]:
        plan = step_plan(rung, BATCH)
        keys = {counting.key(launch, plan) for launch in plan_checks.launches(plan)}
        if not keys <= record["launches"].keys() or counting.summary(
            plan, record["launches"]
        ) != record["rungs"].get(rung):
            changed.append(rung)
    return changed


def described(rung, plan, counts, row):
    """Lines for a terminal."""
    gpu = prediction.H200
    rates = prediction.between(gpu)
    used, multiply = (f"{100 * row[name]:.0f} %" for name in ("coalesced", "products_of_issued"))
    yield (
        f"{rung}: {counted.span(*row['predicted'][gpu.name])} us predicted for an H200, bound by {row['bound_by']}; "
        f"{row['launches']} launches, {used} of sectors used, {multiply} of instructions multiply"
    )
    launches = [counts[counting.key(launch, plan)] for launch in plan_checks.launches(plan)]
    for launch in sorted(launches, key=lambda launch: -prediction.seconds(gpu, launch, rates))[
        :SHOWN
    ]:
        times = prediction.seconds_by_resource(gpu, launch, rates)
        yield (
            f"    {launch['kernel']}: "
            + ", ".join(f"{name} {1e6 * time:.0f}" for name, time in times.items())
            + f" us; {launch['registers']} registers, occupancy {100 * prediction.occupancy(gpu, launch):.0f} %"
        )


def write(record):
    """Only launches that a rung of the project still makes; whole or not at all."""
    wanted = set()
    for rung in record["rungs"]:
        plan = step_plan(rung, BATCH)
        wanted |= {counting.key(launch, plan) for launch in plan_checks.launches(plan)}
    launches = {key: record["launches"][key] for key in sorted(wanted & record["launches"].keys())}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in launches.items()]
    rungs = [f"  {json.dumps(rung)}: {json.dumps(row)}" for rung, row in record["rungs"].items()]
    text = (
        '{"launches": {\n'
        + ",\n".join(lines)
        + '\n}, "rungs": {\n'
        + ",\n".join(rungs)
        + f'\n}}, "dates": {json.dumps(record["dates"])}}}\n'
    )
    temporary = counted.RECORD.with_suffix(".tmp")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, counted.RECORD)


if __name__ == "__main__":
    main()
