"""Mutation testing of the library: changes modules in small ways, one at a time, and counts the
mutants that tests kill.

Usage: python tests/support/mutate_python.py [FILE ...] [--sample COUNT] [--seed SEED] [--short]

FILE: below workflow/scripts/ladder; default: all modules of PACKAGES. --sample draws COUNT of the
mutants, the same ones for a seed. --short: the tests of `make test` judge first, and only what
survives them is judged by the others.

Each mutant changes one operator, comparison, constant or condition within a function, in a copy of
the project. A test run that fails or hangs kills it. The module's own tests judge first, then those
that import it or a stage that does, then those of its package. Prints each mutant with its fate,
and how many had which.
"""

import argparse
import ast
import collections
import concurrent.futures
import functools
import io
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tokenize

import mutations

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = pathlib.Path("workflow/scripts")
LIBRARY = SCRIPTS / "ladder"
PACKAGES = ("executors", "training", "classifiers", "features", "workflow", "store")
ALSO = {"executors": ("operations",)}  # package: other folders of its tests
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv*", ".snakemake", "results", "logs", "__pycache__", ".*_cache"
)
SECONDS = 1800  # for a run of the tests
CANNOT_RUN = 4  # how pytest ends where its arguments are wrong
PASSED = 0, 5  # 5: none of the tests was chosen
# pattern -> replacements
MUTATIONS = [
    (r" \+ ", [" - "]),
    (r" - ", [" + "]),
    (r" \* ", [" + "]),
    (r" / ", [" * "]),
    (r" // ", [" * "]),
    (r" % ", [" // "]),
    (r" \+= ", [" -= "]),
    (r" < ", [" <= "]),
    (r" <= ", [" < "]),
    (r" > ", [" >= "]),
    (r" >= ", [" > "]),
    (r" == ", [" != "]),
    (r" != ", [" == "]),
    (r" and ", [" or "]),
    (r" or ", [" and "]),
    (r"\bnot (?!in\b)", [""]),
    (r" is not ", [" is "]),
    (r" not in ", [" in "]),
    (r"\bmax\(", ["min("]),
    (r"\bmin\(", ["max("]),
    (r"\bTrue\b", ["False"]),
    (r"\bFalse\b", ["True"]),
    (r"(?<![\w.])0(?![\w.])", ["1"]),
    (r"(?<![\w.])1(?![\w.])", ["2"]),
    (r"(?<![\w.])2(?![\w.])", ["3"]),
]


def mutants(root, file):
    """Every mutation of the code within functions; texts, comments, signatures and decorators
    stay.
    """
    text, at = (root / file).read_text("utf-8"), 0
    for number, (line, code) in enumerate(
        zip(text.splitlines(keepends=True), _code(text), strict=True), 1
    ):
        if line.startswith(" ") and not re.match(r"\s*(def |class |@|async def )", code):
            yield from mutations.of_line(file, number, line, at, code, 0, MUTATIONS)
        at += len(line)


def _code(text):
    """The lines of a program with spaces in the place of texts and comments."""
    lines = [list(line) for line in text.splitlines(keepends=True)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            (first, left), (last, right) = token.start, token.end
            for row in range(first, last + 1):
                for column in range(
                    left if row == first else 0, right if row == last else len(lines[row - 1]) - 1
                ):
                    lines[row - 1][column] = " "
    return ["".join(line) for line in lines]


def judges(root, file):
    """Lists of paths of tests, which run one after the other until one kills: see the description
    above.
    """
    module, tests = pathlib.Path(file).relative_to(LIBRARY), root / "tests"
    own, package = tests / module.with_name(f"test_{module.name}"), tests / module.parts[0]
    name = ".".join(pathlib.Path(file).relative_to(SCRIPTS).with_suffix("").parts)
    importers = sorted(
        path for path in tests.rglob("test_*.py") if name in _imported_with_stages(root, path)
    )
    lists = [[own], importers, [package, *(tests / name for name in ALSO.get(package.name, ()))]]
    return [
        found
        for paths in lists
        if (found := [path.relative_to(root).as_posix() for path in paths if path.exists()])
    ]


def _imported_with_stages(root, path):
    """Of a file and of the stages' scripts among what it imports."""
    scripts = [root / SCRIPTS / f"{name}.py" for name in _imported(path)]
    return _imported(path).union(*(_imported(script) for script in scripts if script.exists()))


@functools.cache
def _imported(path):
    """The names of the modules that a file imports, and of what it takes from them:
    {"ladder.store", "ladder.store.cache"}.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def fate(copy, mutant, short):
    """ "killed", "killed by all" (of those of --short, none did) or "SURVIVED"."""
    path, lists = copy / mutant.file, judges(copy, mutant.file)
    text, times = path.read_text("utf-8"), path.stat()
    path.write_text(mutant.mutated(text), "utf-8")
    _forget_compiled(copy, mutant.file)
    try:
        for options, what in (
            ((["--short"], "killed"), ([], "killed by all")) if short else (([], "killed"),)
        ):
            if any(fails(copy, [*options, *paths]) for paths in lists):
                return what
        return "SURVIVED"
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        _forget_compiled(copy, mutant.file)


def _forget_compiled(copy, file):
    """Numba sees a change of a function, but not of one that it calls in another module."""
    name = ".".join(pathlib.Path(file).relative_to(SCRIPTS).with_suffix("").parts)
    for path in (copy / SCRIPTS).rglob("*.py"):
        if {"numba", name} <= _imported(path):
            for index in (path.parent / "__pycache__").glob(f"{path.stem}.*.nbi"):
                index.unlink()


def fails(copy, arguments):
    """Whether these tests fail, or take too long; exits if pytest cannot run them at all."""
    # Python takes a mutant's compiled file for that of the next one if both have the same size and
    # second.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=copy,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    if process.returncode == CANNOT_RUN:
        raise RuntimeError(said)
    return process.returncode not in PASSED


def main(arguments, root=ROOT):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args(arguments)
    files = [(LIBRARY / file).as_posix() for file in asked.files] or sorted(
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / LIBRARY / package).rglob("*.py")
    )
    work = mutations.sample(
        [mutant for file in files for mutant in mutants(root, file)], asked.sample, asked.seed
    )
    fates, at_once = collections.Counter(), os.cpu_count()
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(at_once) as pool,
    ):
        copies = queue.SimpleQueue()
        for number in range(at_once):
            copies.put(_copy(root, pathlib.Path(folder, str(number))))

        def judged(judge, what):
            copy = copies.get()
            try:
                return what, judge(copy)
            finally:
                copies.put(copy)

        short = ["--short"] if asked.short else []
        packages = {folder for mutant in work for folder in judges(root, mutant.file)[-1]}
        for package, failed in pool.map(
            lambda name: judged(lambda copy: fails(copy, [*short, name]), name), sorted(packages)
        ):
            if failed:
                sys.exit(f"{package}: tests fail without a mutation")
        for mutant, end in pool.map(
            lambda one: judged(lambda copy: fate(copy, one, asked.short), one), work
        ):
            fates[end] += 1
            print(f"{end}: {mutant.place()}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in sorted(fates.items())))


def _copy(root, target):
    shutil.copytree(root, target, ignore=NOT_COPIED, symlinks=True)
    os.symlink(ROOT / ".venv", target / ".venv")
    return target


if __name__ == "__main__":
    main(sys.argv[1:])
