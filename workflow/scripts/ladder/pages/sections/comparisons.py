"""The report's section that compares a run's accuracies with other classifiers, other seeds, and
the runs of its list.

inputs are artifacts by role, as in report.py, with the scores of other runs: svm_seed2, score_run1.
"""

import re

from ladder.pages import facts, intervals, roles, spread, templates
from ladder.store import scores
from ladder.store.versions import canonical

WORDS = "text", "reach", "points", "interval_text", "luck_text"
SEED = re.compile(r"(\w+)_seed(\d+)")


def section(inputs, numbers):
    """None without any comparison."""
    how = facts.how(inputs)
    tables = {
        "classifiers": classifier_table(inputs, how),
        "seeds": seed_table(numbers["seeds"], how),
        "runs": [
            _shown(row) for row in numbers["runs"] or () if row["settings"] or len(row["seeds"]) > 1
        ],
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
    by_role = {role: {own: value} for role, value in accuracies(inputs).items()}
    for name, artifact in inputs.items():
        if match := SEED.fullmatch(name):
            by_role[match[1]][int(match[2])] = artifact.metrics["accuracy"]
    every = sorted(max(by_role.values(), key=len, default=()))
    if len(every) < 2:
        return None
    scored = {role: each for role, each in by_role.items() if len(each) == len(every)}
    return {
        "seeds": every,
        "scores": {role: _score([each[seed] for seed in every]) for role, each in scored.items()},
    }


def _score(values):
    over = spread.spread(values, spread.SHARES)
    return {"each": values, "mean": over.mean, "interval": over.interval and list(over.interval)}


def runs(inputs, entries, own):
    """A row of numbers for each run of the list, {"overrides", "reason"} and perhaps "name" and
    "tags"; runs that differ in their seed alone are one row, of which several seeds have mean and
    interval.

    own: the seed of this run. JSON-able; None without any.
    """
    this = {own: facts.predictions(inputs)}
    groups = {canonical({}): ({}, [], this)}
    for number, entry in enumerate(entries if this[own] else (), 1):
        settings = dict(entry["overrides"])
        seed, score = settings.pop("seed", own), inputs.get(f"score_run{number}")
        _, members, scores = groups.setdefault(canonical(settings), (settings, [], {}))
        members.append(entry)
        scores |= {seed: score} if score else {}
    return [_row(inputs, group, this, own) for group in groups.values() if group[1]] or None


def _row(inputs, group, this, own):
    settings, entries, scores = group
    each = {seed: scores[seed].metrics["accuracy"] for seed in sorted(scores)}
    over, n = spread.spread(each.values(), spread.SHARES), inputs["data"].metrics["test"]
    interval = intervals.wilson(over.mean, n) if len(each) == 1 else over and over.interval
    return {
        "names": [entry["name"] for entry in entries if "name" in entry],
        "tags": list(dict.fromkeys(tag for entry in entries for tag in entry.get("tags", ()))),
        "settings": settings,
        "seeds": list(each),
        "versions": [scores[seed].version for seed in each],
        "each": list(each.values()),
        "mean": over and over.mean,
        "interval": interval and list(interval),
        "against": _against(inputs, scores, this, own) if each and scores is not this else None,
        "reason": next(
            (entry["reason"] for entry in entries if entry["reason"]),
            "" if each else "scored on other images",
        ),
    }


def _against(inputs, scores, this, own):
    """Runs minus this one, both seed -> artifact: image by image, or by seed where both have
    several.
    """
    shared = scores.keys() & this.keys()
    if len(shared) > 1:
        accuracies = (
            {seed: score.metrics["accuracy"] for seed, score in run.items()}
            for run in (scores, this)
        )
        over = spread.paired(*accuracies)
        interval = over.interval and list(over.interval)
        numbers = {"difference": over.mean, "difference_interval": interval}
        return {**numbers, "paired": True, "won": None, "lost": None, "seeds": over.n}
    seed = min(shared or scores)
    difference = facts.difference(inputs, scores[seed], this.get(seed, this[own]))
    return {**difference.numbers, "seeds": 1}


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


def _shown(row):
    """A row of `runs` in words; '' for what it does not have."""
    changes = {key: templates.setting(value) for key, value in row["settings"].items()}
    shown = {**dict.fromkeys(WORDS, ""), **row, "changes": changes}
    if row["interval"]:
        mean = intervals.within(row["mean"], row["interval"])
        shown |= {"text": mean["text"], "reach": mean["interval_text"]}
    elif row["seeds"]:
        shown |= {"text": templates.percent(row["mean"]), "reach": "no spread"}
    if against := row["against"]:
        value, interval = against["difference"], against["difference_interval"]
        words = (
            intervals.words(intervals.Difference(value, tuple(interval), True))
            if interval
            else {"points": intervals.points(value, 1), "interval_text": "no spread"}
        )
        shown |= {key: words[key] for key in WORDS if key in words}
    return shown
