"""The page that compares runs (run_table.py). The distances between their weights are computed
here.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from ladder.classifiers import metrics
from ladder.network import weights
from ladder.pages import charts, curves, ensemble, intervals, roles, run_table, templates
from ladder.pages.run_table import CHARTED, NUMBERS, written
from ladder.pages.sections import features, timing

COLOURS = 6  # runs and parts that colours can distinguish
POINTS = 300  # maximum per curve
# settings
MAIN = (
    "dataset",
    "network",
    "variant",
    "batch_size",
    "epochs",
    "steps",
    "optimizer",
    "learning_rate",
    "seed",
)


def page(runs):
    """The page as one HTML text."""
    return templates.render("compare.html", context(runs))


def context(runs):
    """All variables of the template."""
    ran = [run for run in runs if run.summary]
    keys, stages = differing(runs), run_table.stages(ran)
    series, distinguishing = _series(ran), differing(ran)
    labels = {run.number: label(run, distinguishing) for run in runs}
    ranked = sorted((run for run in ran if run.accuracy is not None), key=lambda run: -run.accuracy)
    best, highest, joined = _best(ranked), _highest(ran), ensemble.numbers(ranked)
    return {
        "count": len(runs),
        "ran": len(ran),
        "missing": [run for run in runs if run.reason and not run.failed],
        "failed": [run for run in runs if run.failed],
        "keys": keys,
        "same": _same(ran, keys),
        "best": best,
        "accuracies": _accuracies(ranked, best, labels),
        "labels": labels,
        "rows": [_row(run, keys, series, highest, best and ranked[0]) for run in _best_first(runs)],
        "ensemble": joined,
        "mean": ensemble.texts(joined),
        "scored_on": _scored_on(ran),
        "labelled": [run.number for run in ran if features.with_labels(run.summary["features"])],
        "has": {key: any(run.summary[key] is not None for run in ran) for key in NUMBERS},
        "legend": [
            {
                "key": run.number,
                "name": f"{run.number} {labels[run.number]}".strip(),
                "series": series[run.number],
            }
            for run in ran
        ],
        "charts": _charts(ran, series, labels),
        "stage_heads": [roles.title(name) for name in stages],
        "stage_rows": [_stage_row(run, stages, labels) for run in ran],
        "operations": _operations(ran),
        "speed": _speed(ran),
        "one_task": len({(run.summary["network"], run.summary["dataset"]) for run in ran}) < 2,
        "weights": _weights(ran, labels),
    }


def _best_first(runs):
    """By accuracy; those without one in their order at the end."""
    return sorted(
        runs,
        key=lambda run: -math.inf if not run.summary or run.accuracy is None else run.accuracy,
        reverse=True,
    )


def differing(runs):
    """The settings named by entries that differ between the runs."""

    def values(key):
        return {written(run.value(key)) for run in runs if run.value(key) is not None}

    return [key for key in run_table.named_keys(runs) if len(values(key)) > 1]


def _same(ran, keys):
    """The main settings, and those named by entries, that all runs share."""
    if not ran:
        return {}
    known = {
        key: {written(run.value(key)) for run in ran}
        for key in [*MAIN, *run_table.named_keys(ran)]
        if key not in keys
    }
    return {
        key: next(iter(values))
        for key, values in known.items()
        if len(values) == 1 and values != {""}
    }


def _scored_on(ran):
    """'test' or 'validation'; '' if the runs differ in that."""
    kinds = {metrics.scored_on(run.summary) for run in ran}
    return kinds.pop() if len(kinds) == 1 else ""


def label(run, keys):
    """The values of these settings: 'learning_rate 0.01, batch_size 32'."""
    return ", ".join(
        f"{key} {written(run.value(key))}" for key in keys if run.value(key) is not None
    )


def _best(ranked):
    """run_table.standing with "numbers" of the most accurate runs, "of" how many; None if
    accuracies are not comparable.

    ranked: the runs with an accuracy, best first.
    """
    if len(ranked) < 2 or not _one_dataset(ranked):
        return None
    best = run_table.standing(ranked, lambda run: run.accuracy)
    return {**best, "numbers": [best["number"], *best["alike"]], "of": len(ranked)}


def _accuracies(ranked, best, labels):
    """The accuracies of the CHARTED best runs, best first; None if they are not comparable."""
    return (
        run_table.chart(ranked[:CHARTED], lambda run: run.accuracy, best["numbers"], labels)
        if best
        else None
    )


def _highest(ran):
    """The accuracy to mark in the table; None if all are the same or they are not comparable."""
    accuracies = {run.accuracy for run in ran if run.accuracy is not None}
    return max(accuracies) if len(accuracies) > 1 and _one_dataset(ran) else None


def _one_dataset(ran):
    """Whether all runs were scored on the test images of one dataset, or on one validation set."""
    return (
        len(
            {
                run.summary["versions"]["data"]
                if run.summary["validation"]
                else run.summary["dataset"]
                for run in ran
            }
        )
        == 1
    )


def _series(ran):
    """Run number -> number of its colour; 'rest' for all but the COLOURS most accurate of many
    runs.
    """
    if len(ran) <= COLOURS:
        return {run.number: number for number, run in enumerate(ran, 1)}
    best = sorted(
        ran, key=lambda run: (-(run.accuracy or 0), math.inf if math.isnan(run.loss) else run.loss)
    )[:COLOURS]
    return {run.number: "rest" for run in ran} | {
        run.number: number for number, run in enumerate(best, 1)
    }


def _row(run, keys, series, highest, first):
    """first: the best run, which the others are held against; None where accuracies are not
    comparable.
    """
    row = run_table.row(run, [run.value(key) for key in keys])
    if run.reason:
        return row
    shares = {
        key: None if run.summary[key] is None else intervals.share(run.summary[key], run.tested)
        for key in NUMBERS
        if key.endswith("accuracy")
    }
    speed = run.summary["images_per_second"]  # None where nothing was trained
    against = None
    if first and first is not run and run.accuracy is not None:
        difference = run_table.difference(run, first)
        against = {**intervals.words(difference), "value": difference.value}
    return {
        **row,
        "series": series[run.number],
        "against": against,
        "accuracies": {key: share or {"value": None, "text": ""} for key, share in shares.items()},
        "interval": ", ".join(
            filter(
                None,
                (
                    (shares["test_accuracy"] or {}).get("interval_text"),
                    intervals.balanced(run.summary),
                ),
            )
        ),
        "scored_on": metrics.scored_on(run.summary),
        "best": highest is not None and run.accuracy == highest,
        "speed": {"value": speed or "", "text": templates.rate(speed) if speed else ""},
        "memory": {"value": run.memory, "text": templates.size(run.memory)},
    }


# Curves.


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity by step: its tensor in history.safetensors, the title of its chart, and the
    function that makes its axis.
    """

    tensor: str
    title: str
    axis: Callable


