"""Write results/index.html: the best runs, the newest ones, and every page. Nothing is run for it.

The exit status is 0, or 2 with a one-line message if the page cannot be written.
"""

import argparse
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.pages import index, output
from ladder.stage import command


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    arguments = parser.parse_args()
    output.write(arguments.results / index.NAME, index.page(arguments.results))


if __name__ == "__main__":
    command.run(main)
