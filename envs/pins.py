"""Write requirements with versions and hashes from the direct dependencies, and the conda
environment of the workflow's rules.

Usage: .venv-pins/bin/python envs/pins.py NAME...   with envs/NAME.in for each

It takes the newest releases for every Python from 3.11 on and every machine, and installs nothing.
"""

import pathlib
import subprocess
import sys

ENVS = pathlib.Path(__file__).parent
UV = pathlib.Path(sys.executable).parent / "uv"
CONDA = "cpu"  # the set in which `snakemake --sdm conda` runs all rules
OPTIONS = [
    "--universal",
    "--fork-strategy",
    "fewest",
    "--python-version",
    "3.11",
    "--upgrade",
    "--generate-hashes",
    "--no-annotate",
    "--no-header",
    "--quiet",
]


def main(names):
    for name in names:
        pins = subprocess.run(
            [UV, "pip", "compile", *OPTIONS, f"{name}.in"],
            cwd=ENVS,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout
        head = f"# Made by `make pins` from envs/{name}.in.\n"
        (ENVS / f"{name}.txt").write_text(head + pins, "utf-8")
        if name == CONDA:
            (ENVS / f"{name}.yaml").write_text(head + environment(pins), "utf-8")


def environment(pins):
    """The text of a conda environment with these versions, without hashes: Snakemake keeps it with
    each file that it makes.
    """
    lines = [line.removesuffix(" \\") for line in pins.splitlines() if not line.startswith(" ")]
    items = [f"      - {line}" for line in lines]
    return "\n".join(
        [
            "channels: [conda-forge]",
            "dependencies:",
            "  - python=3.11",
            "  - pip",
            "  - pip:",
            *items,
            "",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
