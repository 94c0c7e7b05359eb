"""Write a page that lists all reports below a results folder, newest first. Nothing is run for it.

The exit status is 0, also if there are no reports yet.
"""

import argparse
import pathlib
import sys

from ladder.pages import history
from ladder.store import disk


def main():
    arguments = parse()
    rows = history.rows(arguments.results)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    page = history.page(rows, arguments.results, arguments.output)
    disk.write_atomically(arguments.output, page.encode())
    print(f"{arguments.output}: {len(rows)} report{'s' if len(rows) != 1 else ''}")
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("results/history.html"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
