"""List the artifacts that nothing reaches any more, with sizes; with --confirm, remove them.

What is named in the keep file stays, and all that it was made from. What a running stage holds or may read stays too, and an
interrupted artifact, from which its stage could go on, until it is a day old. Ends with 0, or with 2 and one line where the
keep file cannot be read.
"""

import argparse
import json
import pathlib
import sys

from ladder.errors import UserError
from ladder.workflow import garbage


def main():
    arguments = parse()
    try:
        found = garbage.collect(arguments.results, read_keep(arguments.keep_file))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.confirm:
        print("\n".join(garbage.remove(found)))
    else:
        print("\n".join(garbage.listed(found)))
    return 0


def read_keep(path):
    """The versions in a JSON list of "stage/version"."""
    try:
        keep = json.loads(path.read_text())
        if not isinstance(keep, list) or not all(isinstance(one, str) and "/" in one for one in keep):
            raise ValueError('it must be a list of "stage/version"')
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return keep


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--keep-file", type=pathlib.Path, required=True, help='JSON list of "stage/version" that stay')
    parser.add_argument("--confirm", action="store_true", help="remove what is listed without it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
