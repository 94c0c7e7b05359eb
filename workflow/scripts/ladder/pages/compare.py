"""A comparison of runs: the rows of a table for programs and spreadsheets, and a page.

All numbers come from the runs' reports and trainings, except the distances between the runs' weights, computed here.
"""

import csv
import dataclasses
import functools
import io
import itertools
import math
from collections.abc import Callable

import numpy as np

from ladder.classifiers import metrics
from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.pages import charts, feature_sections, intervals, report_sections, roles, templates
from ladder.store import artifacts, lineage

CHARTED = 5        # runs whose accuracies are charted on the first screen, the most accurate ones
COLOURS = charts.COLOURED   # runs and parts that colours can distinguish
POINTS = 100       # maximum per curve
NUMBERS = {        # summary key -> its head in compare.csv and on the page
    "test_accuracy": "test accuracy", "control_accuracy": "untrained", "raw_pixel_accuracy": "raw pixels",
    "images_per_second": "images/s",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One entry of a list of runs. An entry without a result, for its `reason`, has nothing but its overrides.

    failed: whether it failed when it was run; otherwise it cannot run here.
    train: the artifact with its weights, of the training or else of the fit; settings: key -> value of everything that can
    change the run; images: number of training images; tested: number of images it is scored on.
    """

    number: int
    overrides: dict
    reason: str = ""
    train: artifacts.Artifact | None = None
    summary: dict | None = None
    settings: dict = dataclasses.field(default_factory=dict)
    images: int = 0
    tested: int = 0
    failed: bool = False

    def value(self, key):
        """The value of a setting; None if unknown."""
        return self.settings.get(key, self.overrides.get(key))

    @functools.cached_property
    def network(self):
        return networks.from_params(self.train.manifest["spec"]["params"])

    @property
    def loss(self):
        """The training loss of the last epoch; NaN if nothing was trained."""
        return self.summary["loss"][-1] if self.summary["loss"] else math.nan

    @property
    def seconds(self):
        return sum(self.summary["seconds"].values())

    @property
    def memory(self):
        return max(self.summary["peak_memory_bytes"].values())


def runs(inputs, entries):
    """The Run of each entry; inputs and entries as the stage `compare` has them."""
    stores = {}
    found = [Run(number + 1, entry["overrides"], entry["reason"]) if entry["reason"] else
             _run(number, entry["overrides"], inputs[f"report{number}"], inputs[f"train{number}"], stores)
             for number, entry in enumerate(entries)]
    shared = _shared(found)
    return [run if run.settings else dataclasses.replace(run, settings=shared | run.overrides) for run in found]


def _shared(runs):
    """The settings in which all runs agree that do not name them: those of the configuration that the entries change."""
    found = {}
    for run in runs:
        for key, value in run.settings.items():
            if key not in run.overrides:
                found.setdefault(key, []).append(value)
    return {key: values[0] for key, values in found.items() if all(value == values[0] for value in values)}


def _run(number, overrides, made, train, stores):
    if made.failed:
        return Run(number + 1, overrides, made.failed, failed=True)
    results = made.folder.parents[1]
    store = stores.setdefault(results, lineage.Store(results))
    data = artifacts.Artifact(results / "data" / made.manifest["spec"]["parents"]["data"]).metrics
    return Run(number + 1, overrides, train=train, summary=made.json("summary.json"), settings=store.settings(made.version),
               images=data["train"], tested=data["test"])


# For programs.

def rows(runs):
    """A row for each run, JSON-able."""
    return [{"settings": run.overrides, "versions": run.summary["versions"], "summary": run.summary} if run.summary else
            {"settings": run.overrides, "versions": None, "summary": None, "reason": run.reason} for run in runs]


def csv_text(runs, more=None):
    """A line for each run: number, settings that any entry names, numbers, versions, reason.

    more: head -> function of a Run, further columns after the number.
    """
    keys, stages = _keys(runs), _stages(runs)
    what = [key for key in ("network", "dataset", "holdout", "variant") if key not in keys]
    versions = list(dict.fromkeys(name for run in runs if run.summary for name in run.summary["versions"]))
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    more = more or {}
    table.writerow(["run", *more, *keys, *what, *NUMBERS, "loss", "seconds", *(f"seconds_{name}" for name in
                    stages), "peak_memory_bytes", *(f"version_{name}" for name in versions), "reason"])
    for run in runs:
        line = [run.number, *(value(run) for value in more.values()), *(written(run.value(key)) for key in keys)]
        if run.summary:
            of = run.summary
            line += [*(of[key] for key in (*what, *NUMBERS)), run.loss, run.seconds]
            line += [of["seconds"].get(name) for name in stages]
            line += [run.memory, *(of["versions"].get(name) for name in versions), ""]
        else:
            line += [""] * (3 + len(what) + len(NUMBERS) + len(stages) + len(versions)) + [run.reason]
        table.writerow(line)
    return file.getvalue()


def _keys(runs):
    """All settings that entries name."""
    return list(dict.fromkeys(key for run in runs for key in run.overrides))


def _stages(runs):
    """The stages of all runs, in the order of the work."""
    found = {name for run in runs if run.summary for name in run.summary["seconds"]}
    return roles.in_order(found)


def written(value):
    return "" if value is None else templates.setting(value)


# The page.

def page(runs):
    """The page as one HTML text."""
    return templates.render("compare.html", context(runs))


def context(runs):
    """All variables of the template."""
    ran = [run for run in runs if run.summary]
    keys = differing(runs)
    series = _series(ran)
    told = differing(ran)
    labels = {run.number: label(run, told) for run in runs}
    return {
        "count": len(runs), "ran": len(ran), "missing": [run for run in runs if run.reason and not run.failed],
        "failed": [run for run in runs if run.failed],
        "keys": keys, "same": _same(ran, keys), "best": _best(ran), "accuracies": _accuracies(ran, labels), "labels": labels,
        "rows": [_row(run, keys, series, ran) for run in runs],
        "scored_on": _scored_on(ran),
        "labelled": [run.number for run in ran if feature_sections.with_labels(run.summary["features"])],
        "has": {key: any(run.summary[key] is not None for run in ran) for key in NUMBERS},
        "legend": [{"key": run.number, "name": f"{run.number} {labels[run.number]}".strip(), "series": series[run.number]}
                   for run in ran],
        "charts": _charts(ran, series, labels),
        "stage_heads": [roles.title(name) for name in _stages(ran)],
        "stage_rows": [_stage_row(run, _stages(ran), labels) for run in ran],
        "operations": _operations(ran, labels),
        "speed": _speed(ran, labels),
        "one_task": len({(run.summary["network"], run.summary["dataset"]) for run in ran}) < 2,
        "weights": _weights(ran, labels),
    }


def differing(runs):
    """The settings named by entries that differ between the runs."""
    def values(key):
        return {written(run.value(key)) for run in runs if run.value(key) is not None}

    return [key for key in _keys(runs) if len(values(key)) > 1]


def _same(ran, keys):
    """The main settings, and those named by entries, that all runs share."""
    if not ran:
        return {}
    asked = ["dataset", "network", "variant", "batch_size", "epochs", "steps", "optimizer", "learning_rate", "seed"]
    known = {key: {written(run.value(key)) for run in ran} for key in [*asked, *_keys(ran)] if key not in keys}
    return {key: next(iter(values)) for key, values in known.items() if len(values) == 1 and values != {""}}


def _scored_on(ran):
    """'test' or 'hold-out'; '' if the runs differ in that."""
    kinds = {metrics.scored_on(run.summary) for run in ran}
    return kinds.pop() if len(kinds) == 1 else ""


def label(run, keys):
    return ", ".join(f"{key} {written(run.value(key))}" for key in keys if run.value(key) is not None)


def _best(ran):
    """The most accurate runs and their lead over the next ones; None if the accuracies are not comparable."""
    accurate = sorted((run for run in ran if run.summary["test_accuracy"] is not None),
                      key=lambda run: -run.summary["test_accuracy"])
    if len(accurate) < 2 or not _one_dataset(accurate):
        return None
    first, *others = (list(some) for _, some in itertools.groupby(accurate, lambda run: run.summary["test_accuracy"]))
    found = {"numbers": [run.number for run in first], **intervals.share(*_score(first[0])), "tested": first[0].tested,
             "next": [], "of": len(accurate)}
    if others:
        found |= {"next": [run.number for run in others[0]], **lead(difference(first[0], others[0][0]))}
    return found


def _accuracies(ran, labels):
    """The accuracies of the runs with their intervals on one axis, in their order, the CHARTED best if there are more.

    None if they are not comparable.
    """
    best = _best(ran)
    if best is None:
        return None
    accurate = sorted((run for run in ran if run.summary["test_accuracy"] is not None),
                      key=lambda run: -run.summary["test_accuracy"])[:CHARTED]
    return intervals.chart([
        {"key": "own" if run.number in best["numbers"] else "", "name": f"run {run.number}", "note": labels[run.number],
         **intervals.share(*_score(run))} for run in sorted(accurate, key=lambda run: run.number)])


def lead(ahead):
    """The intervals.Difference of the best run from the next one in words, as intervals.told, but its interval_of_lead."""
    words = intervals.told(ahead)
    return {"interval_of_lead": words.pop("interval_text"), **words}


def difference(first, other, role=None):
    """The intervals.Difference of two runs' accuracies, paired where both keep their answers for the same images.

    role: of the classifier, by default the network itself if it classifies, else the SVM.
    """
    a, b = (_answers(run, role) for run in (first, other))
    if a and b and a.images == b.images:
        return intervals.paired(*metrics.won_and_lost(a.labels, a.predictions, b.predictions), len(a.labels))
    return intervals.unpaired(*_score(first, role), *_score(other, role))


def _score(run, role=None):
    """(accuracy, number of images)"""
    return run.summary["evaluations"][role] if role else run.summary["test_accuracy"], run.tested


@dataclasses.dataclass(frozen=True)
class _Answers:
    """images: checksums of the images and labels that a run was scored on; labels, predictions: (N,)."""

    images: tuple
    labels: np.ndarray
    predictions: np.ndarray


def _answers(run, role):
    """The run's _Answers; None if they are not kept, or damaged."""
    versions, results = run.summary["versions"], run.train.folder.parents[1]
    role = role or lineage.answering(versions)
    try:
        data, score = (artifacts.Artifact(results / stage / versions[stage]) for stage in ("data", role))
        images = tuple(data.manifest["files"][f"test_{part}.npy"]["sha256"] for part in ("images", "labels"))
        return _Answers(images, data.array("test_labels.npy"), score.array("predictions.npy"))
    except (UserError, OSError):
        return None


def _one_dataset(ran):
    """Whether all runs were scored on the test images of one dataset, or on one hold-out set."""
    return len({run.summary["versions"]["data"] if run.summary["holdout"] else run.summary["dataset"] for run in ran}) == 1


def _series(ran):
    """Run number -> number of its colour; 'rest' for all but the COLOURS most accurate of many runs."""
    if len(ran) <= COLOURS:
        return {run.number: number for number, run in enumerate(ran, 1)}
    best = sorted(ran, key=lambda run: (-(run.summary["test_accuracy"] or 0), _comparable(run.loss)))[:COLOURS]
    return {run.number: "rest" for run in ran} | {run.number: number for number, run in enumerate(best, 1)}


def _comparable(loss):
    return math.inf if math.isnan(loss) else loss


def _row(run, keys, series, ran):
    row = {"number": run.number, "reason": run.reason, "failed": run.failed, "settings": [cell(run.value(key)) for key in keys]}
    if run.reason:
        return row
    accuracies = {key: run.summary[key] for key in NUMBERS if key.endswith("accuracy")}
    reached = [other.summary["test_accuracy"] for other in ran if other.summary["test_accuracy"] is not None]
    best = max(reached, default=None) if len(set(reached)) > 1 and _one_dataset(ran) else None
    speed = run.summary["images_per_second"]   # None where nothing was trained
    own = {} if run.summary["test_accuracy"] is None else intervals.share(*_score(run))
    return {
        **row, "series": series[run.number], "report": run.summary["versions"]["report"],
        "accuracies": {key: {"value": value, "text": "" if value is None else intervals.share(value, run.tested)["text"]}
                       for key, value in accuracies.items()},
        "interval": own.get("interval_text", ""),
        "scored_on": metrics.scored_on(run.summary), "best": best is not None and run.summary["test_accuracy"] == best,
        "loss": {"value": run.loss if math.isfinite(run.loss) else "",
                 "text": f"{run.loss:.4g}" if run.summary["loss"] else ""},
        "speed": {"value": speed or "", "text": templates.rate(speed) if speed else ""},
        "seconds": {"value": run.seconds, "text": templates.duration(run.seconds)},
        "memory": {"value": run.memory, "text": templates.size(run.memory)},
    }


def cell(value):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"text": written(value), "value": value if number else written(value), "number": number}


