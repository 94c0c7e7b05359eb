"""The artifacts below a results folder, by their manifests: their parents and their settings.

No file but the manifests is read here, and a damaged one is no error: its artifact has the manifest
None.
"""

import difflib
import functools
import hashlib
import json
import pathlib
from collections.abc import Container, Mapping
from typing import Any

from ladder.errors import UserError
from ladder.store import manifests
from ladder.store.roles import CONTROLS, RANDOM, Role

NEAREST = 3  # existing versions named if the one asked for does not exist
# Stage -> {its parameter: the configuration key it comes from}, where the two names differ.
KEYS = {
    "joined": {"weights": "features_concatenate"},
    "svm": {"backend": "svm_backend", "kernel": "svm_kernel", "C": "svm_C", "gamma": "svm_gamma"},
    "initial": {"file_sha256": "initial_weights"},
    "data": {"folder_sha256": "folder"},
    "features": {"variant": "features_variant"},
    "shifted": {"variant": "features_variant"},
    "changed": {"variant": "features_variant"},
}
# Defaults that a stage's parameters omit.
UNSAID: dict[str, dict[str, Any]] = {
    "data": {"validation": 0},
    "initial": {"initial_weights": "none", "precision": "float32"},
}
DIGITS = 12  # of a file's sha256, where people read it
# parameters that are not settings
DERIVED = {
    "image",
    "classes",
    "encoder",
    "name",
    "tags",
    "table",
    "targets",
    "pictures",
    "choices",
    "declined",
    "warnings",
}
# Classifiers of features whose predictions can be a run's; the first that it has. The order is
# fixed, so that no test image chooses between them.
PRIMARY_CLASSIFIERS = ("ridge", "svm")


class Store:
    """The artifacts below the folder `results`; each manifest is read once, on first use."""

    def __init__(self, results: str | pathlib.Path) -> None:
        self.results = pathlib.Path(results)
        self.manifest = functools.cache(self.manifest)  # type: ignore[method-assign]   # of this Store alone
        self.folders = functools.cache(self.folders)  # type: ignore[method-assign]   # of this Store alone

    def folders(self) -> dict[str, pathlib.Path]:
        """Version -> its folder, unfinished artifacts included."""
        return {
            folder.name: folder
            for stage in _below(self.results)
            for folder in _below(stage)
            if manifests.VERSION.fullmatch(folder.name) and folder.name[0] == stage.name[0]
        }

    def stage(self, version: str) -> str | None:
        """The stage of this version, None if there is no such folder."""
        return self.folders()[version].parent.name if version in self.folders() else None

    def manifest(self, version: str) -> dict[str, Any] | None:
        """The manifest of a finished artifact; None if it is missing or damaged."""
        folder = self.folders().get(version)
        return manifests.read_if_whole(folder) if folder else None

    def damage(self, version: str) -> str:
        """What is wrong with the manifest of an artifact, in words; '' if it is whole or not
        there.
        """
        try:
            manifests.read(self.folders()[version])
        except manifests.Damaged as damage:
            return damage.brief
        return ""

    def parents(self, version: str) -> dict[str, str]:
        """Name -> version of each parent; empty if the manifest cannot be read."""
        manifest = self.manifest(version)
        return manifest["spec"]["parents"] if manifest else {}

    def ancestors(self, version: str) -> list[str]:
        """The version and all its ancestors, each once, parents before children."""
        order: dict[str, None] = {}

        def visit(child: str) -> None:
            if child not in order:
                order[child] = None
                for parent in self.parents(child).values():
                    visit(parent)
                del order[child]  # behind its parents
                order[child] = None

        visit(version)
        return list(order)

    def settings(self, report: str) -> dict[str, Any]:
        """Configuration key -> value, for all keys that can change the run of a report version."""
        roles: dict[str, Any] = {"report": report, **self.parents(report)}
        # reports of earlier releases
        if "initial" not in roles and (fitted := roles.get("patches", roles.get("train"))):
            roles["initial"] = self.parents(fitted).get("initial")
        return settings({role: self.manifest(version) for role, version in roles.items()})


