"""Why an artifact would be made: how it differs from the most similar one of its kind that is
there.
"""

import pathlib
import re
import string
from typing import Any

from ladder.machine import libraries
from ladder.rungs import catalog
from ladder.store import manifests
from ladder.store.versions import canonical
from ladder.workflow.planning import PlannedArtifact, ancestry

LEGIBLE = 200  # maximum characters of a change shown in words
TABLE = re.compile(r"(?:table|integers) ([0-9a-f]{8})[0-9a-f]{8}")  # multipliers.identity
FILES: dict[str, str] = {}  # identity of a table -> the file by which the configuration names it


def why(artifact: PlannedArtifact, results: str | pathlib.Path = "results") -> str:
    """Why `artifact` would be made: its differences from the most similar existing artifact of its
    kind; '' if it exists.

    'batch_size 64 -> 32', 'workflow/scripts/train_network.py changed', 'parent train changed', or
    'first run'.
    """
    if _read_spec(results, artifact.stage, artifact.version):
        return ""
    kind = _kind(
        artifact.spec, results, {ancestor.version: ancestor.spec for ancestor in ancestry(artifact)}
    )
    existing = [
        spec
        for spec in _existing_specs(results, artifact.stage)
        if _kind(spec, results, {}) == kind
    ]
    stages = {name: parent.stage for name, parent in artifact.parents.items()}
    differences = [_differences(spec, artifact.spec, stages) for spec in existing]
    fewest = min(differences, key=len) if differences else ["first run"]
    return ", ".join(fewest)


def other_libraries(
    artifact: PlannedArtifact, results: str | pathlib.Path = "results"
) -> list[str]:
    """'numpy 2.4.5 -> 2.4.6' for each library of which `artifact`, if it exists, was made with
    another version than here.
    """
    manifest = manifests.read_if_whole(pathlib.Path(results, artifact.stage, artifact.version))
    if not manifest:
        return []
    on_gpu = catalog.counts_gpu_libraries(artifact.spec["params"])
    made_with = libraries.computing(manifest["libraries"], on_gpu)
    return libraries.changed(made_with, libraries.installed(artifact.spec["sources"], on_gpu))


def _existing_specs(results: str | pathlib.Path, stage: str) -> list[dict[str, Any]]:
    """Specs of the finished artifacts of a stage, the latest first."""
    paths = sorted(
        pathlib.Path(results, stage).glob("*/manifest.json"), key=lambda path: -path.stat().st_mtime
    )
    specs = (_read_spec(results, stage, path.parent.name) for path in paths)
    return [spec for spec in specs if spec]


def _read_spec(results: str | pathlib.Path, stage: str, version: str) -> dict[str, Any] | None:
    """The spec in an artifact's manifest, None without one or if it is damaged."""
    manifest = manifests.read_if_whole(pathlib.Path(results, stage, version))
    return manifest and manifest["spec"]


def _kind(
    spec: dict[str, Any] | None, results: str | pathlib.Path, known: dict[str, dict[str, Any]]
) -> tuple[str, str] | None:
    """(encoder, kind of weights) of an artifact's features, so that a control is not compared with
    the trained network.
    """
    while spec and (parent := spec["parents"].get("features") or spec["parents"].get("part1")):
        spec = known.get(parent) or _read_spec(
            results, "joined" if parent[0] == "j" else "features", parent
        )
    if spec is None or spec["stage"] != "features":
        return None
    return spec["params"]["encoder"], spec["parents"].get("weights", "")[:1]


def changes(
    artifact: PlannedArtifact, version: str, results: str | pathlib.Path = "results"
) -> list[str]:
    """How `artifact` and its ancestors differ from the finished artifact `version` of its stage, as
    ['batch_size 64 -> 32'].

    Files of the program count as one change; ancestors that are no longer there say nothing.
    """
    settings: dict[str, None] = {}
    others: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()

    def visit(planned: PlannedArtifact, version: str) -> None:
        spec = _read_spec(results, planned.stage, version)
        if version == planned.version or (planned.version, version) in seen or not spec:
            return
        seen.add((planned.version, version))
        settings.update(dict.fromkeys(_changed_params(spec, planned.spec)))
        others.update({"the program": None} if spec["sources"] != planned.spec["sources"] else {})
        others.update(
            {f"with {name}": None for name in planned.parents.keys() - spec["parents"].keys()}
        )
        others.update(
            {f"without {name}": None for name in spec["parents"].keys() - planned.parents.keys()}
        )
        for name, parent in planned.parents.items():
            if name in spec["parents"]:
                visit(parent, spec["parents"][name])

    visit(artifact, version)
    return [*settings, *sorted(others)]


def _changed_params(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    words = []
    for key in sorted(old["params"].keys() | new["params"].keys()):
        before, after = (_shown(spec["params"].get(key, "unused")) for spec in (old, new))
        if before != after:
            text = f"{key} {before} -> {after}"
            words.append(text if len(text) <= LEGIBLE else f"{key} changed")
    return words


def _differences(old: dict[str, Any], new: dict[str, Any], stages: dict[str, str]) -> list[str]:
    """The changes from one spec to the other in words, one entry each; stages: the parents' stages
    by name.
    """
    words = _changed_params(old, new)
    edited = [
        path
        for path in sorted(old["sources"].keys() | new["sources"].keys())
        if old["sources"].get(path) != new["sources"].get(path)
    ]
    if edited:
        words.append(
            f"{edited[0]}{f' and {len(edited) - 1} more sources' if len(edited) > 1 else ''} changed"
        )
    for name in sorted(old["parents"].keys() | new["parents"].keys()):
        if old["parents"].get(name) != new["parents"].get(name):
            # of a list: report0, report1
            words.append(f"parent {stages.get(name, name.rstrip(string.digits))} changed")
    return list(dict.fromkeys(words))


def _shown(value: Any) -> str:
    if not isinstance(value, str):
        return canonical(value)
    table = TABLE.fullmatch(value)
    return FILES.get(value, f"a table ({table[1]})") if table else value
