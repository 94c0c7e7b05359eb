"""Write results/bundle.zip: a report with what it takes to check it elsewhere and to make it again;
by the rule `bundle`.

    write_bundle.py --config-file logs/bundle.json

In it are the report, the manifests of all artifacts behind it, their predictions, the final
weights, model.zip if it was made, the settings, README.md, and verify.py, which checks the files
with Python alone. The exit status is 0, or 2 with one line if an artifact is damaged or the archive
cannot be written.
"""

import argparse
import hashlib
import json
import pathlib

import yaml

from ladder import command, sources
from ladder.data import licences
from ladder.errors import UserError
from ladder.pages import templates
from ladder.progress import size
from ladder.store import artifacts, disk, lineage, manifests, zips
from ladder.workflow import plans, search

OUTPUT = pathlib.Path("results/bundle.zip")
FOLDER = "kernel_ladder_bundle"  # that the archive unpacks
RESOURCES = sources.ROOT / "workflow/resources/bundle"
ANSWERS = "predictions.npy", "probabilities.npy"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config-file", type=pathlib.Path, required=True, help="the configuration as JSON"
    )
    plan = plans.load(json.loads(parser.parse_args().config_file.read_text("utf-8")))
    files = bundle(plan)
    try:
        with disk.replacing(OUTPUT) as temporary:
            zips.pack(temporary, {f"{FOLDER}/{name}": content for name, content in files.items()})
    except OSError as error:
        raise UserError(f"cannot write {OUTPUT}: {error.strerror}") from error
    print(
        f"{OUTPUT}: {len(files)} files, {size(OUTPUT.stat().st_size)}, sha256 {disk.sha256(OUTPUT)}"
    )


def bundle(plan):
    """Name in the archive -> path or content of each file, SHA256SUMS last. Raises UserError where
    one is damaged.
    """
    report = artifacts.Artifact(plan.chain["report"].folder)
    store, files = lineage.Store("results"), {}
    for version in store.ancestors(report.version):
        files |= files_of(artifacts.Artifact(store.folders()[version]), is_wanted)
    final = next(plan.chain[role] for role in ("train", "patches", "initial") if role in plan.chain)
    files |= files_of(
        artifacts.Artifact(final.folder), lambda stage, name: name.startswith("weights.")
    )
    if manifests.read_if_whole(plan.chain["model"].folder):
        files |= files_of(artifacts.Artifact(plan.chain["model"].folder), lambda stage, name: True)
    written = {
        "README.md": readme(report.json("summary.json")),
        "config.yaml": settings(plan),
        "verify.py": (RESOURCES / "verify.py").read_text("utf-8"),
    }
    files = {name: text.encode() for name, text in written.items()} | dict(sorted(files.items()))
    return files | {
        "SHA256SUMS": "".join(
            f"{digest(content)}  {name}\n" for name, content in files.items()
        ).encode()
    }


def files_of(artifact, wanted):
    """The manifest of an artifact, and those of its files that are `wanted` (stage, name)."""
    stage = artifact.manifest["spec"]["stage"]
    names = [name for name in artifact.manifest["files"] if wanted(stage, name)]
    paths = [artifact.folder / manifests.MANIFEST, *map(artifact.path, names)]
    return {f"results/{stage}/{artifact.version}/{path.name}": path for path in paths}


def is_wanted(stage, name):
    return stage == "report" or name in ANSWERS


def settings(plan):
    """Every setting of the run, as a file for --configfile that depends on no other one."""
    values = {
        key: value
        for key, value in plan.run.settings.by_key().items()
        if key in ("name", "tags") or key not in search.NOT_OF_A_RUN
    }
    return yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )


def readme(summary):
    """The text of README.md; summary: of the report."""
    again = summary["reproduce"]
    elsewhere = (
        templates.listed([f"`{key}`" for key in again["not_in_settings"]])
        if again["not_in_settings"]
        else ""
    )
    return (
        (RESOURCES / "README.md")
        .read_text("utf-8")
        .format(
            title=templates.run_title(summary),
            verdict=summary["verdict"] or "Nothing was classified.",
            report=summary["versions"]["report"],
            program=f"Kernel Ladder {templates.program(summary)}",
            versions="\n".join(
                f"| {role} | `{version}` |" for role, version in summary["versions"].items()
            ),
            files=f"\nFiles that {elsewhere} may name are not here.\n" if elsewhere else "",
            data=templates.dataset_title(summary["dataset"]),
            licence=licences.LICENCES[summary["dataset"]],
            checksums="\n".join(f"- `{name}` {sha256}" for name, sha256 in again["data"].items()),
        )
    )


def digest(content):
    return (
        hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else disk.sha256(content)
    )


if __name__ == "__main__":
    command.run(main)
