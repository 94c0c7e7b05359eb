"""Hyperparameter search: the runs that it makes.

A grid search takes every combination of the keys' values. A random search draws each value
independently (Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13,
2012): run n depends only on the search's seed and n, so that a larger budget keeps the runs of a
smaller one. A search by TPE (trials.py) draws each run from the results of those before it, which
are read from their artifacts: only the runs up to the first one without a result are known.
"""

import dataclasses
import itertools
import math
import random
from typing import Annotated, Any, Literal, cast

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ladder.data import facts as dataset_facts
from ladder.errors import UserError, excerpt
from ladder.store import artifacts
from ladder.store.versions import canonical
from ladder.workflow import checks, lists, recipe, removed, runs, settings, trials, values
from ladder.workflow import config as configuration
from ladder.workflow.chains import chain, trains
from ladder.workflow.planning import PlannedArtifact
from ladder.workflow.runs import Entry, Run
from ladder.workflow.settings import Settings
from ladder.workflow.values import INTEGER

FILE = "logs/search.json"  # the configuration, for the scripts of a search by TPE
BUDGET = 20
TAG = "search"
VALIDATION = 0.1  # the default, as a share of the training images
DRAWS = 100  # draws per run of the budget, at most, to find different runs
DIGITS = 3  # significant digits of a drawn number
URLS = {f"{dataset}_urls" for dataset in dataset_facts.FACTS}
# Keys that a search cannot vary: they choose the images that a run is scored on, or are not
# settings of a run.
FIXED = {
    "dataset",
    "folder",
    "image_size",
    "image_channels",
    "test_share",
    "train_limit",
    "test_limit",
    "validation",
    *URLS,
    "cifar10_sha256",
    "name",
    *lists.NOT_OF_A_RUN,
}
# Keys that are not part of the preset of the best run: commands, lists, and what changes no result.
NOT_OF_A_RUN = {
    "threads",
    "data_residency",
    "monitor",
    "name",
    *lists.NOT_OF_A_RUN,
    "multiplier_as_it_is",
    *(URLS - {"cifar10_urls"}),
}


class Spread(TypedDict, total=False):
    """What a range has besides min and max, which have the type of its key."""

    __pydantic_config__ = settings.DOCUMENTED  # type: ignore[misc]
    scale: Literal["linear", "log"]
    integer: values.Flag
    points: Annotated[int, Field(ge=2, le=1000), INTEGER]


SPREAD = TypeAdapter(Spread)


@dataclasses.dataclass(frozen=True)
class Choices:
    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at the fraction `share`, in [0, 1), of the list."""
        return self.values[int(share * len(self.values))]

    def grid(self) -> tuple[Any, ...]:
        return self.values

    @property
    def names(self) -> dict[Any, Any]:
        """The values as trials.py draws them: plain ones as they are, lists as texts."""
        return {
            canonical(value) if isinstance(value, list) else value: value for value in self.values
        }

    def named(self, name: Any) -> Any:
        """The value that trials.py has drawn."""
        return self.names[name]

    @property
    def count(self) -> int:
        """The number of different values."""
        return len({canonical(value) for value in self.values})


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; points: the number of grid points."""

    low: float
    high: float
    log: bool
    integer: bool
    points: int

    def at(self, share: float) -> float:
        """The number at the fraction `share`, in [0, 1), of the range, on its scale."""
        if self.integer:  # every integer gets an equal share
            return min(math.floor(self._between(share, self.low, self.high + 1)), int(self.high))
        return self._rounded(self._between(share, self.low, self.high))

    def grid(self) -> tuple[float, ...]:
        steps = [
            self._between(number / max(1, self.points - 1), self.low, self.high)
            for number in range(self.points)
        ]
        return tuple(
            dict.fromkeys(round(value) if self.integer else self._rounded(value) for value in steps)
        )

    def named(self, number: float) -> float:
        """The value of a number that trials.py has drawn."""
        return int(number) if self.integer else self._rounded(number)

    @property
    def count(self) -> float:
        """The number of different values, at most."""
        return int(self.high) - math.floor(self.low) + 1 if self.integer else math.inf

    def _between(self, share: float, low: float, high: float) -> float:
        return low * (high / low) ** share if self.log else low + share * (high - low)

    def _rounded(self, value: float) -> float:
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Key = Choices | Range


@dataclasses.dataclass
class SearchPlan:
    """What a search makes.

    entries  the runs.Entry of each run, in order; of strategy tpe those that are made and the next
             one
    probes   the runs of the shorter trainings that decide whether a run is made whole
    next     the PlannedArtifact that has to be made before another run can be drawn, None if all
             are drawn
    study    the trials.Study of strategy tpe
    """

    entries: list[Entry] = dataclasses.field(default_factory=list)
    probes: list[Run] = dataclasses.field(default_factory=list)
    next: PlannedArtifact | None = None
    study: trials.Study | None = None


