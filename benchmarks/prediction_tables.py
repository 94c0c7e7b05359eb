"""The tables of docs/prediction.md: predicted times of every rung, and what they assume."""

import textwrap

from assumptions import ASSUMPTIONS, H200, NAMES, SOURCES
from ladder.rungs.counted import span

EPOCH = 50_000   # images
SHOWN = ("gpu_opt_v2", "gpu_3xtf32", "gpu_tf32", "gpu_bf16_sm90")   # rungs whose intervals are taken apart
TIMES_HEAD = ("rung", "first model", "H200", "all optimistic, all pessimistic", f"s for {EPOCH:,} images", *NAMES[1:])
VALUES_HEAD = ("assumption", "first model", *NAMES, "source")
SWINGS_HEAD = ("assumption", *SHOWN, "decided by")


def times(rungs, batch):
    """Rows; rungs: of counts.json."""
    for rung, counts in rungs.items():
        predicted, steps = counts["predicted"], EPOCH / batch
        yield (rung, f"{counts['first']:.0f}", span(*predicted[H200]), span(*counts["extremes"]),
               span(*(steps * end / 1e6 for end in predicted[H200])),
               *(span(*predicted[name]) if name in predicted else "" for name in NAMES[1:]))


def values():
    for assumption in ASSUMPTIONS.values():
        numbers = [[f"{value / assumption.scale:.3g}" for value in ends] for ends in assumption.values.values()]
        yield (f"{assumption.what}, {assumption.unit}", f"{assumption.first / assumption.scale:.3g}",
               *(best if best == worst else f"{best}, {worst}" for best, worst in numbers), assumption.source)


def swings(rungs):
    """What an assumption adds to the intervals of SHOWN, where that is half a microsecond of one at least."""
    for name, assumption in ASSUMPTIONS.items():
        moved = [rungs[rung]["swings"][name] for rung in SHOWN]
        if max(map(max, moved)) >= 0.5:
            widened = (f"-{less:.0f} +{more:.0f}" if max(less, more) >= 0.5 else "" for less, more in moved)
            yield (assumption.what, *widened, assumption.decided_by)


def sources():
    return [textwrap.fill(f"- {name}: {cited}", 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for name, cited in SOURCES.items()]
