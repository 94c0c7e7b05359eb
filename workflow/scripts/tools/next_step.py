"""Print the command for the real CIFAR-10, at the end of `make report`.

The minutes are those of the preset's record, its controls included.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.sources import ROOT

DOWNLOAD = "170 MB"
PRESET = "cifar10_normalised_encoder"  # the quickest of those that are above their control
RECORD = ROOT / f"benchmarks/presets/{PRESET}.json"


def main():
    print(
        f"\nThe real CIFAR-10 ({DOWNLOAD} to download, {minutes()} minutes on two cores of a server):"
    )
    print(f"  .venv/bin/snakemake report --configfile presets/{PRESET}.yaml")


def minutes():
    """How long the preset took with its controls, in whole minutes."""
    recorded = json.loads(RECORD.read_text("utf-8"))["whole"]["summary"]
    return round(sum(recorded["seconds"].values()) / 60)


if __name__ == "__main__":
    main()
