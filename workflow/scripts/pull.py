"""Take the finished artifacts of another results folder, of this machine or by ssh; by the rule `pull`.

    pull.py --from FOLDER, or --from HOST:FOLDER

Exit status: 0, or 2 with one line if nothing can be read there.
"""

import argparse
import pathlib
import sys

from ladder.errors import UserError
from ladder.store import pull
from ladder.workflow import stages

SHOWN = 10   # artifacts that are named with the reason for which they were left


def main():
    arguments = parse()
    try:
        if not arguments.source:
            raise UserError("from is empty; name a results folder, or HOST:FOLDER: snakemake pull --config from=FOLDER")
        found = pull.pull(arguments.source, arguments.results, stages.RULES)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(found.taken)} artifact{'s' if len(found.taken) != 1 else ''} taken from {arguments.source}, {len(found.here)} "
          f"were here, {len(found.left)} left there")
    for name, reason in list(found.left.items())[:SHOWN]:
        print(f"left: {name}: {reason}")
    if len(found.left) > SHOWN:
        print(f"and {len(found.left) - SHOWN} more")
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", required=True, metavar="FOLDER", help="a results folder, or HOST:FOLDER")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
