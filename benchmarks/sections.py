"""What gpu_check.py measures of rungs and of PyTorch; the rungs are given in the order in which
they take their turns.
"""

import dataclasses
import functools
import statistics

import cases
import race
from cases import CONTENDERS, HEADLINES, LARGE, MULTIPLIED, OTHERS, PRECISIONS
from ladder.arithmetic.multipliers import MULTIPLIERS
from ladder.machine.worker import Failed
from ladder.rungs import catalog
from race import kind_of

LAUNCHES_SECONDS, LOOK_SECONDS = 60, 120  # time limits


@dataclasses.dataclass(frozen=True)
class Section:
    """A measurement. work(session, seconds) returns its result, in at most so many seconds, or
    raises Failed.

    of: what it is measured of, where that depends on earlier sections; another `of` makes it again.
    least: seconds that must be left for it to begin; until: share of the time after which it begins
    only when all others are done.
    """

    name: str
    work: object
    limit: float
    of: object = None
    least: float = 5
    until: float = 1.0


def of_torch(record, torch_python):
    """PyTorch alone: its version, its ceilings, and a look at the contender of each precision that
    is likely to be fastest.
    """
    machine = single("PyTorch", "torch", "machine")
    yield machine if torch_python else unavailable("PyTorch", "PyTorch is not installed")
    if record.result("PyTorch"):
        yield single("PyTorch's ceilings", "torch", "ceilings")
    yield from first_looks(record, len(PRECISIONS))


def launches(rungs):
    """The launches of each rung in their places; what this GPU does not run is left out."""
    for rung in runnable(rungs):
        yield single(
            launches_name(rung),
            "rungs",
            "launches",
            dataclasses.asdict(HEADLINES[0]),
            rung,
            limit=LAUNCHES_SECONDS,
        )


def tiles(rungs):
    for rung in runnable(rungs):
        yield single(
            f"tiles: {rung}", "rungs", "tiles", dataclasses.asdict(HEADLINES[0]), rung, limit=120
        )


def cudnn(record):
    """cuDNN's convolutions by precision."""
    for precision in dict.fromkeys(CONTENDERS[name].precision for name in supported(record)):
        yield single(
            f"cuDNN: {precision}",
            "torch",
            "convolutions",
            dataclasses.asdict(HEADLINES[0]),
            precision,
        )


def of_other_networks(record, rungs):
    """Batches of 32, other networks, larger batches and every multiplier."""
    yield from first_looks(record)
    for case in HEADLINES[1:]:
        yield race_of(case, running(record, case, rungs) + best_of_torch(record, 2))
    for case in OTHERS:
        yield from parity(case, rungs)
        yield race_of(case, running(record, case, rungs) + graphs_of_torch(record))
    yield kernels(LARGE, rungs)
    yield race_of(LARGE, running(record, LARGE, rungs) + best_of_torch(record, 2))
    for case in multiplied():
        of_float32 = [rung for rung in rungs if cases.precision(rung) == "fp32"]
        yield kernels(case, of_float32)
        yield race_of(case, running(record, case, of_float32))


def runnable(rungs):
    return [rung for rung in rungs if catalog.unavailable(rung) is None]


def multiplied():
    """The cases of the multipliers."""
    return [dataclasses.replace(MULTIPLIED, multiplier=name) for name in MULTIPLIERS]


def kernels(case, rungs):
    """The kernels of a case, compiled side by side before one rung after the other asks for its
    own.
    """
    return single(
        f"kernels: {case.label}", "rungs", "kernels", dataclasses.asdict(case), rungs, limit=240
    )


def parity(case, rungs):
    yield kernels(case, rungs)
    for rung in rungs:
        limit = 90 if case in HEADLINES else 240  # deep networks take the reference minutes
        yield single(
            parity_name(case, rung), "rungs", "check", dataclasses.asdict(case), rung, limit=limit
        )


def first_looks(record, most=None):
    """A short turn of each contender of PyTorch, or of the first `most`, graphs first: the best
    meet the rungs in a race.
    """
    for name in supported(record)[:most]:
        case, takes_minutes = (
            dataclasses.asdict(HEADLINES[0]),
            cases.CONTENDERS[name].form == "max-autotune",
        )
        yield single(
            look_name(name),
            "torch",
            "screen",
            case,
            name,
            limit=LOOK_SECONDS,
            until=0 if takes_minutes else 1.0,
        )