# Curves.

@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity by step: its tensor in history.safetensors, the title of its chart, and the function that makes its axis."""

    tensor: str
    title: str
    axis: Callable


LOSSES = {kind: Quantity("losses", title, charts.loss_axis) for kind, title in (
    ("mse", "Loss, mean squared error of the reconstruction"), ("cross_entropy", "Loss, cross-entropy"))}
ACCURACY = Quantity("hits", "Accuracy on the training images", functools.partial(charts.share_axis, from_zero=True))


def _charts(ran, series, labels):
    """Charts of the training losses, one for each kind of loss, and of the training accuracies."""
    shown = [(quantity, [run for run in ran if run.network.loss == kind]) for kind, quantity in LOSSES.items()]
    shown.append((ACCURACY, [run for run in ran if run.network.classifies]))
    drawn = [_chart(quantity, [run for run in some if run.summary["loss"]], series, labels) for quantity, some in shown]
    return [chart for chart in drawn if chart]


def _chart(quantity, some, series, labels):
    points = {run.number: _points(run, quantity.tensor) for run in some}
    lines = [{"name": f"run {run.number} ({labels[run.number]})" if labels[run.number] else f"run {run.number}",
              "label": str(run.number), "key": run.number, "series": series[run.number], "points": points[run.number],
              "by": report_sections.paces(run.train, run.images, points[run.number])} for run in some if points[run.number]]
    if not lines:
        return None
    y = quantity.axis([value for line in lines for _, value in line["points"]], quantity.title)
    lost = [run.number for run in some if not points[run.number]]
    return {**charts.lines(f"Training: {quantity.title}", lines, y, report_sections.BY), "title": quantity.title, "lost": lost,
            "kind": y.kind, "count": len(lines)}


def _points(run, name):
    """[(middle step, value)] of the curve: means over several steps, without those that are not finite."""
    values = run.train.tensors("history.safetensors")[name].astype(np.float64)
    if name == "hits":
        values = values / report_sections.batch_sizes(run.train, run.images)
    pieces = np.array_split(np.arange(len(values)), min(POINTS, len(values)))
    means = [(float(piece.mean()) + 0.5, float(values[piece].mean())) for piece in pieces]
    return [point for point in means if math.isfinite(point[1])]


# Time.

def _stage_row(run, stages, labels):
    seconds = [run.summary["seconds"].get(name) for name in stages]
    cells = [{"value": value, "text": "" if value is None else templates.duration(value)} for value in seconds]
    return {"number": run.number, "label": labels[run.number], "cells": cells,
            "total": {"value": run.seconds, "text": templates.duration(run.seconds)}}


def _operations(ran, labels):
    """Stacked bars of the training time by operation: {"rows", "parts"}; operations without a colour are 'all other'."""
    ran = [run for run in ran if "seconds_by_operation" in run.train.metrics]   # without the runs of weights as they were
    spent = {run.number: report_sections.spent(run.train.metrics) for run in ran}
    largest = {}
    for times in spent.values():
        for name, value in times.items():
            largest[name] = max(largest.get(name, 0), value / sum(times.values()))
    names = sorted(largest, key=lambda name: -largest[name])
    coloured = names if len(names) <= COLOURS else names[:COLOURS - 1]
    parts = [{"name": name, "series": number} for number, name in enumerate(coloured, 1)]
    parts += [{"name": "all other", "series": "rest"}] if len(names) > len(coloured) else []
    longest = max((sum(times.values()) for times in spent.values()), default=0) or 1
    return {"parts": parts, "rows": [_stack(run, spent[run.number], parts, longest, labels) for run in ran]}


def _stack(run, times, parts, longest, labels):
    total = sum(times.values())
    named = {part["name"] for part in parts}
    seconds = {part["name"]: times.get(part["name"], 0) for part in parts}
    if "all other" in seconds:
        seconds["all other"] = sum(value for name, value in times.items() if name not in named)
    return {"name": run.number, "detail": labels[run.number], "length": round(100 * total / longest, 2),
            "text": templates.duration(total), "numbers": list(seconds.values()),
            "parts": [{**part, "length": round(100 * seconds[part["name"]] / (total or 1), 2),
                       "text": templates.duration(seconds[part["name"]])} for part in parts if seconds[part["name"]] > 0]}


def _speed(ran, labels):
    """Bars of each run's images per second in training, relative to the slowest run."""
    rates = {run.number: run.summary["images_per_second"] for run in ran if run.summary["images_per_second"]}
    slowest = min(rates.values(), default=1)
    bars = templates.bars({number: rate / slowest for number, rate in rates.items()}, "{:.2f}×".format)
    return [{**bar, "detail": labels[bar["name"]], "note": f"{templates.rate(rates[bar['name']])} images/s"} for bar in bars]


