"""Write the pinned requirements, and the conda environments with the same packages, from the direct dependencies.

Usage: python envs/pins.py NAME...   with envs/NAME.in for each; resolves for this Python, and installs nothing.
"""

import json
import pathlib
import subprocess
import sys

ENVS = pathlib.Path(__file__).parent
# scikit-learn-intelex and its dependencies, which have no other builds.
LINUX_X86 = {"scikit-learn-intelex", "daal", "tbb", "tcmlib"}
MARKER = '; sys_platform == "linux" and platform_machine == "x86_64"'


def main(names):
    for name in names:
        lines = [f"{package}=={version}{MARKER if package.lower() in LINUX_X86 else ''}" for package, version in resolve(name)]
        head = f"# Made by envs/pins.py from envs/{name}.in."
        (ENVS / f"{name}.txt").write_text("\n".join([head, *lines, ""]))
        (ENVS / f"{name}.yaml").write_text("\n".join([
            head, "channels: [conda-forge]", "dependencies:", "  - python=3.11", "  - pip", "  - pip:",
            *(f"      - {json.dumps(line)}" for line in lines), ""]))


def resolve(name):
    """(package, version) pairs that pip would install for envs/NAME.in, sorted."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = subprocess.run([*command, "-r", ENVS / f"{name}.in"], check=True, stdout=subprocess.PIPE).stdout
    found = [(item["metadata"]["name"], item["metadata"]["version"]) for item in json.loads(report)["install"]]
    return sorted(found, key=lambda pair: pair[0].lower())


if __name__ == "__main__":
    main(sys.argv[1:])
