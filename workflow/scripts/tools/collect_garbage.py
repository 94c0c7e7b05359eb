"""List the artifacts that are no longer reachable, with sizes; with --confirm, remove them.

Artifacts named in the file --reached and those that a KEEP matches stay, with all their ancestors.
So do artifacts that a running stage writes or may read, and interrupted artifacts, which their
stage could resume, until they are a day old. Exit status: 0, or 2 with one line if the file cannot
be read or a KEEP matches nothing.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.errors import UserError
from ladder.stage import command
from ladder.workflow import garbage


def main():
    arguments = parse()
    keep = garbage.named(arguments.results, arguments.keep)
    for pattern, names in keep.items():
        print(f"keep {pattern}: {garbage.some(names)}")
    unreached = garbage.collect(
        arguments.results, [*read_reached(arguments.reached), *sum(keep.values(), [])]
    )
    print("\n".join(garbage.remove(unreached) if arguments.confirm else garbage.listed(unreached)))


def read_reached(path):
    """The versions in a JSON list of "stage/version"."""
    try:
        reached = json.loads(path.read_text("utf-8"))
        if not isinstance(reached, list) or not all(
            isinstance(name, str) and "/" in name for name in reached
        ):
            raise ValueError('it must be a list of "stage/version"')
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return reached


def parse():
    parser = command.parser(__doc__)
    parser.add_argument(
        "keep",
        nargs="*",
        metavar="KEEP",
        help="a version to keep, as t0123456789a or train/t0123456789a; "
        "* stands for any characters",
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument(
        "--reached",
        type=pathlib.Path,
        required=True,
        help='JSON list of other "stage/version" to keep',
    )
    parser.add_argument(
        "--confirm", action="store_true", help="remove the artifacts that are listed without it"
    )
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
