"""Mutation testing of the library: changes modules in small ways, one at a time, and counts the mutants that tests kill.

Usage: python tests/support/mutate_python.py [FILE ...] [--sample COUNT] [--seed SEED] [--short] [--tests PATH ...]

FILE: below workflow/scripts/ladder; default: all modules of PACKAGES. --sample draws COUNT of the mutants, always the same for
a seed. --short: judged by the tests of `make test`, and only survivors by all. --tests: which judge; default: the module's own
tests, those of its package, then all others.

A mutant changes one operator, comparison, constant or condition within a function, in a copy of the project. A test run that
fails, hangs or does not start kills it. Prints each mutant with its fate, and the share of killed ones.
"""

import argparse
import collections
import dataclasses
import io
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path("workflow/scripts/ladder")
PACKAGES = ("executors", "training", "classifiers", "features", "workflow", "store")
COPIED = ("Snakefile", "config.yaml", "workflow", "profiles", "kernels", "presets", "envs", "tests", "benchmarks", "docs",
          "pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", ".github")
SECONDS = 1800   # for a run of the tests
# pattern -> replacement
MUTATIONS = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" // ", " * "), (r" % ", " // "),
    (r" \+= ", " -= "),
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" and ", " or "), (r" or ", " and "), (r"\bnot (?!in\b)", ""), (r" is not ", " is "), (r" not in ", " in "),
    (r"\bmax\(", "min("), (r"\bmin\(", "max("), (r"\bTrue\b", "False"), (r"\bFalse\b", "True"),
    (r"(?<![\w.])0(?![\w.])", "1"), (r"(?<![\w.])1(?![\w.])", "2"), (r"(?<![\w.])2(?![\w.])", "3"),
]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """file: below the project, in which `new` replaces what is from start to end; number, line: of the line, as mutated."""

    file: str
    number: int
    line: str
    start: int
    end: int
    new: str


def mutants(file):
    """Every mutation of the code within functions; texts, comments, signatures and decorators stay."""
    text = (ROOT / file).read_text("utf-8")
    at = 0
    for number, (line, code) in enumerate(zip(text.splitlines(keepends=True), _code(text), strict=True), 1):
        if line.startswith(" ") and not re.match(r"\s*(def |class |@|async def )", code):
            for pattern, new in MUTATIONS:
                for match in re.finditer(pattern, code):
                    mutated = line[:match.start()] + new + line[match.end():]
                    yield Mutant(file, number, mutated.strip(), at + match.start(), at + match.end(), new)
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


def draw(files, count, seed):
    """So many of the mutants of these files, in order; all of them for None."""
    work = [mutant for file in files for mutant in mutants(file)]
    return work if count is None else sorted(random.Random(seed).sample(work, count), key=lambda one: (one.file, one.number))


def judges(file):
    """Lists of paths of tests, which run one after the other until one kills: the module's own, its package's, all others."""
    module = pathlib.Path(file).relative_to(LIBRARY)
    tests = ROOT / "tests"
    own, package = tests / module.with_name(f"test_{module.name}"), tests / module.parts[0]
    there = [[path] for path in (own, package) if path.exists()]
    others = sorted(path for path in tests.iterdir() if path != package and path.name != "__pycache__")
    return [[str(path.relative_to(ROOT)) for path in paths] for paths in (*there, others)]


def fate(mutant, copy, tests, short):
    """What happens to the project with the mutant: "killed", "killed by all" (of those of --short, none did) or "SURVIVED"."""
    path = copy / mutant.file
    text = path.read_text("utf-8")
    path.write_text(text[:mutant.start] + mutant.new + text[mutant.end:], "utf-8")
    lists = [tests] if tests else judges(mutant.file)
    try:
        for option, what in ((["--short"], "killed"), ([], "killed by all")) if short else (([], "killed"),):
            if not all(passes(copy, [*option, *paths]) for paths in lists):
                return what
        return "SURVIVED"
    finally:
        path.write_text(text, "utf-8")


def passes(copy, arguments):
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "worksteal", *arguments]
    process = subprocess.Popen(command, cwd=copy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(SECONDS) in (0, 5)   # 5: none of them is left
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--tests", nargs="+")
    asked = parser.parse_args()
    files = [str(LIBRARY / file) for file in asked.files] or sorted(
        str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / LIBRARY / package).rglob("*.py"))
    fates = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
        os.symlink(ROOT / ".venv", copy / ".venv")
        for mutant in draw(files, asked.sample, asked.seed):
            end = fate(mutant, copy, asked.tests, asked.short)
            fates[end] += 1
            print(f"{end}: {mutant.file}:{mutant.number}: {mutant.line}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in sorted(fates.items())))


if __name__ == "__main__":
    main()