def resolve(store: Store, name: str) -> str:
    """The version with this name, or with this beginning; raises UserError with the most similar
    ones if there is none.
    """
    versions = store.folders()
    name = str(name).rstrip("/").rpartition("/")[2]
    begun = [version for version in versions if version.startswith(name)] if name else []
    if len(begun) == 1:
        if store.manifest(begun[0]) is None:
            damage = store.damage(begun[0])
            raise UserError(
                f"{versions[begun[0]]} {f'is damaged ({damage})' if damage else 'holds no finished artifact'}"
            )
        return begun[0]
    if begun:
        shown = ", ".join(begun[:NEAREST]) + (", ..." if len(begun) > NEAREST else "")
        raise UserError(f"more than one version in {store.results} begins with {name}: {shown}")
    if not versions:
        raise UserError(f"there is no version {name}: {store.results} holds no artifacts")
    alike = [version for version in versions if version[:1] == name[:1]] or list(versions)
    nearest = difflib.get_close_matches(name, alike, NEAREST, 0) or alike[:NEAREST]
    raise UserError(
        f"there is no version {name} in {store.results}; the nearest {'is' if len(nearest) == 1 else 'are'} "
        f"{', '.join(nearest)}"
    )


def settings(roles: Mapping[str, dict[str, Any] | None]) -> dict[str, Any]:
    """Configuration key -> value, for all keys that can change a run; roles: role -> manifest or
    None.
    """
    config: dict[str, Any] = {}
    for role, manifest in roles.items():
        if manifest and role == Role.parse(role).stage:
            config |= UNSAID.get(role, {})
            names = KEYS.get(role, {})
            config |= {
                names.get(key, key): value
                for key, value in manifest["spec"]["params"].items()
                if key not in DERIVED
            }
            if role == "data" and "folder" in config:
                config["folder"] = (
                    f"{manifest['metrics'].get('folder', 'a folder')}, sha256 {config['folder'][:DIGITS]}"
                )
            if table := manifest["spec"]["params"].get("table"):  # of a network of a person's own
                config["network"] += (
                    f", {hashlib.sha256(json.dumps(table).encode()).hexdigest()[:8]}"
                )
            if role == "initial" and (file := start_file(manifest)):
                config["initial_weights"] = "{file}, sha256 {sha256}".format(**file)
    if config.get("share") is False and "folder" in config:  # pages may not name it
        config["folder"] = f"a folder, {config['folder'].rpartition(', ')[2]}"
    if roles.keys().isdisjoint({"train", "patches"}):
        config["epochs"] = 0
    if "features_variant" in config and config["features_variant"] == config.get("variant"):
        config["features_variant"] = "same"
    if "ablation" in config:  # the same list, of an earlier release
        config["runs"] = config.pop("ablation")
    if "runs" in config:
        config["runs"] = [_entry(run) for run in config["runs"]]
    own, kinds = config.pop("control_settings", {}), {Role.parse(role).kind for role in roles}
    config["controls"] = [
        {name: own} if name == RANDOM and own else name for name in CONTROLS if name in kinds
    ]
    return config


def _entry(run: dict[str, Any]) -> dict[str, Any]:
    """An entry of the key `runs`, from the parameter of a report."""
    name = {"name": run["name"]} if "name" in run else {}
    return {**run["overrides"], **name, **({"tag": run["tags"]} if "tags" in run else {})}


def primary_classifier(roles: Container[str]) -> str | None:
    """Which of these roles is the classifier of features that a run and its controls are scored by;
    None without any.
    """
    return next((role for role in PRIMARY_CLASSIFIERS if role in roles), None)


def answering(roles: Container[str]) -> str | None:
    """Which of these roles has a run's predictions: the network if it classifies, else its primary
    classifier; None without.
    """
    return "evaluate" if "evaluate" in roles else primary_classifier(roles)


def start_file(manifest: dict[str, Any]) -> dict[str, str] | None:
    """{"file": name, "sha256": its first DIGITS} of the file that an artifact of stage `initial`
    was read from.

    None for random weights. An earlier release did not record the name.
    """
    sha256 = manifest["spec"]["params"].get("file_sha256")
    return (
        {"file": manifest.get("metrics", {}).get("file", "a file"), "sha256": sha256[:DIGITS]}
        if sha256
        else None
    )


def _below(folder: pathlib.Path) -> list[pathlib.Path]:
    """The subfolders of a folder, sorted by name; symbolic links are left out."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:  # missing, no folder, or unreadable
        return []
