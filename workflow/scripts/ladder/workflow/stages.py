"""The table of all stages: those of a run, which are in chains.py, and the pages that are part of
no run.

Such a page is planned by its parameters and parents, which follow from the configuration that it
shows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ladder.rungs import catalog, counted
from ladder.store import lineage
from ladder.store.roles import Role
from ladder.training.parameters import StepParameters, names
from ladder.workflow import chains, parameters
from ladder.workflow.planning import Parents, PlannedArtifact, Stage, planned
from ladder.workflow.runs import Entry, Run


class Configuration(NamedTuple):
    """run: the active one; trials: those of the search; search: its parameters."""

    run: Run
    trials: Sequence[Entry]
    search: Mapping[str, Any]


def page(stage: Stage, config: Configuration) -> PlannedArtifact:
    """The page of a configuration; the versions of libraries do not count."""
    return planned(stage, Role(stage.name), stage.params(config), stage.parents(config))


# Several runs.


def _search(config: Configuration) -> dict[str, Any]:
    return {"search": config.search, "entries": parameters.listed(config.trials)}


def _searched(config: Configuration) -> Parents:
    """The reports of a search: report<n> of entry n. An entry that cannot run here has none."""
    return {
        f"report{number}": chains.chain(entry.run or config.run)["report"]
        for number, entry in enumerate(config.trials)
        if not entry.reason
    }


# A network, and this machine.


def _nothing(config: Configuration) -> Parents:
    return {}


def _network(config: Configuration) -> dict[str, Any]:
    return {
        **config.run.network_params,
        **config.run.pick(*names(StepParameters), "optimizer", "variant"),
    }


def _parity(config: Configuration) -> dict[str, Any]:
    return {
        **config.run.network_params,
        **config.run.pick(*names(StepParameters)),
        "rungs": catalog.available(),
        "machine": catalog.machine(),
        "predictions": counted.predictions(),
        "measured": counted.measured(),
    }


# What a person takes elsewhere.


def _products(config: Configuration) -> dict[str, Any]:
    return {"products": parameters.products(config.run)}


def _answering(config: Configuration) -> Parents:
    """The report, all that the predictions are made from, and the shifted images that they are
    means over.
    """
    roles = chains.chain(config.run)
    answering = roles[lineage.answering(roles) or chains.features_role(roles)]
    shifted = {
        name: parent for name, parent in answering.parents.items() if parent.stage == "shifted"
    }
    return {
        "report": roles["report"],
        **{role: roles[role] for role in chains.prediction_roles(roles)},
        **{
            role: roles[role]
            for role in ("neighbours", "map")
            if {role, "neighbours"} <= set(roles)
        },
        **shifted,
    }


def _columns(config: Configuration) -> Parents:
    """What the columns of the table are read from; a network that classifies may have no
    features.
    """
    roles = chains.chain(config.run)
    wanted = {
        "data": "data",
        "features": chains.features_role(roles),
        "predictions": lineage.answering(roles),
        "neighbours": "neighbours",
    }
    return {name: roles[role] for name, role in wanted.items() if role in roles}


PAGES = (
    Stage("search", "search_runs", _search, _searched, ("best.yaml",), anywhere=True),
    Stage("model", "export_model", _products, _answering, ("model.zip",)),
    Stage("table", "export_table", lambda config: {}, _columns, ("features.parquet",)),
    Stage("network", "draw_network", _network, _nothing, ("network.html",), anywhere=True),
    Stage("parity", "check_parity", _parity, _nothing, ("parity.html", "parity.json")),
)
STAGES = {**chains.STAGES, **{stage.name: stage for stage in PAGES}}
# The names in results/ by stage. They stay until they are requested again; `variant: auto` reads
# results/parity.json.
COPIES = {stage.name: stage.copies for stage in STAGES.values() if stage.pages}
# The page of all runs.
RUNS = ("runs.html", "runs.csv", "runs.json")
# targets of lists of runs: a run that fails there stops no other
LISTED = {"runs", *COPIES["search"], *(f"results/{page}" for page in RUNS)}
