"""Damage every file of finished artifacts in every way; the same command then has to name it and
make it again.

    .venv/bin/python tests/campaigns/damage.py --folder /tmp/damage --limit 2000

What has to hold after the damages of a case: the command ends with 0, names each damaged file and
shows no traceback; every artifact has the bytes of an undisturbed run (pages, which show times, are
whole); a second run has nothing to do. Damage that only a reader of the file can see, because it
keeps size and time, may end the command with one line that names the file; then the same command
has to finish.

FOLDER keeps a copy of the project, its undisturbed results and damage.jsonl, a line for each case:
the same call goes on after the last one. A case damages up to MOST artifacts at once, in an order
drawn from the seed.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "workflow/scripts")]

import snakemake_server  # noqa: E402
from killed_project import COPIED, TINY  # noqa: E402
from ladder.store import disk, manifests  # noqa: E402

COMPARED = (
    "[{training: patches_then_gradient}, {network: lenet_5, features_layer: fc1, controls: [], evaluations: [],"
    " features_concatenate: []}]"
)
# All stages that this machine can run, in one command.
COMMAND = (
    "report",
    "runs",
    "results/network.html",
    "--config",
    *TINY,
    "autoencoder_filters=[6,4]",
    "patches_samples=[500]",
    "feature_map=true",
    "evaluations=[linear,ridge,knn]",
    "features_concatenate=[{features_layer: enc1_pool}]",
    "features_pca=4",
    f"runs={COMPARED}",
)
PAGES = ("report", "search", "network", "parity")
MOST = 6
SILENT = "flip, same time"


# Damages: each takes the file, a source of chance and the other files of the artifacts.


def flip(path, chance, others):
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    path.write_bytes(data)


def flip_silently(path, chance, others):
    before = path.stat()
    flip(path, chance, others)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path, chance, others):
    os.truncate(path, chance.randrange(path.stat().st_size))


def swap(path, chance, others):
    """Put another file of the same name in its place, or any other one."""
    mine = path.read_bytes()
    found = [one for one in others if one.name == path.name] or others
    different = [
        data for one in chance.sample(found, len(found)) if (data := one.read_bytes()) != mine
    ]
    path.write_bytes(different[0] if different else mine[::-1] + b"!")


def delete(path, chance, others):
    path.unlink()


def empty(path, chance, others):
    path.write_bytes(b"")


def replace_by_folder(path, chance, others):
    path.unlink()
    path.mkdir()
    if chance.random() < 0.5:
        (path / "inside").write_text("in the way")


KINDS = {
    "flip": flip,
    "truncate": truncate,
    "swap": swap,
    "delete": delete,
    "empty": empty,
    "folder": replace_by_folder,
    SILENT: flip_silently,
}


class Project:
    """A copy of the project in which `command` has run undisturbed. table: file of an artifact ->
    its sha256.
    """

    def __init__(self, folder, command):
        self.folder, self.command, self.whole = folder / "project", command, folder / "whole"
        if not self.whole.exists():
            self._make()
        self.table = {
            path.relative_to(self.whole).as_posix(): disk.sha256(path)
            for path in _files(self.whole)
        }
        self.files = [name for name in self.table if pathlib.Path(name).name != ".lock"]

    def _make(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.folder / name)
        status, output = self.run()
        assert status == 0, output
        shutil.copytree(self.results, self.whole)

    @property
    def results(self):
        return self.folder / "results"

    def run(self, *more):
        """(exit status, output) of the command."""
        return snakemake_server.run([*more, *self.command], self.folder)

    def restore(self):
        shutil.rmtree(self.results)
        shutil.copytree(self.whole, self.results)

    def child(self, artifact, chance):
        """A file of an artifact that was made from this one; None if there is none."""
        version = artifact.rpartition("/")[2]
        found = [
            name
            for name in self.files
            if name.endswith(manifests.MANIFEST)
            and version in manifests.decoded(self.whole / name)["spec"]["parents"].values()
        ]
        children = [
            name
            for name in self.files
            if f"{_artifact(name)}/{manifests.MANIFEST}" in found
            and not pathlib.Path(name).name.endswith((manifests.MANIFEST, manifests.COMPLETE))
        ]
        return chance.choice(children) if children else None

    def difference(self, unread=None):
        """The first difference from the undisturbed results, '' for none; unread: a file that may
        differ.
        """
        for name, sha256 in self.table.items():
            path = self.results / name
            if not path.is_file():
                return f"{name} is missing"
            if path.name == manifests.MANIFEST:
                try:
                    manifests.verify(
                        path.parent,
                        thoroughly=unread is None or _artifact(unread) != _artifact(name),
                    )
                except manifests.Damaged as damage:
                    return str(damage)
                if path.read_bytes() != path.with_name(manifests.COMPLETE).read_bytes():
                    return f"{name} has another second copy"
            elif not _varies(name) and name != unread and disk.sha256(path) != sha256:
                return f"{name} has other bytes"
        return next(
            (
                f"{path} is left over"
                for path in _files(self.results)
                if path.relative_to(self.results).as_posix() not in self.table
            ),
            "",
        )


def _files(results):
    return sorted(path for path in results.glob("*/*/*") if path.is_file())


def _artifact(name):
    return name.rpartition("/")[0]


def _varies(name):
    """Whether the bytes of a file are those of its making: manifests and pages show times."""
    return (
        pathlib.Path(name).name in (manifests.MANIFEST, manifests.COMPLETE, ".lock")
        or name.split("/")[0] in PAGES
    )


def cases(project, seed):
    """Yield [(file, kind)] of each case, each damage once; damage that only a reader sees has a
    case of its own.
    """
    chance = random.Random(seed)
    todo = [
        (name, kind)
        for name in project.files
        for kind in KINDS
        if kind != SILENT or pathlib.Path(name).name not in (manifests.MANIFEST, manifests.COMPLETE)
    ]
    chance.shuffle(todo)
    while todo:
        case = [todo.pop()]
        while case[0][1] != SILENT and len(case) < chance.randint(1, MOST) and todo:
            if todo[-1][1] == SILENT or _artifact(todo[-1][0]) in (
                _artifact(name) for name, _ in case
            ):
                break
            case.append(todo.pop())
        yield case


def run_case(project, number, case, seed):
    """What does not hold after these damages, '' if all does."""
    chance = random.Random(f"{seed} {number}")
    silent = next((name for name, kind in case if kind == SILENT), None)
    for name, kind in case:
        others = [project.results / other for other in project.files if other != name]
        KINDS[kind](project.results / name, chance, [other for other in others if other.is_file()])
    if silent and (child := project.child(_artifact(silent), chance)):
        (project.results / child).unlink()  # so that its stage reads the damaged artifact
    status, output = project.run()
    if silent and status:
        if (
            not any(f"{silent} is damaged" in line for line in output.splitlines()[-3:])
            or "Traceback" in output
        ):
            return f"not one line that names the file: {output[-1500:]}"
        status, output = project.run()
    if status or "Traceback" in output:
        return f"status {status}: {output[-1500:]}"
    unnamed = [
        name
        for name, _ in case
        if name != silent
        and not name.endswith(manifests.COMPLETE)
        and f"damaged: results/{name}" not in output
    ]
    if unnamed:
        return f"{unnamed[0]} is not named: {output[-1500:]}"
    return project.difference(unread=silent) or _still_to_do(project)


def _still_to_do(project):
    status, output = project.run("-n")
    return (
        ""
        if status == 0 and "Nothing to be done" in output
        else f"the second run: {output[-1500:]}"
    )


def campaign(folder, command=COMMAND, limit=10**6, seed=1, say=lambda line: None):
    """Run the cases that folder/damage.jsonl lacks, at most `limit` damages in all; returns every
    line of it.
    """
    project, journal = Project(folder, command), folder / "damage.jsonl"
    done = (
        [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    )
    project.restore()
    for number, case in enumerate(cases(project, seed)):
        if number < len(done):
            continue
        if sum(len(line["damages"]) for line in done) >= limit:
            break
        started = time.monotonic()
        fault = run_case(project, number, case, seed)
        done.append(
            {
                "case": number,
                "damages": case,
                "fault": fault,
                "seconds": round(time.monotonic() - started, 1),
            }
        )
        with open(journal, "a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        say(
            f"{number}: {'; '.join(f'{name} {kind}' for name, kind in case)}: {fault or 'made again'}"
        )
        if fault or SILENT in dict(case).values():  # which stays where no stage reads the file
            project.restore()
    return done


def summary(done):
    """Lines of text: the damages by kind, and the cases that failed."""
    kinds = collections.Counter(kind for line in done for _, kind in line["damages"])
    failed = [line for line in done if line["fault"]]
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return [
        f"{sum(kinds.values())} damages in {len(done)} cases: {counts}",
        f"{len(failed)} cases failed",
        *(f"case {line['case']}: {line['damages']}: {line['fault']}" for line in failed),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        required=True,
        help="for the copy of the project and the journal",
    )
    parser.add_argument("--limit", type=int, default=10**6, metavar="N", help="end after N damages")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    done = campaign(
        arguments.folder.absolute(),
        COMMAND,
        arguments.limit,
        arguments.seed,
        lambda line: print(line, flush=True),
    )
    print("\n".join(summary(done)))
    return int(any(line["fault"] for line in done))


if __name__ == "__main__":
    sys.exit(main())
