"""Runs told apart by multiplier: groups of them, arms of a group, and how an arm's accuracy differs from the exact one's.

A cell is a run. Cells whose settings differ in nothing but multiplier and seed are a group; those of a group that share the
multiplier are an arm, its seeds the repetitions. Arms are held against the group's exact one seed by seed, so that what a seed
does to both does not count. Every number of a run is one that its report or training has.
"""

import csv
import dataclasses
import functools
import io
import pathlib

from ladder.arithmetic import multipliers
from ladder.pages import compare, templates
from ladder.pages.spread import paired, spread

# Keys that do not make another group.
WITHIN = ("multiplier", "multiplier_identity", "multiplier_in", "test_multiplier", "test_multiplier_identity", "loss_scale",
          "seed", "name", "tags")
ORDER = list(multipliers.MULTIPLIERS)   # tables come after these
COLUMNS = ("network", "dataset", "settings", "multiplier", "multiplier_in", "test_multiplier", "loss_scale", "seeds",
           "test_accuracy", "test_accuracy_deviation", "difference", "difference_deviation", "difference_low",
           "difference_high", "difference_seeds", "train_seconds", "train_seconds_ratio", "final_loss", "final_loss_deviation",
           "reason")


@dataclasses.dataclass(frozen=True)
class Arm:
    """What a cell multiplies with, as names or paths of tables.

    directions: those in which `trained` is used; loss_scale: None where it changes nothing.
    """

    trained: str
    directions: tuple
    tested: str
    loss_scale: float | None

    @classmethod
    def of(cls, settings):
        directions = tuple(settings["multiplier_in"]) if settings["multiplier"] != "exact" else ()
        trained = settings["multiplier"] if directions else "exact"
        scaled = trained == "fp16" and directions != ("forward",)
        return cls(trained, directions, settings["test_multiplier"], settings["loss_scale"] if scaled else None)

    @property
    def exact(self):
        return self.trained == "exact" and self.tested == "exact"

    @property
    def tested_otherwise(self):
        """Whether the test does not multiply as the forward pass of the training does."""
        return self.tested != (self.trained if "forward" in self.directions else "exact")

    @property
    def place(self):
        """Arms are in the order of this."""
        return (rank(self.trained), self.tested_otherwise, -len(self.directions), self.directions, self.tested,
                self.loss_scale or 0)


@dataclasses.dataclass(frozen=True)
class Cell:
    """settings: key -> value of all that tells the cells apart."""

    settings: dict
    run: compare.Run


@dataclasses.dataclass(frozen=True)
class Group:
    """settings: what all cells share; cells: arm -> seed -> Cell that ran; reasons: arm -> why cells of it cannot run here."""

    settings: dict
    cells: dict
    reasons: dict

    @property
    def arms(self):
        return sorted({**self.cells, **self.reasons}, key=lambda arm: arm.place)

    @functools.cached_property
    def exact(self):
        """The arm that others are held against; None where no exact cell ran."""
        return next((arm for arm in self.cells if arm.exact), None)

    @property
    def ran(self):
        """All Cells that ran."""
        return [cell for seeds in self.cells.values() for cell in seeds.values()]

    def accuracies(self, arm):
        """Seed -> test accuracy."""
        return {seed: cell.run.summary["test_accuracy"] for seed, cell in self.cells.get(arm, {}).items()}

    def seconds(self, arm):
        """Seed -> seconds of training."""
        return {seed: cell.run.summary["seconds"]["train"] for seed, cell in self.cells.get(arm, {}).items()}

    def losses(self, arm):
        """Seed -> the last epoch's loss in training."""
        return {seed: cell.run.loss for seed, cell in self.cells.get(arm, {}).items()}


def rank(multiplier):
    """Multipliers are in the order of this."""
    return ORDER.index(multiplier) if multiplier in ORDER else len(ORDER), multiplier


def named(multiplier):
    """What a multiplier is called: a table by its file."""
    return pathlib.Path(multiplier).name


def cells(inputs, entries):
    """The Cell of each entry, as the stage `multipliers` has them."""
    return [Cell(entry["settings"], run)
            for entry, run in zip(entries, compare.runs(inputs, entries), strict=True)]


def groups(cells):
    """The Group of the cells, in their order. Of two cells with the same arm and seed the first counts."""
    found = {}
    for cell in cells:
        settings = {key: value for key, value in cell.settings.items() if key not in WITHIN}
        group = found.setdefault(str(settings), Group(settings, {}, {}))
        arm = Arm.of(cell.settings)
        if cell.run.reason:
            group.reasons.setdefault(arm, cell.run.reason)
        else:
            group.cells.setdefault(arm, {}).setdefault(cell.settings["seed"], cell)
    return list(found.values())


def rows(groups):
    """A row for each arm of each group, JSON-able; what there is no number for is None.

    Accuracies are fractions; difference: test accuracy less exact's, over the seeds that both have, and the interval that
    spread.CONFIDENCE gives it. train_seconds_ratio: to exact's, over the same seeds.
    """
    return [row(group, arm) for group in groups for arm in group.arms]


def row(group, arm):
    """One of `rows`."""
    accuracies, seconds = group.accuracies(arm), group.seconds(arm)
    difference = paired(accuracies, group.accuracies(group.exact)) if arm != group.exact else None
    low, high = (difference and difference.interval) or (None, None)
    return {
        "network": group.settings["network"], "dataset": group.settings["dataset"],
        "settings": {key: value for key, value in group.settings.items() if key not in ("network", "dataset")},
        "multiplier": named(arm.trained), "multiplier_in": list(arm.directions), "test_multiplier": named(arm.tested),
        "loss_scale": arm.loss_scale, "seeds": sorted(accuracies),
        **_told("test_accuracy", spread(accuracies.values())), **_told("difference", difference),
        "difference_low": low, "difference_high": high, "difference_seeds": difference.n if difference else 0,
        "train_seconds": spread(seconds.values()).mean if seconds else None,
        "train_seconds_ratio": _ratio(seconds, group.seconds(group.exact)),
        **_told("final_loss", spread(group.losses(arm).values())), "reason": group.reasons.get(arm, ""),
    }


def _told(name, of):
    return {name: of.mean if of else None, f"{name}_deviation": of.deviation if of else None}


def _ratio(seconds, references):
    """Of the sums over the seeds that both have."""
    both = seconds.keys() & references.keys()
    return sum(seconds[seed] for seed in both) / sum(references[seed] for seed in both) if both else None


def csv_text(rows):
    """A line for each of the rows under one head."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    for one in rows:
        settings = ", ".join(f"{key} {templates.setting(value)}" for key, value in one["settings"].items())
        table.writerow([_written(value) for value in ({**one, "settings": settings}[name] for name in COLUMNS)])
    return file.getvalue()


def _written(value):
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else value
