"""Write a page that compares two versions of one stage, for example two reports or two trainings.

It lists the differences in settings, sources, inputs, metrics, times, machines, and weights.
Nothing is run for it. The exit status is 0, or 2 with a one-line message if a version does not
exist, the two belong to different stages, or the page cannot be written.
"""

import argparse
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder import files
from ladder.errors import UserError
from ladder.pages import diff, output, templates
from ladder.stage import command
from ladder.store import lineage


def main():
    arguments = parse()
    if len(arguments.versions) != 2:
        raise UserError(
            "name the two versions to compare: snakemake results/diff.html --config 'diff=[A,B]'; "
            "`snakemake results/history.html` lists those of all reports"
        )
    store = lineage.Store(arguments.results)
    a, b = (diff.resolve(store, name) for name in arguments.versions)
    difference = diff.Difference(store, a, b)
    output.write(
        arguments.output,
        diff.page(difference, templates.way_up(arguments.results, arguments.output)),
    )
    print(f"{files.shown(arguments.output)}: {a} and {b}: {difference.sentence()}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "versions",
        nargs="*",
        metavar="VERSION",
        help="two of the same stage, such as r35523d95825, or their first characters",
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("results/diff.html"))
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
