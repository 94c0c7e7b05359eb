"""The runs that a configuration lists and those of its search, as the page of runs takes them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ladder.workflow.chains import Chain, chain
from ladder.workflow.planning import PlannedArtifact
from ladder.workflow.runs import Entry


@dataclasses.dataclass(frozen=True)
class Listed:
    """A run of the list.

    name        '' without one
    tags        of its own and of its search
    settings    key -> value, those that are not the active run's
    reason      why it cannot run here, or why a search has given it up; '' if it runs
    report      the artifact with its summary.json (`report.folder`); None where it does not run
    weights     the artifact with its weights, of the training, the fit or the start
    """

    name: str
    tags: tuple[str, ...]
    settings: dict[str, Any]
    reason: str
    report: PlannedArtifact | None
    weights: PlannedArtifact | None


def listed(entries: Sequence[Entry], active: Chain) -> list[Listed]:
    """The Listed of every entry, in their order; active: the artifacts of the active run."""
    return [_listed(entry, active) for entry in entries]


def _listed(entry: Entry, active: Chain) -> Listed:
    own = chain(entry.run) if entry.run else active
    roles = {} if entry.reason else own
    weights = roles.get("train") or roles.get("patches") or roles.get("initial")
    return Listed(
        entry.name, entry.tags, entry.overrides, entry.reason, roles.get("report"), weights
    )


def rows(runs: Sequence[Listed]) -> list[dict[str, Any]]:
    """JSON-able: {"name", "tags", "settings", "reason", "report", "weights"} of each run.

    report, weights: the folder of the artifact, as results/report/VERSION; None where it has none.
    """
    return [
        {
            "name": run.name,
            "tags": list(run.tags),
            "settings": run.settings,
            "reason": run.reason,
            "report": run.report and run.report.folder,
            "weights": run.weights and run.weights.folder,
        }
        for run in runs
    ]
