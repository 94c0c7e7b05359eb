"""Copy files of an artifact to their fixed names in results/, with the links of pages led from there.

The exit status is 0, or 1 with a one-line message if a file cannot be written; the former one then stays.
"""

import argparse
import sys

from ladder.workflow import copies


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="of the artifact")
    parser.add_argument("copies", nargs="+", help="in results/; each has the name of a file of the artifact")
    arguments = parser.parse_args()
    for copy in arguments.copies:
        try:
            copies.publish(arguments.folder, copy)
        except OSError as error:
            print(f"cannot write {copy}: {error.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
