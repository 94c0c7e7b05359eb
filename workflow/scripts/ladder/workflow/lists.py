"""Lists of runs: entries with other values for some keys, and how many runs they stand for."""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from ladder.errors import UserError
from ladder.workflow import settings
from ladder.workflow.settings import Settings

LISTS = ("compare", "multipliers")  # keys that list runs
# keys whose entries are keys with other values
NESTED = (*LISTS, "ablation", "features_concatenate")
# Overrides for a nested run (part, repeat, ablation): it must not start further runs.
ALONE: dict[str, Any] = {
    **dict.fromkeys((*LISTS, "seeds", "ablation"), []),
    "search": {},
    "reference_variant": "none",
}
MOST_RUNS = 1000  # of all lists and a search together: each takes milliseconds of every command


def combinations(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The overrides of each run that an entry stands for.

    A list for a key that takes a single value, or a list of lists for a key that takes a list,
    stands for one run per element; several such lists stand for all combinations.
    """
    return (dict(zip(entry, values, strict=True)) for values in itertools.product(*_values(entry)))


def _values(entry: dict[str, Any]) -> list[list[Any]]:
    """The values of each key of a list's entry: a list stands for several, of a key that takes a
    list a list of lists.
    """
    choices: list[list[Any]] = []
    for key, value in entry.items():
        is_list = settings.is_list(key)
        several = isinstance(value, list) and (
            not is_list or any(isinstance(item, list) for item in value)
        )
        if several and not value:
            raise UserError(f"config: {key} is an empty list, which stands for no run")
        choices.append(value if several else [value])
    return choices


def check(loaded: Settings) -> None:
    """Raise UserError where lists stand for too many runs; called before the first of them is
    resolved.
    """
    for key in NESTED:
        if (
            count := sum(math.prod(map(len, _values(entry))) for entry in getattr(loaded, key))
        ) > MOST_RUNS:
            raise UserError(f"config: {key} stands for {count:,} runs; at most {MOST_RUNS:,}")
    check_together(loaded, [{}])


def check_together(base: Settings, overrides: Iterable[dict[str, Any]]) -> None:
    """Raise UserError where runs, the settings with each of the overrides, are too many with those
    nested in them.

    Nested values need not be valid.
    """
    runs = (
        _nested({key: given.get(key, getattr(base, key)) for key in (*NESTED, "seeds")})
        for given in overrides
    )
    if (
        sum(1 for _ in itertools.islice(itertools.chain.from_iterable(runs), MOST_RUNS + 2))
        > MOST_RUNS + 1
    ):
        raise UserError(
            f"config: {', '.join(NESTED)}, seeds and search together stand for more than {MOST_RUNS:,} runs, the "
            "largest number; take fewer"
        )


def _nested(keys: dict[str, Any]) -> Iterator[None]:
    """One for a run with these lists, and one for each run that is resolved with it,
    recursively.
    """
    yield None
    alone = {**keys, **ALONE}
    for _ in _as_list(keys["seeds"]):
        yield from _nested(alone)
    for key in NESTED:
        without: dict[str, Any] = (
            {"features_concatenate": []} if key == "features_concatenate" else {}
        )
        for entry in _as_list(keys[key]):
            for overrides in combinations(entry if isinstance(entry, dict) else {}):
                yield from _nested({**alone, **without, **overrides})


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
