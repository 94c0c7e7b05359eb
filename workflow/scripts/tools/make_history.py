"""Write a page that lists all reports below a results folder, newest first. Nothing is run for it.

The exit status is 0, also if there are no reports yet, or 2 with a one-line message if the page
cannot be written.
"""

import argparse
import functools
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder import files
from ladder.pages import history, output
from ladder.stage import command
from ladder.workflow import config, lists, recipe, search
from ladder.workflow.settings import Settings


def main():
    arguments = parse()
    rows = history.rows(arguments.results)
    output.write(
        arguments.output, history.page(rows, arguments.results, arguments.output, defaults(), entry)
    )
    print(f"{files.shown(arguments.output)}: {len(rows)} report{'s' if len(rows) != 1 else ''}")


def defaults():
    """The settings of a run in config.yaml, as they are committed or edited, and in place of `auto`
    what that is for a data set that comes with the program.
    """
    auto = {key: value for key, value in recipe.PLAIN.items() if configured()[key] == "auto"}
    return {
        key: value
        for key, value in (configured() | auto).items()
        if key not in search.NOT_OF_A_RUN and not key.startswith("cifar10_")
    }


@functools.cache
def configured():
    """Key -> value of config.yaml, and the defaults of what it leaves out."""
    return config.load(config.base()).by_key()


def entry(written):
    """The overrides by which an entry of the list `compare` in config.yaml is the run with these
    settings.

    A setting that is not among them has the program's default, which config.yaml, or the list, may
    have changed.
    """
    base, usual = {**configured(), **lists.ALONE}, Settings().by_key()
    wanted = {key: usual[key] for key in (*defaults(), "name", "tags")} | written
    return {key: value for key, value in wanted.items() if value != base[key]}


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("results/history.html"))
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
