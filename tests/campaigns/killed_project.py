"""A copy of the project in which commands are killed, and the counter of their file operations."""

import ctypes
import hashlib
import json
import mmap
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "workflow/scripts"))

from ladder.workflow import copies, notices  # noqa: E402
from ladder.workflow.stages import RUNS  # noqa: E402

COPIED = ("Snakefile", "config.yaml", "workflow", "profiles", "kernels", "presets", "envs")
TINY = (
    "dataset=digits",
    "threads=1",
    "train_limit=60",
    "test_limit=20",
    "steps=3",
    "batch_size=16",
)
LENET = (*TINY, "network=lenet_5", "controls=[]")
# Name -> target and settings of a command.
COMMANDS = {
    "autoencoder": (
        "report",
        *TINY,
        "autoencoder_filters=[6,4]",
        "training=patches_then_gradient",
        "patches_samples=[500]",
        "normalization=standardize",
        "evaluations=[linear,ridge,knn]",
        "controls=[random]",
        "features_standardize=true",
        "features_pca=4",
        "features_concatenate=[{features_layer: enc1_pool}]",
    ),
    "classifier": ("report", *LENET, "features_layer=fc1", "augment_crop=2", "runs=[{seed: 2}]"),
    "runs": ("runs", *LENET, "runs=[{seed: [1, 2]}, {test_multiplier: [exact, am32]}]"),
    "search": (
        "results/best.yaml",
        *LENET,
        "validation=15",
        "search={keys: {seed: [1, 2]}, budget: 2}",
    ),
    "network": ("results/network.html", *LENET),
}
# stages whose files tell the times of others
PAGES = ("report", "search")
# Copy in results/ -> its stage.
COPIES = {
    "report.html": "report",
    "summary.json": "report",
    "best.yaml": "search",
    "network.html": "network",
}
SCORES = "results/test_scores.csv"
OF_NO_STAGE = (SCORES, *(f"results/{page}" for page in RUNS))
TOPS = ("results", "logs")
# in a finished artifact, beside the files that its manifest names
FINISHED = {".lock", ".complete.json", "manifest.json"}
ITSELF, GROUP, PARENT = range(3)  # whom the counter kills; greater numbers are process ids


class State(ctypes.Structure):
    """struct state of kill_at.c."""

    _fields_ = [
        ("count", ctypes.c_longlong),
        ("at", ctypes.c_longlong),
        ("signal", ctypes.c_int),
        ("torn", ctypes.c_int),
        ("target", ctypes.c_int),
        ("writes", ctypes.c_int),
        ("what", ctypes.c_char * 64),
    ]


class Counter:
    """Counts the operations of the processes that run with `environment`, together, and kills at
    one of them.
    """

    def __init__(self, folder):
        library, path = folder / "kill_at.so", folder / "counter"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O2", "-o", library, HERE / "kill_at.c", "-ldl"],
            check=True,
        )
        path.write_bytes(bytes(ctypes.sizeof(State)))
        with open(path, "r+b") as file:
            self._state = State.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(State)))
        self.environment = {"LD_PRELOAD": str(library), "KILL_STATE": str(path)}

    def arm(self, at=0, number=0, torn=False, target=ITSELF):
        """Count from 0, and send the signal `number` at operation `at`; torn: after half of it, if
        it is a write.
        """
        ctypes.memset(ctypes.byref(self._state), 0, ctypes.sizeof(State))
        self._state.signal, self._state.torn, self._state.target = number, torn, target
        self._state.at = at

    @property
    def count(self):
        return self._state.count

    @property
    def struck(self):
        """Name of the operation at which the signal was sent; '' if it was not reached."""
        return self._state.what.decode()

    @property
    def struck_a_write(self):
        return bool(self._state.writes)


