"""Runs by multiplier: groups, the arms of a group, and the difference of each arm's accuracy from that of the exact arm.

A cell is a run. The cells of a group differ only in multiplier and seed; the cells of an arm also share the multiplier, and
its seeds are repetitions. Each arm is compared with the exact arm seed by seed (a paired comparison). All numbers of a run
come from its report or training.
"""

import csv
import dataclasses
import functools
import io
import pathlib

from ladder.arithmetic import multipliers
from ladder.pages import compare, templates
from ladder.pages.spread import paired, spread

# Settings in which the cells of a group may differ.
WITHIN = ("multiplier", "multiplier_identity", "multiplier_in", "test_multiplier", "test_multiplier_identity", "loss_scale",
          "seed", "name", "tags")
ORDER = list(multipliers.MULTIPLIERS)   # followed by tables
COLUMNS = ("network", "dataset", "settings", "multiplier", "multiplier_in", "test_multiplier", "loss_scale", "seeds",
           "test_accuracy", "test_accuracy_deviation", "difference", "difference_deviation", "difference_low",
           "difference_high", "difference_seeds", "train_seconds", "train_seconds_ratio", "final_loss", "final_loss_deviation",
           "reason")


@dataclasses.dataclass(frozen=True)
class Arm:
    """The multipliers of a cell, as names or paths of tables.

    trained: of the training, in `directions`; tested: of the test; loss_scale: None if it has no effect.
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
        """Whether the test uses another multiplier than the forward pass of the training."""
        return self.tested != (self.trained if "forward" in self.directions else "exact")

    @property
    def place(self):
        """Sort key of arms."""
        return (rank(self.trained), self.tested_otherwise, -len(self.directions), self.directions, self.tested,
                self.loss_scale or 0)


@dataclasses.dataclass(frozen=True)
class Cell:
    """settings: key -> value of everything that distinguishes the cells."""

    settings: dict
    run: compare.Run


@dataclasses.dataclass(frozen=True)
class Group:
    """settings: shared by all cells; cells: arm -> seed -> Cell that ran; reasons: arm -> why some of its cells did not run."""

    settings: dict
    cells: dict
    reasons: dict

    @property
    def arms(self):
        return sorted({**self.cells, **self.reasons}, key=lambda arm: arm.place)

    @functools.cached_property
    def exact(self):
        """The arm that the others are compared with; None if no exact cell ran."""
        return next((arm for arm in self.cells if arm.exact), None)

    @property
    def ran(self):
        """All Cells that ran."""
        return [cell for seeds in self.cells.values() for cell in seeds.values()]

    def accuracies(self, arm):
        """Seed -> test accuracy."""
        return {seed: cell.run.summary["test_accuracy"] for seed, cell in self.cells.get(arm, {}).items()}

    def seconds(self, arm):
        """Seed -> training time in seconds, of those that trained."""
        return {seed: cell.run.summary["seconds"]["train"] for seed, cell in self.cells.get(arm, {}).items()
                if "train" in cell.run.summary["seconds"]}

    def losses(self, arm):
        """Seed -> training loss of the last epoch, of those that trained."""
        return {seed: cell.run.loss for seed, cell in self.cells.get(arm, {}).items() if cell.run.summary["loss"]}


def rank(multiplier):
    """Sort key of multipliers."""
    return ORDER.index(multiplier) if multiplier in ORDER else len(ORDER), multiplier


def named(multiplier):
    """The name of a multiplier; for a table the name of its file."""
    return pathlib.Path(multiplier).name


def cells(inputs, entries):
    """The Cell of each entry; inputs and entries as the stage `multipliers` has them."""
    return [Cell(entry["settings"], run)
            for entry, run in zip(entries, compare.runs(inputs, entries), strict=True)]


def groups(cells):
    """The Groups of the cells, in their order. If two cells have the same arm and seed, the first one counts."""
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
    """A row for each arm of each group, JSON-able; missing numbers are None.

    Accuracies are fractions; difference: test accuracy minus that of the exact arm, over the seeds that both have, with its
    confidence interval (spread.CONFIDENCE); train_seconds_ratio: relative to the exact arm, over the same seeds.
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
    """The ratio of the sums over the seeds that both have."""
    both = seconds.keys() & references.keys()
    return sum(seconds[seed] for seed in both) / sum(references[seed] for seed in both) if both else None


def csv_text(rows):
    """The rows as CSV with a head."""
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
