"""What lies below a results folder, by its manifests: the artifacts there are, what each was made from, and with what settings.

Nothing is checked against its checksums, and a manifest that cannot be read is no error: its artifact has None for one.
"""

import functools
import json
import pathlib
import re

from ladder.store.artifacts import COMPLETE, MANIFEST

VERSION = re.compile(r"[a-z][0-9a-f]{11}")
# Stage whose parameters belong to keys of the configuration by other names -> those names.
KEYS = {"joined": {"weights": "features_concatenate"},
        "svm": {"backend": "svm_backend", "kernel": "svm_kernel", "C": "svm_C", "gamma": "svm_gamma"},
        "initial": {"file_sha256": "initial_weights"}}
UNSAID = {"data": {"holdout": 0}}   # what a stage's parameters say only where it is something else
DERIVED = {"image", "classes", "encoder", "name", "tags"}   # parameters that are no settings
CONTROLS = ("random", "pixels")   # tails of the roles of control runs, as the setting `controls` names them


class Store:
    """The artifacts below the folder `results`; each manifest is read once, when it is asked for."""

    def __init__(self, results):
        self.results = pathlib.Path(results)
        self.manifest = functools.cache(self.manifest)
        self.folders = functools.cache(self.folders)

    def folders(self):
        """Version -> its folder, also of what is unfinished."""
        return {folder.name: folder for stage in _below(self.results) for folder in _below(stage)
                if VERSION.fullmatch(folder.name) and folder.name[0] == stage.name[0]}

    def stage(self, version):
        """The stage whose version this is, None where there is no such folder."""
        return self.folders()[version].parent.name if version in self.folders() else None

    def manifest(self, version):
        """The manifest of a finished artifact; None where there is none, or none that can be read."""
        folder = self.folders().get(version)
        return read_manifest(folder) if folder else None

    def parents(self, version):
        """Name -> version of what it was made from; nothing where that cannot be read."""
        manifest = self.manifest(version)
        return manifest["spec"]["parents"] if manifest else {}

    def ancestors(self, version):
        """The version and all that it was made from, each once, parents before what is made from them."""
        found = {}

        def visit(one):
            if one not in found:
                found[one] = None
                for parent in self.parents(one).values():
                    visit(parent)
                del found[one]   # behind its parents
                found[one] = None

        visit(version)
        return list(found)

    def settings(self, report):
        """Key of the configuration -> value, of all that can change the run of a report version."""
        roles = {"report": report, **self.parents(report)}
        if made := roles.get("patches", roles.get("train")):
            roles["initial"] = self.parents(made).get("initial")
        found = {}
        for role, version in roles.items():
            manifest = self.manifest(version) if "_" not in role else None
            if manifest:
                found |= UNSAID.get(role, {})
                names = KEYS.get(role, {})
                found |= {names.get(key, key): value for key, value in manifest["spec"]["params"].items() if key not in DERIVED}
        if "svm" in roles:
            found["controls"] = [name for name in CONTROLS if f"svm_{name}" in roles]
        return found


def read_manifest(folder):
    """The manifest in a folder, None where there is none that can be read."""
    for name in (MANIFEST, COMPLETE):
        try:
            manifest = json.loads((folder / name).read_text())
            whole = isinstance(manifest["spec"]["params"], dict) and isinstance(manifest["spec"]["parents"], dict)
            return manifest if whole and isinstance(manifest["files"], dict) else None
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return None


def _below(folder):
    """The folders in a folder, by name; links are none."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []
