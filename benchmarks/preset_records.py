"""Run a preset on its real data and keep what it reached: benchmarks/presets/PRESET.json.

    python benchmarks/preset_records.py cifar10_best [--only whole|seeds] [--config key=value ...]

Two commands, each of which goes on where it was interrupted, like every run: the preset as it is,
on all rows; and on the first 10,000 training rows with three seeds, for intervals. Both classify
all test images. --config is added to both; the record's commands keep it, but for addresses of data
sets (*_urls). The record has both summaries, and for every classifier the number of test images
that it alone named correctly, and that its control alone did.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "workflow/scripts"))

import numpy as np  # noqa: E402
import yaml  # noqa: E402

from ladder.classifiers import metrics  # noqa: E402
from ladder.machine import runtime  # noqa: E402
from record import Record, scrubbed  # noqa: E402

FOLDER = HERE / "presets"
PARTS = "whole", "seeds"
CONTROLS = ("random", "pixels")
MADE_FROM = ("Snakefile", "config.yaml", "presets", "workflow", "kernels")
MACHINE = ("system", "processor", "cores", "python")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "preset",
        choices=sorted(path.stem for path in (ROOT / "presets").glob("*.yaml")),
        metavar="PRESET",
    )
    parser.add_argument("--only", choices=PARTS, help="make one part again and keep the other")
    parser.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="key=value",
        help="settings added to both commands",
    )
    arguments = parser.parse_args()
    for part in [arguments.only] if arguments.only else PARTS:
        keep(arguments.preset, part, run(arguments.preset, part, arguments.config))
        print(
            f"wrote benchmarks/presets/{arguments.preset}.json: {part}; tables: python benchmarks/preset_table.py"
        )


def run(preset, part, config):
    """The part of the record that a command makes; ends the program with the command's status where
    it fails.
    """
    started = state()
    status = subprocess.run(
        [sys.executable, "-m", *command(preset, part, config)], cwd=ROOT, check=False
    ).returncode
    if status:
        sys.exit(status)
    summary = json.loads((ROOT / "results/summary.json").read_text("utf-8"))
    unchanged = [setting for setting in config if not setting.split("=")[0].endswith("_urls")]
    return {
        "command": command(preset, part, unchanged),
        "made": time.strftime("%Y-%m-%d", time.gmtime()),
        **started,
        "machine": {key: value for key, value in runtime.machine().items() if key in MACHINE},
        "paired": paired(summary, ROOT / "results"),
        "summary": summary,
    }


def command(preset, part, config):
    settings = [*(of_seeds(preset) if part == "seeds" else []), *config]
    return [
        "snakemake",
        "--cores",
        str(runtime.available_cores()),
        "report",
        "--configfile",
        f"presets/{preset}.yaml",
        *(["--config", *settings] if settings else []),
    ]


def of_seeds(preset):
    """The settings of the part with seeds: few rows, two more seeds beside the preset's runs."""
    listed = yaml.safe_load((ROOT / f"presets/{preset}.yaml").read_text("utf-8")).get("runs", [])
    return ["train_limit=10000", f"runs={json.dumps([*listed, {'seed': [2, 3]}])}"]


def keep(preset, part, content):
    """Put a part into the record of a preset; the other one stays."""
    path = FOLDER / f"{preset}.json"
    empty = {"kind": "preset", "preset": preset, **dict.fromkeys(PARTS)}
    saved = json.loads(path.read_text("utf-8")) if path.exists() else empty
    FOLDER.mkdir(exist_ok=True)
    Record(path, scrubbed({**saved, part: content})).save()


def paired(summary, results):
    """{classifier: {control: [images that only the run named correctly, that only the control
    did]}}, from kept predictions.
    """
    versions = summary["versions"]
    labels = np.load(results / "data" / versions["data"] / "test_labels.npy", allow_pickle=False)
    return {
        stage: {
            control: metrics.won_and_lost(
                labels,
                predictions(results, versions, stage, stage),
                predictions(results, versions, stage, f"{stage}_{control}"),
            )
            for control in CONTROLS
            if f"{stage}_{control}" in versions
        }
        for stage in summary["evaluations"]
        if stage in versions and not stage.endswith(CONTROLS)
    }


def predictions(results, versions, stage, role):
    return np.load(results / stage / versions[role] / "predictions.npy", allow_pickle=False)


def state():
    """{"commit": of the tree, "clean": whether what a run is made from had no changes}; None for
    both outside a repository.
    """
    commit, changes = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in (
            ["rev-parse", "--short=12", "HEAD"],
            ["status", "--porcelain", "--", *MADE_FROM],
        )
    )
    return {
        "commit": commit.stdout.strip() or None,
        "clean": not changes.stdout if commit.stdout else None,
    }


if __name__ == "__main__":
    main()
