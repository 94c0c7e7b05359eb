"""Say where the report is, and how to run the real CIFAR-10: the end of `make report`.

The minutes are those of a recorded run (benchmarks/cifar10.json, the summary.json of presets/cifar10_autoencoder.yaml), scaled
by how fast this machine has just trained beside the one that made the record.
"""

import json
import pathlib

from ladder.sources import ROOT

DOWNLOAD = "170 MB"
RECORD = ROOT / "benchmarks/cifar10.json"


def main():
    report = ROOT / "results/report.html"
    print(f"\nThe report: {report.as_uri()}\n")
    print(f"The real CIFAR-10 ({DOWNLOAD} to download{minutes()}):")
    print("  .venv/bin/snakemake report --configfile presets/cifar10_autoencoder.yaml")


def minutes():
    """Text saying how long the real CIFAR-10 takes here; nothing where there is no record to scale."""
    if not RECORD.exists():
        return ""
    recorded = json.loads(RECORD.read_text())
    here = json.loads(pathlib.Path(ROOT / "results/summary.json").read_text())
    seconds = sum(recorded["seconds"].values()) * recorded["images_per_second"] / here["images_per_second"]
    return f", about {max(1, round(seconds / 60))} minutes on this machine"


if __name__ == "__main__":
    main()
