"""Start a rung of your own: a folder with a copy of a file of kernels, a module, and a row. `make
check RUNG=mine` judges it.

    make rung NAME=mine FROM=gpu_basic [KERNEL=gpu_basic/relu.cu]

FROM: the rung that it builds on; KERNEL: the file to copy, below kernels/, one that this rung runs,
by default that of its convolutions. Of a header, such as common/gemm_loop.cuh, the file that
includes it and does most of the arithmetic is copied too, and what is between them. All files are
new: git shows them as untracked, and removing kernels/mine and the module removes the rung.
"""

import argparse
import difflib
import functools
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
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
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
    kernel, header = chosen(below, kernel)
    contents = {
        **{
            KERNELS / name / path.name: text
            for path, text in copies(KERNELS / kernel, header, name).items()
        },
        KERNELS / name / catalog.ROW: ROW.format(below=below),
        MODULES / f"{name}.py": module(name, below, kernel),
    }
    write(name, contents)
    return list(contents)


def module(name, below, kernel):
    """The text of the module of rung `name` with a copy of a kernel's file."""
    file = pathlib.Path(kernel).name
    return MODULE.format(quotes='"' * 3, name=name, below=below, file=file, kernel=kernel)


def check_name(name):
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise UserError(
            f"NAME={excerpt(name)}: a name has lower-case letters, digits and _, such as mine"
        )
    if name in catalog.RUNGS or (KERNELS / name).exists() or (MODULES / f"{name}.py").exists():
        raise UserError(
            f"NAME={name}: there is a rung, a folder below kernels/ or a module of that name already"
        )


def chosen(below, wanted):
    """(the file to copy, the header that it was chosen for or None): `wanted` if `below` runs it,
    or of all, or of those that include the header `wanted`, the one in which most arithmetic is
    done.
    """
    work = {}
    for step in training_plan(below, networks.build("autoencoder")).steps:
        for launch in step.launches:
            work[launch.source] = work.get(launch.source, 0) + step.flop
    wanted = wanted.removeprefix("kernels/")
    header = KERNELS / wanted if wanted.endswith(".cuh") else None
    known = {file: flop for file, flop in work.items() if header in reached(KERNELS / file, header)}
    if (header and not known) or (wanted and not header and wanted not in work):
        raise UserError(
            f"KERNEL={excerpt(wanted)}: {below} runs no such file{nearest(wanted, work)}"
        )
    return (wanted, None) if wanted in work else (max(known or work, key=work.get), header)


def nearest(value, choices):
    found = (
        difflib.get_close_matches(value[:100], choices := list(choices), n=1, cutoff=0.3)
        or choices[:1]
    )
    return f"; the nearest is {found[0]}"


def copies(path, header, name):
    """{file: its text in the folder of rung `name`}; raises UserError where two have one name."""
    files = reached(path, header)
    if len({file.name for file in files}) < len(files):
        raise UserError(f"KERNEL={header.name}: two of the files to copy have the same name")
    return {
        file: re.sub(
            INCLUDE,
            lambda found, file=file: (
                f'#include "{name}/{pathlib.Path(found[1]).name}"'
                if "/" in found[1] and KERNELS / found[1] in files
                else found[0]
            ),
            file.read_text(),
        )
        for file in sorted(files)
    }


@functools.cache
def reached(path, header):
    """`path`, the headers beside it that it names without their folder, and all files through which
    it includes `header`.
    """
    files = {path}
    for name in re.findall(INCLUDE, path.read_text()):
        below = reached((KERNELS if "/" in name else path.parent) / name, header)
        if "/" not in name or header in below:
            files |= below
    return files


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
