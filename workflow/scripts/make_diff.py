"""Write a page that holds two versions of one stage against each other, two reports or two trainings, say.

What differs in settings, sources, what they were made from, metrics, times, machines, and weights. Nothing is run for it.
Ends with 0, or with 2 and one line where a version is not there or the two are not alike.
"""

import argparse
import pathlib
import sys

from ladder.errors import UserError
from ladder.pages import diff
from ladder.store import artifacts, lineage


def main():
    arguments = parse()
    try:
        if len(arguments.versions) != 2:
            raise UserError("name the two versions to compare: snakemake results/diff.html --config 'diff=[A,B]'; "
                            "`snakemake results/history.html` lists those of all reports")
        store = lineage.Store(arguments.results)
        a, b = (diff.resolve(store, name) for name in arguments.versions)
        found = diff.Difference(store, a, b)
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        artifacts.write_atomically(arguments.output, diff.page(found).encode())
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{arguments.output}: {a} against {b}: {found.sentence()}")
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION",
                        help="two of the same stage, such as r35523d95825; the first characters will do")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("results/diff.html"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
