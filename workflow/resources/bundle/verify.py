"""Whether the files beside this one are those that were packed: python verify.py. Needs Python
alone.

The exit status is 0 if they are, or 1 with a line for each file that is not.
"""

import hashlib
import pathlib
import sys

SUMS = "SHA256SUMS"


def main():
    here = pathlib.Path(__file__).resolve().parent
    sums = dict(
        reversed(line.split("  ", 1)) for line in (here / SUMS).read_text("utf-8").splitlines()
    )
    there = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()} - {
        SUMS
    }
    faults = [f"{name}: missing" for name in sorted(sums.keys() - there)]
    faults += [f"{name}: not of this archive" for name in sorted(there - sums.keys())]
    faults += [
        f"{name}: changed"
        for name in sorted(sums.keys() & there)
        if digest(here / name) != sums[name]
    ]
    print(*faults or [f"{len(sums)} files, all as they were packed"], sep="\n")
    return 1 if faults else 0


def digest(path):
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            sha256.update(piece)
    return sha256.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
