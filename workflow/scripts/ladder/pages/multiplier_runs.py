"""Runs by multiplier: groups, the arms of a group, and the difference of each arm's accuracy from
that of the exact arm.

The runs of a group differ only in multiplier and seed; those of an arm also share the multiplier,
and its seeds are repetitions. Each arm is compared with the exact arm seed by seed (a paired
comparison).
"""

import dataclasses
import functools
import pathlib

from ladder.arithmetic import multipliers
from ladder.pages import output, run_table, templates
from ladder.pages.spread import paired, spread

# Settings in which the runs of a group may differ.
WITHIN = (
    "multiplier",
    "multiplier_identity",
    "multiplier_in",
    "test_multiplier",
    "test_multiplier_identity",
    "loss_scale",
    "seed",
    "name",
    "tags",
)
ORDER = list(multipliers.MULTIPLIERS)  # followed by tables
COLUMNS = (
    "network",
    "dataset",
    "settings",
    "multiplier",
    "multiplier_in",
    "test_multiplier",
    "loss_scale",
    "seeds",
    "test_accuracy",
    "test_accuracy_deviation",
    "difference",
    "difference_deviation",
    "difference_low",
    "difference_high",
    "difference_seeds",
    "train_seconds",
    "train_seconds_ratio",
    "final_loss",
    "final_loss_deviation",
    "costs",
    "reason",
)
# Source, the name of an axis -> multiplier -> cost of a product. Of the other multipliers no
# published cost is known to us.
PUBLISHED = {
    "energy of a product, pJ, 45 nm (Horowitz, ISSCC 2014, pages 10 to 14)": {
        "exact": 3.7,
        "fp16": 1.1,
    }
}


@dataclasses.dataclass(frozen=True)
class Arm:
    """The multipliers of a run, as names or paths of tables.

    trained: of the training, in `directions`; tested: of the test; loss_scale: None if it has no
    effect.
    """

    trained: str
    directions: tuple
    tested: str
    loss_scale: float | None

    @classmethod
    def from_settings(cls, settings):
        directions = tuple(settings["multiplier_in"]) if settings["multiplier"] != "exact" else ()
        trained = settings["multiplier"] if directions else "exact"
        scaled = trained == "fp16" and directions != ("forward",)
        return cls(
            trained,
            directions,
            settings["test_multiplier"],
            settings["loss_scale"] if scaled else None,
        )

    @property
    def exact(self):
        return self.trained == "exact" and self.tested == "exact"

    @property
    def tested_otherwise(self):
        """Whether the test uses another multiplier than the forward pass of the training."""
        return self.tested != (self.trained if "forward" in self.directions else "exact")

    @property
    def place(self):
        """Sort key of arms."""
        return (
            rank(self.trained),
            self.tested_otherwise,
            -len(self.directions),
            self.directions,
            self.tested,
            self.loss_scale or 0,
        )


@dataclasses.dataclass(frozen=True)
class Group:
    """settings: shared by all runs; runs: arm -> seed -> Run that ran; reasons: arm -> why some of
    its runs did not run.
    """

    settings: dict
    runs: dict
    reasons: dict

    @property
    def arms(self):
        return sorted({**self.runs, **self.reasons}, key=lambda arm: arm.place)

    @functools.cached_property
    def exact(self):
        """The arm that the others are compared with; None if no exact run ran."""
        return next((arm for arm in self.runs if arm.exact), None)

    @property
    def ran(self):
        """All runs that ran."""
        return [run for seeds in self.runs.values() for run in seeds.values()]

    def accuracies(self, arm):
        """Seed -> test accuracy."""
        return {seed: run.accuracy for seed, run in self.runs.get(arm, {}).items()}

    def seconds(self, arm):
        """Seed -> training time in seconds, of those that trained."""
        return {
            seed: run.summary["seconds"]["train"]
            for seed, run in self.runs.get(arm, {}).items()
            if "train" in run.summary["seconds"]
        }

    def losses(self, arm):
        """Seed -> training loss of the last epoch, of those that trained."""
        return {
            seed: run.loss for seed, run in self.runs.get(arm, {}).items() if run.summary["loss"]
        }


