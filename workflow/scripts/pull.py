"""Take the finished artifacts of another results folder, of this machine or by ssh; by the rule
`pull`.

    pull.py --from FOLDER, or --from HOST:FOLDER

Exit status: 0, or 2 with one line if nothing can be read there, or the connection ended early.
"""

import argparse
import functools
import pathlib

from ladder import command
from ladder.errors import UserError
from ladder.store import pull
from ladder.workflow.stages import STAGES

# artifacts that are named with the reason for which they were left, and as many files that were
# refused
SHOWN = 10


def main():
    arguments = parse()
    if not arguments.source:
        raise UserError(
            "from is empty; name a results folder, or HOST:FOLDER: snakemake pull --config from=FOLDER"
        )
    pulled = pull.pull(
        arguments.source, arguments.results, STAGES, functools.partial(print, flush=True)
    )
    print(
        f"{len(pulled.taken)} artifact{'s' if len(pulled.taken) != 1 else ''} taken from {arguments.source}, "
        f"{len(pulled.here)} were here, {len(pulled.left)} left there"
    )
    for word, reasons in (("left", pulled.left), ("refused", pulled.refused)):
        for name, reason in list(reasons.items())[:SHOWN]:
            print(f"{word}: {name}: {reason}")
        if len(reasons) > SHOWN:
            print(f"{word}: and {len(reasons) - SHOWN} more")
    if pulled.fault:
        raise UserError(f"{pulled.fault}; the same command takes the rest")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="FOLDER",
        help="a results folder, or HOST:FOLDER",
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
