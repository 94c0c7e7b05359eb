"""Mutation testing of a rung's kernels: changes them in small ways, one at a time, and counts the mutants that tests kill.

Usage: python tests/support/mutate_kernels.py RUNG [FILE ...] [--sample COUNT]

FILE: in the rung's folder or below kernels/; default: all files of the rung and the headers that they include. --sample
selects COUNT of the mutants, always the same ones.

Each mutant changes one operator, bound, index, constant or barrier in a copy of the project, whose tests/kernels/test_RUNG.py
then run until the first failure; two mutants at a time. Prints the surviving mutants and the share of killed ones; mutants
that do not compile are not counted. A survivor needs a better test, or an entry in equivalent_mutants.toml with the reason why
it computes the same.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

from tqdm import tqdm

import cuda_emulator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARALLEL = 2
# Of rungs without kernels of their own.
FILES = dict.fromkeys(("gpu_gemm", "gpu_3xtf32", "gpu_tf32"), "gpu_opt_v1/conv2d_*.cu")
BODY = re.compile(r"\) (const )?\{( |$)")   # of a function, or of a loop
# pattern -> replacements
MUTATIONS = [
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* ", [" + "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" \+= ", [" -= ", " = "]),
    (r" < ", [" <= "]), (r" >= ", [" > "]), (r" <= ", [" < "]), (r" > ", [" >= "]), (r" == ", [" != "]), (r" \|\| ", [" && "]),
    (r" && ", [" || "]), (r"\bmax\(", ["min("]), (r"\bmin\(", ["max("]), (r"\b0\b(?![.x])", ["1"]), (r"\b1\b(?![.x])", ["2"]),
    (r"\b2\b(?![.x])", ["1"]), (r"__syncthreads\(\);", [""]), (r"__syncwarp\(\);", [""]), (r"cp_async_wait<\d+>\(\);", [""]),
    (r"wgmma_(fence|commit|wait<\d>)\(\);", [""]), (r"barrier(s_visible|_wait|_arrive|_expect)\(.*?\);", [""]),
    (r"threadIdx\.x", ["threadIdx.y"]), (r"threadIdx\.y", ["threadIdx.x"]), (r"\bheight\b", ["width"]),
    (r"\bwidth\b", ["height"]), (r"\bchannels\b", ["filters"]), (r"\bfilters\b", ["channels"]),
    (r"\bdouble\b", ["float"]), (r"\b(?=(?:exp|log|pow)f\()", ["__"]),
]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """file: below kernels/; line: as mutated; text: of the whole file."""

    file: str
    number: int
    line: str
    text: str


def mutants(kernels, file):
    """Every mutation of the function bodies in a file; comments, signatures and code hidden from g++ are left alone."""
    lines, inside, hidden = (kernels / file).read_text().splitlines(keepends=True), False, False
    for number, line in enumerate(lines):
        code = line.partition("//")[0].rstrip()
        opened = BODY.search(code)
        hidden = line.startswith("#ifndef CUDA_EMULATOR") or (hidden and not line.startswith("#endif"))
        start = 0 if inside else opened.end() if opened else len(code)
        for pattern, replacements in [] if hidden else MUTATIONS:
            for found in re.compile(pattern).finditer(code, start):
                for new in replacements:
                    mutated = line[:found.start()] + new + line[found.end():]
                    yield Mutant(file, number + 1, mutated.strip(), "".join([*lines[:number], mutated, *lines[number + 1:]]))
        inside = (inside or bool(opened) and opened.end() == len(code)) and not line.startswith("}")


def files_of(kernels, rung):
    """All files of a rung and the headers that they include, below kernels/."""
    found = set().union(*(cuda_emulator.with_headers(path, kernels) for path in kernels.glob(FILES.get(rung, f"{rung}/*.cu"))))
    return sorted(path.relative_to(kernels).as_posix() for path in found)


def equivalent(root, rung=None):
    """(file, mutated line) of the mutants that compute the same, in all rungs or in this one; without a rung, of all."""
    entries = tomllib.loads((root / "tests/support/equivalent_mutants.toml").read_text()).get("mutant", [])
    return {(entry["file"], entry["line"]) for entry in entries if rung is None or entry.get("rung", rung) == rung}


def copy_project(source, target):
    for part in ("kernels", "tests", "workflow/scripts", "benchmarks"):
        shutil.copytree(source / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "pyproject.toml", target)


def fate(rung, mutant, base, timeout):
    """"killed", "survived" or "does not compile": the result of the rung's tests on the mutant.

    base: an unchanged copy of the project, with a cache of its compiled kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        copy_project(base, copy)
        shutil.copytree(base / "cache", copy / "cache", copy_function=os.link)
        (copy / "kernels" / mutant.file).write_text(mutant.text)
        try:
            tests = run_tests(rung, copy, timeout)
        except subprocess.TimeoutExpired:   # an endless loop counts as killed
            return "killed"
        if "CompileError" in tests.stdout:
            return "does not compile"
        return "survived" if tests.returncode == 0 else "killed"


def run_tests(rung, folder, timeout=None):
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/kernels/test_{rung}.py"]
    return subprocess.run(command, cwd=folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
                          capture_output=True, text=True, timeout=timeout)


def main(arguments, root=ROOT):
    parser = argparse.ArgumentParser()
    parser.add_argument("rung")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int)
    asked = parser.parse_args(arguments)
    rung, kernels, explained = asked.rung, root / "kernels", equivalent(root, asked.rung)
    folder = FILES.get(rung, rung).partition("/")[0]
    files = [file if "/" in file else f"{folder}/{file}" for file in asked.files] or files_of(kernels, rung)
    work = [mutant for file in files for mutant in mutants(kernels, file)]
    if asked.sample and asked.sample < len(work):
        work = sorted(random.Random(0).sample(work, asked.sample), key=lambda mutant: (mutant.file, mutant.number))
    count = collections.Counter(explained=sum((mutant.file, mutant.line) in explained for mutant in work))
    work = [mutant for mutant in work if (mutant.file, mutant.line) not in explained]
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool, tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        copy_project(root, base)
        run_tests(rung, base)   # fills the cache
        start = time.monotonic()
        tests = run_tests(rung, base)
        if tests.returncode:
            sys.exit(f"the tests of {rung} fail on the kernels as they are:\n{tests.stdout}")
        timeout = 60 + 10 * (time.monotonic() - start)
        fates = pool.map(lambda mutant: fate(rung, mutant, base, timeout), work)
        for mutant, found in tqdm(zip(work, fates, strict=True), total=len(work), disable=None):   # a bar on terminals only
            count[found] += 1
            if found == "survived":
                print(f"survived: {mutant.file}:{mutant.number}: {mutant.line}", flush=True)
    alive = count["killed"] + count["survived"]
    print(f"{rung}: {count['killed']} of {alive} mutants killed ({count['killed'] / max(alive, 1):.1%}); "
          f"{count['explained']} more compute the same, {count['does not compile']} do not compile")


if __name__ == "__main__":
    main(sys.argv[1:])