def whole_runs(record, case, rungs):
    """Seconds of an epoch and of an extraction, by the best of each precision; an SVM where cuML
    is; streamed images.
    """
    described, raced = dataclasses.asdict(case), record.result(race_name(case))
    best = [*best_in(raced, cases.gpu_rungs()), *best_in(raced, CONTENDERS)]
    for work, limit in (("epoch", 120), ("extraction", 120)):
        for name in best:
            yield single(f"{work}: {name}", kind_of(name), work, described, name, limit=limit)
    if record.data["machine"]["cuml"]:
        yield single("svm", "rungs", "svm", limit=240)
    for name in best_in(raced, cases.gpu_rungs()):
        yield single(f"streaming: {name}", "rungs", "streaming", described, name)


def single(name, kind, function, *arguments, limit=60.0, until=1.0):
    """A Section that is one call of a function."""

    def work(session, seconds):
        return session.call(kind, function, *arguments, limit=seconds)

    return Section(name, work, limit, until=until)


def unavailable(name, reason):
    def work(session, seconds):
        raise Failed(reason)

    return Section(name, work, 0)


def race_of(case, line_up, name=None):
    return Section(
        name or race_name(case),
        functools.partial(race.race, case, line_up),
        600,
        of=line_up,
        least=race.SECONDS,
    )


def race_name(case):
    return f"race: {case.label}"


def others_name(case):
    """The race of the rungs that are not among cases.HEADLINE_RUNGS."""
    return f"{race_name(case)}, other rungs"


def launches_name(rung):
    return f"launches: {rung}"


def parity_name(case, rung):
    return f"parity: {case.name}, {rung}"


def look_name(contender):
    return f"first look: {contender}"


def running(record, case, rungs):
    """The rungs whose parity for the case's network did not end in a failure; numbers beyond the
    limit are no failure.
    """
    return [rung for rung in rungs if not record.failure(parity_name(case, rung))]


def mark(data):
    """Say in each row of a race in a record whether the numbers of its rung are within the limit;
    None: not checked.
    """
    sections = data["sections"]
    for case in (*HEADLINES, *OTHERS, LARGE, *multiplied()):
        raced = [
            sections.get(name, {}).get("result", {})
            for name in (race_name(case), others_name(case))
        ]
        for row in (row for result in raced for row in result.get("rows", ())):
            if row["name"] not in CONTENDERS:
                row["within_limit"] = (
                    sections.get(parity_name(case, row["name"]), {}).get("result", {}).get("passed")
                )


def supported(record):
    """PyTorch's contenders that this GPU has instructions for; none where PyTorch does not work."""
    capability = int(record.data["machine"]["architecture"].removeprefix("sm_"))
    works = record.result("PyTorch") is not None
    return [
        name
        for name, contender in CONTENDERS.items()
        if works and capability >= cases.OLDEST[contender.precision]
    ]


def best_of_torch(record, count):
    """The `count` fastest contenders of each precision in their first looks."""
    looks = {name: record.result(look_name(name)) for name in supported(record)}
    times = {name: statistics.median(look["us"]) for name, look in looks.items() if look}
    return [
        name
        for precision in PRECISIONS
        for name in sorted(
            (name for name in times if cases.precision(name) == precision), key=times.get
        )[:count]
    ]


def graphs_of_torch(record):
    """Contenders for networks without first looks: eager, because compiling them takes minutes, in
    one CUDA graph.
    """
    return [
        name
        for name in supported(record)
        if CONTENDERS[name].graph
        and CONTENDERS[name].channels_last
        and CONTENDERS[name].form == "eager"
    ]


def counts(row):
    """Whether a row of a race may be the fastest: its numbers are not beyond the limit."""
    return row.get("within_limit") is not False


def best_in(raced, names):
    """Of `names`, the fastest of each precision in the result of a race, with numbers that are not
    beyond the limit.
    """
    rows = [row for row in raced["rows"] if row["name"] in names and counts(row)] if raced else []
    fastest = [
        min(
            (row for row in rows if row["precision"] == precision),
            key=lambda row: row["median_us"],
            default=None,
        )
        for precision in PRECISIONS
    ]
    return [row["name"] for row in fastest if row]
