"""Write a page that lists all reports below a results folder, newest first. Nothing is run for it.

The exit status is 0, also if there are no reports yet, or 2 with a one-line message if the page cannot be written.
"""

import argparse
import pathlib
import sys

from ladder import files
from ladder.errors import UserError
from ladder.pages import history, output
from ladder.sources import ROOT
from ladder.workflow import config, search


def main():
    arguments = parse()
    rows = history.rows(arguments.results)
    try:
        output.write(arguments.output, history.page(rows, arguments.results, arguments.output, defaults()))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{files.shown(arguments.output)}: {len(rows)} report{'s' if len(rows) != 1 else ''}")
    return 0


def defaults():
    """The settings of a run in config.yaml, as they are committed or edited."""
    loaded = config.load(config.read_file(ROOT / "config.yaml"))
    return {key: value for key, value in loaded.items() if key not in search.NOT_OF_A_RUN and not key.startswith("cifar10_")}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("results/history.html"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
