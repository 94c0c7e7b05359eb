"""Mutation testing of the library: changes modules in small ways, one at a time, and counts the mutants that tests kill.

Usage: python tests/support/mutate_python.py [FILE ...] [--sample COUNT] [--seed SEED] [--short] [--all]

FILE: below workflow/scripts/ladder; default: all modules of PACKAGES. --sample draws COUNT of the mutants, the same ones for a
seed. --short: the tests of `make test` judge first, and only what survives them is judged by the others. --all: the tests of
other packages judge too, which takes half an hour for a mutant that survives; otherwise those of the module and its package do.

Each mutant changes one operator, comparison, constant or condition within a function, in a copy of the project. A test run that
fails or hangs kills it. Prints each mutant with its fate, and how many had which.
"""

import argparse
import collections
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tokenize

import mutations

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path("workflow/scripts/ladder")
PACKAGES = ("executors", "training", "classifiers", "features", "workflow", "store")
ALSO = {"executors": "operations"}   # package: another folder of its tests
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", ".snakemake", "results", "logs", "__pycache__", ".*_cache")
SECONDS = 1800   # for a run of the tests
CANNOT_RUN = 4   # how pytest ends where its arguments are wrong
PASSED = 0, 5    # 5: none of the tests was chosen
# pattern -> replacements
MUTATIONS = [
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* ", [" + "]), (r" / ", [" * "]), (r" // ", [" * "]), (r" % ", [" // "]),
    (r" \+= ", [" -= "]),
    (r" < ", [" <= "]), (r" <= ", [" < "]), (r" > ", [" >= "]), (r" >= ", [" > "]), (r" == ", [" != "]), (r" != ", [" == "]),
    (r" and ", [" or "]), (r" or ", [" and "]), (r"\bnot (?!in\b)", [""]), (r" is not ", [" is "]), (r" not in ", [" in "]),
    (r"\bmax\(", ["min("]), (r"\bmin\(", ["max("]), (r"\bTrue\b", ["False"]), (r"\bFalse\b", ["True"]),
    (r"(?<![\w.])0(?![\w.])", ["1"]), (r"(?<![\w.])1(?![\w.])", ["2"]), (r"(?<![\w.])2(?![\w.])", ["3"]),
]


def mutants(root, file):
    """Every mutation of the code within functions; texts, comments, signatures and decorators stay."""
    text, at = (root / file).read_text("utf-8"), 0
    for number, (line, code) in enumerate(zip(text.splitlines(keepends=True), _code(text), strict=True), 1):
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
                for column in range(left if row == first else 0, right if row == last else len(lines[row - 1]) - 1):
                    lines[row - 1][column] = " "
    return ["".join(line) for line in lines]


def judges(root, file, others):
    """Lists of paths of tests, which run one after the other until one kills: the module's own, its package's, others'."""
    module, tests = pathlib.Path(file).relative_to(LIBRARY), root / "tests"
    own, package = tests / module.with_name(f"test_{module.name}"), tests / module.parts[0]
    folders = package, tests / ALSO.get(module.parts[0], module.parts[0])
    lists = [[path] for path in dict.fromkeys((own, *folders)) if path.exists()]
    if others:
        lists.append([path for path in sorted(tests.iterdir()) if path.is_dir() and path not in folders or
                      path.match("test_*.py")])
    return [[path.relative_to(root).as_posix() for path in paths] for paths in lists]


def of_package(root, file):
    """Of the lists of judges those of whole folders, or the only one."""
    lists = judges(root, file, False)
    return [paths for paths in lists if (root / paths[0]).is_dir()] or lists


def fate(copy, mutant, lists, short):
    """"killed", "killed by all" (of those of --short, none did) or "SURVIVED"."""
    path = copy / mutant.file
    text = path.read_text("utf-8")
    path.write_text(mutant.mutated(text), "utf-8")
    try:
        for options, what in ((["--short"], "killed"), ([], "killed by all")) if short else (([], "killed"),):
            if any(fails(copy, [*options, *paths]) for paths in lists):
                return what
        return "SURVIVED"
    finally:
        path.write_text(text, "utf-8")


def fails(copy, arguments):
    """Whether these tests fail, or take too long; exits if pytest cannot run them at all."""
    command = [sys.executable, "-m", "pytest", "-x", "-n", "2", "--dist", "worksteal", *arguments]
    process = subprocess.Popen(command, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    if process.returncode == CANNOT_RUN:
        sys.exit(said)
    return process.returncode not in PASSED


def main(arguments, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args(arguments)
    files = [(LIBRARY / file).as_posix() for file in asked.files] or sorted(
        path.relative_to(root).as_posix() for package in PACKAGES for path in (root / LIBRARY / package).rglob("*.py"))
    work = mutations.sample([mutant for file in files for mutant in mutants(root, file)], asked.sample, asked.seed)
    fates = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(root, pathlib.Path(folder, "project"), ignore=NOT_COPIED)
        os.symlink(ROOT / ".venv", copy / ".venv")
        for paths in sorted({tuple(paths) for mutant in work for paths in of_package(root, mutant.file)}):
            if fails(copy, [*(["--short"] if asked.short else []), *paths]):
                sys.exit(f"{' '.join(paths)}: tests fail without a mutation")
        for mutant in work:
            end = fate(copy, mutant, judges(root, mutant.file, asked.all), asked.short)
            fates[end] += 1
            print(f"{end}: {mutant.file}:{mutant.number}: {mutant.line}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in sorted(fates.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
