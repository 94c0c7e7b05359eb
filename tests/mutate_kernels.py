"""Breaks the kernels of a rung in small ways, one at a time, and counts how many of these mutants its tests notice.

Usage: python tests/mutate_kernels.py gpu_basic [file.cu ...]

Each mutant changes one operator, bound, index, constant or barrier of one file in a copy of the project, whose tests of
that rung then run until the first failure. Prints the mutants that survive, and the share that was killed. A survivor
wants a better test, or stands in EQUIVALENT with the reason why it computes the same.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARALLEL = 2
# pattern -> replacements
MUTATIONS = [
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* ", [" + "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" \+= ", [" -= ", " = "]),
    (r" < ", [" <= "]), (r" >= ", [" > "]), (r" <= ", [" < "]), (r" > ", [" >= "]), (r" == ", [" != "]), (r" \|\| ", [" && "]),
    (r" && ", [" || "]), (r"\bmax\(", ["min("]), (r"\bmin\(", ["max("]), (r"\b0\b(?![.x])", ["1"]), (r"\b1\b(?![.x])", ["2"]),
    (r"\b2\b(?![.x])", ["1"]), (r"__syncthreads\(\);", [""]), (r"__syncwarp\(\);", [""]), (r"cp_async_wait<\d+>\(\);", [""]),
    (r"threadIdx\.x", ["threadIdx.y"]), (r"threadIdx\.y", ["threadIdx.x"]), (r"\bheight\b", ["width"]),
    (r"\bwidth\b", ["height"]), (r"\bchannels\b", ["filters"]), (r"\bfilters\b", ["channels"]),
]
# (file, line as mutated) that compute the same as the original, and why.
EQUIVALENT = {
    ("relu.cu", "if (i < count) y[i] = x[i] <= 0.0f ? 0.0f : x[i];"): "zero becomes zero either way",
}


def mutants(text):
    """(line number, mutated text) for every mutation of the kernels' bodies; comments and signatures stay as they are."""
    lines, inside = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        code = line.partition("//")[0]
        if inside:
            for pattern, replacements in MUTATIONS:
                for found in re.finditer(pattern, code):
                    for new in replacements:
                        mutated = line[:found.start()] + new + line[found.end():]
                        yield number + 1, mutated.strip(), "".join([*lines[:number], mutated, *lines[number + 1:]])
        inside = (inside or code.rstrip().endswith(") {")) and not line.startswith("}")


def copy_project(source, target):
    for part in ("kernels", "tests", "workflow/scripts"):
        shutil.copytree(source / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "pyproject.toml", target)


def survives(rung, file, text, base):
    """Whether the tests of the rung pass although `file` holds `text`; `base`: the project as it was at the start."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        copy_project(base, copy)
        (copy / "kernels" / rung / file).write_text(text)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/test_kernels_{rung}.py"]
        environment = {**os.environ, "XDG_CACHE_HOME": str(base / "cache")}
        try:
            return subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=60).returncode == 0
        except subprocess.TimeoutExpired:   # a loop that never ends is noticed, too
            return False


def main(rung, *files):
    files = files or sorted(path.name for path in (ROOT / "kernels" / rung).glob("*.cu"))
    work = [(file, *mutant) for file in files for mutant in mutants((ROOT / "kernels" / rung / file).read_text())]
    work = [item for item in work if (item[0], item[2]) not in EQUIVALENT]
    killed = 0
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool, tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        copy_project(ROOT, base)
        if not survives(rung, files[0], (base / "kernels" / rung / files[0]).read_text(), base):
            sys.exit(f"the tests of {rung} fail on the kernels as they are")
        results = pool.map(lambda item: survives(rung, item[0], item[3], base), work)
        for (file, number, line, _), survived in zip(work, results, strict=True):
            killed += not survived
            if survived:
                print(f"survived: {file}:{number}: {line}", flush=True)
    print(f"{rung}: {killed} of {len(work)} mutants killed ({killed / len(work):.1%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
