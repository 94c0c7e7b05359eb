"""Bring the packages of this Python's environment to the versions that envs/NAME.txt pins, for each
NAME given.

Usage: .venv/bin/python envs/bring.py NAME...

pip refuses a file that has none of the pinned hashes. The exit status is 1 if a set cannot be
installed. It needs pip alone, as nothing else is there at first.
"""

import os
import pathlib
import re
import runpy
import subprocess
import sys
import sysconfig

from pip._vendor.packaging.requirements import Requirement

ENVS = pathlib.Path(__file__).parent
REMOVED = ENVS.parent / "workflow/scripts/ladder/workflow/removed.py"
LARGE = {
    "gpu": " (several GB; make report DEVICE=cpu leaves them out)",
    "benchmark": " (several GB on Linux)",
}
NAMED = 3  # packages in a message
SHARE = 20  # packages from which on a second pip installs some of them meanwhile
PIP = (sys.executable, *"-m pip install --quiet --disable-pip-version-check".split())


def main(names):
    known = sorted(path.stem for path in ENVS.glob("*.txt"))
    for name in names:
        if name not in known:
            instead = runpy.run_path(str(REMOVED))["instead"](name)
            return instead or f"envs has no set of packages {name}; it has {', '.join(known)}"
        if changes := differences(pins(name), installed()):
            what = ", ".join(changes) if len(changes) <= NAMED else f"{len(changes)} packages"
            print(f"installing envs/{name}.txt: {what}{LARGE.get(name, '')}", flush=True)
            # A pip that removes a version moves folders that packages of another pip may share.
            alone = any(" in place of " in change for change in changes)
            shares = 1 if alone else min(os.cpu_count() or 1, -(-len(changes) // SHARE))
            if not install(name, shares):
                return f"installing envs/{name}.txt failed; pip's messages above give the reason"
    return 0


def install(name, shares):
    """Whether pip has installed envs/NAME.txt, in so many shares at a time. They are complete: no
    package needs one that is not pinned.
    """
    pinned = re.split(r"(?m)^(?=\w)", (ENVS / f"{name}.txt").read_text("utf-8"))[1:]
    command = [*PIP, "--no-deps", "--require-hashes", "-r", "/dev/stdin"]
    pips = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(shares)]
    for start, pip in enumerate(pips):
        pip.stdin.write("".join(pinned[start::shares]))
        pip.stdin.close()
    return not any([pip.wait() for pip in pips])


def pins(name):
    """The requirements of envs/NAME.txt that hold for this Python and machine, without their
    hashes.
    """
    lines = (ENVS / f"{name}.txt").read_text("utf-8").splitlines()
    requirements = [Requirement(line.removesuffix("\\")) for line in lines if re.match(r"\w", line)]
    return [pin for pin in requirements if pin.marker is None or pin.marker.evaluate()]


def installed():
    """Name -> version of the packages that are there, by the names of their folders, which takes a
    millisecond.
    """
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    entries = [
        entry.removesuffix(".dist-info")
        for folder in folders
        for entry in os.listdir(folder)
        if entry.endswith(".dist-info")
    ]
    return {
        plain(name): version for name, _, version in (entry.rpartition("-") for entry in entries)
    }


def differences(requirements, there):
    """A text for each requirement that is missing or there with another version; there: as
    `installed`.
    """
    changes = []
    for pin in requirements:
        version, wanted = there.get(plain(pin.name)), str(pin.specifier)[2:]
        if version is None:
            changes.append(f"{pin.name} {wanted}")
        elif not pin.specifier.contains(version):
            changes.append(f"{pin.name} {wanted} in place of {version}")
    return changes


def plain(name):
    """A package's name in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
