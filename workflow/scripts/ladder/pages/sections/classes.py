"""The report's section on classes: the accuracy of each, the confusion matrix, and what was
misclassified.
"""

import itertools

import numpy as np

from ladder.classifiers import scoring
from ladder.data import names
from ladder.files import shown as one_line
from ladder.pages import facts, figures, intervals, templates
from ladder.store import lineage

FEW = 20  # more classes are folded, and only the worst of them are in the confusion matrix
MOST = 1000  # misclassified images shown, which a page of 1.5 MB has room for
FIRST = 12  # pairs of classes that are not folded


def section(inputs, numbers):
    """None if nothing was classified."""
    if facts.predictions(inputs) is None:
        return None
    matrix = numbers["confusion"]
    return {
        "accuracies": accuracies(inputs),
        "first": FIRST,
        "confusion": confusion(matrix, inputs["data"].metrics["classes"]),
        "most_mistaken": most_mistaken(matrix),
        "gallery": gallery(inputs) if numbers["share"] else {"count": 0},
    }


def accuracies(inputs):
    """Charts of the accuracies by class with their intervals, best first: {"all", "ends"}.

    ends: of more than FEW classes the best and the worst, else None. Each row has a mark for the
    untrained encoder if there is that control.
    """
    metrics = facts.predictions(inputs).metrics
    role = f"{lineage.answering(inputs)}_random"  # none for a network that classifies
    control = inputs[role].metrics["per_class"] if role in inputs else {}
    reached, totals = per_class_intervals(metrics), map(sum, metrics["confusion"])
    rows = [
        {
            "name": name,
            "note": f"of {total:,}",
            **intervals.within(value, reached[name]),
            "mark": control.get(name),
            "mark_text": f"untrained {templates.percent(control[name])}" if control else "",
        }
        for (name, value), total in zip(metrics["per_class"].items(), totals, strict=True)
        if value is not None
    ]
    rows.sort(key=lambda row: -row["value"])
    return {
        "all": intervals.chart(rows),
        "ends": intervals.chart([*rows[: FEW // 2], *rows[-(FEW // 2) :]])
        if len(rows) > FEW
        else None,
    }


def per_class_intervals(metrics):
    """Class -> the 95 % interval of its accuracy, JSON-able; None for a class without images."""
    return {
        name: None if value is None else list(intervals.wilson(value, sum(counts)))
        for (name, value), counts in zip(
            metrics["per_class"].items(), metrics["confusion"], strict=True
        )
    }


# The confusion matrix.


def confusion(matrix, names):
    """Rows of cells with the strength of their colour in percent: the share of the row, of errors
    relative to the largest one.

    So two errors have colours in the ratio of their shares, and a single one of many images is
    nearly as pale as none. Of more than FEW classes those with the most errors are shown; `others`:
    what of a row was taken for a class without a column, None if there is none.
    """
    rows, most, shown = [], most_mistaken(matrix), _most_errors(matrix)
    for true in shown:
        counts = matrix[true]
        total = sum(counts) or 1
        cells = [
            {
                "count": counts[named],
                "right": true == named,
                "named": names[named],
                "strength": round(
                    100 * counts[named] / total / (1 if true == named else most or 1)
                ),
            }
            for named in shown
        ]
        others = (
            None
            if len(shown) == len(matrix)
            else sum(counts) - sum(cell["count"] for cell in cells)
        )
        rows.append({"name": names[true], "cells": cells, "total": sum(counts), "others": others})
    return rows


def _most_errors(matrix):
    """The classes in their order, of more than FEW as many with the most errors."""
    errors = [sum(counts) - counts[true] for true, counts in enumerate(matrix)]
    order = sorted(range(len(matrix)), key=lambda true: -errors[true])
    return sorted(order if len(matrix) <= FEW else order[:FEW])


def most_mistaken(matrix):
    """The largest share of a class that was taken for one other class."""
    return max(
        (
            number / (sum(counts) or 1)
            for true, counts in enumerate(matrix)
            for named, number in enumerate(counts)
            if named != true
        ),
        default=0,
    )


# Errors, with their images.


def gallery(inputs):
    """The misclassified images by pair of classes, the most frequent pair first.

    {"count", "shown": numbers of them, "sheet": as figures.sheet, None without errors, "pairs":
    [{"true", "named", "count", "of": images of the true class, "errors": the most confident first
    [{"at": number on the sheet, "row", "file": of a picture of one's own, else '', "sure": its
    probability or margin}]}]}
    """
    data, score = inputs["data"], facts.predictions(inputs)
    labels = np.asarray(data.array("test_labels.npy"))
    named = np.asarray(score.array("predictions.npy"))
    sure, probable = scoring.decisions(score), "evaluate" in inputs
    files, classes = names.read(data, "test"), data.metrics["classes"]
    pairs = _by_pair(labels, named, sure)
    shown, at = _most(pairs), itertools.count()

    def errors(rows):
        return [
            {
                "at": next(at),
                "row": int(row),
                "file": one_line(files[row]) if files else "",
                "sure": templates.sure(sure[row]) if probable else f"margin {sure[row]:.2f}",
            }
            for row in rows
        ]

    return {
        "count": sum(map(len, pairs)),
        "shown": sum(map(len, shown)),
        "sheet": figures.sheet(data.array("test_images.npy")[np.concatenate(shown)])
        if shown
        else None,
        "pairs": [
            {
                "true": classes[labels[rows[0]]],
                "named": classes[named[rows[0]]],
                "count": len(every),
                "of": int((labels == labels[rows[0]]).sum()),
                "errors": errors(rows),
            }
            for rows, every in zip(shown, pairs, strict=False)
        ],
    }


def _by_pair(labels, named, sure):
    """The rows of the errors of each pair of classes, the most frequent pair and the most confident
    error first.
    """
    wrong = np.flatnonzero(labels != named)
    wrong = wrong[np.argsort(-sure[wrong], kind="stable")]
    pairs = {}
    for row in wrong:
        pairs.setdefault((labels[row], named[row]), []).append(row)
    return [pairs[pair] for pair in sorted(pairs, key=lambda pair: (-len(pairs[pair]), pair))]


def _most(pairs):
    """At most MOST of the rows: of every pair at most as many as leave room for the others."""
    shown = pairs[:MOST]  # of the most frequent ones
    longest = min(max(map(len, shown), default=1), MOST)
    each = next(
        (
            most
            for most in range(longest, 0, -1)
            if sum(min(most, len(rows)) for rows in shown) <= MOST
        ),
        1,
    )
    return [rows[:each] for rows in shown]
