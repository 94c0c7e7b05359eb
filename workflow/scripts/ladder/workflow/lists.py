"""Lists of runs: entries with other values for some keys, and how many runs they stand for."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ladder.errors import UserError, excerpt
from ladder.workflow import settings, values
from ladder.workflow.settings import Settings

# what an entry is called, beside its settings
LABELS = ("name", "tag")
# Overrides for a nested run (listed, part, control): it must not start further runs.
ALONE: dict[str, Any] = {"runs": [], "search": {}}
# What a listed run leaves out, unless the entry or the configuration names it: its question is
# whether it is better than another run.
LEAN: dict[str, Any] = {"label_counts": [], "feature_map": False, "controls": []}
# keys that are no setting of a run
NOT_OF_A_RUN = (settings.Commands.model_fields.keys() | {"downloads"}) - {"name"}
MOST_RUNS = 1000  # of the list and a search together: each takes milliseconds of every command


def combinations(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The overrides of each run that an entry stands for.

    A list for a key that takes a single value, or a list of lists for a key that takes a list,
    stands for one run per element; several such lists stand for all combinations.
    """
    return (dict(zip(entry, values, strict=True)) for values in itertools.product(*_values(entry)))


def _values(entry: dict[str, Any]) -> list[list[Any]]:
    return [_choices(key, value) for key, value in entry.items()]


def _choices(key: str, value: Any) -> list[Any]:
    """The values that a key of an entry stands for."""
    lists = [isinstance(item, list) for item in value] if isinstance(value, list) else []
    if not isinstance(value, list) or (settings.is_list(key) and not any(lists)):
        return [value]
    if not value:
        raise UserError(f"config: {key} is an empty list, which stands for no run")
    if settings.is_list(key) and not all(lists):
        raise UserError(
            f"config: {key} is {excerpt(value)}, of which some are lists; a list of lists stands "
            "for a run with each, and any other list is one value"
        )
    return value


def lean(given: Settings, entry: dict[str, Any]) -> dict[str, Any]:
    """Overrides for a listed run: what nobody asked for, and the controls unless it repeats the run
    with another seed.
    """
    repeats = entry.keys() == {"seed"}
    return {
        key: value
        for key, value in LEAN.items()
        if key not in given.model_fields_set and not (repeats and key == "controls")
    }


def labels(entry: dict[str, Any], tags: list[str]) -> tuple[str, list[str], dict[str, Any]]:
    """(name or '', tags, settings) of an entry of `runs`; tags: those of the configuration."""
    own = {key: value for key, value in entry.items() if key not in LABELS}
    if idle := sorted(NOT_OF_A_RUN & own.keys()):
        near = "; an entry has a tag" if idle[0] == "tags" else ""
        raise UserError(f"config: {idle[0]} is not a setting in which runs could differ{near}")
    name = values.read("name", entry.get("name", ""), settings.adapter("name"))
    if name and (count := math.prod(map(len, _values(own)))) > 1:
        raise UserError(f"config: a name is of one run, and these are {count}; give them a tag")
    more = values.read("tag", entry.get("tag", []), settings.adapter("tags"))
    return name, list(dict.fromkeys([*tags, *more])), own


def check(given: Settings, drawn: Sequence[dict[str, Any]] = ()) -> None:
    """Raise UserError if the runs of the list and those that a search has drawn, with the runs
    whose features are appended to theirs, are too many. Called before any of them is resolved.
    """
    entries = [{key: entry[key] for key in entry if key not in LABELS} for entry in given.runs]
    appended = given.features_concatenate
    count = sum(_count({"features_concatenate": appended, **entry}) for entry in (*entries, *drawn))
    if (count := max(count, _count({"features_concatenate": appended}) - 1)) > MOST_RUNS:
        raise UserError(
            f"config: runs and search, with features_concatenate, stand for {count:,} runs; "
            f"at most {MOST_RUNS:,}"
        )


def _count(entry: dict[str, Any]) -> int:
    """The number of runs of an entry, at most, with those whose features are appended to them."""
    appended = _choices("features_concatenate", entry["features_concatenate"])
    parts = [sum(math.prod(map(len, _values(part))) for part in _parts(each)) for each in appended]
    return math.prod(map(len, _values(entry))) * (1 + max(parts))


def _parts(value: Any) -> list[dict[str, Any]]:
    """The parts in a value of features_concatenate, which need not be valid."""
    return [
        part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)
    ]
