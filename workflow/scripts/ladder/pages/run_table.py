"""A list of runs as one table: what the pages compare, search and multipliers read of each, its
CSV, and which run is best.

All numbers come from the runs' reports and trainings.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np

from ladder.errors import UserError
from ladder.network import networks
from ladder.pages import intervals, output, roles, templates
from ladder.store import artifacts, lineage

CHARTED = 5  # runs whose accuracies are charted on the first screen, the best ones
NUMBERS = {  # summary key -> its head in compare.csv and on the page
    "test_accuracy": "test accuracy",
    "control_accuracy": "untrained",
    "raw_pixel_accuracy": "raw pixels",
    "images_per_second": "images/s",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One entry of a list of runs. An entry without a result, for its `reason`, has nothing but its
    overrides.

    failed: whether it failed when it was run; otherwise it cannot run here.
    train: the artifact with its weights, of the training or else of the fit; settings: key -> value
    of everything that can change the run; images: number of training images; tested: number of
    images it is scored on.
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
    def results(self):
        """The folder with the artifacts of all stages."""
        return self.train.folder.parents[1]

    @property
    def accuracy(self):
        """The run's accuracy (0 to 1) on the images that it is scored on; None without one."""
        return self.summary["test_accuracy"]

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


def read(inputs, entries):
    """The Run of each entry; inputs and entries as the stage `compare` has them."""
    stores = {}
    runs = [
        Run(number + 1, entry["overrides"], entry["reason"])
        if entry["reason"]
        else _run(
            number, entry["overrides"], inputs[f"report{number}"], inputs[f"train{number}"], stores
        )
        for number, entry in enumerate(entries)
    ]
    shared = _shared(runs)
    return [
        run if run.settings else dataclasses.replace(run, settings=shared | run.overrides)
        for run in runs
    ]


def _run(number, overrides, report, train, stores):
    if report.failed:
        return Run(number + 1, overrides, report.failed, failed=True)
    results = report.folder.parents[1]
    store = stores.setdefault(results, lineage.Store(results))
    data = artifacts.Artifact(results / "data" / report.manifest["spec"]["parents"]["data"]).metrics
    return Run(
        number + 1,
        overrides,
        train=train,
        summary=report.json("summary.json"),
        settings=store.settings(report.version),
        images=data["train"],
        tested=data["test"],
    )


def _shared(runs):
    """The settings in which all runs agree that do not name them: those of the configuration that
    the entries change.
    """
    values = {}
    for run in runs:
        for key, value in run.settings.items():
            if key not in run.overrides:
                values.setdefault(key, []).append(value)
    return {
        key: first
        for key, (first, *others) in values.items()
        if all(other == first for other in others)
    }


# For programs.


def rows(runs):
    """A row for each run, JSON-able."""
    return [
        {"settings": run.overrides, "versions": run.summary["versions"], "summary": run.summary}
        if run.summary
        else {"settings": run.overrides, "versions": None, "summary": None, "reason": run.reason}
        for run in runs
    ]


def csv_text(runs, more=None, last=()):
    """A line for each run: number, settings that any entry names, numbers, versions, reason.

    more: head -> function of a Run, further columns after the number; last: further lines, dicts.
    """
    keys, more = named_keys(runs), more or {}
    numbers = [
        *(key for key in ("network", "dataset", "validation", "variant") if key not in keys),
        *NUMBERS,
    ]
    versions = dict.fromkeys(
        f"version_{name}" for run in runs if run.summary for name in run.summary["versions"]
    )
    lines = [
        {
            "run": run.number,
            **{head: value(run) for head, value in more.items()},
            **{key: written(run.value(key)) for key in keys},
            **(_results(run, numbers) if run.summary else {}),
            "reason": run.reason,
        }
        for run in runs
    ]
    return output.csv_text(
        [
            "run",
            *more,
            *keys,
            *numbers,
            "loss",
            "seconds",
            *(f"seconds_{name}" for name in stages(runs)),
            "peak_memory_bytes",
            *versions,
            "reason",
        ],
        [*lines, *last],
    )


