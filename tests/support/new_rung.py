"""Start a rung of your own: a folder with a copy of a file of kernels, a module, and a row. `make
check RUNG=mine` judges it.

    make rung NAME=mine FROM=gpu_basic [KERNEL=gpu_basic/relu.cu]

FROM: the rung that it builds on; KERNEL: the file to copy, below kernels/, one that this rung runs,
by default that of its convolutions. All files are new: git shows them as untracked, and removing
kernels/mine and the module removes the rung.
"""

import argparse
import difflib
import keyword
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workflow/scripts"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "emulator/src"))

from ladder.errors import UserError, excerpt
from ladder.network import networks
from ladder.rungs import catalog
from ladder.sources import ROOT, SCRIPTS
from rung_checks import training_plan

KERNELS, MODULES = ROOT / "kernels", SCRIPTS / "ladder/rungs"
MODULE = """{quotes}{below} with {file} of its own: say here what it changes.

Kernels of kernels/{name} take the place of {below}'s where they have their names and arguments. For
another grid, block or number of launches, write a launch function as in {below}.py, and add it:
RUNG = ... .with_launches({{"relu_forward": relu_forward}})
{quotes}

from ladder.rungs import {below}

RUNG = {below}.RUNG.with_files({{"{kernel}": "{name}/{file}"}})
"""
ROW = """# The rung's row in the ladder; the name of this folder is its name.
technique = "say here what it adds"
below = "{below}"
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("below", metavar="from")
    parser.add_argument("kernel", nargs="?", default="")
    arguments = parser.parse_args()
    try:
        made = start(arguments.name, arguments.below, arguments.kernel)
    except UserError as error:
        sys.exit(str(error))
    print(
        "\n".join(
            [
                *(f"wrote {path.relative_to(ROOT)}" for path in made),
                f"judge it: make check RUNG={arguments.name}",
            ]
        )
    )


def start(name, below, kernel=""):
    """Write the files of rung `name`; returns their paths. Raises UserError, having written
    nothing.
    """
    check_name(name)
    if not catalog.uses_gpu(below):
        gpu = filter(catalog.uses_gpu, catalog.RUNGS)
        raise UserError(f"FROM={excerpt(below)} is no rung for a GPU{nearest(below, gpu)}")
    kernel = chosen(below, kernel)
    file = pathlib.Path(kernel).name
    contents = {
        **{
            KERNELS / name / path.name: path.read_text()
            for path in with_own_headers(KERNELS / kernel)
        },
        KERNELS / name / catalog.ROW: ROW.format(below=below),
        MODULES / f"{name}.py": MODULE.format(
            quotes='"' * 3,
            name=name,
            below=below,
            file=file,
            kernel=kernel,
        ),
    }
    write(name, contents)
    return list(contents)


def check_name(name):
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise UserError(
            f"NAME={excerpt(name)}: a name has lower-case letters, digits and _, such as mine"
        )
    if name in catalog.RUNGS or (KERNELS / name).exists() or (MODULES / f"{name}.py").exists():
        raise UserError(
            f"NAME={name}: there is a rung, a folder below kernels/ or a module of that name already"
        )


def chosen(below, kernel):
    """The file to copy: `kernel` if `below` runs it, or of all the one in which most arithmetic is
    done.
    """
    work = {}
    for step in training_plan(below, networks.build("autoencoder")).steps:
        for launch in step.launches:
            work[launch.source] = work.get(launch.source, 0) + step.flop
    wanted = kernel.removeprefix("kernels/")
    if wanted and wanted not in work:
        raise UserError(
            f"KERNEL={excerpt(kernel)}: {below} runs no such file{nearest(wanted, work)}"
        )
    return wanted or max(work, key=work.get)


def nearest(value, choices):
    found = (
        difflib.get_close_matches(value[:100], choices := list(choices), n=1, cutoff=0.3)
        or choices[:1]
    )
    return f"; the nearest is {found[0]}"


def with_own_headers(path):
    """A file of kernels and the headers beside it that it names without their folder."""
    names = re.findall(r'^#include "([^"/]+)"', path.read_text(), re.M)
    return [path, *(header for name in names for header in with_own_headers(path.parent / name))]


def write(name, contents):
    """All files or none: the folder and the module get their names when they are whole, the folder
    with the row last.
    """
    folder, (module,) = KERNELS / name, [path for path in contents if path.suffix == ".py"]
    with tempfile.TemporaryDirectory(dir=KERNELS, prefix=".new-") as made:
        for path, text in contents.items():
            pathlib.Path(made, path.name).write_text(text)
        pathlib.Path(made, module.name).replace(module)
        pathlib.Path(made, name).mkdir()
        for path in contents.keys() - {module}:
            pathlib.Path(made, path.name).replace(pathlib.Path(made, name, path.name))
        pathlib.Path(made, name).replace(folder)


if __name__ == "__main__":
    main()
