"""The report's section about few labels: accuracy against their number, for the run's features and
those of its controls.

inputs are artifacts by role, as in report.py; the stage `labels` has measured each point in several
draws (classifiers/few_labels.py).
"""

import math
from typing import NamedTuple

import numpy as np

from ladder.pages import charts, intervals, spread, templates
from ladder.store import lineage
from ladder.store.roles import PIXELS, RANDOM, Role

# Kind of features -> (name in the summary, in the chart, in a sentence).
FEATURES = {
    "": ("run", "this run", ""),
    RANDOM: ("untrained", "untrained", "those of the untrained encoder"),
    PIXELS: ("pixels", "raw pixels", "raw pixels"),
}


def numbers(inputs):
    """{"counts", "draws", "curves": name -> {"mean", "interval", "each"}, "all": {"labels",
    "accuracy": name -> number}}.

    JSON-able. mean, interval (95 %, Student's t over the draws; None where all are equal) and each
    (of the draws) are lists along counts; all: what the run's primary classifier reaches with all
    labels. None where nothing was measured.
    """
    if "labels" not in inputs:
        return None
    curves, whole, classifier = {}, {}, lineage.primary_classifier(inputs)
    for kind, (name, *_) in FEATURES.items():
        if str(Role("labels", kind)) in inputs:
            curves[name] = _curve(inputs[str(Role("labels", kind))].metrics["scores"])
            whole[name] = inputs[str(Role(classifier, kind))].metrics["accuracy"]
    metrics = inputs["labels"].metrics
    return {
        "counts": metrics["counts"],
        "draws": len(metrics["scores"][0]),
        "curves": curves,
        "all": {"labels": metrics["of"], "accuracy": whole},
    }


def _curve(scores):
    each = [[score["accuracy"] for score in draws] for draws in scores]
    over_draws = [spread.spread(accuracies, spread.SHARES) for accuracies in each]
    return {
        "mean": [point.mean for point in over_draws],
        "each": each,
        "interval": [point.interval and list(point.interval) for point in over_draws],
    }


def equivalent(accuracy, counts, means):
    """The number of labels with which a curve reaches an accuracy, interpolated in its logarithm;
    None if it does not.

    counts: ascending; means: the curve's accuracies; where more labels are worse, the smaller
    number counts.
    """
    best = np.maximum.accumulate(means)
    first = np.flatnonzero(np.diff(best, prepend=-1) > 0)
    if accuracy > best[-1]:
        return None
    return float(np.exp(np.interp(accuracy, best[first], np.log(counts)[first])))


def section(inputs, summary):
    """{"sentences", "chart", "heads", "rows", "whole", "draws"} from `numbers`, which are in the
    summary; None without them.
    """
    measured = summary["few_labels"]
    if measured is None:
        return None
    titles = {name: title for name, title, _ in FEATURES.values() if name in measured["curves"]}
    curves, whole = measured["curves"], measured["all"]
    return {
        "sentences": [
            sentence(measured, name) for name in ("pixels", "untrained") if name in curves
        ],
        "chart": _chart(measured, titles),
        "heads": list(titles.values()),
        "draws": measured["draws"],
        "rows": [
            {"labels": count, "cells": [_cell(curves[name], at) for name in titles]}
            for at, count in enumerate(measured["counts"])
        ],
        "whole": {
            "labels": whole["labels"],
            "cells": [templates.percent(whole["accuracy"][name]) for name in titles],
        },
    }


class Saving(NamedTuple):
    """text: a sentence; is_better: whether it says that the features are better, by more than
    luck.
    """

    text: str
    is_better: bool


def sentence(measured, name):
    """The Saving of the run's features against those of a control: how many labels they save, at
    the count where they save the most.

    In brackets is the difference over the draws, which have the same labels for both.
    """
    control = next(words for key, _, words in FEATURES.values() if key == name)
    counts, own, other = measured["counts"], measured["curves"]["run"], measured["curves"][name]
    each, own, others = own["each"], own["mean"], other["mean"]
    every, whole = measured["all"]["labels"], measured["all"]["accuracy"][name]
    better = [at for at in range(len(counts)) if own[at] > others[at]]
    if not better:
        text = f"With none of these numbers of labels are the features better than {control}."
        return Saving(text, False)
    equals = {at: equivalent(own[at], [*counts, every], [*others, whole]) for at in better}
    beyond = [at for at in better if equals[at] is None]
    if beyond:
        luck, is_better = _over_draws([value - whole for value in each[beyond[0]]], "")
        return Saving(
            f"With {counts[beyond[0]]:,} labels the features are better than {control} with all {every:,}{luck}.",
            is_better,
        )
    most = max(better, key=lambda at: equals[at] / counts[at])
    pairs = zip(each[most], other["each"][most], strict=True)
    luck, is_better = _over_draws([value - beside for value, beside in pairs], " with as many")
    return Saving(
        f"With {counts[most]:,} labels the features are as good as {control} with about {rounded(equals[most]):,}{luck}.",
        is_better,
    )


def _over_draws(differences, when):
    """(' (+1.2 points, −0.3 to +2.7 over the draws, could be luck)', whether it is more than luck);
    '' where the difference is the same in each draw.
    """
    over = spread.spread([round(value, 12) for value in differences], spread.DIFFERENCES)
    if over.interval is None:
        return "", over.mean > 0
    words = intervals.words(intervals.Difference(over.mean, over.interval, True))
    text = f" ({words['points']} points{when}, {words['interval_text']} over the draws, {words['luck_text']})"
    return text, intervals.kind(over.interval) == "above"


def rounded(count):
    """A count with two significant digits."""
    return int(round(count, 1 - math.floor(math.log10(count))))


def _cell(curve, at):
    mean, interval = curve["mean"][at], curve["interval"][at]
    if interval is None:
        return templates.percent(mean)
    low, high = interval
    digits = intervals.decimals(interval)
    return f"{100 * mean:.{digits}f}{templates.NARROW_SPACE}% ± {50 * (high - low):.{digits}f}"


def _chart(measured, titles):
    counts, whole = measured["counts"], measured["all"]
    series = [
        {
            "name": title,
            "key": title,
            "colour": number,
            "points": [
                *zip(counts, measured["curves"][name]["mean"], strict=True),
                (whole["labels"], whole["accuracy"][name]),
            ],
        }
        for number, (name, title) in enumerate(titles.items(), 1)
    ]
    x = charts.number_axis("labels", "log")
    return charts.lines(
        "Accuracy by number of labels", series, charts.share_axis("accuracy"), ("labels",), x
    )
