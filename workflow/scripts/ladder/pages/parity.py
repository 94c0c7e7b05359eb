"""The page of the comparison of rungs (verify/measure_rungs.py)."""

from ladder.pages import ladder, launches, templates
from ladder.rungs.counted import CASE
from ladder.verify.measure_rungs import REFERENCE, WORK

FEW = 4  # rungs that cannot run here are named if there are no more for one reason


def page(summary, timestamp, predictions=(), measured=None):
    """The page of `summary` as one HTML text; timestamp: as in a manifest; predictions, measured:
    see rungs/counted.py.
    """
    return templates.render("parity.html", context(summary, timestamp, predictions, measured or {}))


def context(summary, timestamp, predictions, measured):
    """All variables of the template."""
    ran = [rung for rung in summary["rungs"] if "fault" not in rung]
    return {
        "summary": summary,
        "made": timestamp,
        "ran": ran,
        "devices": sorted({rung["device"] for rung in ran}),
        "reference": REFERENCE,
        "ladders": _ladders(summary, ran, predictions, measured),
        "work": _table(ran),
        "elsewhere": _elsewhere(summary["unavailable"]),
        "predicted": launches.context(predictions),
    }


def _elsewhere(unavailable):
    """What keeps rungs from running here, in a few words each; reasons of rungs/catalog.py begin
    with the key and the rung, and end with what to set instead.

    A rung without a reason could run here and was not asked for.
    """
    by_reason = {}
    for rung, reason in unavailable.items():
        if reason:
            words = reason.removeprefix(f"variant {rung} ").partition("; set variant")[0]
            by_reason.setdefault(words, []).append(rung)
    return [
        f"{templates.listed(rungs) if len(rungs) <= FEW else f'{len(rungs)} rungs'}, "
        f"{'each of ' if len(rungs) > 1 else ''}which {words}"
        for words, rungs in by_reason.items()
    ]


def _ladders(summary, ran, predictions, measured):
    """The ladders of the page: one, where the step that ran here is the one that was predicted,
    else two.
    """
    here = {rung["name"]: rung["step"] for rung in ran}
    title = f"A training step of {summary['network']}, {summary['batch']} images"
    if (summary["network"], summary["batch"]) == CASE or not predictions:
        return [ladder.context(ladder.steps(predictions, measured, here), title, measured)]
    elsewhere = f"A training step of the {CASE[0]}, {CASE[1]} images, on an H200"
    return [
        ladder.context(ladder.steps((), {}, here), title, {}),
        ladder.context(ladder.steps(predictions, measured, {}), elsewhere, measured),
    ]


def _table(ran):
    """{"columns", "rows"}: of each rung its milliseconds by kind of work, and its megabytes."""
    kinds = [kind for kind in WORK if any(rung["work"].get(kind) for rung in ran)]
    return {
        "columns": [*kinds, "all kernels", "the step", "GFLOP/s", "planned MB", "driver’s MB"],
        "rows": {
            rung["name"]: [
                *(ladder.text(rung["work"].get(kind)) for kind in kinds),
                ladder.text(sum(rung["work"].values())),
                ladder.text(rung["step"]),
                ladder.text(rung["flop"] / rung["step"] / 1e6),
                ladder.text(sum(rung["memory"].values()) / 1e6),
                ladder.text((rung["driver_bytes"] or 0) / 1e6),
            ]
            for rung in ran
        },
    }