LOSSES = {
    kind: Quantity("losses", title, charts.loss_axis)
    for kind, title in (
        ("mse", "Loss, mean squared error of the reconstruction"),
        ("cross_entropy", "Loss, cross-entropy"),
    )
}
ACCURACY = Quantity(
    "hits", "Accuracy on the training images", functools.partial(charts.share_axis, from_zero=True)
)


def _charts(ran, series, labels):
    """Charts of the training losses, one for each kind of loss, and of the training accuracies."""
    trained = [run for run in ran if run.summary["loss"]]
    quantities = [
        (quantity, [run for run in trained if run.network.loss == kind])
        for kind, quantity in LOSSES.items()
    ]
    quantities.append((ACCURACY, [run for run in trained if run.network.classifies]))
    return [
        chart
        for chart in (_chart(quantity, runs, series, labels) for quantity, runs in quantities)
        if chart
    ]


def _chart(quantity, runs, series, labels):
    points = {run.number: _points(run, quantity.tensor) for run in runs}
    lines = [
        {
            "name": f"run {run.number} ({labels[run.number]})"
            if labels[run.number]
            else f"run {run.number}",
            "label": str(run.number),
            "key": run.number,
            "colour": series[run.number],
            "points": points[run.number],
            "by": curves.paces(run.train, run.images, points[run.number]),
        }
        for run in runs
        if points[run.number]
    ]
    if not lines:
        return None
    return {
        "chart": charts.lines(
            f"Training: {quantity.title}", lines, quantity.axis(quantity.title), curves.BY
        ),
        "title": quantity.title,
        "lost": [number for number, places in points.items() if not places],
        "count": len(lines),
    }


def _points(run, name):
    """[(middle step, value)] of the curve: means over several steps, without those that are not
    finite.
    """
    values = curves.history(run.train, name).astype(np.float64)
    if name == "hits":
        values = values / curves.batch_sizes(run.train, run.images)
    means, _ = curves.means(values, POINTS)
    return [point for point in means if math.isfinite(point[1])]