# Weights.

def _weights(ran, labels):
    """Distances of each run's weights to the first run's by layer: {"first", "layers", "rows", "others"}.

    others: runs of another network. None if there is only one run.
    """
    if len(ran) < 2:
        return None
    first, others = ran[0], [run.number for run in ran[1:] if not _alike(run, ran[0])]
    same = [run for run in ran[1:] if _alike(run, first)]
    rows, layers = [], []
    reference = _load(first) if same else None
    for run in same:
        found = weights.movement(reference, _load(run))
        folded = templates.in_stages(found) if len(found) > report_sections.LONG else [(name, [name]) for name in found]
        layers = [stage or " to ".join(dict.fromkeys((names[0], names[-1]))) for stage, names in folded]
        cells = [_distance(max(found[name] for name in names)) for _, names in folded]
        rows.append({"number": run.number, "label": labels[run.number], "cells": cells})
    return {"first": first.number, "label": labels[first.number], "layers": layers, "rows": rows, "others": others,
            "folded": bool(rows) and len(found) > report_sections.LONG}


def _alike(run, other):
    return weights.shapes(run.network) == weights.shapes(other.network)


def _load(run):
    return weights.load(run.train.path(weights.file_name(run.network)), run.network)


def _distance(value):
    """A cell of the table of distances, darker for larger ones."""
    if not math.isfinite(value):
        return {"text": "not a number", "value": "", "strength": 0}
    return {"text": templates.small_percent(value) if value else "same", "value": value,
            "strength": round(min(70, 50 * math.sqrt(value)))}
