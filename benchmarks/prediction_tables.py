"""The tables of docs/prediction.md: predicted times of every rung, and how far those of measured
kernels erred.
"""

import math

import prediction
import results
from cases import HEADLINES
from ladder.rungs.counted import span

CLOCKS = {gpu.name: f"{gpu.hertz / 1e9:g} GHz" for gpu in prediction.GPUS}
TIMES_HEAD = ("rung", *map(", ".join, CLOCKS.items()))
# whose launches, one by one, the assumptions of the source "fit" were fitted to
FITTED = ("gpu_tf32", "gpu_opt_v2")
ERRORS_HEAD = ("of", "number", "error, root of the mean square of its logarithm")
LEAST = 15  # microseconds of a launch that was fitted to
IN_NCU = 1.9e-6  # seconds of a launch that does nothing, as ncu measures it (advance)


def times(rungs):
    """Rows; rungs: of counts.json."""
    for rung, counts in rungs.items():
        predicted = counts["predicted"]
        yield (rung, *(span(*predicted[name]) if name in predicted else "" for name in CLOCKS))


def interval_of_then(rung):
    """The Interval of a rung's step with the kernels of then."""
    launches = [
        results.then()["launches"][key] for _, key, _ in results.then()["rungs"][rung]["launches"]
    ]
    return prediction.interval(prediction.H200, launches)


def errors_of_then(record, log):
    """How far the predictions lie from what was measured; log: of profile_rung.py."""
    launches = [
        (rung in FITTED, measured, predicted)
        for rung, measured, predicted in timed_launches(log)
        if measured >= LEAST
    ]
    steps = [
        (
            rung in FITTED,
            results.row(record, HEADLINES[0], rung)["median_us"],
            1e6 * interval_of_then(rung).middle,
        )
        for rung in results.then()["rungs"]
    ]
    for what, rows, fitted in (
        (f"launches of {' and '.join(FITTED)} (fit)", launches, True),
        ("launches of gpu_3xtf32 (check)", launches, False),
        ("steps of the other rungs (check)", steps, False),
    ):
        pairs = [times for is_fitted, *times in rows if is_fitted == fitted]
        yield (what, str(len(pairs)), f"{100 * deviation(pairs):.0f} %")


def deviation(pairs):
    return math.sqrt(sum(math.log(time / other) ** 2 for time, other in pairs) / len(pairs))


def timed_launches(log):
    """(rung, microseconds measured, and predicted) of the launches in a log."""
    rates = {**prediction.between(prediction.H200), "launch": IN_NCU}
    for rung, times in results.launch_times(log).items():
        keys = [key for _, key, _ in results.then()["rungs"][rung]["launches"]]
        for key, measured in zip(keys, times, strict=True):
            counts = results.then()["launches"][key]
            yield (rung, measured, 1e6 * prediction.seconds(prediction.H200, counts, rates))