# Time.


def _stage_row(run, stages, labels):
    seconds = [run.summary["seconds"].get(name) for name in stages]
    cells = [
        {"value": value, "text": "" if value is None else templates.duration(value)}
        for value in seconds
    ]
    return {
        "number": run.number,
        "label": labels[run.number],
        "cells": cells,
        "total": {"value": run.seconds, "text": templates.duration(run.seconds)},
    }


def _operations(ran):
    """Stacked bars of the training time by operation: {"rows", "parts"}; operations without a
    colour are 'all other'.
    """
    # without the runs of weights as they were
    ran = [run for run in ran if "seconds_by_operation" in run.train.metrics]
    spent = {run.number: timing.spent(run.train.metrics) for run in ran}
    largest = {}
    for times in spent.values():
        for name, value in times.items():
            largest[name] = max(largest.get(name, 0), value / sum(times.values()))
    names = sorted(largest, key=lambda name: -largest[name])
    coloured = names if len(names) <= COLOURS else names[: COLOURS - 1]
    parts = [{"name": name, "series": number} for number, name in enumerate(coloured, 1)]
    parts += [{"name": "all other", "series": "rest"}] if len(names) > len(coloured) else []
    longest = max((sum(times.values()) for times in spent.values()), default=0) or 1
    return {"parts": parts, "rows": [_stack(run, spent[run.number], parts, longest) for run in ran]}


def _stack(run, times, parts, longest):
    total = sum(times.values())
    named = {part["name"] for part in parts}
    seconds = {part["name"]: times.get(part["name"], 0) for part in parts}
    if "all other" in seconds:
        seconds["all other"] = sum(value for name, value in times.items() if name not in named)
    return {
        "name": run.number,
        "length": round(100 * total / longest, 2),
        "text": templates.duration(total),
        "numbers": list(seconds.values()),
        "parts": [
            {
                **part,
                "length": round(100 * seconds[part["name"]] / (total or 1), 2),
                "text": templates.duration(seconds[part["name"]]),
            }
            for part in parts
            if seconds[part["name"]] > 0
        ],
    }


def _speed(ran):
    """Bars of each run's images per second in training, relative to the slowest run."""
    rates = {
        run.number: run.summary["images_per_second"]
        for run in ran
        if run.summary["images_per_second"]
    }
    slowest = min(rates.values(), default=1)
    bars = templates.bars(
        {number: rate / slowest for number, rate in rates.items()}, "{:.2f}×".format
    )
    return [{**bar, "note": f"{templates.rate(rates[bar['name']])} images/s"} for bar in bars]


# Weights.


def _weights(ran, labels):
    """Distances of each run's weights to the first run's by layer: {"first", "layers", "rows",
    "others"}.

    others: runs of another network. None if there is only one run.
    """
    if len(ran) < 2:
        return None
    first, *others = ran
    alike = [run for run in others if weights.shapes(run.network) == weights.shapes(first.network)]
    distances = _distances(first, alike) if alike else {}
    names = list(next(iter(distances.values()), ()))
    is_long = len(names) > templates.LONG
    parts = templates.in_stages(names) if is_long else [("", [name]) for name in names]
    rows = [
        {
            "number": run.number,
            "label": labels[run.number],
            "cells": [
                _distance(max(distances[run.number][name] for name in layers))
                for _, layers in parts
            ],
        }
        for run in alike
    ]
    return {
        "first": first.number,
        "label": labels[first.number],
        "rows": rows,
        "folded": is_long,
        "layers": [stage or templates.span(layers) for stage, layers in parts],
        "others": [run.number for run in others if run.number not in distances],
    }


def _distances(first, others):
    """Run number -> the distance of each layer's weights from those of the first run
    (weights.movement).
    """
    reference = weights.of_artifact(first.train, first.network)
    return {
        run.number: weights.movement(reference, weights.of_artifact(run.train, run.network))
        for run in others
    }


def _distance(value):
    """A cell of the table of distances, darker for larger ones."""
    if not math.isfinite(value):
        return {"text": "not a number", "value": "", "strength": 0}
    return {
        "text": templates.small_percent(value) if value else "same",
        "value": value,
        "strength": round(min(70, 50 * math.sqrt(value))),
    }