def _results(run, numbers):
    return {
        **{key: run.summary[key] for key in numbers},
        "loss": run.loss,
        "seconds": run.seconds,
        **{f"seconds_{name}": value for name, value in run.summary["seconds"].items()},
        "peak_memory_bytes": run.memory,
        **{f"version_{name}": version for name, version in run.summary["versions"].items()},
    }


def named_keys(runs):
    """All settings that entries name."""
    return list(dict.fromkeys(key for run in runs for key in run.overrides))


def stages(runs):
    """The stages of all runs, in the order of the work."""
    return roles.in_order({name for run in runs if run.summary for name in run.summary["seconds"]})


def written(value):
    return "" if value is None else templates.setting(value)


# For pages: the row of a run, and the best run.


def row(run, values):
    """What a table shows of a run: values: of settings, one for each column."""
    shown = {
        "number": run.number,
        "reason": run.reason,
        "failed": run.failed,
        "settings": [_cell(value) for value in values],
    }
    if run.reason:
        return shown
    return {
        **shown,
        "report": run.summary["versions"]["report"],
        "loss": {
            "value": run.loss if math.isfinite(run.loss) else "",
            "text": f"{run.loss:.4g}" if run.summary["loss"] else "",
        },
        "seconds": {"value": run.seconds, "text": templates.duration(run.seconds)},
    }


def _cell(value):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"text": written(value), "value": value if number else written(value), "number": number}


def standing(ranked, score, role=None):
    """The best of runs that all have a score, and its lead over the next ones.

    ranked: the runs, best first, of a list or of the history; score: function of a Run; role: of
    the classifier that the score is of, None for that of the accuracy. {"number", "alike": numbers
    of the others with its score, "tested", "next": numbers of the next ones} with its score as
    intervals.share and, if there is a next one, the lead as intervals.words, but its
    "interval_of_lead".
    """
    (first, *alike), *lower = (list(runs) for _, runs in itertools.groupby(ranked, score))
    best = {
        "number": first.number,
        "alike": _numbers(alike),
        "tested": first.tested,
        "next": [],
        **intervals.share(score(first), first.tested),
    }
    if lower:
        words = intervals.words(difference(first, lower[0][0], role))
        best |= {
            "next": _numbers(lower[0]),
            "interval_of_lead": words.pop("interval_text"),
            **words,
        }
    return best


def _numbers(runs):
    return sorted(run.number for run in runs)


def chart(runs, score, best, labels):
    """The scores with their intervals on one axis, as intervals.chart; best: numbers of the runs to
    mark; labels: by number.
    """
    return intervals.chart(
        [
            {
                "key": "own" if run.number in best else "",
                "name": f"run {run.number}",
                "note": labels[run.number],
                **intervals.share(score(run), run.tested),
            }
            for run in runs
        ]
    )


def difference(first, other, role=None):
    """The intervals.Difference of two runs' accuracies, paired where both keep their answers for
    the same images.

    role: of the classifier, by default the one that the runs' accuracies are of.
    """
    a, b = (answers(run, role) for run in (first, other))
    if a and b and a.images == b.images:
        return intervals.counted(a.labels, a.predictions, b.predictions)
    return intervals.unpaired(*_score(first, role), *_score(other, role))


def _score(run, role):
    """(accuracy, number of images)"""
    return run.summary["evaluations"][role] if role else run.accuracy, run.tested


@dataclasses.dataclass(frozen=True)
class Answers:
    """images: checksums of the images and labels that a run was scored on; labels, predictions:
    (N,).

    data, score: the artifacts that they are from.
    """

    data: artifacts.Artifact
    score: artifacts.Artifact
    images: tuple
    labels: np.ndarray
    predictions: np.ndarray


def answers(run, role=None):
    """The run's Answers, role as for `difference`; None if the artifacts are no longer there, or
    damaged.
    """
    versions, results = run.summary["versions"], run.results
    role = role or lineage.answering(versions)
    try:
        data, score = (
            artifacts.Artifact(results / stage / versions[stage]) for stage in ("data", role)
        )
        images = tuple(
            data.manifest["files"][f"test_{part}.npy"]["sha256"] for part in ("images", "labels")
        )
        return Answers(
            data, score, images, data.array("test_labels.npy"), score.array("predictions.npy")
        )
    except (UserError, OSError):
        return None
