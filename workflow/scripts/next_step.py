"""Print the address of the report and the command for the real CIFAR-10, at the end of `make report`.

The minutes are those of the preset's record and its controls, scaled by the training speed of this machine relative to the
one of the record. A run of other images or of another network, which an edited config.yaml asks for, has no speed to compare.
"""

import json

from ladder.sources import ROOT

DOWNLOAD = "170 MB"
PRESET = "cifar10_wta"
RECORD = ROOT / f"benchmarks/presets/{PRESET}.json"
SPEED_OF = {"dataset": "digits", "network": "autoencoder"}
SPEED = 351   # images/s of the training of `make report` on the machine of the record, when it had no other work


def main():
    report = ROOT / "results/report.html"
    print(f"\nThe report: {report.as_uri()}\n")
    print(f"The real CIFAR-10 ({DOWNLOAD} to download{minutes()}):")
    print(f"  .venv/bin/snakemake report --configfile presets/{PRESET}.yaml")


def minutes(results=ROOT / "results"):
    """The estimated time for the real CIFAR-10 in words; '' if there is no record or no speed to scale it by."""
    here = json.loads((results / "summary.json").read_text("utf-8"))
    if not RECORD.exists() or not here["images_per_second"] or any(here[key] != value for key, value in SPEED_OF.items()):
        return ""
    recorded = json.loads(RECORD.read_text("utf-8"))["whole"]["summary"]
    seconds = sum(recorded["seconds"].values()) * SPEED / here["images_per_second"]
    return f", about {max(1, round(seconds / 60))} minutes on this machine"


if __name__ == "__main__":
    main()
