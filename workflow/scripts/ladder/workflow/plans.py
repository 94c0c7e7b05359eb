"""What a command may make: every artifact of its configuration, of the lists in it and of its
search.
"""

import dataclasses
import json
import pathlib
from typing import Any

import yaml

from ladder.data import facts as dataset_facts
from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.training import parameters as training_parameters
from ladder.training import phases, schedules
from ladder.verify import first_use
from ladder.workflow import config, parameters, reasons, runs, search, stages
from ladder.workflow.chains import Chain, chain
from ladder.workflow.listed import Listed, listed
from ladder.workflow.planning import PlannedArtifact
from ladder.workflow.runs import Run
from ladder.workflow.settings import Settings


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """What a command may make.

    run, chain  the active run, and its artifacts by role, pages that are part of no run included
    artifacts   version -> PlannedArtifact, those of every list and nested run too; where runs share
                an artifact, the active one says its role
    runs        version -> the Run that needs the artifact
    listed      the runs that it lists, those of its search too
    """

    run: Run
    chain: Chain
    artifacts: dict[str, PlannedArtifact]
    runs: dict[str, Run]
    search: search.SearchPlan
    listed: list[Listed]

    def options(self, version: str) -> dict[str, Any]:
        """The settings that a stage may be given beside its spec, which change no byte, by their
        names.
        """
        run = self.runs[version]
        own = run.settings.by_key()
        return own | {
            "urls": json.dumps(own.get(f"{own['dataset']}_urls", [])),
            first_use.OPTION: run.plan,
        }


def base(overrides: dict[str, Any], here: bool) -> dict[str, Any]:
    """A configuration: that of the command's --configfile and --config over a config.yaml, objects
    merged as Snakemake does.

    here: whether a config.yaml where the command runs is the workflow's.
    """
    config.check_overrides(overrides)
    return _merged(config.base(here), overrides)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(below[key], value)
        for key, value in above.items()
        if isinstance(value, dict) and isinstance(below.get(key), dict)
    }
    return {**below, **above, **both}


def load(raw: dict[str, Any]) -> RunPlan:
    """The RunPlan of a configuration as it is written; raises UserError with one line that says
    what is wrong with it.
    """
    loaded = config.load(raw)
    run = runs.resolve(loaded)
    searched = search.plan(loaded)
    needed = [
        *runs.every(run),
        *(
            nested
            for entry in searched.entries
            if entry.run and not entry.reason
            for nested in runs.every(entry.run)
        ),
        *searched.probes,
    ]
    configuration = stages.Configuration(run, searched.entries, search.params(loaded))
    active = chain(run) | {page.name: stages.page(page, configuration) for page in stages.PAGES}
    chains = [*((nested, chain(nested)) for nested in reversed(needed[1:])), (run, active)]
    return RunPlan(
        run,
        active,
        {artifact.version: artifact for _, roles in chains for artifact in roles.values()},
        {artifact.version: owner for owner, roles in chains for artifact in roles.values()},
        searched,
        listed([*run.listed, *searched.entries], active),
    )


def notes(plan: RunPlan) -> list[str]:
    """What `auto` stands for, and what a person should know before the work begins, a line each."""
    given, own = plan.run.given, plan.run.settings
    pictures = dataset_facts.pictures(own).remarks if own.dataset == dataset_facts.FOLDER else []
    lines = [*pictures, *(choice.line for choice in plan.run.choices)]
    lines += parameters.warnings(plan.run)
    if own.folder != "none" and own.dataset != dataset_facts.FOLDER:
        lines.append(f"folder {own.folder} is not read: dataset is {own.dataset}, not folder")
    if given.variant == "auto":
        lines.append(f"variant auto: {own.variant} ({plan.run.why_variant})")
    if given.svm_backend == "auto" and "svm" in plan.chain:
        lines.append(f"svm_backend auto: {own.svm_backend}")
    if given.array_library == "auto" and any(
        "array_library" in artifact.spec["params"] for artifact in plan.chain.values()
    ):
        lines.append(f"array_library auto: {own.array_library}")
    if "train" in plan.chain and not pathlib.Path(plan.chain["train"].manifest).exists():
        training = training_parameters.read(
            training_parameters.TrainingParameters, plan.chain["train"].spec["params"]
        )
        parts = phases.parts(plan.run.network, training)
        lines += schedules.misfits(training, parts, plan.run.training_images)
    return lines


def other_libraries(plan: RunPlan) -> list[str]:
    """Which artifacts of the active run other versions of libraries than those here have made, a
    line each.
    """
    changes: dict[str, list[str]] = {}
    for artifact in plan.chain.values():
        for change in reasons.other_libraries(artifact):
            changes.setdefault(change, []).append(artifact.role)
    return [
        f"{change} since {', '.join(roles)} {'were' if len(roles) > 1 else 'was'} made; "
        "-F makes them again"
        for change, roles in changes.items()
    ]


def settings_text(plan: RunPlan, every: bool) -> str:
    """The active run's settings as they are written, `every` one or those that are not the default,
    as YAML.
    """
    usual = Settings().by_key()
    shown = {
        key: value for key, value in plan.run.given.by_key().items() if every or value != usual[key]
    }
    text = yaml.safe_dump(
        shown, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    return text.strip() if shown else "# every setting has its default"


def reached(plan: RunPlan) -> tuple[list[str], list[str]]:
    """The artifacts that `gc` keeps, "stage/version" of the plan and of the presets, and the faults
    of presets.

    Presets are laid over config.yaml; they are those of the workflow, and of a folder `presets`
    where the command runs.
    """
    chains, faults, base = [plan.artifacts.values()], [], config.base()
    presets = {
        path.resolve()
        for folder in (ROOT, pathlib.Path())
        for path in (folder / "presets").glob("*.yaml")
    }
    for preset in sorted(presets):
        try:
            chains.append(
                chain(runs.resolve(config.load({**base, **config.read_file(preset)}))).values()
            )
        except UserError as error:
            faults.append(f"presets/{preset.name} does not go with config.yaml: {error}")
    return sorted(
        {f"{artifact.stage}/{artifact.version}" for each in chains for artifact in each}
    ), faults
