"""Manifests as a stage would have written them, for artifacts that tests change or make up."""

import pathlib

from ladder.store import manifests

NOTHING = {
    "files": {},
    "metrics": {},
    "notes": {},
    "seconds": 1.0,
    "peak_memory_bytes": 1,
    "machine": {},
    "libraries": {},
    "threads": 1,
    "made": "2026-01-31T12:34:56Z",
}


def spec(stage, params=None, parents=None):
    """A specification without sources."""
    return {"stage": stage, "params": params or {}, "sources": {}, "parents": parents or {}}


def rewrite(folder, **changes):
    """Write the manifest of a folder that was changed, copied or renamed, with `changes` and its
    files as they are now.
    """
    folder = pathlib.Path(folder)
    manifest = manifests.decoded(folder / manifests.MANIFEST)
    files = {
        name: {**facts, **manifests.facts(folder / name)}
        for name, facts in manifest["files"].items()
    }
    _write(folder, {**manifest, **changes, "files": files})


def write(folder, spec, **changes):
    """Write the manifest of an artifact without files."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    _write(pathlib.Path(folder), {**NOTHING, "spec": spec, **changes})


def add_file(folder, name, data):
    """Write one more file of a finished artifact, and its manifest with it."""
    folder = pathlib.Path(folder)
    (folder / name).write_bytes(data)
    manifest = manifests.decoded(folder / manifests.MANIFEST)
    _write(
        folder, {**manifest, "files": {**manifest["files"], name: manifests.facts(folder / name)}}
    )


def _write(folder, manifest):
    for name in (manifests.MANIFEST, manifests.COMPLETE):
        (folder / name).unlink(missing_ok=True)  # it may be a link to that of another test
        (folder / name).write_bytes(manifests.encoded({**manifest, "version": folder.name}))