def plan(given: Settings) -> SearchPlan:
    """The SearchPlan of the `search` of loaded settings, empty without keys.

    All runs are scored on the same validation set. An entry whose values are invalid together has
    the reason. Raises UserError with one line for an impossible search.
    """
    search = given.search
    if not search.get("keys"):
        return SearchPlan()
    keys = {key: _values(key, rule) for key, rule in search["keys"].items()}
    base = given.model_copy(
        update={
            **lists.ALONE,
            **lists.lean(given, {}),
            "validation": params(given)["validation"],
            "name": "",
            "tags": [*given.tags, search.get("tag", TAG)],
        }
    )
    _check_validation(base)
    _check_prune(search, base)
    if search.get("strategy") == "tpe":
        return _drawn_in_turn(search, keys, base)
    drawn = _runs(search, keys)
    lists.check(given, drawn)
    return SearchPlan(
        [_entry(base, overrides, search.get("metric", "auto")) for overrides in drawn]
    )


def _check_validation(base: Settings) -> None:
    """Raise UserError if the network cannot be trained beside the validation set, whatever a run's
    values are.
    """
    least = {"batch_size": 1, "features_pca": "none", "features_concatenate": []}
    try:
        checks.check(recipe.fill(configuration.changed(base, least)).settings)
    except UserError as error:
        raise UserError(f"{error} (validation of search)") from error


def _check_prune(search: settings.Search, base: Settings) -> None:
    """Raise UserError where runs cannot be pruned after the number of epochs that the search
    names.
    """
    after = search.get("prune", 0)
    if after and search.get("strategy") != "tpe":
        raise UserError(
            f"config: search.prune is {after}, but only strategy tpe prunes; set strategy to tpe, or prune to 0"
        )
    if after and (base.steps != "none" or base.training != "gradient"):
        raise UserError(
            f"config: search.prune is {after}, but only gradient descent by epochs can be pruned; set prune to 0"
        )


# A search by TPE.


def _drawn_in_turn(search: settings.Search, keys: dict[str, Key], base: Settings) -> SearchPlan:
    """The SearchPlan up to the first run without a result."""
    budget = int(min(search.get("budget", BUDGET), math.prod(key.count for key in keys.values())))
    lists.check(base, [{}] * budget)
    study, scores = trials.Study(keys, search.get("seed", 1)), dict[str, float | None]()
    draft = SearchPlan(study=study)
    for _ in range(DRAWS * budget):
        if draft.next or len(draft.entries) == budget:
            break
        trial, overrides = study.ask()
        name = canonical(overrides)
        if name in scores:  # drawn before: no other run
            study.tell(trial, scores[name])
        else:
            entry = _entry(base, overrides, search.get("metric", "auto"))
            scores[name] = _tell(draft, study, trial, entry, search)
    return draft


def _tell(
    draft: SearchPlan, study: trials.Study, trial: Any, entry: Entry, search: settings.Search
) -> float | None:
    """Tell the study the result of a run, and add its entry to `draft`; or set draft.next where it
    has none yet.

    Returns the score, None without one.
    """
    draft.entries.append(entry)
    run = None if entry.reason else entry.run
    losses = _first_losses(draft, run, search.get("prune", 0)) if run else []
    if draft.next:
        return None
    if reason := study.prunes(trial, losses):
        draft.entries[-1] = dataclasses.replace(entry, reason=reason)
        return None
    score = _score(draft, run, search.get("metric", "auto")) if run else None
    if not draft.next:
        study.tell(trial, score)
    return score


def _first_losses(draft: SearchPlan, run: Run, epochs: int) -> list[float]:
    """The validation losses of the first `epochs` epochs, of a training of its own; empty where
    that is no part of the run.
    """
    if not epochs or not trains(run) or run.settings.epochs <= epochs:
        return []
    probe = dataclasses.replace(run, settings=run.settings.model_copy(update={"epochs": epochs}))
    draft.probes.append(probe)
    training = _artifact(draft, chain(probe)["train"])
    return training.metrics["validation_curve"]["loss"] if training and not training.failed else []


def _score(draft: SearchPlan, run: Run, metric: str) -> float | None:
    """The accuracy of a run on the validation set, None if it failed or has no result yet."""
    report = _artifact(draft, chain(run)["report"])
    if report is None or report.failed:
        return None
    summary = report.json("summary.json")
    return cast(
        float | None,
        summary["svm"]["accuracy"] if metric == "svm" else summary.get("test_accuracy"),
    )


def _artifact(draft: SearchPlan, planned: PlannedArtifact) -> artifacts.Artifact | None:
    """The finished artifact of `planned`; None, and draft.next is set, where there is none."""
    try:
        return artifacts.Artifact(planned.folder)
    except UserError:
        draft.next = planned
        return None


def params(given: Settings) -> dict[str, Any]:
    """The search of loaded settings with its defaults filled in: strategy, budget, seed, prune,
    metric, validation, keys, settings.

    settings: all settings of the configuration that can change a run, whether they come from
    config.yaml, another file or the command line, but without a validation set: the best run is
    complete with them and scored on the test images.
    """
    search = given.search
    images = dataset_facts.find(given).train if given.train_limit == "all" else given.train_limit
    keys = {key: _as_params(_values(key, rule)) for key, rule in search.get("keys", {}).items()}
    return {
        "strategy": search.get("strategy", "random"),
        "budget": search.get("budget", BUDGET),
        "seed": search.get("seed", 1),
        "prune": search.get("prune", 0),
        "metric": search.get("metric", "auto"),
        "keys": keys,
        "settings": {key: value for key, value in given.by_key().items() if key not in NOT_OF_A_RUN}
        | {"validation": 0},
        "validation": search.get("validation") or given.validation or round(VALIDATION * images),
    }


def _as_params(values: Key) -> Any:
    if isinstance(values, Choices):
        return list(values.values)
    return {"min": values.low, "max": values.high, "scale": "log" if values.log else "linear"}


def _runs(search: settings.Search, keys: dict[str, Key]) -> list[dict[str, Any]]:
    """The overrides of each run."""
    budget = search.get("budget")
    if search.get("strategy", "random") == "grid":
        grids = [key.grid() for key in keys.values()]
        most = min(budget or lists.MOST_RUNS, lists.MOST_RUNS)
        if (count := math.prod(map(len, grids))) > most:
            raise UserError(
                f"config: the grid of search has {count:,} runs, more than its budget of {most:,}; raise that "
                f"(at most {lists.MOST_RUNS:,}), take fewer values, or strategy random"
            )
        return [dict(zip(keys, values, strict=True)) for values in itertools.product(*grids)]
    wanted, distinct = (
        int(min(budget or BUDGET, math.prod(key.count for key in keys.values()))),
        dict[str, dict[str, Any]](),
    )
    for number in range(DRAWS * wanted):
        # Only random() is used, which gives the same numbers in every release of Python.
        drawn = random.Random(f"{search.get('seed', 1)} {number}")
        overrides = {key: values.at(drawn.random()) for key, values in keys.items()}
        distinct.setdefault(canonical(overrides), overrides)
        if len(distinct) == wanted:
            break
    return list(distinct.values())


def _values(key: str, rule: Any) -> Key:
    """The Choices or Range of a key, with values in the types of the configuration."""
    if key not in settings.KEYS:
        near = values.nearest(key, settings.KEYS)
        said = f"there is no key {excerpt(str(key))}, which search names{near}"
        raise UserError(f"config: {removed.key(str(key)) or said}")
    if key in FIXED:
        raise UserError(
            f"config: search cannot vary {key}: all its runs are scored on the same images"
        )
    if isinstance(rule, list):
        if not rule:
            raise UserError(f"config: search names no value for {key}")
        return Choices(tuple(values.read(key, value, settings.adapter(key)) for value in rule))
    return _range(key, rule)


def _range(key: str, rule: Any) -> Range:
    named = f"search.keys.{key}"
    if not isinstance(rule, dict) or not {"min", "max"} <= rule.keys():
        raise UserError(
            f"config: {named} must be a list of values, or a range: {{min: 1, max: 9, scale: log}}"
        )
    low, high = (values.read(key, rule[end], settings.adapter(key)) for end in ("min", "max"))
    rule = values.read(
        named, {name: value for name, value in rule.items() if name not in ("min", "max")}, SPREAD
    )
    if not all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high)):
        raise UserError(
            f"config: {named} is a range, but {key} is not a number; give a list of values"
        )
    log = rule.get("scale", "linear") == "log"
    integer = rule.get("integer", isinstance(low, int))
    if integer:  # the whole numbers of the range
        low, high = math.ceil(low), math.floor(high)
    if low >= high or (log and low <= 0):
        raise UserError(
            f"config: {named} goes from {low:g} to {high:g}; the first must be the smaller one"
            f"{', and above 0 on a logarithmic scale' if log else ''}"
        )
    return Range(low, high, log, integer, rule.get("points", 3))


def _entry(base: Settings, overrides: dict[str, Any], metric: str) -> Entry:
    try:
        entry = runs.entry(base, overrides)
    except UserError as error:
        reason = str(error).removeprefix("config: ")
        return Entry(overrides, None, reason, "", tuple(base.tags))
    assert entry.run  # for the type checker: settings that are no run have raised an error
    network = entry.run.network
    if metric == "network" and not network.classifies:
        raise UserError(
            f"config: the metric of search is network, but {network.name} does not classify; take svm or auto"
        )
    if metric == "svm" and not entry.run.features_layer:
        raise UserError(
            f"config: the metric of search is svm, but {network.name} has none beside it; name a features_layer"
        )
    if metric == "svm" and entry.run.settings.svm_kernel == "none":
        raise UserError("config: the metric of search is svm, but svm_kernel is none; take auto")
    return dataclasses.replace(entry, tags=tuple(base.tags))
