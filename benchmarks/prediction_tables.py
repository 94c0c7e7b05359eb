"""The tables of docs/prediction.md: predicted times of every rung, what they assume, and what was
measured.
"""

import math
import textwrap

import prediction
import results
from assumptions import ASSUMPTIONS, H200, NAMES, SOURCES
from cases import HEADLINES
from ladder.rungs.counted import span

EPOCH = 50_000  # images
# rungs whose intervals are taken apart
SHOWN = ("gpu_opt_v2", "gpu_3xtf32", "gpu_tf32", "gpu_bf16_sm90")
TIMES_HEAD = ("rung", "first prediction, H200", "H200", f"s for {EPOCH:,} images", *NAMES[1:])
VALUES_HEAD = ("assumption", *NAMES, "source")
SWINGS_HEAD = ("assumption", *SHOWN, "decided by")
STEPS_HEAD = ("step of", "first prediction", "second prediction", "measured us", "fit or check")
# whose launches, one by one, the assumptions of the source "fit" were fitted to
FITTED = ("gpu_tf32", "gpu_opt_v2")
TIMED = (*FITTED, "gpu_3xtf32")  # whose launches were measured one by one
LAUNCHES_HEAD = (
    "launch: measured / first / second us",
    *(f"{rung} (fit)" for rung in FITTED),
    "gpu_3xtf32 (check)",
)
ERRORS_HEAD = ("error, root of the mean square of its logarithm", "number", "first", "second")
LEAST = 15  # microseconds of a launch that is shown, and was fitted to
IN_NCU = 1.9e-6  # seconds of a launch that does nothing, as ncu measures it (advance)


def times(rungs, batch):
    """Rows; rungs: of counts.json."""
    first = results.then()["first"]
    for rung, counts in rungs.items():
        predicted, steps = counts["predicted"], EPOCH / batch
        yield (
            rung,
            span(*first[rung]) if rung in first else "",
            span(*predicted[H200]),
            span(*(steps * end / 1e6 for end in predicted[H200])),
            *(span(*predicted[name]) if name in predicted else "" for name in NAMES[1:]),
        )


def values():
    for assumption in ASSUMPTIONS.values():
        numbers = [
            [f"{value / assumption.scale:.3g}" for value in ends]
            for ends in assumption.values.values()
        ]
        yield (
            f"{assumption.what}, {assumption.unit}",
            *(best if best == worst else f"{best}, {worst}" for best, worst in numbers),
            assumption.source,
        )


def swings(rungs):
    """What an assumption adds to the intervals of SHOWN, where that is half a microsecond of one at
    least.
    """
    for name, assumption in ASSUMPTIONS.items():
        moved = [rungs[rung]["swings"][name] for rung in SHOWN]
        if max(map(max, moved)) >= 0.5:
            widened = (
                f"-{less:.0f} +{more:.0f}" if max(less, more) >= 0.5 else "" for less, more in moved
            )
            yield (assumption.what, *widened, assumption.decided_by)


def sources():
    return [
        textwrap.fill(
            f"- {name}: {cited}",
            100,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, cited in SOURCES.items()
    ]


def steps_of_then(record):
    """Predicted and measured times of the rungs as they were when they were measured."""
    for rung, counted in results.then()["rungs"].items():
        interval = interval_of_then(rung)
        measured = results.row(record, HEADLINES[0], rung)["median_us"]
        yield (
            rung,
            span(*counted["first"]),
            span(1e6 * interval.low, 1e6 * interval.high),
            f"{measured:.0f}",
            "fit" if rung in FITTED else "check",
        )


def interval_of_then(rung):
    """The Interval of a rung's step with the kernels of then."""
    launches = [
        results.then()["launches"][key] for _, key, _ in results.then()["rungs"][rung]["launches"]
    ]
    return prediction.interval(prediction.H200, launches)


def launches_of_then(log):
    """The launches that ncu measured, a row for those that do the same on several rungs; log: of
    profile_rung.py.
    """
    rows = {}
    for rung, place, kernel, *times in timed_launches(log):
        if times[0] >= LEAST:
            rows.setdefault(f"{place}: {kernel.split()[1]}".lstrip(), {})[rung] = " / ".join(
                f"{time:.0f}" for time in times
            )
    return [(name, *(row.get(rung, "") for rung in TIMED)) for name, row in rows.items()]


def errors_of_then(record, log):
    """How far the predictions lie from what was measured."""
    launches = [
        (rung in FITTED, *times) for rung, _, _, *times in timed_launches(log) if times[0] >= LEAST
    ]
    steps = [
        (rung in FITTED, float(measured), middle(first), middle(second))
        for rung, first, second, measured, _ in steps_of_then(record)
    ]
    for what, rows, fitted in (
        (f"launches of {' and '.join(FITTED)} (fit)", launches, True),
        ("launches of gpu_3xtf32 (check)", launches, False),
        ("steps of the other rungs (check)", steps, False),
    ):
        measured, *predictions = zip(
            *(times for is_fitted, *times in rows if is_fitted == fitted), strict=True
        )
        yield (
            what,
            str(len(measured)),
            *(f"{100 * deviation(predicted, measured):.0f} %" for predicted in predictions),
        )


def middle(span):
    return sum(map(float, span.split("-"))) / 2


def deviation(predicted, measured):
    ratios = [time / other for time, other in zip(predicted, measured, strict=True)]
    return math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios))


def timed_launches(log):
    """(rung, layer and pass, kernel, microseconds: measured, predicted first, predicted now) of the
    launches in a log.
    """
    rates = {**prediction.between(prediction.H200), "launch": IN_NCU}
    for rung, times in results.launch_times(log).items():
        for (place, key, first), measured in zip(
            results.then()["rungs"][rung]["launches"], times, strict=True
        ):
            counts = results.then()["launches"][key]
            yield (
                rung,
                place,
                counts["kernel"],
                measured,
                first,
                1e6 * prediction.seconds(prediction.H200, counts, rates),
            )