def rank(multiplier):
    """Sort key of multipliers."""
    return ORDER.index(multiplier) if multiplier in ORDER else len(ORDER), multiplier


def named(multiplier):
    """The name of a multiplier; for a table the name of its file."""
    return pathlib.Path(multiplier).name


def read(inputs, entries):
    """The Run of each entry, with its settings; inputs and entries as the stage `multipliers` has
    them.
    """
    return [
        dataclasses.replace(run, settings=entry["settings"])
        for entry, run in zip(entries, run_table.read(inputs, entries), strict=True)
    ]


def groups(runs):
    """The Groups of the runs, in their order. If two runs have the same arm and seed, the first one
    counts.
    """
    groups = {}
    for run in runs:
        settings = {key: value for key, value in run.settings.items() if key not in WITHIN}
        group = groups.setdefault(str(settings), Group(settings, {}, {}))
        arm = Arm.from_settings(run.settings)
        if run.reason:
            group.reasons.setdefault(arm, run.reason)
        else:
            group.runs.setdefault(arm, {}).setdefault(run.settings["seed"], run)
    return list(groups.values())


def costs_of(multiplier, given):
    """Source -> published cost of a product by a multiplier, a name or the path of a table; given:
    multiplier_costs.
    """
    name = named(multiplier)
    return {
        source: costs[name] for source, costs in {**PUBLISHED, **given}.items() if name in costs
    }


def rows(groups, costs=None):
    """A row for each arm of each group, JSON-able; missing numbers are None; costs: the setting
    multiplier_costs.

    Accuracies are fractions; difference: test accuracy minus that of the exact arm, over the seeds
    that both have, with its confidence interval (spread.CONFIDENCE); train_seconds_ratio: relative
    to the exact arm, over the same seeds.
    """
    return [
        {**row(group, arm), "costs": costs_of(arm.tested, costs or {})}
        for group in groups
        for arm in group.arms
    ]


def row(group, arm):
    """One of `rows`."""
    accuracies, seconds = group.accuracies(arm), group.seconds(arm)
    difference = paired(accuracies, group.accuracies(group.exact)) if arm != group.exact else None
    low, high = (difference and difference.interval) or (None, None)
    return {
        "network": group.settings["network"],
        "dataset": group.settings["dataset"],
        "settings": {
            key: value for key, value in group.settings.items() if key not in ("network", "dataset")
        },
        "multiplier": named(arm.trained),
        "multiplier_in": list(arm.directions),
        "test_multiplier": named(arm.tested),
        "loss_scale": arm.loss_scale,
        "seeds": sorted(accuracies),
        **_moments("test_accuracy", spread(accuracies.values())),
        **_moments("difference", difference),
        "difference_low": low,
        "difference_high": high,
        "difference_seeds": difference.n if difference else 0,
        "train_seconds": spread(seconds.values()).mean if seconds else None,
        "train_seconds_ratio": _ratio(seconds, group.seconds(group.exact)),
        **_moments("final_loss", spread(group.losses(arm).values())),
        "reason": group.reasons.get(arm, ""),
    }


def _moments(name, spread):
    return {
        name: spread.mean if spread else None,
        f"{name}_deviation": spread.deviation if spread else None,
    }


def _ratio(seconds, references):
    """The ratio of the sums over the seeds that both have."""
    both = seconds.keys() & references.keys()
    return (
        sum(seconds[seed] for seed in both) / sum(references[seed] for seed in both)
        if both
        else None
    )


def csv_text(rows):
    """The rows as CSV with a head."""

    def line(row):
        settings = ", ".join(
            f"{key} {templates.setting(value)}" for key, value in row["settings"].items()
        )
        return {**{name: _written(value) for name, value in row.items()}, "settings": settings}

    return output.csv_text(COLUMNS, map(line, rows))


def _written(value):
    if isinstance(value, dict):
        return "; ".join(f"{name}: {number:g}" for name, number in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else value
