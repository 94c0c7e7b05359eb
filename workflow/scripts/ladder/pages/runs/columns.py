"""The columns of runs.html, runs.json and runs.csv: what each holds, and its value for a run.

A column of a number says on which images it was measured: `test_accuracy` and `validation_accuracy`
are two columns. The settings of a run are columns under their own keys.
"""

import math
from typing import NamedTuple

from ladder.errors import UserError
from ladder.pages.runs import costs


class Column(NamedTuple):
    """A column of the page of runs.

    title   its head
    form    how a page writes its values, a key of runs.js's FORMS
    text    what it holds
    better  1 where more is better, -1 where less is
    """

    title: str
    form: str
    text: str
    better: int = 1


# Of a run as a whole; their values are texts.
ABOUT = {
    "run": "version of its report; of its training where there is no report",
    "name": "`name` of the configuration",
    "tags": "`tags` of the configuration, and those of its list and search",
    "state": "`finished`, `running`, `failed`, `interrupted`, `damaged`, `trained` without a report, "
    "`pruned` by a search, `listed` but not made, or `not possible` here",
    "reason": "why it has no numbers",
    "made": "when its report was finished, UTC",
    "trial": "its number in the list, or the search, of the configuration",
    "scored_on": "`test`, `validation` or `changed copies`: the images behind its accuracy",
    "data": "version of its data",
    "train": "version of its weights: of the training, the fit or the start",
    "machine": "the machines that made it",
}
SHARE, POINTS = "share", "points"
# Each with a 95 % interval, in columns of its name with _low and _high.
WITH_INTERVAL = {
    "test_accuracy": Column("test accuracy", SHARE, "share of the test images, Wilson's interval"),
    "validation_accuracy": Column(
        "validation accuracy", SHARE, "share of the validation images, Wilson's interval"
    ),
    "copies_found": Column(
        "copies found first",
        SHARE,
        "of a run without labels: share of changed copies whose nearest picture is their original",
    ),
}
NUMBERS = {
    **WITH_INTERVAL,
    "images": Column("images scored", "count", "number of images behind the accuracy or the share"),
    "balanced_accuracy": Column(
        "mean over classes", SHARE, "mean of the accuracies by class, on the images of `scored_on`"
    ),
    "chance": Column("chance", SHARE, "share of the most frequent class of the images scored"),
    "training_accuracy": Column("training accuracy", SHARE, "on training images, last epoch"),
    "training_loss": Column("training loss", "number", "of the last epoch", -1),
    "test_loss": Column("test loss", "number", "cross-entropy on test images", -1),
    "validation_loss": Column(
        "validation loss", "number", "cross-entropy on validation images", -1
    ),
    "divergence": Column("divergence", "number", "from the prior, nats per image, last epoch", -1),
    "reconstruction_loss": Column(
        "reconstruction loss", "number", "mean squared error on the images of `scored_on`", -1
    ),
    "images_per_second": Column("images/s in training", "rate", "of the training"),
    "seconds": Column("time", "seconds", "of all stages together", -1),
    "training_seconds": Column("training time", "seconds", "of the training alone", -1),
    "peak_memory_bytes": Column("peak memory", "bytes", "of the stage that took most", -1),
    "parameters": Column("parameters", "count", "of the network", -1),
    "error_least": Column(
        "multiplier error, least",
        "relative",
        "smallest relative error of a product of the multiplier of the test, over operands in "
        "[1, 2)",
    ),
    "error_mean": Column("multiplier error, mean", "relative", "mean of these errors"),
    "error_most": Column("multiplier error, most", "relative", "largest of these errors", -1),
}
FAMILIES = {
    "over_": Column(
        "{} points over {}",
        POINTS,
        "accuracy minus that of a control on the same images, Bonett and Price's interval",
    ),
    "accuracy_": Column("{} accuracy, {}", SHARE, "of another classifier or control, by its role"),
    "seconds_": Column("{} time of {}", "seconds", "of a stage, by its role", -1),
    "cost_": Column(
        "{} cost: {}", "number", "of a product of the multiplier of the test, as published", -1
    ),
}


def of_summary(summary):
    """{column: value} and {column: [low, high]} of the summary of a report."""
    where = "validation" if summary["validation"] else "test"
    copies = summary.get("changed_copies")
    numbers = {
        f"{where}_accuracy": summary.get("test_accuracy"),
        f"{where}_loss": summary.get("test_loss"),
        "copies_found": copies and copies["found"],
        "images": copies["pictures"]
        if copies
        else sum(map(sum, summary["confusion"] or [])) or None,
        "balanced_accuracy": summary.get("balanced_accuracy"),
        "chance": _chance(summary["confusion"]),
        "training_accuracy": _last(summary.get("accuracy")),
        "training_loss": _last(summary["loss"]),
        "divergence": _last(summary.get("divergence")),
        "reconstruction_loss": (summary.get("reconstruction_loss") or {}).get("test"),
        "images_per_second": summary.get("images_per_second"),
        "seconds": sum(summary["seconds"].values()),
        "training_seconds": summary["seconds"].get("train"),
        "peak_memory_bytes": max(summary.get("peak_memory_bytes", {}).values(), default=None),
        "parameters": summary.get("parameters"),
        **{f"accuracy_{role}": share for role, share in _other_accuracies(summary).items()},
        **{f"seconds_{role}": seconds for role, seconds in summary["seconds"].items()},
    }
    ends = {
        f"{where}_accuracy": summary.get("accuracy_interval"),
        "copies_found": copies and copies["interval"],
    }
    for control in (copies or summary).get("controls") or []:
        key = f"over_{control['control']}"
        numbers[key], ends[key] = control["difference"], control["difference_interval"]
    known = {key: value for key, value in numbers.items() if _is_number(value)}
    return known, {
        key: list(pair)
        for key, pair in ends.items()
        if pair and key in known and all(map(_is_number, pair))
    }


def of_multiplier(name, given):
    """{column: value} of a run by the multiplier of its test: the errors of its products, and what
    each source says that one costs; given: the setting multiplier_costs, source -> {multiplier:
    cost}.
    """
    published = {f"cost_{source}": cost for source, cost in costs.published(name, given).items()}
    try:
        return published | costs.errors(name)
    except UserError:  # the table is no longer there, or another one
        return published


def column(key):
    """The Column of a number's key, also of one of FAMILIES."""
    if key in NUMBERS:
        return NUMBERS[key]
    family = next(family for family in FAMILIES if key.startswith(family))
    shape = FAMILIES[family]
    role = key.removeprefix(family)
    named = role if family == "cost_" else role.replace("_", ", ")
    return shape._replace(title=shape.title.format("", named).strip())


def _other_accuracies(summary):
    """The accuracies of all classifiers but the one that answers, by role."""
    answering = summary.get("answered_by")
    return {
        role: share
        for role, share in (summary.get("evaluations") or {}).items()
        if role != answering
    }


def _chance(confusion):
    totals = list(map(sum, confusion or []))
    return max(totals) / sum(totals) if any(totals) else None


def _last(values):
    return values[-1] if values else None


def _is_number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)
