"""The report's section that compares a run's accuracies with other classifiers, other seeds, and
the runs of the ablation list.

inputs are artifacts by role, as in report.py, with the scores of other runs: svm_seed2,
score_ablation1.
"""

import re

from ladder.pages import facts, intervals, roles, spread, templates
from ladder.store import scores

SEED = re.compile(r"(\w+)_seed(\d+)")


def section(inputs, numbers):
    """None without any comparison."""
    how = facts.how(inputs)
    tables = {
        "classifiers": classifier_table(inputs, how),
        "seeds": seed_table(numbers["seeds"], how),
        "ablation": ablation_table(numbers["ablation"], inputs["data"].metrics["test"]),
    }
    neighbours = facts.params(inputs, "knn") if "knn" in inputs else None
    return {**tables, "neighbours": neighbours} if any(tables.values()) else None


# Numbers, JSON-able, for the summary.


def accuracies(inputs):
    """Role -> test accuracy of every classifier of the run and of its controls."""
    names = (
        f"{classifier}{encoder}" for classifier in roles.CLASSIFIERS for encoder in roles.ENCODERS
    )
    return {role: inputs[role].metrics["accuracy"] for role in names if role in inputs}


def seeds(inputs, own):
    """{"seeds": all of them, "scores": role -> {"each", "mean", "interval"}}; None if the run was
    not repeated.

    own: the run's own seed; each: the accuracy for each seed, in order; interval: confidence
    interval of the mean (spread.py).
    """
    repeated = {}
    for name, artifact in inputs.items():
        if match := SEED.fullmatch(name):
            repeated.setdefault(match[1], {})[int(match[2])] = artifact.metrics["accuracy"]
    if not repeated:
        return None
    by_role = {
        role: {own: value, **repeated[role]}
        for role, value in accuracies(inputs).items()
        if role in repeated
    }
    every = sorted(next(iter(by_role.values())))
    return {
        "seeds": every,
        "scores": {role: _score([each[seed] for seed in every]) for role, each in by_role.items()},
    }


def _score(values):
    over = spread.spread(values, spread.SHARES)
    return {"each": values, "mean": over.mean, "interval": over.interval and list(over.interval)}


def ablation(inputs, entries):
    """For each entry of the ablation list {"overrides", "reason", "version", "accuracy", "won",
    "lost"}; None without any.

    won: number of test images that only the run classified correctly; lost: that only the entry
    did. The numbers are None for an entry that could not run, for its `reason`.
    """
    return [
        _entry(inputs, entry, inputs.get(f"score_ablation{number}"))
        for number, entry in enumerate(entries, 1)
    ] or None


def _entry(inputs, entry, score):
    if score is None:
        return {**entry, "version": None, "accuracy": None, "won": None, "lost": None}
    difference = facts.difference(inputs, facts.predictions(inputs), score)
    return {
        **entry,
        "version": score.version,
        "accuracy": score.metrics["accuracy"],
        "won": difference.won,
        "lost": difference.lost,
    }


def test_scores(inputs):
    """{"rows": 'test' or 'validation', "run", "all"}: the number of artifacts scored on test images
    when the report was made.

    run: of this training; all: of all trainings on this dataset in this results folder. An artifact
    that was made again counts once, scores on a validation set do not count.
    """
    data = inputs["data"]
    dataset = data.manifest["spec"]["params"]["dataset"]
    scored = [
        line
        for line in scores.lines(data.folder.parent.parent)
        if line["rows"] == "test" and line["dataset"] == dataset
    ]
    weights = {inputs[role].version for role in ("patches", "train") if role in inputs} or {
        inputs["initial"].version
    }
    own = {line["version"] for line in scored if line["weights"] in weights}
    return {
        "rows": scores.kind(data),
        "run": len(own),
        "all": len({line["version"] for line in scored}),
    }


# Tables, for the page.


def classifier_table(inputs, how):
    """{"heads", "rows": [{"name", "cells"}]}: a row for each classifier of the features; None if
    the SVM is the only one.

    A cell has an accuracy as intervals.share and the `difference` of the run's features from a
    control in words, else None.
    """
    rows = [name for name in roles.CLASSIFIERS if name != "evaluate" and name in inputs]
    if len(rows) < 2:
        return None
    heads = [tail for tail in roles.ENCODERS if f"svm{tail}" in inputs]
    return {
        "heads": [roles.encoder(tail, how) for tail in heads],
        "rows": [
            {
                "name": roles.CLASSIFIERS[name],
                "cells": [_cell(inputs, name, tail) for tail in heads],
            }
            for name in rows
        ],
    }


def _cell(inputs, name, tail):
    control = inputs[f"{name}{tail}"]
    cell = intervals.share(control.metrics["accuracy"], inputs["data"].metrics["test"])
    return {
        **cell,
        "difference": intervals.words(facts.difference(inputs, inputs[name], control))
        if tail
        else None,
    }


def seed_table(numbers, how):
    """{"heads", "rows": [{"name", "note", "each", "mean", "reach"}]} from `seeds`; how: the run got
    its weights.

    reach: the interval in words.
    """
    if numbers is None:
        return None
    return {
        "heads": [f"seed {seed}" for seed in numbers["seeds"]],
        "rows": [
            {
                **_named(role, how),
                "each": [templates.percent(value) for value in score["each"]],
                "mean": templates.percent(score["mean"]),
                "reach": _reach(score),
            }
            for role, score in numbers["scores"].items()
        ],
    }


def _reach(score):
    """The interval of a mean in percent: '± 0.4', or '56.6 to 100' where it is cut at one end."""
    if not score["interval"]:
        return "no spread"
    low, high = score["interval"]
    if low > 0 and high < 1:
        return f"± {50 * (high - low):.1f}"
    return " to ".join(
        f"{100 * end:.0f}" if end in (0, 1) else f"{100 * end:.1f}" for end in (low, high)
    )


def _named(role, how):
    classifier, _, encoder = role.partition("_")
    note = "" if classifier == "evaluate" else roles.encoder(encoder and f"_{encoder}", how)
    return {"name": roles.CLASSIFIERS[classifier], "note": note}


def ablation_table(entries, n):
    """Rows {"changes", "reason"} and, if it ran, {"accuracy", "won", "lost"} and its difference
    from the run as intervals.words; n: number of images."""
    if entries is None:
        return None
    rows = []
    for entry in entries:
        changes = {key: templates.setting(value) for key, value in entry["overrides"].items()}
        row = {"changes": changes, "reason": entry["reason"]}
        if entry["accuracy"] is not None:
            difference = intervals.paired(entry["lost"], entry["won"], n)
            row |= {
                "accuracy": intervals.share(entry["accuracy"], n)["text"],
                "won": entry["won"],
                "lost": entry["lost"],
                **intervals.words(difference),
            }
        rows.append(row)
    return rows
