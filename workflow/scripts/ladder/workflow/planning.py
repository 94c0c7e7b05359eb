"""A stage, and an artifact of one as it is planned, with its version: a hash of everything that may
change its bytes.

An artifact lives in results/<stage>/<version>/. Its version is a hash of the stage's parameters,
the text of its source files, and its parents' versions.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ladder import sources
from ladder.executors import create
from ladder.sources import ROOT
from ladder.store import manifests, programs
from ladder.store.roles import Role
from ladder.store.versions import version

SCRIPTS = "workflow/scripts"
PLAN, TEMPLATES = f"{SCRIPTS}/ladder/plan/plan.py", f"{SCRIPTS}/ladder/pages/templates.py"
MODEL = f"{SCRIPTS}/export_model.py"
Parents = dict[str, "PlannedArtifact"]  # by the names that the stage's script knows


@dataclasses.dataclass(frozen=True)
class Stage:
    """A row of a table of stages.

    rule      the rule that makes its artifacts, also the name of the script that it runs
    params    function of a chain and a role (chains.py), or of a configuration (stages.py)
    parents   the same, of the artifacts that it reads
    pages     the files that are copied to results/
    anywhere  whether any machine can make it, in one thread: it only describes runs, and needs
              neither the rung nor the libraries that its parameters name
    """

    name: str
    rule: str
    params: Callable[..., dict[str, Any]]
    parents: Callable[..., Parents]
    pages: tuple[str, ...] = ()
    anywhere: bool = False

    @property
    def script(self) -> str:
        """The path of the stage's script, relative to the root."""
        return f"{SCRIPTS}/{self.rule}.py"

    @property
    def copies(self) -> tuple[str, ...]:
        """The paths of the copies of its pages."""
        return tuple(f"results/{name}" for name in self.pages)


@dataclasses.dataclass(frozen=True)
class PlannedArtifact:
    """An artifact that a command may make.

    role: as text, of the run that needs it first. spec: {stage, params, sources: {path: digest},
    parents: {name: version}}.
    """

    role: str
    spec: dict[str, Any]
    parents: Parents

    @property
    def stage(self) -> str:
        return str(self.spec["stage"])

    @functools.cached_property
    def version(self) -> str:
        return version(self.spec)

    @property
    def folder(self) -> str:
        return f"results/{self.stage}/{self.version}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{manifests.MANIFEST}"


def planned(stage: Stage, role: Role, params: dict[str, Any], parents: Parents) -> PlannedArtifact:
    """The artifact that a stage makes from these."""
    files = stage_sources(stage, params)
    return PlannedArtifact(
        str(role),
        {
            "stage": stage.name,
            "params": params,
            "sources": {path: programs.digest(path) for path in files},
            "parents": {name: parent.version for name, parent in parents.items()},
        },
        parents,
    )


def ancestry(artifact: PlannedArtifact) -> list[PlannedArtifact]:
    """Its ancestors and itself, in the order of the work."""
    return [above for parent in artifact.parents.values() for above in ancestry(parent)] + [
        artifact
    ]


def stage_sources(stage: Stage, params: dict[str, Any]) -> list[str]:
    """Every file that may change the bytes of a stage's artifact with these parameters; paths
    relative to the root.

    These are the imports of the stage's script; if they include the plan, also the rungs that the
    parameters name; if they include the pages' templates, all templates; of a model the files that
    are copied to it.
    """
    imported = _imported(stage.script)
    rungs = [*params.get("rungs", []), *([params["variant"]] if "variant" in params else [])]
    modules = [sources.that_count(create.sources(rung)) for rung in rungs if PLAN in imported]
    return sorted(
        imported.union(
            *modules,
            _folder("scripts/ladder/pages/assets") if TEMPLATES in imported else (),
            _folder("resources/model") if MODEL in imported else (),
        )
    )


@functools.cache
def _imported(script: str) -> set[str]:
    """The Python files that a stage's script imports, as far as they can change its artifact."""
    return sources.that_count(sources.closure(ROOT / script))


@functools.cache
def _folder(name: str) -> frozenset[str]:
    folder = ROOT / "workflow" / name
    return frozenset(path.relative_to(ROOT).as_posix() for path in folder.glob("*.*"))
