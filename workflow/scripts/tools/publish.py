"""Copy files of an artifact to their fixed names in results/, with the links of pages led from
there.

The exit status is 0, or 2 with a one-line message if a file cannot be written; the former one then
stays.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.errors import UserError
from ladder.stage import command
from ladder.workflow import copies


def main():
    parser = command.parser(__doc__)
    parser.add_argument("folder", help="of the artifact")
    parser.add_argument(
        "copies", nargs="+", help="in results/; each has the name of a file of the artifact"
    )
    arguments = parser.parse_args()
    for copy in arguments.copies:
        try:
            copies.publish(arguments.folder, copy)
        except OSError as error:
            raise UserError(
                f"cannot write {copy}: {error.strerror}; its artifact is whole, and the same command copies it"
            ) from error


if __name__ == "__main__":
    command.run(main)
