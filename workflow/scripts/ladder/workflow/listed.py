"""The runs that a configuration lists and those of its search, as the page of runs takes them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ladder.workflow.chains import Chain, chain
from ladder.workflow.planning import PlannedArtifact
from ladder.workflow.runs import Entry


class Listed(NamedTuple):
    """report: the artifact with its summary.json; weights: that with its weights, of the training,
    the fit or the start. Both are None where the run does not run.
    """

    entry: Entry
    report: PlannedArtifact | None
    weights: PlannedArtifact | None


def listed(entries: Sequence[Entry], active: Chain) -> list[Listed]:
    """The Listed of every entry, in their order; active: the artifacts of the active run."""
    runs = []
    for entry in entries:
        roles = {} if entry.reason else chain(entry.run) if entry.run else active
        weights = roles.get("train") or roles.get("patches") or roles.get("initial")
        runs.append(Listed(entry, roles.get("report"), weights))
    return runs


def rows(runs: Sequence[Listed]) -> list[dict[str, Any]]:
    """JSON-able: {"name", "tags", "settings", "reason", "report", "weights"} of each run.

    settings: key -> value, those that are not the active run's; reason: why it cannot run here, or
    why a search has given it up, or ''; report, weights: the folder of the artifact, as
    results/report/VERSION, None where it has none.
    """
    return [
        {
            "name": entry.name,
            "tags": list(entry.tags),
            "settings": entry.overrides,
            "reason": entry.reason,
            "report": report and report.folder,
            "weights": weights and weights.folder,
        }
        for entry, report, weights in runs
    ]