class Project:
    """commands: name -> target and settings.

    Of their undisturbed runs, which are made on first use: stages: folder of an artifact -> the
    words of the command that makes it; added: name of a command -> the folders that it was the
    first to make; tables: folder -> {file: sha256}.
    """

    def __init__(self, folder, commands):
        self.commands = commands
        self.folder, self._undisturbed = folder / "project", folder / "undisturbed"
        found = folder / "undisturbed.json"
        if not found.exists():
            _copy(self.folder)
            added = {name: self._made_by(name) for name in commands}
            stages = {
                made: words for commands in added.values() for made, words in commands.items()
            }
            for top in TOPS:
                shutil.copytree(self.folder / top, self._undisturbed / top)
            found.write_text(
                json.dumps(
                    [
                        stages,
                        {name: list(commands) for name, commands in added.items()},
                        {made: table(self.folder / made) for made in stages},
                    ]
                )
            )
        self.stages, self.added, self.tables = json.loads(found.read_text())

    def _made_by(self, name):
        """Run a command without kills; returns {folder: words} of the stages that it ran."""
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", *self.arguments(name), "--printshellcmds"],
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            sys.exit(f"the undisturbed run of {name} failed:\n{done.stdout}")
        commands = [
            shlex.split(line.partition(" || ")[0])[6:]
            for line in done.stdout.splitlines()
            if line.startswith("Shell command: trap : TERM; python3 workflow/scripts/")
            and " --job " in line
        ]
        return {words[words.index("--output") + 1]: words for words in commands}

    def arguments(self, name):
        """Snakemake's arguments of a command."""
        target, *settings = self.commands[name]
        return [target, "--config", *settings]

    def restore_scores(self):
        """Forget that test images were scored again, which pages count."""
        if (scores := self._undisturbed / SCORES).exists():
            shutil.copy(scores, self.folder / SCORES)

    def restore(self):
        """Begin again from the undisturbed results."""
        for top in TOPS:
            shutil.rmtree(self.folder / top)
            shutil.copytree(self._undisturbed / top, self.folder / top)

    def parents(self, made):
        """The folders of an artifact's parents."""
        words = self.stages[made]
        job = self.folder / words[words.index("--job") + 1]
        return list(json.loads(job.read_text())["inputs"].values())

    def finished(self, but=()):
        """Folder of each finished artifact -> what tells whether one of its files was written.

        Not its manifest, which is written again where Snakemake has removed it to run a stage that
        finds its work done.
        """
        return {
            made: sorted(
                (entry.name, entry.stat().st_ino, entry.stat().st_mtime_ns)
                for entry in os.scandir(self.folder / made)
                if entry.name not in FINISHED
            )
            for made in self.stages
            if made not in but and (self.folder / made / "manifest.json").exists()
        }

    def faults(self, exact=()):
        """What is wrong after a command that has succeeded; exact: folders of pages that must be
        the same too.
        """
        return [
            fault for made in self.stages for fault in self.artifact_faults(made, made in exact)
        ] + self._others()

    def artifact_faults(self, made, exact=False):
        """What is wrong with an artifact; exact: also if it is a page, which tells how long its
        parents took.
        """
        folder = self.folder / made
        if (manifest := manifest_of(folder)) is None:
            return [f"{made} is not made"]
        found, wanted = table(folder), self.tables[made]
        faults = [
            f"{made}/{name} is left"
            for name in sorted(set(os.listdir(folder)) - FINISHED - set(manifest["files"]))
        ]
        faults += [
            f"{made}/{name} is not what its manifest says"
            for name in found
            if sha256(folder / name) != found[name]
        ]
        if found.keys() != wanted.keys():
            faults.append(f"{made} holds {sorted(found)}, undisturbed {sorted(wanted)}")
        elif exact or pathlib.Path(made).parent.name not in PAGES:
            faults += [
                f"{made}/{name} is not that of the undisturbed run"
                for name in found
                if found[name] != wanted[name]
            ]
        return faults

    def _others(self):
        """Faults of files that are in no artifact: what is left, and copies in results/ of no
        artifact.
        """
        faults = []
        for path in (
            path for top in TOPS for path in (self.folder / top).rglob("*") if path.is_file()
        ):
            inside = path.relative_to(self.folder)
            a_log = (
                inside.parts[0] == "logs"
                and inside.suffix in (".log", ".json")
                and not inside.name.startswith(".")
            )
            if inside.name in COPIES and str(inside.parent) == "results":
                originals = path.parent.glob(f"{COPIES[inside.name]}/*/{path.name}")
                if notices.without(path.read_bytes()) not in map(copies.published, originals):
                    faults.append(f"{inside} is the copy of no artifact")
            of_runs = str(inside.parent) == "results/runs" and not inside.name.startswith(".")
            known = str(inside) in OF_NO_STAGE or str(inside.parent) in self.stages
            if not (inside.name in COPIES or a_log or of_runs or known):
                faults.append(f"{inside} is left")
        return faults


def _copy(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)


def manifest_of(folder):
    """The manifest of a finished artifact, None without one."""
    path = folder / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(folder):
    """File -> sha256, as the manifest of a finished artifact has it."""
    return {name: entry["sha256"] for name, entry in manifest_of(folder)["files"].items()}


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
