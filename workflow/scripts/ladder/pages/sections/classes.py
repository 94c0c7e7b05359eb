"""The report's section on classes: the accuracy of each, the confusion matrix, and what was misclassified."""

import numpy as np

from ladder.data import names
from ladder.files import shown
from ladder.pages import facts, figures, intervals, templates
from ladder.store import lineage

FEW = 20           # more classes are folded, and only the worst of them are in the confusion matrix
MISTAKES = 16      # misclassified images shown
PAIRS, PAIR_IMAGES = 6, 6   # most confused pairs of classes shown, and images of each


def section(inputs, numbers):
    """None if nothing was classified."""
    if facts.predictions(inputs) is None:
        return None
    matrix = numbers["confusion"]
    return {"accuracies": accuracies(inputs), "few": FEW, "confusion": confusion(matrix, inputs["data"].metrics["classes"]),
            "most_mistaken": most_mistaken(matrix), "confused": most_confused(inputs), "mistakes": mistakes(inputs)}


def accuracies(inputs):
    """Charts of the accuracies by class with their intervals on an axis from 0 to 100 %, best first: {"all", "ends"}.

    ends: of more than FEW classes the best and the worst, else None. Each row has a mark for the untrained encoder if there is
    that control.
    """
    metrics = facts.predictions(inputs).metrics
    role = f"{lineage.answering(inputs)}_random"   # none for a network that classifies
    control = inputs[role].metrics["per_class"] if role in inputs else {}
    reached, totals = per_class_intervals(metrics), map(sum, metrics["confusion"])
    rows = [{"key": "", "name": name, "note": f"of {total:,}", **intervals.within(value, reached[name]),
             "mark": control.get(name), "mark_text": f"untrained {templates.percent(control[name])}" if control else ""}
            for (name, value), total in zip(metrics["per_class"].items(), totals, strict=True) if value is not None]
    rows.sort(key=lambda row: -row["value"])
    return {"all": intervals.chart(rows, whole=True),
            "ends": intervals.chart([*rows[:FEW // 2], *rows[-(FEW // 2):]], whole=True) if len(rows) > FEW else None}


def per_class_intervals(metrics):
    """Class -> the 95 % interval of its accuracy, JSON-able; None for a class without images."""
    return {name: None if value is None else list(intervals.wilson(value, sum(counts)))
            for (name, value), counts in zip(metrics["per_class"].items(), metrics["confusion"], strict=True)}


# The confusion matrix.

def confusion(matrix, names):
    """Rows of cells with the strength of their colour in percent: the share of the row, of errors relative to the largest one.

    So two errors have colours in the ratio of their shares, and a single one of many images is nearly as pale as none. Of more
    than FEW classes those with the most errors are shown; `others`: what of a row was taken for a class without a column, None
    if there is none.
    """
    rows, most, shown = [], most_mistaken(matrix), _most_errors(matrix)
    for true in shown:
        counts = matrix[true]
        total = sum(counts) or 1
        cells = [{"count": counts[named], "right": true == named, "named": names[named],
                  "strength": round(100 * counts[named] / total / (1 if true == named else most or 1))} for named in shown]
        others = None if len(shown) == len(matrix) else sum(counts) - sum(cell["count"] for cell in cells)
        rows.append({"name": names[true], "cells": cells, "total": sum(counts), "others": others})
    return rows


def _most_errors(matrix):
    """The classes in their order, of more than FEW as many with the most errors."""
    errors = [sum(counts) - counts[true] for true, counts in enumerate(matrix)]
    order = sorted(range(len(matrix)), key=lambda true: -errors[true])
    return sorted(order if len(matrix) <= FEW else order[:FEW])


def most_mistaken(matrix):
    """The largest share of a class that was taken for one other class."""
    return max((number / (sum(counts) or 1) for true, counts in enumerate(matrix) for named, number in enumerate(counts)
                if named != true), default=0)


# Errors, with their images.

def most_confused(inputs):
    """The largest numbers off the diagonal of the confusion matrix, largest first, with some of their images.

    [{"true", "named", "count", "of", "images"}], of: number of images of the true class. Single errors are left out.
    """
    data, score = inputs["data"], facts.predictions(inputs)
    matrix, names = score.metrics["confusion"], data.metrics["classes"]
    pairs = [(number, true, named) for true, row in enumerate(matrix) for named, number in enumerate(row)
             if true != named and number > 1]
    images, labels, predictions = data.array("test_images.npy"), data.array("test_labels.npy"), score.array("predictions.npy")
    shown = []
    for number, true, named in sorted(pairs, key=lambda pair: -pair[0])[:PAIRS]:
        rows = np.flatnonzero((labels == true) & (predictions == named))[:PAIR_IMAGES]
        shown.append({"true": names[true], "named": names[named], "count": number, "of": sum(matrix[true]),
                      "images": [figures.png_uri(images[row]) for row in rows]})
    return shown


def mistakes(inputs):
    """Misclassified test images: {"count", "surest": whether ordered by probability, "shown"}.

    Each has the file of a picture of one's own, and '' otherwise.
    Shown are those with the largest probability of the wrong class if the network classifies, else the first ones.
    """
    data, predictions = inputs["data"], np.asarray(facts.predictions(inputs).array("predictions.npy"))
    images, labels, classes = data.array("test_images.npy"), data.array("test_labels.npy"), data.metrics["classes"]
    wrong, probability, files = np.flatnonzero(labels != predictions), None, names.of(data, "test")
    if "evaluate" in inputs:
        probability = np.asarray(inputs["evaluate"].array("probabilities.npy"))[np.arange(len(predictions)), predictions]
        wrong = wrong[np.argsort(-probability[wrong], kind="stable")]
    return {"count": len(wrong), "surest": probability is not None,
            "shown": [{"image": figures.png_uri(images[index]), "true": classes[labels[index]],
                       "named": classes[predictions[index]], "file": shown(files[index]) if files else "",
                       "sure": None if probability is None else _sure(probability[index])} for index in wrong[:MISTAKES]]}


def _sure(probability):
    return templates.percent(probability) if probability < 0.9995 else f"> {templates.percent(0.999)}"
